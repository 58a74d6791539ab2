"""Linear support vector machines, solved to convergence, small enough to fit thousands of them.

    ½‖w‖² + ½b² + C Σᵢ max(0, 1 − yᵢ f(xᵢ))²,    f(x) = w·x + b,

is the default: the objective of scikit-learn's `LinearSVC(C=1000)`. Appendix C of the paper can be
read in other ways, so the sum or mean over samples, the squared or plain hinge, and the penalty on
the bias are parameters. Squared hinges are solved by Newton's method, which ends after finitely
many steps because the objective is piecewise quadratic; plain ones by an interior-point method.
"""

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from count01_lens.common.types import Array
from count01_lens.common.validation import check_bool, check_choice, check_int, check_number

_TOGETHER = 64  # fits at a time: their margins should fit the processor's cache


DEFAULT_C = 1000.0  # the paper's


class NotConvergedWarning(UserWarning):
    """A probe stopped before it reached its optimum."""


class LinearSVM:
    """A linear SVM with scikit-learn's conventions.

    Args:
        C: weight of the hinge losses.
        loss: "squared_hinge" or "hinge".
        average: take the mean of the losses over samples, as in appendix C, not the sum. (What it
            prints has no ½ before ‖w‖²: half its C gives the same separator here.)
        penalise_bias: let b count as a weight, as `LinearSVC` does.
        tol: how small the gradient has to be, relative to its size at w = 0, b = 0 (for the plain
            hinge: the duality gap relative to the objective).
        max_iter: steps after which to give up.

    Attributes:
        coef_: w.
        intercept_: b.
        objective_: value reached.
        gradient_norm_: relative size of the gradient (or gap) at the end.
        converged_: whether that is within `tol`.
        n_iter_: steps taken.

    Example:
        >>> features = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> labels = np.array([False, False, True, True])
        >>> cl.LinearSVM(C=1000).fit(features, labels).score(features, labels)
        1.0
    """

    coef_: Float[Array, " feature"]
    intercept_: float
    objective_: float
    gradient_norm_: float
    converged_: bool
    n_iter_: int

    def __init__(
        self,
        *,
        C: float = DEFAULT_C,
        loss: Literal["squared_hinge", "hinge"] = "squared_hinge",
        average: bool = False,
        penalise_bias: bool = True,
        tol: float = 1e-10,
        max_iter: int = 200,
    ):
        self.C, self.loss, self.average = C, loss, average
        self.penalise_bias, self.tol, self.max_iter = penalise_bias, tol, max_iter

    def fit(
        self,
        X: Float[Array, "sample feature"],
        y: Bool[Array, " sample"],
        start: Float[Array, " feature_and_bias"] | None = None,
    ) -> "LinearSVM":
        """Fit the separator.

        Args:
            X: features.
            y: True for the positive class.
            start: weights and bias to start from, such as those of a smaller group.
        """
        self._check(X, y)
        signed = np.where(y, 1.0, -1.0)
        # Rows y·(x, 1): the margin of a sample is its product with (w, b).
        Z = np.column_stack([X, np.ones(len(X))]) * signed[:, None]
        penalty = np.ones(Z.shape[1])
        penalty[-1] = 1.0 if self.penalise_bias else 0.0
        weight = self.C / len(Z) if self.average else self.C
        if self.loss == "squared_hinge":
            first = np.zeros(Z.shape[1]) if start is None else start
            scale = 2 * weight * float(np.linalg.norm(Z.sum(axis=0))) + 2 * weight
            solution = _newton(Z, penalty, weight, self.tol, self.max_iter, first, scale)
        else:
            solution = _interior_point(Z, penalty, weight, self.tol, self.max_iter)
        v, self.objective_, self.gradient_norm_, self.n_iter_ = solution
        self.coef_, self.intercept_ = v[:-1], float(v[-1])
        self.converged_ = self.gradient_norm_ <= self.tol
        if not self.converged_:
            warnings.warn(
                f"a probe did not converge in {self.n_iter_} steps: relative gradient "
                f"{self.gradient_norm_:.1e} is above tol={self.tol:g}; raise max_iter",
                NotConvergedWarning,
                stacklevel=2,
            )
        return self

    def decision_function(self, X: Float[Array, "sample feature"]) -> Float[Array, " sample"]:
        """Return f(x): positive for the positive class."""
        return np.asarray(X @ self.coef_ + self.intercept_)

    def predict(self, X: Float[Array, "sample feature"]) -> Bool[Array, " sample"]:
        """Return the class of each sample."""
        return self.decision_function(X) > 0

    def score(self, X: Float[Array, "sample feature"], y: Bool[Array, " sample"]) -> float:
        """Return the accuracy."""
        return float(np.mean(self.predict(X) == y))

    def _check(self, X: Float[Array, "sample feature"], y: Bool[Array, " sample"]) -> None:
        check_number("C", self.C, above=0)
        check_choice("loss", self.loss, ("squared_hinge", "hinge"))
        check_bool("average", self.average)
        check_bool("penalise_bias", self.penalise_bias)
        check_number("tol", self.tol, above=0)
        check_int("max_iter", self.max_iter, at_least=1)
        if X.ndim != 2 or X.shape[1] == 0 or y.shape != (len(X),):
            raise ValueError(
                "expected X [sample, feature] with at least one feature and y [sample], "
                f"got {list(X.shape)} and {list(y.shape)}"
            )
        if y.dtype != bool or y.all() or not y.any():
            raise ValueError("y: expected booleans of both classes; one class cannot be separated")
        if not np.isfinite(X).all():
            raise ValueError("X: expected finite features, got NaN or infinite ones")


