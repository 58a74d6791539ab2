"""Shapley values and interactions estimated from some groups, where heads are too many for all.

Each estimate is a mean over independent random orders or groups, and has a standard error. The one
of textbooks fails where a head's gain is rare: if it is nonzero in one order of a hundred, it is
often zero in all orders that were drawn, and so would be its standard error. So the variance of
every mean is taken from what was drawn together with two observations at either end of the range
of all that was drawn, of any head. For gains of 0 or 1, these are the four of Agresti and Coull
(1998), with which a normal interval of 95 % covers a proportion near 0 or 1: for one never seen in
n draws it ends near 3/n. The means themselves stay unbiased. The price are intervals that are wide,
by some multiple of range/n, for heads that do add the same to every group: from draws alone nobody
can tell these from heads that rarely add something else. An error is zero only if all that was
drawn is one number; what is larger than all that was drawn of any head is not accounted for.

Orders are not paired with their reverse, a usual way to reduce variance. It helps where gains
shrink with the size of a group, but in a game that is its own dual, such as the vote of a majority,
an order and its reverse tell the same: half of the work is lost.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import t as student

from count01_lens.common.progress import counted
from count01_lens.common.types import Array
from count01_lens.common.validation import check_int, check_number

# Gives the values of groups, which are rows of booleans; one of them may be empty.
Value = Callable[[Bool[Array, "group head"]], Float[Array, " group"]]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimates where there are too many heads for all groups.

    Attributes:
        values: of each head, or of each pair.
        standard_errors: of each.
        n_samples: how many random orders or groups they come from.
    """

    values: Float[Array, "*head_or_pair"]
    standard_errors: Float[Array, "*head_or_pair"]
    n_samples: int

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[Array, "*head_or_pair"], Float[Array, "*head_or_pair"]]:
        """Lower and upper ends of intervals that cover each true value with a probability.

        Args:
            level: the probability, between 0 and 1, of Student's t over the samples.
        """
        if check_number("level", level, above=0) >= 1:
            raise ValueError(f"level: expected a number between 0 and 1, got {level!r}")
        reach = student.ppf((1 + level) / 2, self.n_samples - 1) * self.standard_errors
        return self.values - reach, self.values + reach


def sampled_shapley(
    value: Value,
    n_heads: int,
    *,
    n_permutations: int = 100,
    seed: int = 0,
    progress: bool | None = False,
) -> Estimate:
    """Estimate Shapley values: what each head adds when heads come in a random order.

    Ctrl-C ends it early: the estimate then comes from the orders that are done, if they are two.
    """
    check_int("n_heads", n_heads, at_least=1)
    check_int("n_permutations", n_permutations, at_least=2)
    rng = np.random.default_rng(seed)
    done: list[Float[Array, " head"]] = []
    (empty,) = value(np.zeros((1, n_heads), dtype=bool))
    try:
        with counted(n_permutations, "sampling orders of heads", progress) as advance:
            for _ in range(n_permutations):
                order = rng.permutation(n_heads)
                groups = np.tri(n_heads, dtype=bool)[:, np.argsort(order)]
                gains = np.empty(n_heads)
                gains[order] = np.diff(np.concatenate([[empty], value(groups)]))
                done.append(gains)
                advance(1)
    except KeyboardInterrupt:
        if len(done) < 2:
            raise
        warnings.warn(
            f"interrupted: the estimate is from {len(done)} of {n_permutations} orders",
            stacklevel=2,
        )
    rows = np.stack(done)
    return Estimate(rows.mean(axis=0), _standard_errors(rows), len(rows))


def sampled_interactions(
    value: Value, n_heads: int, *, n_samples: int = 50, seed: int = 0
) -> Estimate:
    """Estimate pairwise Shapley interactions.

    For each pair, groups of the other heads are drawn, their size uniform from none to all: the
    mean synergy of the pair over such groups is its interaction index. The diagonal is left zero.
    """
    check_int("n_heads", n_heads, at_least=2)
    check_int("n_samples", n_samples, at_least=2)
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(n_heads, 1)
    synergies = np.empty((n_samples, len(first)))
    for pair, (i, j) in enumerate(zip(first, second, strict=True)):
        others = np.delete(np.arange(n_heads), [i, j])
        without = np.zeros((n_samples, n_heads), dtype=bool)
        for row in without:
            row[rng.permutation(others)[: rng.integers(n_heads - 1)]] = True
        with_i, with_j, with_both = without.copy(), without.copy(), without.copy()
        with_i[:, i] = with_j[:, j] = True
        with_both[:, [i, j]] = True
        values = value(np.concatenate([with_both, with_i, with_j, without])).reshape(4, -1)
        synergies[:, pair] = values[0] - values[1] - values[2] + values[3]
    means, errors = np.zeros((n_heads, n_heads)), np.zeros((n_heads, n_heads))
    means[first, second] = means[second, first] = synergies.mean(axis=0)
    errors[first, second] = errors[second, first] = _standard_errors(synergies)
    return Estimate(means, errors, n_samples)


def _standard_errors(drawn: Float[Array, "sample each"]) -> Float[Array, " each"]:
    """Standard errors of means over samples, with observations at the ends of the range added."""
    ends = np.repeat([drawn.min(), drawn.max()], 2)[:, None]
    with_ends = np.concatenate([drawn, np.broadcast_to(ends, (4, drawn.shape[1]))])
    return np.asarray(with_ends.std(axis=0, ddof=1) / np.sqrt(len(drawn)))
