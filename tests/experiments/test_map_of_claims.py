"""When the paper's claims hold: the rows' own definitions, the verdicts, and the whole row once."""

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import count01_lens as cl
from count01_lens.common.storage import json_bytes
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.metrics import Groups
from count01_lens.training.recipe import check_stackable, remaining_rate
from count01_lens.training.trainer import TrainingDivergedError
from count01_lens.views.figures import as_bytes
from experiments import headline, logits_of_heads, map_of_claims
from experiments.claims import HEADLINE
from experiments.headline import (
    headline_numbers,
    held,
    map_table,
    order_by_claim,
    order_table,
    verdicts,
)
from experiments.recipe_design import JUDGED_SEEDS, SEARCH_SEEDS, recipe_id
from experiments.setup import Setup, paper_setup
from tests.helpers import TINY

SMALL = cl.TrainConfig(
    model=cl.ModelConfig(d_embed=6, n_heads=5, d_head=2), epochs=4, batch_size=1000
)
# One number well inside each claim's interval.
HOLDING = {
    "F2.sixteen_heads": 1.0, "F1.biased": 0.8, "F3.successful": 0.5, "F3.failed": 0.4,
    "F3.singles_at_half": 0.9, "F3.pairs_above_80": 2.0, "F4.four_heads_separate": 0.995,
    "F4.most_heads_needed": 15.0, "F5.w02_above_ten": 0.9, "E1.single": 0.46,
}  # fmt: skip


def numbers_of(model, splits=TINY):
    return headline_numbers(CountForm.from_models([model]), splits)


def check_heads(found, table):
    assert found["F3.successful"] == np.mean(table["s_acc"] >= 0.98)
    assert found["F3.failed"] == np.mean(table["s_acc"] <= 0.60)
    at_half = (table["l_acc"] >= 0.45) & (table["l_acc"] <= 0.55)
    assert found["F3.singles_at_half"] == np.mean(at_half)
    assert found["E1.single"] == np.mean(table["eos_l_acc"] == 1)
    good = table[table["s_acc"] >= 0.98]
    expected = np.mean(good["w02"] > 10) if len(good) else math.nan
    assert found["F5.w02_above_ten"] == pytest.approx(expected, nan_ok=True)


def test_the_bundled_model_is_measured_as_its_analysis_is():
    model = cl.example_model()
    analysis = cl.analyze_heads(model, TINY)
    found = numbers_of(model)
    check_heads(found, analysis.table)
    pairs = analysis.pairs["l_acc"][np.triu_indices(16, 1)]
    assert len(pairs) == 120
    assert found["F3.pairs_above_80"] == (pairs > 0.80).sum()
    assert found["accuracy"] == analysis.accuracy["answer"]
    assert found["F2.sixteen_heads"] == (analysis.accuracy["answer"] >= 0.99)


def test_biased_heads_are_those_of_their_row():
    model = cl.example_model()
    one_sided = logits_of_heads._orders(model)["one_sided"]
    found = numbers_of(model, cl.make_splits())
    assert found["F1.biased"] == np.mean(one_sided >= 0.95)
    assert 0 < found["F1.biased"] < 1


def test_groups_are_measured_as_in_their_row():
    """On models with few enough heads to fit a probe to every group."""
    untrained = cl.build_model(cl.ModelConfig(d_embed=12, n_heads=6))
    sizes = []
    ensemble, impatient = cl.ensemble_model(6), cl.ensemble_model(6)
    impatient.unembed.b_U.data *= 0.5  # three heads are right, more are not
    for model in (untrained, ensemble, impatient):
        n_heads = model.cfg.n_heads
        groups = cl.analyze_heads(model, TINY).groups()
        found = numbers_of(model)
        median = groups.groupby("size").median()
        strong = median.index[median["l_acc"] >= 0.90]
        assert found["F4.most_heads_needed"] == (strong.min() if len(strong) else n_heads + 1)
        sizes.append(found["F4.most_heads_needed"])
        # There are fewer groups of four heads than are sampled, so it is all of them.
        assert found["F4.four_heads_separate"] == pytest.approx(median["s_acc"][4], abs=0.013)
    assert sizes == [7, 6, 3]