def _newton(
    Z: Float[Array, "sample feature"],
    penalty: Float[Array, " feature"],
    weight: float,
    tol: float,
    max_iter: int,
    v: Float[Array, " feature"],
    scale: float,
) -> tuple[Float[Array, " feature"], float, float, int]:
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
            return *before, step
        if relative <= tol * 1e-3 or step == max_iter:
            return v, objective, relative, step
        hessian = np.diag(penalty) + 2 * weight * (Z_active.T @ Z_active)
        direction = -_solve(hessian, gradient)
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


def _squared_objective(
    v: Float[Array, " feature"],
    slack: Float[Array, " sample"],
    penalty: Float[Array, " feature"],
    weight: float,
) -> float:
    losses = np.maximum(slack, 0)
    return float(0.5 * v @ (penalty * v) + weight * (losses @ losses))


def _interior_point(
    Z: Float[Array, "sample feature"],
    penalty: Float[Array, " feature"],
    weight: float,
    tol: float,
    max_iter: int,
) -> tuple[Float[Array, " feature"], float, float, int]:
    """Minimise ½ v·(penalty v) + weight Σ ξ subject to Zv + ξ − s = 1 and ξ, s ≥ 0.

    α is the multiplier of the constraint and β = weight − α that of ξ ≥ 0; the central path has
    α s = β ξ = μ, which goes to zero.
    """
    n = len(Z)
    v = np.zeros(Z.shape[1])
    alpha, beta = np.full(n, weight / 2), np.full(n, weight / 2)
    xi, s = np.ones(n), np.ones(n)
    gap = np.inf
    for step in range(max_iter + 1):
        losses = np.maximum(1 - Z @ v, 0).sum()
        primal = float(0.5 * v @ (penalty * v) + weight * losses)
        stationarity = Z.T @ alpha - penalty * v
        complementarity = float(alpha @ s + beta @ xi)
        gap = (complementarity + float(np.abs(stationarity).sum())) / max(1.0, primal)
        if gap <= tol or step == max_iter:
            return v, primal, gap, step
        infeasible = s - (Z @ v + xi - 1)
        theta = s / alpha + xi / beta
        hessian = np.diag(penalty) + Z.T @ (Z / theta[:, None])

        def newton_step(
            c1: Float[Array, " sample"], c2: Float[Array, " sample"]
        ) -> tuple[Array, Array, Array, Array]:
            right = (c1 / alpha - c2 / beta + infeasible) / theta  # noqa: B023
            dv = _solve(hessian, stationarity + Z.T @ right)  # noqa: B023
            dalpha = right - (Z @ dv) / theta  # noqa: B023
            return dv, dalpha, (c2 + xi * dalpha) / beta, (c1 - s * dalpha) / alpha  # noqa: B023

        # Mehrotra: look where a pure Newton step would lead, then aim for the centre accordingly.
        dv, dalpha, dxi, ds = newton_step(-alpha * s, -beta * xi)
        length = _longest_step(alpha, beta, xi, s, dalpha, dxi, ds)
        ahead = float(
            (alpha + length * dalpha) @ (s + length * ds)
            + (beta - length * dalpha) @ (xi + length * dxi)
        )
        mu = complementarity / (2 * n)
        target = mu * (ahead / complementarity) ** 3
        dv, dalpha, dxi, ds = newton_step(
            target - alpha * s - dalpha * ds, target - beta * xi + dalpha * dxi
        )
        length = 0.995 * _longest_step(alpha, beta, xi, s, dalpha, dxi, ds)
        v, alpha = v + length * dv, alpha + length * dalpha
        beta = beta - length * dalpha  # not weight - alpha, which rounding may take to zero
        xi, s = xi + length * dxi, s + length * ds
    raise AssertionError("the loop returns")


