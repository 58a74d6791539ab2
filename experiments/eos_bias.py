"""Why heads are biased: train with and without the '[EOS]' loss, and compare."""

import sys
from typing import Any

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure
from experiments.runs import last_heads, recipe_of, run_job, share
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "E2", "Why heads are biased"
CONTRAST = True
PAPER = (
    "The biases of heads to '4' or '5' balance the answer and the '[EOS]' task: the model needs "
    "them so that the answer beats '[EOS]' at '=' and '[EOS]' beats the answer after it"
)
WEIGHTS = {"quick": [0.0, 1.0], "full": [0.0, 0.1, 1.0]}
SEEDS = {"quick": range(7400, 7402), "full": range(7400, 7410)}
ONE_SIDED = 0.95
AXIS = "weight of the '[EOS]' loss"


def jobs(setup: Setup) -> list[Job]:
    """The same seeds with different weights of the '[EOS]' loss, trained as one stack."""
    seeds = list(SEEDS[setup.size])
    half = max(1, len(seeds) // 2)
    parts = [seeds] if setup.size == "quick" else [seeds[:half], seeds[half:]]
    return [run_job(_recipes(setup), part, [setup.epochs]) for part in parts]


def _recipes(setup: Setup) -> list[cl.TrainConfig]:
    return [setup.trained(eos_weight=weight) for weight in WEIGHTS[setup.size]]


def measure(load: Load, setup: Setup) -> Measured:
    """Compare biases and single-head l-acc, seed by seed."""
    tables = []
    for job in jobs(setup):
        heads = last_heads([job], load)
        weights = [recipe["eos_weight"] for recipe in job.configuration["recipes"]]
        n_seeds = len(job.configuration["seeds"])
        tables.append(heads.assign(eos_weight=[weights[m // n_seeds] for m in heads["model"]]))
    heads = pd.concat(tables, ignore_index=True)
    runs = (
        heads.groupby(["eos_weight", "seed"])
        .agg(
            biased=("one_sided", lambda values: share(values >= ONE_SIDED)),
            at_half=("l_acc", lambda values: share(values.between(0.45, 0.55))),
            l_acc=("l_acc", "mean"),
            s_acc=("s_acc", "mean"),
            mean_abs_margin=("mean_margin", lambda values: float(np.mean(np.abs(values)))),
            spread_of_margin=("std_margin", "mean"),
            accuracy=("accuracy", "first"),
            eos_accuracy=("eos_accuracy", "first"),
        )
        .reset_index()
    )
    with_loss = runs[runs["eos_weight"] == 1].set_index("seed")
    without = runs[runs["eos_weight"] == 0].set_index("seed")
    fewer = with_loss["biased"] - without["biased"]
    rises = without["l_acc"] - with_loss["l_acc"]
    return Measured(
        numbers={
            "fewer_biased": spread(fewer),
            "l_acc_rises": spread(rises),
            "biased_with": spread(with_loss["biased"]),
            "biased_without": spread(without["biased"]),
            "l_acc_with": spread(with_loss["l_acc"]),
            "l_acc_without": spread(without["l_acc"]),
            "at_half_with": spread(with_loss["at_half"]),
            "at_half_without": spread(without["at_half"]),
        },
        shows=f"Trained with the '[EOS]' loss {100 * with_loss['biased'].mean():.0f} % of heads "
        f"are biased (one answer on 95 % of sentences), without it "
        f"{100 * without['biased'].mean():.0f} %; "
        f"single heads answer {100 * with_loss['l_acc'].mean():.0f} % right with it and "
        f"{100 * without['l_acc'].mean():.0f} % without, at the same seeds.",
        tables={"runs": runs, "heads": heads},
        figures={"eos_bias": _figure(heads, runs)},
        seeds=list(SEEDS[setup.size]),
        recipe=recipe_of(_recipes(setup)),
    )


def _figure(heads: pd.DataFrame, runs: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(11, 4.2), layout="constrained")
    weights = sorted(heads["eos_weight"].unique())
    colours = [FOUR, NEUTRAL, FIVE] if len(weights) == 3 else [FOUR, FIVE]
    left, middle, right = (figure.add_subplot(1, 3, place) for place in (1, 2, 3))
    for weight, colour in zip(weights, colours, strict=True):
        values = np.sort(heads[heads["eos_weight"] == weight]["one_sided"])
        share_of_heads = np.linspace(0, 1, len(values))
        left.plot(values, share_of_heads, color=colour, lw=2, label=f"{weight:g}")
    left.axvspan(ONE_SIDED, 1, color=END, alpha=0.15, lw=0)
    left.text(ONE_SIDED - 0.005, 0.03, "biased →", ha="right", color=END)
    left.set(xlabel="share of sentences with the favoured answer", ylabel="share of heads up to it")
    left.set(title="how one-sided heads are", xlim=(0.49, 1.01))
    left.legend(frameon=False, title=AXIS, alignment="left", loc="upper left")
    _seed_by_seed(middle, runs, "biased", weights, colours)
    middle.set(title="share of biased heads", ylim=(0, 1))
    _seed_by_seed(right, runs, "l_acc", weights, colours)
    right.set(title="mean l-acc of single heads", ylim=(0.5, 1))
    alt = (
        "Three panels: heads are less one-sided without the [EOS] loss; seed by seed, fewer are "
        "biased and they answer better alone"
    )
    caption = (
        "Left: how often a head's share favours the answer that it favours more often. Middle and "
        "right: a thin line per seed, the mean with its value."
    )
    return Shown(figure, alt, caption)


def _seed_by_seed(
    axes: Any, runs: pd.DataFrame, column: str, weights: list[float], colours: list[str]
) -> None:
    """Draw a line for each seed over the weights, and the mean."""
    table = runs.pivot(index="eos_weight", columns="seed", values=column).loc[weights].to_numpy()
    places = np.arange(len(weights))
    axes.plot(places, table, color=NEUTRAL, lw=0.7, alpha=0.7, marker="o", ms=3)
    means = table.mean(axis=1)
    axes.plot(places, means, color="black", lw=2, zorder=3)
    axes.scatter(places, means, c=colours, s=90, marker="D", ec="black", zorder=4)
    for place, mean in zip(places, means, strict=True):
        style = {"ha": "center", "zorder": 5, "textcoords": "offset points", "xytext": (0, 11)}
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8}
        axes.annotate(f"{mean:.2f}", (place, mean), bbox=box, fontweight="bold", **style)
    axes.set_xticks(places, [f"{weight:g}" for weight in weights])
    axes.set(xlim=(-0.4, len(weights) - 0.6), xlabel=AXIS)


if __name__ == "__main__":
    main(sys.modules[__name__])
