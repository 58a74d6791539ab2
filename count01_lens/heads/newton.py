"""Squared hinges by Newton's method: one linear SVM, solved with care.

The objective is piecewise quadratic, so that Newton's method ends after finitely many steps.

When is it at its end? A gradient has units of its own in each feature: where one head's values are
a million times another's, a gradient that is small as a whole says nothing of the other head. So
the duality gap has to be small as well. With α = 2·weight·max(0, 1 − Zv) it is ½ g·(g/penalty), for
the gradient g: an upper bound of what is still to be gained, whatever the units of the features and
wherever a fit has started.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from count01_lens.common.types import Array

_LARGEST_EXPONENT = 10


class Optimum(NamedTuple):
    """Where a solver ended.

    Attributes:
        v: weights, then the bias.
        objective: value reached.
        gradient_norm: how far from the optimum: the relative size of the gradient or, if larger,
            the share of the objective that is still to be gained (for plain hinges the relative
            duality gap).
        n_iter: steps taken.
    """

    v: Float[Array, " feature_and_bias"]
    objective: float
    gradient_norm: float
    n_iter: int


def signed_rows(
    X: Float[Array, "sample feature"], positive: Bool[Array, " sample"]
) -> Float[Array, "sample feature_and_bias"]:
    """Rows ±(x, 1), + for the positive class: the margin of a sample is its row times (w, b)."""
    signed = np.where(positive, 1.0, -1.0)
    return np.asarray(np.column_stack([X, np.ones(len(X))]) * signed[:, None])


def units_of(X: Float[Array, "sample feature"]) -> Float[Array, " feature"]:
    """Powers of two in which features are at most 1024, so that no square of them overflows.

    Features that are not larger anyway keep 1 as their unit; dividing by the others is exact. A
    weight w of a feature is w·unit of the feature in its unit, and its penalty penalty/unit².
    """
    exponents = np.frexp(np.abs(X).max(axis=0))[1]
    return np.asarray(np.ldexp(1.0, np.maximum(exponents - _LARGEST_EXPONENT, 0)))


def minimise_squared_hinge(
    Z: Float[Array, "sample feature"],
    penalty: Float[Array, " feature"],
    weight: float,
    tol: float,
    max_iter: int,
    v: Float[Array, " feature"],
    scale: float,
) -> Optimum:
    """Minimise ½ v·(penalty v) + weight Σ max(0, 1 − Zv)²; gradients are relative to `scale`."""
    found = _descend(Z, penalty, weight, tol, max_iter, v, scale)
    slack = 1 - Z @ found.v
    gradient = penalty * found.v - 2 * weight * (Z.T @ np.maximum(slack, 0))
    objective = _squared_objective(found.v, slack, penalty, weight)
    gap = float(relative_gap(gradient, penalty, np.array(objective)))
    if gap > tol:
        gap = min(gap, _gain_left(Z, penalty, weight, found.v))
    relative = float(np.linalg.norm(gradient) / scale)
    if relative > tol and np.linalg.norm(gradient) <= _rounding_of_gradient(Z, weight, found.v):
        # It may as well be zero; what a step would gain says how far the optimum is.
        relative, gap = 0.0, _gain_left(Z, penalty, weight, found.v)
    return Optimum(found.v, objective, max(relative, gap), found.n_iter)


def _descend(
    Z: Float[Array, "sample feature"],
    penalty: Float[Array, " feature"],
    weight: float,
    tol: float,
    max_iter: int,
    v: Float[Array, " feature"],
    scale: float,
) -> Optimum:
    """Take Newton steps until there is nothing left to gain, or only rounding."""
    v = v.astype(float)
    slack = 1 - Z @ v
    objective = _squared_objective(v, slack, penalty, weight)
    stalled, before = False, Optimum(v, objective, np.inf, 0)
    known: Array | None = None
    for step in range(max_iter + 1):
        active = slack > 0
        if known is None or not np.array_equal(active, known):
            known, Z_active = active, Z[active]
            hessian = np.diag(penalty) + 2 * weight * (Z_active.T @ Z_active)
        gradient = penalty * v - 2 * weight * (Z_active.T @ slack[active])
        direction = _newton_direction(
            hessian, gradient, Z_active, slack[active], v, penalty, weight
        )
        descent = float(gradient @ direction)
        relative = float(np.linalg.norm(gradient) / scale)
        gain = -descent / (2 * objective) if objective > 0 else 1.0
        here = Optimum(v, objective, max(relative, gain), step)
        if stalled and here.gradient_norm >= before.gradient_norm:
            return before  # rounding is all that is left
        if (relative <= tol * 1e-3 and gain <= tol * tol) or step == max_iter:
            return here
        slope = Z @ direction
        # Close to the optimum a step may gain less than the objective's own rounding; whether it
        # was a good one is then seen by the gradient.
        rounding = 1e-14 * abs(objective)
        length = 1.0
        while True:
            new_slack = slack - length * slope
            new_objective = _squared_objective(v + length * direction, new_slack, penalty, weight)
            bound = objective + 1e-4 * length * descent + rounding
            if new_objective <= bound or length < 1e-10:
                break
            length /= 2
        stalled, before = new_objective >= objective - rounding, here
        v, slack, objective = v + length * direction, new_slack, new_objective
    raise AssertionError("the loop returns")


def relative_gap(
    gradient: Float[Array, "*fit feature"],
    penalty: Float[Array, "*#fit feature"],
    objective: Float[Array, "*fit"],
) -> Float[Array, "*fit"]:
    """Duality gap as a share of the objective, at most all of it.

    A feature without a penalty has no bound of this kind, unless its gradient is zero. Nor has an
    objective that is zero by underflow.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        gap = 0.5 * np.where(gradient == 0, 0.0, gradient * (gradient / penalty)).sum(axis=-1)
        return np.asarray(np.where(objective > 0, np.fmin(gap / objective, 1.0), 1.0))


