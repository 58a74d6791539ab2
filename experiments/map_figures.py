"""Figures of the map of claims (map_of_claims.py): what holds where, when, and how far from start.

They draw the table with a row per recipe and moment. Verdicts differ in shape as well as in shade,
so that nothing rests on colour alone.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from count01_lens.training.recipe import TrainConfig
from count01_lens.views.figures import NotebookFigure
from experiments.claims import HEADLINE
from experiments.headline import CLAIM_OF
from experiments.paper_targets import LOWEST_ACCURACY
from experiments.suite import Shown

INK, FAINT = "#222222", "#9a9a9a"
LABELS = {
    "F2.sixteen_heads": "models with accuracy ≥ 0.99",
    "F1.biased": "biased heads",
    "F3.successful": "successful heads",
    "F3.failed": "failed heads",
    "F3.singles_at_half": "single heads at 50 % l-acc",
    "F3.pairs_above_80": "pairs above 80 % l-acc",
    "F4.four_heads_separate": "s-acc of four heads",
    "F4.most_heads_needed": "heads for 90 % l-acc",
    "F5.w02_above_ten": "successful with w02 > 10",
    "E1.single": "heads that always end",
}
DIGITS = {"F3.pairs_above_80": 0, "F4.four_heads_separate": 3, "F4.most_heads_needed": 1}
SHADES = {
    "reproduced": ("●", "#74c7ab"),
    "partly": ("◐", "#d3eee4"),
    "not reproduced": ("○", "#f4f4f4"),
    "not measured": ("–", "#ffffff"),
}
NAMED = {"paper": "*", "trained on": "P", "accurate": "D"}
BATCH_MARKERS = "osv^<>"
ORDER_LABELS = {
    "sum_of_rates": "sum of learning rates so far",
    "travelled": "distance travelled by all weights",
    "travelled_qk": "distance travelled by queries and keys",
    "travelled_ov": "distance travelled by values and output",
}
ABOUT_POINTS = (
    "A line per recipe, a point per measured epoch; distances are relative to the length of the "
    "initial weights."
)


def grid_figure(moments: pd.DataFrame, named: Mapping[str, TrainConfig]) -> Shown:
    """Draw a map of learning rate and batch size for each claim, at the end of training."""
    ends = moments[moments["at_end"] & moments["on_grid"]]
    rates, batches = (sorted(ends[name].unique()) for name in ("learning_rate", "batch_size"))
    rows = math.ceil(len(HEADLINE) / 2)
    height = 0.55 + rows * (0.62 + 0.38 * len(batches))
    figure = NotebookFigure(figsize=(8, height), layout="constrained")
    marked = {name: named[name] for name in ("paper", "accurate")}
    for place, claim in enumerate(HEADLINE):
        axes = figure.add_subplot(rows, 2, place + 1)
        for _, row in ends.iterrows():
            x, y = rates.index(row["learning_rate"]), batches.index(row["batch_size"])
            _tile(axes, x, y, row, claim, number=True)
        for name, config in marked.items():
            across = np.interp(np.log(config.learning_rate), np.log(rates), range(len(rates)))
            up = np.interp(np.log(config.batch_size), np.log(batches), range(len(batches)))
            size = 9 if name == "paper" else 6
            axes.plot(across, up + 0.3, NAMED[name], color=INK, mec="white", ms=size)
        low, high = (f"{end:g}" for end in CLAIM_OF[claim].reproduced)
        axes.set_title(f"{LABELS[claim]} (holds: {low} to {high})", fontsize=9.5, color=INK)
        _frame(axes, len(rates), len(batches))
        axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates], fontsize=8.5)
        axes.set_yticks(range(len(batches)), [f"{batch}" for batch in batches], fontsize=8.5)
        if place % 2 == 0:
            axes.set_ylabel("batch size", fontsize=9)
        if place >= len(HEADLINE) - 2:
            axes.set_xlabel("learning rate", fontsize=9)
    handles = [*_verdict_handles(), *(_marker(NAMED[name], f"{name} recipe") for name in marked)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    seeds, epochs = int(ends["seeds"].max()), int(ends["epoch"].max())
    return Shown(
        figure,
        "Ten small maps of learning rate and batch size, one for each headline claim: where it "
        "is reproduced, partly reproduced, or not",
        f"Means of {seeds} models after {epochs} epochs, all else as in the paper's recipe. The "
        "accurate recipe may differ in more than its place says. The s-acc of four heads is the "
        "median of a sample of groups.",
    )


def time_figure(moments: pd.DataFrame) -> Shown:
    """Draw which claims hold after each measured epoch of the named recipes."""
    tables = {name: moments[moments["name"] == name].sort_values("epoch") for name in NAMED}
    figure = NotebookFigure(figsize=(8, 4.6), layout="constrained")
    ratios = [len(table) for table in tables.values()]
    panels = figure.subplots(1, len(tables), width_ratios=ratios, squeeze=False)[0]
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        for x, (_, row) in enumerate(table.iterrows()):
            for y, claim in enumerate(HEADLINE):
                _tile(axes, x, y, row, claim)
            axes.text(x, len(HEADLINE), str(row["held"]), ha="center", va="center", color=INK)
        _frame(axes, len(table), len(HEADLINE) + 1)
        axes.invert_yaxis()
        axes.set_xticks(range(len(table)), [f"{epoch}" for epoch in table["epoch"]], fontsize=9)
        axes.set_xlabel("epoch", fontsize=9)
        axes.set_title(name if name == "trained on" else f"{name} recipe", fontsize=10, color=INK)
        labels = [*LABELS.values(), "claims that hold"] if axes is panels[0] else []
        axes.set_yticks(range(len(labels)), labels, fontsize=9)
    figure.legend(
        handles=_verdict_handles(), loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    return Shown(
        figure,
        "For three trainings, a column of ten verdicts after each measured epoch",
        "Trained on: the paper's recipe without decay of the learning rate, for longer.",
    )


def order_figure(moments: pd.DataFrame, orders: pd.DataFrame) -> Shown:
    """Draw the share of claims that hold against numbers that might order all trainings."""
    figure = NotebookFigure(figsize=(8, 7.4), layout="constrained")
    panels = figure.subplots(2, 2, sharey=True).ravel()
    found = orders.set_index("order")
    for axes, (order, label) in zip(panels, ORDER_LABELS.items(), strict=True):
        _points(axes, moments, order, "share_held")
        axes.set_ylim(-0.04, 1.04)
        axes.set_xlabel(label, fontsize=9.5)
        rank, r2 = found.loc[order, ["spearman", "r2"]]
        axes.set_title(f"rank correlation {_told(rank)}, R² {_told(r2)}", fontsize=9.5, color=INK)
    for axes in panels[::2]:
        axes.set_ylabel("share of headline claims that hold", fontsize=9.5)
    _point_legend(figure, moments)
    return Shown(
        figure,
        "Share of headline claims that hold against the sum of learning rates and against the "
        "distance that all weights, queries and keys, and values and output travelled",
        f"{ABOUT_POINTS} Rank correlations are over points whose models solve the task; R² is "
        "that of the best falling curve for single models, of at most "
        f"{_told(found.loc['recipe and epoch', 'r2'])} with a value for each point.",
    )


def value_figure(moments: pd.DataFrame) -> Shown:
    """Draw the number behind each claim against the distance travelled by all weights."""
    rows = math.ceil(len(HEADLINE) / 2)
    figure = NotebookFigure(figsize=(8, 2 * rows + 0.8), layout="constrained")
    panels = figure.subplots(rows, 2, sharex=True).ravel()
    for axes, claim in zip(panels, HEADLINE, strict=False):
        _points(axes, moments, "travelled", claim)
        axes.axhspan(*CLAIM_OF[claim].reproduced, color=SHADES["reproduced"][1], alpha=0.3, lw=0)
        axes.set_title(LABELS[claim], fontsize=9.5, color=INK)
    for axes in panels[-2:]:
        axes.set_xlabel(ORDER_LABELS["travelled"], fontsize=9.5)
    _point_legend(figure, moments)
    return Shown(
        figure,
        "Ten panels, one for each headline claim: its number against the distance travelled by "
        "the weights, with the interval in which the claim holds",
        f"{ABOUT_POINTS} A claim holds in the shaded interval.",
    )


def _points(axes: Axes, moments: pd.DataFrame, order: str, column: str) -> None:
    """Draw a line for each recipe; where the task is not solved, crosses."""
    on_grid = moments[moments["on_grid"]]
    rates, batches, colours = _axes_of(on_grid)
    for (rate, batch), table in on_grid.groupby(["learning_rate", "batch_size"]):
        marker = BATCH_MARKERS[batches.index(batch) % len(BATCH_MARKERS)]
        style = {"color": colours[rates.index(rate)], "marker": marker, "ms": 4.5}
        _line(axes, table, order, column, lw=0.9, alpha=0.8, **style)
    for name, marker in NAMED.items():
        table = moments[moments["name"] == name]
        style = {"color": INK, "marker": marker, "ms": {"*": 10, "P": 9}.get(marker, 6.5)}
        _line(axes, table, order, column, lw=1.4, mec="white", zorder=4, **style)
    solved = moments.loc[moments["solves"], order]
    axes.set_xscale("log")
    axes.xaxis.set(
        major_locator=LogLocator(subs=(1, 2, 5)),
        major_formatter=FuncFormatter(lambda value, _: f"{value:g}"),
        minor_formatter=NullFormatter(),
    )
    if len(solved):  # what is far below does not solve the task, and is not what this is about
        axes.set_xlim(left=solved.min() / 2)
    axes.grid(alpha=0.25)


def _line(axes: Axes, table: pd.DataFrame, order: str, column: str, **style: Any) -> None:
    table = table.sort_values("epoch")
    solved, others = table[table["solves"]], table[~table["solves"]]
    axes.plot(solved[order], solved[column], **style)
    axes.plot(others[order], others[column], "x", color=FAINT, ms=4, zorder=1)


def _axes_of(on_grid: pd.DataFrame) -> tuple[list[Any], list[Any], Any]:
    rates, batches = (sorted(on_grid[name].unique()) for name in ("learning_rate", "batch_size"))
    return rates, batches, colormaps["viridis"](np.linspace(0, 0.85, len(rates)))


def _point_legend(figure: NotebookFigure, moments: pd.DataFrame) -> None:
    rates, batches, colours = _axes_of(moments[moments["on_grid"]])
    handles = [
        Line2D([], [], color=colour, lw=3, label=f"rate {rate:g}")
        for rate, colour in zip(rates, colours, strict=True)
    ]
    handles += [
        _marker(marker, f"batch {batch}", "#777777")
        for marker, batch in zip(BATCH_MARKERS, batches, strict=False)
    ]
    handles += [
        _marker(marker, name if name == "trained on" else f"{name} recipe")
        for name, marker in NAMED.items()
    ]
    handles.append(_marker("x", f"accuracy < {LOWEST_ACCURACY:g}", FAINT))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8.5)


def _tile(axes: Axes, x: float, y: float, row: pd.Series, claim: str, number: bool = False) -> None:
    """Draw a verdict, with its number if there is room; hatched where the task is not solved."""
    symbol, shade = SHADES[str(row[f"{claim}.verdict"])]
    hatch = None if row["solves"] else "////"
    corner = (x - 0.5, y - 0.5)
    axes.add_patch(Rectangle(corner, 1, 1, fc=shade, ec="#cccccc", hatch=hatch, lw=0))
    axes.add_patch(Rectangle(corner, 1, 1, fc="none", ec="white", lw=1.5))
    value = float(row[claim])
    told = "" if math.isnan(value) else f" {value:.{DIGITS.get(claim, 2)}f}"
    text = symbol + told if number else symbol
    lower = 0.12 if number else 0.0
    axes.text(x, y - lower, text, ha="center", va="center", fontsize=9, color=INK)


def _frame(axes: Axes, width: int, height: int) -> None:
    axes.set(xlim=(-0.5, width - 0.5), ylim=(-0.5, height - 0.5))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _verdict_handles() -> list[Patch]:
    shown = [name for name in SHADES if name != "not measured"]
    handles = [
        Patch(fc=SHADES[name][1], ec="#999999", label=f"{SHADES[name][0]} {name}") for name in shown
    ]
    label = f"accuracy < {LOWEST_ACCURACY:g}"
    return [*handles, Patch(fc="white", ec="#aaaaaa", hatch="////", label=label)]


def _marker(marker: str, label: str, colour: str = INK) -> Line2D:
    size = 10 if marker == "*" else 6
    return Line2D([], [], marker=marker, color=colour, ls="none", ms=size, label=label)


def _told(value: Any) -> str:
    return "unknown" if math.isnan(value) else f"{value:.2f}".replace("-", "−")
