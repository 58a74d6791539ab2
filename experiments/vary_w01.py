"""Attention at '=' set by hand: '2' gets nothing, w01 varies, the SVM is refitted."""

import sys
from typing import Any

import numpy as np
import pandas as pd

from count01_lens.attention.sweeps import RatioSweep
from count01_lens.jobs.job import Job
from count01_lens.views.plots import plot_sweep
from experiments.runs import close_looks, main_jobs
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F7", "Setting w01 by hand"
CONTRAST = True
PAPER = "Near perfect for w01 in [0.1, 10]; sharp drop and more variance outside"


def jobs(setup: Setup) -> list[Job]:
    """The main runs whose attention was swept."""
    return [job for job in main_jobs(setup) if job.configuration["closely"]]


def sweeps(load: Load, setup: Setup, ratio: str) -> dict[int, RatioSweep]:
    """The sweeps of one ratio, by seed."""
    looks = close_looks(jobs(setup), load)
    return {seed: RatioSweep(**look["sweeps"][ratio]) for seed, look in looks.items()}


def measure(load: Load, setup: Setup) -> Measured:
    """Compare the inside of [0.1, 10] with what lies outside."""
    found = sweeps(load, setup, "w01")
    rows = []
    for seed, sweep in found.items():
        mean, std = sweep.s_acc.mean(axis=1), sweep.s_acc.std(axis=1)
        inside = (sweep.values >= 0.0999) & (sweep.values <= 10.001)
        rows.append(
            {
                "seed": seed,
                "inside": mean[inside].mean(),
                "outside": mean[_at(sweep, 1e-3, 1e3)].mean(),
                "variance": std[_at(sweep, 1e-2, 1e2)].mean() / std[inside].mean(),
                "whole_model_inside": sweep.model["answer"].to_numpy()[inside].mean(),
                "whole_model_at_one": float(sweep.model["answer"].to_numpy()[_at(sweep, 1.0)][0]),
            }
        )
    table = pd.DataFrame(rows)
    names = [name for name in table.columns if name != "seed"]
    first = next(iter(found.values()))
    return Measured(
        numbers={name: spread(table[name]) for name in names},
        shows=f"Mean s-acc is {table['inside'].mean():.3f} for w01 in [0.1, 10] and "
        f"{table['outside'].mean():.3f} at 0.001 and 1000. The whole model, its output layer "
        f"unchanged, answers {100 * table['whole_model_at_one'].mean():.0f} % right at w01 = 1 and "
        f"{100 * table['whole_model_inside'].mean():.0f} % on average inside.",
        tables={"sweeps": table, "lines": _lines(found)},
        figures={
            "w01": Shown(
                plot_sweep(first),
                "s-acc of 16 heads over w01, mean and standard deviation, and the whole model",
                f"Seed {min(found)}.",
            )
        },
        seeds=list(found),
        recipe=setup.recipe.to_dict(),
    )


def _at(sweep: Any, *values: float) -> list[int]:
    return [
        int(np.abs(np.log(np.maximum(sweep.values, 1e-9) / value)).argmin()) for value in values
    ]


def _lines(found: dict[int, Any]) -> pd.DataFrame:
    tables: list[pd.DataFrame] = [s.table.assign(seed=seed) for seed, s in found.items()]
    return pd.concat(tables, ignore_index=True)


if __name__ == "__main__":
    main(sys.modules[__name__])
