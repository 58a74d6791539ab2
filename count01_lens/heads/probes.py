"""A linear support vector machine, solved to convergence, as an estimator of scikit-learn.

    ½‖w‖² + ½b² + C Σᵢ max(0, 1 − yᵢ f(xᵢ))²,    f(x) = w·x + b,

is the default: the objective of scikit-learn's `LinearSVC(C=1000)`. Appendix C of the paper can be
read in other ways, so the sum or mean over samples, the squared or plain hinge, and the penalty on
the bias are parameters.
"""

import warnings
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from count01_lens.common.types import Array
from count01_lens.common.validation import check_bool, check_choice, check_int, check_number
from count01_lens.heads.interior_point import minimise_hinge
from count01_lens.heads.many_fits import DEFAULT_C as DEFAULT_C
from count01_lens.heads.newton import Optimum, minimise_squared_hinge, signed_rows, units_of


class NotConvergedWarning(ConvergenceWarning):  # type: ignore[misc]
    """A probe stopped before it reached its optimum."""


class LinearSVM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear SVM; for more than two classes, one against the rest for each.

    Args:
        C: weight of the hinge losses.
        loss: "squared_hinge" or "hinge".
        average: take the mean of the losses over samples, as in appendix C, not the sum. (What it
            prints has no ½ before ‖w‖²: half its C gives the same probe here.)
        penalise_bias: let b count as a weight, as `LinearSVC` does.
        tol: how small the gradient has to be, relative to its size at w = 0, b = 0, and what is
            still to be gained, relative to the objective (for the plain hinge: the duality gap).
        max_iter: steps after which to give up.

    Attributes:
        classes_: the labels, sorted. Of two, the second is the positive class.
        coef_: w, in a single row for two classes, else in a row per class.
        intercept_: b of each row.
        objective_: value reached, summed over rows.
        gradient_norm_: what was left of these at the end, the largest of all rows.
        converged_: whether that is within `tol`.
        n_iter_: steps taken, the most of all rows.
        n_features_in_: number of features.

    Example:
        >>> features = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> labels = np.array([False, False, True, True])
        >>> cl.LinearSVM(C=1000).fit(features, labels).score(features, labels)
        1.0
    """

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

    def fit(self, X: Any, y: Any) -> "LinearSVM":
        """Fit features [sample, feature] to labels [sample] of at least two classes."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y: expected labels of at least two classes, got one class only, "
                f"{self.classes_[0]!r}; give samples of another one, too"
            )
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        optima = [self._minimise(X, y == label) for label in positive]
        self.coef_ = np.stack([optimum[0][:-1] for optimum in optima])
        self.intercept_ = np.stack([optimum[0][-1] for optimum in optima])
        self.objective_ = float(sum(optimum[1] for optimum in optima))
        self.gradient_norm_ = max(optimum[2] for optimum in optima)
        self.n_iter_ = max(optimum[3] for optimum in optima)
        self.converged_ = self.gradient_norm_ <= self.tol
        if not self.converged_:
            warnings.warn(
                f"a probe did not converge in {self.n_iter_} steps: relative gradient "
                f"{self.gradient_norm_:.1e} is above tol={self.tol:g}; raise max_iter, or scale "
                "features that are far larger than others",
                NotConvergedWarning,
                stacklevel=2,
            )
        return self

    def decision_function(self, X: Any) -> Float[Array, " sample"] | Float[Array, "sample class_"]:
        """Return f(x): for two classes positive for the second one, else a column for each."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        decisions = np.asarray(X @ self.coef_.T + self.intercept_)
        return decisions if decisions.shape[1] > 1 else decisions[:, 0]

    def predict(self, X: Any) -> Shaped[Array, " sample"]:
        """Return the label of each sample; for two classes, f(x) = 0 means the first."""
        decisions = self.decision_function(X)
        found = decisions.argmax(axis=1) if decisions.ndim > 1 else (decisions > 0).astype(int)
        return np.asarray(self.classes_[found])

    def _minimise(
        self, X: Float[Array, "sample feature"], positive: Bool[Array, " sample"]
    ) -> Optimum:
        units = np.append(units_of(X), 1.0)
        Z = signed_rows(X, positive) / units
        penalty = (1 / units) ** 2
        penalty[-1] = 1.0 if self.penalise_bias else 0.0
        weight = self.C / len(Z) if self.average else self.C
        options = (penalty, weight, self.tol, self.max_iter)
        if self.loss == "hinge":
            found = minimise_hinge(Z, *options)
        else:
            scale = 2 * weight * float(np.linalg.norm(Z.sum(axis=0))) + 2 * weight
            found = minimise_squared_hinge(Z, *options, np.zeros(Z.shape[1]), scale)
        return found._replace(v=found.v / units)

    def _check_parameters(self) -> None:
        check_number("C", self.C, above=0)
        check_choice("loss", self.loss, ("squared_hinge", "hinge"))
        check_bool("average", self.average)
        check_bool("penalise_bias", self.penalise_bias)
        check_number("tol", self.tol, above=0)
        check_int("max_iter", self.max_iter, at_least=1)
