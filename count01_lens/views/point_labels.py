"""Names beside the points of a scatter: none on another, one for points that lie on each other."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import fill
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from scipy.cluster.hierarchy import fclusterdata

from count01_lens.common.types import Array
from count01_lens.views.figure_style import axes_in_place, points, seen
from count01_lens.views.figures import NEUTRAL

# All in points, 1/72 of an inch.
_SIZE = 8.0
_DISC = 5.0  # radius of a mark, with its edge
_TOGETHER = 12.0  # points of a circle of this diameter share a label
_AWAY = (7.0, 12.0, 20.0, 32.0, 48.0, 68.0, 92.0, 120.0, 150.0)
_BESIDE = 9.0  # a label farther away than this is led to by a line
_LINE = 16  # characters
_TURNS = np.pi / 8 * np.array([1, 0, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7, 8])


class _Boxes(NamedTuple):
    """Labels that have their places: lower left and upper right corners."""

    low: Float[Array, "box 2"]
    high: Float[Array, "box 2"]


def label_points(axes: Axes, places: Float[Array, "point 2"], names: Sequence[str]) -> None:
    """Write names beside points, once their axes have their scales and limits.

    Points that hide each other share a label, such as "2, 5, 8–10"; where there is no room near by
    it stands farther off, with a line to its points. The same points give the same labels.
    """
    unit = points(10) / 10
    room = _room(axes) / unit  # as if letters were of their usual size
    marks = (axes.transScale + axes.transLimits).transform(places) * room
    groups = _clusters(marks)
    placed = _Boxes(np.empty((0, 2)), np.empty((0, 2)))
    # Those at the outside have most room: they do not stand in the way of those inside.
    middle = marks.mean(axis=0)
    for group in sorted(groups, key=lambda group: -np.linalg.norm(marks[group[0]] - middle)):
        text = fill(in_runs([names[number] for number in group]), _LINE)
        lines = text.split("\n")
        size = _SIZE * np.array([max(map(_width, lines)), 1.2 * len(lines)])
        centre = marks[group].mean(axis=0)
        anchor = group[int(np.linalg.norm(marks[group] - centre, axis=1).argmin())]
        others = np.delete(marks, group, axis=0)
        offset = _best(marks[anchor], marks[group], others, size, placed, room)
        corners = [marks[anchor] + offset + side * size / 2 for side in (-1, 1)]
        placed = _Boxes(*(np.vstack(each) for each in zip(placed, corners, strict=True)))
        gap = np.linalg.norm(np.maximum(np.abs(offset) - size / 2, 0))
        style = {"arrowstyle": "-", "color": seen(NEUTRAL), "lw": 0.6, "shrinkA": 0, "shrinkB": 4}
        axes.annotate(
            text,
            tuple(places[anchor]),
            tuple(unit * offset),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=points(_SIZE),
            linespacing=1.1,
            arrowprops=style if gap > _BESIDE else None,
        )


def _width(line: str) -> float:
    """Width of digits, commas and spaces, in sizes of the font."""
    return sum(0.64 if letter.isalnum() else 0.4 for letter in line)


def in_runs(names: Sequence[str]) -> str:
    """Write names one after another; of three numbers in a row or more the first and the last."""
    if not all(name.isdecimal() for name in names):
        return ", ".join(names)
    numbers = sorted(map(int, names))
    written: list[str] = []
    for _, run in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        row = [number for _, number in run]
        written += [f"{row[0]}–{row[-1]}"] if len(row) > 2 else map(str, row)
    return ", ".join(written)


def _room(axes: Axes) -> Float[Array, "2"]:
    """Width and height, in points, that axes will have once titles and ticks have their room."""
    figure = axes.figure.canvas.figure
    with axes_in_place(figure):
        layout = figure.get_layout_engine()
        if layout is not None:
            layout.execute(figure)
        return np.asarray(axes.get_window_extent().size) * 72 / figure.dpi


def _clusters(marks: Float[Array, "point 2"]) -> list[list[int]]:
    if len(marks) == 1:
        return [[0]]
    label = fclusterdata(marks, _TOGETHER, criterion="distance", method="complete")
    return [np.flatnonzero(label == number).tolist() for number in np.unique(label)]


def _best(
    mark: Float[Array, "2"],
    own: Float[Array, "mine 2"],
    others: Float[Array, "other 2"],
    size: Float[Array, "2"],
    placed: _Boxes,
    room: Float[Array, "2"],
) -> Float[Array, "2"]:
    """The offset of a label from its mark that hides least and is nearest."""
    marks = np.concatenate([others, own])

    def cost(offset: Float[Array, "2"]) -> float:
        low, high = mark + offset - size / 2, mark + offset + size / 2
        outside = np.maximum(0, np.maximum(-low, high - room)).sum()
        way = mark + np.linspace(0.15, 1, 12)[:, None] * offset
        crossed = np.linalg.norm(way[:, None] - others, axis=-1).min(axis=0, initial=np.inf)
        hidden = ((low < placed.high + 1) & (placed.low < high + 1)).all(axis=1)
        covered = _distances(marks, low, high) < _DISC
        passed = _distances(way[:, None], placed.low, placed.high) < 1
        near = np.linalg.norm(np.maximum(np.abs(offset) - size / 2, 0))
        bad = 300 * hidden.sum() + 60 * covered.sum() + 10 * (crossed < _DISC).sum()
        return float(bad + 40 * min(passed.sum(), 2) + 5 * outside + near)

    return min(_offsets(size), key=cost)


def _offsets(size: Float[Array, "2"]) -> Iterator[Float[Array, "2"]]:
    for away in _AWAY:
        for turn in _TURNS:
            direction = np.array([np.cos(turn), np.sin(turn)])
            yield direction * away + np.round(direction, 1) * size / 2


def _distances(places: Array, low: Array, high: Array) -> Array:
    """How far points are from boxes; 0 inside."""
    return np.asarray(np.linalg.norm(places - np.clip(places, low, high), axis=-1))
