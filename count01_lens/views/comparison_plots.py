"""Figures of several models side by side: small heat maps of pairs, metrics by size of group."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from count01_lens.common.text import written_signed
from count01_lens.common.types import Array
from count01_lens.heads.comparison import Comparison
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.thresholds import THRESHOLDS
from count01_lens.views.figure_style import points, seen
from count01_lens.views.figures import (
    FIVE,
    FOUR,
    NEUTRAL,
    answer_colours,
    axes_of,
    drawable,
    panels_of,
    set_title,
)

MOST_MAPS = 24  # more models than this are not drawn one by one
MOST_NAMED = 7  # lines with a colour and a name of their own
_IN_A_ROW = 4


def plot_compared_interactions(
    comparison: Comparison, metric: str, *, ax: Iterable[Axes] | Axes | None = None
) -> Figure:
    """Draw the Shapley interactions of all pairs of heads, a small heat map for each model.

    All are on one scale. Heads are in the order of what they are worth, largest first, so that
    models can be compared: head 3 of one seed has nothing to do with head 3 of another.
    `comparison.interactions(metric)` has the numbers.

    Args:
        metric: one of which all groups were measured.
        ax: where to draw, one Axes for each model; by default a figure of its own.
    """
    found = {name: by_worth(each) for name, each in _shown(comparison, metric).items()}
    rows = math.ceil(len(found) / _IN_A_ROW)
    columns = min(len(found), _IN_A_ROW)
    figure, panels = panels_of(
        ax, len(found), 2.3 * columns + 0.9, 2.45 * rows + 0.3, columns=columns
    )
    pairs = [np.abs(matrix[~np.eye(len(matrix), dtype=bool)]) for matrix in found.values()]
    largest = max([1e-3, *(float(each.max()) for each in pairs if each.size)])
    for axes, (name, matrix) in zip(panels, found.items(), strict=True):
        shown = matrix.copy()
        np.fill_diagonal(shown, np.nan)
        image = axes.imshow(shown, vmin=-largest, vmax=largest, cmap="RdBu")
        mean = float(matrix[np.triu_indices(len(matrix), 1)].mean())
        set_title(axes, f"{drawable(_cut(name))}\nmean {written_signed(mean)}", fontsize=points(9))
        axes.set(xticks=[], yticks=[])
    figure.colorbar(
        image, ax=figure.axes if ax is None else panels, label="interaction", shrink=0.8
    )
    return figure


def by_worth(matrix: Float[Array, "head head"]) -> Float[Array, "head head"]:
    """Put heads in the order of their Shapley values, which are on the diagonal."""
    order = np.argsort(-np.diag(matrix), kind="stable")
    return matrix[np.ix_(order, order)]


def plot_compared_curves(
    comparison: Comparison, *, ax: Iterable[Axes] | Axes | None = None
) -> Figure:
    """Draw the mean value of groups of heads against their size, a line for each model.

    `comparison.curves` has the numbers.

    Args:
        ax: where to draw, one Axes for each metric; by default a figure of its own.
    """
    curves = comparison.curves
    metrics = comparison.metrics
    columns = min(2, len(metrics))
    rows = math.ceil(len(metrics) / columns)
    figure, panels = panels_of(ax, len(metrics), 4.2 * columns, 3.0 * rows + 0.4, columns=columns)
    names = list(comparison.table["model"])
    few = len(names) <= MOST_NAMED
    colours = answer_colours(len(names)) if few else [NEUTRAL] * len(names)
    for axes, metric in zip(panels, metrics, strict=True):
        of_metric = curves[curves["metric"] == metric]
        for name, colour in zip(names, colours, strict=True):
            _draw_curve(axes, of_metric[of_metric["model"] == name], name, seen(colour), few)
        set_title(axes, METRICS[metric].label, fontsize=points(10))
        axes.set(xlabel="heads in the group", ylabel="mean over groups")
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
        axes.grid(axis="y", alpha=0.3)
    if few and ax is not None:
        panels[0].legend(frameon=False, fontsize=points(8))
    elif few:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


def plot_compared_means(comparison: Comparison, *, ax: Axes | None = None) -> Figure:
    """Draw the mean interaction of every model by every metric, and its interval over models.

    `comparison.table` and `comparison.interaction(metric)` have the numbers.

    Args:
        ax: where to draw; by default a figure of its own.
    """
    metrics = comparison.metrics
    figure, axes = axes_of(ax, 6.4, 0.9 + 0.62 * len(metrics))
    axes.axvspan(-THRESHOLDS.mean, THRESHOLDS.mean, color=seen(NEUTRAL), alpha=0.15, lw=0)
    axes.axvline(0, color=seen(NEUTRAL), lw=0.8)
    for row, metric in enumerate(metrics):
        values, interval = (
            comparison.table[f"{metric}_mean_interaction"],
            comparison.interaction(metric),
        )
        colour = FOUR if interval.mean >= 0 else FIVE
        axes.scatter(values, [row + 0.2] * len(values), 16, color=colour, alpha=0.55, lw=0)
        if interval.low is not None and interval.high is not None:
            axes.plot([interval.low, interval.high], [row, row], color=colour, lw=2.4)
        axes.plot(interval.mean, row, "o", color=colour, ms=8, mec=seen("white"))
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
