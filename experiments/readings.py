"""The linear SVM under each reading of appendix C, and as it may have been run originally.

The text says squared hinge, the formula has the plain one; the formula averages over samples and
leaves the bias unpenalised. "As printed" is so but for a ½: the formula is ‖w‖² + C · mean of
losses, ours ½‖w‖² + C · mean. So the printed C = 1000 would be 500 here; with 7,000 sentences ours
is 7,000 times weaker than that of a sum, the printed one 14,000 times.
"""

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.common.types import Array
from count01_lens.heads.head_data import HeadData
from count01_lens.heads.metrics import FAILED, SUCCESSFUL

MEAN: dict[str, object] = {"average": True, "penalise_bias": False}
READINGS: dict[str, dict[str, object]] = {
    "squared hinge, sum (default)": {},
    "squared hinge, sum, free bias": {"penalise_bias": False},
    "squared hinge, mean, free bias": MEAN,
    "plain hinge, mean, free bias (as printed)": MEAN | {"loss": "hinge"},
}
ORIGINAL = "LinearSVC(C=1000) at its defaults"


def under_each_reading(data: HeadData, heads: list[int]) -> pd.DataFrame:
    """s-acc of some heads under every reading: a row per reading and head."""
    rows = []
    for reading, fit in {**_probes(), ORIGINAL: _linear_svc}.items():
        for head in heads:
            decide = fit(data.train_outputs[:, head], data.train_labels)
            right = decide(data.test_outputs[:, head]) == data.test_labels
            rows.append({"reading": reading, "head": head, "s_acc": float(np.mean(right))})
    return pd.DataFrame(rows)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Share of successful, failed and perfect heads under each reading."""
    return (
        table.groupby("reading", sort=False)["s_acc"]
        .agg(
            heads="count",
            successful=lambda values: float(np.mean(values >= SUCCESSFUL)),
            failed=lambda values: float(np.mean(values <= FAILED)),
            perfect=lambda values: float(np.mean(values == 1)),
            mean="mean",
        )
        .reset_index()
    )


def _probes() -> dict[str, Callable[[Array, Array], Callable[[Array], Array]]]:
    def fitted(options: dict[str, object]) -> Callable[[Array, Array], Callable[[Array], Array]]:
        return lambda X, y: cl.LinearSVM(**options).fit(X, y).predict  # type: ignore[arg-type]

    return {name: fitted(options) for name, options in READINGS.items()}


def _linear_svc(X: Array, y: Array) -> Callable[[Array], Array]:
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge, which is the point
        return LinearSVC(C=1000, random_state=0).fit(X, y).predict  # type: ignore[no-any-return]
