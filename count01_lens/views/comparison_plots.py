"""Figures of several models side by side: small heat maps of pairs, metrics by size of group."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from count01_lens.common.text import written_signed
from count01_lens.common.types import Array
from count01_lens.heads.comparison import Comparison
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.thresholds import THRESHOLDS
from count01_lens.views.figures import FIVE, FOUR, NEUTRAL, NotebookFigure, answer_colours, drawable

MOST_MAPS = 24  # more models than this are not drawn one by one
MOST_NAMED = 7  # lines with a colour and a name of their own
_IN_A_ROW = 4


def plot_all_interactions(comparison: Comparison, metric: str) -> Figure:
    """Draw the interactions of all pairs of heads, a small heat map for each model, on one scale.

    Heads are in the order of what they are worth, largest first, so that models can be compared:
    head 3 of one seed has nothing to do with head 3 of another.
    """
    found = {name: by_worth(each) for name, each in _shown(comparison, metric).items()}
    rows = math.ceil(len(found) / _IN_A_ROW)
    columns = min(len(found), _IN_A_ROW)
    figure = NotebookFigure(figsize=(2.3 * columns + 0.9, 2.45 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    pairs = [np.abs(matrix[~np.eye(len(matrix), dtype=bool)]) for matrix in found.values()]
    largest = max([1e-3, *(float(each.max()) for each in pairs if each.size)])
    for axes in grid.flat[len(found) :]:
        axes.set_axis_off()
    for axes, (name, matrix) in zip(grid.flat, found.items(), strict=False):
        shown = matrix.copy()
        np.fill_diagonal(shown, np.nan)
        image = axes.imshow(shown, vmin=-largest, vmax=largest, cmap="RdBu")
        mean = float(matrix[np.triu_indices(len(matrix), 1)].mean())
        axes.set_title(f"{drawable(_cut(name))}\nmean {written_signed(mean)}", fontsize=9)
        axes.set(xticks=[], yticks=[])
    figure.colorbar(image, ax=grid, label="interaction", shrink=0.8)
    return figure


def by_worth(matrix: Float[Array, "head head"]) -> Float[Array, "head head"]:
    """Put heads in the order of their Shapley values, which are on the diagonal."""
    order = np.argsort(-np.diag(matrix), kind="stable")
    return matrix[np.ix_(order, order)]


def plot_curves(comparison: Comparison) -> Figure:
    """Draw the mean value of groups against their size, a panel per metric, a line per model."""
    curves = comparison.curves
    metrics = comparison.metrics
    columns = min(2, len(metrics))
    rows = math.ceil(len(metrics) / columns)
    figure = NotebookFigure(figsize=(4.2 * columns, 3.0 * rows + 0.4), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    names = list(comparison.table["model"])
    few = len(names) <= MOST_NAMED
    colours = answer_colours(len(names)) if few else [NEUTRAL] * len(names)
    for axes in grid.flat[len(metrics) :]:
        axes.set_axis_off()
    for axes, metric in zip(grid.flat, metrics, strict=False):
        of_metric = curves[curves["metric"] == metric]
        for name, colour in zip(names, colours, strict=True):
            _draw_curve(axes, of_metric[of_metric["model"] == name], name, colour, few)
        axes.set_title(METRICS[metric].label, fontsize=10)
        axes.set(xlabel="heads in the group", ylabel="mean over groups")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", alpha=0.3)
    if few:
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


def plot_means(comparison: Comparison) -> Figure:
    """Draw the mean interaction of every model by every metric, and its interval over models."""
    metrics = comparison.metrics
    figure = NotebookFigure(figsize=(6.4, 0.9 + 0.62 * len(metrics)), layout="constrained")
    axes = figure.add_subplot()
    axes.axvspan(-THRESHOLDS.mean, THRESHOLDS.mean, color=NEUTRAL, alpha=0.15, lw=0)
    axes.axvline(0, color=NEUTRAL, lw=0.8)
    for row, metric in enumerate(metrics):
        values, interval = (
            comparison.table[f"{metric}_mean_interaction"],
            comparison.interaction(metric),
        )
        colour = FOUR if interval.mean >= 0 else FIVE
        axes.scatter(values, [row + 0.2] * len(values), 16, color=colour, alpha=0.55, lw=0)
        if interval.low is not None and interval.high is not None:
            axes.plot([interval.low, interval.high], [row, row], color=colour, lw=2.4)
        axes.plot(interval.mean, row, "o", color=colour, ms=8, mec="white")
    axes.set_yticks(range(len(metrics)), [METRICS[metric].label for metric in metrics])
    axes.set_ylim(len(metrics) - 0.5, -0.5)
    axes.set_xlabel("mean interaction of two heads: ← redundant | cooperate →")
    return figure


def _draw_curve(axes: Axes, rows: pd.DataFrame, name: str, colour: str, few: bool) -> None:
    whole = len(rows) > 1 and bool((np.diff(rows["size"]) == 1).all())
    axes.plot(
        rows["size"],
        rows["mean"],
        # Where only the ends are known nobody knows what is between them.
        ls="-" if whole else "",
        marker="o" if len(rows) <= 20 else "",
        ms=3.5,
        lw=1.6 if few else 0.8,
        alpha=1.0 if few else 0.5,
        color=colour,
        label=drawable(_cut(name)),
    )


def _shown(comparison: Comparison, metric: str) -> Mapping[str, Float[Array, "head head"]]:
    found = comparison.interactions(metric)
    names: Sequence[str] = [name for name, matrix in found.items() if len(matrix) > 1]
    if not names:
        raise ValueError(
            f"metric: expected one with all groups measured of some model, got {metric!r}; see "
            "groups and probes of compare_heads"
        )
    return {name: found[name] for name in names[:MOST_MAPS]}


def _cut(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:10]}…{name[-12:]}"
