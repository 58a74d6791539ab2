"""Does a task with two sub-tasks make heads cooperate? What counts as an answer, fixed before.

The statistic is the mean Shapley interaction of the pairs of heads of a model. Tasks differ in what
there is to win: an answer that is right in four of five sentences leaves a fifth to the heads. So
tasks are compared by the interaction as a share of the gain, the whole model's value minus that of
no heads, and "two_comparisons" above all with a control that has its sentences, its symbols and its
share of each answer, but one comparison only.

Judged for each recipe and for s-acc (the main question: what heads know together) and l-acc (what
they answer together):

* the heads of a task **cooperate** if the 95 % interval of the mean interaction over seeds is at or
  above +0.01, are **redundant** if it is at or below -0.01, **neither** if it is between the two,
  else it is **undecided** (the bounds of `heads.verdict`);
* one task has **more** interaction than another if the 95 % interval of the difference, in shares
  of the gain, is above 0 and its middle at least +0.02; **not more** if the interval is below
  +0.02; else **undecided** (+0.02 of a gain of one half is the +0.01 above);
* two sub-tasks make heads cooperate: **yes** if heads cooperate on two comparisons, with more
  interaction than on the control and on Count01; **no** if the interval of two comparisons is below
  +0.01 and, as a share of the gain, below +0.02, or if there is not more than on the control; else
  **undecided**. It is undecided as well if a model of these three tasks, in the mean over seeds,
  closes less than half of the gap between always giving the most frequent answer and always being
  right: it has not learned its task;
* the answer is that under both recipes, if it is the same; "depends on the recipe" if it is yes
  under one and no under the other; else "undecided". That to the question is the one of s-acc;
  that of l-acc is told beside it.

Intervals are Student's t over seeds, those of differences Welch's.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from count01_lens.heads.verdict import INTERACTION
from experiments.suite import spread

TWO, ONE, PAPERS = "two_comparisons", "one_comparison", "count01"
RECIPES = ("paper", "accurate")
JUDGED = ("s_acc", "l_acc")  # the first is the main question
MORE = 0.02
LEARNED = 0.5
LEVEL = 0.95
LEAST_GAIN = 0.02  # with less, a share of it says nothing
# Nobody has looked at models of the judged seeds before these rules were fixed.
DEVELOPMENT_SEEDS = range(40000, 40003)
JUDGED_SEEDS = range(41000, 41010)


def word_of(interval: Mapping[str, Any]) -> str:
    """Name what the heads of a task do, by the interval of their mean interaction."""
    low, high = interval["low"], interval["high"]
    if low is None:
        return "undecided"
    if low >= INTERACTION:
        return "cooperate"
    if high <= -INTERACTION:
        return "redundant"
    return "neither" if low > -INTERACTION and high < INTERACTION else "undecided"


def difference(one: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    """Mean of the one minus that of the other, with Welch's interval; missing runs are left out."""
    first, second = (np.asarray(values)[~np.isnan(values)] for values in (one, other))
    if min(len(first), len(second)) < 2:
        return {"mean": None, "low": None, "high": None}
    mean = float(first.mean() - second.mean())
    if first.var() == 0 and second.var() == 0:
        return {"mean": mean, "low": mean, "high": mean}
    interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval(LEVEL)
    return {"mean": mean, "low": float(interval.low), "high": float(interval.high)}


def compared(interval: Mapping[str, Any]) -> str:
    """Tell whether one task has more interaction than another, by the difference."""
    if interval["low"] is None:
        return "undecided"
    if interval["low"] > 0 and interval["mean"] >= MORE:
        return "more"
    return "not more" if interval["high"] < MORE else "undecided"


def answer_of(
    two: Mapping[str, Any],
    of_gain: Mapping[str, Any],
    than_control: str,
    than_papers: str,
    all_learned: bool,
) -> str:
    """Tell whether two sub-tasks make heads cooperate: yes, no or undecided.

    Args:
        two: interval of the interaction on two comparisons.
        of_gain: the same as a share of the gain.
        than_control, than_papers: what `compared` calls the differences.
        all_learned: whether models of all three tasks have learned them.
    """
    if not all_learned or two["low"] is None or of_gain["low"] is None:
        return "undecided"
    if than_control == "not more" or (two["high"] < INTERACTION and of_gain["high"] < MORE):
        return "no"
    more = than_control == than_papers == "more"
    return "yes" if more and word_of(two) == "cooperate" else "undecided"


def together(answers: Mapping[str, str]) -> str:
    """One answer from those under each recipe."""
    found = set(answers.values())
    if len(found) == 1:
        return found.pop()
    return "depends on the recipe" if found == {"yes", "no"} else "undecided"


def judge(results: pd.DataFrame) -> dict[str, Any]:
    """Apply the rules to a table with columns task, recipe, seed, metric and value."""
    verdict: dict[str, Any] = {"tasks": {}, "questions": {}}
    for recipe in RECIPES:
        verdict["tasks"][recipe] = {
            task: _task(results, task, recipe) for task in results["task"].unique()
        }
        verdict["questions"][recipe] = {
            metric: _question(results, recipe, metric, verdict["tasks"][recipe])
            for metric in JUDGED
        }
    answers = {
        metric: together({name: verdict["questions"][name][metric]["answer"] for name in RECIPES})
        for metric in JUDGED
    }
    return {"answer": answers[JUDGED[0]], "answers": answers, **verdict}


def values_of(results: pd.DataFrame, task: str, recipe: str, metric: str) -> list[float]:
    """One number for each seed, in their order."""
    chosen = (results["task"] == task) & (results["recipe"] == recipe)
    rows = results[chosen & (results["metric"] == metric)].sort_values("seed")
    return [float(value) for value in rows["value"]]


def interval_of(results: pd.DataFrame, task: str, recipe: str, metric: str) -> dict[str, Any]:
    """Mean over seeds with its interval."""
    found = spread(values_of(results, task, recipe, metric))
    return {name: found[name] for name in ("mean", "low", "high")}


def _task(results: pd.DataFrame, task: str, recipe: str) -> dict[str, Any]:
    closed = interval_of(results, task, recipe, "gap_closed")["mean"]
    found: dict[str, Any] = {"learned": closed is not None and closed >= LEARNED}
    for metric in JUDGED:
        interval = interval_of(results, task, recipe, f"{metric}_interaction")
        found[metric] = {**interval, "word": word_of(interval)}
    return found


def _question(
    results: pd.DataFrame, recipe: str, metric: str, tasks: Mapping[str, Any]
) -> dict[str, Any]:
    shares = {
        task: values_of(results, task, recipe, f"{metric}_interaction_of_gain")
        for task in (TWO, ONE, PAPERS)
    }
    found: dict[str, Any] = {}
    for name, other in (("than_control", ONE), ("than_count01", PAPERS)):
        interval = difference(shares[TWO], shares[other])
        found[name] = {**interval, "word": compared(interval)}
    learned = all(tasks[task]["learned"] for task in shares)
    words = found["than_control"]["word"], found["than_count01"]["word"]
    of_gain = interval_of(results, TWO, recipe, f"{metric}_interaction_of_gain")
    answer = answer_of(tasks[TWO][metric], of_gain, *words, learned)
    return {"answer": answer, "learned": learned, **found, "of_gain": of_gain}


def share_of(part: float, whole: float) -> float:
    """A part of the gain; NaN where there is next to none."""
    return part / whole if whole >= LEAST_GAIN else math.nan
