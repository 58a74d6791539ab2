"""s-acc of every head during training, line width by head weight."""

import sys

import numpy as np
import pandas as pd

from count01_lens.jobs.job import Job
from count01_lens.views.evolution_plots import draw_heads
from count01_lens.views.figures import NotebookFigure
from experiments.runs import by_seed, main_jobs, share, together
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F9", "Heads during training"
CONTRAST = True
PAPER = (
    "s-acc changes a lot early, stabilises around epoch 50 into a bipolar distribution; head "
    "weights barely change"
)


def jobs(setup: Setup) -> list[Job]:
    """The main runs that were measured often."""
    return [job for job in main_jobs(setup) if len(job.configuration["head_epochs"]) > 10]


def measure(load: Load, setup: Setup) -> Measured:
    """Compare early with late changes."""
    heads = together(jobs(setup), load, "heads")
    changes = by_seed(heads, _early_over_late)
    last = heads[heads["epoch"] == heads["epoch"].max()]
    bipolar = by_seed(last, lambda rows: share(rows["category"] != "mixed"))
    weights = by_seed(heads, _weight_change)
    step = int(np.diff(sorted(heads["epoch"].unique())).min())
    columns = ["seed", "epoch", "head", "s_acc", "head_weight", "l_acc"]
    return Measured(
        numbers={
            "changes_early": spread(changes),
            "bipolar": spread(bipolar),
            "weights_stay": spread(weights),
            "checkpoints": len(heads.groupby(["seed", "epoch"])),
        },
        shows=f"Per epoch, s-acc changes {np.nanmean(changes):.1f} times as much in epochs 1-10 "
        "as in "
        f"50-100 (measured every {step}); at the end {100 * np.mean(bipolar):.0f} % of heads are "
        f"successful or failed. From epoch 10 on a head's weight changes by "
        f"{100 * np.mean(weights):.0f} % on average.",
        tables={"evolution": heads[columns]},
        figures={"evolution": _figure(heads)},
        seeds=sorted(heads["seed"].unique().tolist()),
        recipe=setup.recipe.to_dict(),
    )


def _early_over_late(heads: pd.DataFrame) -> float:
    table = heads.pivot(index="epoch", columns="head", values="s_acc")
    change = table.diff().abs().div(np.diff(table.index, prepend=np.nan), axis=0).mean(axis=1)
    late = change[(change.index > 50) & (change.index <= 100)].mean()
    return float(change[(change.index >= 1) & (change.index <= 10)].mean() / max(late, 1e-9))


def _weight_change(heads: pd.DataFrame) -> float:
    table = heads.pivot(index="epoch", columns="head", values="head_weight")
    early, late = (table.loc[epoch].to_numpy() for epoch in (10, table.index.max()))
    return float(np.abs(late - early).mean() / early.mean())


def _figure(heads: pd.DataFrame) -> Shown:
    run = heads[heads["seed"] == heads["seed"].min()]
    figure = NotebookFigure(figsize=(8, 4.4), layout="constrained")
    draw_heads(figure.add_subplot(), run)
    alt = "s-acc of 16 heads over the epochs, and the accuracy of the whole model"
    return Shown(figure, alt, "Colours by what a head is at the end.")


if __name__ == "__main__":
    main(sys.modules[__name__])
