"""The paper's figures from an analysis, and more. Numbers come first: every figure draws a table.

Each function returns a matplotlib Figure and changes no global state of matplotlib. Colours are
safe for colour-blind readers, and every figure reads in print. All figures can be had from here.

One rule for where things are drawn: `ax` takes the matplotlib Axes of a figure of your own; where
there are several panels, as many Axes, in their order, such as `figure.subplots(1, 2)`. Without
`ax` a figure is made, in the style that is set; its size is in proportion to the width in
`rcParams["figure.figsize"]`. `heads` are drawn in the order given.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from count01_lens.common.types import HookedTransformer
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.groups import LARGEST_EXACT
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.runners import CountRunner, runner_for
from count01_lens.heads.tables import head_labels
from count01_lens.models.hooks import HeadName
from count01_lens.tasks.language import COUNTED
from count01_lens.views.count_plots import logit_table as logit_table
from count01_lens.views.count_plots import plot_attention_ratios as plot_attention_ratios
from count01_lens.views.count_plots import plot_logits as plot_logits
from count01_lens.views.count_plots import plot_sweep as plot_sweep
from count01_lens.views.count_plots import plot_tables as plot_tables
from count01_lens.views.effect_plots import has_effects
from count01_lens.views.effect_plots import lift_table as lift_table
from count01_lens.views.effect_plots import plot_effects as plot_effects
from count01_lens.views.effect_plots import plot_lifts as plot_lifts
from count01_lens.views.figure_style import own_style, points, seen
from count01_lens.views.figures import (
    END,
    FIVE,
    FOUR,
    MOST_HEADS,
    NEUTRAL,
    axes_of,
    set_title,
)
from count01_lens.views.group_curve import curve_table as curve_table
from count01_lens.views.group_curve import groups_by_size as groups_by_size
from count01_lens.views.group_curve import plot_group_curve as plot_group_curve
from count01_lens.views.heat_maps import plot_gains as plot_gains
from count01_lens.views.heat_maps import plot_interactions as plot_interactions
from count01_lens.views.heat_maps import plot_pairs as plot_pairs
from count01_lens.views.network_plot import network_of as network_of
from count01_lens.views.network_plot import plot_cooperation as plot_cooperation
from count01_lens.views.network_plot import plot_network as plot_network
from count01_lens.views.output_tiles import tile_of, tiles_figure
from count01_lens.views.shown_heads import shown_heads
from count01_lens.views.wording import Words, of_count01


@own_style()
def draw_all(model: HookedTransformer, analysis: HeadAnalysis) -> dict[str, Figure]:
    """Draw every figure that applies, by name; those of all groups only where they are known.

    They go to files, so that they do not follow the style of the user.
    """
    figures = {f"pairs_{metric}": plot_pairs(analysis, metric) for metric in analysis.pairs}
    figures["gains"] = plot_gains(analysis)
    best = strongest(analysis)
    figures["head_outputs"] = plot_head_outputs(model, analysis, best)
    if analysis.counts is not None:
        if {"w01", "w02"} <= set(analysis.counts):
            figures["attention_ratios"] = plot_attention_ratios(analysis)
        figures |= {f"tables_head_{h}": plot_tables(model, h) for h in range(len(analysis.table))}
    if has_paper_logits(analysis):
        figures["logits"] = plot_logits(model, analysis.task)
    else:
        figures["lifts"] = plot_lifts(analysis)
    if has_effects(analysis):
        figures["effects"] = plot_effects(analysis)
    if analysis.known_groups is not None:
        if len(analysis.heads) > 1:
            figures["cooperation"] = plot_cooperation(analysis)
        figures["groups"] = plot_groups(analysis)
        for metric in analysis.pairs:
            figures[f"interactions_{metric}"] = plot_interactions(analysis, metric)
    if analysis.known_groups is not None or sampled(analysis):
        figures["shapley"] = plot_shapley(analysis)
    return figures


def has_paper_logits(analysis: HeadAnalysis) -> bool:
    """Whether figure 1 of the paper applies; `plot_lifts` is the like of it for everything else."""
    return analysis.counts is not None and of_count01(analysis)


def strongest(analysis: HeadAnalysis, most: int = MOST_HEADS) -> list[int]:
    """Numbers of the heads of best s-acc, in their own order: all of them if they are few."""
    order = analysis.table["s_acc"].sort_values(ascending=False, kind="stable")
    return sorted(order.index[:most])


def plot_groups(analysis: HeadAnalysis, *, ax: Axes | None = None) -> Figure:
    """Draw how l-acc, ROC AUC and s-acc vary over all groups of each size: figure 4 of the paper.

    All groups have to be known: `analysis.with_groups()`. `groups_by_size` of this module has the
    numbers.

    Args:
        ax: where to draw; by default a figure of its own.
    """
    figure, axes = axes_of(ax, 8.0, 4.2)
    table = groups_by_size(analysis)
    sizes = table.index.unique("size").to_numpy()
    styles = {"s_acc": (FOUR, "o"), "roc_auc": (END, "s"), "l_acc": (FIVE, "^")}
    for offset, (metric, (colour, marker)) in zip((-0.22, 0, 0.22), styles.items(), strict=True):
        rows = table.xs(metric, level="metric")
        axes.vlines(sizes + offset, rows[0.05], rows[0.95], color=colour, lw=1)
        axes.vlines(sizes + offset, rows[0.25], rows[0.75], color=colour, lw=4, alpha=0.5)
        label = METRICS[metric].label
        axes.plot(sizes + offset, rows[0.5], marker, color=colour, ms=4, label=label)
    axes.set(xlabel="heads in the group", ylabel="metric on the test split", xticks=sizes)
    set_title(axes, "all groups: median, quartiles, 5 % and 95 %")
    axes.legend(frameon=False, loc="lower right")
    axes.grid(axis="y", alpha=0.3)
    return figure


def plot_head_outputs(
    model: HookedTransformer,
    analysis: HeadAnalysis,
    heads: Iterable[HeadName] | None = None,
    *,
    whole: bool = False,
    ax: Axes | None = None,
) -> Figure:
    """Draw head outputs on the test split, with value vectors and probe: figure 6 of the paper.

    Heads of another size than 2 are shown along the two main directions of their outputs. Value
    vectors are shown where counts describe the model, a probe where it decides between two answers.

    Args:
        heads: a tile each, in this order; all by default. `analysis.data` has the numbers.
        whole: show value vectors in their places and the training split, too; by default outputs
            are shown closely, with value vectors outside at the edge.
        ax: where to draw all tiles; by default a figure of its own.
    """
    chosen = shown_heads(analysis, heads)
    analysis.made_from.check_weights(model)
    runner = runner_for(model) if has_paper_logits(analysis) else None
    weights = None if analysis.fits is None else analysis.fits.weights
    # Where counts do not describe a model, value vectors differ from place to place.
    known = runner.form.values[0].double().numpy() if isinstance(runner, CountRunner) else None
    words = Words.of(analysis, model)
    tiles = [
        tile_of(
            f"head {words.heads[head]}: s-acc {analysis.table['s_acc'].iloc[head]:.3f}",
            analysis.data,
            head,
            None if known is None else known[head, list(COUNTED)],
            None if weights is None else weights[head],
            whole,
        )
        for head in chosen
    ]
    answers = () if words.is_count01 else words.answers
    return tiles_figure(tiles, tile_inches=2.6, answers=answers, ax=ax)


def plot_shapley(
    analysis: HeadAnalysis,
    *,
    heads: Iterable[HeadName] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the Shapley value of heads by each metric; sampled ones with their standard errors.

    `shapley_table` of this module has the numbers.

    Args:
        heads: which to draw, in this order; by default all, or of many those of largest values.
        ax: where to draw; by default a figure of its own.
    """
    chosen = None if heads is None else shown_heads(analysis, heads)
    table = shapley_table(analysis)
    metrics = [name for name in table if name in METRICS]
    shown = _most_worth(table, metrics) if chosen is None else table.loc[chosen]
    few = chosen is None and len(shown) < len(table)
    figure, axes = axes_of(ax, 11.0 if few else 8.0, 4.0)
    places, width = np.arange(len(shown)), 0.8 / len(metrics)
    colours = dict(zip(METRICS, itertools.cycle((FIVE, NEUTRAL, FOUR, END)), strict=False))
    for number, metric in enumerate(metrics):
        offset = (number - (len(metrics) - 1) / 2) * width
        label, error = METRICS[metric].label, f"{metric}_error"
        x = places + offset
        axes.bar(x, shown[metric], width, color=seen(colours[metric]), label=label)
        if error in shown:
            lines: dict[str, Any] = {"fmt": "none", "ecolor": seen("black"), "lw": 0.8}
            axes.errorbar(x, shown[metric], shown[error], **lines)
    axes.axhline(0, color=seen("black"), lw=0.8)
    axes.set(xlabel="head", ylabel="Shapley value", xticks=places)
    names = [head_labels(analysis.heads)[head] for head in shown.index]
    if names != [str(place) for place in places]:
        axes.set_xticks(places, names, rotation=90 if len(names) > 20 else 0, fontsize=points(8))
    set_title(
        axes,
        f"the {len(shown)} heads of largest Shapley values" * few
        or "what each head is worth; below zero it works against the rest",
    )
    axes.legend(frameon=False)
    return figure


def shapley_table(analysis: HeadAnalysis) -> pd.DataFrame:
    """Shapley values by head and metric; of sampled ones also standard errors."""
    estimates = sampled(analysis)
    if not estimates or len(analysis.heads) <= LARGEST_EXACT:
        return pd.DataFrame({metric: analysis.shapley(metric) for metric in analysis.pairs})
    columns: dict[str, Any] = {}
    for metric, estimate in estimates.items():
        columns |= {metric: estimate.values, f"{metric}_error": estimate.standard_errors}
    return pd.DataFrame(columns)


def sampled(analysis: HeadAnalysis) -> dict[str, Any]:
    """Estimates of Shapley values by metric, if the analysis has some."""
    return {
        name: estimate
        for name, estimate in (getattr(analysis, "sampled", None) or {}).items()
        if name in METRICS
    }


def _most_worth(table: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """The heads with the largest values by any metric, in their own order."""
    largest = table[metrics].abs().max(axis=1).sort_values(ascending=False, kind="stable")
    return table.loc[sorted(largest.index[:MOST_HEADS])]
