"""Heads as a network: what each is worth, and which pairs cooperate or are redundant."""

import re
from collections.abc import Iterable
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from count01_lens.common.text import in_words, plural
from count01_lens.common.types import Array
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.tables import head_labels
from count01_lens.views.figure_style import points, seen
from count01_lens.views.figures import (
    FIVE,
    FOUR,
    NEUTRAL,
    axes_of,
    characters,
    legend_below,
    panel_width,
    panels_of,
    set_title,
)
from count01_lens.views.group_curve import plot_group_curve

NODES = {"facilitating": FOUR, "interfering": FIVE, "irrelevant": "#BBBBBB", "undecided": "white"}
# Colour and dashes tell the same, so that one of them would do.
EDGES: dict[str, tuple[str, Any]] = {
    "cooperating": (FOUR, "solid"),
    "redundant": (FIVE, (0, (3.5, 1.2))),
}
RINGS: dict[str, Any] = {
    "successful": "solid",
    "mixed": (0, (3, 1.2)),
    "failed": (0, (0.6, 1.2)),
}
_SMALLEST, _LARGEST = 60.0, 700.0  # areas of nodes, in square points
_WHOLE = 5.0  # inches; in narrower figures all is smaller
_GAP = 6.0  # points between a node and its ring, both sides together
_THIN, _THICK = 0.6, 5.0  # widths of edges, in points
_LINE = 52  # characters of a title
_FEW_EDGES = 20  # more than these are thinner, and shine through each other


class Network(NamedTuple):
    """The numbers of a network.

    Attributes:
        nodes: a row per head in the order around the circle: name, head (its number), label,
            category, shapley, low, high, and its place x, y.
        edges: a row per labelled pair, the strongest last: the names of its first and second head,
            label, interaction, low, high, copy_share.
    """

    nodes: pd.DataFrame
    edges: pd.DataFrame


def network_of(analysis: HeadAnalysis, metric: str | None = None) -> Network:
    """Put the labels of heads and pairs together as nodes and edges: the data of `plot_network`."""
    name = analysis.main_metric if metric is None else metric
    labels = analysis.labels(name)
    order = list(analysis.structure(name).order)
    names = np.array(head_labels(analysis.heads))
    nodes = labels.heads.set_index("head").loc[order].reset_index()
    nodes.insert(0, "name", names[order])
    nodes.insert(2, "category", analysis.heads["category"].to_numpy()[order])
    # Clockwise from the top; two heads stand side by side.
    turn = 2 * np.pi * np.arange(len(order)) / len(order) - (np.pi / 2 if len(order) == 2 else 0)
    nodes = nodes.assign(x=np.sin(turn), y=np.cos(turn))
    edges = labels.pairs[labels.pairs["label"] != ""]
    edges = edges.sort_values("interaction", key=abs, kind="stable", ignore_index=True)
    edges = edges.assign(first=names[edges["first"]], second=names[edges["second"]])
    return Network(nodes, edges)


def plot_network(
    analysis: HeadAnalysis, metric: str | None = None, *, ax: Axes | None = None
) -> Figure:
    """Draw heads on a circle, and the pairs that cooperate or are redundant as lines between them.

    The area of a head is its Shapley value, its colour its label, its ring the paper's category;
    the width of a line is the interaction. Copies stand side by side. All groups have to be known:
    `analysis.with_groups()`. `network_of` of this module has the numbers.

    Args:
        metric: by default that of the verdict on the answer: s_acc, of several layers l_acc.
        ax: where to draw; by default a figure of its own.
    """
    name = analysis.main_metric if metric is None else metric
    network = network_of(analysis, name)
    figure, axes = axes_of(ax, 6.0, 6.2)
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    axes.set_axis_off()
    _draw_edges(axes, network)
    _draw_nodes(axes, network.nodes)
    pairs, heads = network_in_words(network, METRICS[name].label)
    # A number stays with its noun.
    width = min(_LINE, characters(axes, points(11)))
    lines = fill(re.sub(r"(?<=\d) ", "\u00a0", heads), width)
    set_title(axes, f"{pairs}\n{lines}", fontsize=points(11))
    _draw_legend(axes, network)
    return figure


def network_in_words(network: Network, label: str) -> tuple[str, str]:
    """What pairs and what heads there are, counted; the label is that of the metric."""
    found = network.edges["label"].value_counts()
    pairs = [(kind, int(found[kind])) for kind in ("redundant", "cooperating") if kind in found]
    told = ", ".join(
        plural(n, f"{kind} pair") if place == 0 else f"{n} {kind}"
        for place, (kind, n) in enumerate(pairs)
    )
    heads = network.nodes["label"].value_counts()
    kinds = in_words(f"{heads[kind]} {kind}" for kind in NODES if kind in heads)
    of_heads = f"{plural(len(network.nodes), 'head')} by {label}: {kinds}"
    return told or "no pair is redundant or cooperating", of_heads


