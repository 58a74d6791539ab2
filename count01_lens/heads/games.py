"""What heads are worth, alone and together, exactly: games with the value of every group known.

A group is a number, its mask, whose bit i stands for head i. v(S) is the value of a group S, and

    Δ_S v(T) = Σ_{L ⊆ S} (−1)^(|S|−|L|) v(T ∪ L)

what the heads of S add to a group T of others only together: of one head its gain, of two
v(T+i+j) − v(T+i) − v(T+j) + v(T). Let each head be there with probability x, independently. The
mean value f(x, …, x) is then a polynomial, and its derivative in the heads of S is

    ∂_S f(x) = Σ_T x^|T| (1−x)^(a−|S|−|T|) Δ_S v(T),    T among the a−|S| other heads.

Every index is an average of it over x, and differs from the others in the density only:

    dividends (Harsanyi, Möbius)                   x = 0
    "banzhaf"                                      x = 1/2
    "shapley" (Grabisch and Roubens)               uniform
    "shapley_taylor", order k (Sundararajan et al.)  |S| = k: k (1−x)^(k−1); |S| < k: x = 0
    "faithful" Shapley, order k (Tsai et al.)      ∝ (x (1−x))^(|S|−1) P_(k−|S|)^(|S|−1, |S|) (2x−1)

with Jacobi's polynomials P. (The last one is, for |S| = k, the Beta(k, k) density; for smaller
groups it is the closed form of the authors' correction by dividends.) All are polynomials, so that
a few nodes of Gauss and Legendre give the averages up to rounding. Positive interaction: heads are
worth more together than apart. Negative: what one brings, the other has.
"""

from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import eval_jacobi

from count01_lens.common.text import plural
from count01_lens.common.types import Array
from count01_lens.common.validation import check_choice, check_int, check_number

Index = Literal["shapley", "banzhaf", "shapley_taylor", "faithful"]


def subset_sizes(numbers: Int[Array, " group"]) -> Int[Array, " group"]:
    """Number of heads in groups given as numbers."""
    return np.asarray(np.bitwise_count(numbers).astype(int))


def shapley_values(values: Float[Array, "*game mask"]) -> Float[Array, "*game head"]:
    """Exact Shapley values from the value of every group, the empty one first."""
    return interactions(values, order=1)


def shapley_interactions(values: Float[Array, "*game mask"]) -> Float[Array, "*game head head"]:
    """Exact pairwise Shapley interaction indices; the diagonal holds the Shapley values."""
    n = check_values(values)
    return _as_tensor(interactions_by_group(values, min(2, n)), n, 2)


def interactions(
    values: Float[Array, "*game mask"], order: int = 2, index: Index = "shapley"
) -> Float[Array, "..."]:
    """Exact interactions of up to `order` heads, as a tensor with an axis of heads for each.

    Args:
        values: of every group, by mask; several games at once have axes before that.
        order: how many heads at most, from 1 to their number.
        index: which of the averages above.

    Returns:
        `[*game, head, …, head]`: the entry (i, j, …) is the interaction of the *set* of these
        heads; of a matrix, the diagonal holds what single heads are worth.

    Raises:
        ValueError: if values are missing or not finite, or for an order or index there is not.

    Example:
        Two heads that only work together, and a third that adds a half:

        >>> interactions(np.array([0, 0, 0, 1, 0.5, 0.5, 0.5, 1.5])).round(3)
        array([[0.5, 1. , 0. ],
               [1. , 0.5, 0. ],
               [0. , 0. , 0.5]])
    """
    return _as_tensor(interactions_by_group(values, order, index), check_values(values), order)


def interactions_by_group(
    values: Float[Array, "*game mask"], order: int, index: Index = "shapley"
) -> Float[Array, "*game mask"]:
    """Exact interaction of every group of up to `order` heads, by mask; NaN for larger ones.

    At mask 0, of no heads, stands the mean of f for "shapley" and "banzhaf", v(∅) for the others.
    Arguments are those of `interactions`.
    """
    n = check_values(values)
    check_kind(order, index, n)
    table = np.asarray(values, dtype=float)
    masks = _groups_up_to(order, n)
    sizes = subset_sizes(masks)
    nodes, weights = _averages(index, order, n)
    found = np.zeros((*table.shape[:-1], len(masks)))
    for x, weight in zip(nodes, weights.T, strict=True):
        found += weight[sizes] * _derivatives(table, order, x)
    result = np.full(table.shape, np.nan)
    result[..., masks] = found
    return result


