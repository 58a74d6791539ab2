"""Draw interactions over training, and along the distance that weights travelled."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from count01_lens.heads.metrics import METRICS
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure
from experiments.change_rules import JUDGED, RECIPES, over_training
from experiments.cooperation_bounds import INTERACTION
from experiments.cooperation_figure import NAMES

_COLOURS = {"l_acc": FIVE, "roc_auc": NEUTRAL, "s_acc": FOUR, "eos_l_acc": END}
_OF_RECIPE = {"paper": (FOUR, "-"), "accurate": (FIVE, "--")}
_TICKS = (0, 0.1, 1, 10, 100)


def training_figure(results: pd.DataFrame, verdict: Mapping[str, Any]) -> NotebookFigure:
    """Draw the mean interaction over the epochs, a panel for each recipe."""
    figure = NotebookFigure(figsize=(6.4, 6.6), layout="constrained")
    grid = figure.subplots(len(RECIPES), 1, sharex=True)
    for axes, recipe in zip(grid, RECIPES, strict=True):
        _zero(axes)
        for metric in JUDGED:
            curve = over_training(results, recipe, metric)
            colour = _COLOURS[metric]
            _line(axes, curve, "epoch", colour, METRICS[metric].label)
            place = verdict["changes"][recipe][metric]["place"]
            if place is not None:
                at = curve[place]
                axes.plot(at["epoch"], at["mean"], "o", ms=8, mfc="white", mec=colour, mew=1.8)
        axes.set_xscale("symlog", linthresh=0.05, linscale=0.4)
        axes.set_xticks(_TICKS, labels=[f"{tick:g}" for tick in _TICKS])
        axes.set(xlim=(0, 100), ylabel="mean interaction")
        axes.set_title(f"{NAMES[recipe]}: ↑ cooperate, ↓ redundant", fontsize=11)
    grid[-1].set_xlabel("epoch")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


def distance_figure(results: pd.DataFrame) -> NotebookFigure:
    """Draw the mean interaction along the distance travelled, a panel for each metric."""
    figure = NotebookFigure(figsize=(6.4, 5.4), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True)
    for axes, metric in zip(grid.flat, JUDGED, strict=True):
        _zero(axes)
        for recipe, (colour, style) in _OF_RECIPE.items():
            curve = over_training(results, recipe, metric)
            _line(axes, curve, "travelled", colour, NAMES[recipe], style)
        axes.set_title(METRICS[metric].label, fontsize=11)
    for axes in grid[-1]:
        axes.set_xlabel("distance travelled by weights")
    for axes in grid[:, 0]:
        axes.set_ylabel("mean interaction")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
    return figure


def _zero(axes: Axes) -> None:
    axes.axhspan(-INTERACTION, INTERACTION, color=NEUTRAL, alpha=0.12, lw=0)
    axes.axhline(0, color="black", lw=0.8)


def _line(
    axes: Axes, curve: list[dict[str, Any]], along: str, colour: str, label: str, style: str = "-"
) -> None:
    """Draw means over seeds and their intervals."""
    x, mean, low, high = (
        np.array([moment[name] for moment in curve], dtype=float)
        for name in (along, "mean", "low", "high")
    )
    axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
    axes.plot(x, mean, style, color=colour, lw=1.8, marker=".", ms=5, label=label)
