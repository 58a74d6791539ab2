"""Figures that show themselves in a notebook and turn into the same bytes each time."""

import io
from functools import cache

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

FOUR, FIVE, END, NEUTRAL = "#0072B2", "#D55E00", "#009E73", "#555555"
# Okabe and Ito's colours for several answers, without the yellow, which is not seen on white.
_SEVERAL = (FOUR, FIVE, END, "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_COLOURS = len(_SEVERAL)  # more answers than this are shown along a scale of colours
# More heads than this are not drawn side by side, but as a map or the most important of them.
MOST_HEADS = 32


class NotebookFigure(Figure):
    """A matplotlib Figure; IPython shows plain ones only after pyplot was imported."""

    def _repr_png_(self) -> bytes:
        return as_bytes(self, "png")


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Make a figure of so many inches, with one pair of axes."""
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def axes_of(ax: Axes | None, width: float, height: float) -> tuple[Figure, Axes]:
    """Return the axes that were given and their figure, or those of a new figure."""
    if ax is None:
        return new_figure(width, height)
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure, ax


def as_bytes(figure: Figure, kind: str) -> bytes:
    """Render a figure; the same figure gives the same bytes."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    with rc_context({"svg.hashsalt": "count01"}):
        figure.savefig(buffer, format=kind, metadata=metadata, dpi=150)
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