def dividends(values: Float[Array, "*game mask"]) -> Float[Array, "*game mask"]:
    """Harsanyi dividends, by mask: what each group adds that no smaller group of it has.

    m(S) = Σ_{T ⊆ S} (−1)^(|S|−|T|) v(T), so that v(S) is the sum of m(T) over all T ⊆ S.
    """
    table = _copy(values)
    for low, high in _halves(table):
        high -= low
    return table


def from_dividends(dividends: Float[Array, "*game mask"]) -> Float[Array, "*game mask"]:
    """Values of all groups from their dividends: the inverse of `dividends`."""
    table = _copy(dividends)
    for low, high in _halves(table):
        high += low
    return table


def explained_by_order(values: Float[Array, "*game mask"]) -> Float[Array, "*game order"]:
    """Share of the variance of v over all groups that single heads, pairs, triples, … explain.

    Every group is equally likely. The entry k−1 is Σ_{|S|=k} (B_S / 2^k)² / Var v, with B_S the
    Banzhaf interaction: the energy of order k in v's Walsh-Hadamard spectrum. It is by how much R²
    of a least squares fit grows when products of k heads join those of fewer. Entries sum to one;
    where all groups are worth the same there is nothing to explain, and they are zero.
    """
    n = check_values(values)
    spectrum = _copy(values)
    spectrum -= spectrum[..., :1].copy()  # a large constant would cost digits
    for low, high in _halves(spectrum):
        low += high
        high *= -2
        high += low  # low + high and low − high
    of_order = subset_sizes(np.arange(1 << n))[:, None] == np.arange(1, n + 1)
    energy = (spectrum / spectrum.shape[-1]) ** 2 @ of_order
    total = energy.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(energy, total, out=np.zeros_like(energy), where=total > 0))


def smallest_groups(values: Float[Array, " mask"], share: float = 0.99) -> Int[Array, " group"]:
    """Masks of the smallest groups that have a share of what all heads gain over none.

    That is v(S) − v(∅) ≥ share · (v(all) − v(∅)), where what is short of it by no more than the
    rounding of a few operations (4 units in the last place of the largest value) counts as equal.
    If all heads together gain nothing, that is the empty group.

    Args:
        values: of every group, by mask.
        share: above 0 and at most 1.
    """
    masks = np.flatnonzero(_reach(values, share))
    sizes = subset_sizes(masks)
    return np.asarray(masks[sizes == sizes.min()])


def minimal_groups(values: Float[Array, " mask"], share: float = 0.99) -> Int[Array, " group"]:
    """Masks of all groups that have a share of the gain while no group within them has it.

    They may have different sizes; `smallest_groups`, where arguments are explained, are among them.
    """
    reach = _reach(values, share)
    within = reach.copy()  # whether a group or one within it reaches the share
    for low, high in _halves(within):
        high |= low
    smaller = np.zeros_like(reach)
    for (low, _), (_, high) in zip(_halves(within), _halves(smaller), strict=True):
        high |= low
    return np.flatnonzero(reach & ~smaller)


def check_values(values: Float[Array, "*game mask"]) -> int:
    """Raise unless there is a finite value for every group; return the number of heads."""
    n_groups = np.shape(values)[-1] if np.ndim(values) else 0
    n = max(n_groups - 1, 1).bit_length()
    if n_groups != 1 << n:
        first_only = n_groups + 1 == 1 << n
        remedy = "; is that of the empty group, the first, left out?" if first_only else ""
        raise ValueError(
            f"values: expected one for each of 2^a groups, got {n_groups}: {(1 << n) - n_groups} "
            f"fewer than the {1 << n} groups of {plural(n, 'head')}{remedy}"
        )
    finite = np.isfinite(values)
    if not finite.all():
        first = int(np.argwhere(~finite)[0, -1])
        heads = [head for head in range(n) if first >> head & 1]
        raise ValueError(
            f"values: expected finite numbers, got {np.sum(~finite)} of {finite.size} that are NaN "
            f"or infinite, first that of the group of heads {heads}; measure these groups as well"
        )
    return n


