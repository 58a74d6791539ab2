"""The reproduction as one HTML file: every claim with its verdict, every row with its numbers.

    python -m experiments.report RESULTS -o report.html

Reads a directory that `python -m experiments` wrote. A report never mixes what does not belong
together: results of other sizes, or judged by other rules, are refused. What was not measured is
shown as not measured.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from count01_lens.common.text import anything, duration, ranges
from count01_lens.models.checkpoints import checkpoint_file, load_checkpoint
from count01_lens.views.document import element, write_page
from count01_lens.views.pieces import (
    facts,
    filters,
    paragraph,
    table,
    tiles,
    unfolding,
)
from count01_lens.views.report import sentence_part
from count01_lens.views.report_page import Part, report_page
from experiments.claim_cells import contrasted, measured_as, our_value, rule, spread
from experiments.report_rows import (
    ACCURATE,
    BADGES,
    breakable,
    contrast_cell,
    contrast_found,
    not_measured,
    numbers_table,
    rows_part,
    verdict_badge,
)
from experiments.saved_results import CLAIMS_FILE, ROWS, VERDICTS, Results, read_results

TITLE = "Do attention heads compete or cooperate during counting? A reproduction"
# The rows that answer the question in the paper's title: how heads work together, why they are
# biased, and when.
QUESTION = ("C1", "E2", "P1")


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
        parts = [_answer_part(known), _claims_part(known), rows_part(known)]
        if checkpoint_file(results / "model").exists():
            parts.append(sentence_part(load_checkpoint(results / "model")))
        return report_page(TITLE, _opening(known), [*parts, _making_part(known)])

    return write_page(path, make)


def _opening(results: Results) -> Markup:
    counts = results.score()
    missing = [name for name in ROWS if name not in results.rows]
    parts = [
        paragraph(
            "The paper (arXiv 2502.06923) trains a transformer of one layer and 16 heads to tell "
            "whether a sentence has more 1s than 0s, and asks what its heads do. Here each of its "
            "figures and tables was measured again. What counts as reproduced was fixed before.",
            "lead",
        ),
        paragraph(_recipes(results)),
        paragraph(f"Of {counts['paper'].total()} claims of the paper, with its recipe:"),
        tiles(
            (verdict_badge(verdict), str(counts["paper"][verdict]))
            for verdict in VERDICTS
            if counts["paper"][verdict] or verdict in VERDICTS[:3]
        ),
    ]
    if counts["contrast"]:
        parts.append(_score_table(counts))
    if results.suite["size"] != "full":
        text = (
            f"This is a {results.suite['size']} run: a first look. It trains one or two models "
            "where the paper has many, some of them for half as long. Such numbers are shown but "
            "not judged: their verdict is “too few”. Judge by a full run."
        )
        parts.append(paragraph(text, "warning"))
    if missing:
        text = f"Not measured: {', '.join(missing)}. The claims on them count as not measured."
        parts.append(paragraph(text, "warning"))
    return Markup("\n").join(parts)


def _recipes(results: Results) -> str:
    """Which recipe is which, as far as results tell."""
    text = (
        "The paper does not tell how it trained. Here every model was trained with the recipe that "
        "comes closest to the numbers it prints"
    )
    told = [
        ", ".join(f"{name} {anything(values[which])}" for name, *values in results.recipes())
        for which in (0, 1)
    ]
    if not all(told):
        return f"{text}."
    return (
        f"{text} ({told[0]}). Where the recipe matters everything was measured once more with the "
        f"one that gives the most accurate models ({told[1]}), as a contrast."
    )


def _score_table(counts: Mapping[str, Counter[str]]) -> Markup:
    """The claims that were measured twice, and ours, of which the paper says nothing."""
    labels = {
        "twice": "the paper's, measured twice: with its recipe",
        "contrast": f"the same: {ACCURATE}",
        "ours": "claims of our own",
    }
    shown = [verdict for verdict in VERDICTS if any(counts[name][verdict] for name in labels)]
    rows = [
        [label, *(str(counts[name][verdict]) for verdict in shown), str(counts[name].total())]
        for name, label in labels.items()
        if counts[name]
    ]
    symbols = [
        element("span", BADGES[name][0], role="img", aria_label=name, title=name) for name in shown
    ]
    return table(["claims", *symbols, "all"], rows, "Verdicts under each recipe")


def _answer_part(results: Results) -> Part:
    answers = [element("div", *_answer(results, name), class_="answer") for name in QUESTION]
    return Part("answer", "Do heads compete or cooperate?", answers)


def _answer(results: Results, name: str) -> Iterator[Markup]:
    row = results.rows.get(name)
    if row is None:
        yield not_measured(results, name)
        return
    yield paragraph(row["shows"], "lead")
    yield from contrast_found(results, name)
    yield tiles((_tile_words(claim), our_value(claim)) for claim in results.claims_of(name))
    yield unfolding("All numbers", numbers_table(row), is_open=len(row["numbers"]) <= 12)
    link = element("a", f"{name}: {row['title']}", href=f"#{name}")
    yield element("p", "Figures and data: ", link, class_="small")


def _tile_words(claim: Mapping[str, Any]) -> Markup:
    badge = verdict_badge(claim["verdict"])
    measure = claim.get("measure") or claim["statement"]
    said = Markup("{}<p>{} {}</p>").format(measure, badge, claim["statement"])
    if contrasted(claim):
        said += Markup("<p>{}: {}</p>").format(ACCURATE, contrast_cell(claim))
    return said


def _claims_part(results: Results) -> Part:
    rows = [
        [
            element("a", breakable(claim["id"]), href=f"#{claim['row']}")
            + Markup("<br>")
            + verdict_badge(claim["verdict"]),
            escape(claim["statement"]) + measured_as(claim),
            claim["paper"],
            escape(our_value(claim)) + spread(claim),
            rule(claim),
            contrast_cell(claim),
        ]
        for claim in results.claims
    ]
    kinds = [claim["verdict"] for claim in results.claims]
    labels = {name: f"{symbol} {name}" for name, (symbol, _) in BADGES.items() if name in kinds}
    columns = ["claim", "what is claimed", "the paper", "ours", "reproduced if", ACCURATE]
    caption = "Claims of the paper with our numbers and verdicts"
    return Part(
        "claims",
        "All claims",
        [
            paragraph(
                "In brackets the 95 % interval, and how many runs or heads (n) it rests on. A "
                "verdict is about the number itself, which is the mean where there are several. "
                "The last column has number and verdict under the other recipe, for rows that "
                "depend on it."
            ),
            filters("claims-table", labels, kinds, "claims"),
            table(columns, rows, caption, kinds=kinds, table_id="claims-table"),
        ],
    )


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
    for rows, which in ((results.rows, ""), (results.contrast, f" {ACCURATE}")):
        for names, recipe in _grouped(rows, "recipe"):
            title = f"Recipe of {names}{which}"
            content.append(unfolding(title, facts(recipe, title)))
    for names, versions in _grouped(results.rows, "versions"):
        content.append(
            unfolding(f"Versions behind {names}", facts(versions, f"Versions behind {names}"))
        )
    return Part("making", "Seeds, recipes, versions and times", content)


def _grouped(
    rows: Mapping[str, Mapping[str, Any]], key: str
) -> list[tuple[str, Mapping[str, Any]]]:
    """Rows that agree in something, which is most of them, told once."""
    groups: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
    for name, row in rows.items():
        if value := row.get(key):
            groups.setdefault(json.dumps(value, sort_keys=True), ([], value))[0].append(name)
    return [(", ".join(names), value) for names, value in groups.values()]


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
