"""The reproduction as one HTML file: every claim with its verdict, every row with its numbers.

    python -m experiments.report RESULTS -o report.html

Reads a directory that `python -m experiments` wrote. A report never mixes what does not belong
together: results of other sizes, or judged by other rules, are refused. What was not measured is
shown as not measured.
"""

import argparse
import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from count01_lens.common.text import anything, duration, number, ranges, rewritten
from count01_lens.models.checkpoints import checkpoint_file, load_checkpoint
from count01_lens.views.document import element, write_page
from count01_lens.views.pieces import (
    Tone,
    badge,
    choose_image,
    download,
    facts,
    figure,
    figures,
    filters,
    paragraph,
    table,
    tiles,
    unfolding,
)
from count01_lens.views.report import sentence_part
from count01_lens.views.report_page import Part, report_page
from experiments.claim_cells import measured_as, our_value, rule, spread, tidy
from experiments.saved_results import CLAIMS_FILE, ROWS, VERDICTS, Results, read_results, row_file

TITLE = "Do attention heads compete or cooperate during counting? A reproduction"
# The rows that answer the question in the paper's title.
QUESTION = ("C1", "E2")
BADGES: dict[str, tuple[str, Tone]] = {
    "reproduced": ("✓", "good"),
    "partly": ("≈", "middling"),
    "not reproduced": ("✗", "bad"),
    "too few": ("…", "none"),
    "not measured": ("–", "none"),
}
MOST_ROWS, MOST_COLUMNS = 30, 12  # of a table that is shown, not only given


def write_report(results: Path, path: Path, *, claims_file: Path = CLAIMS_FILE) -> Path:
    """Write the report of a results directory; the same results give the same bytes.

    Args:
        results: written by the experiment suite. A checkpoint `results/model`, if there is
            one, is shown on a sentence.
        path: of the HTML file.
        claims_file: the rules that verdicts must have been given by.
    """

    def make() -> str:
        known = read_results(results, claims_file)
        parts = [_answer_part(known), _claims_part(known), _rows_part(known)]
        if checkpoint_file(results / "model").exists():
            parts.append(sentence_part(load_checkpoint(results / "model")))
        return report_page(TITLE, _opening(known), [*parts, _making_part(known)])

    return write_page(path, make)


def _opening(results: Results) -> Markup:
    counts = Counter(claim["verdict"] for claim in results.claims)
    missing = [name for name in ROWS if name not in results.rows]
    parts = [
        paragraph(
            "The paper (arXiv 2502.06923) trains a transformer of one layer and 16 heads to tell "
            "whether a sentence has more 1s than 0s, and asks what its heads do. Here each of its "
            "figures and tables was measured again. What counts as reproduced was fixed before.",
            "lead",
        ),
        paragraph(f"Of {len(results.claims)} claims:"),
        tiles((_verdict(verdict), str(counts[verdict])) for verdict in VERDICTS),
    ]
    if results.suite["size"] != "full":
        text = (
            f"This is a {results.suite['size']} run, with fewer repetitions than the paper's: a "
            "first look. Judge by a full one."
        )
        parts.append(paragraph(text, "warning"))
    if missing:
        text = f"Not measured: {', '.join(missing)}. The claims on them count as not measured."
        parts.append(paragraph(text, "warning"))
    return Markup("\n").join(parts)


def _answer_part(results: Results) -> Part:
    answers = [element("div", *_answer(results, name), class_="answer") for name in QUESTION]
    return Part("answer", "Do heads compete or cooperate?", answers)


def _answer(results: Results, name: str) -> Iterator[Markup]:
    row = results.rows.get(name)
    if row is None:
        yield _not_measured(results, name)
        return
    yield paragraph(row["shows"], "lead")
    yield tiles(
        (
            Markup("{}<p>{} {}</p>").format(
                claim.get("measure") or claim["statement"],
                _verdict(claim["verdict"]),
                claim["statement"],
            ),
            our_value(claim),
        )
        for claim in results.claims_of(name)
    )
    yield unfolding("All numbers", _numbers(row), is_open=len(row["numbers"]) <= 12)
    link = element("a", f"{name}: {row['title']}", href=f"#{name}")
    yield element("p", "Figures and data: ", link, class_="small")


def _claims_part(results: Results) -> Part:
    rows = [
        [
            element("a", _breakable(claim["id"]), href=f"#{claim['row']}"),
            _verdict(claim["verdict"]),
            escape(claim["statement"]) + measured_as(claim),
            claim["paper"],
            escape(our_value(claim)) + spread(claim),
            rule(claim),
        ]
        for claim in results.claims
    ]
    kinds = [claim["verdict"] for claim in results.claims]
    labels = {verdict: f"{symbol} {verdict}" for verdict, (symbol, _) in BADGES.items()}
    columns = ["claim", "verdict", "what is claimed", "the paper", "ours", "reproduced if"]
    caption = "Claims of the paper with our numbers and verdicts"
    return Part(
        "claims",
        "All claims",
        [
            paragraph(
                "In brackets the 95 % interval, and how many runs or heads (n) it rests on. A "
                "verdict is about the number itself, which is the mean where there are several."
            ),
            filters("claims-table", labels, kinds, "claims"),
            table(columns, rows, caption, kinds=kinds, table_id="claims-table"),
        ],
    )


