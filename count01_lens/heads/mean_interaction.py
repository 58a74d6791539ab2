"""The mean interaction over all pairs, exactly, from 2a + 2 groups of a heads.

Averaged over the pairs of heads, the Shapley interaction

    I_ij = Σ_S  |S|! (a−|S|−2)! / (a−1)!  [ v(S+i+j) − v(S+i) − v(S+j) + v(S) ]

depends on v only through v_t, the mean value of the groups of t heads. A group of t heads is S+i+j
for the pairs within it, S+i for those it divides, and S for those outside. With the weights, and
with how many groups and pairs there are, these add up to 1, −2 and 1 times v_t / (a−1): for t from
2, from 1 to a−1, and up to a−2. They cancel but at the two ends,

    mean I_ij = [ (v_a − v_(a−1)) − (v_1 − v_0) ] / (a − 1):

what a head adds to all others, minus what it adds to none, for each of the others. So heads
cooperate in the mean if the last one to come adds more than the first, and are redundant if it adds
less. No group of two heads or of half of them has a part in it; what it costs grows with the number
of heads, not with that of groups.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from count01_lens.common.types import Array


@dataclass(frozen=True)
class Ends:
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
    def of_values(cls, values: Float[Array, " mask"]) -> "Ends":
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
