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

from count01_lens.common.storage import check_file_to_write, write_atomically
from count01_lens.models.checkpoints import checkpoint_file, load_checkpoint
from count01_lens.views.report import sentence_part
from count01_lens.views.report_page import (
    Html,
    Part,
    Tone,
    badge,
    choose_image,
    download,
    element,
    facts,
    figure,
    figures,
    filters,
    joined,
    number,
    paragraph,
    percent,
    report_page,
    table,
    tiles,
    unfolding,
)
from experiments.saved_results import CLAIMS_FILE, ROWS, VERDICTS, Results, read_results, row_file

TITLE = "Do attention heads compete or cooperate during counting? A reproduction"
# The rows that answer the question in the paper's title.
QUESTION = ("C1", "E2")
BADGES: dict[str, tuple[str, Tone]] = {
    "reproduced": ("✓", "good"),
    "partly": ("≈", "middling"),
    "not reproduced": ("✗", "bad"),
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
    check_file_to_write(path)
    known = read_results(results, claims_file)
    parts = [_answer_part(known), _claims_part(known), _rows_part(known)]
    if checkpoint_file(results / "model").exists():
        parts.append(sentence_part(load_checkpoint(results / "model")))
    parts.append(_making_part(known))
    write_atomically(path, report_page(TITLE, _opening(known), parts).encode())
    return path


def _opening(results: Results) -> Html:
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
    return joined(parts)


def _answer_part(results: Results) -> Part:
    content: list[Html] = []
    for name in QUESTION:
        row = results.rows.get(name)
        if row is None:
            content.append(element("div", _not_measured(results, name), class_="answer"))
            continue
        shown = [
            (
                joined(
                    [
                        claim.get("measure") or claim["statement"],
                        paragraph(joined([_verdict(claim["verdict"]), " ", claim["statement"]])),
                    ]
                ),
                _value(claim),
            )
            for claim in results.claims_of(name)
        ]
        link = element("a", f"{name}: {row['title']}", href=f"#{name}")
        content.append(
            element(
                "div",
                paragraph(row["shows"], "lead"),
                tiles(shown),
                unfolding("All numbers", _numbers(row), is_open=len(row["numbers"]) <= 12),
                paragraph(joined(["Figures and data: ", link]), "small"),
                class_="answer",
            )
        )
    return Part("answer", "Do heads compete or cooperate?", content)


def _claims_part(results: Results) -> Part:
    rows = [
        [
            element("a", _breakable(claim["id"]), href=f"#{claim['row']}"),
            _verdict(claim["verdict"]),
            joined([claim["statement"], _measured_as(claim)]),
            claim["paper"],
            joined([_value(claim), _spread(claim)]),
            _rule(claim),
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
            joined([_value(claim), _spread(claim)]),
        ]
        for claim in claims
    ]
    columns = ["claim", "verdict", "the paper", "ours"]
    content = [
        element("blockquote", element("b", "The paper: "), row["paper"]),
        paragraph(joined([element("b", "We find: "), row["shows"]])),
    ]
    if judged:
        content.append(table(columns, judged, f"Claims of {name}"))
    content += [
        unfolding(f"All numbers ({len(row['numbers'])})", _numbers(row)),
        *([figures(_figures(results, name, row))] if row.get("figures") else []),
        *_tables(results, name, row),
    ]
    return Part(name, f"{name} · {row['title']}", content, mark=_marks(claims))


def _not_measured(results: Results, name: str) -> Html:
    reason = (results.suite.get("failed") or {}).get(name, "").strip()
    # The last line of a failure says what went wrong; those before are a traceback.
    why = f"It failed: {reason.splitlines()[-1]}" if reason else "There are no results of it."
    return paragraph(joined([_verdict("not measured"), f" {name}, {ROWS[name]}. {why}"]))


def _numbers(row: Mapping[str, Any]) -> Html:
    rows = []
    for name, value in row["numbers"].items():
        spread = value if isinstance(value, dict) and "mean" in value else {"mean": value}
        ends = [
            number(_tidy(spread[key])) for key in ("low", "high") if spread.get(key) is not None
        ]
        between = " to ".join(ends)
        n = spread.get("n")
        shown = [_plain(spread["mean"]), between, "" if n is None else str(n)]
        rows.append([element("code", _breakable(name)), *shown])
    name = row["row"]
    data = json.dumps(row["numbers"], indent=2, ensure_ascii=False).encode()
    link = paragraph(download(f"{name}_numbers.json", data), "downloads")
    columns = ["number", "value", "95 % interval", "n"]
    return joined([table(columns, rows, f"Numbers of {name}"), link])


def _figures(results: Results, name: str, row: Mapping[str, Any]) -> Iterator[Html]:
    for shown in row.get("figures", []):
        svg = row_file(results, name, shown["file"])
        png = row_file(results, name, shown["png"]) if shown.get("png") else svg
        image = choose_image(svg.read_bytes, png.read_bytes)
        yield figure(image, shown["alt"], shown["caption"])


def _tables(results: Results, name: str, row: Mapping[str, Any]) -> Iterator[Html]:
    """Every table to download; small ones also to read."""
    links = []
    for file in row.get("tables", []):
        data = row_file(results, name, file).read_bytes()
        links.append(download(f"{name}_{file}", data, instead=f"{name}/{file} of the results"))
        columns, *rows = csv.reader(io.StringIO(data.decode()))
        if 0 < len(rows) <= MOST_ROWS and len(columns) <= MOST_COLUMNS:
            shown = table(columns, [[_number_in(cell) for cell in cells] for cells in rows], file)
            yield unfolding(f"{file} ({len(rows)} rows)", shown, is_open=len(rows) <= 10)
    if links:
        yield paragraph(joined(["Data: ", *links]), "downloads")


def _making_part(results: Results) -> Part:
    suite = results.suite
    cores = (suite.get("machine") or {}).get("cores")
    times = [
        [name, _seeds(row.get("seeds", [])), f"{row.get('seconds', 0):.1f}"]
        for name, row in results.rows.items()
    ]
    content = [
        paragraph(
            f"A {suite['size']} run. It took {_duration(suite.get('seconds'))}"
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


def _verdict(name: str) -> Html:
    symbol, tone = BADGES[name]
    return badge(symbol, name, tone)


def _marks(claims: Sequence[Mapping[str, Any]]) -> Html:
    """Verdicts on a row in short, for the table of contents."""
    counts = Counter(claim["verdict"] for claim in claims)
    known = [verdict for verdict in VERDICTS if counts[verdict]]
    short = " ".join(f"{BADGES[verdict][0]}{counts[verdict]}" for verdict in known)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in known)
    return element("span", short, class_="marks", role="img", aria_label=told) if known else Html()


def _value(claim: Mapping[str, Any]) -> str:
    """Our number; one close to a limit of its rule is written so that it shows on which side."""
    value = claim["value"]
    limits = [end for key in ("reproduced", "partly") for end in claim[key] if end is not None]
    for more in range(8):
        text = _written(value, _unit(claim), more)
        if not any(end != value and _written(end, _unit(claim), more) == text for end in limits):
            break
    return text


def _written(value: float | None, unit: str, more_digits: int) -> str:
    if unit == "share":
        return percent(value, 1 + more_digits)
    text = number(value, 4 + more_digits)
    return text if unit == "number" or value is None else f"{text} {unit}"


def _unit(claim: Mapping[str, Any]) -> str:
    """What a number is; where claims do not tell, a measured "share of …" is one."""
    told = claim.get("unit")
    if isinstance(told, str):
        return told
    return "share" if str(claim.get("measure", "")).startswith("share ") else "number"


def _spread(claim: Mapping[str, Any]) -> Html:
    n, ends = claim.get("n"), (claim.get("low"), claim.get("high"))
    told = [] if None in ends else [_interval(claim, ends)]
    told += [] if n is None else [f"n\u00a0=\u00a0{n}"]
    if not told:
        return Html()
    return joined([Html("<br>"), element("span", f"({', '.join(told)})", class_="small")])


def _measured_as(claim: Mapping[str, Any]) -> Html:
    told = [str(claim[key]) for key in ("measure", "note") if claim.get(key)]
    return joined(
        joined([Html("<br>"), element("span", text, class_="small")])
        for text in told
        if text != claim["statement"]
    )


def _rule(claim: Mapping[str, Any]) -> Html:
    partly = element("span", f"partly: {_interval(claim, claim['partly'])}", class_="small")
    return joined([_interval(claim, claim["reproduced"]), Html("<br>"), partly])


def _interval(claim: Mapping[str, Any], ends: Sequence[float | None]) -> str:
    unit = _unit(claim)
    factor, sign = (
        (100, "\u00a0%") if unit == "share" else (1, "" if unit == "number" else f" {unit}")
    )
    low, high = (None if end is None else number(factor * _tidy(end)) for end in ends)
    if low is None:
        return "anything" if high is None else f"at most {high}{sign}"
    if high is None:
        return f"at least {low}{sign}"
    return f"{low}{sign}" if low == high else f"{low} to {high}{sign}"


def _tidy(end: float) -> float:
    """The end of an interval; one at zero may be off by rounding."""
    return end if abs(end) > 1e-12 else 0.0


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, int | float):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number_in(cell: str) -> str:
    try:
        return number(float(cell))
    except ValueError:
        return cell


def _breakable(name: str) -> Html:
    """A long name that may continue on the next line after its dot and underscores."""
    return Html(joined([name]).replace("_", "_<wbr>").replace(".", ".<wbr>"))


def _seeds(seeds: Sequence[int]) -> str:
    """Seeds as people write them: 100-109, 5."""
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "–"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


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
