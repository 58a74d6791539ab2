"""The linear SVM under each reading of appendix C, and as it may have been run originally.

The text says squared hinge, the formula has the plain one; the formula averages over samples and
leaves the bias unpenalised. Its ‖w‖² has no ½: with C = 1000 it is ½‖w‖² + C · mean of losses with
C = 500, which is how the readings with a mean are fitted. With 7,000 sentences that is 14,000 times
weaker than C = 1000 of a sum.
"""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.svm import LinearSVC

import count01_lens as cl
from count01_lens.heads.head_data import HeadData
from count01_lens.heads.thresholds import FAILED, SUCCESSFUL

READINGS: dict[str, Any] = {
    "squared hinge, sum (default)": cl.LinearSVM(),
    "squared hinge, sum, free bias": cl.LinearSVM(penalise_bias=False),
    "squared hinge, mean, free bias": cl.LinearSVM(C=500, average=True, penalise_bias=False),
    "plain hinge, mean, free bias (as printed)": cl.LinearSVM(
        C=500, average=True, penalise_bias=False, loss="hinge"
    ),
    "LinearSVC(C=1000) at its defaults": LinearSVC(C=1000, random_state=0),
}


def under_each_reading(data: HeadData, heads: list[int]) -> pd.DataFrame:
    """s-acc of some heads under every reading: a row per reading and head."""
    rows = []
    for reading, probe in READINGS.items():
        for head in heads:
            with warnings.catch_warnings():
                # LinearSVC at its defaults does not converge, which is the point.
                warnings.filterwarnings("ignore", "Liblinear failed to converge")
                fitted = clone(probe).fit(data.train_outputs[:, head], data.train_labels)
            s_acc = fitted.score(data.test_outputs[:, head], data.test_labels)
            rows.append({"reading": reading, "head": head, "s_acc": float(s_acc)})
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
