"""Probes of many groups of heads: a fit for each of several subsets of the same features.

The default, `LinearSVM()`, is fitted to thousands of subsets together. Any other classifier of
scikit-learn is fitted to one after the other. What comes back can be asked the same questions.
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from sklearn.base import clone, is_classifier

from count01_lens.common.types import Array
from count01_lens.common.validation import check_int, check_number
from count01_lens.heads.newton import minimise_many_squared_hinges, signed_rows
from count01_lens.heads.probes import DEFAULT_C, LinearSVM, NotConvergedWarning

_TOGETHER = 64  # fits at a time: their margins should fit the processor's cache


class Fits(ABC):
    """What fits of any kind can be asked.

    Attributes:
        classes: the labels, sorted.
        weights: w of each fit, zero outside its features; then b. None unless w·x + b decides
            between two classes.
    """

    classes: Shaped[Array, " class_"]
    weights: Float[Array, "fit feature_and_bias"] | None

    @property
    def starts(self) -> Float[Array, "fit ..."] | None:
        """What the `start` of other fits may be taken from, a row per fit; None if nothing."""
        return None

    @property
    def worst_gradient(self) -> float:
        """Largest relative gradient at the end of a fit; NaN where nobody knows."""
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
    """Linear SVMs of two classes, fitted to different subsets of the same features.

    Attributes:
        weights: w of each fit, zero outside its features; then b.
        objectives: value reached.
        gradient_norms: relative size of the gradient at the end of each fit.
        n_iter: steps taken.
        classes: the two labels; f(x) > 0 is the second one.
    """

    weights: Float[Array, "fit feature_and_bias"]
    objectives: Float[Array, " fit"]
    gradient_norms: Float[Array, " fit"]
    n_iter: Int[Array, " fit"]
    classes: Shaped[Array, "class_=2"]

    @property
    def starts(self) -> Float[Array, "fit feature_and_bias"]:
        """The weights."""
        return self.weights

    @property
    def worst_gradient(self) -> float:
        """Largest relative gradient at the end of a fit."""
        return float(self.gradient_norms.max())

    def decisions(self, X: Float[Array, "sample feature"]) -> Float[Array, "sample fit"]:
        """Return f(x) of every fit."""
        return np.asarray(X @ self.weights[:, :-1].T + self.weights[:, -1])

    def predict(self, X: Float[Array, "sample feature"]) -> Shaped[Array, "sample fit"]:
        """Return the label that every fit gives to every sample; f(x) = 0 is the first one."""
        return np.asarray(np.where(self.decisions(X) > 0, self.classes[1], self.classes[0]))


@dataclass(frozen=True, eq=False)
class OneVsRestFits(Fits):
    """Linear SVMs of more than two classes, fitted to different subsets of the same features.

    Attributes:
        by_class: of each class against the rest.
        classes: their labels, sorted.
    """

    by_class: tuple[ManyFits, ...]
    classes: Shaped[Array, " class_"]

    weights = None  # no single w·x + b decides

    @property
    def starts(self) -> Float[Array, "fit class_ feature_and_bias"]:
        """Weights and biases, by class."""
        return np.stack([fits.weights for fits in self.by_class], axis=1)

    @property
    def objectives(self) -> Float[Array, " fit"]:
        """Value reached, summed over classes."""
        return np.asarray(sum(fits.objectives for fits in self.by_class))

    @property
    def worst_gradient(self) -> float:
        """Largest relative gradient at the end of a fit."""
        return max(fits.worst_gradient for fits in self.by_class)

    def predict(self, X: Float[Array, "sample feature"]) -> Shaped[Array, "sample fit"]:
        """Return the label of the largest f(x); of equal ones, the first."""
        decisions = np.stack([fits.decisions(X) for fits in self.by_class])
        return np.asarray(self.classes[decisions.argmax(axis=0)])


@dataclass(frozen=True, eq=False)
class ClassifierFits(Fits):
    """Any classifier of scikit-learn, fitted to different subsets of the same features.

    Attributes:
        probes: the fitted classifiers.
        supports: which features each may use.
        weights: w of each fit, zero outside its features; then b. None unless all are linear.
        classes: the labels.
    """

    probes: tuple[Any, ...]
    supports: Bool[Array, "fit feature"]
    weights: Float[Array, "fit feature_and_bias"] | None
    classes: Shaped[Array, " class_"]

    def predict(self, X: Float[Array, "sample feature"]) -> Shaped[Array, "sample fit"]:
        """Return the label that every fit gives to every sample."""
        pairs = zip(self.probes, self.supports, strict=True)
        columns = [probe.predict(X[:, support]) for probe, support in pairs]
        return np.column_stack(columns).astype(self.classes.dtype)


def fit_probes(
    X: Float[Array, "sample feature"],
    y: Shaped[Array, " sample"],
    supports: Bool[Array, "fit feature"],
    *,
    probe: Any = None,
    start: Float[Array, "fit *class_and_weights"] | None = None,
) -> Fits:
    """Fit a probe to each of many subsets of the features.

    Args:
        X: features.
        y: labels, whole numbers or booleans, of at least two classes.
        supports: which features each fit may use.
        probe: a classifier of scikit-learn, of which every fit gets a clone; by default a
            `LinearSVM()`. A LinearSVM with a squared hinge and a penalised bias is fitted to all
            subsets together, which is far faster.
        start: `weights` to start from (`starts` with more than two classes), for a probe that is
            fitted so; others always start anew.
    """
    probe = LinearSVM() if probe is None else check_probe(probe)
    _check(X, y, supports)
    if _fast(probe):
        return _fit_together(X, y, supports, probe, start)
    probes = tuple(clone(probe).fit(X[:, support], y) for support in supports)
    return ClassifierFits(probes, supports, _weights_of(probes, X, supports), np.unique(y))


def check_probe(probe: Any) -> Any:
    """Raise unless a probe is a classifier with the conventions of scikit-learn; return it."""
    needed = ("fit", "predict", "get_params", "__sklearn_tags__")
    complete = all(callable(getattr(probe, name, None)) for name in needed)
    if isinstance(probe, type) or not complete or not is_classifier(probe):
        raise TypeError(
            "probe: expected a classifier with the conventions of scikit-learn, such as "
            f"LogisticRegression() or make_pipeline(StandardScaler(), LinearSVC()), got {probe!r}; "
            "give an object, not its class, and a classifier, not a regressor"
        )
    return probe


def fit_many(
    X: Float[Array, "sample feature"],
    y: Shaped[Array, " sample"],
    supports: Bool[Array, "fit feature"],
    *,
    start: Float[Array, "fit feature_and_bias"] | None = None,
    C: float = DEFAULT_C,
    tol: float = 1e-10,
    max_iter: int = 200,
) -> ManyFits:
    """Fit `LinearSVM(C=C)` to many subsets of the features at once.

    The same Newton steps as for one fit, taken together.

    Args:
        X: features.
        y: labels of two classes; True or the larger one is positive.
        supports: which features each fit may use.
        start: weights and biases to start from.
        C: weight of the hinge losses.
        tol: how small each gradient has to be, relative to its size at w = 0, b = 0.
        max_iter: steps after which to give up.
    """
    check_number("C", C, above=0)
    check_number("tol", tol, above=0)
    check_int("max_iter", max_iter, at_least=1)
    _check(X, y, supports)
    classes = np.unique(y)
    if len(classes) != 2:
        raise ValueError(
            f"y: expected labels of two classes, got {len(classes)}; use fit_probes for more"
        )
    Z = signed_rows(X, y == classes[1])
    allowed = np.column_stack([supports, np.ones(len(supports), dtype=bool)])
    V = np.zeros(allowed.shape) if start is None else np.where(allowed, start, 0.0)
    batches = [
        minimise_many_squared_hinges(Z, allowed[part], V[part], C, tol, max_iter)
        for part in (slice(i, i + _TOGETHER) for i in range(0, len(V), _TOGETHER))
    ]
    weights, objectives, gradients, steps = map(np.concatenate, zip(*batches, strict=True))
    fits = ManyFits(weights, objectives, gradients, steps, classes)
    unconverged = int((fits.gradient_norms > tol).sum())
    if unconverged:
        warnings.warn(
            f"{unconverged} of {len(V)} probes did not converge: the worst relative gradient is "
            f"{fits.gradient_norms.max():.1e}, above tol={tol:g}; raise max_iter",
            NotConvergedWarning,
            stacklevel=2,
        )
    return fits


def _fast(probe: Any) -> bool:
    """Whether a probe is what `fit_many` solves. A subclass may do anything else."""
    squared = type(probe) is LinearSVM and probe.loss == "squared_hinge"
    return squared and probe.penalise_bias is True


def _fit_together(
    X: Float[Array, "sample feature"],
    y: Shaped[Array, " sample"],
    supports: Bool[Array, "fit feature"],
    probe: LinearSVM,
    start: Float[Array, "fit *class_and_weights"] | None,
) -> ManyFits | OneVsRestFits:
    probe._check_parameters()
    C = probe.C / len(X) if probe.average else probe.C
    fit = partial(fit_many, supports=supports, C=C, tol=probe.tol, max_iter=probe.max_iter)
    classes = np.unique(y)
    if len(classes) == 2:
        return fit(X, y, start=start)
    starts = [None] * len(classes) if start is None else start.swapaxes(0, 1)
    by_class = tuple(
        fit(X, y == label, start=first) for label, first in zip(classes, starts, strict=True)
    )
    return OneVsRestFits(by_class, classes)


def _weights_of(
    probes: tuple[Any, ...], X: Float[Array, "sample feature"], supports: Bool[Array, "fit feature"]
) -> Float[Array, "fit feature_and_bias"] | None:
    """Weights of fits that are linear and say so; None if one is not."""
    weights = np.zeros((len(supports), X.shape[1] + 1))
    for row, probe, support in zip(weights, probes, supports, strict=True):
        w, b = (np.asarray(getattr(probe, name, ())) for name in ("coef_", "intercept_"))
        single = w.size == support.sum() and b.size == 1
        if not single or not hasattr(probe, "decision_function"):
            return None
        row[:-1][support], row[-1] = w.ravel(), b.item()
        # A classifier may scale features inside: its weights are then those of other features.
        decisions = probe.decision_function(X[:, support])
        if not np.allclose(decisions, X @ row[:-1] + row[-1], rtol=1e-6, atol=1e-9):
            return None
    return weights


def _check(
    X: Float[Array, "sample feature"],
    y: Shaped[Array, " sample"],
    supports: Bool[Array, "fit feature"],
) -> None:
    if X.ndim != 2 or X.shape[1] == 0 or y.shape != (len(X),):
        raise ValueError(
            "expected X [sample, feature] with at least one feature and y [sample], "
            f"got {list(X.shape)} and {list(y.shape)}"
        )
    if y.dtype.kind not in "biu" or len(np.unique(y)) < 2:
        raise ValueError(
            "y: expected whole numbers or booleans of at least two classes, "
            f"got {y.dtype} of {len(np.unique(y))}; number the classes, and give samples of each"
        )
    if not np.isfinite(X).all():
        raise ValueError("X: expected finite features, got NaN or infinite ones")
    if supports.shape[1] != X.shape[1] or not len(supports) or not supports.any(axis=1).all():
        raise ValueError(
            f"supports: expected rows of {X.shape[1]} booleans, each with at least one True, "
            f"got shape {list(supports.shape)}"
        )
