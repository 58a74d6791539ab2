"""Reports as one HTML file: parts with headings, tables, figures and their data.

The file carries all it shows and forbids every request, so that it opens from disk, today and in
ten years. It reads on a phone, on paper, in the dark, with the keyboard and with a screen reader.

Functions here return `Html`. Whatever else they are given is text, and is escaped.
"""

import base64
import html
import json
import math
import re
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from count01_lens.views.circuits_page import (
    CIRCUITS_STYLE,
    Drawing,
    Section,
    bundle_script,
    render_script,
    section_html,
    with_ids,
)
from count01_lens.views.document import html_document, page_file

LARGEST_SVG = 300_000
LARGEST_DOWNLOAD = 200_000
WIDE = 800  # pixels; a wider figure gets a row of its own
LONG = 40  # characters; a column with a longer cell gets room to read it

Tone = Literal["good", "middling", "bad", "none"]


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def as_html(text: str) -> Html:
    """Escape what is not HTML yet."""
    return text if isinstance(text, Html) else Html(html.escape(text))


def joined(parts: Iterable[str]) -> Html:
    """Put pieces one after the other."""
    return Html("".join(map(as_html, parts)))


def element(tag: str, *content: str, **attributes: str | bool | None) -> Html:
    """Write an element; `class_` is `class`, `aria_label` is `aria-label`, None leaves it out."""
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_quoted(value)}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    ending = "" if tag in ("img", "br") else f"{joined(content)}</{tag}>"
    return Html(f"<{tag}{written}>{ending}")


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
    content: Sequence[Html] = ()
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
    body = joined(_part_html(part, 2, drawings) for part in parts)
    scripts = element("script", Html(_SCRIPT))
    if drawings:
        scripts = joined([scripts, Html(bundle_script()), Html(render_script(with_ids(drawings)))])
    whole = _BODY.format(
        title=as_html(title),
        opening=as_html(opening),
        contents=_contents(parts),
        body=body,
        scripts=scripts,
    )
    return html_document(title, CIRCUITS_STYLE + _STYLE, whole)


def paragraph(text: str, kind: str | None = None) -> Html:
    """Write a paragraph; kinds are "lead", "note", "warning" and "small"."""
    return element("p", text, class_=kind)


def bullets(items: Iterable[str]) -> Html:
    """Write a list."""
    return element("ul", *(element("li", item) for item in items))


def unfolding(summary: str, content: str, *, is_open: bool = False) -> Html:
    """Write what readers may want to open; on paper it is open."""
    return element("details", element("summary", summary), content, open=is_open)


def badge(symbol: str, text: str, tone: Tone) -> Html:
    """Write a judgement as symbol, word and colour, so that each of them would do."""
    return element(
        "span", element("span", symbol, aria_hidden="true"), Html(" "), text, class_=f"badge {tone}"
    )


def tiles(values: Iterable[tuple[str, str]]) -> Html:
    """Write a few numbers large, each with its name before it in the list."""
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in values)
    return element("dl", *pairs, class_="tiles")


def facts(values: Mapping[str, Any], caption: str) -> Html:
    """Write nested plain values as a table of names and values."""
    return table(["name", "value"], [list(pair) for pair in _flat(values)], caption)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str,
    *,
    kinds: Sequence[str] | None = None,
    table_id: str | None = None,
) -> Html:
    """Write a table in a box of its own, which scrolls where there is little room.

    Args:
        columns: names; columns of numbers are recognised and set flush right.
        rows: the first cell of each is the row's heading.
        caption: what the table is, for those who do not see it.
        kinds: one for each row, for `filters`.
        table_id: likewise.
    """
    cells = [list(map(as_html, row)) for row in rows]
    kind_of = [_column_kind(column) for column in zip(*cells, strict=True)] or [None] * len(columns)
    head = (
        element("th", _unbroken(name), scope="col", class_=kind)
        for name, kind in zip(columns, kind_of, strict=True)
    )
    body = (
        element(
            "tr",
            element("th", row[0], scope="row", class_=kind_of[0]),
            *(
                element("td", cell, class_=kind)
                for cell, kind in zip(row[1:], kind_of[1:], strict=True)
            ),
            data_kind=None if kinds is None else kinds[number],
        )
        for number, row in enumerate(cells)
    )
    whole = element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", *head)),
        element("tbody", *body),
        id=table_id,
        class_="data",
    )
    return element("div", whole, class_="scroll", tabindex="0", role="group", aria_label=caption)


