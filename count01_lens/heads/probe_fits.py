"""Probes of many groups of heads: a fit for each of several subsets of the same features.

The default, `LinearSVM()`, is fitted to thousands of subsets together. Any other classifier of
scikit-learn is fitted to one after the other. What comes back can be asked the same questions.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped
from sklearn.base import clone, is_classifier

from count01_lens.common.types import Array
from count01_lens.common.validation import check_int, check_number
from count01_lens.heads.many_fits import DEFAULT_C, fit_together
from count01_lens.heads.many_fits import Fits as Fits
from count01_lens.heads.many_fits import ManyFits as ManyFits
from count01_lens.heads.probes import LinearSVM, NotConvergedWarning


@dataclass(frozen=True, eq=False)
class ClassifierFits(Fits):
    """Any classifier of scikit-learn, fitted to different subsets of the same features."""

    probes: tuple[Any, ...]
    supports: Bool[Array, "fit feature"]
    weights: Float[Array, "fit feature_and_bias"] | None
    classes: Shaped[Array, " class_"]

    starts = objectives = None

    def predict(self, X: Float[Array, "sample feature"]) -> Shaped[Array, "sample fit"]:
        """Return the label that every fit gives to every sample."""
        pairs = zip(self.probes, self.supports, strict=True)
        columns = [probe.predict(X[:, support]) for probe, support in pairs]
        return np.column_stack(columns).astype(self.classes.dtype)


class LostProbe:
    """Stands for the probe of a loaded analysis, which no file holds: only its name is known."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return (
            f"only the name of a probe ({self.name}), which no file holds: analyse the model again"
        )


def fit_probes(
    X: Float[Array, "sample feature"],
    y: Shaped[Array, " sample"],
    supports: Bool[Array, "fit feature"],
    *,
    probe: Any = None,
    start: Float[Array, "fit row feature_and_bias"] | None = None,
) -> Fits:
    """Fit a probe to each of many subsets of the features.

    Args:
        X: features.
        y: labels, whole numbers or booleans, of at least two classes.
        supports: which features each fit may use.
        probe: a classifier of scikit-learn, of which every fit gets a clone; by default a
            `LinearSVM()`. A LinearSVM with a squared hinge and a penalised bias is fitted to all
            subsets together, by one Newton step for many, which is far faster.
        start: `starts` of other fits, for a probe that is fitted so; others always start anew.
    """
    probe = LinearSVM() if probe is None else check_probe(probe)
    _check(X, y, supports)
    # A subclass may do anything else.
    squared = type(probe) is LinearSVM and probe.loss == "squared_hinge"
    if squared and probe.penalise_bias is True:
        probe._check_parameters()
        C = probe.C / len(X) if probe.average else probe.C
        return fit_many(X, y, supports, start=start, C=C, tol=probe.tol, max_iter=probe.max_iter)
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
    start: Float[Array, "fit row feature_and_bias"] | None = None,
    C: float = DEFAULT_C,
    tol: float = 1e-10,
    max_iter: int = 200,
) -> ManyFits:
    """Fit `LinearSVM(C=C)` to many subsets of the features at once: the same steps, together."""
    check_number("C", C, above=0)
    check_number("tol", tol, above=0)
    check_int("max_iter", max_iter, at_least=1)
    _check(X, y, supports)
    fits = fit_together(X, y, supports, start=start, C=C, tol=tol, max_iter=max_iter)
    unconverged = int((~(fits.gradient_norms <= tol)).sum())  # NaN is none
    if unconverged:
        warnings.warn(
            f"{unconverged} of {len(supports)} probes did not converge: the worst relative "
            f"gradient is {fits.worst_gradient:.1e}, above tol={tol:g}; raise max_iter, or "
            "scale features that are far larger than others",
            NotConvergedWarning,
            stacklevel=2,
        )
    return fits


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
