"""The explorer as a page of its own, one file that opens from disk, and as a part of others."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from count01_lens.views.document import render, write_page
from count01_lens.views.explorer_data import Explored, explorer_data
from count01_lens.views.explorer_module import explorer_module, explorer_style


def write_explorer(path: Path, explored: Sequence[Explored], title: str = "Explorer") -> Path:
    """Write models as one HTML file in which they can be patched by hand."""
    return write_page(path, lambda: explorer_page(explored, title))


def explorer_page(explored: Sequence[Explored], title: str) -> str:
    """Write the page: a document that holds nothing but the explorer."""
    content = explorer_element(explorer_data(explored), in_address=True)
    return str(render("explorer.html", title=title, content=content))


def explorer_element(data: dict[str, Any], *, in_address: bool) -> Markup:
    """Write the explorer for a page that is being made: its place, style, data and module.

    What the data hold is text, also where it looks like markup: inside a script, only '<' could
    end it, and JSON can write that otherwise.
    """
    as_json = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return render(
        "explorer_part.html",
        style=Markup(explorer_style()),
        data=Markup(as_json),
        module=Markup(explorer_module()),
        in_address="true" if in_address else "false",
    )
