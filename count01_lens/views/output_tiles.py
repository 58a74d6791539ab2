"""Head outputs as small pictures, many at once, for reports and notebooks.

All tiles are drawn into one pair of axes: sixteen of their own would take much longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from count01_lens.common.types import Array
from count01_lens.heads.head_data import HeadData
from count01_lens.tasks.language import COUNTED
from count01_lens.views.figure_style import points, seen
from count01_lens.views.figures import (
    END,
    FIVE,
    FOUR,
    MOST_COLOURS,
    NEUTRAL,
    answer_colours,
    axes_of,
    drawable,
    pale,
    sized_figure,
)

_FEW_POINTS = 500  # of so few, each has to be seen
_KEY_INCHES = 0.5  # height of what says which colour is which answer
_MARGIN, _HEADER = 0.04, 0.11  # of a tile: around the frame, and for the title above it


@dataclass(frozen=True, eq=False)
class OutputTile:
    """What is drawn of one head.

    Attributes:
        title: shown above.
        outputs: of the head on the test split.
        labels: True where the first of two answers is right; of more answers, which one is.
        values: value vectors of '0', '1' and '2', where they are the same in all sentences.
        weights: of the linear probe; None where a probe is not linear, or decides between more
            than two answers, and no line is drawn.
        bias: likewise.
        train: outputs and labels of the training split, to show behind, with all value vectors in
            their places; None shows the outputs closely, and value vectors outside at the edge.
        colours: of each answer.
    """

    title: str
    outputs: Float[Array, "test d_head"]
    labels: Shaped[Array, " test"]
    values: Float[Array, "token=3 d_head"] | None
    weights: Float[Array, " d_head"] | None
    bias: float
    train: tuple[Float[Array, "train d_head"], Shaped[Array, " train"]] | None = None
    colours: tuple[str, ...] = (FOUR, FIVE)


def tile_of(
    title: str, data: HeadData, head: int, values: Array | None, probe: Array | None, whole: bool
) -> OutputTile:
    """Take what is drawn of a head; the probe has weights of all heads' outputs, and a bias."""
    return OutputTile(
        title,
        data.test_outputs[:, head],
        data.test_labels,
        values,
        None if probe is None else probe[head * data.d_head : (head + 1) * data.d_head],
        0.0 if probe is None else float(probe[-1]),
        (data.train_outputs[:, head], data.train_labels) if whole else None,
        answer_colours(data.answer.rest.shape[1]),
    )


