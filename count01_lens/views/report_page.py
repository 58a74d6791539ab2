"""Reports as one HTML file: parts with headings, made of `pieces`, and drawings by circuitsvis."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from count01_lens.views.circuits_page import (
    Drawing,
    Section,
    bundle_script,
    render_script,
    section_html,
    with_ids,
)
from count01_lens.views.document import render


@dataclass(frozen=True)
class Part:
    """A part of a report.

    Attributes:
        id: for links to it.
        heading: its title, also in the table of contents.
        content: what stands below the heading, piece by piece.
        parts: parts of this part, which follow it.
        mark: shown beside the heading in the table of contents.
        sections: drawings by circuitsvis, which come last.
    """

    id: str
    heading: str
    content: Sequence[Markup] = ()
    parts: Sequence["Part"] = ()
    mark: str = ""
    sections: Sequence[Section] = ()


def report_page(title: str, opening: str, parts: Sequence[Part]) -> str:
    """Write a report; the same parts give the same bytes.

    Args:
        title: of the document.
        opening: what everybody should read, above all parts.
        parts: in their order.
    """
    drawings: list[Drawing] = []
    written = [_part_html(part, 2, drawings) for part in parts]
    scripts = bundle_script() + render_script(with_ids(drawings)) if drawings else ""
    values = {"opening": opening, "parts": parts, "written": written, "scripts": scripts}
    return str(render("report.html", title=title, **values))


def _part_html(part: Part, level: int, drawings: list[Drawing]) -> Markup:
    """Write a part and those below it; note the drawings that the page will have to fill."""
    drawn = []
    for section in part.sections:
        drawn.append(section_html(section, first=len(drawings), level=level + 1))
        drawings.extend(section.drawings)
    inner = [_part_html(child, level + 1, drawings) for child in part.parts]
    return render("part.html", part=part, level=level, drawn=drawn, inner=inner)
