"""Minimal heads by learning: d0 = 1, no layer norm, alone and jointly (table T1)."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

import count01_lens as cl
from count01_lens.common.text import plural
from count01_lens.heads.head_data import collect
from count01_lens.heads.metrics import Groups
from count01_lens.heads.runners import CountRunner
from count01_lens.heads.thresholds import SUCCESSFUL
from count01_lens.jobs.job import Job
from count01_lens.training.evolution import split_stack
from count01_lens.training.recipe import training_cost
from count01_lens.views.figures import FIVE, FOUR, NotebookFigure
from experiments.claims import T1_ROWS
from experiments.readings import summary, under_each_reading
from experiments.runs import VERSION, recipe_of, share
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main

ROW, TITLE = "T1", "Minimal heads by learning"
CONTRAST = False
PAPER = "Larger d helps a lot; d = 1 never perfect; heads trained jointly do worse than alone"
TOGETHER = {1: 165, 64: 25}  # models per job, by heads per model
FIRST_SEED = 1_000_000
QUICK_TRAININGS, QUICK_EPOCHS = {1: 20, 64: 2}, 10
READ = {"quick": 2, "full": 40}  # heads per job that are read in every way


def jobs(setup: Setup) -> list[Job]:
    """The rows of the table, large ones in several parts."""
    found = []
    for number, (d_embed, trainings, n_heads, _, _) in enumerate(T1_ROWS):
        recipe = minimal_recipe(setup, d_embed, n_heads)
        count = trainings if setup.size == "full" else QUICK_TRAININGS[n_heads]
        for start in range(0, count, TOGETHER[n_heads]):
            models = min(TOGETHER[n_heads], count - start)
            configuration = {
                "recipe": recipe.to_dict(), "first": FIRST_SEED + 10_000 * number + start,
                "models": models, "read": READ[setup.size],
            }  # fmt: skip
            cost = training_cost(recipe, models)
            found.append(Job("minimal", minimal_heads, configuration, VERSION, cost))
    return found


def minimal_heads(recipe: dict[str, Any], first: int, models: int, read: int) -> dict[str, Any]:
    """Train a stack of models whose heads have one dimension; fit a linear probe to every head."""
    config = cl.TrainConfig.from_dict(recipe)
    n_heads, seeds = config.model.n_heads, range(first, first + models)
    result = cl.train(config, seeds=seeds, snapshot_epochs=[config.epochs], progress=False)
    task = cl.Count01(cl.make_splits(config.data_seed))
    tables, readings, left = [], [], read
    for seed, form in zip(seeds, split_stack(result.count_form()), strict=True):
        data = collect(CountRunner(form), task)
        s_acc = Groups(data, np.eye(n_heads, dtype=bool)).probe_accuracy
        tables.append(pd.DataFrame({"seed": seed, "head": range(n_heads), "s_acc": s_acc}))
        if left > 0:
            some = list(range(min(n_heads, left, 5)))
            readings.append(under_each_reading(data, some).assign(seed=seed))
            left -= len(some)
    return {
        "heads": pd.concat(tables, ignore_index=True),
        "readings": pd.concat(readings, ignore_index=True),
        "accuracy": result.history.groupby("model")["test_accuracy"].last().to_numpy(),
    }


def minimal_recipe(setup: Setup, d_embed: int, n_heads: int) -> cl.TrainConfig:
    """The recipe of minimal heads, with the sizes of a row; shorter in a quick run."""
    shape = {"d_embed": d_embed, "n_heads": n_heads, "d_head": 1, "layer_norm": False}
    epochs = setup.minimal.epochs if setup.size == "full" else QUICK_EPOCHS
    return setup.minimal.changed(**shape, epochs=epochs)


def _seeds(configuration: Mapping[str, Any]) -> range:
    return range(configuration["first"], configuration["first"] + configuration["models"])


def measure(load: Load, setup: Setup) -> Measured:
    """Fill the table in, and set it beside the paper's."""
    all_jobs, rows, readings = jobs(setup), [], []
    numbers: dict[str, Any] = {}
    for d_embed, _, n_heads, successful, perfect in T1_ROWS:
        mine = [
            job
            for job in all_jobs
            if job.configuration["recipe"] == minimal_recipe(setup, d_embed, n_heads).to_dict()
        ]
        s_acc = pd.concat([load(job)["heads"]["s_acc"] for job in mine])
        found = {"successful": share(s_acc >= SUCCESSFUL), "perfect": share(s_acc == 1)}
        name = f"d{d_embed}_heads{n_heads}"
        for kind, value in found.items():
            numbers[f"{name}_{kind}"] = _with_interval(value, len(s_acc))
        rows.append(
            {
                "d_embed": d_embed,
                "trainings": sum(job.configuration["models"] for job in mine),
                "heads_each": n_heads,
                "heads": len(s_acc),
                "successful": found["successful"],
                "paper_successful": successful,
                "perfect": found["perfect"],
                "paper_perfect": perfect,
                "median_accuracy": float(
                    np.median(np.concatenate([load(job)["accuracy"] for job in mine]))
                ),
            }
        )
        readings += [load(job)["readings"].assign(size=name) for job in mine]
    table = pd.DataFrame(rows)
    alone = table[table["heads_each"] == 1].set_index("d_embed")["successful"]
    jointly = table[table["heads_each"] == 64].set_index("d_embed")["successful"]
    numbers |= {
        "larger_d_helps": _rank_correlation(alone.to_dict()),
        "joint_worse_d2": float(alone[2] - jointly[2]),
        "joint_worse_d1": float(alone[1] - jointly[1]),
        "trainings": int(table["trainings"].sum()),
        "heads": int(table["heads"].sum()),
    }
    read = pd.concat(readings, ignore_index=True)
    by_reading = pd.concat(
        [summary(part).assign(size=name) for name, part in read.groupby("size", sort=False)],
        ignore_index=True,
    )
    return Measured(
        numbers=numbers,
        shows=f"{table['trainings'].sum():,} trainings, {table['heads'].sum():,} heads: "
        "successful are "
        f"{100 * alone[32]:.0f} % with d = 32 and {100 * alone[1]:.1f} % with d = 1; with d = 2 "
        f"{100 * alone[2]:.1f} % alone and {100 * jointly[2]:.1f} % of 64 trained jointly.",
        tables={"minimal_heads": table, "readings": by_reading},
        figures={"minimal_heads": _figure(table)},
        seeds=[seed for job in all_jobs for seed in _seeds(job.configuration)],
        recipe=recipe_of([minimal_recipe(setup, d, heads) for d, _, heads, _, _ in T1_ROWS]),
    )


