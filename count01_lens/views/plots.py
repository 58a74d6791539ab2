"""The paper's figures from an analysis. Numbers come first: every figure draws a table.

Each function returns a matplotlib Figure and changes no global state of matplotlib. Colours are
safe for colour-blind readers, and every figure reads in print.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from count01_lens.attention.sweeps import RatioSweep
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.counts.readout import ov_table, qk_table
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.runners import CountRunner, runner_for
from count01_lens.models.hooks import check_heads
from count01_lens.tasks.count01 import as_task
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.language import COUNTED, TOKENS, Token
from count01_lens.tasks.prompts import Task
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure
from count01_lens.views.output_tiles import tile_of, tiles_figure


def draw_all(model: HookedTransformer, analysis: HeadAnalysis) -> dict[str, Figure]:
    """Draw every figure that applies, by name; those of all groups only where they are known."""
    figures = {f"pairs_{metric}": plot_pairs(analysis, metric) for metric in analysis.pairs}
    figures["gains"] = plot_gains(analysis)
    figures["head_outputs"] = plot_head_outputs(model, analysis)
    if analysis.counts is not None:
        figures["attention_ratios"] = plot_attention_ratios(analysis)
        figures["logits"] = plot_logits(model, analysis.task)
        figures |= {f"tables_head_{h}": plot_tables(model, h) for h in range(len(analysis.table))}
    if analysis.known_groups is not None:
        figures["groups"] = plot_groups(analysis)
        figures["shapley"] = plot_shapley(analysis)
        for metric in analysis.pairs:
            figures[f"interactions_{metric}"] = plot_interactions(analysis, metric)
    return figures


def plot_pairs(analysis: HeadAnalysis, metric: str = "s_acc") -> Figure:
    """Heat map of a metric for single heads (diagonal) and pairs: figure 3 of the paper."""
    if metric not in analysis.pairs:
        raise ValueError(f"metric: expected one of {sorted(analysis.pairs)}, got {metric!r}")
    label = METRICS[metric].label
    scale = {"vmin": 0.5, "vmax": 1, "cmap": "viridis"}
    title = f"{label} of single heads (diagonal) and pairs"
    return _heat_map(analysis.pairs[metric], title, label, scale, extend="min")


def plot_gains(analysis: HeadAnalysis) -> Figure:
    """Gain in s-acc of each pair over its better head; s-acc of single heads on the diagonal."""
    title = "gain of a pair over its better head (diagonal: s-acc alone, %)"
    figure = _signed_heat_map(analysis.gains, title, "gain in s-acc", least=0.01)
    for head, value in enumerate(np.diag(analysis.gains)):
        text = f"{100 * value:.0f}"
        figure.axes[0].text(head, head, text, ha="center", va="center", fontsize=7)
    return figure


def plot_interactions(analysis: HeadAnalysis, metric: str = "s_acc") -> Figure:
    """Shapley interaction of every pair: blue pairs cooperate, red ones repeat each other."""
    title = f"Shapley interaction, {METRICS[metric].label}: cooperate > 0 > redundant"
    return _signed_heat_map(analysis.interactions(metric), title, "interaction index", least=1e-3)


def _signed_heat_map(matrix: Array, title: str, label: str, least: float) -> Figure:
    """Draw pairs above zero blue and others red, on a scale that goes at least so far."""
    pairs = matrix.copy()
    np.fill_diagonal(pairs, np.nan)
    largest = np.nanmax(np.append(np.abs(pairs), least))
    return _heat_map(pairs, title, label, {"vmin": -largest, "vmax": largest, "cmap": "RdBu"})


def _heat_map(
    matrix: Array, title: str, label: str, scale: dict[str, Any], extend: str = "neither"
) -> Figure:
    figure, axes = _figure(6.4, 5.6)
    image = axes.imshow(matrix, **scale)
    ticks = range(0, len(matrix), max(1, len(matrix) // 16))
    axes.set(title=title, xticks=ticks, yticks=ticks, xlabel="head", ylabel="head")
    axes.tick_params(labelsize=8)
    figure.colorbar(image, ax=axes, extend=extend, label=label)
    return figure


def plot_groups(analysis: HeadAnalysis) -> Figure:
    """Distribution of the three metrics over all groups of each size: figure 4 of the paper."""
    figure, axes = _figure(8.0, 4.2)
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
    axes.set_title("all groups: median, quartiles, 5 % and 95 %")
    axes.legend(frameon=False, loc="lower right")
    axes.grid(axis="y", alpha=0.3)
    return figure


def groups_by_size(analysis: HeadAnalysis) -> pd.DataFrame:
    """Quantiles of each metric over the groups of each size: the data of `plot_groups`."""
    groups = analysis.groups().set_index("size")[["l_acc", "roc_auc", "s_acc"]]
    quantiles = groups.rename_axis(columns="metric").stack().groupby(["size", "metric"])
    shares = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    return pd.DataFrame(quantiles.quantile(shares).unstack())


def plot_attention_ratios(analysis: HeadAnalysis) -> Figure:
    """s-acc of heads by their attention ratios w01 and w02: figure 5 of the paper."""
    if analysis.counts is None:
        raise ValueError(
            f"attention ratios: expected a model that runs on counts; {analysis.notes}"
        )
    figure, axes = _figure(6.0, 4.8)
    table = analysis.table
    # A collapsed head may have a ratio beyond any axis: it is drawn at the edge.
    w01, w02 = (table[name].clip(1e-8, 1e8) for name in ("w01", "w02"))
    axes.axvline(1, color=NEUTRAL, lw=0.8, ls=":")
    axes.axhline(10, color=NEUTRAL, lw=0.8, ls=":")
    points = axes.scatter(
        w01, w02, c=table["s_acc"], cmap="viridis", vmin=0.5, vmax=1, s=70, edgecolor="black"
    )
    for head, x, y in zip(table["head"], w01, w02, strict=True):
        axes.annotate(str(head), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="w01: attention to '0' over '1'")
    axes.set_ylabel("w02: attention to '0' over '2'")
    axes.set_title("heads by attention at '=' (dotted: w01 = 1, w02 = 10)")
    figure.colorbar(points, ax=axes, label="s-acc")
    return figure


def plot_head_outputs(
    model: HookedTransformer,
    analysis: HeadAnalysis,
    heads: Sequence[int] | None = None,
    *,
    whole: bool = False,
) -> Figure:
    """Head outputs on the test split, with value vectors and linear probe: figure 6 of the paper.

    Heads of another size than 2 are shown along the two main directions of their outputs.

    Args:
        heads: all by default.
        whole: show value vectors in their places and the training split, too; by default outputs
            are shown closely, with value vectors outside at the edge.
    """
    analysis.made_from.check_weights(model)
    runner, weights = runner_for(model), None if analysis.fits is None else analysis.fits.weights
    # Where counts do not describe a model, value vectors differ from place to place.
    known = runner.form.values[0].double().numpy() if isinstance(runner, CountRunner) else None
    tiles = [
        tile_of(
            f"head {head}: s-acc {analysis.table['s_acc'].iloc[head]:.3f}",
            analysis.data,
            head,
            None if known is None else known[head, list(COUNTED)],
            None if weights is None else weights[head],
            whole,
        )
        for head in (range(len(analysis.table)) if heads is None else check_heads(model, heads))
    ]
    return tiles_figure(tiles, tile_inches=2.6)


def plot_logits(model: HookedTransformer, task: Task | Splits | None = None) -> Figure:
    """Direct logit attribution of each head to '4', '5', '[EOS]': figure 1 of the paper."""
    table = logit_table(model, task).set_index(["head", "current", "next", "token"])
    heads = table.index.unique("head")
    columns = min(4, len(heads))
    rows = -(-len(heads) // columns)
    # One head alone is drawn wide enough for the title.
    figure = NotebookFigure(figsize=(3.2 * max(columns, 2), 2.2 * rows + 0.7), layout="constrained")
    situations = [("=", "4"), ("=", "5"), ("4", "[EOS]"), ("5", "[EOS]")]
    for position, head in enumerate(heads):
        axes = figure.add_subplot(rows, columns, position + 1)
        for place, situation in enumerate(situations):
            for offset, token, colour in ((-1, "4", FOUR), (0, "5", FIVE), (1, "[EOS]", END)):
                row = table.xs((head, *situation, token))
                x = place + 0.22 * offset
                axes.vlines(x, row["low"], row["high"], color=colour, lw=3, alpha=0.5)
                axes.plot(x, row["median"], "_", color=colour, ms=9, label=token)
        axes.axhline(0, color=NEUTRAL, lw=0.6)
        axes.set_xticks(range(4), ["= → 4", "= → 5", "4 → end", "5 → end"], fontsize=7)
        axes.tick_params(axis="y", labelsize=7)
        axes.set_title(f"head {head}", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[:3], labels[:3], loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("direct logit attribution of each head: median, 5 % to 95 %", fontsize=10)
    return figure


def logit_table(model: HookedTransformer, task: Task | Splits | None = None) -> pd.DataFrame:
    """Quantiles of each head's attributions by current token, true next token and logit."""
    questions = as_task(task).questions
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


