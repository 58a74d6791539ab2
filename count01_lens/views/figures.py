"""Figures that show themselves in a notebook and turn into the same bytes each time."""

import io

from matplotlib.figure import Figure

FOUR, FIVE, END, NEUTRAL = "#0072B2", "#D55E00", "#009E73", "#555555"


class NotebookFigure(Figure):
    """A matplotlib Figure; IPython shows plain ones only after pyplot was imported."""

    def _repr_png_(self) -> bytes:
        return as_bytes(self, "png")


def as_bytes(figure: Figure, kind: str) -> bytes:
    """Render a figure; the same figure gives the same bytes."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    with rc_context({"svg.hashsalt": "count01"}):
        figure.savefig(buffer, format=kind, metadata=metadata, dpi=150)
    return buffer.getvalue()
