"""How the s-acc of heads, weighted, follows the accuracy of the model during training."""

import sys

import numpy as np
import pandas as pd

from count01_lens.jobs.job import Job
from count01_lens.views.figures import NotebookFigure
from experiments import heads_over_training
from experiments.runs import together
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main

ROW, TITLE = "F11", "Weighted s-acc against model accuracy"
CONTRAST = True
PAPER = "Pearson correlation 0.72, checkpoints of epochs 10-100 of four runs"


def jobs(setup: Setup) -> list[Job]:
    """The main runs that were measured often."""
    return heads_over_training.jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Correlate over all checkpoints, and within each run."""
    heads = together(jobs(setup), load, "heads")
    heads = heads[heads["epoch"].between(10, 100)]
    heads = heads.assign(weighted=heads["s_acc"] * heads["head_weight"])
    table = (
        heads.groupby(["seed", "epoch"])
        .agg(weighted_s_acc=("weighted", "sum"), accuracy=("accuracy", "first"))
        .reset_index()
    )
    pearson = _pearson(table)
    within = {str(seed): _pearson(rows) for seed, rows in table.groupby("seed")}
    early = _pearson(table[table["epoch"] <= 50])
    return Measured(
        numbers={
            "pearson": pearson,
            "pearson_within_runs": within,
            "pearson_epochs_10_to_50": early,
            "checkpoints": len(table),
            "runs": table["seed"].nunique(),
        },
        shows=f"Pearson {_written(pearson)} over {len(table)} checkpoints of "
        f"{table['seed'].nunique()} runs; {_written(early)} over epochs 10-50; within single runs "
        f"{', '.join(map(_written, within.values()))}.",
        tables={"checkpoints": table},
        figures={"weighted": _figure(table)},
        seeds=sorted(table["seed"].unique().tolist()),
        recipe=setup.recipe.to_dict(),
    )


def _pearson(table: pd.DataFrame) -> float | None:
    if len(table) < 3 or table["accuracy"].nunique() < 2:
        return None
    return float(np.corrcoef(table["weighted_s_acc"], table["accuracy"])[0, 1])


def _written(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _figure(table: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    points = axes.scatter(
        table["weighted_s_acc"], table["accuracy"], c=table["epoch"], cmap="viridis", s=14
    )
    axes.set(xlabel="s-acc of heads, weighted by hw", ylabel="accuracy of the model")
    axes.set_title(f"{len(table)} checkpoints of {table['seed'].nunique()} runs")
    figure.colorbar(points, ax=axes, label="epoch")
    alt = "Scatter plot of weighted s-acc and model accuracy over checkpoints"
    return Shown(figure, alt, "A point per checkpoint, coloured by epoch.")


if __name__ == "__main__":
    main(sys.modules[__name__])
