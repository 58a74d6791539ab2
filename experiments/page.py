"""Write docs/reproduction.md and its tables from a full run: nothing that is generated is typed.

python -m experiments.page docs/reproduction

Both pages lie beside the directory of results, to which they link.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from count01_lens.common.text import duration
from count01_lens.views.pieces import LARGEST_SVG
from experiments import page_tables
from experiments.claim_cells import contrasted, our_value, rule_words, spread_words
from experiments.claims import HEADLINE
from experiments.generated_part import write_parts
from experiments.page_tables import MARKS, anchor, legend, markdown_table, marked, plain
from experiments.saved_results import (
    CLAIMS_FILE,
    OURS,
    ROWS,
    VERDICTS,
    Results,
    read_results,
    row_file,
)
from experiments.suite import CONTRAST

PAGE, TABLES = "reproduction.md", "reproduction_tables.md"
# Rows that have a part of the page for themselves.
PARTS = {"map": "P1", "hand_over": "P2", "biases": "E2", "frontier": "P3"}
# What the page shows of other rows: their first figure, and whether also under the other recipe.
FIGURES = {"F4": True, "F5": True, "C1": False}
# Claims of the first table in a few words; their values say the rest.
IN_SHORT = {
    "F2.sixteen_heads": "trainings that solve the task",
    "F1.biased": "heads biased to one answer",
    "F3.successful": "successful heads (s-acc ≥ 98 %)",
    "F3.failed": "failed heads (s-acc ≤ 60 %)",
    "F3.singles_at_half": "heads with l-acc near 50 %",
    "F3.pairs_above_80": "pairs, of 120, above 80 % l-acc",
    "F4.four_heads_separate": "median s-acc of four heads",
    "F4.most_heads_needed": "heads needed for 90 % l-acc",
    "F5.w02_above_ten": "successful heads with w02 > 10",
    "E1.single": "heads that alone write '[EOS]'",
}


def generated(results: Path, claims_file: Path = CLAIMS_FILE) -> dict[str, dict[str, str]]:
    """Write what the results say as Markdown: by page, then by part of it."""
    known = read_results(results, claims_file)
    parts = {
        "score": _score(known),
        "headline": _headline(known),
        "figures": _figures_part(known),
        **{part: _row_part(known, name) for part, name in PARTS.items()},
        "differences": _differences(known),
        "recipes": _recipes(known),
        "run": _run(known),
    }
    return {PAGE: parts, TABLES: {"": page_tables.generated(known)}}


def _score(results: Results) -> str:
    counts = results.score()
    paper, contrast = counts["paper"], counts["contrast"]
    lines = [
        f"**Of the paper's {paper.total()} claims {paper['reproduced']} are reproduced, "
        f"{paper['partly']} partly, {paper['not reproduced']} not.**"
    ]
    if contrast:
        lines[0] += (
            f" {contrast.total()} of them were measured a second time, with a recipe that trains "
            f"more accurate models: there {contrast['reproduced']} are reproduced, "
            f"{contrast['partly']} partly, {contrast['not reproduced']} not."
        )
    labels = {
        "paper": "the paper's claims, its recipe",
        "twice": "measured twice: its recipe",
        "contrast": "measured twice: accurate recipe",
        "ours": "claims of our own",
    }
    # A column for what did not happen would only take room.
    columns = [verdict for verdict in VERDICTS if any(count[verdict] for count in counts.values())]
    rows = [
        [label, *(str(counts[name][verdict]) for verdict in columns), str(counts[name].total())]
        for name, label in labels.items()
        if counts[name]
    ]
    headings = ["", *(MARKS[verdict] for verdict in columns), "claims"]
    return "\n".join([*lines, "", markdown_table(headings, rows), "", legend(results)])


def _headline(results: Results) -> str:
    claims = {claim["id"]: claim for claim in results.claims}
    rows = [
        [
            plain(IN_SHORT.get(name, claims[name]["statement"])),
            plain(claims[name]["paper"]),
            marked(claims[name]),
            marked(contrasted(claims[name]) or {}),
        ]
        for name in HEADLINE
        if name in claims
    ]
    columns = ["headline claim", "paper", "ours, its recipe", "accurate recipe"]
    return markdown_table(columns, rows)


def _figures_part(results: Results) -> str:
    lines: list[str] = []
    for name, twice in FIGURES.items():
        for row in (name, f"{CONTRAST}/{name}")[: 1 + twice]:
            lines += _figures(results, row, most=1)
    return "\n".join(lines).strip() or "None of the rows with these figures has been measured."


def _figures(results: Results, name: str, most: int | None = None) -> Iterator[str]:
    """Figures of a row, or of "contrast/ROW", each with its caption; the link leads to the data."""
    within, _, row_name = name.rpartition("/")
    row = (results.contrast if within else results.rows).get(row_name)
    recipe = ", with the accurate recipe" if within else ""
    for shown in ((row or {}).get("figures") or [])[:most]:
        drawn = row_file(results, name, shown["file"])
        # Thousands of points make a vector graphic slower than a picture of it.
        file = shown["file"] if drawn.stat().st_size < LARGEST_SVG else shown["png"]
        link = f"[{row_name}]({TABLES}#{anchor(results, row_name)}){recipe}"
        alt = plain(shown["alt"]).replace("[", "\\[").replace("]", "\\]")
        yield f"![{alt}]({results.directory.name}/{name}/{file})"
        yield f"\n**{link}.** {plain(shown['caption'])}\n"


def _row_part(results: Results, name: str) -> str:
    """What a row shows, with all its figures and claims."""
    row = results.rows.get(name)
    if row is None:
        lines = [f"Row {name} was not measured. {plain(results.why_not(name))}"]
    else:
        lines = [plain(row["shows"]), "", *_figures(results, name)]
        if other := results.contrast.get(name):
            lines += [f"With the accurate recipe: {plain(other['shows'])}", ""]
    claims = [_claim_line(claim) for claim in results.claims_of(name)]
    return "\n".join([*lines, "", *claims]).strip()


def _differences(results: Results) -> str:
    """Every claim that is not called reproduced, row by row."""
    lines: list[str] = []
    for name in ROWS:
        claims = [c for c in results.claims_of(name) if c["verdict"] != "reproduced"]
        if claims:
            title = plain(results.rows[name]["title"] if name in results.rows else ROWS[name])
            lines += [f"**[{name}]({TABLES}#{anchor(results, name)}), {title}**", ""]
            lines += [*map(_claim_line, claims), ""]
    return "\n".join(lines).strip() or "All claims are reproduced."


def _claim_line(claim: Mapping[str, Any]) -> str:
    told = [plain(claim["statement"])]
    if claim["paper"] not in OURS:
        told.append(f"paper: {plain(claim['paper'])}")
    if claim["value"] is None:
        told.append("no number of ours")
    else:
        told.append(f"ours: **{our_value(claim)}** {spread_words(claim)}".strip())
    told.append(f"reproduced if {rule_words(claim)}")
    if other := contrasted(claim):
        told.append(f"accurate recipe: {marked(other)}")
    return f"- {MARKS[claim['verdict']]} {'; '.join(told)}"


def _recipes(results: Results) -> str:
    rows = [[f"`{field}`", f"`{one}`", f"`{other}`"] for field, one, other in results.recipes()]
    if not rows:
        return "There are no results under a second recipe."
    return markdown_table(["`TrainConfig`", "the paper's recipe", "the accurate recipe"], rows)


def _run(results: Results) -> str:
    suite = results.suite
    cores = (suite.get("machine") or {}).get("cores")
    versions = ", ".join(f"{name} {version}" for name, version in suite["versions"].items())
    return (
        f"A {suite['size']} run: {duration(suite.get('seconds'))}"
        + (f" on {cores} cores" if cores else "")
        + f". Rules: `experiments/claims.py`, SHA-256 `{suite['claims_sha256'][:16]}…`. "
        f"Versions: {plain(versions)}."
    )


def main() -> None:
    """Update both pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="directory of a full run, beside the pages")
    results = parser.parse_args().results
    for name, parts in generated(results).items():
        write_parts(results.parent / name, parts)
        print(f"updated {results.parent / name}")


if __name__ == "__main__":
    main()
