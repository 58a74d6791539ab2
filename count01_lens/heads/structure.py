"""The structure among heads: who copies whom, who takes over for whom, which groups suffice.

Let v be the value of every group of the a heads N, φ its Shapley values, and φ^{−i} those of the
game without head i. When head i is removed, head j is worth

    T_ij = φ_j^{−i} − φ_j = − Σ_S  (|S|+1)! (a−|S|−2)! / a!  [ v(S+i+j) − v(S+i) − v(S+j) + v(S) ]

more, over the groups S without either: it takes so much over. T is symmetric (Myerson's balanced
contributions), and what a head is worth is what is lost without it, and what others take over:

    φ_i = [ v(N) − v(N−i) ] + Σ_j T_ij .

So a head of high worth that is not missed has substitutes, and T says which. Below zero, a head is
worth less without the other: it needs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import factorial

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from count01_lens.common.text import in_words, plural, rounded_percent
from count01_lens.common.types import Array
from count01_lens.heads.copies import (
    APART,
    UNLIKE,
    Cluster,
    apartness,
    clusters,
    side_by_side,
    unlikeness,
)
from count01_lens.heads.games import check_values, minimal_groups, smallest_groups, subset_sizes
from count01_lens.heads.metrics import METRICS

# Smallest and minimal groups: those with so much of what all heads gain over none.
SHARE = 0.99
_SHOWN = 3  # pairs or groups that a sentence names
_ROUNDS_TO_ZERO = 5e-4  # as numbers are written in sentences


def takeover(values: Float[Array, " mask"]) -> Float[Array, "head head"]:
    """Return what each head takes over when another is removed: T of the module's equations.

    Args:
        values: of every group by mask (bit i stands for head i), the empty one first.

    Returns:
        A symmetric matrix [head removed, other head]. The diagonal is zero, as nobody takes over
        for himself, so that a row sums to all that is taken over.

    Example:
        Heads 0 and 1 are copies, and head 2 needs one of them.

        >>> values = [0.5 + 0.5 * bool(mask & 0b011 and mask & 0b100) for mask in range(8)]
        >>> takeover(np.array(values)).round(3)
        array([[ 0.   ,  0.167, -0.083],
               [ 0.167,  0.   , -0.083],
               [-0.083, -0.083,  0.   ]])
    """
    n = check_values(values)
    masks = np.arange(len(values))
    sizes = subset_sizes(masks)
    by_size = [factorial(s + 1) * factorial(n - s - 2) / factorial(n) for s in range(n - 1)]
    result = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            without = masks[masks & (1 << i | 1 << j) == 0]
            with_i, with_j = without | 1 << i, without | 1 << j
            synergy = values[with_i | with_j] - values[with_i] - values[with_j] + values[without]
            result[i, j] = result[j, i] = -np.array(by_size)[sizes[without]] @ synergy
    return result


def losses(values: Float[Array, " mask"]) -> Float[Array, " head"]:
    """Return what the whole model loses without each head: v(N) − v(N−i)."""
    whole = len(values) - 1
    return np.asarray(values[whole] - values[whole ^ 1 << np.arange(whole.bit_length())])


@dataclass(frozen=True, eq=False)
class Structure:
    """What stands behind the numbers of single heads and pairs; `print` it.

    Attributes:
        metric: the name of the metric by which groups are valued.
        names: what heads are called.
        copies: clusters of heads of which any does, in every group, what any two do.
        alike: clusters of heads whose linear probes decide alike; None if the probes are unknown.
        share: of what all heads gain over none; what smallest and minimal groups reach.
        smallest: the groups of fewest heads that reach it; the empty one if all gain nothing.
        minimal: by size, the number of groups that reach it while none within them does.
        takeover: [head removed, other head], what the other takes over; zero on the diagonal.
        loss: what the whole model loses without each head.
        order: heads, with clusters of copies side by side.
    """

    metric: str
    names: tuple[str, ...]
    copies: tuple[Cluster, ...]
    alike: tuple[Cluster, ...] | None
    share: float
    smallest: tuple[Cluster, ...]
    minimal: dict[int, int]
    takeover: Float[Array, "head head"] = field(repr=False)
    loss: Float[Array, " head"] = field(repr=False)
    order: tuple[int, ...] = field(repr=False)

    @property
    def table(self) -> pd.DataFrame:
        """A row per head: its Shapley value, of which it is the loss and the rest is taken over.

        The substitute is the head that takes over most, if any takes over something.
        """
        best, taken = self.takeover.argmax(axis=1), self.takeover.sum(axis=1)
        most = self.takeover.max(axis=1)
        substitutes = [
            self.names[other] if much > 0 else "" for other, much in zip(best, most, strict=True)
        ]
        return pd.DataFrame(
            {
                "head": self.names,
                "shapley": self.loss + taken,
                "loss": self.loss,
                "taken_over": taken,
                "substitute": substitutes,
                "by_substitute": most,
            }
        )

    def takeover_table(self) -> pd.DataFrame:
        """Who takes over how much from whom: a row per head removed, a column per other head."""
        table = pd.DataFrame(self.takeover, columns=list(self.names))
        table.insert(0, "removed", self.names)
        return table.assign(lost=self.loss)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The structure in words, a sentence or two for each of its parts."""
        if len(self.names) == 1:
            return ("There is only one head, and no structure to find.",)
        found = (self._copies(), self._alike(), self._groups(), self._taken_over(), self._loss())
        return tuple(text for text in found if text)

    def __str__(self) -> str:
        title = f"{plural(len(self.names), 'head')}, judged by {METRICS[self.metric].label}:"
        return "\n".join([title, *(f"- {sentence}" for sentence in self.sentences)])

    def _copies(self) -> str:
        if not self.copies:
            return "No two heads are copies, each worth as much to any group as the two together."
        if len(self.copies) == 1:
            heads = self._named(self.copies[0]).capitalize()
            several = "both" if len(self.copies[0]) == 2 else "all of them"
            worth = f"to any group, one of them is worth nearly as much as {several}"
            return f"{heads} are copies: {worth}."
        found = "; ".join(map(self._named, self.copies))
        return f"Copies, of which one is worth nearly as much to any group as all: {found}."

    def _alike(self) -> str:
        if self.alike is None:
            return ""
        if not self.alike:
            return "No two heads have linear probes that give nearly the same answers."
        if len(self.alike) == 1:
            return (
                f"The linear probes of {self._named(self.alike[0])} give nearly the same answers."
            )
        found = "; ".join(map(self._named, self.alike))
        return f"Heads whose linear probes give nearly the same answers: {found}."

    def _groups(self) -> str:
        if not self.smallest[0]:
            return "All heads together do no better than none."
        goal = f"{rounded_percent(self.share)} of what all heads gain together"
        size, n = len(self.smallest[0]), len(self.smallest)
        if size == 1:
            heads = self._named([head for group in self.smallest for head in group]).capitalize()
            text = f"{heads} {'each reach' if n > 1 else 'alone reaches'} {goal}."
        elif n == 1:
            text = f"The smallest group that reaches {goal} is {self._named(self.smallest[0])}."
        else:
            few = "; ".join(map(self._named, self.smallest[:_SHOWN]))
            which = f"{n} groups of {size} heads" + ", for example" * (n > _SHOWN)
            text = f"The smallest groups that reach {goal} are {which}: {few}."
        n_minimal = sum(self.minimal.values())
        if n_minimal == n:
            return text
        told = in_words(f"{n} with {plural(size, 'head')}" for size, n in self.minimal.items())
        return (
            f"{text} In all, {n_minimal} groups reach it while no smaller group within them does: "
            f"{told}."
        )

    def _taken_over(self) -> str:
        taken, worth = self.takeover.sum(), self.table["shapley"].sum()
        substitutes, needed = self._pairs(self.takeover), self._pairs(-self.takeover)
        text = []
        if 0.01 * worth <= taken <= worth and worth > 0:
            text.append(
                f"When single heads are removed, the others take over "
                f"{rounded_percent(taken / worth)} of what they are worth."
            )
        if substitutes:
            text.append(
                f"The best substitutes for each other are heads {substitutes}: without one, the "
                "other is worth that much more."
            )
        if needed:
            text.append(
                f"Heads that need each other most are {needed}: without one, the other is worth "
                "that much less."
            )
        return " ".join(text) or "When a head is removed, no other takes over anything from it."

    def _loss(self) -> str:
        label, missed = METRICS[self.metric].label, self.loss >= _ROUNDS_TO_ZERO
        most, least, n = int(self.loss.argmax()), int(self.loss.argmin()), int(missed.sum())
        if n == 0:
            text = "The whole model does as well if any single head is removed"
        else:
            which = f"{n} of its {len(missed)}" if n < len(missed) else f"each of its {n}"
            text = f"The whole model needs {which} heads: "
            text += f"{label} falls most without head {self.names[most]}, by {self.loss[most]:.3f}"
        if self.loss[least] <= -_ROUNDS_TO_ZERO:
            text += f"; {label} rises most without head {self.names[least]}, "
            text += f"by {-self.loss[least]:.3f}"
        return text + "."

    def _pairs(self, amounts: Float[Array, "head head"]) -> str:
        """The pairs with the largest amounts that do not round to zero, and these."""
        first, second = np.triu_indices(len(amounts), 1)
        found = amounts[first, second]
        largest = np.argsort(-found, kind="stable")[:_SHOWN]
        told = [
            f"{self.names[first[k]]} and {self.names[second[k]]} ({found[k]:.3f})"
            for k in largest
            if found[k] >= _ROUNDS_TO_ZERO
        ]
        return "; ".join(told)

    def _named(self, heads: Sequence[int]) -> str:
        noun = "head" if len(heads) == 1 else "heads"
        return f"{noun} {in_words(self.names[head] for head in heads)}"


