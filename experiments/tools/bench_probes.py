"""Compare our solvers of linear SVMs with those of scikit-learn.

    python -m experiments.tools.bench_probes
    python -m experiments.tools.bench_probes --squared

The first is about plain hinges, and our interior-point method for them.

Linear SVMs with C = 1000 on 7,000 samples: outputs of heads, and random points of a plane. `SVC`
leaves the bias free, `LinearSVC` penalises it, so each stands for one of the two. Both may take as
many iterations as fit into some ten seconds. Excess is that of the objective over the lowest one
that any solver has reached, relative to it; s is processor time. The whole takes a few minutes.

The second is about squared hinges, fitted to many groups of heads, or to single heads at each ratio
of a sweep: milliseconds of a fit by `LinearSVC(dual=False, tol=1e-8)`, halved as if two processes
shared the work, by our careful solver, one after the other, and by that of many together. They take
turns, and the least disturbed turn of each counts.
"""

import argparse
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
from count01_lens.attention.patches import Ratios
from count01_lens.attention.sweeps import DEFAULT_GRID
from count01_lens.common.types import Array
from count01_lens.heads.groups import as_rows
from count01_lens.heads.head_data import collect
from count01_lens.heads.probe_fits import fit_many
from count01_lens.heads.runners import runner_for

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


def squared_hinges(n_groups: int = 512, turns: int = 3) -> pd.DataFrame:
    """Time fits of squared hinges, cold and from one head less: a row per kind of fits."""
    task, model = cl.Count01(), cl.example_model()
    runner = runner_for(model, task.questions["answer"].test)
    rng, rows = np.random.default_rng(0), []
    for size in (2, 4, 8, 12):
        every = as_rows(np.arange(1, 2**runner.n_heads), runner.n_heads)
        masks = rng.permutation(every[every.sum(axis=1) == size])[:n_groups]
        rows.append({"fits": f"groups of {size}", **_timed([collect(runner, task)], masks, turns)})
    grid = [collect(runner.under(Ratios(w01=w01, w02=np.inf)), task) for w01 in DEFAULT_GRID]
    singles = np.eye(runner.n_heads, dtype=bool)
    rows.append({"fits": "heads of a sweep", **_timed(grid, singles, turns)})
    table = pd.DataFrame(rows)
    table["over scikit-learn"] = table["LinearSVC, halved"] / table["together"]
    table["over one by one"] = table["one by one"] / table["together"]
    return table


def _timed(grid: list[Any], masks: Array, turns: int) -> dict[str, float]:
    """Milliseconds of a fit to each mask and each member of the grid; of slow solvers to a few."""
    theirs = LinearSVC(C=1000, dual=False, tol=1e-8, max_iter=100_000)
    few = masks[: max(1, 32 // len(grid))]
    starts = [_one_head_less(data, masks) for data in grid]

    def together() -> None:
        for data, start in zip(grid, starts, strict=True):
            fit_many(_flat(data), data.train_labels, _columns(data, masks), start=start)

    def alone(probe: Any) -> None:
        for data in grid:
            for support in _columns(data, few):
                probe.fit(_flat(data)[:, support], data.train_labels)

    roads: dict[str, tuple[Callable[[], None], float]] = {
        "LinearSVC, halved": (partial(alone, theirs), 0.5 / len(few)),
        "one by one": (partial(alone, cl.LinearSVM()), 1 / len(few)),
        "together": (together, 1 / len(masks)),
    }
    found = dict.fromkeys(roads, np.inf)
    for _ in range(turns):
        for name, (run, share) in roads.items():
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                run()
            taken = 1e3 * share * (time.perf_counter() - start) / len(grid)
            found[name] = min(found[name], taken)
    return found


def _one_head_less(data: Any, masks: Array) -> Array | None:
    """Fit groups without their first head, to start from; single heads start from nothing."""
    if masks.sum(axis=1).max() == 1:
        return None
    smaller = masks & ~(np.arange(masks.shape[1]) == masks.argmax(axis=1)[:, None])
    return fit_many(_flat(data), data.train_labels, _columns(data, smaller)).starts


def _flat(data: Any) -> Array:
    return np.asarray(data.train_outputs.reshape(len(data.train_outputs), -1))


def _columns(data: Any, masks: Array) -> Array:
    return np.repeat(masks, data.d_head, axis=1)


def main() -> None:
    """Compare, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--squared", action="store_true", help="squared hinges, many together")
    if parser.parse_args().squared:
        print(squared_hinges().to_string(index=False, float_format="{:.3g}".format))
        return
    table = compare(samples())
    print(table.to_string(index=False, float_format="{:.1e}".format))
    worst = table.groupby(["average", "penalise_bias", "solver"])[["excess", "s"]].max()
    print("\nThe worst of each:\n" + worst.to_string(float_format="{:.1e}".format))


if __name__ == "__main__":
    main()