def _rows_part(results: Results) -> Part:
    return Part(
        "rows",
        "Every figure and table",
        [paragraph("In the order of the paper; D1 to A1 are our names for them.")],
        [_row_part(results, name) for name in ROWS],
    )


def _row_part(results: Results, name: str) -> Part:
    claims, row = results.claims_of(name), results.rows.get(name)
    if row is None:
        heading = f"{name} · {ROWS[name]}"
        return Part(name, heading, [_not_measured(results, name)], mark=_marks(claims))
    judged = [
        [
            claim["statement"],
            _verdict(claim["verdict"]),
            claim["paper"],
            escape(our_value(claim)) + spread(claim),
        ]
        for claim in claims
    ]
    columns = ["claim", "verdict", "the paper", "ours"]
    content = [
        element("blockquote", element("b", "The paper: "), row["paper"]),
        element("p", element("b", "We find: "), row["shows"]),
    ]
    if judged:
        content.append(table(columns, judged, f"Claims of {name}"))
    content += [
        unfolding(f"All numbers ({len(row['numbers'])})", _numbers(row)),
        *([figures(_figures(results, name, row))] if row.get("figures") else []),
        *_tables(results, name, row),
    ]
    return Part(name, f"{name} · {row['title']}", content, mark=_marks(claims))


def _not_measured(results: Results, name: str) -> Markup:
    reason = (results.suite.get("failed") or {}).get(name, "").strip()
    # The last line of a failure says what went wrong; those before are a traceback.
    why = f"It failed: {reason.splitlines()[-1]}" if reason else "There are no results of it."
    return element("p", _verdict("not measured"), f" {name}, {ROWS[name]}. {why}")


def _numbers(row: Mapping[str, Any]) -> Markup:
    rows = []
    for name, value in row["numbers"].items():
        known = value if isinstance(value, dict) and "mean" in value else {"mean": value}
        ends = [known[key] for key in ("low", "high") if known.get(key) is not None]
        between = " to ".join(number(tidy(end)) for end in ends)
        n = "" if known.get("n") is None else str(known["n"])
        rows.append([element("code", _breakable(name)), anything(known["mean"]), between, n])
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
            cells = [[rewritten(cell, number) for cell in row] for row in rows]
            shown = table(columns, cells, file)
            yield unfolding(f"{file} ({len(rows)} rows)", shown, is_open=len(rows) <= 10)
    if links:
        yield element("p", "Data: ", *links, class_="downloads")


def _making_part(results: Results) -> Part:
    suite = results.suite
    cores = (suite.get("machine") or {}).get("cores")
    times = [
        [name, ranges(row.get("seeds", [])) or "–", f"{row.get('seconds', 0):.1f}"]
        for name, row in results.rows.items()
    ]
    content = [
        paragraph(
            f"A {suite['size']} run. It took {duration(suite.get('seconds'))}"
            + (f" on {cores} cores" if cores else "")
            + f". Verdicts by rules with SHA-256 {suite['claims_sha256']}."
        ),
        table(["row", "seeds", "seconds to put together"], times, "Seeds and times of each row"),
    ]
    if suite.get("recipe"):
        content.append(unfolding("Recipe of the suite", facts(suite["recipe"], "Recipe")))
    for names, recipe in _grouped(results, "recipe"):
        content.append(unfolding(f"Recipe of {names}", facts(recipe, f"Recipe of {names}")))
    for names, versions in _grouped(results, "versions"):
        content.append(
            unfolding(f"Versions behind {names}", facts(versions, f"Versions behind {names}"))
        )
    return Part("making", "Seeds, recipes, versions and times", content)


def _grouped(results: Results, key: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Rows that agree in something, which is most of them, told once."""
    groups: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
    for name, row in results.rows.items():
        if value := row.get(key):
            groups.setdefault(json.dumps(value, sort_keys=True), ([], value))[0].append(name)
    return [(", ".join(names), value) for names, value in groups.values()]


def _verdict(name: str) -> Markup:
    symbol, tone = BADGES[name]
    return badge(symbol, name, tone)


def _marks(claims: Sequence[Mapping[str, Any]]) -> str:
    """Verdicts on a row in short, for the table of contents."""
    counts = Counter(claim["verdict"] for claim in claims)
    known = [verdict for verdict in VERDICTS if counts[verdict]]
    short = " ".join(f"{BADGES[verdict][0]}{counts[verdict]}" for verdict in known)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in known)
    return element("span", short, class_="marks", role="img", aria_label=told) if known else ""


def _breakable(name: str) -> Markup:
    """A long name that may continue on the next line after its dot and underscores."""
    return Markup(escape(name).replace("_", Markup("_<wbr>")).replace(".", Markup(".<wbr>")))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the report from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("results", type=Path, help="directory of an experiment suite")
    parser.add_argument("-o", "--out", type=Path, required=True, help="HTML file to write")
    chosen = parser.parse_args(arguments)
    try:
        path = write_report(chosen.results, chosen.out)
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    print(f"written to {path}: open it in a browser")


if __name__ == "__main__":
    main()
