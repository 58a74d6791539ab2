"""All groups of heads, and what they say of each head and each pair: exact Shapley values.

A group is a number whose bit i stands for head i. With the value v of every group known,

    φ_i  = Σ_S  |S|! (a−|S|−1)! / a!      [ v(S+i) − v(S) ]
    I_ij = Σ_S  |S|! (a−|S|−2)! / (a−1)!  [ v(S+i+j) − v(S+i) − v(S+j) + v(S) ],

over the groups S without i (and j), are the Shapley value of a head and the interaction index
(Grabisch and Roubens) of a pair. Positive interaction: two heads are worth more together than
apart. Negative: what one brings, the other has.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from count01_lens.common.progress import track
from count01_lens.common.types import Array
from count01_lens.common.validation import check_int
from count01_lens.heads.metrics import (
    HeadData,
    Masks,
    empty_values,
    end_accuracy,
    learned_accuracy,
    roc_auc,
    separation_accuracy,
    separation_fits,
    separation_scores,
)

LARGEST_EXACT = 18
METRICS: dict[str, Callable[[HeadData, Masks], Float[Array, " group"]]] = {
    "l_acc": learned_accuracy,
    "roc_auc": roc_auc,
    "s_acc": separation_accuracy,
    "eos_l_acc": end_accuracy,
}


@dataclass(frozen=True, eq=False)
class AllGroups:
    """Every group of heads with its metrics.

    Attributes:
        table: a row per group: mask, size, l_acc, roc_auc, s_acc, eos_l_acc.
        empty: the metrics of no heads.
        worst_gradient: the largest relative gradient at the end of any probe's fit.
    """

    table: pd.DataFrame
    empty: dict[str, float]
    worst_gradient: float

    def values(self, metric: str) -> Float[Array, " mask"]:
        """Values of a metric by mask, the empty group's at 0."""
        return np.concatenate([[self.empty[metric]], self.table[metric].to_numpy()])


def all_groups(data: HeadData, *, progress: bool | None = False) -> AllGroups:
    """Compute the metrics of all 2^a − 1 groups.

    Probes are fitted from small groups to large ones, each starting from the best group with one
    head less.
    """
    check_exact(data.n_heads)
    numbers = np.arange(1, 2**data.n_heads)
    masks = as_rows(numbers, data.n_heads)
    s_acc, worst = separation_of_all(data, masks, progress=progress)
    values = metrics_of(data, masks, s_acc)
    table = pd.DataFrame({"mask": numbers, "size": subset_sizes(numbers), **values})
    return AllGroups(table, empty_values(data), worst)


def metrics_of(
    data: HeadData, masks: Masks, s_acc: Float[Array, " group"]
) -> dict[str, Float[Array, " group"]]:
    """All metrics of some groups, with the one that takes long already known."""
    return {
        name: s_acc if name == "s_acc" else measure(data, masks)
        for name, measure in METRICS.items()
    }


