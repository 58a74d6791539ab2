"""Compare our interior-point method for plain hinges with the solvers of scikit-learn.

    python -m experiments.tools.bench_probes

Linear SVMs with C = 1000 on 7,000 samples: outputs of heads, and random points of a plane. `SVC`
leaves the bias free, `LinearSVC` penalises it, so each stands for one of the two. Both may take as
many iterations as fit into some ten seconds. Excess is that of the objective over the lowest one
that any solver has reached, relative to it; s is processor time. The whole takes a few minutes.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC

import count01_lens as cl
from count01_lens.common.types import Array

TOLERANCES = (1e-3, 1e-6)


def samples() -> dict[str, tuple[Array, Array]]:
    """Features and labels: heads that succeed and fail, an untrained one, a group, noise."""
    train, rng = cl.make_splits().train, np.random.default_rng(0)
    labels = train.labels.numpy()
    trained = cl.head_outputs(cl.example_model(), train).double().numpy()
    untrained = cl.head_outputs(cl.build_model(seed=7), train).double().numpy()
    plane = rng.standard_normal((len(labels), 2))
    return {
        "successful head": (trained[:, 3], labels),
        "failed head": (trained[:, 8], labels),
        "untrained head": (untrained[:, 0], labels),
        "three heads": (trained[:, :3].reshape(len(labels), -1), labels),
        "random plane": (plane, plane[:, 0] + 0.5 * rng.standard_normal(len(labels)) > 0),
    }


def compare(
    cases: dict[str, tuple[Array, Array]], *, C: float = 1000.0, max_iter: int = 100_000
) -> pd.DataFrame:
    """Fit every reading of the plain hinge by every solver: a row per case, reading and solver."""
    rows = []
    for (name, (X, y)), average, penalise_bias in product(
        cases.items(), (True, False), (True, False)
    ):
        weight = C / len(X) if average else C
        reading = {"average": average, "penalise_bias": penalise_bias}
        found = []
        for solver, probe in _solvers(C, weight, max_iter, reading):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                seconds = _seconds(partial(probe.fit, X, y))
            found.append((solver, objective(probe, X, y, weight, penalise_bias), seconds))
        best = min(value for _, value, _ in found)
        rows += [
            {"samples": name, **reading, "solver": solver, "excess": value / best - 1, "s": seconds}
            for solver, value, seconds in found
        ]
    return pd.DataFrame(rows)


def objective(probe: Any, X: Array, y: Array, weight: float, penalise_bias: bool) -> float:
    """Value of what is minimised, from weights and bias alone."""
    w, b = probe.coef_[0], float(probe.intercept_[0])
    hinges = np.maximum(0, 1 - np.where(y, 1.0, -1.0) * (X @ w + b))
    return float(0.5 * w @ w + (0.5 * b * b if penalise_bias else 0.0) + weight * hinges.sum())


def _seconds(fit: Callable[[], Any]) -> float:
    """Processor time of a fit; of short ones the shortest of five, the least disturbed."""
    times: list[float] = []
    while len(times) < 5 and sum(times) < 1:
        start = time.process_time()
        fit()
        times.append(time.process_time() - start)
    return min(times)


def _solvers(
    C: float, weight: float, max_iter: int, reading: dict[str, bool]
) -> Iterator[tuple[str, Any]]:
    yield "ours", cl.LinearSVM(C=C, loss="hinge", **reading)
    for tol in TOLERANCES:
        if reading["penalise_bias"]:
            options = {"loss": "hinge", "dual": True, "max_iter": max_iter, "random_state": 0}
            yield f"LinearSVC, tol={tol:g}", LinearSVC(C=weight, tol=tol, **options)
        else:
            # A step of libsvm moves two samples, an iteration of liblinear all of them.
            options = {"kernel": "linear", "max_iter": 40 * max_iter}
            yield f"SVC, tol={tol:g}", SVC(C=weight, tol=tol, **options)


if __name__ == "__main__":
    table = compare(samples())
    print(table.to_string(index=False, float_format="{:.1e}".format))
    worst = table.groupby(["average", "penalise_bias", "solver"])[["excess", "s"]].max()
    print("\nThe worst of each:\n" + worst.to_string(float_format="{:.1e}".format))