def _longest_step(alpha: Array, beta: Array, xi: Array, s: Array, *directions: Array) -> float:
    """How far one may go before a positive variable becomes zero, at most 1."""
    dalpha, dxi, ds = directions
    longest = 1.0
    for value, change in ((alpha, dalpha), (beta, -dalpha), (xi, dxi), (s, ds)):
        falling = change < 0
        if falling.any():
            longest = min(longest, float((-value[falling] / change[falling]).min()))
    return longest


def _solve(matrix: Array, right: Array) -> Array:
    """Solve a positive semidefinite system; a bias without penalty may make it singular."""
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0])


@dataclass(frozen=True, eq=False)
class ManyFits:
    """Separators fitted to different subsets of the same features.

    Attributes:
        weights: w of each fit, zero outside its features; then b.
        objectives: value reached.
        gradient_norms: relative size of the gradient at the end of each fit.
        n_iter: steps taken.
    """

    weights: Float[Array, "fit feature_and_bias"]
    objectives: Float[Array, " fit"]
    gradient_norms: Float[Array, " fit"]
    n_iter: Int[Array, " fit"]

    def scores(
        self, X: Float[Array, "sample feature"], y: Bool[Array, " sample"]
    ) -> Float[Array, " fit"]:
        """Return the accuracy of every fit."""
        decisions = X @ self.weights[:, :-1].T + self.weights[:, -1]
        return np.asarray(((decisions > 0) == y[:, None]).mean(axis=0))


def fit_many(
    X: Float[Array, "sample feature"],
    y: Bool[Array, " sample"],
    supports: Bool[Array, "fit feature"],
    *,
    start: Float[Array, "fit feature_and_bias"] | None = None,
    C: float = DEFAULT_C,
    tol: float = 1e-10,
    max_iter: int = 200,
) -> ManyFits:
    """Fit `LinearSVM(C=C)` to many subsets of the features at once.

    The same Newton steps as for one fit, taken together: one matrix product gives the margins of
    all samples under all fits, and only samples inside the margin enter a fit's Hessian.

    Args:
        X: features.
        y: True for the positive class.
        supports: which features each fit may use.
        start: weights and biases to start from.
        C: weight of the hinge losses.
        tol: how small each gradient has to be, relative to its size at w = 0, b = 0.
        max_iter: steps after which to give up.
    """
    LinearSVM(C=C, tol=tol, max_iter=max_iter)._check(X, y)
    if supports.shape[1] != X.shape[1] or not supports.any(axis=1).all():
        raise ValueError(
            f"supports: expected rows of {X.shape[1]} booleans, each with at least one True, "
            f"got shape {list(supports.shape)}"
        )
    Z = np.column_stack([X, np.ones(len(X))]) * np.where(y, 1.0, -1.0)[:, None]
    allowed = np.column_stack([supports, np.ones(len(supports), dtype=bool)])
    V = np.zeros(allowed.shape) if start is None else np.where(allowed, start, 0.0)
    batches = [
        _newton_together(Z, allowed[part], V[part], C, tol, max_iter)
        for part in (slice(i, i + _TOGETHER) for i in range(0, len(V), _TOGETHER))
    ]
    fits = ManyFits(*(np.concatenate(column) for column in zip(*batches, strict=True)))
    unconverged = int((fits.gradient_norms > tol).sum())
    if unconverged:
        warnings.warn(
            f"{unconverged} of {len(V)} probes did not converge: the worst relative gradient is "
            f"{fits.gradient_norms.max():.1e}, above tol={tol:g}; raise max_iter",
            NotConvergedWarning,
            stacklevel=2,
        )
    return fits


def _newton_together(
    Z: Float[Array, "sample feature"],
    allowed: Bool[Array, "fit feature"],
    V: Float[Array, "fit feature"],
    weight: float,
    tol: float,
    max_iter: int,
) -> tuple[Array, Array, Array, Array]:
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
            V[fit, columns], _, _, taken = _newton(
                Z[np.ix_(near, columns)],
                np.ones(len(columns)),
                weight,
                tol,
                max_iter,
                V[fit, columns],
                float(scale[fit]),
            )
            steps[fit] += max(1, taken)
        width *= 2
