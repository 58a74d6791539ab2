import copy
import warnings

import numpy as np
import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

import count01_lens.heads.analysis as analysis_module
from count01_lens.common.storage import DamagedFileError
from count01_lens.heads.analysis import HeadAnalysis, analyze_heads
from count01_lens.heads.groups import shapley_values
from count01_lens.heads.metrics import separation_accuracy
from count01_lens.heads.runners import model_logits
from count01_lens.heads.verdict import judge
from count01_lens.models.checkpoints import example_model
from count01_lens.models.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.models.model import ModelConfig, build_model
from count01_lens.tasks.dataset import SplitSpec, make_splits
from count01_lens.training.trainer import next_token_loss
from tests.helpers import TINY

EXAMPLE = analyze_heads(example_model())


def test_the_table_has_a_row_per_head_with_everything():
    table = EXAMPLE.table
    assert len(table) == 16
    promised = {
        "l_acc", "roc_auc", "s_acc", "category", "w01", "w02", "head_weight", "eos_l_acc", "readout",
    }  # fmt: skip
    assert promised <= set(table.columns)
    singles = separation_accuracy(EXAMPLE.data, np.eye(16, dtype=bool))
    np.testing.assert_allclose(table["s_acc"], singles, atol=1e-12)
    expected = [
        "successful" if s >= 0.98 else "failed" if s <= 0.60 else "mixed" for s in table["s_acc"]
    ]
    assert table["category"].tolist() == expected
    ties = make_splits().test.ties.double().mean().item()
    combined = ties * table["s_acc_ties"] + (1 - ties) * table["s_acc_others"]
    np.testing.assert_allclose(combined, table["s_acc"], atol=1e-9)


def test_pairs_are_symmetric_with_single_heads_on_the_diagonal():
    for metric in ("l_acc", "roc_auc", "s_acc"):
        matrix = EXAMPLE.pairs[metric]
        assert matrix.shape == (16, 16)
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_array_equal(np.diag(matrix), EXAMPLE.table[metric])
    mask = np.zeros((1, 16), dtype=bool)
    mask[0, [3, 12]] = True
    expected = separation_accuracy(EXAMPLE.data, mask)[0]
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
    analysis = analyze_heads(model)
    assert "Call .groups()" in analysis.answer
    analysis.groups()
    assert analysis.verdict["answer"].word == word
    assert not analysis.verdict["answer"].competing
    assert set(analysis.table["category"]) == categories
    expected = {"cooperate": "they cooperate", "redundant": "they are redundant"}[word]
    assert f"On the answer {expected}" in analysis.answer


def test_the_minimal_model_has_one_head():
    analysis = analyze_heads(minimal_model())
    assert analysis.answer.startswith("1 head: 1 successful, 0 mixed, 0 failed")
    assert "no other to compete or cooperate with" in analysis.answer
    assert analysis.groups()["mask"].tolist() == [1]
    assert analysis.pairs["s_acc"].shape == (1, 1)
    with pytest.raises(ValueError, match="verdict: expected at least two heads, got one"):
        _ = analysis.verdict


def test_thresholds_of_the_words():
    def verdict(interaction, values):
        matrix = np.full((3, 3), interaction)
        np.fill_diagonal(matrix, values)
        return judge({"answer": matrix})["answer"]

    assert verdict(0.01, [0.1, 0.2, 0.3]).word == "cooperate"
    assert verdict(-0.01, [0.1, 0.2, 0.3]).word == "redundant"
    assert verdict(0.009, [0.1, 0.2, 0.3]).word == "neither"
    competing = verdict(0.0, [0.1, -0.02, -0.3])
    assert competing.competing == (1, 2)
    assert "2 work against the rest (heads 1, 2)" in str(competing)
    assert verdict(0.0, [0.1, -0.019, 0.3]).competing == ()


def test_shapley_and_interactions():
    analysis = analyze_heads(build_model(ModelConfig(d_embed=8, n_heads=4), seed=1))
    groups = analysis.groups()
    assert groups["mask"].tolist() == list(range(1, 16))
    assert analysis.groups() is groups  # computed once
    values = np.concatenate([[analysis._groups.empty["s_acc"]], groups["s_acc"]])
    np.testing.assert_allclose(analysis.shapley("s_acc"), shapley_values(values))
    interactions = analysis.interactions("s_acc")
    np.testing.assert_allclose(np.diag(interactions), analysis.shapley("s_acc"))
    sampled = analysis.sampled_shapley("l_acc", n_permutations=200, seed=3)
    error = np.abs(sampled.values - analysis.shapley("l_acc"))
    assert (error <= 5 * sampled.standard_errors + 1e-12).all()
    for metric in ("l_acc", "s_acc"):
        means, errors = analysis.sampled_interactions(metric, n_samples=60, seed=3)
        error = np.abs(means - analysis.interactions(metric))[np.triu_indices(4, 1)]
        assert (error <= 5 * errors[np.triu_indices(4, 1)] + 2 / 1500).all()
        assert not np.array_equal(means, analysis.sampled_interactions(metric, n_samples=60)[0])
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
    analysis.table.loc[0, "w01"] = np.inf
    analysis.groups()
    analysis.save(tmp_path / "analysis.safetensors")
    again = HeadAnalysis.load(tmp_path / "analysis.safetensors")
    assert again.table.equals(analysis.table)
    assert again.groups().equals(analysis.groups())
    assert again.answer == analysis.answer
    assert again.accuracy == analysis.accuracy
    for metric, matrix in analysis.pairs.items():
        np.testing.assert_array_equal(again.pairs[metric], matrix)
    np.testing.assert_array_equal(again.shapley("s_acc"), analysis.shapley("s_acc"))
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
    model = HookedTransformer(
        HookedTransformerConfig(
            d_model=16, d_head=8, n_heads=2, n_layers=2, n_ctx=32, d_vocab=8, d_mlp=32,
            act_fn="gelu", normalization_type="LN", device="cpu",
        )
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
    assert everybody["eos_l_acc"] == pytest.approx(analysis.accuracy["eos"])
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
    monkeypatch.setattr(analysis_module, "separation_fits", None)
    with pytest.raises(TypeError, match="splits: expected the result of make_splits"):
        analyze_heads(example_model(), 3)
    with pytest.raises(TypeError, match="model: expected a HookedTransformer"):
        analyze_heads(torch.nn.Linear(1, 1))
    model = build_model()
    model.W_E.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="expected finite weights"):
        analyze_heads(model)
    only_fives = SplitSpec(size=20, zeros_and_ones=(3, 3), twos=(0, 3))
    with pytest.raises(ValueError, match="train split: expected both answers"):
        analyze_heads(example_model(), make_splits(0, train=only_fives))
