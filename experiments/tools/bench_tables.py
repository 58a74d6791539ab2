"""Write what `bench` measured as tables of Markdown, and into docs/benchmarks.md."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from count01_lens.common.text import number
from experiments.generated_part import write_parts
from experiments.job_times import as_markdown

PAGE, RECORD = Path("docs/benchmarks.md"), Path("docs/bench.json")
SUITE = Path("docs/reproduction/suite.json")


def markdown(report: Mapping[str, Any], docs: Mapping[str, str]) -> str:
    """Write the report as two tables; `docs` has a sentence for each measurement, in order."""
    spread = report["runs"] > 1
    lines = ["| ratio | times |" + (" lowest to highest |" if spread else "")]
    lines += ["|---|---|" + ("---|" if spread else "")]
    for label, found in report["ratios"].items():
        between = f" {_times(found['low'])} to {_times(found['high'])} |" if spread else ""
        lines.append(f"| {label} | {_times(found['median'])} |{between}")
    lines += ["", "| measurement | seconds | peak memory, MB | |", "|---|---|---|---|"]
    for name, words in ((name, text.strip().splitlines()[0]) for name, text in docs.items()):
        result = report["measurements"][name]
        more = _more(result)
        lines.append(
            f"| {name} | {number(result['seconds'])} | {result['peak_mb']:,.0f} | {words}{more} |"
        )
    return "\n".join(lines)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}"


def _more(result: Mapping[str, float]) -> str:
    """What was measured beside time and memory."""
    others = {name: v for name, v in result.items() if name not in ("seconds", "peak_mb")}
    told = ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in others.items())
    return f" ({told})" if told else ""


def write_tables(page: Path, docs: Mapping[str, str]) -> None:
    """Put the tables of record between the marks of a page: benchmarks, and the full paper."""
    report, suite = (json.loads(record.read_text()) for record in (RECORD, SUITE))
    write_parts(page, {"tables": markdown(report, docs), "paper": as_markdown(suite)})


if __name__ == "__main__":
    from experiments.tools.bench import MEASUREMENTS

    told = {function.__name__: function.__doc__ or "" for function in MEASUREMENTS}
    write_tables(PAGE, told)
    print(f"written to {PAGE}", file=sys.stderr)
