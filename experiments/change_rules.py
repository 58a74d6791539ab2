"""Do heads turn from cooperation to redundancy in training? What counts as an answer, fixed before.

The statistic is the mean Shapley interaction over the pairs of heads of a model, at a moment of its
training. Of each recipe, metric and moment there is its mean over seeds, with a 95 % interval
(Student's t).

* At a moment heads **cooperate** if the interval is at or above +0.01, are **redundant** if it is
  at or below −0.01 (`cooperation_rules.word_of`); they are **above** or **below** zero if the
  interval is.
* A recipe and metric **turns from cooperation to redundancy** if heads cooperate at some moment
  and, from some later one to the end of training, are redundant at every moment; **from above to
  below zero** likewise; and the opposite ways. The change comes **at** the first moment of the
  lasting state. The change between the words goes before that of the sign, and if there is neither,
  the answer is **none shown**: such a change may be too small or too short for ten seeds and twenty
  moments.
* It **comes with the distance** that weights travel (from their start, over their length there, as
  in the map of claims) is asked of each metric for which at least one recipe goes from above to
  below zero, or the opposite way. A model crosses at the first of its moments from which on its own
  mean interaction has the later sign, the distance in between by a straight line.
  * Both recipes change in the same direction: **yes** if the medians over models of the distance at
    the crossing differ by a factor of at most 1.5, and by less than those of the number of steps,
    of epochs and of the sum of learning rates do; else **no**.
  * One recipe changes: **yes** if the median distance that models of the other recipe reach at the
    end is shorter than that of the crossing (they did not go far enough), **no** if it is longer.
  * Fewer than eight models of a recipe that changes cross by themselves: **undecided**.

Moments are dense early, where most changes. They were chosen with models of development seeds.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.cooperation_rules import word_of
from experiments.suite import spread

RECIPES = ("paper", "accurate")
JUDGED = ("l_acc", "roc_auc", "s_acc", "eos_l_acc")
ORDERS = ("travelled", "step", "epoch", "sum_of_rates")
SAME = 1.5  # factor between two medians
MOST = 8  # models of ten that have to cross
WORDS = {"cooperate": "cooperation", "redundant": "redundancy"}
SIGNS = {"above": "above zero", "below": "below zero"}
NONE = "none shown"
# Nobody has looked at models of the judged seeds before these rules were fixed.
DEVELOPMENT_SEEDS = range(43000, 43002)
JUDGED_SEEDS = range(44000, 44010)


def sign_of(interval: Mapping[str, Any]) -> str:
    """Tell on which side of zero an interval is."""
    if interval["low"] is None:
        return "undecided"
    if interval["low"] > 0:
        return "above"
    return "below" if interval["high"] < 0 else "undecided"


def lasting_change(states: Sequence[str], first: str, later: str) -> int | None:
    """Place of the first moment of a state that lasts to the end, if the other was before it."""
    place = len(states)
    while place > 0 and states[place - 1] == later:
        place -= 1
    return place if place < len(states) and first in states[:place] else None


def change_of(intervals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Name the change of a recipe and metric from its intervals, in the order of moments."""
    for states, names in (
        ([word_of(each) for each in intervals], WORDS),
        ([sign_of(each) for each in intervals], SIGNS),
    ):
        one, other = names
        for first, later in ((one, other), (other, one)):
            place = lasting_change(states, first, later)
            if place is not None:
                return {"answer": f"from {names[first]} to {names[later]}", "place": place}
    return {"answer": NONE, "place": None}


def crossing(values: Sequence[float], orders: Sequence[float], later: str) -> float | None:
    """Where along an order a model's mean interaction gets the sign that it keeps to the end."""
    sign = 1 if later == "above" else -1
    signed = sign * np.asarray(values, dtype=float)
    wrong = np.flatnonzero(signed <= 0)
    if len(wrong) == 0 or wrong[-1] == len(signed) - 1:
        return None
    before, after = wrong[-1], wrong[-1] + 1
    share = -signed[before] / (signed[after] - signed[before])
    return float(orders[before] + share * (orders[after] - orders[before]))