@pytest.mark.parametrize(
    ("medians", "size"),
    [((0.5, 0.90, 0.7), 2), ((0.5, 0.8999, 0.95), 3), ((0.5, 0.6, 0.7), 4), ((0.9, 0.2, 0.3), 1)],
)
def test_the_smallest_size_counts_and_the_bound_is_included(monkeypatch, medians, size):
    data = cl.analyze_heads(cl.build_model(SMALL.model), TINY).data
    data = dataclasses.replace(data, **{
        name: getattr(data, name)[:, :3] for name in ("train_outputs", "test_outputs")
    })  # fmt: skip

    def by_hand(data, size):
        # A mean would be far from it.
        return np.array([0.0, medians[size - 1], medians[size - 1], 1.0])

    monkeypatch.setattr(headline, "_l_acc_of_size", by_hand)
    assert headline._heads_for_strong(data) == size


def test_the_sample_of_fours_is_fixed_and_has_no_group_twice(monkeypatch):
    seen = []

    class Watched(Groups):
        @property
        def probe_accuracy(self):
            seen.append(self.masks)
            return np.arange(len(self.masks))

    monkeypatch.setattr(headline, "Groups", Watched)
    data = cl.analyze_heads(cl.example_model(), TINY).data
    assert headline._s_acc_of_fours(data) == (headline.SAMPLED_FOURS - 1) / 2
    headline._s_acc_of_fours(data)
    np.testing.assert_array_equal(seen[0], seen[1])
    assert seen[0].shape == (headline.SAMPLED_FOURS, 16)
    assert (seen[0].sum(axis=1) == 4).all()
    assert len(np.unique(seen[0], axis=0)) == headline.SAMPLED_FOURS


def test_claims_are_judged_by_their_thresholds():
    assert set(HOLDING) == set(HEADLINE)
    assert held(HOLDING) == 10
    assert set(verdicts(HOLDING).values()) == {"reproduced"}
    assert verdicts(HOLDING | {"F3.pairs_above_80": 7})["F3.pairs_above_80"] == "partly"
    assert held(HOLDING | {"F3.pairs_above_80": 7}) == 9
    assert held(HOLDING | {"F4.most_heads_needed": 17}) == 9
    assert held(HOLDING | {"F5.w02_above_ten": math.nan}) == 9
    assert verdicts(HOLDING | {"F5.w02_above_ten": math.nan})["F5.w02_above_ten"] == "not measured"


def row(recipe, seed, epoch=1, **changes):
    training = {"sum_of_rates": 1.0, "travelled": 0.1, "travelled_qk": 0.1, "travelled_ov": 0.1}
    training |= {"travelled_embedding": 0.1, "steps": 7, "accuracy": 1.0}
    return {"recipe": recipe, "epoch": epoch, "seed": seed, **training, **HOLDING} | changes


def test_seeds_are_put_together_before_they_are_judged():
    models = pd.DataFrame([
        # 0.3 and 0.7 of the heads are each no half, their mean is.
        row("a", 1, **{"F3.successful": 0.3, "F5.w02_above_ten": math.nan, "accuracy": 0.92}),
        row("a", 2, **{"F3.successful": 0.7, "F5.w02_above_ten": 0.9, "accuracy": 0.98}),
        row("a", 1, 2), row("a", 2, 2),
        row("b", 1, **dict.fromkeys([*headline.OF_TRAINING, *HEADLINE], math.nan)),
    ])  # fmt: skip
    table = map_table(models)
    assert table["recipe"].tolist() == ["a", "a", "b"]
    assert table["held"].tolist() == [10, 10, 0]
    assert table["F5.w02_above_ten"][0] == 0.9  # the seed without successful heads is left out
    assert table["solves"].tolist() == [True, True, False]  # 0.95 on average; NaN solves nothing
    assert table["at_end"].tolist() == [False, True, True]
    assert table["F3.successful.verdict"].tolist() == ["reproduced", "reproduced", "not measured"]


