"""The style that figures are drawn in: that of whoever asks for one, and our own for our pages.

Matplotlib reads its settings (`rcParams`) twice: when a figure is made and when it is saved. Ours
keep those they were made in, so that no later `plt.style.use` mixes two styles. Black, white and
greys stand for ink and paper: in a dark style they turn around, as when a figure is saved for dark
surroundings.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib import rc_context, rcParams, rcParamsDefault
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation, Text

from count01_lens.common.types import Array

DARK_INK, DARK_PAPER = "#e4e4e4", "#16181d"
# TrueType, which publishers ask for and programs can edit; the salt makes the names in an SVG the
# same each time.
SAVED: Mapping[str, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "count01"}
_NOT_LOOKS = ("backend", "interactive", "toolbar", "keymap", "webagg", "tk.", "macosx", "animation")
_INK = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
_KEEPS = "keeps_colour"  # what artists have that are left as they are in the dark
_TINT = 0.6  # a colour whose channels are all above this is mostly paper
_SEEN = 0.15  # luminance of a colour that is seen well enough on dark paper


def style_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Take what figures look like from settings; how they are saved is left out."""
    return {
        name: settings[name]
        for name in sorted(settings)
        if not name.startswith((*_NOT_LOOKS, "savefig."))
    }


def style_now() -> dict[str, Any]:
    """Return the style that is set."""
    return style_of(dict(rcParams.copy()))


def saved_ourselves() -> dict[str, Any]:
    """How our own code saves, whatever the user has set for `savefig`."""
    return {k: rcParamsDefault[k] for k in rcParamsDefault if k.startswith("savefig.")}


@contextmanager
def own_style() -> Iterator[None]:
    """Draw as matplotlib does by default, whatever style, fonts or TeX the user has set.

    For pages and files that this library makes by itself: they have the same bytes each time.
    """
    with rc_context({**style_of(rcParamsDefault), **saved_ourselves()}):
        yield


def points(size: float) -> float:
    """A size of letters, in points, which grows and shrinks with those of the style."""
    return float(size * rcParams["font.size"] / 10)


def seen(colour: str) -> str:
    """A colour as the style has it: black is its ink, white its paper, others are themselves."""
    turned = _turned(colour, rcParams["text.color"], rcParams["axes.facecolor"])
    return colour if to_rgba(colour) == turned else to_hex(turned)


def keep_colour(artist: Any) -> None:
    """Leave something as it is in the dark, as text on coloured cells."""
    setattr(artist, _KEEPS, True)


def _turned(colour: Any, ink: Any, paper: Any) -> tuple[float, ...]:
    """Put ink for black and paper for white, also where they are part of a grey or of a tint.

    On dark paper the darkest colours, such as those where a scale begins, become a little lighter,
    so that they are seen.
    """
    *channels, alpha = to_rgba(colour)
    rgb, low, high = np.array(channels), min(channels), max(channels)
    new_ink, new_paper = (np.array(to_rgba(each)[:3]) for each in (ink, paper))
    if high - low < 0.02:
        rgb = high * new_paper + (1 - high) * new_ink
    elif low > _TINT:
        rgb = (rgb - low + low * new_paper).clip(0, 1)
    elif _luminance(new_paper) < _luminance(new_ink):
        share = max(0.0, 0.35 * (1 - _luminance(rgb) / _SEEN))
        rgb = (1 - share) * rgb + share * new_ink
    return (*rgb.tolist(), alpha)


def _luminance(rgb: Float[Array, "3"]) -> float:
    """How light a colour is to the eye, about as in sRGB."""
    return float(rgb**2.2 @ [0.2126, 0.7152, 0.0722])


@contextmanager
def axes_in_place(figure: Figure) -> Iterator[None]:
    """Put axes back where they were: a layout starts from the one before, and would differ."""
    places = [(axes, axes.get_position(True), axes.get_position()) for axes in figure.axes]
    places = [(axes, first.frozen(), now.frozen()) for axes, first, now in places]
    try:
        yield
    finally:
        for axes, first, now in places:
            in_layout = axes.get_in_layout()
            axes.set_position(first, "original")
            axes.set_position(now, "active")
            axes.set_in_layout(in_layout)


@contextmanager
def in_the_dark(figure: Figure) -> Iterator[None]:
    """Turn ink and paper of a figure around for as long as it is saved; data keep their colours."""
    # Ticks come into being when they are drawn: those to come have their colour from the style.
    ink = dict.fromkeys(_INK, DARK_INK)
    with axes_in_place(figure):
        figure.draw_without_rendering()
        # All are read before any is set: the colour of a marker may be that of its line.
        coloured = [
            (getattr(artist, f"set_{name}"), getattr(artist, f"get_{name}")())
            for artist in _artists(figure)
            for name in _coloured(artist)
        ]
    try:
        with rc_context({**ink, "legend.facecolor": DARK_PAPER}):
            for put, colour in coloured:
                put(_dark(colour))
            yield
    finally:
        for put, colour in coloured:
            put(colour)


def _artists(figure: Figure) -> list[Artist]:
    """All that is drawn but what keeps its colour, with the lines that lead to labels."""
    found = figure.findobj(lambda each: not hasattr(each, _KEEPS))
    lines = [each.arrow_patch for each in found if isinstance(each, Annotation)]
    return [*found, *(each for each in lines if each is not None)]


def _coloured(artist: Artist) -> tuple[str, ...]:
    """What of an artist has a colour of its own, not one that stands for a number."""
    if isinstance(artist, Text):
        return ("color",)
    if isinstance(artist, Line2D):
        return ("color", "markerfacecolor", "markeredgecolor")
    if isinstance(artist, Patch):
        return ("facecolor", "edgecolor")
    if isinstance(artist, Collection):
        faces, edges = len(artist.get_facecolor()), len(artist.get_edgecolor())
        if artist.get_array() is not None:
            faces, edges = 0, edges == 1  # as many edges as numbers have the colours of numbers
        return (*("facecolor",) * bool(faces), *("edgecolor",) * bool(edges))
    return ()


def _dark(colour: Any) -> Any:
    """The same for one colour or for many; "none" stays what it is."""
    if isinstance(colour, np.ndarray) and colour.ndim == 2:
        return np.array([_turned(each, DARK_INK, DARK_PAPER) for each in colour]).reshape(-1, 4)
    if isinstance(colour, str) and colour.lower() == "none":
        return colour
    return _turned(colour, DARK_INK, DARK_PAPER)
