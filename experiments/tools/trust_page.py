"""Write docs/trust.md from what the attacks, the coverage and the mutants left: no figure is typed.

make stress                                  runs the attacks; records go to runs/trust
python -m experiments.tools.trust_page runs/trust  puts them into docs/trust and docs/trust.md
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from count01_lens.common.storage import json_bytes, write_atomically
from experiments.generated_part import write_generated
from experiments.tools.engine_mutants import ENGINE_FILES
from experiments.tools.harmless_mutants import reason_of
from experiments.tools.mutants import JUDGES

RECORDS, PAGE = Path("docs/trust"), Path("docs/trust.md")


def read_records(directory: Path) -> dict[str, dict[str, Any]]:
    """Read the records of a directory, by name."""
    records = {}
    for path in sorted(directory.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        if not isinstance(record, dict) or "name" not in record:
            raise ValueError(f"{path}: expected the record of an attack, got something else")
        records[record["name"]] = record
    return records


def generated(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Write the records as Markdown."""
    attacks = [record for record in records.values() if "outcomes" in record]
    cases = sum(record["cases"] for record in attacks)
    lines = [
        f"{len(attacks)} attacks, {cases:,} cases.",
        "",
        "| attack | cases | what came of them | seed | seconds |",
        "|---|---|---|---|---|",
        *map(_attack_line, attacks),
        "",
    ]
    if "coverage" in records:
        lines += ["## Coverage", "", *_coverage_lines(records["coverage"]), ""]
    if "mutants" in records:
        lines += ["## Mutants", "", *_mutant_lines(records["mutants"]), ""]
    versions = {text for r in attacks for text in [_versions(r)]}
    lines += [f"Versions: {'; '.join(sorted(versions))}."]
    return "\n".join(lines)


def coverage_record(report: Mapping[str, Any]) -> dict[str, Any]:
    """Take from coverage's own report what the page shows."""
    totals = report["totals"]
    by_module = {
        name.removeprefix("count01_lens/").removesuffix(".py"): part["summary"]["percent_covered"]
        for name, part in report["files"].items()
    }
    lowest = sorted(by_module.items(), key=lambda item: item[1])[:5]
    return {
        "name": "coverage",
        "percent": totals["percent_covered"],
        "lines": totals["num_statements"],
        "branches": totals["num_branches"],
        "missing_lines": totals["missing_lines"],
        "missing_branches": totals["missing_branches"],
        "lowest": dict(lowest),
    }


def _attack_line(record: Mapping[str, Any]) -> str:
    outcomes = ", ".join(f"{word}: {count:,}" for word, count in record["outcomes"].items())
    cells = [
        f"**{record['name']}**: {record['what']}",
        f"{record['cases']:,}",
        outcomes,
        str(record["seed"]),
        f"{record['seconds']:.0f}",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _coverage_lines(record: Mapping[str, Any]) -> list[str]:
    return [
        f"Branch coverage of the library by `make coverage`: {record['percent']:.1f} % "
        f"({record['lines']:,} lines, {record['branches']:,} branches; {record['missing_lines']} "
        f"lines and {record['missing_branches']} branches are missed). Processes that tests start, "
        "such as commands and workers, are not counted. The lowest modules: "
        + ", ".join(f"{name} {value:.0f} %" for name, value in record["lowest"].items())
        + "."
    ]


def _mutant_lines(record: Mapping[str, Any]) -> list[str]:
    rows = {
        name: (row["made"], row["killed"], [reason_of(one) for one in row["survivors"]])
        for name, row in record["modules"].items()
    }
    made, killed, alive = (
        sum(row[0] for row in rows.values()),
        sum(row[1] for row in rows.values()),
        [reason for row in rows.values() for reason in row[2]],
    )
    tried, unseen = killed + len(alive), alive.count(None)
    missing = [name for name in (*JUDGES, *ENGINE_FILES) if name not in rows]
    share = "all of them" if tried == made else "a random share of each module"
    effective = stats.binomtest(killed, max(killed + unseen, 1))
    low, high = effective.proportion_ci(method="wilson")
    lines = [
        f"{made:,} mutants were made of {len(rows)} modules, and {tried:,} tried, {share}: "
        f"{killed:,} were killed, {len(alive) - unseen} survived for a reason given below, and "
        f"{unseen} others survived. Without those that have a reason, tests notice "
        f"{100 * low:.1f} to {100 * high:.1f} % of such changes (95 % interval).",
        "",
        "| module | mutants | tried | killed | survived, explained | survived | score |",
        "|---|---|---|---|---|---|---|",
        *(_mutant_line(name, *row) for name, row in rows.items()),
        _mutant_line("**all**", made, killed, alive),
        "",
    ]
    if missing:
        lines += [f"Not in this table yet: {', '.join(missing)}.", ""]
    examples: dict[str, list[str]] = {}
    for row in record["modules"].values():
        for survivor in row["survivors"]:
            reason = reason_of(survivor) or "Not explained"
            examples.setdefault(reason, []).append(survivor["became"])
    if examples:
        lines += ["Why mutants survived, and how many:", ""]
    for reason, changes in examples.items():
        lines += [f"- {reason} ({len(changes)}), such as `{changes[0]}`"]
    return lines


def _mutant_line(name: str, made: int, killed: int, alive: Sequence[str | None]) -> str:
    unseen = alive.count(None)
    score = f"{100 * killed / (killed + unseen):.1f} %" if killed + unseen else ""
    cells = [name, f"{made:,}", f"{killed + len(alive):,}", f"{killed:,}"]
    return "| " + " | ".join([*cells, str(len(alive) - unseen), str(unseen), score]) + " |"


def _versions(record: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in record["versions"].items())


def main() -> None:
    """Take new records over, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("new", type=Path, nargs="?", help="directory with new records")
    parser.add_argument("--coverage", type=Path, help="JSON of coverage, to be made a record of")
    arguments = parser.parse_args()
    RECORDS.mkdir(parents=True, exist_ok=True)
    if arguments.coverage is not None:
        record = coverage_record(json.loads(arguments.coverage.read_text("utf-8")))
        write_atomically(RECORDS / "coverage.json", json_bytes(record))
    for name, record in (read_records(arguments.new) if arguments.new else {}).items():
        write_atomically(RECORDS / f"{name}.json", json_bytes(record))
    write_generated(PAGE, generated(read_records(RECORDS)))
    print(f"updated {PAGE}")


if __name__ == "__main__":
    main()