def test_an_order_that_tells_all_is_recognised():
    spoilt = [{}, {"E1.single": 0.9}, {"E1.single": 0.9, "F3.failed": 0.9}]
    models = pd.DataFrame([
        # Distance decides alone; the sum of rates says nothing; steps say the opposite.
        row(recipe, seed, travelled=0.1 * (1 + lost), sum_of_rates=recipe_number, steps=9 - lost,
            epoch=1 + lost, **spoilt[lost])
        for recipe_number, recipe in enumerate(["a", "b", "c"]) for lost in range(3)
        for seed in (1, 2)
    ])  # fmt: skip
    found = order_table(models, map_table(models)).set_index("order")
    assert found["spearman"]["travelled"] == pytest.approx(-1)
    assert found["r2"]["travelled"] == pytest.approx(1)
    assert found["r2_of_other_recipes"]["travelled"] == pytest.approx(1)
    assert found["spearman"]["sum_of_rates"] == pytest.approx(0)
    assert found["r2"]["sum_of_rates"] == pytest.approx(0)
    assert found["spearman"]["steps"] == pytest.approx(1)
    assert found["r2"]["steps"] == pytest.approx(0)
    assert math.isnan(found["spearman"]["travelled_qk"])  # it does not vary
    assert found["r2"]["recipe and epoch"] == pytest.approx(1)
    by_claim = order_by_claim(map_table(models)).set_index(["claim", "order"])
    rising = by_claim.loc[("F3.failed", "travelled")]
    assert rising["spearman"] > 0.8
    assert rising["r2"] == pytest.approx(1)
    assert by_claim.loc[("F3.failed", "sum_of_rates")]["r2"] == pytest.approx(0)
    assert math.isnan(by_claim.loc[("F1.biased", "travelled")]["r2"])  # always the same


def test_of_no_trainings_that_solve_the_task_nothing_is_told():
    models = pd.DataFrame([row("a", 1, accuracy=0.5), row("b", 1, accuracy=0.5)])
    found = order_table(models, map_table(models))
    assert found[["spearman", "r2", "r2_of_other_recipes"]].isna().all(axis=None)


def test_a_training_is_followed():
    recipes = [SMALL, replace(SMALL, learning_rate=1e-4)]
    dicts = [recipe.to_dict() for recipe in recipes]
    models = headline.train_and_follow(dicts, [3, 4], [1, 4])["models"]
    assert models["recipe"].unique().tolist() == [recipe_id(recipe) for recipe in recipes]
    assert len(models) == 2 * 2 * 2
    last = models[(models["epoch"] == 4) & (models["seed"] == 4)].iloc[0]
    result = cl.train(SMALL, seeds=[4], progress=False)
    start, end = (result.snapshots[step] for step in (0, 28))
    assert last["travelled"] == pytest.approx(float((end - start).norm() / start.norm()), rel=1e-5)
    heads, d = 5, 6
    qk = slice(8 * d + 2 * d, 8 * d + 2 * d + 2 * heads * d * 2)  # after W_E, ln_w and ln_b
    moved = float((end - start)[:, qk].norm() / start[:, qk].norm())
    assert last["travelled_qk"] == pytest.approx(moved, rel=1e-5)
    assert last["steps"] == 28
    by_hand = sum(remaining_rate("linear", step / 28) for step in range(28)) * 5e-3
    assert last["sum_of_rates"] == pytest.approx(by_hand)
    assert last["accuracy"] == result.history["test_accuracy"].iloc[-1]
    expected = headline_numbers(result.count_form(), cl.make_splits(0))
    for name in HEADLINE:
        assert last[name] == pytest.approx(expected[name], abs=0.02, nan_ok=True), name


def test_a_diverging_recipe_leaves_the_others_alone(monkeypatch):
    real = cl.train

    def train(configs, **options):
        if any(config.learning_rate == 1.0 for config in configs):
            raise TrainingDivergedError("NaN")
        return real(configs, **options)

    monkeypatch.setattr(cl, "train", train)
    recipes = [SMALL.to_dict(), replace(SMALL, learning_rate=1.0).to_dict()]
    models = headline.train_and_follow(recipes, [3], [1])["models"]
    assert models["accuracy"].isna().tolist() == [False, True]
    assert map_table(models)["held"].tolist()[1] == 0


