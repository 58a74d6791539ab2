"""The experiment on cooperation over training: what is measured, and that the page says what is."""

import json

import numpy as np
import pandas as pd
import pytest

import count01_lens as cl
from count01_lens.training.recipe import steps_per_epoch
from experiments import cooperation_over_training as experiment
from experiments.change_figure import training_figure
from experiments.change_page import DOCS, NAME, page, write_page
from experiments.change_rules import JUDGED, JUDGED_SEEDS, RECIPES, judge

RESULTS = pd.read_csv(DOCS / NAME / "results.csv")
ABOUT = json.loads((DOCS / NAME / "verdict.json").read_text("utf-8"))


def test_the_page_and_the_verdict_follow_from_the_table():
    assert judge(RESULTS) == ABOUT["verdict"]
    assert page(RESULTS, ABOUT) == (DOCS / f"{NAME}.md").read_text("utf-8")
    assert ABOUT["rules_sha256"] == experiment.rules_checksum()


def test_the_judged_run_has_every_seed_moment_and_metric():
    assert ABOUT["seeds"] == list(JUDGED_SEEDS)
    counts = RESULTS.groupby(["recipe", "seed", "metric"])["step"].nunique()
    assert len(counts) == 2 * 10 * 4
    assert (counts == 20).all()
    for recipe, (early, epochs) in experiment.MOMENTS.items():
        per_epoch = steps_per_epoch(experiment.RECIPES[recipe], cl.make_splits())
        expected = [*early, *(epoch * per_epoch for epoch in epochs)]
        found = RESULTS.loc[RESULTS["recipe"] == recipe, "step"].unique()
        assert sorted(found) == expected
    assert RESULTS[["mean_interaction", "travelled", "accuracy"]].notna().all(axis=None)


@pytest.mark.parametrize("recipes", [("accurate",), RECIPES])
def test_a_page_of_models_that_change_says_so(recipes):
    results = RESULTS.copy()
    changing = results["recipe"].isin(recipes) & (results["metric"] == "l_acc")
    noise = 1e-4 * (results["seed"] - 44004)
    turned = np.where(results["travelled"] < 0.2, 0.02, -0.02) + noise
    results.loc[changing, "mean_interaction"] = turned[changing]
    verdict = judge(results)
    told = page(results, {**ABOUT, "verdict": verdict})
    assert "l-acc: **from cooperation to redundancy**, at epoch" in told
    assert f"shown in {len(recipes)} of 8 cases**: l-acc with the" in told
    answer = verdict["with_distance"]["l_acc"]["answer"]
    assert f"- l-acc: **{answer}**. {'Medians' if len(recipes) == 2 else 'With the acc'}" in told
    circles = [
        line
        for axes in training_figure(results, verdict).axes
        for line in axes.lines
        if line.get_marker() == "o"
    ]
    assert len(circles) == len(recipes)


def test_rules_are_those_of_the_pages_words():
    assert set(ABOUT["verdict"]["changes"]) == set(RECIPES)
    assert list(ABOUT["verdict"]["with_distance"]) == sorted(JUDGED)


def test_a_small_run_measures_what_an_analysis_does(monkeypatch, tmp_path):
    small = cl.TrainConfig().changed(epochs=2, n_heads=3, d_embed=6, batch_size=1000)
    monkeypatch.setattr(experiment, "RECIPES", {"paper": small, "accurate": small})
    monkeypatch.setattr(experiment, "MOMENTS", dict.fromkeys(RECIPES, ((0, 2), (1, 2))))
    jobs = experiment.all_jobs("quick")
    assert [job.configuration["recipe"] for job in jobs] == ["paper", "accurate"]
    assert experiment.run(jobs, tmp_path, "quick", workers=0)
    table = pd.read_csv(tmp_path / "results.csv")
    assert len(table) == 2 * 2 * 4 * 4
    assert json.loads((tmp_path / "verdict.json").read_text())["verdict"] is None
    at = table[(table["recipe"] == "paper") & (table["seed"] == 43001) & (table["step"] == 14)]
    result = cl.train(small, seeds=[43000, 43001], progress=False)
    analysis = cl.analyze_heads(result.models[1])
    for metric, rows in at.groupby("metric"):
        pairs = analysis.interactions(metric)[np.triu_indices(3, 1)]
        assert rows["mean_interaction"].item() == pytest.approx(pairs.mean(), abs=1e-5)
    assert at["accuracy"].iloc[0] == pytest.approx(analysis.accuracy["answer"], abs=1e-5)
    start, end = (result.snapshots[step][1] for step in (0, 14))
    moved = float((end - start).norm() / start.norm())
    assert at["travelled"].iloc[0] == pytest.approx(moved, rel=1e-4)
    with pytest.raises(ValueError, match="expected those of a full run, got a quick one"):
        write_page(tmp_path, tmp_path)
