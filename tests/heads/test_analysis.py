"""`analyze_heads` against its parts, and an analysis as a value, in files and in words."""

import copy
import dataclasses
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import count01_lens.heads.analyze as analyze_module
from count01_lens.common.bundle import Bundle, read_bundle, write_bundle
from count01_lens.common.storage import DamagedFileError
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.games import shapley_values
from count01_lens.heads.metrics import METRICS, Groups
from count01_lens.heads.runners import model_logits
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import CountSpec, SplitSpec, make_splits
from count01_lens.training.trainer import next_token_loss
from tests.helpers import TINY
from tests.lens_versions import KIND, made

EXAMPLE = analyze_heads(example_model())


def test_the_table_has_a_row_per_head_with_everything():
    table = EXAMPLE.table
    assert len(table) == 16
    promised = {
        "l_acc", "roc_auc", "s_acc", "category", "w01", "w02", "head_weight", "eos_l_acc", "readout",
    }  # fmt: skip
    assert promised <= set(table.columns)
    singles = Groups(EXAMPLE.data, np.eye(16, dtype=bool)).probe_accuracy
    np.testing.assert_allclose(table["s_acc"], singles, atol=1e-12)
    expected = [
        "successful" if s >= 0.98 else "failed" if s <= 0.60 else "mixed" for s in table["s_acc"]
    ]
    assert table["category"].tolist() == expected
    ties = make_splits().test.ties.double().mean().item()
    combined = ties * table["s_acc_ties"] + (1 - ties) * table["s_acc_others"]
    np.testing.assert_allclose(combined, table["s_acc"], atol=1e-9)


def test_the_table_says_how_often_printed_readouts_decide_otherwise(tmp_path):
    off = EXAMPLE.table[["readout_off", "learned_readout_off"]]
    assert 0 < off.to_numpy().max() < 0.01
    EXAMPLE.save(tmp_path / "analysis")
    loaded = HeadAnalysis.load(tmp_path / "analysis").table
    np.testing.assert_array_equal(loaded[off.columns], off)
    assert list(loaded) == list(EXAMPLE.table)
    assert EXAMPLE.table["readout_off"][2] == 2 / 1500


def test_pairs_are_symmetric_with_single_heads_on_the_diagonal():
    for metric in ("l_acc", "roc_auc", "s_acc"):
        matrix = EXAMPLE.pairs[metric]
        assert matrix.shape == (16, 16)
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_array_equal(np.diag(matrix), EXAMPLE.table[metric])
    mask = np.zeros((1, 16), dtype=bool)
    mask[0, [3, 12]] = True
    expected = Groups(EXAMPLE.data, mask).probe_accuracy[0]
    assert EXAMPLE.pairs["s_acc"][3, 12] == pytest.approx(expected, abs=2 / 1500)
    better = max(EXAMPLE.table["s_acc"][3], EXAMPLE.table["s_acc"][12])
    assert EXAMPLE.gains[3, 12] == pytest.approx(EXAMPLE.pairs["s_acc"][3, 12] - better)
    assert len(EXAMPLE.pairs_table()) == 120
    assert EXAMPLE.worst_gradient <= 1e-10


def test_the_whole_models_accuracy():
    test = make_splits().test
    logits = model_logits(example_model(), test)
    right = (logits[:, 5] > logits[:, 6]) == test.labels
    assert EXAMPLE.accuracy["answer"] == pytest.approx(right.double().mean().item())
    assert EXAMPLE.accuracy["ties"] == pytest.approx(right[test.ties].double().mean().item())


@pytest.mark.parametrize(
    ("model", "word", "categories"),
    [
        (cooperative_model(), "cooperate", {"failed"}),
        (ensemble_model(3), "redundant", {"successful"}),
    ],
)
def test_the_words_are_right_on_the_controls(model, word, categories):
    alone = analyze_heads(model)
    assert "hint: .with_groups() measures all groups" in repr(alone)
    analysis = alone.with_groups()
    assert alone.verdict["answer"].word == analysis.verdict["answer"].word == word
    assert analysis.verdict["answer"].interfering == ()
    assert set(analysis.table["category"]) == categories
    expected = {"cooperate": "cooperate", "redundant": "are redundant"}[word]
    assert (
        f"judged by s-acc (what linear probes read from the heads), the heads {expected}: "
        in str(analysis.verdict)
    )
    against = {"cooperate": "better", "redundant": "worse"}[word]
    assert analysis.verdict["s_acc"].against_independent == against


