"""Pages with drawings by circuitsvis that need no internet.

circuitsvis's own output asks an outside host whether it is there, and then loads its code from a
CDN. Here its components are drawn from the bundle inside its package, which stands in a page once
however many drawings there are, and the page itself forbids every request.

`page` makes a whole document. Another document can have drawings too: `CIRCUITS_STYLE` in its
head, a `section_html` wherever one belongs, and at the end of its body, once,
`bundle_script()` and then the `render_script` of all its drawings.
"""

import base64
import gzip
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from count01_lens.views.document import html_document, page_file


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
    """A part of a page.

    Attributes:
        heading: its title.
        text: paragraphs that say how to read the drawings.
        drawings: side by side where there is room.
        table: numbers below them.
    """

    heading: str
    text: Sequence[str]
    drawings: Sequence[Drawing]
    table: Table | None = None


def page(title: str, sections: Iterable[Section], *, packed: bool = False) -> str:
    """Write sections as one HTML document; the same sections give the same bytes.

    Args:
        title: of the document.
        sections: in their order.
        packed: compress circuitsvis's code to a third, for notebooks, which keep every output.
            The browser unpacks it; those from before 2023 may not be able to.
    """
    body: list[str] = []
    drawings: dict[str, Drawing] = {}
    for section in sections:
        body.append(section_html(section, first=len(drawings)))
        drawings |= with_ids(section.drawings, first=len(drawings))
    scripts = (
        packed_scripts(drawings) if packed else f"{bundle_script()}\n{render_script(drawings)}"
    )
    no_script = "<noscript>This page is drawn by JavaScript, which is switched off here.</noscript>"
    lines = ["<body>", f"<h1>{html.escape(title)}</h1>", no_script, *body, scripts, "</body>"]
    return html_document(title, PAGE_STYLE + CIRCUITS_STYLE, "\n".join(lines))


def section_html(section: Section, first: int = 0) -> str:
    """Write a section, with places for its drawings; `first` is how many the page has before."""
    text = "".join(f"<p>{html.escape(line)}</p>" for line in section.text)
    return (
        f"<section><h2>{html.escape(section.heading)}</h2>{text}"
        f"{_cards_html(with_ids(section.drawings, first))}{_table_html(section.table)}</section>"
    )


def with_ids(drawings: Iterable[Drawing], first: int = 0) -> dict[str, Drawing]:
    """Name drawings as `section_html` names their places: "view-0", "view-1" and so on."""
    return {f"view-{number}": drawing for number, drawing in enumerate(drawings, start=first)}


def bundle_script() -> str:
    """Write circuitsvis's code, a megabyte of it, as a script for a page to have once."""
    return f"<script>{_bundle()}</script>"


def render_script(drawings: Mapping[str, Drawing]) -> str:
    """Write the script that draws everything in a page, given by id; after `bundle_script`, once.

    It also lets heads be chosen with the keyboard, and in both halves of a comparison at once. A
    page that a notebook shows in a frame makes the frame as high as itself.
    """
    return f"<script>\n{_render_code(drawings)}\n</script>"


def packed_scripts(drawings: Mapping[str, Drawing]) -> str:
    """Write both scripts with circuitsvis's code compressed, unpacked when the page is opened."""
    code = json.dumps(_render_code(drawings)).replace("</", "<\\/")
    return f"""<script>
(async () => {{
  const packed = Uint8Array.from(atob("{_packed_bundle()}"), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  for (const code of [await new Response(stream).text(), {code}]) {{
    const script = document.createElement("script");
    script.textContent = code;
    document.body.append(script);
  }}
}})();
</script>"""


def _render_code(drawings: Mapping[str, Drawing]) -> str:
    calls = "\n".join(
        f'CircuitsVis.render("{element_id}", CircuitsVis.{drawing.component}, '
        f"{_script_json(drawing.props)});"
        for element_id, drawing in drawings.items()
    )
    return f"{calls}\n\n{_SCRIPT}"


def rounded(values: Any) -> Any:
    """Turn numbers in nested lists into ones with the digits that a reader wants to see."""
    if isinstance(values, list):
        return [rounded(part) for part in values]
    return float(f"{values:.4g}")


def signed(value: float) -> str:
    """Write a number for text, always with its sign."""
    return f"{value:+.3g}".replace("-", "−")


def _cards_html(drawings: Mapping[str, Drawing]) -> str:
    """Write places side by side; a head chosen in one is chosen in all of them."""
    cards = "".join(
        f'<div class="card {drawing.component}">'
        + (f"<p>{html.escape(drawing.caption)}</p>" if drawing.caption else "")
        + f'<div class="view" id="{element_id}"></div></div>'
        for element_id, drawing in drawings.items()
    )
    return f'<div class="cards">{cards}</div>'


def _table_html(table: Table | None) -> str:
    if table is None:
        return ""
    *heads, _ = table.rows.values()
    full = max(abs(value) for row in heads for value in row[:-1]) or 1.0
    decimals = max(0, 3 - math.floor(math.log10(full)))

    def cell(value: float) -> str:
        shown = round(value, decimals)
        text = f"{shown:+.{decimals}f}".replace("-", "−") if shown else "0"
        colour, alpha = "0 0 255" if value > 0 else "255 0 0", min(1.0, abs(value) / full) / 2
        return f'<td style="background: rgb({colour} / {alpha:.2f})">{text}</td>'

    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table.columns)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>{"".join(map(cell, row))}</tr>'
        for name, row in table.rows.items()
    )
    return (
        f'<div class="scroll"><table class="shares"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


@cache
def _bundle() -> str:
    """Read circuitsvis's code: a classic script that leaves one global name, `CircuitsVis`."""
    code = (resources.files("circuitsvis") / "dist" / "cdn" / "iife.js").read_text("utf-8")
    code = code.partition("//# sourceMappingURL")[0]  # browsers would look for that file
    return code.replace("</script", "<\\/script")  # the same inside a JavaScript string


@cache
def _packed_bundle() -> str:
    return base64.b64encode(gzip.compress(_bundle().encode(), mtime=0)).decode()


def _script_json(props: Mapping[str, Any]) -> str:
    from circuitsvis.utils.convert_props import convert_props

    text: str = convert_props(dict(props))
    return text.replace("<", "\\u003c")


PAGE_STYLE = page_file("page.css")
# circuitsvis has hardly any class names: what an element is follows from where it stands. Should a
# version change that, these rules meet nothing, and it looks as it does by itself.
CIRCUITS_STYLE = page_file("circuits.css")
_SCRIPT = page_file("circuits.js")
