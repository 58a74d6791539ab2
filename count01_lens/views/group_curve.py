"""A metric against the number of heads in a group: how many heads it takes, and beside what."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from count01_lens.common.validation import check_choice
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.metrics import METRICS
from count01_lens.views.figure_style import points, seen
from count01_lens.views.figures import (
    FIVE,
    FOUR,
    NEUTRAL,
    axes_of,
    legend_below,
    set_title,
)

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BANDS = ((0.05, 0.95, 0.15, "5 % to 95 % of groups"), (0.25, 0.75, 0.3, "25 % to 75 %"))


def groups_by_size(
    analysis: HeadAnalysis, metrics: Sequence[str] = ("l_acc", "roc_auc", "s_acc")
) -> pd.DataFrame:
    """Quantiles of each metric over the groups of each size: the data of `plot_groups`."""
    groups = analysis.groups().set_index("size")[list(metrics)]
    quantiles = groups.rename_axis(columns="metric").stack().groupby(["size", "metric"])
    return pd.DataFrame(quantiles.quantile(np.array(_QUANTILES)).unstack())


def curve_table(analysis: HeadAnalysis, metric: str | None = None) -> pd.DataFrame:
    """The data of `plot_group_curve`: a row per size, from no heads to all of them.

    Columns are the mean and quantiles over all groups of the size, what exact copies would have
    and, where that is known, what independent heads of the same quality would have on average.
    """
    name = analysis.main_metric if metric is None else metric
    check_choice("metric", name, list(analysis.pairs))
    richer = analysis.with_groups()
    known = richer.known_groups
    assert known is not None
    n, empty = len(analysis.heads), known.empty[name]
    table = groups_by_size(analysis, [name]).droplevel("metric")
    table.insert(0, "mean", known.table.groupby("size")[name].mean())
    table.loc[0] = empty
    table = table.sort_index()
    table["copies"] = [empty, *[table["mean"].iloc[-1]] * n]
    if name in richer.independent:
        # The difference is an estimate: added to a mean near 1 it may come out above.
        table["independent"] = (table["mean"] + richer.independent[name].by_size).clip(0, 1)
    return table.rename_axis(columns=None)


def plot_group_curve(
    analysis: HeadAnalysis,
    metric: str | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Draw a metric of all groups of heads against their size, beside copies and independent heads.

    `curve_table` of this module has the numbers.

    Args:
        metric: by default that of the verdict on the answer: s_acc, of several layers l_acc.
        ax: where to draw; by default a figure of its own.
    """
    name = analysis.main_metric if metric is None else metric
    table = curve_table(analysis, name)
    figure, axes = axes_of(ax, 6.0, 4.6)
    sizes, label = table.index.to_numpy(), METRICS[name].label
    for low, high, alpha, words in _BANDS:
        band: dict[str, Any] = {"color": FOUR, "alpha": alpha, "lw": 0, "label": words}
        axes.fill_between(sizes, table[low], table[high], **band)
    axes.plot(sizes, table[0.5], color=FOUR, lw=2, label="median")
    axes.plot(sizes, table["mean"], "o", color=FOUR, mfc=seen("white"), ms=4, label="mean")
    if "independent" in table:
        words = "independent heads of the same quality"
        axes.plot(sizes, table["independent"], "--", color=seen(NEUTRAL), lw=1.8, label=words)
    axes.plot(sizes, table["copies"], ":", color=FIVE, lw=1.8, label="exact copies")
    axes.set(xlabel="heads in the group", ylabel=f"{label} on test prompts")
    axes.set_xticks(sizes[:: 1 + len(sizes) // 12])
    set_title(axes, f"{label} of all groups of heads\n{curve_in_words(table)}", fontsize=points(11))
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes, 38, ncols=2)
    return figure


def curve_in_words(table: pd.DataFrame) -> str:
    """How far one head, half of the heads and all of them get."""
    n, median = len(table) - 1, table[0.5]
    half = f", {median.iloc[n // 2]:.3f} with {n // 2}" if n > 3 else ""
    whole = f", {median.iloc[n]:.3f} with all {n}" if n > 1 else ""
    return f"median {median.iloc[1]:.3f} with one head{half}{whole}"
