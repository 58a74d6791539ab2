"""Squared hinges on many subsets of the same features, by Newton steps that all take together.

A probe of a few heads has a handful of samples inside its margin, some eighty near it and thousands
far outside, which have no part in its optimum. So each fit is given the samples near its margin
only: fits with about as many of them are padded to a block [fit, feature, sample], in which a step
is a few batched products whatever the number of fits. Afterwards one product over all samples, in
float64, tells whose near ones were all that matter; the others go on with more.

What ends where it should by the rules of `heads.newton` is the optimum. What does not, or has
features so large that squares lose them, is left to the careful solver there, from its start on.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from count01_lens.common.types import Array
from count01_lens.heads.newton import minimise_squared_hinge, relative_gap, squares_suffice

_NUMBERS = 1 << 18  # in a block: it should fit the processor's cache


class Optima(NamedTuple):
    """Where many fits ended; each field as in `heads.newton.Optimum`, a row for each fit."""

    V: Float[Array, "fit feature"]
    objectives: Float[Array, " fit"]
    distances: Float[Array, " fit"]
    n_iter: Int[Array, " fit"]


class Block(NamedTuple):
    """Fits side by side, with zeros where one has fewer samples or features than another.

    Attributes:
        fits: which.
        columns: their features; where there are fewer, one beyond the last.
        rows: their samples.
        target: 1, and 0 where there is no sample: none has a loss there.
    """

    fits: Int[Array, " fit"]
    columns: Int[Array, "fit feature"]
    rows: Float[Array, "fit feature sample"]
    target: Float[Array, "fit sample"]


def minimise_many_squared_hinges(
    Z: Float[Array, "sample feature"],
    penalty: Float[Array, " feature"],
    allowed: Bool[Array, "fit feature"],
    V: Float[Array, "fit feature"],
    weight: float,
    tol: float,
    max_iter: int,
) -> Optima:
    """Minimise ½ v·(penalty v) + weight Σ max(0, 1 − Zv)² over the allowed entries of rows of V."""
    scale = 2 * weight * np.linalg.norm(Z.sum(axis=0) * allowed, axis=1) + 2 * weight
    with np.errstate(all="ignore"):  # what overflows is no number, and goes to the careful solver
        found = _from_near_samples(Z, penalty, allowed, V, weight, tol, max_iter, scale)
    for fit in np.flatnonzero(~(found.distances <= tol)):
        columns = np.flatnonzero(allowed[fit])
        options = (penalty[columns], weight, tol, max_iter, V[fit, columns], float(scale[fit]))
        alone = minimise_squared_hinge(Z[:, columns], *options)
        found.V[fit, columns], found.objectives[fit], found.distances[fit], found.n_iter[fit] = (
            alone
        )
    return found


def _from_near_samples(
    Z: Float[Array, "sample feature"],
    penalty: Float[Array, " feature"],
    allowed: Bool[Array, "fit feature"],
    V: Float[Array, "fit feature"],
    weight: float,
    tol: float,
    max_iter: int,
    scale: Float[Array, " fit"],
) -> Optima:
    """Solve each fit on samples near its margin, until no other sample is inside."""
    n, d = Z.shape
    # A feature and a sample more, both zero, are what blocks are padded with.
    features = np.zeros((d + 1, n + 1))
    features[:d, :n] = Z.T
    costs = np.append(penalty, 1.0)
    samples = np.ascontiguousarray(Z.T)
    V = np.column_stack([V, np.zeros(len(V))])
    found = Optima(V, *np.full((2, len(V)), np.inf), np.zeros(len(V), dtype=int))
    open_, width = np.arange(len(V)), 1.0
    margins = V[open_, :d] @ samples
    while len(open_):
        near = margins < 1 + width
        for block in _blocks(features, allowed, open_, near):
            fits, columns = block.fits, block.columns
            v, objectives, distances, steps = _descend(
                block,
                costs[columns],
                V[fits[:, None], columns],
                weight,
                tol,
                max_iter - found.n_iter[fits],
                scale[fits],
            )
            V[fits[:, None], columns] = v
            found.objectives[fits], found.distances[fits] = objectives, distances
            found.n_iter[fits] += steps
        margins = V[open_, :d] @ samples
        outside = np.where(near, np.inf, margins).min(axis=1)
        escaped = (outside < 1) & (found.distances[open_] <= tol)
        found.distances[open_[outside < 1]] = np.inf
        open_, margins, width = open_[escaped], margins[escaped], 2 * width
    return found._replace(V=V[:, :d])


def _blocks(
    features: Float[Array, "feature_and_none sample_and_none"],
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
            columns = _places(allowed[open_[part]])
            samples = _places(near[part])
            flat = columns[:, :, None] * features.shape[1] + samples[:, None, :]
            target = (samples < near.shape[1]).astype(float)
            yield Block(open_[part], columns, features.ravel().take(flat), target)


def _places(chosen: Bool[Array, "row place"]) -> Int[Array, "row chosen"]:
    """Where rows are True, padded with one place beyond the last."""
    n_rows, n_places = chosen.shape
    row, place = np.divmod(np.flatnonzero(chosen), n_places)
    counts = np.bincount(row, minlength=n_rows)
    found = np.full((n_rows, int(counts.max())), n_places)
    found[row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]] = place
    return found


def _descend(
    block: Block,
    penalty: Float[Array, "fit feature"],
    V: Float[Array, "fit feature"],
    weight: float,
    tol: float,
    max_iter: Int[Array, " fit"],
    scale: Float[Array, " fit"],
) -> Optima:
    """Take Newton steps in all fits of a block; those that are at their end drop out."""
    ended = Optima(V.copy(), *np.full((2, len(V)), np.inf), np.zeros(len(V), dtype=int))
    open_, rows = np.arange(len(V)), block.rows
    slack = block.target - _times(V, rows)
    hinge = np.maximum(slack, 0)
    objective = _objective(V, hinge, penalty, weight)
    before = np.full(len(V), np.inf)  # distances one step ago, of those that have stalled since
    step = 0
    while True:
        gradient = penalty * V - 2 * weight * _times(hinge, rows.mT)
        relative = np.linalg.norm(gradient, axis=1) / scale[open_]
        distance = np.maximum(relative, relative_gap(gradient, penalty, objective))
        better = distance < before
        at = open_[better]
        ended.V[at], ended.objectives[at] = V[better], objective[better]
        ended.distances[at], ended.n_iter[at] = distance[better], step
        hessian = 2 * weight * ((rows * (slack > 0)[:, None, :]) @ rows.mT)
        diagonal = np.einsum("fii->fi", hessian)
        diagonal += penalty
        enough = tol if step == 0 else 1e-3 * tol
        stays = better & (distance > enough) & (step < max_iter[open_])
        stays &= squares_suffice(diagonal, penalty)
        if not stays.any():
            return ended
        if not stays.all():
            open_, rows, penalty, V = open_[stays], rows[stays], penalty[stays], V[stays]
            slack, objective, distance = slack[stays], objective[stays], distance[stays]
            gradient, hessian = gradient[stays], hessian[stays]
        direction = -np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        V, slack, hinge, new = _step(rows, penalty, V, slack, objective, gradient, direction, weight)
        stalled = new >= objective - 1e-14 * np.abs(objective)
        before, objective = np.where(stalled, distance, np.inf), new
        step += 1


def _step(rows, penalty, V, slack, objective, gradient, direction, weight):
    """Go as far along a direction as lowers the objective, in halves."""
    descent = np.einsum("fd,fd->f", gradient, direction)
    slope = _times(direction, rows)
    length = np.ones(len(V))
    new_V, new_slack = V + direction, slack - slope
    hinge = np.maximum(new_slack, 0)
    new = _objective(new_V, hinge, penalty, weight)
    while True:
        bound = objective + 1e-4 * length * descent + 1e-14 * np.abs(objective)
        far = np.flatnonzero(~(new <= bound) & (length > 1e-10))
        if not len(far):
            return new_V, new_slack, hinge, new
        length[far] /= 2
        new_V[far] = V[far] + length[far, None] * direction[far]
        new_slack[far] = slack[far] - length[far, None] * slope[far]
        hinge[far] = np.maximum(new_slack[far], 0)
        new[far] = _objective(new_V[far], hinge[far], penalty[far], weight)


def _times(vectors: Float[Array, "fit a"], matrices: Float[Array, "fit a b"]) -> Float[Array, "fit b"]:
    return np.asarray((vectors[:, None, :] @ matrices)[:, 0])


def _objective(V, hinge, penalty, weight):
    norms = np.einsum("fd,fd->f", V, penalty * V)
    return 0.5 * norms + weight * np.einsum("fs,fs->f", hinge, hinge)
