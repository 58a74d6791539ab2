"""Interactions of all tasks side by side: the rules on made-up numbers, and the whole path, small."""

import itertools
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

import count01_lens as cl
from count01_lens.heads.games import shapley_interactions
from experiments import cooperation_page, cooperation_rules
from experiments import tasks_and_cooperation as experiment
from experiments.cooperation_rules import ONE, PAPERS, TWO

PUBLISHED = cooperation_page.DOCS / cooperation_page.NAME


def interval(low, high):
    return {"mean": (low + high) / 2, "low": low, "high": high}


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.01, 0.05, "cooperate"),
        (0.0099, 0.05, "undecided"),
        (-0.009, 0.009, "neither"),
        (-0.011, 0.009, "undecided"),
        (-0.05, -0.01, "redundant"),
        (-0.05, -0.0099, "undecided"),
    ],
)
def test_words_of_a_task(low, high, word):
    assert cooperation_rules.word_of(interval(low, high)) == word


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.001, 0.05, "more"),
        (0.001, 0.03, "undecided"),
        (-0.001, 0.06, "undecided"),
        (0.001, 0.019, "not more"),
        (-0.5, -0.1, "not more"),
    ],
)
def test_words_of_a_comparison(low, high, word):
    assert cooperation_rules.compared(interval(low, high)) == word


def test_one_seed_decides_nothing():
    none = {"mean": 0.5, "low": None, "high": None}
    assert cooperation_rules.word_of(none) == cooperation_rules.compared(none) == "undecided"
    assert cooperation_rules.difference([0.1], [0.2, 0.3])["low"] is None
    assert cooperation_rules.answer_of(none, none, "more", "more", True) == "undecided"


@pytest.mark.parametrize(
    ("two", "of_gain", "words", "learned", "answer"),
    [
        ((0.02, 0.04), (0.04, 0.08), ("more", "more"), True, "yes"),
        ((0.02, 0.04), (0.04, 0.08), ("more", "more"), False, "undecided"),
        ((0.02, 0.04), (0.04, 0.08), ("more", "not more"), True, "undecided"),
        ((0.02, 0.04), (0.04, 0.08), ("not more", "more"), True, "no"),
        ((-0.02, 0.009), (-0.04, 0.018), ("more", "more"), True, "no"),
        ((-0.02, 0.009), (-0.1, 0.045), ("more", "more"), True, "undecided"),
        ((-0.02, 0.009), (-0.04, 0.018), ("more", "more"), False, "undecided"),
        ((0.0, 0.04), (0.0, 0.08), ("more", "more"), True, "undecided"),
    ],
)
def test_answers(two, of_gain, words, learned, answer):
    found = cooperation_rules.answer_of(interval(*two), interval(*of_gain), *words, learned)
    assert found == answer


def test_the_answer_of_both_recipes():
    together = cooperation_rules.together
    assert together({"paper": "no", "accurate": "no"}) == "no"
    assert together({"paper": "yes", "accurate": "no"}) == "depends on the recipe"
    assert together({"paper": "undecided", "accurate": "no"}) == "undecided"


def test_welch_by_hand():
    one, other = [1.0, 2.0, 4.0], [0.0, 0.5, math.nan, 0.1, 0.2]
    found = cooperation_rules.difference(one, other)
    a, b = np.array(one), np.array([0.0, 0.5, 0.1, 0.2])
    errors = a.var(ddof=1) / 3, b.var(ddof=1) / 4
    freedom = sum(errors) ** 2 / (errors[0] ** 2 / 2 + errors[1] ** 2 / 3)
    half = cooperation_rules.stats.t.ppf(0.975, freedom) * math.sqrt(sum(errors))
    assert found["mean"] == pytest.approx(a.mean() - b.mean())
    assert found["high"] - found["mean"] == pytest.approx(half)
    assert found["mean"] - found["low"] == pytest.approx(half)
    assert cooperation_rules.difference([1, 1], [3, 3]) == {"mean": -2, "low": -2, "high": -2}


def made_up(interactions, closed=0.9):
    """A table in which two recipes and all seeds differ by next to nothing."""
    rows = []
    for (task, value), recipe, seed in itertools.product(
        interactions.items(), cooperation_rules.RECIPES, range(4)
    ):
        little = 1e-4 * seed
        rows.append((task, recipe, seed, "gap_closed", closed))
        for metric in cooperation_rules.JUDGED:
            rows.append((task, recipe, seed, f"{metric}_interaction", value + little))
            rows.append((task, recipe, seed, f"{metric}_interaction_of_gain", 2 * value + little))
    return pd.DataFrame(rows, columns=experiment.COLUMNS)