def separation_of_all(
    data: HeadData, masks: Bool[Array, "group head"], *, progress: bool | None = False
) -> tuple[Float[Array, " group"], float]:
    """Return s-acc of all groups, in the order of their numbers, and the worst gradient."""
    n = len(masks) + 1
    n_weights = data.train_outputs.shape[1] * data.train_outputs.shape[2] + 1
    weights, objectives = np.zeros((n, n_weights)), np.full(n, np.inf)
    scores, worst = np.zeros(n), 0.0
    sizes = masks.sum(axis=1)
    parts = [
        part
        for size in range(1, data.n_heads + 1)
        for part in np.array_split(
            np.flatnonzero(sizes == size) + 1, -(-int((sizes == size).sum()) // 512)
        )
    ]
    for numbers in track(parts, len(parts), "fitting all groups", progress):
        rows = masks[numbers - 1]
        smaller = np.where(rows, numbers[:, None] ^ (1 << np.arange(data.n_heads)), 0)
        best = smaller[np.arange(len(numbers)), objectives[smaller].argmin(axis=1)]
        fits = separation_fits(data, rows, start=weights[best])
        weights[numbers], objectives[numbers] = fits.weights, fits.objectives
        scores[numbers] = separation_scores(data, fits)
        worst = max(worst, float(fits.gradient_norms.max()))
    return scores[1:], worst


def as_rows(numbers: Int[Array, " group"], n_heads: int) -> Bool[Array, "group head"]:
    """Write groups given as numbers as rows of booleans."""
    return ((numbers[:, None] >> np.arange(n_heads)) & 1).astype(bool)


def subset_sizes(numbers: Int[Array, " group"]) -> Int[Array, " group"]:
    """Number of heads in groups given as numbers."""
    return np.asarray(np.bitwise_count(numbers).astype(int))


def shapley_values(values: Float[Array, " mask"]) -> Float[Array, " head"]:
    """Exact Shapley values from the value of every group, the empty one first."""
    n = _n_heads(values)
    masks = np.arange(len(values))
    sizes = subset_sizes(masks)
    weights = np.array([factorial(s) * factorial(n - s - 1) / factorial(n) for s in range(n)])
    result = np.empty(n)
    for head in range(n):
        without = masks[(masks >> head) & 1 == 0]
        gains = values[without | (1 << head)] - values[without]
        result[head] = weights[sizes[without]] @ gains
    return result


def shapley_interactions(values: Float[Array, " mask"]) -> Float[Array, "head head"]:
    """Exact pairwise Shapley interaction indices; the diagonal holds the Shapley values."""
    n = _n_heads(values)
    masks = np.arange(len(values))
    sizes = subset_sizes(masks)
    weights = np.array(
        [factorial(s) * factorial(n - s - 2) / factorial(n - 1) for s in range(n - 1)]
    )
    result = np.diag(shapley_values(values))
    for i in range(n):
        for j in range(i + 1, n):
            without = masks[((masks >> i) & 1 == 0) & ((masks >> j) & 1 == 0)]
            with_i, with_j = without | (1 << i), without | (1 << j)
            synergy = values[with_i | with_j] - values[with_i] - values[with_j] + values[without]
            result[i, j] = result[j, i] = weights[sizes[without]] @ synergy
    return result


@dataclass(frozen=True, eq=False)
class SampledShapley:
    """Estimates where there are too many heads for all groups.

    Attributes:
        values: estimated Shapley values.
        standard_errors: of each.
        n_permutations: how many random orders of the heads they come from.
    """

    values: Float[Array, " head"]
    standard_errors: Float[Array, " head"]
    n_permutations: int


def sampled_shapley(
    value: Callable[[Bool[Array, "group head"]], Float[Array, " group"]],
    n_heads: int,
    *,
    empty: float,
    n_permutations: int = 100,
    seed: int = 0,
) -> SampledShapley:
    """Estimate Shapley values: what each head adds when heads come in a random order.

    Args:
        value: gives the values of groups, which are rows of booleans.
        n_heads: how many heads there are.
        empty: value of the empty group.
        n_permutations: random orders to average over, at least 2.
        seed: of the orders.
    """
    check_int("n_heads", n_heads, at_least=1)
    check_int("n_permutations", n_permutations, at_least=2)
    rng = np.random.default_rng(seed)
    gains = np.empty((n_permutations, n_heads))
    for row in gains:
        order = rng.permutation(n_heads)
        groups = np.tri(n_heads, dtype=bool)[:, np.argsort(order)]
        row[order] = np.diff(np.concatenate([[empty], value(groups)]))
    errors = gains.std(axis=0, ddof=1) / np.sqrt(n_permutations)
    return SampledShapley(gains.mean(axis=0), errors, n_permutations)


def sampled_interactions(
    value: Callable[[Bool[Array, "group head"]], Float[Array, " group"]],
    n_heads: int,
    *,
    n_samples: int = 50,
    seed: int = 0,
) -> tuple[Float[Array, "head head"], Float[Array, "head head"]]:
    """Estimate pairwise Shapley interactions; return them and their standard errors.

    For each pair, groups of the other heads are drawn, their size uniform from none to all: the
    mean synergy of the pair over such groups is its interaction index. The diagonal is left zero.

    Args:
        value: gives the values of groups, which are rows of booleans, the empty one included.
        n_heads: how many heads there are, at least 2.
        n_samples: groups to draw for each pair, at least 2.
        seed: of the groups.
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
    return means, errors


def check_exact(n_heads: int) -> None:
    """Raise if there are too many heads to look at every group."""
    if n_heads > LARGEST_EXACT:
        raise ValueError(
            f"{n_heads} heads have 2^{n_heads} - 1 groups: expected at most {LARGEST_EXACT} heads; "
            "use analysis.sampled_shapley and .sampled_interactions, which estimate from a few"
        )


def _n_heads(values: Float[Array, " mask"]) -> int:
    n = len(values).bit_length() - 1
    if len(values) != 1 << n or n < 1:
        raise ValueError(f"values: expected one for each of 2^a groups, got {len(values)}")
    return n
