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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from count01_lens.checkpoints import MANIFEST, load_checkpoint
from count01_lens.report import check_report_path, sentence_part
from count01_lens.report_page import (
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
from count01_lens.storage import sha256, write_atomically

TITLE = "Do attention heads compete or cooperate during counting? A reproduction"
CLAIMS_FILE = Path(__file__).with_name("claims.py")
ROWS = {
    "D1": "The data set",
    "D2": "Labels",
    "M1": "The minimal solution",
    "F0": "Syntax before counting",
    "F1": "Logits of each head",
    "F2": "Accuracy by heads and embedding size",
    "F3": "Single heads and pairs",
    "F4": "All groups of heads",
    "F5": "s-acc against attention ratios",
    "F6": "Outputs of heads",
    "F7": "Intervention: vary w01",
    "F8": "Intervention: vary w02",
    "F9": "Heads during training",
    "F10": "Untrained heads",
    "F11": "Weighted s-acc against accuracy",
    "E1": "'[EOS]' l-acc of heads and pairs",
    "E2": "Why heads are biased",
    "S1": "The skip connection",
    "S2": "Groups against their subgroups",
    "C1": "Cooperation that could have been",
    "T1": "Minimal heads by learning",
    "A1": "Three more seeds",
}
# The rows that answer the question in the paper's title.
QUESTION = ("C1", "E2")
VERDICTS: dict[str, tuple[str, Tone]] = {
    "reproduced": ("✓", "good"),
    "partly": ("≈", "middling"),
    "not reproduced": ("✗", "bad"),
    "not measured": ("–", "none"),
}
MOST_ROWS, MOST_COLUMNS = 30, 12  # of a table that is shown, not only given


@dataclass(frozen=True)
class Results:
    """What an experiment suite left in a directory, checked.

    Attributes:
        directory: where it is.
        suite: size, rules, versions, time, and why rows failed.
        claims: each with our number and the verdict.
        rows: the measured ones, by their ids.
    """

    directory: Path
    suite: Mapping[str, Any]
    claims: Sequence[Mapping[str, Any]]
    rows: Mapping[str, Mapping[str, Any]]

    def claims_of(self, row: str) -> list[Mapping[str, Any]]:
        """The claims that a row of figures and tables decides."""
        return [claim for claim in self.claims if claim["row"] == row]


def read_results(directory: Path, claims_file: Path = CLAIMS_FILE) -> Results:
    """Read the results of a suite.

    Raises:
        ValueError: something is missing or damaged, or does not belong together.
    """
    suite = _read_json(directory / "suite.json", dict, ("size", "claims_sha256"))
    rules = sha256(claims_file.read_bytes()) if claims_file.is_file() else "no such file"
    if suite["claims_sha256"] != rules:
        raise ValueError(
            f"{directory / 'suite.json'}: expected verdicts by the rules of {claims_file.name} "
            f"(SHA-256 {_short(rules)}), got others ({_short(suite['claims_sha256'])}); run the "
            "suite again, or go back to the rules that it was judged by"
        )
    claims = _read_json(directory / "claims.json", list)
    for claim in claims:
        _check_claim(claim, directory / "claims.json")
    failed = suite.get("failed") or {}
    rows = {}
    for name in ROWS:
        path = directory / name / "numbers.json"
        if name not in failed and path.exists():
            rows[name] = _read_row(path, name, suite)
    return Results(directory, suite, claims, rows)


def write_report(results: Path, path: Path, *, claims_file: Path = CLAIMS_FILE) -> Path:
    """Write the report of a results directory; the same results give the same bytes.

    Args:
        results: written by the experiment suite. A checkpoint in `results/model`, if there is
            one, is shown on a sentence.
        path: of the HTML file.
        claims_file: the rules that verdicts must have been given by.
    """
    check_report_path(path)
    known = read_results(results, claims_file)
    parts = [_answer_part(known), _claims_part(known), _rows_part(known)]
    if (results / "model" / MANIFEST).exists():
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
    labels = {verdict: f"{symbol} {verdict}" for verdict, (symbol, _) in VERDICTS.items()}
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
        svg = _row_file(results, name, shown["file"])
        png = _row_file(results, name, shown["png"]) if shown.get("png") else svg
        image = choose_image(svg.read_bytes, png.read_bytes)
        yield figure(image, shown["alt"], shown["caption"])


def _tables(results: Results, name: str, row: Mapping[str, Any]) -> Iterator[Html]:
    """Every table to download; small ones also to read."""
    links = []
    for file in row.get("tables", []):
        data = _row_file(results, name, file).read_bytes()
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
    symbol, tone = VERDICTS[name]
    return badge(symbol, name, tone)


def _marks(claims: Sequence[Mapping[str, Any]]) -> Html:
    """Verdicts on a row in short, for the table of contents."""
    counts = Counter(claim["verdict"] for claim in claims)
    known = [verdict for verdict in VERDICTS if counts[verdict]]
    short = " ".join(f"{VERDICTS[verdict][0]}{counts[verdict]}" for verdict in known)
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


def _short(digest: str) -> str:
    return digest if len(digest) < 20 else f"{digest[:12]}…"


def _read_json(path: Path, kind: type, keys: Sequence[str] = ()) -> Any:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path}: expected JSON written by the experiment suite, got {error}; run "
            "python -m experiments first"
        ) from error
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if not isinstance(value, kind) or missing:
        got = f"no {', '.join(missing)}" if missing else f"a {type(value).__name__}"
        raise ValueError(
            f"{path}: expected a {kind.__name__} written by the experiment suite, got {got}; run "
            "it again"
        )
    return value


def _read_row(path: Path, name: str, suite: Mapping[str, Any]) -> Mapping[str, Any]:
    keys = ("row", "title", "paper", "shows", "size", "claims_sha256", "numbers")
    row: Mapping[str, Any] = _read_json(path, dict, keys)
    _check_words(row, ("title", "paper", "shows"), path)
    expected = {"row": name, "size": suite["size"], "claims_sha256": suite["claims_sha256"]}
    for key, value in expected.items():
        if row[key] != value:
            raise ValueError(
                f"{path}: expected {key} {_short(value)} as in suite.json, got "
                f"{_short(str(row[key]))}; results of different runs are not mixed: run {name} "
                "again, or move it away"
            )
    return row


def _check_claim(claim: Any, path: Path) -> None:
    keys = ("id", "row", "statement", "paper", "value", "reproduced", "partly", "verdict")
    missing = [key for key in keys if not isinstance(claim, dict) or key not in claim]
    if missing:
        raise ValueError(
            f"{path}: expected claims with {', '.join(missing)}, got {claim!r}; run the suite again"
        )
    _check_words(claim, ("id", "statement", "paper"), path)
    for key, known in (("row", ROWS), ("verdict", VERDICTS)):
        if claim[key] not in known:
            raise ValueError(
                f"{path}: expected a {key} among {', '.join(known)}, got {claim[key]!r} in "
                f"{claim['id']}; run the suite again"
            )


def _check_words(values: Mapping[str, Any], keys: Sequence[str], path: Path) -> None:
    for key in keys:
        if not isinstance(values[key], str):
            raise ValueError(f"{path}: {key}: expected words, got {values[key]!r}; run it again")


def _row_file(results: Results, row: str, name: str) -> Path:
    path = results.directory / row / name
    if Path(name).name != name or not path.is_file():
        raise ValueError(
            f"{path}: expected a file of row {row}, got none; run {row} again to write it"
        )
    return path


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