def check_kind(order: int, index: str, n_heads: int) -> None:
    """Raise unless some number of heads have interactions of this order and index."""
    if check_int("order", order, at_least=1) > n_heads:
        raise ValueError(f"order: expected at most {n_heads}, the number of heads, got {order}")
    check_choice("index", index, get_args(Index))


def check_share(share: float) -> float:
    """Raise unless a share is above 0 and at most 1."""
    number = check_number("share", share, above=0)
    if number > 1:
        raise ValueError(f"share: expected a number above 0 and at most 1, got {share!r}")
    return number


def _averages(
    index: Index, order: int, n_heads: int
) -> tuple[Float[Array, " node"], Float[Array, "size node"]]:
    """Nodes x, and their weights for groups of no heads up to `order` heads."""
    if index == "banzhaf":
        return np.array([0.5]), np.ones((order + 1, 1))
    # A rule of q nodes is exact up to degree 2q − 1. A derivative has degree a − |S|, the density
    # 0, k − 1 or k + |S| − 2.
    degree = n_heads if index == "shapley" else n_heads + order - 2
    y, uniform = np.polynomial.legendre.leggauss(degree // 2 + 1)
    nodes, uniform = (1 + y) / 2, uniform / 2
    if index == "shapley":
        return nodes, np.tile(uniform, (order + 1, 1))
    weights = np.zeros((order + 1, len(nodes) + 1))
    if index == "shapley_taylor":
        weights[:order, 0] = 1
        weights[order, 1:] = uniform * order * (1 - nodes) ** (order - 1)
    else:
        weights[0, 0] = 1
        for s in range(1, order + 1):
            jacobi = eval_jacobi(order - s, s - 1, s, y)
            density = uniform * (nodes * (1 - nodes)) ** (s - 1) * jacobi
            weights[s, 1:] = density / density.sum()
    return np.append(0.0, nodes), weights


def _groups_up_to(order: int, n_heads: int) -> Int[Array, " row"]:
    """Masks of groups of up to `order` heads, in the order of `_derivatives`."""
    masks = np.zeros(1, dtype=int)
    for head in reversed(range(n_heads)):
        masks = np.concatenate([masks, masks[subset_sizes(masks) < order] | 1 << head])
    return masks


def _derivatives(
    values: Float[Array, "*game mask"], order: int, x: float
) -> Float[Array, "*game row"]:
    """∂_S f(x) of all groups S of up to `order` heads.

    One head after another is eliminated, the last first: a row of the table becomes one in which
    the head is there with probability x, and one that is the derivative in it. Nothing but
    averages and differences of values is ever formed, so little is lost to rounding.
    """
    rows = values[..., None, :]
    sizes = np.zeros(1, dtype=int)  # in how many heads each row is a derivative already
    while rows.shape[-1] > 1:
        n_rows, half = rows.shape[-2], rows.shape[-1] // 2
        low = rows[..., :half]
        gains = rows[..., half:] - low
        fewer = sizes < order
        sizes = np.concatenate([sizes, sizes[fewer] + 1])
        rows = np.empty((*values.shape[:-1], len(sizes), half))
        mixed = np.multiply(gains, x, out=rows[..., :n_rows, :])
        mixed += low
        rows[..., n_rows:, :] = gains if fewer.all() else gains[..., fewer, :]
    return rows[..., 0]


def _as_tensor(
    by_group: Float[Array, "*game mask"], n_heads: int, order: int
) -> Float[Array, "..."]:
    masks = np.zeros((), dtype=int)
    for _ in range(order):
        masks = masks[..., None] | 1 << np.arange(n_heads)
    return by_group[..., masks]


def _reach(values: Float[Array, " mask"], share: float) -> Bool[Array, " mask"]:
    check_values(values)
    share = check_share(share)
    tolerance = 4 * np.spacing(np.abs(values).max())
    gains = values - values[0]
    return np.asarray(gains >= share * gains[-1] - tolerance)


def _copy(values: Float[Array, "*game mask"]) -> Float[Array, "*game mask"]:
    check_values(values)
    return np.array(values, dtype=float, order="C")


def _halves(table: Array) -> list[tuple[Array, Array]]:
    """For each head, views of the groups without it and of the same groups with it."""
    n, games = table.shape[-1].bit_length() - 1, table.shape[:-1]
    split = [table.reshape(*games, -1, 2, 1 << head) for head in range(n)]
    return [(pair[..., 0, :], pair[..., 1, :]) for pair in split]
