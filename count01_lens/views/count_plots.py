"""Figures of Count01 and of models that run on counts: ratios, logits, sweeps, tables."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from count01_lens.attention.sweeps import RatioSweep
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.readout import ov_table, qk_table
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.runners import runner_for
from count01_lens.heads.tables import head_labels
from count01_lens.models.hooks import HeadName
from count01_lens.tasks.count01 import Count01, as_task
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.language import Token
from count01_lens.tasks.prompts import Task
from count01_lens.views.figure_style import keep_colour, points, seen
from count01_lens.views.figures import (
    END,
    FIVE,
    FOUR,
    NEUTRAL,
    axes_of,
    check_axes,
    drawable,
    legend_below,
    panels_of,
    set_title,
)
from count01_lens.views.point_labels import label_points
from count01_lens.views.shown_heads import numbers_in_order, shown_heads


def plot_attention_ratios(
    analysis: HeadAnalysis,
    *,
    heads: Iterable[HeadName] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw s-acc of heads by their attention ratios w01 and w02: figure 5 of the paper.

    Heads that lie on each other share a label. `analysis.table` has the numbers.

    Args:
        heads: which to draw; all by default.
        ax: where to draw; by default a figure of its own.
    """
    if analysis.counts is None or not {"w01", "w02"} <= set(analysis.counts):
        raise ValueError(
            f"attention ratios: expected a model that runs on counts; {analysis.notes}"
        )
    chosen = shown_heads(analysis, heads)
    figure, axes = axes_of(ax, 6.0, 4.8)
    table = analysis.table.iloc[chosen]
    # A collapsed head may have a ratio beyond any axis: it is drawn at the edge.
    w01, w02 = (table[name].clip(1e-8, 1e8) for name in ("w01", "w02"))
    axes.axvline(1, color=seen(NEUTRAL), lw=0.8, ls=":")
    axes.axhline(10, color=seen(NEUTRAL), lw=0.8, ls=":")
    colours: dict[str, Any] = {"c": table["s_acc"], "cmap": "viridis", "vmin": 0.5, "vmax": 1}
    drawn = axes.scatter(w01, w02, **colours, s=points(8.4) ** 2, edgecolor=seen("black"))
    axes.set(xscale="log", yscale="log", xlabel="w01: attention to '0' over '1'")
    axes.set_ylabel("w02: attention to '0' over '2'")
    ratios = "w01 = 1, w02 = 10".replace(" = ", "\u00a0=\u00a0")
    set_title(axes, f"heads by attention at '=' (dotted: {ratios})")
    axes.figure.colorbar(drawn, ax=axes, label="s-acc")
    names = [head_labels(analysis.heads)[head] for head in chosen]
    label_points(axes, np.stack([w01, w02], axis=1), names)
    return figure


