"""l-acc, ROC AUC and s-acc of every single head and every pair."""

import sys
from typing import Any

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.common.text import rounded_percent
from count01_lens.jobs.job import Job
from count01_lens.views.figures import FIVE, FOUR, NEUTRAL, NotebookFigure
from count01_lens.views.plots import plot_gains, plot_pairs
from experiments.readings import summary
from experiments.runs import (
    by_seed,
    close_looks,
    last_heads,
    main_jobs,
    models_of,
    share,
    together,
)
from experiments.setup import SHOWN_SEED, Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F3", "Single heads and pairs under three metrics"
CONTRAST = True
PAPER = (
    "s-acc: about half the heads successful, about 40 % failed, few mixed. l-acc: all but one "
    "single head at 50 %, only two pairs above 80 %. ROC AUC in between. Pairs rarely beat their "
    "better head"
)
GAIN = 0.01


def jobs(setup: Setup) -> list[Job]:
    """The main runs."""
    return main_jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Count categories, and compare pairs with their better head."""
    runs = main_jobs(setup)
    heads, pairs = last_heads(runs, load), together(runs, load, "pairs")
    kinds = heads.set_index(["seed", "head"])["category"]
    both_failed = [
        kinds[seed, first] == kinds[seed, second] == "failed"
        for seed, first, second in zip(pairs["seed"], pairs["first"], pairs["second"], strict=True)
    ]
    pairs = pairs.assign(both_failed=both_failed, gains=pairs["s_acc_gain"] > GAIN)
    gaining = pairs[pairs["gains"]]
    numbers: dict[str, Any] = {
        kind: spread(by_seed(heads, lambda rows, kind=kind: share(rows["category"] == kind)))
        for kind in ("successful", "failed", "mixed")
    }
    numbers |= {
        "singles_at_half": spread(by_seed(heads, lambda h: share(h["l_acc"].between(0.45, 0.55)))),
        "pairs_above_80": spread(by_seed(pairs, lambda rows: (rows["l_acc"] > 0.80).sum())),
        "roc_in_between": share(by_seed(heads, _roc_in_between)),
        "pairs_that_gain": spread(by_seed(pairs, lambda rows: share(rows["gains"]))),
        "gains_of_failed": share(gaining["both_failed"]),
        "gains_still_poor": float(gaining[gaining["both_failed"]]["s_acc"].median()),
        "perfect_pairs_of_failed": int((gaining[gaining["both_failed"]]["s_acc"] == 1).sum()),
        "heads": len(heads),
    }
    numbers["gains_still_poor"] = (
        None if np.isnan(numbers["gains_still_poor"]) else numbers["gains_still_poor"]
    )
    looks = close_looks(runs, load).values()
    readings = summary(pd.concat([look["readings"] for look in looks], ignore_index=True))
    named = ("successful", "failed", "mixed", "singles_at_half")
    told = {name: rounded_percent(numbers[name]["mean"]) for name in named}
    return Measured(
        numbers=numbers,
        shows=f"{told['successful']} of heads are successful, {told['failed']} failed, "
        f"{told['mixed']} mixed. Alone, only {told['singles_at_half']} of heads have an l-acc near "
        f"50 %, and {numbers['pairs_above_80']['mean']:.0f} of 120 pairs are above 80 %. The "
        "table has s-acc under each reading of the SVM.",
        tables={"heads": heads, "pairs": pairs, "readings": readings},
        figures=_figures(load, setup, heads),
        seeds=sorted(heads["seed"].unique().tolist()),
        recipe=setup.recipe.to_dict(),
    )


def _roc_in_between(heads: pd.DataFrame) -> bool:
    return bool(heads["l_acc"].mean() <= heads["roc_auc"].mean() <= heads["s_acc"].mean())


def _figures(load: Load, setup: Setup, heads: pd.DataFrame) -> dict[str, Shown]:
    first = main_jobs(setup)[0]
    analysis = cl.analyze_heads(models_of(first, load(first))[SHOWN_SEED])
    figures = {
        f"pairs_{metric}": Shown(
            plot_pairs(analysis, metric),
            f"Heat map of {metric} of all single heads and pairs",
            f"Seed {SHOWN_SEED}: single heads on the diagonal.",
        )
        for metric in ("s_acc", "roc_auc", "l_acc")
    }
    figures["gains"] = Shown(
        plot_gains(analysis),
        "Heat map of gains in s-acc",
        f"Seed {SHOWN_SEED}: gain over the better head.",
    )
    figure = NotebookFigure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.add_subplot()
    bins = np.linspace(0.4, 1.0, 31).tolist()
    for metric, colour in (("s_acc", FOUR), ("roc_auc", NEUTRAL), ("l_acc", FIVE)):
        axes.hist(heads[metric], bins, histtype="step", lw=1.6, color=colour, label=metric)
    axes.set(xlabel="metric on the test split", ylabel="single heads")
    axes.set_title(f"all {len(heads)} single heads of {heads['seed'].nunique()} models")
    axes.legend(frameon=False, loc="upper left")
    figures["single_heads"] = Shown(
        figure, "Histograms of three metrics over all single heads", "All seeds together."
    )
    return figures


if __name__ == "__main__":
    main(sys.modules[__name__])