def _rank_correlation(shares: Mapping[Any, float]) -> float | None:
    """Of the shares with the sizes they belong to; there is none where all are equal."""
    if len(set(shares.values())) == 1:
        return None
    return float(spearmanr(list(shares), list(shares.values())).statistic)


def _with_interval(value: float, n: int) -> dict[str, Any]:
    """A share with its 95 % Wilson interval."""
    z = 1.96
    middle = (value + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(value * (1 - value) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return {"mean": value, "low": float(middle - half), "high": float(middle + half), "n": n}


def _figure(table: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    x = np.arange(len(table))
    for offset, kind, colour in ((-0.2, "successful", FOUR), (0.2, "perfect", FIVE)):
        axes.bar(x + offset, table[kind], 0.36, color=colour, label=f"{kind}, ours")
        axes.plot(x + offset, table[f"paper_{kind}"], "_", color="black", ms=16, mew=2)
    axes.plot([], [], "_", color="black", ms=12, mew=2, label="the paper's")
    labels = [
        f"d={d_embed}\n{plural(n_heads, 'head')}"
        for d_embed, n_heads in zip(table["d_embed"], table["heads_each"], strict=True)
    ]
    axes.set_xticks(x, labels)
    axes.set(ylabel="share of heads", title="heads with d0 = 1 and no layer norm")
    axes.legend(frameon=False)
    alt = "Shares of successful and perfect heads by embedding size, beside the paper's"
    return Shown(figure, alt, "Bars are ours, black marks the paper's table.")


if __name__ == "__main__":
    main(sys.modules[__name__])