def plot_logits(
    model: HookedTransformer,
    task: Task | Splits | None = None,
    *,
    heads: Iterable[HeadName] | None = None,
    ax: Iterable[Axes] | Axes | None = None,
) -> Figure:
    """Draw direct logit attribution of heads to '4', '5', '[EOS]': figure 1 of the paper.

    `plot_lifts` is the like of it for any task. `logit_table` of this module has the numbers.

    Args:
        heads: a panel each, in this order; all by default.
        ax: where to draw, one Axes for each head; by default a figure of its own.
    """
    size = model.cfg.n_layers, model.cfg.n_heads
    chosen = numbers_in_order(range(size[0] * size[1]) if heads is None else heads, *size)
    columns = min(4, len(chosen))
    rows = -(-len(chosen) // columns)
    if ax is not None:
        check_axes(ax, len(chosen))
    table = logit_table(model, task).set_index(["head", "current", "next", "token"])
    # One head alone is drawn wide enough for the title.
    figure, panels = panels_of(
        ax, len(chosen), 3.2 * max(columns, 2), 2.2 * rows + 0.7, columns=columns
    )
    situations = [("=", "4"), ("=", "5"), ("4", "[EOS]"), ("5", "[EOS]")]
    for head, axes in zip(chosen, panels, strict=True):
        for place, situation in enumerate(situations):
            for offset, token, colour in ((-1, "4", FOUR), (0, "5", FIVE), (1, "[EOS]", END)):
                row = table.xs((head, *situation, token))
                x = place + 0.22 * offset
                axes.vlines(x, row["low"], row["high"], color=colour, lw=3, alpha=0.5)
                axes.plot(x, row["median"], "_", color=colour, ms=9, label=token)
        axes.axhline(0, color=seen(NEUTRAL), lw=0.6)
        axes.set_xticks(range(4), ["= → 4", "= → 5", "4 → end", "5 → end"], fontsize=points(7))
        axes.tick_params(axis="y", labelsize=points(7))
        set_title(axes, f"head {head}", fontsize=points(9))
    handles, labels = axes.get_legend_handles_labels()
    if ax is not None:
        panels[0].legend(handles[:3], labels[:3], fontsize=points(7))
        return figure
    figure.legend(handles[:3], labels[:3], loc="outside lower center", ncols=3, frameon=False)
    title = "direct logit attribution of each head: median, 5 % to 95 %"
    figure.suptitle(title, fontsize=points(10))
    return figure


def logit_table(model: HookedTransformer, task: Task | Splits | None = None) -> pd.DataFrame:
    """Quantiles of each head's attributions by current token, true next token and logit."""
    task = as_task(task)
    if not isinstance(task, Count01):
        raise ValueError(
            f"task: expected Count01, got {task}; plot_lifts(analysis) shows direct logit "
            "attribution on any task"
        )
    questions = task.questions
    answer = questions["answer"].answers_of(questions["answer"].test)
    rows = []
    for name, question in questions.items():
        found = runner_for(model, question.test).attribute(question.test).heads.numpy()
        for number, text in enumerate(("4", "5")):
            current, following = ("=", text) if name == "answer" else (text, "[EOS]")
            quantiles = np.quantile(found[answer == number], [0.05, 0.5, 0.95], axis=0)
            rows += [
                (head, current, following, token.text, *quantiles[:, head, token])
                for head in range(found.shape[1])
                for token in (Token.FOUR, Token.FIVE, Token.EOS)
            ]
    names = ["head", "current", "next", "token", "low", "median", "high"]
    return pd.DataFrame(rows, columns=names)


def plot_sweep(sweep: RatioSweep, *, ax: Axes | None = None) -> Figure:
    """Draw s-acc of heads over a grid of one attention ratio: figures 7 and 8 of the paper.

    Zero and infinity stand at the edges. The whole model, all its heads patched, is dashed.

    Args:
        sweep: what `sweep_attention` gives; its `table` and `heads` have the numbers.
        ax: where to draw; by default a figure of its own.
    """
    figure, axes = axes_of(ax, 8.0, 4.6)
    finite = sweep.values[(sweep.values > 0) & np.isfinite(sweep.values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (1.0, 1.0)
    edges = {0.0: low / 3, np.inf: high * 3}
    x = np.array([edges.get(value, value) for value in sweep.values.tolist()])
    mean, std = sweep.s_acc.mean(axis=1), sweep.s_acc.std(axis=1)
    axes.plot(x, sweep.s_acc, color=seen(NEUTRAL), lw=0.6, alpha=0.35)
    axes.fill_between(x, mean - std, np.minimum(mean + std, 1), color=FOUR, alpha=0.2, lw=0)
    axes.plot(x, mean, color=FOUR, lw=2, label="s-acc of heads: mean ± standard deviation")
    axes.plot(x, sweep.model["answer"], "--", color=FIVE, lw=1.4, label="whole model, all patched")
    end = "[EOS], its row patched likewise"
    axes.plot(x, sweep.model["end_if_patched_at_answer"], ":", color=END, lw=1.4, label=end)
    axes.axvline(1, color=seen(NEUTRAL), lw=0.8, ls=":")
    axes.set_xscale("log")
    decades = 10.0 ** np.arange(np.ceil(np.log10(low)), np.floor(np.log10(high)) + 1, 2)
    ticks = {place: f"{place:g}" for place in decades}
    ticks |= {edges[v]: name for v, name in ((0.0, "0"), (np.inf, "∞")) if v in sweep.values}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)
    fixed = f" ({sweep.fixed})" if sweep.fixed else ""
    axes.set(xlabel=f"{sweep.ratio}{fixed}", ylabel="accuracy on the test split")
    set_title(axes, f"attention at '=' set by hand: {sweep.s_acc.shape[1]} heads, SVM refitted")
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes, 38, ncols=3)
    return figure


def plot_tables(model: HookedTransformer, head: int, *, ax: Iterable[Axes] | None = None) -> Figure:
    """Draw the QK and the OV table of a head over all tokens.

    Args:
        head: its number. `qk_table` and `ov_table` give the numbers.
        ax: where to draw, two Axes: for QK and for OV; by default a figure of its own.
    """
    titles = ("QK: attention scores", "OV: direct logit attribution of attending to a token")
    tables = qk_table(model, head), ov_table(model, head)
    figure, panels = panels_of(ax, 2, 10.5, 4.4, columns=2)
    for axes, table, title in zip(panels, tables, titles, strict=True):
        values = table.to_numpy()
        largest = np.abs(values).max() or 1.0
        image = axes.imshow(values, cmap="RdBu", vmin=-largest, vmax=largest)
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if abs(value) > 0.6 * largest else "black"
            style: Any = {"ha": "center", "va": "center", "fontsize": points(6), "color": colour}
            keep_colour(axes.text(column, row, f"{value:.3g}", **style))
        axes.set_xticks(range(len(table.columns)), map(drawable, table.columns))
        axes.set_yticks(range(len(table.index)), map(drawable, table.index))
        axes.tick_params(labelsize=points(8))
        axes.set(xlabel=table.columns.name, ylabel=table.index.name)
        set_title(axes, f"head {head}, {title}", fontsize=points(9))
        axes.figure.colorbar(image, ax=axes, shrink=0.8)
    return figure
