"""s-acc of heads against their attention ratios w01 and w02."""

import sys

import numpy as np
import pandas as pd

from count01_lens.common.text import number
from count01_lens.jobs.job import Job
from count01_lens.views.figures import NEUTRAL, NotebookFigure
from experiments.runs import by_seed, last_heads, main_jobs, share
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F5", "Heads by their attention ratios"
CONTRAST = True
PAPER = "Successful heads have w01 ≈ 1 and w02 > 10"


def jobs(setup: Setup) -> list[Job]:
    """The main runs."""
    return main_jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Look at the ratios of successful heads."""
    heads = last_heads(jobs(setup), load)
    good = heads[heads["category"] == "successful"]
    near = by_seed(good, lambda rows: share(rows["w01"].between(0.5, 2)))
    above = by_seed(good, lambda rows: share(rows["w02"] > 10))
    columns = ["seed", "head", "s_acc", "category", "w01", "w02", "head_weight"]
    return Measured(
        numbers={
            "w01_near_one": spread(near),
            "w02_above_ten": spread(above),
            "median_w02_of_successful": float(good["w02"].median()),
            "heads": len(heads),
        },
        shows=f"{100 * np.mean(near):.0f} % of successful heads have w01 between 0.5 and 2; "
        f"{100 * np.mean(above):.0f} % have w02 above 10 "
        f"(median {number(good['w02'].median(), 2)}).",
        tables={"ratios": heads[columns]},
        figures={"ratios": _figure(heads)},
        seeds=sorted(heads["seed"].unique().tolist()),
        recipe=setup.recipe.to_dict(),
    )


def _figure(heads: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    w01, w02 = (heads[name].clip(1e-8, 1e8) for name in ("w01", "w02"))
    axes.axvline(1, color=NEUTRAL, lw=0.8, ls=":")
    axes.axhline(10, color=NEUTRAL, lw=0.8, ls=":")
    points = axes.scatter(
        w01, w02, c=heads["s_acc"], cmap="viridis", vmin=0.5, vmax=1, s=30, ec="black", lw=0.4
    )
    axes.set(xscale="log", yscale="log", xlabel="w01: attention to '0' over '1'")
    axes.set_ylabel("w02: attention to '0' over '2'")
    axes.set_title("all heads (dotted: w01 = 1, w02 = 10)")
    figure.colorbar(points, ax=axes, label="s-acc")
    alt = "Scatter plot of w01 and w02 of all heads, coloured by s-acc"
    return Shown(figure, alt, "A point per head of all models; bright ones are successful.")


if __name__ == "__main__":
    main(sys.modules[__name__])
