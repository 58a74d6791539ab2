"""The explorer as a page of its own, one file that opens from disk, and as a part of others."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from count01_lens.common.types import HookedTransformer
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.prompts import Task
from count01_lens.views.document import render, write_page
from count01_lens.views.explorer_data import Explored, explorer_data
from count01_lens.views.explorer_module import explorer_module, explorer_style
from count01_lens.views.pieces import paragraph
from count01_lens.views.report_page import Part

if TYPE_CHECKING:
    from count01_lens.heads.analysis import HeadAnalysis


def write_explorer(path: Path, explored: Sequence[Explored], title: str = "Explorer") -> Path:
    """Write models as one HTML file in which they can be patched by hand."""
    return write_page(path, lambda: explorer_page(explored, title))


def explorer_page(explored: Sequence[Explored], title: str) -> str:
    """Write the page: a document that holds nothing but the explorer."""
    content = explorer_element(explorer_data(explored), alone=True)
    return str(render("explorer.html", title=title, content=content))


def explorer_element(data: dict[str, Any], *, alone: bool = False) -> Markup:
    """Write the explorer for a page that is being made: its place, style, data and module.

    Where it is alone on the page, it fits the window.

    What the data hold is text, also where it looks like markup: inside a script, only '<' could
    end it, and JSON can write that otherwise.
    """
    as_json = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return render(
        "explorer_part.html",
        style=Markup(explorer_style()),
        data=Markup(as_json),
        module=Markup(explorer_module()),
        fits_window="true" if alone else "false",
    )


def explorer_part(
    analysis: "HeadAnalysis", model: HookedTransformer | None, task: Task | None
) -> Part | None:
    """The explorer as a part of a report; None where counts do not apply, or there is no model."""
    if model is None or not isinstance(task, CountingTask) or analysis.counts is None:
        return None
    explored = Explored(model, task, analysis)
    text = (
        "Set the counts of a sentence, choose heads, move their attention ratios, switch them off: "
        "this page computes the model, all test sentences and refitted linear probes by itself."
    )
    return Part(
        "explore",
        "Explore the model",
        [paragraph(text), explorer_element(explorer_data([explored]))],
    )