@pytest.mark.parametrize("size", ["quick", "full"])
def test_the_design_trains_what_can_be_trained_together_on_fresh_seeds(size):
    jobs = map_of_claims.jobs(paper_setup(size))
    trained = []
    for job in jobs:
        configs = [cl.TrainConfig.from_dict(values) for values in job.configuration["recipes"]]
        check_stackable(configs)
        trained += configs
        assert not {*SEARCH_SEEDS, *JUDGED_SEEDS} & set(job.configuration["seeds"])
        epochs = job.configuration["epochs"]
        assert epochs == sorted(set(epochs))
        assert (epochs[0] >= 1, epochs[-1]) == (True, configs[0].epochs)
    assert len(trained) == len(set(trained))
    assert set(trained) == {
        *map_of_claims.grid(paper_setup(size)).values(),
        *map_of_claims.named(paper_setup(size)).values(),
    }
    longest = max(job.configuration["epochs"][-1] for job in jobs)
    assert longest == map_of_claims.named(paper_setup(size))["trained on"].epochs
    assert sum(job.cost for job in jobs) < (100 if size == "quick" else 1200)


def test_the_whole_row_with_small_models(monkeypatch):
    design = map_of_claims.Design((1e-3, 1e-2), (500, 1000), (8000,), 2, (0.5, 1), 2)
    monkeypatch.setitem(map_of_claims.DESIGNS, "quick", design)
    paper, accurate = replace(SMALL, learning_rate=1e-2), replace(SMALL, batch_size=64)
    setup = Setup("quick", paper, paper)
    contrast = Setup("quick", accurate, accurate)
    monkeypatch.setattr(map_of_claims, "contrast_setup", lambda size: contrast)
    measured = map_of_claims.measure(lambda job: job.function(**job.configuration), setup)
    json_bytes(measured.numbers)  # no NaN
    assert measured.numbers["trainings"] == 4 + 2  # the paper's recipe is on the grid
    assert measured.tables["map"]["name"].value_counts()["trained on"] == 3
    assert set(measured.tables["map"].query("name == 'trained on'")["epoch"]) == {1, 2, 4}
    for shown in measured.figures.values():
        assert as_bytes(shown.figure, "svg")


def fake(setup, falling):
    """What the jobs would give if claims went, or came, with distance."""
    rng = np.random.default_rng(0)

    def load(job):
        rows = []
        for values in job.configuration["recipes"]:
            config = cl.TrainConfig.from_dict(values)
            for epoch in job.configuration["epochs"]:
                far = config.learning_rate * epoch / config.batch_size**0.5
                lost = int(np.clip(5 + 2 * np.log10(far / 1e-3), 0, 10))
                gone = list(HEADLINE)[:lost] if falling else list(HEADLINE)[lost:]
                for seed in job.configuration["seeds"]:
                    noise = float(rng.uniform(1, 1.01))
                    distances = dict.fromkeys(headline.ORDERS, far * noise)
                    bad = dict.fromkeys(gone, math.nan)
                    rows.append(row(recipe_id(config), seed, epoch, **distances, **bad))
        return {"models": pd.DataFrame(rows)}

    return load


@pytest.mark.parametrize("falling", [True, False])
def test_the_row_tells_which_way_it_went(falling):
    setup = paper_setup("full")
    measured = map_of_claims.measure(fake(setup, falling), setup)
    numbers = measured.numbers
    assert (numbers["falls"] < -0.9) if falling else (numbers["falls"] > 0.9)
    assert ("correlation of −" in measured.shows) == falling
    ends = measured.tables["map"].query("at_end")
    by_name = ends.set_index("name")["held"]
    assert numbers["held_by_paper_recipe"] == by_name["paper"]
    assert numbers["held_by_accurate_recipe"] == by_name["accurate"]
    assert numbers["trainings"] == len(ends) == numbers["trainings_that_solve"]
    assert set(measured.figures) == {"grid", "over_training", "values", "orders"}
    size = sum(len(table.to_csv(index=False)) for table in measured.tables.values())
    assert size < 300_000


def test_without_trainings_that_solve_the_task_the_row_says_so():
    setup = paper_setup("quick")
    whole = fake(setup, True)

    def load(job):
        return {"models": whole(job)["models"].assign(accuracy=0.6)}

    measured = map_of_claims.measure(load, setup)
    assert measured.numbers["falls"] is None
    assert "Too few trainings solve the task" in measured.shows
