"""Write docs/reproduction_tables.md: every row with its claims, and what bears on them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from count01_lens.common.text import number, ranges, rewritten, short
from experiments.claim_cells import contrasted, our_value, rule_words, spread_words
from experiments.saved_results import ROWS, VERDICTS, Results, row_file
from experiments.suite import CONTRAST

# They stand before numbers, where a tilde would read as "about".
MARKS = {"reproduced": "✔", "partly": "◐", "not reproduced": "✘", "too few": "…",
         "not measured": "–"}  # fmt: skip
# Tables that bear on claims, where the row wrote them.
EVIDENCE = {
    "F3/readings.csv": "Trained heads under each reading of the SVM",
    "F10/readings.csv": "Untrained heads under each reading of the SVM",
    "T1/minimal_heads.csv": "Minimal heads beside the paper's table",
    "T1/readings.csv": "Some of these heads under each reading of the SVM",
    "E2/runs.csv": "Means over runs",
    "C1/interactions.csv": "Mean Shapley interaction of two heads, by model",
}
# Of wide tables what the claims are about.
COLUMNS = {
    "C1/interactions.csv": (
        "model", "s_acc_interaction", "l_acc_interaction", "eos_l_acc_interaction",
        "s_acc_redundant_pairs", "words_answer", "words_eos",
    )
}  # fmt: skip
# Of long tables the means; without such a column there is only the link to the data.
MEANS_BY = {"E2/runs.csv": "condition"}


def generated(results: Results) -> str:
    """Write a section for each row: what was found, its claims, its evidence, its files."""
    lines = [legend(results), ""]
    for name in ROWS:
        lines += [f"## {_heading(results, name)}", "", *_section(results, name)]
    return "\n".join(lines).strip()


def _section(results: Results, name: str) -> Iterator[str]:
    row, contrast = results.rows.get(name), results.contrast.get(name)
    if row is None:
        yield f"Not measured. {plain(results.why_not(name))}\n"
    else:
        yield f"*Paper:* {plain(row['paper'])}.\n"
        yield f"*Ours:* {plain(row['shows'])}\n"
    if contrast is not None:
        yield f"*With the accurate recipe:* {plain(contrast['shows'])}\n"
    if claims := results.claims_of(name):
        yield _claims_table(claims) + "\n"
    for file, title in EVIDENCE.items():
        row_name, _, table_name = file.partition("/")
        if row is not None and row_name == name and table_name in row.get("tables", []):
            table = _evidence(file, row_file(results, name, table_name))
            if table:
                yield f"{title}:\n\n{table}\n"
    for edition, known in ((name, row), (f"{CONTRAST}/{name}", contrast)):
        if known is not None:
            yield _files(results, edition, known) + "\n"


def _heading(results: Results, name: str) -> str:
    row = results.rows.get(name)
    return f"{name}: {plain(ROWS[name] if row is None else row['title'])}"


def anchor(results: Results, name: str) -> str:
    """The address of a row's section, as GitHub and MyST make it of the heading."""
    title = results.rows[name]["title"] if name in results.rows else ROWS[name]
    return re.sub(r"[^\w\- ]", "", f"{name}: {title}".lower()).replace(" ", "-")


def _claims_table(claims: Sequence[Mapping[str, Any]]) -> str:
    others = [contrasted(claim) for claim in claims]
    rows = []
    for claim, other in zip(claims, others, strict=True):
        measure = f" ({plain(claim['measure'])})" if claim.get("measure") else ""
        cells = [
            f"**{claim['id']}** {plain(claim['statement'])}{measure}",
            plain(claim["paper"]),
            f"{marked(claim)} {spread_words(claim)}".strip(),
            rule_words(claim),
        ]
        if any(others):
            cells.append(f"{marked(other)} {spread_words(other)}".strip() if other else "")
        rows.append(cells)
    columns = ["claim", "paper", "ours", "reproduced if"]
    return markdown_table([*columns, *(["accurate recipe"] if any(others) else [])], rows)


def legend(results: Results) -> str:
    """Say what the marks of the verdicts mean that occur."""
    known = [*results.claims, *filter(None, map(contrasted, results.claims))]
    seen = {claim["verdict"] for claim in known}
    return ", ".join(f"{MARKS[name]} {name}" for name in VERDICTS if name in seen) + "."


def marked(claim: Mapping[str, Any]) -> str:
    """Write a number after the mark of its verdict; nothing for no claim."""
    if not claim or claim["value"] is None:
        return MARKS[claim["verdict"]] if claim else ""
    return f"{MARKS[claim['verdict']]}\u00a0{our_value(claim)}"


def _evidence(file: str, path: Path) -> str:
    by = MEANS_BY.get(file)
    if by is None:
        # Cells as they were written: counts stay whole numbers, words stay words.
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    else:
        table = pd.read_csv(path)
        if by not in table:
            return ""
        numbers = table.drop(columns="seed", errors="ignore").select_dtypes("number").columns
        table = table.groupby(by, sort=False)[list(numbers)].mean().reset_index().astype(str)
    if file in COLUMNS:
        table = table[[column for column in COLUMNS[file] if column in table]]
    cells = [[plain(_shortened(cell)) for cell in row] for row in table.to_numpy().tolist()]
    return markdown_table([plain(str(name).replace("_", " ")) for name in table], cells)


def _shortened(cell: str) -> str:
    return cell if cell.isdecimal() else rewritten(cell, short)


def _files(results: Results, edition: str, row: Mapping[str, Any]) -> str:
    """Links to figures and data of a row, or of "contrast/ROW"."""
    names = [*(figure["file"] for figure in row.get("figures", [])), *row.get("tables", [])]
    links = [
        f"[{name}]({results.directory.name}/{edition}/{row_file(results, edition, name).name})"
        for name in [*names, "numbers.json"]
    ]
    seeds = f". Seeds: {ranges(row['seeds'])}" if row.get("seeds") else ""
    which = "Files with the accurate recipe" if edition.startswith(CONTRAST) else "Files"
    return f"{which}: {', '.join(links)}{seeds}."


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table of cells that are Markdown already."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def plain(text: str) -> str:
    """Write text in Markdown so that it is read as it is, also in a table; and 1.2e+02 as 120."""
    text = re.sub(r"\b\d(\.\d+)?e[+-]\d+\b", lambda found: number(float(found[0])), text)
    return re.sub(r"([\\|<*`$])", r"\\\1", " ".join(text.split()))
