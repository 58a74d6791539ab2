"""Squared hinges by Newton's method: one linear SVM, or many on subsets of the same features.

The objective is piecewise quadratic, so that Newton's method ends after finitely many steps.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from count01_lens.common.types import Array


class Optimum(NamedTuple):
    """Where a solver ended.

    Attributes:
        v: weights, then the bias.
        objective: value reached.
        gradient_norm: relative size of the gradient there (of the duality gap, for plain hinges).
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
    v = v.astype(float)
    slack = 1 - Z @ v
    objective = _squared_objective(v, slack, penalty, weight)
    relative, stalled, before = np.inf, False, (v, objective, np.inf)
    for step in range(max_iter + 1):
        active = slack > 0
        Z_active = Z[active]
        gradient = penalty * v - 2 * weight * (Z_active.T @ slack[active])
        relative = float(np.linalg.norm(gradient) / scale)
        if stalled and relative >= before[2]:  # rounding is all that is left
            return Optimum(*before, step)
        if relative <= tol * 1e-3 or step == max_iter:
            return Optimum(v, objective, relative, step)
        hessian = np.diag(penalty) + 2 * weight * (Z_active.T @ Z_active)
        direction = -solve_semidefinite(hessian, gradient)
        slope = Z @ direction
        descent = float(gradient @ direction)
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
        stalled, before = new_objective >= objective - rounding, (v, objective, relative)
        v, slack, objective = v + length * direction, new_slack, new_objective
    raise AssertionError("the loop returns")


def minimise_many_squared_hinges(
    Z: Float[Array, "sample feature"],
    allowed: Bool[Array, "fit feature"],
    V: Float[Array, "fit feature"],
    weight: float,
    tol: float,
    max_iter: int,
) -> tuple[
    Float[Array, "fit feature"], Float[Array, " fit"], Float[Array, " fit"], Int[Array, " fit"]
]:
    """Minimise ½‖v‖² + weight Σ max(0, 1 − Zv)² over the allowed entries of each row of V.

    One matrix product gives the margins of all samples under all fits; only samples inside the
    margin enter a fit's Hessian. Returns weights, objectives, relative gradients and steps.
    """
    scale = 2 * weight * np.linalg.norm(Z.sum(axis=0) * allowed, axis=1) + 2 * weight
    objective, relative = np.full(len(V), np.inf), np.full(len(V), np.inf)
    steps = np.zeros(len(V), dtype=int)
    open_ = np.arange(len(V))
    # Samples far outside the margin have no part in the optimum: each fit looks at the near ones
    # only, then at all, and again at more if others have come inside meanwhile.
    width = 1.0
    while True:
        slack = 1 - V[open_] @ Z.T
        hinge = np.maximum(slack, 0)
        gradient = (V[open_] - 2 * weight * (hinge @ Z)) * allowed[open_]
        relative[open_] = np.linalg.norm(gradient, axis=1) / scale[open_]
        losses = np.einsum("fs,fs->f", hinge, hinge)
        objective[open_] = 0.5 * np.einsum("fd,fd->f", V[open_], V[open_]) + weight * losses
        going_on = (relative[open_] > tol) & (steps[open_] < max_iter)
        open_, slack = open_[going_on], slack[going_on]
        if len(open_) == 0:
            return V, objective, relative, steps
        for row, fit in enumerate(open_):
            columns = np.flatnonzero(allowed[fit])
            near = np.flatnonzero(slack[row] > -width)
            rows, ones, start = Z[np.ix_(near, columns)], np.ones(len(columns)), V[fit, columns]
            V[fit, columns], _, _, taken = minimise_squared_hinge(
                rows, ones, weight, tol, max_iter, start, float(scale[fit])
            )
            steps[fit] += max(1, taken)
        width *= 2


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
