"""Compete or cooperate, over seeds: what counts as an answer, fixed before models are judged.

For each recipe and each metric of the verdict, over ten models of fresh seeds, with 95 % intervals
of means by Student's t:

* the **word**: heads *cooperate* if the interval of the mean interaction is at or above +0.01, are
  *redundant* if it is at or below −0.01, do *neither* if it is between, else *undecided*
  (`heads.verdict.word_of`);
* **against independent heads** of the same quality: groups do *better* if the interval of what they
  reach beyond groups of such heads is above +0.005, *worse* if it is below −0.005, *alike* if it is
  between, else *undecided* (`heads.independence`, `heads.thresholds`);
* **copies or diminishing returns**: a negative mean interaction says that heads *repeat each other*
  if they are redundant and do worse than independent heads; it says no more than *diminishing
  returns* if they are redundant and do alike or better; else it says *nothing*.

Bounds are those of the library. They were chosen on the bundled and the handcrafted models; nobody
has looked at models of the judged seeds.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from count01_lens.common.student import MeanInterval, mean_interval
from count01_lens.heads.thresholds import THRESHOLDS
from count01_lens.heads.verdict import word_of

RECIPES = ("paper", "accurate")
METRICS = ("s_acc", "l_acc", "eos_l_acc")
DEVELOPMENT_SEEDS, JUDGED_SEEDS = range(45900, 45902), range(45000, 45010)


def against_independent(interval: MeanInterval) -> str:
    """Name how groups do against groups of independent heads."""
    bound, (_, low, high, _) = THRESHOLDS.beyond, interval
    if low is None or high is None:
        return "undecided"
    if low > bound:
        return "better"
    if high < -bound:
        return "worse"
    return "alike" if -bound <= low and high <= bound else "undecided"


def reading(word: str, against: str) -> str:
    """Tell what a mean interaction below zero says."""
    if word != "redundant" or against == "undecided":
        return "nothing"
    return "heads repeat each other" if against == "worse" else "diminishing returns"


def judge(results: pd.DataFrame) -> dict[str, Any]:
    """Apply the rules to a table with columns recipe, seed, metric, mean_interaction, beyond."""
    return {
        recipe: {metric: _judged(results, recipe, metric) for metric in METRICS}
        for recipe in RECIPES
    }


def _judged(results: pd.DataFrame, recipe: str, metric: str) -> dict[str, Any]:
    rows = results[(results["recipe"] == recipe) & (results["metric"] == metric)]
    mean, beyond = mean_interval(rows["mean_interaction"]), mean_interval(rows["beyond"])
    known = mean.low is not None and mean.high is not None
    word = word_of(mean.low, mean.high) if known else "undecided"  # type: ignore[arg-type]
    against = against_independent(beyond)
    return {
        "word": word,
        "against_independent": against,
        "reading": reading(word, against),
        "mean_interaction": mean._asdict(),
        "beyond": beyond._asdict(),
        **_means(rows, ("copies", "enough", "facilitating", "interfering", "irrelevant")),
    }


def _means(rows: pd.DataFrame, names: tuple[str, ...]) -> Mapping[str, float]:
    return {name: float(rows[name].mean()) for name in names}
