"""Pages with drawings by circuitsvis that need no internet.

circuitsvis's own output asks an outside host whether it is there, and then loads its code from a
CDN. Here its components are drawn from the bundle inside its package, which stands in a page once
however many drawings there are, and the page itself forbids every request.

`page` makes a whole document; `report_page` puts drawings into another.
"""

import base64
import gzip
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from markupsafe import Markup

from count01_lens.common.text import signed
from count01_lens.views.document import element, render
from count01_lens.views.pieces import table


@dataclass(frozen=True)
class Drawing:
    """One circuitsvis component: its name, what it is given, and a line of text above it."""

    component: str
    props: Mapping[str, Any]
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Numbers by row and column; the last column and the last row are set off as totals."""

    columns: Sequence[str]
    rows: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Section:
    """A part of a page: paragraphs, drawings side by side where there is room, and a table."""

    heading: str
    text: Sequence[str]
    drawings: Sequence[Drawing]
    table: Table | None = None


def page(title: str, sections: Iterable[Section], *, packed: bool = False) -> str:
    """Write sections as one HTML document; the same sections give the same bytes.

    Args:
        packed: compress circuitsvis's code to a third, for notebooks, which keep every output.
            The browser unpacks it; those from before 2023 may not be able to.
    """
    written: list[Markup] = []
    drawings: dict[str, Drawing] = {}
    for section in sections:
        written.append(section_html(section, first=len(drawings)))
        drawings |= with_ids(section.drawings, first=len(drawings))
    scripts = packed_scripts(drawings) if packed else bundle_script() + render_script(drawings)
    return str(render("circuits.html", title=title, sections=written, scripts=scripts))


def section_html(section: Section, first: int = 0, level: int = 2) -> Markup:
    """Write a section, with places for its drawings; `first` is how many the page has before."""
    drawings = with_ids(section.drawings, first)
    shown = "" if section.table is None else _table_html(section.heading, section.table)
    return render("section.html", section=section, drawings=drawings, table=shown, level=level)


def with_ids(drawings: Iterable[Drawing], first: int = 0) -> dict[str, Drawing]:
    """Name drawings as `section_html` names their places: "view-0", "view-1" and so on."""
    return {f"view-{number}": drawing for number, drawing in enumerate(drawings, start=first)}


def bundle_script() -> Markup:
    """Write circuitsvis's code, a megabyte of it, as a script for a page to have once."""
    return element("script", Markup(_bundle()))


def render_script(drawings: Mapping[str, Drawing]) -> Markup:
    """Write the script that draws everything in a page, given by id; after `bundle_script`, once.

    It also lets heads be chosen with the keyboard, and in both halves of a comparison at once. A
    page that a notebook shows in a frame makes the frame as high as itself.
    """
    return element("script", render("drawings.js", drawings=drawings))


def packed_scripts(drawings: Mapping[str, Drawing]) -> Markup:
    """Write both scripts with circuitsvis's code compressed, unpacked when the page is opened."""
    code = str(render("drawings.js", drawings=drawings))
    return render("packed.html", bundle=_packed_bundle(), code=code)


def _table_html(caption: str, values: Table) -> Markup:
    *heads, _ = values.rows.values()
    full = max(abs(value) for row in heads for value in row[:-1]) or 1.0
    decimals = max(0, 3 - math.floor(math.log10(full)))

    def cell(value: float) -> Markup:
        text = signed(value, f".{decimals}f") if round(value, decimals) else "0"
        colour, alpha = "0 0 255" if value > 0 else "255 0 0", min(1.0, abs(value) / full) / 2
        return element("span", text, style=f"background: rgb({colour} / {alpha:.2f})")

    rows = [[name, *map(cell, row)] for name, row in values.rows.items()]
    return table(["head", *values.columns], rows, caption, look="values")


@cache
def _bundle() -> str:
    """Read circuitsvis's code: a classic script that leaves one global name, `CircuitsVis`."""
    code = (resources.files("circuitsvis") / "dist" / "cdn" / "iife.js").read_text("utf-8")
    code = code.partition("//# sourceMappingURL")[0]  # browsers would look for that file
    return code.replace("</script", "<\\/script")  # the same inside a JavaScript string


@cache
def _packed_bundle() -> str:
    return base64.b64encode(gzip.compress(_bundle().encode(), mtime=0)).decode()