def test_verdicts_on_made_up_tables():
    def answer(two, one, papers, **changes):
        return cooperation_rules.judge(made_up({PAPERS: papers, TWO: two, ONE: one}, **changes))[
            "answer"
        ]

    assert answer(0.05, 0.0, 0.01) == "yes"
    assert answer(0.05, 0.05, 0.01) == "no"
    assert answer(-0.03, -0.08, -0.08) == "no"
    assert answer(0.05, 0.0, 0.05) == "undecided"
    assert answer(0.05, 0.0, 0.01, closed=0.4) == "undecided"


def test_the_answer_is_that_of_s_acc_under_each_recipe():
    table = made_up({PAPERS: 0.0, TWO: 0.05, ONE: 0.0})
    paper = (table["recipe"] == "paper") & (table["task"] == TWO)
    of_s_acc = table["metric"].str.startswith("s_acc")
    verdict = cooperation_rules.judge(table.assign(value=table["value"].mask(paper & of_s_acc, 0)))
    assert verdict["answer"] == "depends on the recipe"
    assert verdict["answers"] == {"s_acc": "depends on the recipe", "l_acc": "yes"}
    assert verdict["questions"]["paper"]["s_acc"]["answer"] == "no"
    assert verdict["questions"]["paper"]["l_acc"]["answer"] == "yes"
    l_acc_only = table.assign(value=table["value"].mask((table["task"] == TWO) & of_s_acc, 0))
    assert cooperation_rules.judge(l_acc_only)["answer"] == "no"


@pytest.mark.parametrize(
    ("two", "one", "told"),
    [
        (
            -0.002,
            -0.03,
            "**no**, heads do not cooperate on two comparisons, although they are less redundant",
        ),
        (
            0.05,
            0.05,
            "**no**, heads do not cooperate on two comparisons under either recipe, or no",
        ),
        (0.05, 0.0, "**yes**, under both recipes"),
    ],
)
def test_the_page_says_why(two, one, told):
    verdict = cooperation_rules.judge(made_up({PAPERS: -0.03, TWO: two, ONE: one}))
    assert told in cooperation_page._answer(verdict, "s_acc")


def test_the_control_differs_in_the_rule_alone():
    two = cl.counting_task(TWO)
    one = experiment.one_comparison(two)
    assert one.language.symbols == two.language.symbols
    for part in ("train", "test"):
        ours, theirs = getattr(one.splits, part), getattr(two.splits, part)
        if not two.specs[part].balanced:
            assert ours.counts.equal(theirs.counts)
    shares = [task.splits.train.labels.double().mean().item() for task in (one, two)]
    assert shares[0] == pytest.approx(shares[1], abs=0.03)
    assert one.language.rule.texts[0].startswith("n1 + n3 > n0 + n2 + ")


def test_numbers_of_a_model_by_hand():
    """Three heads: two that are worth something together only, and one that does harm."""
    values = np.array([0.5, 0.5, 0.5, 1.0, 0.4, 0.4, 0.4, 0.9])
    found = experiment._of_metric(values)
    matrix = shapley_interactions(values)
    assert matrix[0, 1] == pytest.approx(0.5)
    assert found["interaction"] == pytest.approx(0.5 / 3)
    assert found["interaction_of_gain"] == pytest.approx(0.5 / 3 / 0.4)
    assert found["cooperating_pairs"] == pytest.approx(1 / 3)
    assert (found["redundant_pairs"], found["competing_heads"]) == (0, 1)
    assert (found["heads_for_99"], found["heads_for_99_of_gain"]) == (2, 2)
    copies = experiment._of_metric(np.array([0.8, 1.0, 1.0, 1.0]))
    assert (copies["interaction"], copies["redundant_pairs"]) == (pytest.approx(-0.2), 1)
    assert copies["heads_for_99"] == 1
    nothing = experiment._of_metric(np.array([0.8, 0.8, 0.8, 0.8]))
    assert math.isnan(nothing["interaction_of_gain"])
    assert nothing["heads_for_99"] == 0


@pytest.mark.parametrize(
    ("model", "word"), [(cl.cooperative_model, "cooperate"), (cl.ensemble_model, "redundant")]
)
def test_models_with_a_known_answer(model, word):
    analysis = cl.analyze_heads(model())
    found = experiment.measures(analysis.with_groups().known_groups)
    assert cooperation_rules.word_of(interval(*[found["s_acc_interaction"]] * 2)) == word
    mean = analysis.verdict["answer"].mean_interaction
    assert found["s_acc_interaction"] == pytest.approx(mean)
    assert found["accuracy"] == analysis.accuracy["answer"]
    assert found["successful_heads"] == (analysis.table["category"] == "successful").mean()


