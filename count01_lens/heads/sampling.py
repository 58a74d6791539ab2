"""Shapley values and interactions estimated from some groups, where heads are too many for all."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from count01_lens.common.progress import counted
from count01_lens.common.types import Array
from count01_lens.common.validation import check_int

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
    errors = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    return Estimate(rows.mean(axis=0), errors, len(rows))


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
    means, errors = np.zeros((n_heads, n_heads)), np.zeros((n_heads, n_heads))
    for i in range(n_heads):
        for j in range(i + 1, n_heads):
            others = np.delete(np.arange(n_heads), [i, j])
            without = np.zeros((n_samples, n_heads), dtype=bool)
            for row in without:
                row[rng.permutation(others)[: rng.integers(n_heads - 1)]] = True
            with_i, with_j, with_both = without.copy(), without.copy(), without.copy()
            with_i[:, i] = with_j[:, j] = True
            with_both[:, [i, j]] = True
            values = value(np.concatenate([with_both, with_i, with_j, without])).reshape(4, -1)
            synergy = values[0] - values[1] - values[2] + values[3]
            means[i, j] = means[j, i] = synergy.mean()
            errors[i, j] = errors[j, i] = synergy.std(ddof=1) / np.sqrt(n_samples)
    return Estimate(means, errors, n_samples)
