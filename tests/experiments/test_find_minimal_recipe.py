"""The search for the recipe of minimal heads: its distance, its tables, its seeds."""

from dataclasses import replace

import pandas as pd
import pytest

import count01_lens as cl
from experiments import find_minimal_recipe as search
from experiments import minimal_heads
from experiments.setup import paper_setup

SMALL = cl.TrainConfig(epochs=2, batch_size=1000)


def test_distance_by_hand():
    assert search.distance(search.PAPER) == 0
    # 74 % has a tolerance of 37 points, 0 % of one.
    far = {**search.PAPER, (32, "successful"): 0.37, (1, "perfect"): 0.02}
    assert search.distance(far) == pytest.approx((1 + 2) / 8)
    assert search.distance({**search.PAPER, (1, "perfect"): 1.0}) == pytest.approx(3 / 8)


def test_recipes_differ_and_seeds_are_not_those_of_the_table():
    assert len({search.recipe_id(config) for config in search.RECIPES}) == len(search.RECIPES)
    judged = set()
    for job in minimal_heads.jobs(paper_setup("full")):
        first = job.configuration["first"]
        judged |= set(range(first, first + job.configuration["models"]))
    most = max(search.HEADS.values())
    assert not judged & set(range(search.FIRST_SEED, search.FIRST_SEED + most))


def test_numbers_belong_to_the_recipe_the_size_and_the_seed(tmp_path):
    recipes = (SMALL, replace(SMALL, learning_rate=0.05))
    heads = {2: 2, 1: 1}
    paper = {key: value for key, value in search.PAPER.items() if key[0] in heads}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "PAPER", paper)
        ranking, _ = search.search(recipes, tmp_path, heads=heads, workers=0, progress=False)
    runs = pd.read_csv(tmp_path / "runs.csv")
    assert len(runs) == 2 * 3 * 2
    assert set(ranking["recipe"]) == {search.recipe_id(config) for config in recipes}
    for config in recipes:
        for d_embed, n in heads.items():
            for seed in range(search.FIRST_SEED, search.FIRST_SEED + n):
                result = cl.train(search.of_one_head(config, d_embed), seeds=[seed], progress=False)
                expected = cl.analyze_heads(result.models[0]).table["s_acc"].item()
                mine = runs[
                    (runs["recipe"] == search.recipe_id(config))
                    & (runs["d_embed"] == d_embed)
                    & (runs["seed"] == seed)
                ].set_index("metric")["value"]
                assert mine["s_acc"] == pytest.approx(expected, abs=2e-3)
                last = result.history["test_accuracy"].iloc[-1]
                assert mine["test_accuracy"] == pytest.approx(last, rel=1e-5)


def test_shares_by_hand():
    rows = [
        ("one", 32, 0, "s_acc", 1.0),
        ("one", 32, 1, "s_acc", 0.98),
        ("one", 32, 2, "s_acc", 0.9),
    ]
    rows += [("one", d, 0, "s_acc", 0.5) for d in (8, 2, 1)]
    runs = pd.DataFrame(rows, columns=["recipe", "d_embed", "seed", "metric", "value"])
    ranking = search.rank(runs, {"one": SMALL})
    assert ranking["d32_successful"].item() == pytest.approx(2 / 3)
    assert ranking["d32_perfect"].item() == pytest.approx(1 / 3)
    assert ranking["d1_successful"].item() == 0
