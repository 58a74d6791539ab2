"""Several models side by side: each as its own analysis says, and words by their intervals."""

import numpy as np
import pytest
from scipy import stats

import count01_lens as cl
from count01_lens.common.student import MeanInterval, mean_interval
from count01_lens.heads import comparison
from count01_lens.heads.comparison import word_over_models, written
from count01_lens.heads.group_numbers import group_numbers
from experiments.cooperation_rules import word_of
from experiments.suite import spread
from tests.helpers import TINY, two_layers

MODELS = {f"seed {seed}": cl.build_model(cl.ModelConfig(d_embed=8, n_heads=4), seed=seed)
          for seed in range(3)}  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return cl.compare_heads(MODELS, TINY)


def test_each_row_is_what_the_analysis_of_that_model_says(found):
    assert found.table["model"].tolist() == list(MODELS)
    for row, model in zip(found.table.to_dict("records"), MODELS.values(), strict=True):
        analysis = cl.analyze_heads(model, TINY).with_groups()
        assert row["accuracy"] == analysis.accuracy["answer"]
        assert row["end_accuracy"] == analysis.accuracy["end"]
        assert row["successful"] == (analysis.table["category"] == "successful").sum()
        for metric in found.metrics:
            mean = analysis.interactions(metric)[np.triu_indices(4, 1)].mean()
            assert row[f"{metric}_mean_interaction"] == pytest.approx(mean, abs=1e-9)
        expected = group_numbers(analysis._values("l_acc"))
        assert row["l_acc_heads_for_99"] == expected["heads_for_99"]
        assert row["l_acc_facilitating"] == expected["facilitating"]
        assert np.isnan(row["s_acc_heads_for_99"])
        matrix = found.interactions("roc_auc")[row["model"]]
        np.testing.assert_allclose(matrix, analysis.interactions("roc_auc"), atol=1e-12)


def test_means_have_intervals_over_models(found):
    values = found.table["roc_auc_mean_interaction"]
    mean, low, high, n = found.interaction("roc_auc")
    expected = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert (mean, n) == (pytest.approx(values.mean()), 3)
    assert (low, high) == pytest.approx(expected)
    row = found.means.set_index("number").loc["roc_auc_mean_interaction"]
    assert row[["mean", "low", "high"]].tolist() == pytest.approx([mean, low, high])
    assert found.means.set_index("number").loc["s_acc_heads_for_99", "n"] == 0


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_the_interval_is_that_of_the_experiments(n):
    values = np.random.default_rng(n).normal(size=n).tolist()
    ours, theirs = mean_interval([*values, np.nan]), spread(values)
    assert ours.n == theirs["n"]
    if n:
        assert ours.mean == pytest.approx(theirs["mean"])
    if n > 1:
        assert (ours.low, ours.high) == pytest.approx((theirs["low"], theirs["high"]))
    assert (ours.low is None) == (theirs["low"] is None)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.01, 0.02, "cooperate"), (-0.02, -0.01, "redundant"), (-0.009, 0.009, "neither"),
        (-0.01, 0.0, "undecided"), (0.0, 0.01, "undecided"), (-0.5, 0.5, "undecided"),
        (None, None, "undecided"),
    ],
)  # fmt: skip
def test_the_words_are_those_of_the_experiments(low, high, word):
    assert word_over_models(MeanInterval(0.0, low, high, 3)) == word
    assert word_of({"mean": 0.0, "low": low, "high": high}) == word


def test_models_with_a_known_answer():
    ensembles = cl.compare_heads({str(n): cl.ensemble_model(n) for n in (2, 3, 4)}, TINY)
    assert ensembles.words["s_acc"] in ("redundant", "undecided")
    assert (ensembles.table["s_acc_mean_interaction"] < -0.1).all()
    same = cl.compare_heads({name: cl.cooperative_model() for name in "abc"}, TINY)
    assert same.words["s_acc"] == "cooperate"
    assert same.judged == {"s_acc": "answer", "l_acc": "answer", "eos_l_acc": "end"}
    assert "On the answer and on '[EOS]', the heads of these 3 models cooperate. " in same.answer
    assert "coop" not in repr(ensembles).splitlines()[1]


