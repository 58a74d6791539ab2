"""Pieces of pages: tables, figures, files to download, and other things with a look of their own.

They read on a phone, on paper, in the dark, with the keyboard and with a screen reader.
"""

import base64
import gzip
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from markupsafe import Markup, escape

from count01_lens.common.text import anything, file_size
from count01_lens.views.document import element, render

LARGEST_SVG = 300_000
LARGEST_DOWNLOAD = 200_000
WIDE = 800  # pixels; a wider figure gets a row of its own
LONG = 40  # characters; a column with a longer cell gets room to read it

_NUMBER = re.compile(r"[+−]?[\d.,]+(e[+−]?\d+|·10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?( %)?|[+−]?∞|–|")

Tone = Literal["good", "middling", "bad", "none"]


def paragraph(text: str, kind: str | None = None) -> Markup:
    """Write a paragraph; kinds are "lead", "note", "warning", "small" and "downloads"."""
    return element("p", text, class_=kind)


def bullets(items: Iterable[str]) -> Markup:
    """Write a list."""
    return element("ul", *(element("li", item) for item in items))


def unfolding(summary: str, content: str, *, is_open: bool = False) -> Markup:
    """Write what readers may want to open; on paper it is open."""
    return element("details", element("summary", summary), content, open="" if is_open else None)


def badge(symbol: str, text: str, tone: Tone) -> Markup:
    """Write a judgement as symbol, word and colour, so that each of them would do."""
    hidden = element("span", symbol, aria_hidden="true")
    return element("span", hidden, " ", text, class_=f"badge {tone}")


def tiles(values: Iterable[tuple[str, str]]) -> Markup:
    """Write a few numbers large, each with its name before it in the list."""
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in values)
    return element("dl", *pairs, class_="tiles")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str,
    *,
    kinds: Sequence[str] | None = None,
    table_id: str | None = None,
    look: Literal["data", "values"] = "data",
    later: Collection[str] = (),
) -> Markup:
    """Write a table in a box of its own, which scrolls where there is little room.

    The first cell of a row is its heading. `filters` needs `kinds`, one for each row, and
    `table_id`. The look "values" is for small numbers whose last row and column are totals. Columns
    that may come `later` are left out where there is little room, until they are asked for.
    """
    cells = [[escape(cell) for cell in row] for row in rows]
    kind_of = [_column_kind(column) for column in zip(*cells, strict=True)] or [None] * len(columns)
    return render(
        "table.html",
        columns=[
            (_unbroken(name), " ".join(filter(None, [kind, "later" * (name in later)])) or None)
            for name, kind in zip(columns, kind_of, strict=True)
        ],
        n_later=len(later),
        rows=cells,
        caption=caption,
        kinds=kinds or [None] * len(cells),
        table_id=table_id,
        look=look,
    )


@dataclass(frozen=True)
class Shaded:
    """A cell of a table that is coloured: blue up to level 5, orange down to −5."""

    text: str
    level: int = 0


def shaded_table(
    columns: Sequence[str], rows: Iterable[tuple[str, Sequence[Shaded]]], caption: str
) -> Markup:
    """Write a small table of numbers whose colours show which are large."""
    return render("shaded.html", columns=columns, rows=rows, caption=caption)


def _column_kind(cells: Iterable[Markup]) -> str | None:
    """Numbers are set flush right; a column of sentences is given room."""
    seen = [cell.striptags() for cell in cells]
    if all(_NUMBER.fullmatch(text) for text in seen):
        return "number"
    return "long" if max(map(len, seen)) > LONG else None


def _unbroken(name: str) -> Markup:
    """Keep l-acc and s-acc on one line."""
    return Markup(re.sub(r"\b[ls]-acc\b", r'<span class="whole">\g<0></span>', str(escape(name))))


def facts(values: Mapping[str, Any], caption: str) -> Markup:
    """Write nested plain values as a table of names and values."""
    return table(["name", "value"], list(_flat(values)), caption)


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            # A seed or a size is more of a name than an amount: no comma in it.
            yield before + name, str(value) if type(value) is int else anything(value, 6)


def filters(table_id: str, kinds: Mapping[str, str], rows: Collection[str], what: str) -> Markup:
    """Write buttons that show only the rows of one kind; they appear where there is JavaScript.

    Args:
        kinds: what is written on the button of each kind.
        rows: the kind of each row.
        what: what the rows are, in the plural.
    """
    buttons = [("", "all", len(rows))]
    buttons += [(kind, label, sum(row == kind for row in rows)) for kind, label in kinds.items()]
    return render("filters.html", table_id=table_id, buttons=buttons, what=what)


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
        return f"data:{self.media};base64,{base64.b64encode(self.data).decode()}"

    @property
    def media(self) -> str:
        """The kind of picture, in the words of browsers."""
        return "image/svg+xml" if self.kind == "svg" else "image/png"

    @property
    def packed(self) -> str:
        """The picture for a script that unpacks it; of an SVG a fifth of the address."""
        return base64.b64encode(gzip.compress(self.data, mtime=0)).decode()


def choose_image(svg: Callable[[], bytes], png: Callable[[], bytes]) -> Image:
    """Take the SVG, which is sharp at any size, or the PNG where points make the SVG large."""
    drawn = svg()
    return Image(drawn, "svg") if len(drawn) < LARGEST_SVG else Image(png(), "png")


@dataclass(frozen=True)
class Cells:
    """Where a figure shows a matrix of heads whose values its first file holds: for its reader.

    Attributes:
        box: left, top, width and height of the matrix, as shares of the figure.
        pair: what the value of a pair is.
        single: what stands on the diagonal of the file.
        signed: whether values are written with their sign.
    """

    box: tuple[float, float, float, float]
    pair: str
    single: str
    signed: bool = False

    @property
    def style(self) -> str:
        """The place in a style sheet's words."""
        sides = zip(("left", "top", "width", "height"), self.box, strict=True)
        return "; ".join(f"{side}: {100 * share:.2f}%" for side, share in sides)


def figure(
    image: Image,
    alt: str,
    caption: str,
    downloads: Sequence[str] = (),
    *,
    dark: Image | None = None,
    cells: Cells | None = None,
) -> Markup:
    """Write a figure on a white card; `alt` says what it shows to those who do not see it.

    Args:
        dark: the same picture for dark surroundings, on no card. It is packed, and a
            script unpacks it in the dark only.
        cells: makes the values of a matrix readable by pointing at it.
    """
    if not alt.strip():
        raise ValueError(f"alt: expected words that stand for the figure ({caption}), got none")
    size = image.size
    wide = size is not None and size[0] > WIDE
    said = {"alt": alt, "caption": caption, "downloads": downloads}
    return render("figure.html", image=image, dark=dark, size=size, wide=wide, cells=cells, **said)


def figures(drawn: Iterable[str]) -> Markup:
    """Put figures side by side where there is room."""
    return element("div", *drawn, class_="figures")


def download(
    name: str, data: bytes, *, largest: int = LARGEST_DOWNLOAD, instead: str = "see the data"
) -> Markup:
    """Write a link that saves a text file, which it carries; of a large one, where to find it."""
    size = file_size(len(data))
    if len(data) > largest:
        return element("span", f"{name}: {size}, too large to carry here; {instead}")
    media = "application/json" if name.endswith(".json") else "text/csv"
    uri = f"data:{media};charset=utf-8,{quote(data, safe='/,:;+=()*-_.!~')}"
    return element("a", f"{name} ({size})", href=uri, download=name)
