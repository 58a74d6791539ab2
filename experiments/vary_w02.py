"""Attention at '=' set by hand: '0' and '1' get the same, w02 varies, the SVM is refitted."""

import sys

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from count01_lens.jobs.job import Job
from count01_lens.views.plots import plot_sweep
from experiments import vary_w01
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F8", "Setting w02 by hand"
CONTRAST = True
PAPER = "The larger w02, the better and the less variance"


def jobs(setup: Setup) -> list[Job]:
    """As for w01."""
    return vary_w01.jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Follow mean and scatter over the grid."""
    found = vary_w01.sweeps(load, setup, "w02")
    rows = []
    for seed, sweep in found.items():
        mean, std = sweep.s_acc.mean(axis=1), sweep.s_acc.std(axis=1)
        finite = (sweep.values > 0) & np.isfinite(sweep.values)
        rows.append(
            {
                "seed": seed,
                "rising": float(spearmanr(sweep.values[finite], mean[finite]).statistic),
                "variance": float(spearmanr(sweep.values[finite], std[finite]).statistic),
                "at_0_0001": mean[finite][0],
                "at_1": mean[np.abs(sweep.values - 1).argmin()],
                "at_10000": mean[finite][-1],
            }
        )
    table = pd.DataFrame(rows)
    names = [name for name in table.columns if name != "seed"]
    lines = pd.concat([s.table.assign(seed=seed) for seed, s in found.items()], ignore_index=True)
    first = next(iter(found.values()))
    return Measured(
        numbers={name: spread(table[name]) for name in names},
        shows=f"Mean s-acc is {table['at_0_0001'].mean():.3f} at w02 = 0.0001, "
        f"{table['at_1'].mean():.4f} at 1 and {table['at_10000'].mean():.4f} at 10,000; its rank "
        f"correlation with w02 is {table['rising'].mean():.2f}.",
        tables={"sweeps": table, "lines": lines},
        figures={
            "w02": Shown(
                plot_sweep(first),
                "s-acc of 16 heads over w02, mean and standard deviation, and the whole model",
                f"Seed {min(found)}.",
            )
        },
        seeds=list(found),
        recipe=setup.recipe.to_dict(),
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