def with_distance(results: pd.DataFrame, metric: str, later: Mapping[str, str]) -> dict[str, Any]:
    """Tell whether the change of a metric comes with the distance that weights travel.

    Args:
        results: a row per recipe, seed, moment and metric.
        metric: which one.
        later: of each recipe that changes, the sign it then has.
    """
    medians: dict[str, Any] = {}
    crossed: dict[str, Any] = {}
    for recipe, sign in later.items():
        models = [rows for _, rows in _of(results, recipe, metric).groupby("seed")]
        found = {
            order: [
                crossing(rows["mean_interaction"].tolist(), rows[order].tolist(), sign)
                for rows in models
            ]
            for order in ORDERS
        }
        known = {order: [x for x in where if x is not None] for order, where in found.items()}
        crossed[recipe] = len(known["travelled"])
        medians[recipe] = {
            order: float(np.median(where)) if where else None for order, where in known.items()
        }
    told: dict[str, Any] = {"crossed": crossed, "medians": medians, "answer": "not asked"}
    if not later or len(set(later.values())) > 1:
        return told
    if min(crossed.values()) < MOST:
        return told | {"answer": "undecided"}
    if len(later) == 2:
        factors = {order: _factor([medians[recipe][order] for recipe in later]) for order in ORDERS}
        best = factors["travelled"] <= SAME and factors["travelled"] == min(factors.values())
        return told | {"answer": "yes" if best else "no", "factors": factors}
    (changing,) = later
    (other,) = set(RECIPES) - {changing}
    ends = _of(results, other, metric).groupby("seed")["travelled"].last()
    reached = float(ends.median())
    short = reached < medians[changing]["travelled"]
    return told | {"answer": "yes" if short else "no", "reached": reached}


def _factor(values: Sequence[float]) -> float:
    return max(values) / min(values) if min(values) > 0 else math.inf


def _of(results: pd.DataFrame, recipe: str, metric: str) -> pd.DataFrame:
    chosen = (results["recipe"] == recipe) & (results["metric"] == metric)
    return results[chosen].sort_values(["seed", "step"])


def over_training(
    results: pd.DataFrame, recipe: str, metric: str, column: str = "mean_interaction"
) -> list[dict[str, Any]]:
    """Of each moment step, epoch, distance, and a column's mean over seeds with its interval."""
    rows = []
    for step, found in _of(results, recipe, metric).groupby("step"):
        interval = spread(found[column])
        rows.append(
            {
                "step": int(str(step)),
                "epoch": float(found["epoch"].iloc[0]),
                "travelled": float(found["travelled"].mean()),
                **{name: interval[name] for name in ("mean", "low", "high")},
            }
        )
    return rows


def judge(results: pd.DataFrame) -> dict[str, Any]:
    """Apply the rules to a table with a row per recipe, seed, moment and metric."""
    verdict: dict[str, Any] = {"changes": {}, "with_distance": {}}
    for metric in JUDGED:
        later = {}
        for recipe in RECIPES:
            moments = over_training(results, recipe, metric)
            found = change_of(moments)
            if found["place"] is not None:
                at = moments[found["place"]]
                found |= {name: at[name] for name in ("epoch", "step", "travelled")}
                later[recipe] = sign_of(moments[-1])
            largest = max(moments, key=lambda moment: float(moment["mean"]))
            verdict["changes"].setdefault(recipe, {})[metric] = {
                **found,
                "largest": {name: largest[name] for name in ("epoch", *_INTERVAL)},
                "end": {name: moments[-1][name] for name in _INTERVAL}
                | {"word": word_of(moments[-1])},
            }
        verdict["with_distance"][metric] = with_distance(results, metric, later)
    return verdict


_INTERVAL = ("mean", "low", "high")
