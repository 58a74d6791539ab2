"""Rules for a change from cooperation to redundancy, on curves with a known answer."""

import numpy as np
import pandas as pd
import pytest

from experiments.change_rules import (
    JUDGED,
    NONE,
    change_of,
    crossing,
    judge,
    lasting_change,
    with_distance,
)

STEPS = (0, 10, 20, 30, 40)


def around(*means, half=0.002):
    return [{"mean": mean, "low": mean - half, "high": mean + half} for mean in means]


@pytest.mark.parametrize(
    ("states", "place"),
    [
        ("abb", 1), ("aab", 2), ("ab?b", 3), ("?abb", 2), ("bbb", None), ("aba", None),
        ("abb?", None), ("?bb", None), ("bab", 2), ("", None),
    ],
)  # fmt: skip
def test_a_change_lasts_to_the_end_and_begins_with_the_other_state(states, place):
    assert lasting_change(list(states), "a", "b") == place


def test_words_go_before_signs():
    assert change_of(around(0.02, 0.005, -0.005, -0.02, -0.02)) == {
        "answer": "from cooperation to redundancy", "place": 3,
    }  # fmt: skip
    assert change_of(around(0.005, 0.02, -0.005, -0.02, -0.005)) == {
        "answer": "from above zero to below zero", "place": 2,
    }  # fmt: skip
    assert change_of(around(-0.02, 0, 0.02))["answer"] == "from redundancy to cooperation"
    assert change_of(around(-0.005, 0.005)) == {
        "answer": "from below zero to above zero", "place": 1,
    }  # fmt: skip
    assert change_of(around(-0.02, -0.03)) == {"answer": NONE, "place": None}
    # Beyond the bound in the mean is not enough: the whole interval has to be.
    assert change_of(around(0.011, -0.011))["answer"] == "from above zero to below zero"
    assert change_of(around(0.001, -0.02))["answer"] == NONE
    unknown = {"mean": 0.1, "low": None, "high": None}
    assert change_of([unknown, *around(-0.02)])["answer"] == NONE


def test_where_a_model_crosses():
    assert crossing([0.1, 0.3, -0.1, -0.2], [0, 1, 2, 3], "below") == pytest.approx(1.75)
    assert crossing([0.1, -0.1, 0.1, -0.1], [0, 1, 2, 4], "below") == pytest.approx(3)
    assert crossing([-0.1, 0, 0.1], [0, 1, 2], "above") == 1
    assert crossing([0.1, 0.2], [0, 1], "below") is None
    assert crossing([-0.1, -0.2], [0, 1], "below") is None


def table(curves, n=10):
    """A row per recipe, seed, moment and metric; curves: by recipe, values and distances."""
    noise = np.random.default_rng(0).normal(size=n) * 1e-4
    rows = [
        {
            "recipe": recipe, "seed": seed, "metric": metric, "step": step, "epoch": step / 10,
            "travelled": far, "sum_of_rates": rate * step, "mean_interaction": mean + noise[seed],
        }
        for recipe, (means, distances, rate) in curves.items()
        for metric in JUDGED
        for seed in range(n)
        for step, mean, far in zip(STEPS, means, distances, strict=True)
    ]  # fmt: skip
    return pd.DataFrame(rows)


FALLS, LATER = (0.02, 0.02, -0.02, -0.02, -0.02), (0.02, 0.02, 0.02, 0.02, -0.02)
RISES = (0.0, 0.01, 0.02, 0.02, 0.02)


def test_a_change_at_one_distance_but_different_steps_comes_with_it():
    far, slow = (0, 1, 3, 4, 5), (0, 0.3, 0.6, 1, 3)
    found = judge(table({"paper": (LATER, slow, 1e-3), "accurate": (FALLS, far, 1e-2)}))
    change = found["changes"]["paper"]["l_acc"]
    assert (change["answer"], change["step"]) == ("from cooperation to redundancy", 40)
    assert found["changes"]["accurate"]["l_acc"]["epoch"] == 2
    told = found["with_distance"]["l_acc"]
    assert told["answer"] == "yes"
    assert told["factors"]["travelled"] == pytest.approx(1, abs=0.02)
    assert told["factors"]["step"] == pytest.approx(35 / 15, abs=0.05)
    assert told["crossed"] == {"paper": 10, "accurate": 10}


def test_a_change_at_different_distances_does_not():
    far, slow = (0, 1, 3, 4, 5), (0, 0.1, 0.2, 0.3, 0.4)
    found = judge(table({"paper": (LATER, slow, 1e-3), "accurate": (FALLS, far, 1e-2)}))
    assert found["with_distance"]["s_acc"]["answer"] == "no"


@pytest.mark.parametrize(("reached", "answer"), [(1.5, "yes"), (2.5, "no")])
def test_where_one_recipe_changes_the_other_must_not_go_as_far(reached, answer):
    other = tuple(np.linspace(0, reached, 5))
    found = judge(table({"paper": (RISES, other, 1), "accurate": (FALLS, (0, 1, 3, 4, 5), 1)}))
    assert found["changes"]["paper"]["l_acc"]["answer"] == NONE
    assert found["changes"]["paper"]["l_acc"]["end"]["word"] == "cooperate"
    told = found["with_distance"]["l_acc"]
    assert told["answer"] == answer
    assert told["reached"] == pytest.approx(reached)


def test_too_few_models_that_cross_decide_nothing():
    results = table({"paper": (RISES, STEPS, 1), "accurate": (FALLS, STEPS, 1)})
    three = (results["seed"] < 3) & (results["recipe"] == "accurate")
    results.loc[three, "mean_interaction"] = -0.01
    told = with_distance(results, "l_acc", {"accurate": "below"})
    assert (told["answer"], told["crossed"]) == ("undecided", {"accurate": 7})
    assert with_distance(results, "l_acc", {})["answer"] == "not asked"
