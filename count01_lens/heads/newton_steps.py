"""Newton steps on the squared hinges of many fits side by side.

Far from the optimum a whole step often ends behind a kink, where a sample has come inside. The
objective along a step is convex and piecewise quadratic, so its lowest point is found by a few
Newton steps in one dimension, which lead up to that kink: halving the step would creep there.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from count01_lens.common.types import Array
from count01_lens.heads.newton import relative_gap

_SEARCH = 30  # lengths of a step to try
_THIN = 5  # features
BEYOND = 1e-3  # of what is asked for: a step more costs little where a few lead to the end


class Block(NamedTuple):
    """Fits side by side, with zeros where one has fewer samples or features than another.

    Attributes:
        fits: which of all fits they are.
        columns: their features; where there are fewer, one beyond the last.
        rows: their samples.
        target: 1, and 0 where there is no sample: none has a loss there.
        penalty: of their features.
    """

    fits: Int[Array, " fit"]
    columns: Int[Array, "fit feature"]
    rows: Float[Array, "fit feature sample"]
    target: Float[Array, "fit sample"]
    penalty: Float[Array, "fit feature"]


class Optima(NamedTuple):
    """Where many fits ended: what is in `heads.newton.Optimum`, of each."""

    V: Float[Array, "fit feature"]
    objectives: Float[Array, " fit"]
    distances: Float[Array, " fit"]
    n_iter: Int[Array, " fit"]

    @classmethod
    def at_start(cls, V: Float[Array, "fit feature"]) -> "Optima":
        """Nothing done yet: no fit is known to be anywhere near its optimum."""
        unknown = np.full(len(V), np.inf)
        return cls(V, unknown, unknown.copy(), np.zeros(len(V), dtype=int))


class _At(NamedTuple):
    """Where fits are: weights, what samples lack to their margin, their losses, the objective."""

    V: Float[Array, "fit feature"]
    slack: Float[Array, "fit sample"]
    hinge: Float[Array, "fit sample"]
    objective: Float[Array, " fit"]


def descend(
    block: Block,
    V: Float[Array, "fit feature"],
    weight: float,
    tol: float,
    max_iter: Int[Array, " fit"],
    scale: Float[Array, " fit"],
) -> Optima:
    """Take Newton steps in all fits of a block; those that are at their end drop out.

    They go on far beyond `tol`, or until rounding is all that is left; after `max_iter` steps they
    are left where they are.
    """
    ended = Optima.at_start(V.copy())
    open_, rows, penalty = np.arange(len(V)), block.rows, block.penalty
    at = _at(V, block.target - _times(V, rows), penalty, weight)
    before = np.full(len(V), np.inf)  # distances one step ago, of those that gain nothing any more
    for step in range(int(max_iter.max()) + 1):
        gradient = penalty * at.V - 2 * weight * _times(at.hinge, rows.mT)
        relative = np.linalg.norm(gradient, axis=1) / scale[open_]
        distance = np.maximum(relative, relative_gap(gradient, penalty, at.objective))
        better = distance < before
        here = open_[better]
        ended.V[here], ended.objectives[here] = at.V[better], at.objective[better]
        ended.distances[here], ended.n_iter[here] = distance[better], step
        stays = (distance < 0.5 * before) & (distance > BEYOND * tol)
        stays &= step < max_iter[open_]
        if not stays.any():
            break
        if not stays.all():
            open_, rows, penalty, gradient = (
                each[stays] for each in (open_, rows, penalty, gradient)
            )
            at, distance = _At(*(each[stays] for each in at)), distance[stays]
        hessian = _hessian(rows, at.slack > 0, penalty, weight)
        direction = -np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        descent = np.einsum("fd,fd->f", gradient, direction)
        new = _search(at, direction, descent, rows, penalty, weight)
        gains_nothing = new.objective >= at.objective - _rounding(at.objective)
        before, at = np.where(gains_nothing, distance, np.inf), new
    return ended


def _hessian(
    rows: Float[Array, "fit feature sample"],
    active: Bool[Array, "fit sample"],
    penalty: Float[Array, "fit feature"],
    weight: float,
) -> Float[Array, "fit feature feature"]:
    inside = rows * active.astype(float)[:, None, :]
    # BLAS is slow at products of two thin matrices, and fast at a vector and a thin one.
    thin = rows.shape[1] <= _THIN
    products = (inside[:, :, None] @ rows.mT[:, None])[:, :, 0] if thin else inside @ rows.mT
    hessian = np.asarray(2 * weight * products)
    np.einsum("fdd->fd", hessian)[...] += penalty
    return hessian


def _search(
    at: _At,
    direction: Float[Array, "fit feature"],
    descent: Float[Array, " fit"],
    rows: Float[Array, "fit feature sample"],
    penalty: Float[Array, "fit feature"],
    weight: float,
) -> _At:
    """Go along a direction to a lower objective, where at most a tenth of the slope is left."""
    along = _times(direction, rows)
    tilt = np.einsum("fd,fd->f", direction, penalty * at.V)
    bend = np.einsum("fd,fd->f", direction, penalty * direction)
    low, length, high = np.zeros(len(along)), np.ones(len(along)), np.full(len(along), np.inf)
    new = _at(at.V + direction, at.slack - along, penalty, weight)
    far = np.arange(len(along))
    for _ in range(_SEARCH):
        tried, losses = length[far], new.hinge[far]
        slope = tilt[far] + tried * bend[far] - 2 * weight * _dot(along[far], losses)
        bound = at.objective[far] + 1e-4 * tried * descent[far] + _rounding(at.objective[far])
        level = -0.1 * descent[far] + _rounding(at.objective[far])
        good = (np.abs(slope) <= level) & (new.objective[far] <= bound)
        if good.all():
            break
        far, tried, losses, slope = (each[~good] for each in (far, tried, losses, slope))
        low[far] = np.where(slope < 0, tried, low[far])
        high[far] = np.where(slope < 0, high[far], tried)
        inside = np.where(losses > 0, along[far], 0.0)
        nearer = tried - slope / (bend[far] + 2 * weight * _dot(inside, inside))
        middle = np.where(np.isinf(high[far]), 2 * low[far], (low[far] + high[far]) / 2)
        between = (nearer > low[far]) & (nearer < high[far])
        length[far] = np.where(between, nearer, middle)
        moved = at.V[far] + length[far, None] * direction[far]
        found = _at(moved, at.slack[far] - length[far, None] * along[far], penalty[far], weight)
        for whole, part in zip(new, found, strict=True):
            whole[far] = part
    return new


def _at(
    V: Float[Array, "fit feature"],
    slack: Float[Array, "fit sample"],
    penalty: Float[Array, "fit feature"],
    weight: float,
) -> _At:
    hinge = np.maximum(slack, 0)
    return _At(V, slack, hinge, 0.5 * _dot(V, penalty * V) + weight * _dot(hinge, hinge))


def _rounding(objective: Float[Array, " fit"]) -> Float[Array, " fit"]:
    """Gains that are none: the objective is not known better."""
    return np.asarray(1e-14 * np.abs(objective))


def _dot(a: Float[Array, "fit part"], b: Float[Array, "fit part"]) -> Float[Array, " fit"]:
    return np.asarray(np.einsum("fp,fp->f", a, b))


def _times(
    vectors: Float[Array, "fit a"], matrices: Float[Array, "fit a b"]
) -> Float[Array, "fit b"]:
    return np.asarray((vectors[:, None, :] @ matrices)[:, 0])