def test_the_minimal_model_has_one_head():
    analysis = analyze_heads(minimal_model())
    assert analysis.answer == (
        "With one head, there is no other to compete or cooperate with. Alone, the only head is "
        "classed as successful (s-acc at least 0.98)."
    )
    assert "hint" not in repr(analysis)
    assert analysis.groups()["mask"].tolist() == [1]
    assert analysis.pairs["s_acc"].shape == (1, 1)
    with pytest.raises(ValueError, match="verdict: expected at least two heads, got one"):
        _ = analysis.verdict


def test_labels_have_intervals_and_agree_with_categories():
    analysis = analyze_heads(cooperative_model()).with_groups()
    labels = analysis.labels("s_acc")
    assert labels is analysis.labels("s_acc")
    assert labels.heads["label"].tolist() == ["facilitating"] * 2
    assert labels.pairs["label"].tolist() == ["cooperating"]
    np.testing.assert_allclose(labels.heads["shapley"], analysis.shapley("s_acc"))
    assert labels.n_prompts == 1500
    counts = analysis.agreement("s_acc")
    assert counts.loc["facilitating", "failed"] == counts.to_numpy().sum() == 2
    with pytest.raises(ValueError, match="labels: expected a metric that is a mean over prompts"):
        analysis.labels("roc_auc")
    with pytest.raises(ValueError, match="metric: expected"):
        analysis.labels("luck")


def test_words_and_nulls_are_saved_and_loaded(tmp_path):
    analysis = analyze_heads(ensemble_model(3)).with_groups()
    analysis.save(tmp_path / "analysis")
    loaded = HeadAnalysis.load(tmp_path / "analysis")
    assert str(loaded.verdict) == str(analysis.verdict)
    assert loaded.answer == analysis.answer
    for metric in ("s_acc", "l_acc", "eos_l_acc"):
        assert loaded.labels(metric).pairs.equals(analysis.labels(metric).pairs)
        found, expected = loaded.independent[metric], analysis.independent[metric]
        np.testing.assert_array_equal(found.by_size, expected.by_size)
        assert found.beyond == expected.beyond
    alone = analyze_heads(ensemble_model(3))
    alone.save(tmp_path / "alone")
    assert HeadAnalysis.load(tmp_path / "alone").answer == alone.answer


def test_shapley_and_interactions():
    analysis = analyze_heads(build_model(ModelConfig(d_embed=8, n_heads=4), seed=1))
    groups = analysis.groups()
    assert groups["mask"].tolist() == list(range(1, 16))
    assert analysis.groups() is groups  # computed once
    empty = METRICS["s_acc"].of_no_heads(analysis.data)
    values = np.concatenate([[empty], groups["s_acc"]])
    np.testing.assert_allclose(analysis.shapley("s_acc"), shapley_values(values))
    interactions = analysis.interactions("s_acc")
    np.testing.assert_allclose(np.diag(interactions), analysis.shapley("s_acc"))
    sampled = analysis.sampled_shapley("l_acc", n_permutations=200, seed=3)
    error = np.abs(sampled.values - analysis.shapley("l_acc"))
    assert (error <= 5 * sampled.standard_errors + 1e-12).all()
    for metric in ("l_acc", "s_acc"):
        found = analysis.sampled_interactions(metric, n_samples=60, seed=3)
        assert found.n_samples == 60
        error = np.abs(found.values - analysis.interactions(metric))[np.triu_indices(4, 1)]
        assert (error <= 5 * found.standard_errors[np.triu_indices(4, 1)] + 2 / 1500).all()
        other = analysis.sampled_interactions(metric, n_samples=60)
        assert not np.array_equal(found.values, other.values)
    for method in (analysis.shapley, analysis.sampled_shapley, analysis.sampled_interactions):
        with pytest.raises(ValueError, match="metric: expected 'l_acc' or"):
            method("accuracy")


def test_it_shows_itself():
    text = repr(EXAMPLE)
    assert text.splitlines()[0] == EXAMPLE.answer
    assert "readout" in text
    html = EXAMPLE._repr_html_()
    assert "<table" in html
    assert "n1 − " in html
    assert "<script" not in html


def test_it_can_be_saved_and_loaded(tmp_path):
    analysis = analyze_heads(build_model(ModelConfig(d_embed=6, n_heads=3), seed=4))
    analysis.counts.loc[0, "w01"] = np.inf
    analysis = analysis.with_groups()
    analysis.save(tmp_path / "analysis.safetensors")
    again = HeadAnalysis.load(tmp_path / "analysis.safetensors")
    assert again.table.equals(analysis.table)
    assert again.groups().equals(analysis.groups())
    assert again.answer == analysis.answer
    assert again.accuracy == analysis.accuracy
    for metric, matrix in analysis.pairs.items():
        np.testing.assert_array_equal(again.pairs[metric], matrix)
    np.testing.assert_array_equal(again.shapley("s_acc"), analysis.shapley("s_acc"))
    np.testing.assert_array_equal(again.fits.weights, analysis.fits.weights)
    assert again.worst_gradient == analysis.worst_gradient
    assert again.data.accuracies() == analysis.data.accuracies()
    data = bytearray((tmp_path / "analysis.safetensors").read_bytes())
    data[-100] ^= 1
    (tmp_path / "analysis.safetensors").write_bytes(data)
    with pytest.raises(DamagedFileError, match="does not fit its checksum"):
        HeadAnalysis.load(tmp_path / "analysis.safetensors")
    with pytest.raises(DamagedFileError, match="no such file"):
        HeadAnalysis.load(tmp_path / "nothing")


