"""What the searches found: the recipes that were taken are the closest, and the page says so."""

import pandas as pd

import count01_lens as cl
from experiments.generated_part import generated_part
from experiments.paper_targets import TARGETS, distance, values_of_recipe
from experiments.recipe_design import SEARCH_SEEDS, recipe_id
from experiments.setup import MINIMAL
from experiments.tools import recipe_page


def read(name):
    return pd.read_csv(recipe_page.FOUND / name, dtype={"recipe": str})


def test_the_page_shows_the_tables():
    page = recipe_page.PAGE.read_text()
    for name, text in recipe_page.parts().items():
        assert generated_part(text, name) in page
    assert (recipe_page.FOUND / "distances.svg").exists()


def test_the_recipes_that_were_taken_are_the_closest():
    assert read("ranking.csv")["recipe"].iloc[0] == recipe_id(cl.TrainConfig.paper())
    assert read("minimal_ranking.csv")["recipe"].iloc[0] == recipe_id(MINIMAL)


def test_the_ranking_follows_from_the_runs():
    ranking, runs = read("ranking.csv"), read("runs.csv")
    assert set(runs["seed"]) == set(SEARCH_SEEDS)
    for row in ranking.to_dict("records"):
        mine = runs[runs["recipe"] == row["recipe"]]
        values = values_of_recipe(mine.pivot(index="seed", columns="metric", values="value"))
        assert abs(distance(values) - row["distance"]) < 1e-4
        assert cl.TrainConfig().changed(
            **{name: row[name] for name in ("batch_size", "learning_rate", "decay")}
        )
    assert {target.name for target in TARGETS} <= set(ranking)
