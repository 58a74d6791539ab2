"""Rows of the reproduction's report: each figure or table of the paper with what we found."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from count01_lens.common.text import anything, number, rewritten
from count01_lens.views.document import element
from count01_lens.views.pieces import (
    Tone,
    badge,
    choose_image,
    download,
    figure,
    figures,
    paragraph,
    table,
    unfolding,
)
from count01_lens.views.report_page import Part
from experiments.claim_cells import contrasted, our_value, spread, tidy
from experiments.saved_results import ROWS, VERDICTS, Results, row_file
from experiments.suite import CONTRAST

BADGES: dict[str, tuple[str, Tone]] = {
    "reproduced": ("✓", "good"),
    "partly": ("≈", "middling"),
    "not reproduced": ("✗", "bad"),
    "too few": ("…", "none"),
    "not measured": ("–", "none"),
}
MOST_ROWS, MOST_COLUMNS = 30, 12  # of a table that is shown, not only given
ACCURATE = "with the accurate recipe"  # heading of what the contrast found


def rows_part(results: Results) -> Part:
    """Write all rows, in the order of the paper."""
    return Part(
        "rows",
        "Every figure and table",
        [paragraph("In the order of the paper, then our own; F3 and the like are our names.")],
        [_row_part(results, name) for name in ROWS],
    )


def _row_part(results: Results, name: str) -> Part:
    claims, row = results.claims_of(name), results.rows.get(name)
    if row is None:
        heading = f"{name} · {ROWS[name]}"
        return Part(name, heading, [not_measured(results, name)], mark=_marks(claims))
    content = [
        element("blockquote", element("b", "The paper: "), row["paper"]),
        element("p", element("b", "We find: "), row["shows"]),
        *contrast_found(results, name),
    ]
    if claims:
        content.append(_row_claims(claims, name))
    content += [
        unfolding(f"All numbers ({len(row['numbers'])})", numbers_table(row)),
        *([figures(_figures(results, name, row))] if row.get("figures") else []),
        *_contrast_figures(results, name),
        *_tables(results, name, row),
    ]
    return Part(name, f"{name} · {row['title']}", content, mark=_marks(claims))


def _row_claims(claims: Sequence[Mapping[str, Any]], name: str) -> Markup:
    twice = any(contrasted(claim) for claim in claims)
    rows = [
        [
            claim["statement"],
            verdict_badge(claim["verdict"]),
            claim["paper"],
            escape(our_value(claim)) + spread(claim),
            *([contrast_cell(claim)] if twice else []),
        ]
        for claim in claims
    ]
    columns = ["claim", "verdict", "the paper", "ours", *([ACCURATE] if twice else [])]
    return table(columns, rows, f"Claims of {name}")


def contrast_cell(claim: Mapping[str, Any]) -> Markup:
    """Number and verdict under the other recipe."""
    other = contrasted(claim)
    if other is None:
        return Markup()
    if other["value"] is None:
        return verdict_badge(other["verdict"])
    return escape(our_value(other)) + " " + verdict_badge(other["verdict"]) + spread(other)


def contrast_found(results: Results, name: str) -> Iterator[Markup]:
    """Write what the row shows under the other recipe, or why it does not."""
    said = element("b", f"{ACCURATE.capitalize()}: ")
    edition = f"{CONTRAST}/{name}"
    if row := results.contrast.get(name):
        yield element("p", said, row["shows"])
    elif edition in (results.suite.get("failed") or {}):
        yield element("p", said, results.why_not(edition))


def _contrast_figures(results: Results, name: str) -> Iterator[Markup]:
    row = results.contrast.get(name)
    if row is not None and row.get("figures"):
        drawn = figures(_figures(results, f"{CONTRAST}/{name}", row))
        yield unfolding(f"{name} {ACCURATE}: figures", drawn)


def not_measured(results: Results, name: str) -> Markup:
    """Say that there is nothing of a row, and why."""
    text = f" {name}, {ROWS[name]}. {results.why_not(name)}"
    return element("p", verdict_badge("not measured"), text)


def numbers_table(row: Mapping[str, Any]) -> Markup:
    """Write all numbers of a row, to read and to take."""
    rows = []
    for name, value in row["numbers"].items():
        known = value if isinstance(value, dict) and "mean" in value else {"mean": value}
        ends = [known[key] for key in ("low", "high") if known.get(key) is not None]
        between = " to ".join(number(tidy(end)) for end in ends)
        n = "" if known.get("n") is None else str(known["n"])
        rows.append([element("code", breakable(name)), anything(known["mean"]), between, n])
    name = row["row"]
    data = json.dumps(row["numbers"], indent=2, ensure_ascii=False).encode()
    instead = f"{name}/numbers.json of the results"
    link = paragraph(download(f"{name}_numbers.json", data, instead=instead), "downloads")
    columns = ["number", "value", "95 % interval", "n"]
    return table(columns, rows, f"Numbers of {name}") + link


def _figures(results: Results, name: str, row: Mapping[str, Any]) -> Iterator[Markup]:
    for shown in row.get("figures", []):
        svg = row_file(results, name, shown["file"])
        png = row_file(results, name, shown["png"]) if shown.get("png") else svg
        image = choose_image(svg.read_bytes, png.read_bytes)
        yield figure(image, shown["alt"], shown["caption"])


def _tables(results: Results, name: str, row: Mapping[str, Any]) -> Iterator[Markup]:
    """Every table to download; small ones also to read."""
    links = []
    for file in row.get("tables", []):
        data = row_file(results, name, file).read_bytes()
        links.append(download(f"{name}_{file}", data, instead=f"{name}/{file} of the results"))
        columns, *rows = csv.reader(io.StringIO(data.decode()))
        if 0 < len(rows) <= MOST_ROWS and len(columns) <= MOST_COLUMNS:
            # A seed is more of a name than an amount: no comma in it.
            cells = [
                [
                    cell if column == "seed" else rewritten(cell, number)
                    for column, cell in zip(columns, row, strict=True)
                ]
                for row in rows
            ]
            shown = table(columns, cells, file)
            yield unfolding(f"{file} ({len(rows)} rows)", shown, is_open=len(rows) <= 10)
    if links:
        yield element("p", "Data: ", *links, class_="downloads")


def verdict_badge(name: str) -> Markup:
    """Write a verdict as a badge."""
    symbol, tone = BADGES[name]
    return badge(symbol, name, tone)


def _marks(claims: Sequence[Mapping[str, Any]]) -> str:
    """Verdicts on a row in short, for the table of contents."""
    counts = Counter(claim["verdict"] for claim in claims)
    known = [verdict for verdict in VERDICTS if counts[verdict]]
    short = " ".join(f"{BADGES[verdict][0]}{counts[verdict]}" for verdict in known)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in known)
    return element("span", short, class_="marks", role="img", aria_label=told) if known else ""


def breakable(name: str) -> Markup:
    """A long name that may continue on the next line after its dot and underscores."""
    return Markup(escape(name).replace("_", Markup("_<wbr>")).replace(".", Markup(".<wbr>")))