def find_structure(
    values: Float[Array, " mask"],
    metric: str,
    names: Sequence[str] = (),
    answers: Shaped[Array, "sample head"] | None = None,
) -> Structure:
    """Find the structure among heads; `analysis.structure(metric)` is the short way.

    Args:
        values: of every group by mask (bit i stands for head i), the empty one first.
        metric: the name of what the values are.
        names: what heads are called; by default their numbers.
        answers: what the linear probe of each single head answers, if that is known.

    Raises:
        ValueError: if they are not the finite values of 2^a groups.
    """
    apart = apartness(values)
    sizes = subset_sizes(minimal_groups(values, SHARE))
    return Structure(
        metric=metric,
        names=tuple(names) or tuple(map(str, range(len(apart)))),
        copies=clusters(apart, APART),
        alike=None if answers is None else clusters(unlikeness(answers), UNLIKE),
        share=SHARE,
        smallest=tuple(map(_members, smallest_groups(values, SHARE))),
        minimal={size: int((sizes == size).sum()) for size in np.unique(sizes).tolist()},
        takeover=takeover(values),
        loss=losses(values),
        order=tuple(side_by_side(apart)),
    )


def _members(mask: int) -> Cluster:
    return tuple(head for head in range(int(mask).bit_length()) if int(mask) >> head & 1)