def filters(table_id: str, kinds: Mapping[str, str], rows: Collection[str], what: str) -> Html:
    """Write buttons that show only the rows of one kind; they appear where there is JavaScript.

    Args:
        table_id: of the table, which has to come later or earlier in the same page.
        kinds: what is written on the button of each kind.
        rows: the kind of each row.
        what: what the rows are, in the plural.
    """
    counts = {kind: sum(row == kind for row in rows) for kind in kinds}
    buttons = [_filter_button("", "all", len(rows), pressed=True)]
    buttons += [_filter_button(kind, kinds[kind], counts[kind], pressed=False) for kind in kinds]
    group = element("div", *buttons, role="group", aria_label=f"Show {what}")
    status = element("p", role="status", class_="small", data_what=what)
    return element("div", group, status, class_="filters", data_table=table_id, hidden=True)


def _filter_button(kind: str, label: str, count: int, *, pressed: bool) -> Html:
    return element(
        "button",
        label,
        Html(" "),
        element("span", str(count), class_="count"),
        type="button",
        data_show=kind,
        aria_pressed="true" if pressed else "false",
    )


@dataclass(frozen=True)
class Image:
    """A picture, and how large it is meant to be seen, in pixels of CSS."""

    data: bytes
    kind: Literal["svg", "png"]

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height: an SVG's own, a PNG's at 150 dots per inch."""
        if self.kind == "png" and self.data[12:16] == b"IHDR":
            width, height = struct.unpack(">II", self.data[16:24])
            return round(width * 96 / 150), round(height * 96 / 150)
        found = [re.search(rb'<svg[^>]*?\s%s="([\d.]+)pt"' % side, self.data[:4000], re.DOTALL)
                 for side in (b"width", b"height")]  # fmt: skip
        if self.kind == "svg" and found[0] and found[1]:
            return round(float(found[0][1]) * 4 / 3), round(float(found[1][1]) * 4 / 3)
        return None

    @property
    def uri(self) -> str:
        """The picture as an address that holds it."""
        media = "image/svg+xml" if self.kind == "svg" else "image/png"
        return f"data:{media};base64,{base64.b64encode(self.data).decode()}"


def choose_image(svg: Callable[[], bytes], png: Callable[[], bytes]) -> Image:
    """Take the SVG, which is sharp at any size, or the PNG where points make the SVG large."""
    drawn = svg()
    return Image(drawn, "svg") if len(drawn) < LARGEST_SVG else Image(png(), "png")


def figure(image: Image, alt: str, caption: str, downloads: Iterable[str] = ()) -> Html:
    """Write a figure on a white card.

    Args:
        image: the picture.
        alt: what it shows, for those who do not see it.
        caption: how to read it.
        downloads: of its data.
    """
    if not alt.strip():
        raise ValueError(f"alt: expected words that stand for the figure ({caption}), got none")
    width, height = image.size or (None, None)
    picture = element(
        "img",
        src=image.uri,
        alt=alt,
        decoding="async",
        width=None if width is None else str(width),
        height=None if height is None else str(height),
        style=None if width is None else f"--width: {width}px",
    )
    links = [paragraph(joined(downloads), "downloads")] if downloads else []
    wide = width is not None and width > WIDE
    return element(
        "figure",
        element("div", picture, class_="picture", tabindex="0" if wide else None),
        element("figcaption", caption, *links),
        class_="wide" if wide else None,
    )


def figures(drawn: Iterable[str]) -> Html:
    """Put figures side by side where there is room."""
    return element("div", *drawn, class_="figures")


def download(
    name: str, data: bytes, *, largest: int = LARGEST_DOWNLOAD, instead: str = "see {name}"
) -> Html:
    """Write a link that saves a text file, which it carries; of a large one, where to find it."""
    if len(data) > largest:
        place = instead.replace("{name}", name)
        return element("span", f"{name}: {_bytes(len(data))}, too large to carry here; {place}")
    media = "application/json" if name.endswith(".json") else "text/csv"
    uri = f"data:{media};charset=utf-8,{quote(data, safe='/,:;+=()*-_.!~')}"
    label = f"{name} ({_bytes(len(data))})"
    return element("a", label, href=uri, download=name)


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with as many digits as readers want to see."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}".replace("-", "−")
    return f"{value:.{digits}g}".replace("-", "−")


def percent(value: float | None, decimals: int = 1) -> str:
    """Write a share in percent, and only all as 100 and only none as 0."""
    if value is None or math.isnan(value):
        return "–"
    while decimals < 6 and value not in (0.0, 1.0) and f"{100 * value:.{decimals}f}" in _ENDS:
        decimals += 1
    text = f"{100 * value:.{decimals}f}" if value not in (0.0, 1.0) else f"{100 * value:.0f}"
    return text.replace("-", "−") + "\u00a0%"


_ENDS = {f"{end:.{decimals}f}" for end in (0, 100) for decimals in range(6)}


def _part_html(part: Part, level: int, drawings: list[Drawing]) -> Html:
    """Write a part and those below it; note the drawings that the page will have to fill."""
    drawn = [_NO_SCRIPT] if part.sections else []
    for section in part.sections:
        # circuits_page writes sections of a page of their own: their headings are one too high.
        place = section_html(section, first=len(drawings))
        below = f"h{level + 1}>"
        drawn.append(Html(place.replace("<h2>", f"<{below}", 1).replace("</h2>", f"</{below}", 1)))
        drawings.extend(section.drawings)
    inner = [_part_html(child, level + 1, drawings) for child in part.parts]
    heading = element(f"h{level}", part.heading, id=f"{part.id}-heading")
    return element(
        "section",
        heading,
        *part.content,
        *drawn,
        *inner,
        id=part.id,
        # Only these are landmarks: a list of all small parts would help nobody to find one.
        aria_labelledby=f"{part.id}-heading" if level == 2 else None,
    )


def _contents(parts: Sequence[Part]) -> Html:
    def entry(part: Part) -> Html:
        below = [_contents(part.parts)] if part.parts else []
        return element("li", element("a", part.heading, href=f"#{part.id}"), part.mark, *below)

    return element("ol", *map(entry, parts))


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{before}{name}.")
        elif isinstance(value, bool) or value is None:
            pairs.append((before + name, {True: "yes", False: "no", None: "–"}[value]))
        elif isinstance(value, int | float):
            pairs.append(
                (before + name, f"{value:.6g}" if isinstance(value, float) else f"{value}")
            )
        else:
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            pairs.append((before + name, written))
    return pairs


def _column_kind(cells: Sequence[str]) -> str | None:
    """Numbers are set flush right; a column of sentences is given room."""
    seen = [re.sub(r"<[^>]*>", "", cell) for cell in cells]
    number = re.compile(r"[+−]?[\d.,]+(e[+−]?\d+)?(\u00a0%)?|[+−]?∞|–|")
    if all(number.fullmatch(cell) for cell in seen):
        return "number"
    return "long" if max(map(len, seen)) > LONG else None


def _unbroken(name: str) -> str:
    """Keep words such as l-acc on one line."""
    if isinstance(name, Html):
        return name
    words = (
        element("span", word, class_="whole") if "-" in word else word for word in name.split()
    )
    return Html(" ".join(map(as_html, words)))


def _quoted(value: str | Literal[True]) -> str:
    return html.escape(str(value))


def _bytes(size: int) -> str:
    for unit, name in ((1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


_NO_SCRIPT = element("noscript", "This part is drawn by JavaScript, which is switched off here.")
_STYLE, _SCRIPT = page_file("report.css"), page_file("report.js")

_BODY = """\
<body class="report">
<a class="skip" href="#main">Skip to the report</a>
<header>
<h1>{title}</h1>
</header>
<nav aria-label="Contents">
<details open><summary>Contents</summary>
{contents}
</details>
</nav>
<main id="main" tabindex="-1">
{opening}
{body}
</main>
<footer>
<p>Made with count01_lens. This file carries all it shows; opening it sends nothing.</p>
</footer>
{scripts}
</body>"""
