"""Figures that show themselves in a notebook and turn into the same bytes each time."""

import io
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context, rcParams, rcParamsDefault
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.transforms import ScaledTranslation

from count01_lens.common.validation import check_choice
from count01_lens.views.figure_style import (
    SAVED,
    axes_in_place,
    in_the_dark,
    points,
    saved_ourselves,
    style_now,
)

FOUR, FIVE, END, NEUTRAL = "#0072B2", "#D55E00", "#009E73", "#555555"
# Okabe and Ito's colours for several answers, without the yellow, which is not seen on white.
_SEVERAL = (FOUR, FIVE, END, "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_COLOURS = len(_SEVERAL)  # more answers than this are shown along a scale of colours
# More heads than this are not drawn side by side, but as a map or the most important of them.
MOST_HEADS = 32
# What would say when a file was made.
_DATED: Mapping[str, Any] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


class NotebookFigure(Figure):
    """A matplotlib Figure that is saved in the style it was made in, and seen in a notebook.

    IPython shows plain ones only after pyplot was imported.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.style = style_now()
        super().__init__(*args, **options)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save as `Figure.savefig` does, with text as TrueType and without the date of today."""
        kind = options.get("format") or Path(str(fname)).suffix[1:]
        options.setdefault("metadata", _DATED.get(kind))
        with rc_context({**self.style, **SAVED}):
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        return as_bytes(self, "png")


def sized_figure(width: float, height: float) -> NotebookFigure:
    """Make a figure of so many inches where a plain one is 6.4 wide, else in proportion.

    One that is smaller than its letters would have it is a little higher, so that they have room.
    """
    scale = rcParams["figure.figsize"][0] / rcParamsDefault["figure.figsize"][0]
    tall = (scale + max(scale, points(1))) / 2
    return NotebookFigure(figsize=(scale * width, tall * height), layout="constrained")


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Make a figure with one pair of axes."""
    figure = sized_figure(width, height)
    return figure, figure.add_subplot()


def axes_of(ax: Axes | None, width: float, height: float) -> tuple[Figure, Axes]:
    """Return the axes that were given and their figure, or those of a new figure."""
    figure, (axes,) = panels_of(ax, 1, width, height)
    return figure, axes


def panels_of(
    ax: Axes | Iterable[Any] | None,
    n: int,
    width: float,
    height: float,
    *,
    columns: int = 1,
    **grid: Any,
) -> tuple[Figure, list[Axes]]:
    """Return the axes that were given for n panels, or those of a new figure, in rows."""
    if ax is not None:
        given = check_axes(ax, n)
        return given[0].figure.canvas.figure, given
    figure = sized_figure(width, height)
    made = list(figure.subplots(-(-n // columns), columns, squeeze=False, **grid).flat)
    for axes in made[n:]:
        axes.set_axis_off()
    return figure, made[:n]


def check_axes(ax: Any, n: int) -> list[Axes]:
    """Return axes as a list; raise unless they are as many as the panels of a figure."""
    several = isinstance(ax, Iterable) and not isinstance(ax, str)
    given = list(np.asarray(ax, dtype=object).flat) if several else [ax]
    wrong = [each for each in given if not isinstance(each, Axes)]
    if wrong:
        raise TypeError(
            "ax: expected matplotlib Axes, such as those of figure.subplots(), got "
            f"{type(wrong[0]).__name__}"
        )
    if len(given) != n or len({*map(id, given)}) != n:
        panels = "one panel" if n == 1 else f"{n} panels"
        raise ValueError(
            f"ax: expected as many Axes as the figure has panels, {n}, each once, got "
            f"{len(given)}; without ax, a figure with {panels} is made"
        )
    return given


def set_title(axes: Axes, text: str, **look: Any) -> None:
    """Write above axes, in several lines where there is no room for one; none ends at U+00A0."""
    axes.set_title("", **look)
    width = characters(axes, float(axes.title.get_fontsize()))
    lines = [fill(line, width) for line in text.split("\n")]
    axes.set_title("\n".join(lines).replace("\u00a0", " "))


def characters(axes: Axes, size: float) -> int:
    """How many letters of so many points there is room for."""
    return max(12, int(72 * panel_width(axes) / (0.56 * size)))


def legend_below(axes: Axes, gap: float, *, ncols: int, **options: Any) -> None:
    """Explain colours and lines so many points below axes, in as many columns as there is room."""
    down = ScaledTranslation(0, -points(gap) / 72, axes.figure.dpi_scale_trans)
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 0}
    look: dict[str, Any] = {"fontsize": points(8), "title_fontsize": points(8), "frameon": False}
    look |= {"columnspacing": 1.2, "handlelength": 1.8, "handletextpad": 0.6}
    for columns in range(ncols, 0, -1):
        where = {**place, "bbox_transform": axes.transAxes + down, "ncols": columns}
        legend = axes.legend(**where, **look, **options)
        if legend.get_window_extent().width <= panel_width(axes) * axes.figure.dpi:
            return


def panel_width(axes: Axes) -> float:
    """Width in inches that axes have with all that is written around them."""
    whole, place = axes.figure.bbox.width / axes.figure.dpi, axes.get_subplotspec()
    share = axes.get_position().width if place is None else 1 / place.get_gridspec().ncols
    return float(whole * share)


def as_bytes(figure: Figure, kind: str, *, dark: bool = False) -> bytes:
    """Render a figure as PNG, SVG or PDF; the same figure gives the same bytes.

    Args:
        figure: one of ours is rendered in the style it was made in.
        kind: "png", "svg" or "pdf".
        dark: for dark surroundings: on no ground of its own, with black and white turned around.
            Data keep their colours.
    """
    check_choice("kind", kind, tuple(_DATED))
    buffer = io.BytesIO()
    style = figure.style if isinstance(figure, NotebookFigure) else style_now()
    options: dict[str, Any] = {"metadata": _DATED[kind], "dpi": 150, "transparent": dark}
    settings = {**style, **saved_ourselves(), **SAVED}
    ground = in_the_dark if dark else nullcontext
    with rc_context(settings), axes_in_place(figure), ground(figure):
        Figure.savefig(figure, buffer, format=kind, **options)
    return buffer.getvalue()


def answer_colours(n: int) -> tuple[str, ...]:
    """A colour for each of n answers: unlike each other if they are few, else along a scale."""
    if n <= MOST_COLOURS:
        return _SEVERAL[:n]
    return tuple(to_hex(colour) for colour in colormaps["viridis"](np.linspace(0, 0.95, n)))


def pale(colour: str) -> str:
    """The same colour for what stands behind."""
    return {FOUR: "#A6CDE3", FIVE: "#F2C2A2"}.get(
        colour, to_hex(0.65 + 0.35 * np.array(to_rgb(colour)))
    )


def drawable(text: str) -> str:
    """A text of a stranger for a figure: no formulas, and no characters that the font lacks."""
    known = _characters()
    seen = (each if ord(each) in known else each.encode("unicode_escape").decode() for each in text)
    return "".join(seen).replace("$", r"\$")


@cache
def _characters() -> frozenset[int]:
    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())