def plot_sweep(sweep: RatioSweep) -> Figure:
    """s-acc of heads over a grid of one attention ratio: figures 7 and 8 of the paper.

    Zero and infinity stand at the edges. The whole model, all its heads patched, is dashed.
    """
    figure, axes = _figure(8.0, 4.6)
    finite = sweep.values[(sweep.values > 0) & np.isfinite(sweep.values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (1.0, 1.0)
    edges = {0.0: low / 3, np.inf: high * 3}
    x = np.array([edges.get(value, value) for value in sweep.values.tolist()])
    mean, std = sweep.s_acc.mean(axis=1), sweep.s_acc.std(axis=1)
    axes.plot(x, sweep.s_acc, color=NEUTRAL, lw=0.6, alpha=0.35)
    axes.fill_between(x, mean - std, np.minimum(mean + std, 1), color=FOUR, alpha=0.2, lw=0)
    axes.plot(x, mean, color=FOUR, lw=2, label="s-acc of heads: mean ± standard deviation")
    axes.plot(x, sweep.model["answer"], "--", color=FIVE, lw=1.4, label="whole model, all patched")
    end = "[EOS], its row patched likewise"
    axes.plot(x, sweep.model["end_if_patched_at_answer"], ":", color=END, lw=1.4, label=end)
    axes.axvline(1, color=NEUTRAL, lw=0.8, ls=":")
    axes.set_xscale("log")
    decades = 10.0 ** np.arange(np.ceil(np.log10(low)), np.floor(np.log10(high)) + 1, 2)
    ticks = {place: f"{place:g}" for place in decades}
    ticks |= {edges[v]: name for v, name in ((0.0, "0"), (np.inf, "∞")) if v in sweep.values}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)
    fixed = "'2' gets nothing" if sweep.ratio == "w01" else "'0' and '1' alike"
    axes.set(xlabel=f"{sweep.ratio} ({fixed})", ylabel="accuracy on the test split")
    axes.set_title(f"attention at '=' set by hand: {sweep.s_acc.shape[1]} heads, SVM refitted")
    axes.grid(axis="y", alpha=0.3)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return figure


def plot_tables(model: HookedTransformer, head: int) -> Figure:
    """QK and OV tables of a head over the eight tokens."""
    figure = NotebookFigure(figsize=(10.5, 4.4), layout="constrained")
    titles = ("QK: attention scores", "OV: direct logit attribution of attending to a token")
    tables = qk_table(model, head), ov_table(model, head)
    for position, (table, title) in enumerate(zip(tables, titles, strict=True), start=1):
        axes = figure.add_subplot(1, 2, position)
        values = table.to_numpy()
        largest = np.abs(values).max() or 1.0
        image = axes.imshow(values, cmap="RdBu", vmin=-largest, vmax=largest)
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if abs(value) > 0.6 * largest else "black"
            style: Any = {"ha": "center", "va": "center", "fontsize": 6, "color": colour}
            axes.text(column, row, f"{value:.3g}", **style)
        axes.set_xticks(range(8), TOKENS, fontsize=8)
        axes.set_yticks(range(8), TOKENS, fontsize=8)
        axes.set(xlabel=table.columns.name, ylabel=table.index.name)
        axes.set_title(f"head {head}, {title}", fontsize=9)
        figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def plot_shapley(analysis: HeadAnalysis) -> Figure:
    """Shapley value of every head, by each metric."""
    figure, axes = _figure(8.0, 4.0)
    heads = np.arange(len(analysis.table))
    width = 0.8 / len(analysis.pairs)
    colours = itertools.cycle((FIVE, NEUTRAL, FOUR, END))
    for number, (metric, colour) in enumerate(zip(analysis.pairs, colours, strict=False)):
        offset = (number - (len(analysis.pairs) - 1) / 2) * width
        label = METRICS[metric].label
        axes.bar(heads + offset, analysis.shapley(metric), width, color=colour, label=label)
    axes.axhline(0, color="black", lw=0.8)
    axes.set(xlabel="head", ylabel="Shapley value", xticks=heads)
    axes.set_title("what each head is worth; below zero it works against the rest")
    axes.legend(frameon=False)
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()
