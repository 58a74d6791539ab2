"""Why heads are biased: train with and without the '[EOS]' loss, and compare."""

import sys

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure
from count01_lens.jobs import Job
from experiments.runs import MAIN, last_heads, run_job, share
from experiments.suite import Load, Measured, Shown, Size, main, spread

ROW, TITLE = "E2", "Why heads are biased"
PAPER = (
    "The biases of heads to '4' or '5' balance the answer and the '[EOS]' task: the model needs "
    "them so that the answer beats '[EOS]' at '=' and '[EOS]' beats the answer after it"
)
WEIGHTS = {"quick": [0.0, 1.0], "full": [0.0, 0.1, 1.0]}
SEEDS = {"quick": range(400, 402), "full": range(400, 410)}
EPOCHS = {"quick": 50, "full": 100}
ONE_SIDED = 0.95


def jobs(size: Size) -> list[Job]:
    """The same seeds with different weights of the '[EOS]' loss, trained as one stack."""
    epochs = EPOCHS[size]
    recipes = [cl.TrainConfig(eos_weight=weight, epochs=epochs) for weight in WEIGHTS[size]]
    seeds = list(SEEDS[size])
    half = max(1, len(seeds) // 2)
    parts = [seeds] if size == "quick" else [seeds[:half], seeds[half:]]
    return [run_job(recipes, part, [epochs]) for part in parts]


def measure(load: Load, size: Size) -> Measured:
    """Compare biases and single-head l-acc, seed by seed."""
    tables = []
    for job in jobs(size):
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
        "are "
        ""
        f"biased (one answer on 95 % of sentences), without it "
        f"{100 * without['biased'].mean():.0f} %; "
        f"single heads answer {100 * with_loss['l_acc'].mean():.0f} % right with it and "
        f"{100 * without['l_acc'].mean():.0f} % without, at the same seeds.",
        tables={"runs": runs, "heads": heads},
        figures={"eos_bias": _figure(heads, runs)},
        seeds=list(SEEDS[size]),
        recipe=MAIN.to_dict(),
    )


def _figure(heads: pd.DataFrame, runs: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(10.5, 4.2), layout="constrained")
    weights = sorted(heads["eos_weight"].unique())
    colours = dict(
        zip(weights, (FOUR, NEUTRAL, FIVE) if len(weights) == 3 else (FOUR, FIVE), strict=True)
    )
    words = {0.0: "without '[EOS]' loss", 1.0: "with it", 0.1: "a tenth of it"}
    left, middle, right = (figure.add_subplot(1, 3, place) for place in (1, 2, 3))
    for weight in weights:
        group = heads[heads["eos_weight"] == weight]
        values = np.sort(group["one_sided"])
        left.plot(
            values, np.linspace(0, 1, len(values)), color=colours[weight], lw=2, label=words[weight]
        )
        values = np.sort(group["l_acc"])
        middle.plot(values, np.linspace(0, 1, len(values)), color=colours[weight], lw=2)
    left.axvline(ONE_SIDED, color=END, lw=0.8, ls=":")
    left.set(xlabel="sentences on which a head favours one answer", ylabel="share of heads")
    left.set_title("how one-sided heads are")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    middle.set(xlabel="l-acc alone", title="how well heads answer alone")
    for _, pair in runs.groupby("seed"):
        ordered = pair.sort_values("eos_weight")
        right.plot(
            ordered["eos_weight"], ordered["biased"], color=NEUTRAL, lw=0.8, marker="o", ms=4
        )
    right.set(
        xlabel="weight of the '[EOS]' loss", ylabel="share of biased heads", ylim=(-0.02, 1.02)
    )
    right.set_title("seed by seed")
    alt = "Distributions of one-sidedness and l-acc of heads with and without the [EOS] loss"
    return Shown(
        figure, alt, "Left and middle: shares of heads up to a value. Right: a line per seed."
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
