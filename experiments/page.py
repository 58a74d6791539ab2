"""Write docs/reproduction.md from the results of a full run: nothing in its tables is typed.

python -m experiments.page docs/reproduction -o docs/reproduction.md
"""

import argparse
import csv
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from count01_lens.common.text import rewritten, short
from experiments.generated_part import write_generated
from experiments.saved_results import read_results

# Tables that bear on claims which did not come out.
EVIDENCE = {
    "F3 under other recipes": "F3/recipes.csv",
    "F3: trained heads under each reading of the SVM": "F3/readings.csv",
    "F10: untrained heads under each reading of the SVM": "F10/readings.csv",
    "T1: minimal heads beside the paper's table": "T1/minimal_heads.csv",
    "T1: some of these heads under each reading of the SVM": "T1/readings.csv",
    "E2: with and without the '[EOS]' loss, by run": "E2/runs.csv",
    "C1: interactions by model": "C1/interactions.csv",
}


def generated(results: Path) -> str:
    """Write the verdicts, the rows and the machine as Markdown."""
    known = read_results(results)
    suite, judged = known.suite, known.claims
    count = Counter(claim["verdict"] for claim in judged)
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in count.most_common())
    minutes = suite["seconds"] / 60
    lines = [
        f"{len(judged)} claims: {verdicts}. Size: {suite['size']}; {minutes:.0f} minutes on "
        f"{suite['machine']['cores']} cores. Rules: `experiments/claims.py`, SHA-256 "
        f"`{suite['claims_sha256'][:16]}…`.",
        "",
        "| | claim | paper | ours | 95 % interval | n | reproduced if in |",
        "|---|---|---|---|---|---|---|",
        *(_claim_line(claim) for claim in judged),
        "",
        "## Row by row",
        "",
    ]
    for row in known.rows.values():
        lines += [f"**{row['row']}, {row['title'].lower()}.** *Paper:* {row['paper']}. "
                  f"*Ours:* {row['shows']} ({_links(row, results.name)})", ""]  # fmt: skip
    for title, name in EVIDENCE.items():
        lines += [f"### {title}", "", _table(results / name), ""]
    versions = ", ".join(f"{name} {version}" for name, version in suite["versions"].items())
    lines += [f"Versions: {versions}."]
    return "\n".join(lines)


def _table(path: Path) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    lines = [columns, ["---"] * len(columns), *(map(_shortened, row) for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _shortened(cell: str) -> str:
    return cell if cell.isdecimal() else rewritten(cell, short)


def _claim_line(claim: Mapping[str, Any]) -> str:
    marks = {"reproduced": "✔ reproduced", "partly": "~ partly", "not reproduced": "✘ not"}
    ends = [short(claim[end], 3) for end in ("low", "high") if claim["low"] is not None]
    value = "" if claim["value"] is None else short(claim["value"])
    low, high = ("∞" if end is None else f"{end:g}" for end in claim["reproduced"])
    cells = [
        marks.get(claim["verdict"], claim["verdict"]),
        f"**{claim['id']}** {claim['statement']} ({claim['measure']})",
        claim["paper"],
        value,
        " to ".join(ends),
        "" if claim["n"] is None else str(claim["n"]),
        f"[{low}, {high}]",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _links(row: Mapping[str, Any], directory: str) -> str:
    figures = [
        f"[{f['file'].removesuffix('.svg')}]({directory}/{row['row']}/{f['file']})"
        for f in row["figures"]
    ]
    tables = [f"[{name}]({directory}/{row['row']}/{name})" for name in row["tables"]]
    return ", ".join([*figures, *tables])


def main() -> None:
    """Update the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="directory of a full run")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/reproduction.md"))
    arguments = parser.parse_args()
    write_generated(arguments.out, generated(arguments.results))
    print(f"updated {arguments.out}")


if __name__ == "__main__":
    main()
