"""Reports as one HTML file: parts with headings, made of `pieces`, and drawings by circuitsvis."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from count01_lens.views import circuits_page as circuits
from count01_lens.views.document import render


@dataclass(frozen=True)
class Part:
    """A part of a report: its own content, then drawings by circuitsvis, then parts of it.

    The `id` is for links to it; the `mark` stands beside its heading in the table of contents.
    """

    id: str
    heading: str
    content: Sequence[Markup] = ()
    parts: Sequence["Part"] = ()
    mark: str = ""
    sections: Sequence[circuits.Section] = ()


def report_page(title: str, opening: str, parts: Sequence[Part]) -> str:
    """Write a report, with an opening above all parts; the same parts give the same bytes."""
    drawings: list[circuits.Drawing] = []
    written = [_part_html(part, 2, drawings) for part in parts]
    scripts = (
        circuits.bundle_script() + circuits.render_script(circuits.with_ids(drawings))
        if drawings
        else ""
    )
    values = {"opening": opening, "parts": parts, "written": written, "scripts": scripts}
    return str(render("report.html", title=title, **values))


def _part_html(part: Part, level: int, drawings: list[circuits.Drawing]) -> Markup:
    """Write a part and those below it; note the drawings that the page will have to fill."""
    drawn = []
    for section in part.sections:
        drawn.append(circuits.section_html(section, first=len(drawings), level=level + 1))
        drawings.extend(section.drawings)
    inner = [_part_html(child, level + 1, drawings) for child in part.parts]
    return render("part.html", part=part, level=level, drawn=drawn, inner=inner)
