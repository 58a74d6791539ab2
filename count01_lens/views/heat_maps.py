"""Heat maps of pairs of heads: metrics, gains, interactions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from count01_lens.common.types import Array
from count01_lens.common.validation import check_choice
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.tables import head_labels
from count01_lens.views.figures import new_figure

_MOST_NUMBERS = 40  # heads with a number in each cell of the diagonal


def plot_pairs(analysis: HeadAnalysis, metric: str = "s_acc") -> Figure:
    """Heat map of a metric for single heads (diagonal) and pairs: figure 3 of the paper.

    Of many heads only some pairs may be known: then the map has the heads of those.
    """
    if metric not in analysis.pairs:
        raise ValueError(f"metric: expected one of {sorted(analysis.pairs)}, got {metric!r}")
    matrix, label = analysis.pairs[metric], METRICS[metric].label
    scale = {"vmin": lowest_shown(analysis, metric), "vmax": 1, "cmap": "viridis"}
    title = f"{label} of single heads (diagonal) and pairs"
    return _heat_map(analysis, matrix, title, label, scale, extend="min" * bool(scale["vmin"]))


def lowest_shown(analysis: HeadAnalysis, metric: str) -> float:
    """Where the colours of a metric begin: at a coin flip, if there is one to compare with."""
    several = analysis.data.answer.rest.shape[1] > 2
    return 0.0 if several and metric in ("l_acc", "s_acc") else 0.5


def plot_gains(analysis: HeadAnalysis) -> Figure:
    """Gain in s-acc of each pair over its better head; s-acc of single heads on the diagonal."""
    title = "gain of a pair over its better head (diagonal: s-acc alone, %)"
    figure = _signed_heat_map(analysis, analysis.gains, title, "gain in s-acc", least=0.01)
    heads = with_pairs(analysis.gains)
    for place, head in enumerate(heads if len(heads) <= _MOST_NUMBERS else ()):
        text = f"{100 * analysis.gains[head, head]:.0f}"
        figure.axes[0].text(place, place, text, ha="center", va="center", fontsize=7)
    return figure


def plot_interactions(analysis: HeadAnalysis, metric: str = "s_acc") -> Figure:
    """Shapley interaction of every pair: blue pairs cooperate, red ones repeat each other."""
    check_choice("metric", metric, sorted(analysis.pairs))
    title = f"Shapley interaction, {METRICS[metric].label}: cooperate > 0 > redundant"
    matrix = analysis.interactions(metric)
    return _signed_heat_map(analysis, matrix, title, "interaction index", least=1e-3)


def with_pairs(matrix: Float[Array, "head head"]) -> Int[Array, " known"]:
    """The heads of which some pair is known; all of them if none is."""
    known = ~np.isnan(matrix) & ~np.eye(len(matrix), dtype=bool)
    return np.flatnonzero(known.any(axis=0)) if known.any() else np.arange(len(matrix))


def _signed_heat_map(
    analysis: HeadAnalysis, matrix: Array, title: str, label: str, least: float
) -> Figure:
    """Draw pairs above zero blue and others red, on a scale that goes at least so far."""
    pairs = matrix.copy()
    np.fill_diagonal(pairs, np.nan)
    largest = np.nanmax(np.append(np.abs(pairs), least))
    scale = {"vmin": -largest, "vmax": largest, "cmap": "RdBu"}
    return _heat_map(analysis, pairs, title, label, scale)


def _heat_map(
    analysis: HeadAnalysis,
    matrix: Array,
    title: str,
    label: str,
    scale: dict[str, Any],
    extend: str = "",
) -> Figure:
    figure, axes = new_figure(6.4, 5.6)
    heads = with_pairs(matrix)
    names = [head_labels(analysis.heads)[head] for head in heads]
    image = axes.imshow(matrix[np.ix_(heads, heads)], **scale)
    ticks = range(0, len(heads), max(1, len(heads) // 16))
    axes.set(title=title, xlabel="head", ylabel="head")
    _name_ticks(axes, ticks, [names[tick] for tick in ticks])
    axes.tick_params(labelsize=8)
    figure.colorbar(image, ax=axes, extend=extend or "neither", label=label)
    return figure


def _name_ticks(axes: Any, ticks: Sequence[int], names: Sequence[str]) -> None:
    if list(names) == [str(tick) for tick in ticks]:
        axes.set(xticks=ticks, yticks=ticks)
        return
    # "10.11" beside "11.0" would run into each other.
    axes.set_xticks(ticks, names, rotation=90 if max(map(len, names)) > 3 else 0)
    axes.set_yticks(ticks, names)