def trained_two_layer_model():
    """A model with positions, MLP, layer norm and two layers, trained on short sentences."""
    torch.manual_seed(0)
    model = made(
        d_model=16, d_head=8, n_heads=2, n_layers=2, n_ctx=32, d_vocab=8, d_mlp=32,
        act_fn="gelu", normalization_type="LN",
    )  # fmt: skip
    sequences = TINY.train.sequences()
    tokens = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=7)
    rows, at = torch.arange(300), torch.tensor([len(sequence) - 3 for sequence in sequences])
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        logits = model(tokens)
        loss = next_token_loss(logits[rows, at], logits[rows, at + 1], TINY.train.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


def test_a_trained_deep_model_gets_every_metric_that_makes_sense():
    model = trained_two_layer_model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        analysis = analyze_heads(model, TINY)
    assert analysis.accuracy["answer"] > 0.9
    table = analysis.table
    assert table[["layer", "head"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    for metric in ("l_acc", "roc_auc", "s_acc", "eos_l_acc"):
        assert table[metric].between(0, 1).all()
    assert "readout" not in table
    assert (
        "no attention ratios, head weights or count read-outs: it has 2 layers" in analysis.notes[0]
    )
    everybody = analysis.groups().iloc[-1]
    assert everybody["l_acc"] == pytest.approx(analysis.accuracy["answer"])
    assert everybody["eos_l_acc"] == pytest.approx(analysis.accuracy["end"])
    assert analysis.shapley("l_acc").shape == (4,)
    assert table["s_acc"].max() > 0.75


def test_the_model_is_left_as_it_was():
    model = example_model()
    state = copy.deepcopy(model.state_dict())
    flags = [parameter.requires_grad for parameter in model.parameters()]
    analyze_heads(model, TINY)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert not any(module._forward_hooks for module in model.modules())


def test_bad_input_is_rejected_before_any_work(monkeypatch):
    monkeypatch.setattr(analyze_module, "head_table", None)
    with pytest.raises(TypeError, match="task: expected a Task, or the result of make_splits"):
        analyze_heads(example_model(), 3)
    with pytest.raises(TypeError, match="probe: expected a classifier"):
        analyze_heads(example_model(), TINY, probe="svm")
    with pytest.raises(TypeError, match=f"model: expected a {KIND}"):
        analyze_heads(torch.nn.Linear(1, 1))
    model = build_model()
    model.W_E.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="expected finite weights"):
        analyze_heads(model)
    only_fives = SplitSpec(size=20, zeros_and_ones=(3, 3), twos=(0, 3))
    with pytest.raises(ValueError, match="train prompts: expected at least two different answers"):
        analyze_heads(example_model(), make_splits(0, train=only_fives))


def test_what_an_analysis_says_does_not_change():
    analysis = analyze_heads(build_model(ModelConfig(d_embed=8, n_heads=4), seed=1), TINY)
    before = repr(analysis), analysis.answer, analysis.worst_gradient, analysis.notes
    analysis.groups()
    _ = analysis.verdict, analysis.shapley("s_acc"), analysis.sampled_shapley("l_acc")
    assert (repr(analysis), analysis.answer, analysis.worst_gradient, analysis.notes) == before
    richer = analysis.with_groups()
    assert richer.groups() is analysis.groups()
    assert richer.verdict.summary in richer.answer
    assert richer.with_groups() is richer
    assert analysis.known_groups is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        analysis.accuracy = {}


def test_any_classifier_of_scikit_learn_is_a_probe(tmp_path):
    model = build_model(ModelConfig(d_embed=8, n_heads=4), seed=1)
    probe = make_pipeline(StandardScaler(), LogisticRegression())
    analysis = analyze_heads(model, TINY, probe=probe)
    data = analysis.data
    for head, value in enumerate(analysis.table["s_acc"]):
        fitted = clone(probe).fit(data.train_outputs[:, head], data.train_labels)
        assert value == fitted.score(data.test_outputs[:, head], data.test_labels)
    pair = data.train_outputs[:, [1, 3]].reshape(300, -1)
    fitted = clone(probe).fit(pair, data.train_labels)
    expected = fitted.score(data.test_outputs[:, [1, 3]].reshape(80, -1), data.test_labels)
    assert analysis.pairs["s_acc"][1, 3] == analysis.groups()["s_acc"][0b1010 - 1] == expected
    assert not hasattr(probe, "classes_")
    assert "readout" not in analysis.table  # scaled features: no inequality over counts
    linear = analyze_heads(model, TINY, probe=LinearSVC(C=1000, dual=False, tol=1e-10))
    assert linear.table["readout"].tolist() == analyze_heads(model, TINY).table["readout"].tolist()
    # A file holds no estimator: what was computed stays, and nothing is computed with another.
    analysis.save(tmp_path / "analysis")
    loaded = HeadAnalysis.load(tmp_path / "analysis")
    assert loaded.table.equals(analysis.table)
    with pytest.raises(TypeError, match=r"(?s)got only the name of a probe .*LogisticRegression"):
        loaded.groups()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    model = build_model(ModelConfig(d_embed=6, n_heads=3), seed=1).to(dtype)
    analysis = analyze_heads(model, TINY)
    assert analysis.notes == (
        f"its weights are {dtype}; what they compute is computed in torch.float32",
    )
    assert model.W_E.dtype == dtype
    expected = analyze_heads(model.float(), TINY)
    assert expected.notes == ()
    assert analysis.table.equals(expected.table)


def test_the_verdict_on_several_layers_is_of_l_acc_and_tells_layers_apart():
    model = trained_two_layer_model()
    analysis = analyze_heads(model, TINY).with_groups()
    matrix, found = analysis.interactions("l_acc"), analysis.verdict["answer"]
    within, between = (matrix[0, 1] + matrix[2, 3]) / 2, matrix[:2, 2:].mean()
    assert found.within == pytest.approx(within)
    assert found.between == pytest.approx(between)
    assert found.mean_interaction == pytest.approx((2 * within + 4 * between) / 6)
    texts = [f"{value:+.3f}".replace("-", "−") for value in (within, between)]
    assert "{} within layers, {} between layers".format(*texts) in str(found)
    one_layer = analyze_heads(build_model(ModelConfig(d_embed=8, n_heads=4), seed=1), TINY)
    one_layer = one_layer.with_groups()
    assert one_layer.verdict["answer"].between is None
    expected = one_layer.interactions("s_acc")[np.triu_indices(4, 1)].mean()
    assert one_layer.verdict["answer"].mean_interaction == pytest.approx(expected)


@pytest.mark.parametrize("symbols", ["a", "ab", "abcde"])
def test_that_of_any_counting_task_can_be_saved_and_loaded(symbols, tmp_path):
    """Its ratios have other names than those of Count01, or there are none."""
    few = CountSpec(size=60, counts=(0, 9))
    task = CountingTask(symbols, "XY", "na > 4", train=few, validation=few, test=few)
    model = build_model(ModelConfig(d_embed=4, n_heads=2), seed=0, task=task)
    analysis = analyze_heads(model, progress=False)
    analysis.save(tmp_path / "analysis")
    loaded = HeadAnalysis.load(tmp_path / "analysis")
    assert loaded.table.equals(analysis.table)


def reversed_masks(text, tensors):
    tensors["groups.mask"] = tensors["groups.mask"].flip(0).contiguous()


def other_contributions(text, tensors):
    tensors["contributions.s_acc"] = -tensors["contributions.s_acc"]


def no_number(text, tensors):
    tensors["ends.l_acc"][0] = float("nan")


@pytest.mark.parametrize(
    "damage",
    [
        reversed_masks,
        other_contributions,
        no_number,
        lambda text, tensors: text.update(ends=[]),
        lambda text, tensors: text.update(ends={}),
        lambda text, tensors: text["ends"].update(l_acc="0.5"),
        lambda text, tensors: text["ends"].update(l_acc=10**400),
        lambda text, tensors: text["independent"]["l_acc"].update(low=None),
        lambda text, tensors: text.update(sampled=[1]),
        lambda text, tensors: tensors.pop("independent.s_acc"),
    ],
)
def test_parts_about_groups_that_do_not_fit_are_refused(damage, tmp_path):
    analysis = analyze_heads(ensemble_model(3), TINY).with_groups()
    analysis.save(tmp_path / "analysis")
    (path,) = tmp_path.iterdir()
    bundle = read_bundle(path, "analysis")
    text, tensors = copy.deepcopy(dict(bundle.about)), dict(bundle.tensors)
    damage(text, tensors)
    write_bundle(path, Bundle("analysis", text, tensors))
    with pytest.raises(DamagedFileError, match="not an analysis of heads"):
        HeadAnalysis.load(path)
