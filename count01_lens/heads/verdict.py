"""Compete or cooperate, in words that stand for stated numbers.

Of each question, by a metric: the mean interaction I of all pairs with its interval over test
prompts (and, over several models, over seeds: `heads.comparison`). A word is given only where the
whole interval is beyond its bound:

* **cooperate**: I is at least +0.01: heads are worth more together than apart;
* **redundant**: I is at most −0.01: what one head brings, others have already;
* **neither**: I is between the two. Null: heads whose gains add up, I = 0;
* **undecided**: the interval leaves more than one of these open.

Three references stand beside it. Exact copies of one head would have I = −gain / (a − 1). Heads as
good as these, but independent given the answer, have diminishing returns, too, so a negative I
alone does not tell that heads repeat each other: whether groups do better or worse than groups of
independent heads is told apart (`heads.independence`). And heads that **interfere**: their Shapley
value is below zero, they work against the rest (`heads.labels`).

The metrics are s-acc, what heads know, and l-acc, what they answer together. Heads of several
layers work through each other, which no probe sees: there it is l-acc alone, and the mean is told
apart, of pairs within a layer and of pairs between two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from count01_lens.common.intervals import simultaneous_intervals
from count01_lens.common.text import rounded_percent, written_signed
from count01_lens.common.types import Array
from count01_lens.heads.ends import Ends
from count01_lens.heads.games import smallest_groups
from count01_lens.heads.independence import IndependentHeads
from count01_lens.heads.labels import HeadLabels
from count01_lens.heads.sentences import (
    headline,
    how_many_are_needed,
    judged_by,
    mean_interactions,
    some_work_against,
    what_heads_do,
    where,
    works_against,
)
from count01_lens.heads.thresholds import THRESHOLDS, Thresholds

INTERACTION = THRESHOLDS.mean
_AGAINST_INDEPENDENT = {
    "better": "Groups do better than groups of independent heads of the same quality ({} on "
    "average): the heads complement each other.",
    "worse": "Groups do worse than groups of independent heads of the same quality ({} on "
    "average): the heads share their mistakes.",
    "alike": "Groups do as well as groups of independent heads of the same quality ({} on "
    "average).",
    "undecided": "It is undecided whether groups do as well as groups of independent heads of the "
    "same quality ({} on average).",
}


def word_of(low: float, high: float, bound: float = THRESHOLDS.mean) -> str:
    """Name what heads do by the interval of their mean interaction.

    >>> word_of(0.011, 0.02), word_of(-0.02, -0.01), word_of(-0.005, 0.009), word_of(0.0, 0.02)
    ('cooperate', 'redundant', 'neither', 'undecided')
    """
    if low >= bound:
        return "cooperate"
    if high <= -bound:
        return "redundant"
    return "neither" if -bound < low and high < bound else "undecided"


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """What a metric says about a question.

    Attributes:
        word: "cooperate", "redundant", "neither" or "undecided".
        mean_interaction: of all pairs, with its interval (low, high) over test prompts.
        copies: what the mean interaction of exact copies would be.
        independent: how groups do against groups of independent heads; None where that is not
            known.
        interfering: heads that work against the rest; None where not all groups are known.
        enough: the fewest heads that reach 99 % of what all reach beyond none; likewise.
        within, between: means over pairs of one layer and of two, for models of several layers.
        names: what all heads are called.
    """

    question: str
    metric: str
    mean_interaction: float
    low: float
    high: float
    copies: float
    names: tuple[str, ...]
    independent: IndependentHeads | None = None
    interfering: tuple[int, ...] | None = None
    enough: int | None = None
    within: float | None = None
    between: float | None = None
    thresholds: Thresholds = THRESHOLDS

    @property
    def word(self) -> str:
        """What heads do."""
        return word_of(self.low, self.high, self.thresholds.mean)

    @property
    def against_independent(self) -> str | None:
        """How groups do against groups of independent heads: "better", "worse", "alike"."""
        found, bound = self.independent, self.thresholds.beyond
        if found is None:
            return None
        if found.low > bound:
            return "better"
        if found.high < -bound:
            return "worse"
        return "alike" if -bound <= found.low and found.high <= bound else "undecided"

    @property
    def summary(self) -> str:
        """What heads do, in a sentence with the number that decides it."""
        return f"{self._claim()} (mean interaction {written_signed(self.mean_interaction)})."

    def __str__(self) -> str:
        found = [
            f"{self._claim()}: mean interaction {written_signed(self.mean_interaction)} "
            f"({rounded_percent(self.thresholds.level)} interval {written_signed(self.low)} to "
            f"{written_signed(self.high)}; exact copies would have {written_signed(self.copies)})."
        ]
        return " ".join([*found, *self._more()])

    def _claim(self) -> str:
        place = where(self.question)
        return f"{place[0].upper()}{place[1:]}, judged by {judged_by(self.metric)}, " + (
            what_heads_do(self.word)
        )

    def _more(self) -> list[str]:
        """What is known beyond the mean of pairs."""
        said = []
        if self.between is not None:
            inside = "" if self.within is None else f"{written_signed(self.within)} within layers, "
            said.append(f"The mean is {inside}{written_signed(self.between)} between layers.")
        if self.independent is not None:
            how = _AGAINST_INDEPENDENT[self.against_independent or ""]
            said.append(how.format(written_signed(self.independent.beyond)))
        if self.enough:  # of no gain, none are
            said.append(how_many_are_needed(self.enough, len(self.names)))
        if self.interfering:
            said.append(works_against(self.names_interfering, self.question))
        return said

    @property
    def names_interfering(self) -> list[str]:
        """Names of heads that work against the rest, as far as they are known."""
        return [self.names[head] for head in self.interfering or ()]


@dataclass(frozen=True, eq=False)
class Verdict:
    """The findings on all questions, by all metrics that are judged."""

    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        """The finding by a metric, or the first on a question."""
        for finding in self.findings:
            if name in (finding.metric, finding.question):
                return finding
        known = [finding.metric for finding in self.findings]
        raise KeyError(f"verdict: expected one of {known} or a question, got {name!r}")

    @property
    def headline(self) -> str:
        """The answer in one sentence: whether heads cooperate, are redundant or compete."""
        words: dict[str, dict[str, str]] = {}
        against: dict[str, set[str]] = {}
        for each in self.findings:
            words.setdefault(each.question, {})[each.metric] = each.word
            against.setdefault(each.question, set()).update(each.names_interfering)
        n = len(self.findings[0].names)
        told = {asked: some_work_against(len(who), n) for asked, who in against.items() if who}
        return headline(words, against=told)

    @property
    def summary(self) -> str:
        """The headline, the numbers that it stands for, and which heads work against the rest."""
        numbers: dict[str, dict[str, str]] = {}
        for each in self.findings:
            mean = written_signed(each.mean_interaction)
            numbers.setdefault(each.question, {})[each.metric] = mean
        against = [
            works_against(
                each.names_interfering,
                each.question,
                each.metric if len(numbers[each.question]) > 1 else "",
            )
            for each in self.findings
            if each.interfering
        ]
        return " ".join([self.headline, mean_interactions(numbers), *against])

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


def finding_of(
    metric: str,
    question: str,
    ends: Ends,
    *,
    names: Sequence[str],
    layers: Sequence[int],
    labels: HeadLabels | None = None,
    values: Float[Array, " mask"] | None = None,
    independent: IndependentHeads | None = None,
) -> Finding:
    """Put together what is known; labels, values and independent heads with all groups only."""
    found = simultaneous_intervals(ends.by_prompt[:, None], level=THRESHOLDS.level)
    mean, low, high = (float(part[0]) for part in found)
    more: dict[str, Any] = {}
    if labels is not None:
        more["interfering"] = labels.with_label("interfering")
        more |= _by_layers(labels.pairs, np.asarray(layers))
    if values is not None:
        more["enough"] = int(smallest_groups(values)[0]).bit_count()
    return Finding(
        question=question,
        metric=metric,
        mean_interaction=mean,
        low=low,
        high=high,
        copies=-ends.gain / (len(names) - 1),
        names=tuple(names),
        independent=independent,
        **more,
    )


def _by_layers(pairs: pd.DataFrame, layers: Int[Array, " head"]) -> dict[str, float]:
    """Mean interactions of pairs of one layer and of two, if there are several layers."""
    if len(set(layers.tolist())) == 1:
        return {}
    same = layers[pairs["first"]] == layers[pairs["second"]]
    chosen = {"within": same, "between": ~same}
    return {
        name: float(pairs.loc[some, "interaction"].mean())
        for name, some in chosen.items()
        if some.any()
    }


def judged_metrics(questions: Sequence[str], n_layers: int) -> dict[str, str]:
    """Metrics that are judged, each with its question."""
    of_answer = ["s_acc", "l_acc"] if n_layers == 1 else ["l_acc"]
    asked = {**dict.fromkeys(of_answer, "answer"), "eos_l_acc": "end"}
    return {metric: question for metric, question in asked.items() if question in questions}