def _rounding_of_gradient(
    Z: Float[Array, "sample feature"], weight: float, v: Float[Array, " feature"]
) -> float:
    """How large a gradient can be by rounding of margins alone, in which large terms cancel."""
    doubt = _doubt(Z, v)
    inside = 1 - Z @ v > -doubt
    return float(np.linalg.norm(2 * weight * (np.abs(Z[inside]).T @ doubt[inside])))


def _doubt(
    Z: Float[Array, "sample feature"], v: Float[Array, " feature"]
) -> Float[Array, " sample"]:
    """How far rounding may move the margin of each sample."""
    return np.asarray(np.finfo(float).eps * (1 + np.abs(Z) @ np.abs(v)))


def _gain_left(
    Z: Float[Array, "sample feature"],
    penalty: Float[Array, " feature"],
    weight: float,
    v: Float[Array, " feature"],
) -> float:
    """What the next Newton step would gain, as a share of the objective.

    This tells how far the optimum is where features are so large that their gradient's rounding
    alone makes a large duality gap. Samples that rounding may have put on either side of the margin
    are taken as inside and as outside, and no sample's loss is known to less than rounding.
    """
    slack = 1 - Z @ v
    objective = _squared_objective(v, slack, penalty, weight)
    doubt = _doubt(Z, v)
    gains = []
    for active in (slack > doubt, slack > -doubt):
        rows, inside = Z[active], slack[active]
        hessian = np.diag(penalty) + 2 * weight * (rows.T @ rows)
        gradient = penalty * v - 2 * weight * (rows.T @ inside)
        direction = _newton_direction(hessian, gradient, rows, inside, v, penalty, weight)
        gains.append(abs(float(gradient @ direction)) / 2)
    unknown = weight * float(doubt[slack > -doubt] @ doubt[slack > -doubt])
    return (max(gains) + unknown) / objective if objective > 0 else 1.0


def _newton_direction(
    hessian: Float[Array, "feature feature"],
    gradient: Float[Array, " feature"],
    Z: Float[Array, "active feature"],
    slack: Float[Array, " active"],
    v: Float[Array, " feature"],
    penalty: Float[Array, " feature"],
    weight: float,
) -> Float[Array, " feature"]:
    """From v to the minimum of the present piece."""
    if _keeps_features_apart(hessian, penalty):
        return -solve_semidefinite(hessian, gradient)
    root, own = np.sqrt(2 * weight), np.sqrt(penalty)
    rows = np.vstack([root * Z, np.diag(own)])
    lengths = np.linalg.norm(rows, axis=0)
    lengths[lengths == 0] = 1.0
    right = np.concatenate([root * slack, -own * v])
    return np.asarray(np.linalg.lstsq(rows / lengths, right, rcond=None)[0] / lengths)


def _keeps_features_apart(
    hessian: Float[Array, "feature feature"], penalty: Float[Array, " feature"]
) -> bool:
    """Whether rounding has left of a Hessian what distinguishes features from each other.

    It is made of squares, so that it loses twice as many digits as least squares on the samples.
    """
    diagonal = np.diag(hessian)
    if squares_suffice(diagonal, penalty):
        return True
    lengths = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    try:
        return bool(np.diag(np.linalg.cholesky(hessian / np.outer(lengths, lengths))).min() > 1e-5)
    except np.linalg.LinAlgError:
        return False


def squares_suffice(
    diagonal: Float[Array, "*fit feature"], penalty: Float[Array, "*fit feature"]
) -> Bool[Array, "*fit"]:
    """Whether the penalties alone keep features of a Hessian with this diagonal apart."""
    return np.asarray(diagonal.sum(axis=-1) < 1e12 * penalty.min(axis=-1))


def solve_semidefinite(matrix: Array, right: Array) -> Array:
    """Solve a positive semidefinite system; a bias without penalty may make it singular."""
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0])


def _squared_objective(
    v: Float[Array, " feature"],
    slack: Float[Array, " sample"],
    penalty: Float[Array, " feature"],
    weight: float,
) -> float:
    losses = np.maximum(slack, 0)
    return float(0.5 * v @ (penalty * v) + weight * (losses @ losses))