def small_jobs():
    """Two seeds, three heads, few epochs, short sentences."""
    small = {"size": 200, "counts": [0, 5], "balanced": False}
    described = [cl.counting_task(name).to_dict() for name in ("majority", TWO)]
    small_tasks = [
        cl.CountingTask.from_dict(each | {"train": small, "validation": small, "test": small})
        for each in described
    ]
    tasks = {PAPERS: cl.Count01(), "majority": small_tasks[0], TWO: small_tasks[1]}
    tasks[ONE] = experiment.one_comparison(small_tasks[1])
    return [
        experiment.stack_job(
            name, task, recipe, config.changed(n_heads=3, d_embed=6, epochs=1), [7, 8]
        )
        for recipe, config in experiment.recipes("quick").items()
        for name, task in tasks.items()
    ]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("cooperate")
    assert experiment.run(small_jobs(), out, "full", workers=0)
    return out


def test_the_whole_path(small_run, tmp_path):
    table = pd.read_csv(small_run / "results.csv")
    assert list(table) == experiment.COLUMNS
    assert len(table.drop_duplicates(["task", "recipe", "seed", "metric"])) == len(table)
    assert table.groupby(["task", "recipe", "metric"]).size().eq(2).all()
    about = cooperation_page.read_about(small_run)
    assert about["verdict"] == json.loads(json.dumps(cooperation_rules.judge(table)))
    assert about["tasks"]["count01"] == {"name": "count01"}
    written = cooperation_page.write_page(small_run, tmp_path).read_text()
    for task in table["task"].unique():
        assert f"`{task}`" in written
    assert "8 heads" not in written
    for name in cooperation_page.FILES:
        copied = tmp_path / cooperation_page.NAME / name
        assert copied.read_bytes() == (small_run / name).read_bytes()


def test_a_stack_is_what_training_and_analysing_by_hand_give(small_run):
    job = next(job for job in small_jobs() if job.configuration["name"] == "majority")
    config = cl.TrainConfig.from_dict(job.configuration["config"])
    task = cl.CountingTask.from_dict(job.configuration["task"])
    trained = cl.train(config, seeds=[7, 8], task=task, progress=False)
    analysis = cl.analyze_heads(trained.models[1], task)
    table = pd.read_csv(small_run / "results.csv")
    mine = table[(table["task"] == "majority") & (table["recipe"] == "paper")]
    found = mine[mine["seed"] == 8].set_index("metric")["value"]
    for metric in cooperation_rules.JUDGED:
        pairs = analysis.interactions(metric)[np.triu_indices(3, 1)]
        assert found[f"{metric}_interaction"] == pytest.approx(pairs.mean(), abs=1e-5)
        by_hand = np.diag(analysis.interactions(metric)) <= -0.02
        assert found[f"{metric}_competing_heads"] == by_hand.sum()
    assert found["accuracy"] == pytest.approx(analysis.accuracy["answer"], abs=1e-5)


def test_a_quick_run_judges_nothing(small_run, tmp_path):
    table = pd.read_csv(small_run / "results.csv")
    experiment.write_results(table, tmp_path, small_jobs(), "quick")
    about = cooperation_page.read_about(tmp_path)
    assert about["verdict"] is None
    with pytest.raises(ValueError, match="expected those of a full run"):
        cooperation_page.page(table, about)


def test_jobs_are_those_that_were_declared():
    jobs = experiment.all_jobs("full")
    assert len(jobs) == 12
    for job in jobs:
        assert job.configuration["seeds"] == list(range(41000, 41010))
        assert job.configuration["config"]["epochs"] == 100
        assert job.configuration["config"]["model"]["n_heads"] == 8
    quick = experiment.all_jobs("quick")
    assert {seed for job in quick for seed in job.configuration["seeds"]} == {40000, 40001, 40002}


def test_what_is_published_follows_from_the_table_by_the_rules_of_today():
    table = pd.read_csv(PUBLISHED / "results.csv")
    about = cooperation_page.read_about(PUBLISHED)
    assert about["rules_sha256"] == experiment.rules_checksum()
    assert about["verdict"] == json.loads(json.dumps(cooperation_rules.judge(table)))
    assert about["seeds"] == list(cooperation_rules.JUDGED_SEEDS)
    counted = table.groupby(["task", "recipe", "metric"])["seed"].nunique()
    assert counted.eq(len(cooperation_rules.JUDGED_SEEDS)).all()
    described = {name: task.to_dict() for name, task in experiment.tasks().items()}
    assert about["tasks"] == json.loads(json.dumps(described))


def test_the_page_is_that_of_the_table():
    table = pd.read_csv(PUBLISHED / "results.csv")
    about = cooperation_page.read_about(PUBLISHED)
    written = (cooperation_page.DOCS / f"{cooperation_page.NAME}.md").read_text()
    assert written == cooperation_page.page(table, about)
    assert cooperation_page.NAME in (cooperation_page.DOCS / "index.md").read_text()
    for recipe, task in itertools.product(cooperation_rules.RECIPES, table["task"].unique()):
        chosen = (table["recipe"] == recipe) & (table["task"] == task)
        accuracy = table[chosen & (table["metric"] == "accuracy")]["value"].mean()
        assert re.search(rf"\| `{task}`( \(not learned\))? \| {accuracy:.3f} \|", written)
