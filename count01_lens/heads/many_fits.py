"""Linear SVMs of many subsets of the same features, fitted together.

Knows nothing of scikit-learn, whose import takes longer than thousands of these fits.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from count01_lens.common.types import Array
from count01_lens.heads.newton import signed_rows, units_of
from count01_lens.heads.newton_together import minimise_many_squared_hinges

DEFAULT_C = 1000.0  # the paper's


class Fits(ABC):
    """What fits of any kind can be asked.

    Attributes:
        classes: the labels, sorted.
        weights: w of each fit, zero outside its features; then b. None unless w·x + b decides
            between two classes.
        starts: what other fits may start from; None if nothing.
        objectives: value reached; None where nobody knows.
    """

    classes: Shaped[Array, " class_"]
    weights: Any
    starts: Float[Array, "fit row feature_and_bias"] | None
    objectives: Float[Array, " fit"] | None

    @property
    def worst_gradient(self) -> float:
        """How far the worst fit ended from its optimum; NaN where nobody knows."""
        return float("nan")

    @abstractmethod
    def predict(self, X: Float[Array, "sample feature"]) -> Shaped[Array, "sample fit"]:
        """Return the label that every fit gives to every sample."""

    def scores(
        self, X: Float[Array, "sample feature"], y: Shaped[Array, " sample"]
    ) -> Float[Array, " fit"]:
        """Return the accuracy of every fit."""
        return np.asarray((self.predict(X) == y[:, None]).mean(axis=0))


@dataclass(frozen=True, eq=False)
class ManyFits(Fits):
    """Linear SVMs, fitted together to different subsets of the same features.

    Attributes:
        starts: w of each fit, zero outside its features; then b. One row for two classes, where
            f(x) > 0 is the second; else a row for each class against the rest.
        objectives: value reached, summed over rows.
        gradient_norms: how far each fit ended from its optimum, the largest of rows: the relative
            gradient or, if larger, the share of the objective that was still to be gained.
        n_iter: steps taken, the most of rows.
        classes: the labels, sorted.
    """

    starts: Float[Array, "fit row feature_and_bias"]
    objectives: Float[Array, " fit"]
    gradient_norms: Float[Array, " fit"]
    n_iter: Int[Array, " fit"]
    classes: Shaped[Array, " class_"]

    @property
    def weights(self) -> Float[Array, "fit feature_and_bias"] | None:
        """The only row of each fit of two classes."""
        return self.starts[:, 0] if self.starts.shape[1] == 1 else None

    @property
    def worst_gradient(self) -> float:
        """How far the worst fit ended from its optimum."""
        return float(self.gradient_norms.max())

    def predict(self, X: Float[Array, "sample feature"]) -> Shaped[Array, "sample fit"]:
        """Return the labels: that of the largest f(x), of equal ones the first."""
        rows = self.starts.swapaxes(0, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            decisions = [X @ row[:, :-1].T for row in rows]
            for decision, row in zip(decisions, rows, strict=True):
                decision += row[:, -1]
        if any(np.isnan(decision).any() for decision in decisions):
            raise ValueError(
                "X: expected features for which w·x + b is a number, got some so much larger than "
                "those of the fit that it overflows; scale them down"
            )
        if len(rows) == 1:
            return np.asarray(np.where(decisions[0] > 0, self.classes[1], self.classes[0]))
        return np.asarray(self.classes[np.stack(decisions).argmax(axis=0)])


def fit_together(
    X: Float[Array, "sample feature"],
    y: Shaped[Array, " sample"],
    supports: Bool[Array, "fit feature"],
    *,
    start: Float[Array, "fit row feature_and_bias"] | None = None,
    C: float = DEFAULT_C,
    tol: float = 1e-10,
    max_iter: int = 200,
) -> ManyFits:
    """Fit linear SVMs to many subsets of the features; checks nothing, and does not complain."""
    classes = np.unique(y)
    allowed = np.column_stack([supports, np.ones(len(supports), dtype=bool)])
    units = np.append(units_of(X), 1.0)
    rows = []
    for row, label in enumerate(classes[1:] if len(classes) == 2 else classes):
        Z, penalty = signed_rows(X, y == label) / units, (1 / units) ** 2
        V = (
            np.zeros(allowed.shape)
            if start is None
            else np.where(allowed, start[:, row], 0) * units
        )
        found = minimise_many_squared_hinges(Z, penalty, allowed, V, C, tol, max_iter)
        rows.append(found._replace(V=found.V / units))
    starts, objectives, gradients, steps = (np.stack(part) for part in zip(*rows, strict=True))
    norms = gradients.max(axis=0)
    summed, most = objectives.sum(axis=0), steps.max(axis=0)
    return ManyFits(starts.swapaxes(0, 1), summed, norms, most, classes)
