"""The mean interaction of all pairs: what the last head adds, less what the first does.

Averaged over pairs, v(S+i+j) − v(S+i) − v(S+j) + v(S) is a second difference of v̄_s, the mean value
of groups of s heads. All sizes of S count alike in the Shapley interaction, and a sum of second
differences has two ends:

    mean I = [ (v̄_a − v̄_{a−1}) − (v̄_1 − v̄_0) ] / (a − 1).

So single heads, the whole model and the whole model without one head are enough for it, however
many heads there are; and it says nothing of the groups between. If every head did what all do
together, as exact copies do, it would be −(v̄_a − v̄_0) / (a − 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from count01_lens.common.types import Array
from count01_lens.heads.head_data import HeadData
from count01_lens.heads.metrics import Groups, Metric, RightKept


@dataclass(frozen=True)
class EndValues:
    """The smallest and the largest groups of a number of heads, by a metric.

    Attributes:
        n_heads: how many there are.
        none: value of no heads.
        first: mean value of a head alone.
        but_one: mean value of all heads but one.
        whole: value of all heads.
    """

    n_heads: int
    none: float
    first: float
    but_one: float
    whole: float

    @classmethod
    def of_values(cls, values: Float[Array, " mask"]) -> "EndValues":
        """Pick the groups at the ends from the values of all groups, by mask."""
        n = len(values).bit_length() - 1
        heads = 1 << np.arange(n)
        alone, others = float(values[heads].mean()), float(values[(1 << n) - 1 - heads].mean())
        return cls(n, float(values[0]), alone, others, float(values[-1]))

    @property
    def first_gain(self) -> float:
        """What a head adds to none, in the mean."""
        return self.first - self.none

    @property
    def last_gain(self) -> float:
        """What a head adds to all others, in the mean."""
        return self.whole - self.but_one

    @property
    def mean_interaction(self) -> float:
        """Mean Shapley interaction over all pairs; NaN where there is no pair."""
        if self.n_heads < 2:
            return float("nan")
        return (self.last_gain - self.first_gain) / (self.n_heads - 1)


def largest_groups(n_heads: int) -> Bool[Array, "group head"]:
    """All heads but one, for each head, and all heads: what is needed beside single heads."""
    masks = np.concatenate([~np.eye(n_heads, dtype=bool), np.ones((1, n_heads), dtype=bool)])
    return masks[-1:] if n_heads == 1 else masks


class Ends(NamedTuple):
    """The mean interaction, by metric that is a mean over prompts.

    Attributes:
        by_prompt: what each test prompt contributes to it.
        gain: what all heads reach beyond none.
    """

    by_prompt: Float[Array, " prompt"]
    gain: float


def ends_of_groups(
    values: Float[Array, " mask"], contributions: Float[Array, "prompt pair"]
) -> Ends:
    """The same from all groups, and what prompts contribute to each pair."""
    first, second = np.triu_indices(len(values).bit_length() - 1)
    by_prompt = contributions[:, first != second].mean(axis=1)
    return Ends(np.asarray(by_prompt), float(values[-1] - values[0]))


def measure_ends(
    data: HeadData, metrics: Sequence[Metric], *, progress: bool | None = False
) -> dict[str, Ends]:
    """Measure single heads, the whole model, and the whole model without each one."""
    n = data.n_heads
    singles, whole = np.eye(n, dtype=bool), np.ones((1, n), dtype=bool)
    masks = np.concatenate([singles, ~singles, whole])
    kept = RightKept(len(masks))
    groups = Groups(data, masks, noted=kept, progress=progress)
    ends = {}
    for metric in metrics:
        metric.measure(groups)
        right, empty = kept.by[metric.right_by or ""], metric.without_heads(data)
        last = right[-1] - right[n:-1].mean(axis=0)
        first = right[:n].mean(axis=0) - empty
        gain = float(right[-1].mean() - empty.mean())
        ends[metric.name] = Ends(np.asarray((last - first) / (n - 1)), gain)
    return ends
