"""Head outputs as small pictures, many at once and fast enough to follow a slider.

All tiles are drawn into one pair of axes: a matplotlib axes of its own for each of sixteen heads
would take longer than a user waits for a slider.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from count01_lens.common.types import Array
from count01_lens.heads.head_data import HeadData
from count01_lens.tasks.language import COUNTED
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure

_TEST = {True: FOUR, False: FIVE}
_TRAIN = {True: "#A6CDE3", False: "#F2C2A2"}
_MARGIN, _HEADER = 0.04, 0.11  # of a tile: around the frame, and for the title above it


@dataclass(frozen=True, eq=False)
class OutputTile:
    """What is drawn of one head.

    Attributes:
        title: shown above.
        outputs: of the head on the test split.
        labels: True where the answer is '4'.
        values: value vectors of '0', '1' and '2', where they are the same in all sentences.
        weights: of the linear probe; None where a probe is not linear, and no line is drawn.
        bias: likewise.
        train: outputs and labels of the training split, to show behind, with all value vectors in
            their places; None shows the outputs closely, and value vectors outside at the edge.
    """

    title: str
    outputs: Float[Array, "test d_head"]
    labels: Bool[Array, " test"]
    values: Float[Array, "token=3 d_head"] | None
    weights: Float[Array, " d_head"] | None
    bias: float
    train: tuple[Float[Array, "train d_head"], Bool[Array, " train"]] | None = None


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
    )


def tiles_figure(tiles: Sequence[OutputTile], tile_inches: float = 2.1) -> Figure:
    """Draw tiles in rows of four."""
    columns = min(4, len(tiles))
    rows = -(-len(tiles) // columns)
    figure = NotebookFigure(figsize=(columns * tile_inches, rows * tile_inches))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, columns), ylim=(0, rows))
    points: dict[str, list[Array]] = {
        colour: [] for colours in (_TEST, _TRAIN) for colour in colours.values()
    }
    probes = []
    for number, tile in enumerate(tiles):
        corner = np.array([number % columns, rows - 1 - number // columns], dtype=float)
        probes += _draw_tile(axes, tile, corner, points)
    for layer, (colour, clouds) in enumerate(points.items()):
        if clouds:
            x, y = np.concatenate(clouds).T
            order = 1 if colour in _TRAIN.values() else 2 + 0.1 * layer
            axes.plot(x, y, ".", color=colour, ms=2.2, mew=0, zorder=order, rasterized=True)
    axes.add_collection(LineCollection(probes, colors=END, linewidths=1.4, zorder=4))
    return figure


def draw_tiles(tiles: Sequence[OutputTile], tile_inches: float = 2.1) -> bytes:
    """Draw tiles as a PNG, packed loosely because that is faster."""
    from PIL import Image

    canvas = FigureCanvasAgg(tiles_figure(tiles, tile_inches))
    canvas.draw()
    buffer = io.BytesIO()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    picture.save(buffer, format="png", compress_level=1)
    return buffer.getvalue()


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
    axes: Axes, tile: OutputTile, corner: Float[Array, "2"], points: dict[str, list[Array]]
) -> list[Array]:
    """Draw frame and words, collect points; return the probe's line, if it crosses the tile."""
    centre, plane = plane_of(tile.outputs)
    values = None if tile.values is None else (tile.values - centre) @ plane
    clouds = [((tile.outputs - centre) @ plane, tile.labels, _TEST)]
    shown = [clouds[0][0]]
    if tile.train is not None:
        clouds.append(((tile.train[0] - centre) @ plane, tile.train[1], _TRAIN))
        shown += [clouds[1][0]] if values is None else [clouds[1][0], values]
    low, high = _limits(np.concatenate(shown))

    def placed(array: Array) -> Array:
        inside = (array - low) / (high - low)
        frame = np.array([1 - 2 * _MARGIN, 1 - _MARGIN - _HEADER])
        return np.asarray(corner + _MARGIN + inside * frame)

    first, last = placed(low), placed(high)
    axes.plot(*_corners(first, last)[[0, 1, 2, 3, 0]].T, color="#bbbbbb", lw=0.8)
    axes.text(corner[0] + 0.5, last[1] + 0.02, tile.title, ha="center", va="bottom", fontsize=8.5)
    for cloud, labels, colours in clouds:
        for is_four, colour in colours.items():
            points[colour].append(placed(cloud[labels == is_four]))
    if values is not None:
        _draw_values(axes, placed(values), first, last)
    if tile.weights is None:
        return []
    direction = plane.T @ tile.weights
    offset = float(tile.weights @ centre) + tile.bias
    return [placed(ends) for ends in _crossing(direction, offset, low, high)]


def _draw_values(axes: Axes, places: Array, first: Array, last: Array) -> None:
    at_edge = _apart(np.clip(places, first + 0.035, last - 0.035), (first + last) / 2)
    axes.plot(*at_edge.T, "o", ms=11, mfc="white", mec=NEUTRAL, mew=0.6, zorder=5)
    for token, place, seen in zip(COUNTED, places, at_edge, strict=True):
        weight, colour = ("bold", "black") if (place == seen).all() else ("normal", NEUTRAL)
        style: Any = {"fontsize": 9, "fontweight": weight, "color": colour, "zorder": 6}
        axes.text(seen[0], seen[1], token.text, ha="center", va="center", **style)


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
