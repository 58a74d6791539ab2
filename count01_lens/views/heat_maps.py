"""Heat maps of pairs of heads: metrics, gains, interactions."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from count01_lens.common.types import Array
from count01_lens.common.validation import check_choice
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.tables import head_labels
from count01_lens.models.hooks import HeadName
from count01_lens.views.figure_style import points
from count01_lens.views.figures import (
    axes_of,
    set_title,
)
from count01_lens.views.shown_heads import shown_heads

_SIZE = (6.4, 5.6)
_MOST_NUMBERS = 40  # heads with a number in each cell of the diagonal


def plot_pairs(
    analysis: HeadAnalysis,
    metric: str = "s_acc",
    *,
    heads: Iterable[HeadName] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw a metric of single heads (diagonal) and of pairs as a heat map: figure 3 of the paper.

    Args:
        metric: "s_acc", "l_acc" or another of `analysis.pairs`, which has the numbers.
        heads: rows and columns, in this order; by default all heads of which a pair is known.
        ax: where to draw; by default a figure of its own.
    """
    if metric not in analysis.pairs:
        raise ValueError(f"metric: expected one of {sorted(analysis.pairs)}, got {metric!r}")
    matrix, label = analysis.pairs[metric], METRICS[metric].label
    chosen = _chosen(analysis, matrix, heads)
    scale = {"vmin": lowest_shown(analysis, metric), "vmax": 1, "cmap": "viridis"}
    figure, axes = axes_of(ax, *_SIZE)
    set_title(axes, f"{label} of single heads (diagonal) and pairs")
    extend = "min" if scale["vmin"] else "neither"
    _draw_map(axes, analysis, matrix, chosen, label, scale, extend)
    return figure


def lowest_shown(analysis: HeadAnalysis, metric: str) -> float:
    """Where the colours of a metric begin: at a coin flip, if there is one to compare with."""
    several = analysis.data.answer.rest.shape[1] > 2
    return 0.0 if several and metric in ("l_acc", "s_acc") else 0.5


def plot_gains(
    analysis: HeadAnalysis,
    *,
    heads: Iterable[HeadName] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw how much each pair gains in s-acc over its better head, as a heat map.

    The diagonal has the s-acc of single heads. `analysis.gains` has the numbers.

    Args:
        heads: rows and columns, in this order; by default all heads of which a pair is known.
        ax: where to draw; by default a figure of its own.
    """
    chosen = _chosen(analysis, analysis.gains, heads)
    figure, axes = axes_of(ax, *_SIZE)
    set_title(axes, "gain of a pair over its better head (diagonal: s-acc alone, %)")
    _draw_signed_map(axes, analysis, analysis.gains, chosen, "gain in s-acc", least=0.01)
    for place, head in enumerate(chosen if len(chosen) <= _MOST_NUMBERS else ()):
        text = f"{100 * analysis.gains[head, head]:.0f}"
        axes.text(place, place, text, ha="center", va="center", fontsize=points(7))
    return figure


def plot_interactions(
    analysis: HeadAnalysis,
    metric: str = "s_acc",
    *,
    heads: Iterable[HeadName] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the Shapley interaction of every pair of heads as a heat map.

    Blue pairs cooperate, red ones are redundant. All groups have to be known:
    `analysis.with_groups()`; `analysis.interactions(metric)` has the numbers.

    Args:
        metric: "s_acc", "l_acc" or another of `analysis.pairs`.
        heads: rows and columns, in this order; all by default. Interactions are those among all
            heads, whatever is shown.
        ax: where to draw; by default a figure of its own.
    """
    check_choice("metric", metric, sorted(analysis.pairs))
    matrix = analysis.interactions(metric)
    chosen = _chosen(analysis, matrix, heads)
    figure, axes = axes_of(ax, *_SIZE)
    set_title(axes, f"Shapley interaction, {METRICS[metric].label}: cooperate > 0 > redundant")
    _draw_signed_map(axes, analysis, matrix, chosen, "interaction index", least=1e-3)
    return figure


def with_pairs(matrix: Float[Array, "head head"]) -> Int[Array, " known"]:
    """The heads of which some pair is known; all of them if none is."""
    known = ~np.isnan(matrix) & ~np.eye(len(matrix), dtype=bool)
    return np.flatnonzero(known.any(axis=0)) if known.any() else np.arange(len(matrix))


def _chosen(
    analysis: HeadAnalysis, matrix: Array, heads: Iterable[HeadName] | None
) -> Sequence[int]:
    return shown_heads(analysis, heads) if heads is not None else with_pairs(matrix).tolist()


def _draw_signed_map(
    axes: Axes,
    analysis: HeadAnalysis,
    matrix: Array,
    heads: Sequence[int],
    label: str,
    least: float,
) -> None:
    """Draw pairs above zero blue and others red, on a scale that goes at least so far."""
    pairs = matrix.copy()
    np.fill_diagonal(pairs, np.nan)
    largest = np.nanmax(np.append(np.abs(pairs), least))
    scale = {"vmin": -largest, "vmax": largest, "cmap": "RdBu"}
    _draw_map(axes, analysis, pairs, heads, label, scale)


def _draw_map(
    axes: Axes,
    analysis: HeadAnalysis,
    matrix: Array,
    heads: Sequence[int],
    label: str,
    scale: dict[str, Any],
    extend: str = "neither",
) -> None:
    names = [head_labels(analysis.heads)[head] for head in heads]
    image = axes.imshow(matrix[np.ix_(heads, heads)], **scale)
    ticks = range(0, len(heads), max(1, len(heads) // 16))
    axes.set(xlabel="head", ylabel="head")
    _name_ticks(axes, ticks, [names[tick] for tick in ticks])
    axes.tick_params(labelsize=points(8))
    axes.figure.colorbar(image, ax=axes, extend=extend, label=label)


def _name_ticks(axes: Any, ticks: Sequence[int], names: Sequence[str]) -> None:
    if list(names) == [str(tick) for tick in ticks]:
        axes.set(xticks=ticks, yticks=ticks)
        return
    # "10.11" beside "11.0" would run into each other.
    axes.set_xticks(ticks, names, rotation=90 if max(map(len, names)) > 3 else 0)
    axes.set_yticks(ticks, names)
