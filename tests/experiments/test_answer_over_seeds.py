"""The answer over seeds: rules by hand, a small run, and the page that follows from the results."""

import json

import pandas as pd
import pytest

import count01_lens as cl
from count01_lens.common.student import MeanInterval
from experiments import answer_over_seeds as experiment
from experiments.answer_page import DOCS, page, write_page
from experiments.answer_rules import (
    DEVELOPMENT_SEEDS,
    JUDGED_SEEDS,
    METRICS,
    RECIPES,
    against_independent,
    judge,
    reading,
)


def test_words_need_the_whole_interval():
    cases = {(0.006, 0.01): "better", (-0.01, -0.006): "worse", (-0.005, 0.005): "alike",
             (0.0, 0.006): "undecided", (-0.006, 0.0): "undecided"}  # fmt: skip
    for (low, high), word in cases.items():
        assert against_independent(MeanInterval((low + high) / 2, low, high, 10)) == word
    assert against_independent(MeanInterval(0.1, None, None, 1)) == "undecided"
    assert reading("redundant", "worse") == "heads repeat each other"
    assert reading("redundant", "alike") == reading("redundant", "better") == "diminishing returns"
    assert reading("redundant", "undecided") == reading("cooperate", "worse") == "nothing"


def made_up(interaction, beyond):
    rows = [
        {"recipe": recipe, "seed": seed, "metric": metric,
         "mean_interaction": interaction + 0.0001 * seed, "beyond": beyond + 0.0001 * seed,
         "copies": -0.03, "enough": 2, "facilitating": 9, "interfering": 1, "irrelevant": 6}
        for recipe in RECIPES for metric in METRICS for seed in range(5)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("interaction", "beyond", "expected"),
    [
        (-0.02, -0.02, ("redundant", "worse", "heads repeat each other")),
        (-0.02, 0.0, ("redundant", "alike", "diminishing returns")),
        (0.02, 0.02, ("cooperate", "better", "nothing")),
    ],
)
def test_tables_are_judged_by_the_rules(interaction, beyond, expected):
    found = judge(made_up(interaction, beyond))
    for recipe in RECIPES:
        for metric in METRICS:
            each = found[recipe][metric]
            assert (each["word"], each["against_independent"], each["reading"]) == expected
            assert each["facilitating"] == 9


def test_judged_seeds_served_for_nothing_else():
    assert not set(JUDGED_SEEDS) & set(DEVELOPMENT_SEEDS)
    assert len(JUDGED_SEEDS) == 10


def test_a_small_run_says_what_analyses_say(monkeypatch, tmp_path):
    small = cl.TrainConfig().changed(epochs=2, n_heads=3, d_embed=6, batch_size=1000)
    monkeypatch.setattr(experiment, "RECIPES", dict.fromkeys(RECIPES, small))
    assert experiment.run(experiment.all_jobs("quick"), tmp_path, "quick", workers=0)
    results, labels = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("results", "labels"))
    assert json.loads((tmp_path / "verdict.json").read_text())["verdict"] is None
    model = cl.train(small, seeds=list(DEVELOPMENT_SEEDS), progress=False).models[1]
    analysis = cl.analyze_heads(model).with_groups(progress=False)
    mine = results[(results["recipe"] == "paper") & (results["seed"] == DEVELOPMENT_SEEDS[1])]
    for row in mine.to_dict("records"):
        finding = analysis.verdict[row["metric"]]
        assert row["word"] == finding.word
        assert row["mean_interaction"] == pytest.approx(finding.mean_interaction, abs=1e-5)
        assert row["beyond"] == pytest.approx(finding.independent.beyond, abs=1e-5)
    assert (labels.groupby(["recipe", "seed", "metric"])["heads"].sum() == 3).all()
    with pytest.raises(ValueError, match="expected those of a full run"):
        write_page(tmp_path, tmp_path)


def test_the_page_and_the_verdict_follow_from_the_results():
    about = json.loads((DOCS / "answer" / "verdict.json").read_text("utf-8"))
    results, labels = (
        pd.read_csv(DOCS / "answer" / f"{name}.csv") for name in ("results", "labels")
    )
    assert judge(results) == about["verdict"]
    assert about["seeds"] == list(JUDGED_SEEDS)
    assert about["rules_sha256"] == experiment.rules_checksum()
    assert page(results, labels, about) == (DOCS / "answer.md").read_text("utf-8")
    assert len(results) == 2 * 10 * 3