def test_curves_are_means_over_groups_of_a_size(found):
    curves = found.curves
    groups = cl.analyze_heads(MODELS["seed 1"], TINY).groups()
    of_model = curves[(curves["model"] == "seed 1") & (curves["metric"] == "l_acc")]
    expected = groups.groupby("size")["l_acc"].mean()
    assert of_model["size"].tolist() == [0, 1, 2, 3, 4]
    assert of_model["mean"].tolist()[1:] == pytest.approx(expected.tolist())
    ends = curves[(curves["model"] == "seed 1") & (curves["metric"] == "s_acc")]
    assert ends["size"].tolist() == [0, 1, 3, 4]


def test_what_an_analysis_knows_is_not_measured_again(monkeypatch):
    whole = cl.analyze_heads(MODELS["seed 0"], TINY).with_groups()
    monkeypatch.setattr(comparison, "measure_groups", None)
    found = cl.compare_heads({"whole": whole})
    assert found.table["s_acc_heads_for_99"].notna().all()
    assert found.words == dict.fromkeys(found.metrics, "undecided")
    assert found.answer.endswith("One model has no interval over models: compare several.")


def test_checkpoints_models_and_analyses_of_different_sizes(tmp_path):
    path = cl.save_checkpoint(MODELS["seed 0"], tmp_path / "model")
    large = cl.build_model(cl.ModelConfig(d_embed=20, n_heads=20), seed=0)
    found = cl.compare_heads(
        {"path": str(path), "same": cl.analyze_heads(MODELS["seed 0"], TINY), "large": large}, TINY
    )
    assert found.table["heads"].tolist() == [4, 4, 20]
    one, other, _ = found.table.drop(columns="model").to_dict("records")
    assert one == pytest.approx(other, nan_ok=True)
    assert found.notes[0] == "large: 20 heads have too many groups to measure all of them"
    assert found.table["l_acc_mean_interaction"].notna().all()
    assert list(found.interactions("l_acc")) == ["path", "same"]


def test_deep_models_on_another_task_are_judged_by_l_acc():
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 8, (80, 6))
    task = cl.Task.split(cl.Prompts(tokens, 1 + tokens[:, 2] % 3), test=0.4, seed=0)
    model = two_layers()
    found = cl.compare_heads({"one": model, "two": model}, task)
    assert found.judged == {"l_acc": "answer"}
    assert "eos_l_acc" not in found.metrics
    assert found.interaction("l_acc").low == pytest.approx(found.interaction("l_acc").mean)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({}, "expected several by name"),
        ([1], "expected several by name"),
        ({1: "path"}, "expected names as keys, got 1"),
        ({"one": 3}, r"models\['one'\]: expected an analysis, a HookedTransformer or the path"),
    ],
)
def test_what_cannot_be_compared(models, message):
    with pytest.raises(TypeError, match=message):
        cl.compare_heads(models)


def test_errors_come_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "analyze_heads", None)
    with pytest.raises(cl.CheckpointError, match="nowhere"):
        cl.compare_heads({"one": MODELS["seed 0"], "two": tmp_path / "nowhere"})
    with pytest.raises(ValueError, match="groups: expected 'ends' or 'all'"):
        cl.compare_heads(MODELS, groups="pairs")


def test_numbers_are_written_with_signs():
    assert written(MeanInterval(-0.0001, -0.01, 0.02, 3)) == "0.000 [−0.010, +0.020]"
    assert written(MeanInterval(0.5, None, None, 1)) == "+0.500"
    assert written(MeanInterval(float("nan"), None, None, 0)) == "–"


def test_models_that_come_twice_or_were_measured_in_different_ways_are_noted():
    twice = cl.compare_heads({"a": cl.ensemble_model(2), "b": cl.ensemble_model(2)})
    said = "1 model given more than once: intervals count each as a new model"
    assert twice.notes == (said,)
    assert said in repr(twice)
    zero = cl.analyze_heads(cl.ensemble_model(2), progress=False)
    mean = cl.analyze_heads(cl.ensemble_model(3), ablation="mean", progress=False)
    found = cl.compare_heads({"zero": zero, "mean": mean})
    assert found.notes == ("the models were measured with different ablations: means mix them",)
