"""Squared hinges on many subsets of the same features, by Newton steps that all take together.

A probe of a few heads has a handful of samples inside its margin, some eighty near it and thousands
far outside, which have no part in its optimum. So each fit is given the samples near its margin
only: fits with about as many of them are padded to a block [fit, feature, sample], in which a step
is a few batched products whatever the number of fits. Afterwards one product over all samples, in
float64, tells whether any other sample is inside; such a fit goes on with more of them. A fit that
starts from zero, where every sample is inside, first looks at one in sixteen.

What ends by the rules of `heads.newton` is at its optimum. What does not, or has features so large
that their squares lose others, is left to the careful solver there, from its start on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from count01_lens.common.threads import workers
from count01_lens.common.types import Array
from count01_lens.heads.newton import minimise_squared_hinge, squares_suffice
from count01_lens.heads.newton_steps import BEYOND, Block, Optima, descend

# Fits at a time: their margins should fit the processor's cache, few fits should still be shared
# among cores, and what comes out must not depend on how many cores there are.
_MOST, _FEWEST, _SHARES = 128, 8, 4
_WIDTHS = tuple(2.0**i for i in range(16))  # how far from a margin a sample is near, in turn
_STEPS = 4  # after which a fit that is not at its end is given other near samples
_EVERY, _ENOUGH, _ROUGHLY = 16, 100, 1e-3  # a first look: at one sample in so many, if enough
_NUMBERS = 1 << 16  # in a block: it should fit the cache as well


def minimise_many_squared_hinges(
    Z: Float[Array, "sample feature"],
    penalty: Float[Array, " feature"],
    allowed: Bool[Array, "fit feature"],
    V: Float[Array, "fit feature"],
    weight: float,
    tol: float,
    max_iter: int,
) -> Optima:
    """Minimise ½ v·(penalty v) + weight Σ max(0, 1 − Zv)² over the allowed entries of rows of V.

    Steps are those on all samples that matter, without a first look at some.
    """
    scale = 2 * weight * np.linalg.norm(Z.sum(axis=0) * allowed, axis=1) + 2 * weight
    shared = _Shared.of(Z, penalty, weight, tol, max_iter)
    few = Z[::_EVERY]
    first = _Shared.of(few, penalty, weight * _EVERY, _ROUGHLY, max_iter)
    at_once = min(max(-(-len(V) // _SHARES), _FEWEST), _MOST)
    parts = [slice(start, start + at_once) for start in range(0, len(V), at_once)]

    def solve(part: slice) -> Optima:
        # What overflows becomes no number, which the careful solver is told below.
        with np.errstate(all="ignore"):
            start, cold = V[part].copy(), ~V[part].any(axis=1)
            if cold.any() and len(few) >= max(_ENOUGH, 4 * Z.shape[1]):
                looked = _from_near_samples(
                    first, allowed[part][cold], start[cold], scale[part][cold]
                )
                start[cold] = looked.V
            return _from_near_samples(shared, allowed[part], start, scale[part])

    with workers() as pool:
        solved = list(pool.map(solve, parts))
    found = Optima(*(np.concatenate(field) for field in zip(*solved, strict=True)))
    for fit in np.flatnonzero(~(found.distances <= tol)):
        columns = np.flatnonzero(allowed[fit])
        options = (penalty[columns], weight, tol, max_iter, V[fit, columns], float(scale[fit]))
        alone = minimise_squared_hinge(Z[:, columns], *options)
        found.V[fit], found.V[fit, columns] = 0.0, alone.v
        found.objectives[fit], found.distances[fit] = alone.objective, alone.gradient_norm
        found.n_iter[fit] = alone.n_iter
    return found


@dataclass(frozen=True, eq=False)
class _Shared:
    """What is the same for all fits.

    Attributes:
        features: Z transposed, with a feature and a sample more, both zero, to pad blocks with.
        rough: the same in float32, without the sample, to look for samples near a margin.
        penalty: of each feature; 1 of the one more.
        squares: the largest diagonal that a Hessian may have: with all samples inside.
    """

    features: Float[Array, "feature_and_none sample_and_none"]
    rough: Float32[Array, "feature_and_none sample"]
    penalty: Float[Array, " feature_and_none"]
    squares: Float[Array, " feature"]
    weight: float
    tol: float
    max_iter: int

    @classmethod
    def of(
        cls,
        Z: Float[Array, "sample feature"],
        penalty: Float[Array, " feature"],
        weight: float,
        tol: float,
        max_iter: int,
    ) -> "_Shared":
        """Lay out the samples."""
        n, d = Z.shape
        features = np.zeros((d + 1, n + 1))
        features[:d, :n] = Z.T
        squares = penalty + 2 * weight * np.einsum("sd,sd->d", Z, Z)
        rough, costs = features[:, :n].astype(np.float32), np.append(penalty, 1.0)
        return cls(features, rough, costs, squares, weight, tol, max_iter)

    def near(
        self, V: Float[Array, "fit feature_and_none"], width: float
    ) -> Bool[Array, "fit sample"]:
        """Tell which samples are less than `width` outside a margin, up to float32."""
        # Many groups start from the same smaller one.
        rows = V.view(np.dtype((np.void, V.strides[0]))).ravel()
        _, first, same = np.unique(rows, return_index=True, return_inverse=True)
        return np.asarray((V[first].astype(np.float32) @ self.rough < 1 + width)[same])


def _from_near_samples(
    shared: _Shared,
    allowed: Bool[Array, "fit feature"],
    start: Float[Array, "fit feature"],
    scale: Float[Array, " fit"],
) -> Optima:
    """Solve each fit on samples near its margin, until no other sample is inside."""
    V = np.column_stack([np.where(allowed, start, 0.0), np.zeros(len(start))])
    found = Optima.at_start(V)
    bounds, costs = np.where(allowed, [shared.squares], 0.0), shared.penalty[:-1]
    easy = squares_suffice(bounds, np.where(allowed, costs, np.inf))
    open_ = np.flatnonzero(easy)
    for width in _WIDTHS:
        if not len(open_):
            break
        near, before = shared.near(V[open_], width), found.n_iter[open_]
        for block in _blocks(shared, allowed, open_, near):
            fits, columns = block.fits, block.columns
            steps_left = np.minimum(shared.max_iter - found.n_iter[fits], _STEPS)
            v, *ended, steps = descend(
                block, V[fits[:, None], columns], shared.weight, shared.tol, steps_left, scale[fits]
            )
            V[fits[:, None], columns] = v
            found.objectives[fits], found.distances[fits] = ended
            found.n_iter[fits] += steps
        margins = V[open_] @ shared.features[:, :-1]
        margins[near] = np.inf
        others_inside = margins.min(axis=1) < 1
        found.distances[open_[others_inside]] = np.inf
        on_the_way = found.distances[open_] > BEYOND * shared.tol
        on_the_way &= found.n_iter[open_] - before == _STEPS
        steps_left = found.n_iter[open_] < shared.max_iter
        open_ = open_[steps_left & (others_inside | on_the_way)]
    return found._replace(V=V[:, :-1])


def _blocks(
    shared: _Shared,
    allowed: Bool[Array, "fit feature"],
    open_: Int[Array, " open"],
    near: Bool[Array, "open sample"],
) -> Iterator[Block]:
    """Put fits with about as many near samples side by side."""
    n_samples = np.count_nonzero(near, axis=1)
    n_features = np.count_nonzero(allowed[open_], axis=1)
    similar = np.frexp(n_samples)[1]
    for size in np.unique(similar):
        same = np.flatnonzero(similar == size)
        numbers = int(n_samples[same].max()) * int(n_features[same].max())
        at_once = max(1, _NUMBERS // max(numbers, 1))
        for part in (same[start : start + at_once] for start in range(0, len(same), at_once)):
            columns, samples = _places(allowed[open_[part]]), _places(near[part])
            flat = columns[:, :, None] * shared.features.shape[1] + samples[:, None, :]
            rows, target = shared.features.take(flat), (samples < near.shape[1]).astype(float)
            yield Block(open_[part], columns, rows, target, shared.penalty[columns])


def _places(chosen: Bool[Array, "row place"]) -> Int[Array, "row chosen"]:
    """Tell where rows are True, padded with one place beyond the last."""
    n_rows, n_places = chosen.shape
    row, place = np.divmod(np.flatnonzero(chosen), n_places)
    counts = np.bincount(row, minlength=n_rows)
    found = np.full((n_rows, int(counts.max())), n_places)
    found[row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]] = place
    return found
