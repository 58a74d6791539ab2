"""What each test prompt contributes to the worth of heads and pairs.

Accuracy is a mean over prompts, so the game of all groups is a mean of games, one for each prompt
p: v_p(S) is 1 if p is answered rightly with only the heads of S, else 0. Shapley values and
interactions are linear in the game,

    I_ij = Σ_S c_ij(S) v(S) = mean over p of Σ_S c_ij(S) v_p(S),

so they are means of what prompts contribute, and have intervals as means do. While groups are
measured, the sums over S are added up; nobody has to keep what each of 65,535 groups said about
each prompt.
"""

from math import factorial

import numpy as np
from jaxtyping import Bool, Float, Int

from count01_lens.common.types import Array


class ContributionsInWork:
    """Contributions of prompts, added up while groups are measured, in any order.

    Columns are the pairs of `np.triu_indices(n_heads)`, each head with itself among them: that is
    its Shapley value.
    """

    def __init__(self, n_heads: int, n_prompts: int):
        self.n_heads = n_heads
        n_columns = n_heads * (n_heads + 1) // 2
        # One thing, replaced at once: an interrupt never leaves a group that was added but not
        # noted, and would be added once more.
        self._state = np.zeros(1 << n_heads, dtype=bool), np.zeros((n_columns, n_prompts))

    def add(self, numbers: Int[Array, " group"], right: Bool[Array, "group prompt"]) -> None:
        """Add what some groups, given as numbers, get right; those added before are left out."""
        seen, sums = self._state
        new = ~seen[numbers]
        masks = (numbers[new, None] >> np.arange(self.n_heads) & 1).astype(bool)
        now = seen.copy()
        now[numbers] = True
        self._state = now, sums + index_weights(masks).T @ right[new].astype(float)

    def finished(self) -> Float[Array, "prompt pair"]:
        """Return the contributions; every group must have been added, the empty one too."""
        seen, sums = self._state
        if not seen.all():
            raise RuntimeError(f"expected all {len(seen)} groups, got {int(seen.sum())} of them")
        return np.ascontiguousarray(sums.T)


def index_weights(masks: Bool[Array, "group head"]) -> Float[Array, "group pair"]:
    """With which weights the values of groups enter Shapley values and interactions.

    A group T enters the interaction of {i, j} with (−1)^{number of i, j not in T} and
    s! (a − 2 − s)! / (a − 1)!, where s is the number of its other heads; a Shapley value likewise.
    """
    n = masks.shape[1]
    first, second = np.triu_indices(n)
    present = masks[:, first].astype(int) + masks[:, second]  # of a head with itself: 0 or 2
    sizes = masks.sum(axis=1)
    alone, pairs = _by_presence(n, 1), _by_presence(n, 2)
    weights = np.where(
        first == second, alone[present // 2, sizes[:, None]], pairs[present, sizes[:, None]]
    )
    return np.asarray(weights)


def _by_presence(n: int, order: int) -> Float[Array, "present size"]:
    """Weights of a group by how many of the heads in question it has, and by its size."""
    rows = max(order, 2) + 1
    weights = np.zeros((rows, n + 1))
    for present in range(order + 1):
        for others in range(n - order + 1):
            weight = factorial(others) * factorial(n - order - others) / factorial(n - order + 1)
            weights[present, present + others] = (-1) ** (order - present) * weight
    return weights