def tiles_figure(
    tiles: Sequence[OutputTile],
    tile_inches: float = 2.1,
    answers: Sequence[str] = (),
    ax: Axes | None = None,
) -> Figure:
    """Draw tiles in rows of four; below them, if they are given, what colours stand for."""
    columns = min(4, len(tiles))
    rows = -(-len(tiles) // columns)
    height = rows * tile_inches + _KEY_INCHES * bool(answers)
    key = _KEY_INCHES / height if answers else 0.0
    if ax is None:
        figure: Figure = sized_figure(columns * tile_inches, height)
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
    else:
        figure, axes = axes_of(ax, 0, 0)
    axes.set_axis_off()
    axes.set(xlim=(0, columns), ylim=(-rows * key / (1 - key), rows))
    colours = [seen(colour) for colour in tiles[0].colours]
    test, train = ([list[Array]() for _ in colours] for _ in range(2))
    probes = []
    for number, tile in enumerate(tiles):
        corner = np.array([number % columns, rows - 1 - number // columns], dtype=float)
        probes += _draw_tile(axes, tile, corner, test, train)
    clouds = [(colours[n], some, 2 + 0.1 * n) for n, some in enumerate(test)]
    clouds += [(seen(pale(tiles[0].colours[n])), some, 1.0) for n, some in enumerate(train)]
    size = 2.2 if len(tiles[0].outputs) > _FEW_POINTS else 4.0
    for colour, some, order in clouds:
        if some:
            x, y = np.concatenate(some).T
            axes.plot(x, y, ".", color=colour, ms=size, mew=0, zorder=order, rasterized=True)
    over = 4 + 0.1 * len(colours) * (len(colours) > MOST_COLOURS)
    axes.add_collection(LineCollection(probes, colors=END, linewidths=1.4, zorder=over))
    if answers:
        _draw_key(axes, colours, answers, key)
    return figure


def _draw_key(axes: Axes, colours: Sequence[str], answers: Sequence[str], share: float) -> None:
    """Say which colour is which answer: each of a few, or how a scale of colours runs."""
    names = [drawable(answer) for answer in answers]
    if len(answers) <= MOST_COLOURS:
        marks = [Line2D([], [], color=colour, marker="o", ls="none", ms=5) for colour in colours]
        place: Any = {"loc": "lower center", "ncols": len(names), "frameon": False}
        letters = {"fontsize": points(8), "columnspacing": 1.0, "handletextpad": 0.1}
        axes.legend(marks, names, **place, **letters)
        return
    axes = axes.inset_axes((0.2, 0.62 * share, 0.6, 0.22 * share))
    axes.bar(range(len(colours)), 1, width=1, bottom=-0.5, color=list(colours))
    axes.set(xlim=(-0.5, len(colours) - 0.5), ylim=(-0.5, 0.5))
    ends = [0, len(names) // 2, len(names) - 1]
    axes.set_xticks(ends, [names[end] for end in ends], fontsize=points(8))
    axes.set_yticks([0], ["right answer"], fontsize=points(8))


def plane_of(outputs: Float[Array, "sample d_head"]) -> tuple[Array, Array]:
    """A centre and two directions: the axes themselves for size 2, else the main directions."""
    size = outputs.shape[1]
    if size == 2:
        return np.zeros(2), np.eye(2)
    centre = outputs.mean(axis=0)
    if size == 1:
        return centre, np.array([[1.0, 0.0]])
    _, _, directions = np.linalg.svd(outputs - centre, full_matrices=False)
    return centre, directions[:2].T


def _draw_tile(
    axes: Axes,
    tile: OutputTile,
    corner: Float[Array, "2"],
    test: list[list[Array]],
    train: list[list[Array]],
) -> list[Array]:
    """Draw frame and words, collect points; return the probe's line, if it crosses the tile."""
    centre, plane = plane_of(tile.outputs)
    values = None if tile.values is None else (tile.values - centre) @ plane
    clouds = [((tile.outputs - centre) @ plane, tile.labels, test)]
    shown = [clouds[0][0]]
    if tile.train is not None:
        clouds.append(((tile.train[0] - centre) @ plane, tile.train[1], train))
        shown += [clouds[1][0]] if values is None else [clouds[1][0], values]
    low, high = _limits(np.concatenate(shown))

    def placed(array: Array) -> Array:
        inside = (array - low) / (high - low)
        frame = np.array([1 - 2 * _MARGIN, 1 - _MARGIN - _HEADER])
        return np.asarray(corner + _MARGIN + inside * frame)

    first, last = placed(low), placed(high)
    axes.plot(*_corners(first, last)[[0, 1, 2, 3, 0]].T, color=seen("#bbbbbb"), lw=0.8)
    above: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": points(8.5)}
    axes.text(corner[0] + 0.5, last[1] + 0.02, tile.title, **above)
    for cloud, labels, by_answer in clouds:
        answers = np.where(labels, 0, 1) if labels.dtype == bool else labels
        for number, some in enumerate(by_answer):
            if (answers == number).any():
                some.append(placed(cloud[answers == number]))
    if values is not None:
        _draw_values(axes, placed(values), first, last)
    if tile.weights is None:
        return []
    direction = plane.T @ tile.weights
    offset = float(tile.weights @ centre) + tile.bias
    return [placed(ends) for ends in _crossing(direction, offset, low, high)]


def _draw_values(axes: Axes, places: Array, first: Array, last: Array) -> None:
    at_edge = _apart(np.clip(places, first + 0.035, last - 0.035), (first + last) / 2)
    axes.plot(
        *at_edge.T, "o", ms=points(11), mfc=seen("white"), mec=seen(NEUTRAL), mew=0.6, zorder=5
    )
    for token, place, edge in zip(COUNTED, places, at_edge, strict=True):
        weight, colour = ("bold", "black") if (place == edge).all() else ("normal", NEUTRAL)
        style: Any = {"fontsize": points(9), "fontweight": weight, "color": seen(colour)}
        style["zorder"] = 6
        axes.text(edge[0], edge[1], token.text, ha="center", va="center", **style)


def _apart(places: Array, middle: Array) -> Array:
    """Move marks that would hide each other inwards, as two that lie beyond the same corner."""
    places = places.copy()
    for number in range(1, len(places)):
        step = 0.08 if places[number, 0] < middle[0] else -0.08
        while (np.linalg.norm(places[:number] - places[number], axis=1) < 0.05).any():
            places[number, 0] += step
    return places


def _limits(points: Array) -> tuple[Array, Array]:
    """Corners of what is shown: with room around, and never empty."""
    low, high = points.min(axis=0), points.max(axis=0)
    middle, half = (low + high) / 2, (high - low) / 2
    half = np.maximum(half, np.maximum(half.max() * 0.02, 1e-9 + 1e-6 * np.abs(middle)))
    return middle - 1.12 * half, middle + 1.12 * half


def _corners(low: Array, high: Array) -> Array:
    return np.array([low, [high[0], low[1]], high, [low[0], high[1]]])


def _crossing(direction: Array, offset: float, low: Array, high: Array) -> list[Array]:
    """The piece of the line direction·x + offset = 0 inside a rectangle, as its two ends."""
    corners = _corners(low, high)
    heights = corners @ direction + offset
    ends = []
    for start in range(4):
        stop = (start + 1) % 4
        if (heights[start] > 0) != (heights[stop] > 0):
            share = heights[start] / (heights[start] - heights[stop])
            ends.append(corners[start] + share * (corners[stop] - corners[start]))
    return [np.array(ends)] if len(ends) == 2 else []