def plot_cooperation(
    analysis: HeadAnalysis, metric: str | None = None, *, ax: Iterable[Axes] | None = None
) -> Figure:
    """Draw the network of heads, and beside it the metric by the number of heads in a group.

    Args:
        metric: by default that of the verdict on the answer: s_acc, of several layers l_acc.
        ax: where to draw, two Axes: as of `plot_network` and of `plot_group_curve`; by default a
            figure of its own.
    """
    figure, (left, right) = panels_of(ax, 2, 10.5, 5.5, columns=2, width_ratios=[1, 1.05])
    plot_network(analysis, metric, ax=left)
    plot_group_curve(analysis, metric, ax=right)
    return figure


def _draw_edges(axes: Axes, network: Network) -> None:
    edges, place = network.edges, network.nodes.set_index("name")[["x", "y"]]
    if edges.empty:
        text = "no pair is significantly\nredundant or cooperating"
        axes.text(0, 0, text, ha="center", va="center", style="italic", color=seen(NEUTRAL))
        return
    ends = np.stack([place.loc[edges[end]].to_numpy() for end in ("first", "second")], axis=1)
    strength = edges["interaction"].abs().to_numpy()
    strength = strength / strength.max()
    # Few lines of one kind are seen well among many of the other.
    of_kind = edges.groupby("label")["label"].transform("size").to_numpy()
    thick = max(1.6, min(_THICK, _THICK * _FEW_EDGES / len(edges)) * _scale(axes))
    faint = np.clip(0.85 * _FEW_EDGES / of_kind, 0.3, 0.85)
    lines = LineCollection(
        list(ends),
        colors=[EDGES[label][0] for label in edges["label"]],
        linestyles=[EDGES[label][1] for label in edges["label"]],
        linewidths=_THIN + (thick - _THIN) * strength,
        alpha=faint + (0.9 - faint) * strength**2,
        zorder=1,
    )
    axes.add_collection(lines)


def _scale(axes: Axes) -> float:
    """How large heads and lines are: in a narrow figure smaller, so that they stay apart."""
    return min(1.0, panel_width(axes) / _WHOLE)


def _draw_nodes(axes: Axes, nodes: pd.DataFrame) -> None:
    scale = _scale(axes)
    areas = node_areas(nodes["shapley"].to_numpy()) * scale**2
    colours = [seen(NODES[label]) for label in nodes["label"]]
    ink, paper = seen("black"), seen("white")
    axes.scatter(nodes["x"], nodes["y"], s=areas, c=colours, edgecolors=ink, lw=0.8, zorder=3)
    around = (np.sqrt(areas) + _GAP * scale) ** 2
    ring: dict[str, Any] = {"c": paper, "edgecolors": ink, "lw": 1.3, "zorder": 2}
    styles = [RINGS[category] for category in nodes["category"]]
    axes.scatter(nodes["x"], nodes["y"], s=around, linestyles=styles, **ring)
    middle: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center"}
    for name, x, y, area in zip(nodes["name"], nodes["x"], nodes["y"], around, strict=True):
        beside = np.sqrt(area) / 2 + 6 + 3 * len(name) * abs(x)  # points; a long name is wide
        axes.annotate(name, (x, y), (beside * x, (beside + 2) * y), **middle, fontsize=points(10))


def node_areas(worth: Float[Array, " head"]) -> Float[Array, " head"]:
    """Areas that grow with |Shapley value|, none so small that it is not seen."""
    largest = max(float(np.abs(worth).max()), 1e-12)
    return np.asarray(_SMALLEST + (_LARGEST - _SMALLEST) * np.abs(worth) / largest)


def _draw_legend(axes: Axes, network: Network) -> None:
    """Explain what occurs, below the picture."""
    nodes, edges = network
    disc: dict[str, Any] = {"marker": "o", "ls": "", "ms": 8, "mec": seen("black"), "mew": 0.8}
    columns = [
        [
            Line2D([], [], **disc, mfc=seen(colour), label=label)
            for label, colour in NODES.items()
            if label in set(nodes["label"])
        ],
        [
            Line2D([], [], color=colour, ls=style, lw=2, label=f"{label} pair")
            for label, (colour, style) in EDGES.items()
            if label in set(edges["label"])
        ],
        [
            Line2D([], [], color=seen("black"), ls=style, lw=1.3, label=f"ring: {category} alone")
            for category, style in RINGS.items()
            if category in set(nodes["category"])
        ],
    ]
    columns = [column for column in columns if column]
    longest = max(map(len, columns))
    nothing = Line2D([], [], ls="", label=" ")
    shown = [each for column in columns for each in column + [nothing] * (longest - len(column))]
    title = "area: |Shapley value|" + "; width of lines: |interaction|" * (not edges.empty)
    legend_below(axes, 4, handles=shown, ncols=len(columns), title=title)
