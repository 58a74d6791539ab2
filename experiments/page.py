"""Write docs/reproduction.md from the results of a full run: nothing in its tables is typed.

python -m experiments.page docs/reproduction -o docs/reproduction.md
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from count01_lens.storage import write_atomically
from experiments import claims

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def generated(results: Path) -> str:
    """Write the verdicts, the rows and the machine as Markdown."""
    suite = json.loads((results / "suite.json").read_text())
    if suite["claims_sha256"] != claims.sha256():
        raise ValueError(
            f"{results}: judged by other rules (claims_sha256 {suite['claims_sha256'][:12]}…) than "
            f"experiments/claims.py has now ({claims.sha256()[:12]}…); run the experiments again"
        )
    judged = json.loads((results / "claims.json").read_text())
    count = Counter(claim["verdict"] for claim in judged)
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in count.most_common())
    minutes = suite["seconds"] / 60
    lines = [
        BEGIN,
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
    for path in sorted(results.glob("*/numbers.json"), key=_order):
        row = json.loads(path.read_text())
        lines += [f"**{row['row']}, {row['title'].lower()}.** *Paper:* {row['paper']}. "
                  f"*Ours:* {row['shows']} ({_links(row, results.name)})", ""]  # fmt: skip
    versions = ", ".join(f"{name} {version}" for name, version in suite["versions"].items())
    lines += [f"Versions: {versions}.", END]
    return "\n".join(lines)


def _claim_line(claim: dict[str, Any]) -> str:
    marks = {"reproduced": "✔ reproduced", "partly": "~ partly", "not reproduced": "✘ not"}
    interval = "" if claim["low"] is None else f"{claim['low']:.3g} to {claim['high']:.3g}"
    value = "" if claim["value"] is None else f"{claim['value']:.4g}"
    low, high = ("∞" if end is None else f"{end:g}" for end in claim["reproduced"])
    cells = [
        marks.get(claim["verdict"], claim["verdict"]),
        f"**{claim['id']}** {claim['statement']} ({claim['measure']})",
        claim["paper"],
        value,
        interval,
        "" if claim["n"] is None else str(claim["n"]),
        f"[{low}, {high}]",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _links(row: dict[str, Any], directory: str) -> str:
    figures = [
        f"[{f['file'].removesuffix('.svg')}]({directory}/{row['row']}/{f['file']})"
        for f in row["figures"]
    ]
    tables = [f"[{name}]({directory}/{row['row']}/{name})" for name in row["tables"]]
    return ", ".join([*figures, *tables])


def _order(path: Path) -> int:
    from experiments.__main__ import ROWS

    return [row.ROW for row in ROWS].index(path.parent.name)


def update(page: Path, results: Path) -> None:
    """Put the generated part into a page, between its two marks."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page}: expected the lines {BEGIN!r} and {END!r}, got neither")
    write_atomically(page, (before + generated(results) + after).encode())


def main() -> None:
    """Update the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="directory of a full run")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/reproduction.md"))
    arguments = parser.parse_args()
    update(arguments.out, arguments.results)
    print(f"updated {arguments.out}")


if __name__ == "__main__":
    main()
