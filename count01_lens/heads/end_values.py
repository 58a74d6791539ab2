"""Values of the smallest and the largest groups, from which the mean interaction of pairs follows.

    mean I = [ (v_a − v_(a−1)) − (v_1 − v_0) ] / (a − 1),

with v_t the mean value of the groups of t of a heads (`heads.ends` has why). Here are values by any
metric, also one that is no mean over prompts such as ROC AUC, for tables over many models.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from count01_lens.common.types import Array


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
