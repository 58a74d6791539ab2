"""The bundled models: which seed is typical, and that they are what the rule chose."""

import math

import numpy as np
import pandas as pd
import pytest

import count01_lens as cl
from count01_lens.heads.head_data import head_data
from count01_lens.models.checkpoints import EXAMPLES, checkpoint_info, example_file
from experiments.tools import choose_examples
from tests.helpers import TINY


def test_the_typical_seed_is_nearest_to_the_medians_in_standard_deviations():
    numbers = pd.DataFrame(
        {
            "wide": [0.0, 100.0, 200.0],
            "narrow": [0.02, 0.01, 0.01],
            "constant": [1.0, 1.0, 1.0],
            "missing": [1.0, math.nan, 3.0],
        },
        index=[5, 6, 7],
    )
    found = choose_examples.distances(numbers)
    # Medians 100 and 0.01, standard deviations 100 and 0.01 / sqrt(3).
    assert found.tolist() == pytest.approx([math.sqrt((1 + 3) / 2), 0, math.sqrt(1 / 2)])
    assert found.idxmin() == 6


def test_interactions_are_those_of_an_analysis():
    model = cl.ensemble_model()
    found = choose_examples._interactions(head_data(model, TINY))
    analysis = cl.analyze_heads(model, TINY)
    for metric, name in choose_examples.WORTH.items():
        matrix = analysis.interactions(metric)
        off = matrix[~np.eye(len(matrix), dtype=bool)]
        assert found[name] == pytest.approx(off.mean(), abs=1e-12)


@pytest.mark.parametrize("name", ["accurate", "paper"])
def test_bundled_models_are_what_the_rule_chose(name):
    table = pd.read_csv(EXAMPLES / "examples.csv")
    of_recipe = table[table["recipe"] == name].set_index("seed")
    assert list(of_recipe.index) == list(choose_examples.SEEDS)
    numbers = of_recipe.drop(columns=["recipe", "distance"])
    found = choose_examples.distances(numbers)
    np.testing.assert_allclose(found, of_recipe["distance"])
    info = checkpoint_info(example_file(name))["info"]
    assert info["seed"] == found.idxmin()
    assert cl.TrainConfig.from_dict(info["recipe"]) == choose_examples.RECIPES[name]
    accuracy = cl.analyze_heads(cl.example_model(name)).accuracy["answer"]
    assert accuracy == pytest.approx(of_recipe.loc[info["seed"], "test_accuracy"], abs=1e-3)


def test_the_puzzle_has_a_successful_head_that_attends_to_2():
    model = cl.example_model("puzzle")
    info = checkpoint_info(example_file("puzzle"))["info"]
    assert info["seed"] == choose_examples.PUZZLE_SEED
    assert cl.TrainConfig.from_dict(info["recipe"]) == choose_examples.PUZZLE
    table = cl.analyze_heads(model, progress=False).table
    assert (table["category"] == "successful").all()
    odd = table[table["w02"] < 1e-3]
    assert odd["head"].tolist() == [3]
    assert odd["s_acc"].item() > 0.99


def test_there_are_three_bundled_models():
    with pytest.raises(ValueError, match="recipe: expected .*'accurate'.*'paper'.*'puzzle'"):
        cl.example_model("best")
