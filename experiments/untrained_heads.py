"""s-acc of heads that were never trained."""

import dataclasses
import sys
from typing import Any

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.heads.head_data import head_data
from count01_lens.heads.metrics import Groups
from count01_lens.heads.thresholds import SUCCESSFUL
from count01_lens.jobs.job import Job
from count01_lens.views.figures import FOUR, NotebookFigure
from experiments.readings import summary, under_each_reading
from experiments.runs import VERSION, share
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F10", "Heads at random initialisation"
CONTRAST = True
PAPER = "Many heads do reasonably well untrained; 1.3 % of 10,000 are perfect"
HEADS = {"quick": 480, "full": 10_000}
PER_JOB = 125  # models, of 16 heads each
READ_MODELS = {"quick": 1, "full": 2}  # per job: models whose heads are read in every way


def jobs(setup: Setup) -> list[Job]:
    """Models of 16 heads, at most PER_JOB of them together."""
    n_models = HEADS[setup.size] // 16
    starts = range(0, n_models, PER_JOB)
    return [
        Job("untrained", untrained, {
            "first": 70_000 + start, "models": min(PER_JOB, n_models - start),
            "read": READ_MODELS[setup.size], "shape": dataclasses.asdict(setup.recipe.model),
        }, VERSION, cost=8)
        for start in starts
    ]  # fmt: skip


def untrained(first: int, models: int, read: int, shape: dict[str, Any]) -> dict[str, Any]:
    """Fit a separator to every head of models that were only initialised."""
    config, splits, tables, readings = cl.ModelConfig(**shape), cl.make_splits(), [], []
    for seed in range(first, first + models):
        data = head_data(cl.build_model(config, seed=seed), splits)
        s_acc = Groups(data, np.eye(data.n_heads, dtype=bool)).probe_accuracy
        tables.append(pd.DataFrame({"seed": seed, "head": range(len(s_acc)), "s_acc": s_acc}))
        if seed < first + read:
            readings.append(under_each_reading(data, list(range(data.n_heads))).assign(seed=seed))
    return {
        "heads": pd.concat(tables, ignore_index=True),
        "readings": pd.concat(readings, ignore_index=True),
    }


def measure(load: Load, setup: Setup) -> Measured:
    """Count perfect and reasonable heads; intervals are over jobs of 2,000 heads."""
    heads = pd.concat([load(job)["heads"] for job in jobs(setup)], ignore_index=True)
    readings = pd.concat([load(job)["readings"] for job in jobs(setup)], ignore_index=True)
    parts = [load(job)["heads"]["s_acc"] for job in jobs(setup)]
    perfect = share(heads["s_acc"] == 1)
    return Measured(
        numbers={
            "perfect": spread([share(part == 1) for part in parts]),
            "reasonable": spread([share(part >= 0.8) for part in parts]),
            "successful": spread([share(part >= SUCCESSFUL) for part in parts]),
            "heads": len(heads),
        },
        shows=f"Of {len(heads):,} untrained heads {100 * perfect:.2f} % are perfect, "
        f"{100 * share(heads['s_acc'] >= SUCCESSFUL):.1f} % successful, "
        f"{100 * share(heads['s_acc'] >= 0.8):.0f} % at 0.8 or more. The table has the same under "
        "each reading of the SVM, on part of the heads.",
        tables={"distribution": _histogram(heads), "readings": summary(readings)},
        figures={"untrained": _figure(heads)},
        seeds=sorted(heads["seed"].unique().tolist()),
        recipe=setup.recipe.to_dict(),
    )


def _histogram(heads: pd.DataFrame) -> pd.DataFrame:
    counts, edges = np.histogram(heads["s_acc"], np.linspace(0.4, 1.0, 61))
    table = pd.DataFrame({"from": edges[:-1], "to": edges[1:], "heads": counts})
    return table.round(4)


def _figure(heads: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(7, 3.8), layout="constrained")
    axes = figure.add_subplot()
    axes.hist(heads["s_acc"], np.linspace(0.4, 1.0, 61).tolist(), color=FOUR)
    axes.set(xlabel="s-acc on the test split", ylabel="heads")
    axes.set_title(f"{len(heads):,} heads that were never trained")
    alt = "Histogram of s-acc of untrained heads"
    return Shown(figure, alt, "Heads of models with 16 heads and d = 32, as initialised.")


if __name__ == "__main__":
    main(sys.modules[__name__])
