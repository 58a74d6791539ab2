"""Measure how fast things are, as ratios taken in one run, and how much memory they need.

    make bench                                            everything once
    python -m experiments.tools.bench --runs 3            with the spread over three runs
    python -m experiments.tools.bench --guard             whether a ratio fell to a third

Each measurement has a process of its own, so that its peak memory is its own. The numbers go to
`bench.json` and, as a table, to the terminal. Machines differ and are noisy: read the ratios, not
the seconds. The guard compares a few quick ratios with those of record, docs/bench.json.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from count01_lens.common.storage import json_bytes, write_atomically
from count01_lens.common.versions import library_versions
from experiments.tools import (
    bench_explorer,
    bench_forms,
    bench_games,
    bench_general,
    bench_heads,
    bench_live,
    bench_start,
    bench_training,
)
from experiments.tools.bench_tables import RECORD, markdown

OUTPUT = Path("bench.json")
PARTS = (
    bench_start,
    bench_forms,
    bench_training,
    bench_live,
    bench_heads,
    bench_general,
    bench_games,
    bench_explorer,
)


def ground_truth() -> dict[str, float]:
    """Roles found in 250 models with planted heads, with and without noise, against the truth."""
    from experiments.ground_truth import JUDGED, OUT, judge, numbers

    start = time.perf_counter()
    models, table = judge(JUDGED, OUT)
    return {"seconds": time.perf_counter() - start, **numbers(models, table)}


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [
    function for part in PARTS for function in part.MEASUREMENTS
]
# About what is found, not how fast, and long: only where it is asked for by name.
ON_REQUEST: list[Callable[[], dict[str, float]]] = [ground_truth]
# Name, numerator, denominator: how many times faster the second is than the first.
RATIOS: list[tuple[str, str, str]] = [ratio for part in PARTS for ratio in part.RATIOS]
# Quick ones whose ratio says most about a mistake that makes things slow.
GUARDED = (
    "start: verify, with TransformerLens over without",
    "forward: closed form over compact",
    "epoch of ten: by hand over autograd",
    "verify: boxes over one by one",
    "probes of some groups: over scikit-learn",
    "groups of a layer with a norm: over a hooked run each",
)
WORSE = 3.0


def measure(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Run measurements, each in its own process."""
    results = {}
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "experiments.tools.bench", "--one", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results[name] = json.loads(done.stdout.splitlines()[-1])
    return results


def ratios_of(results: dict[str, dict[str, float]]) -> dict[str, float]:
    """How many times faster one of two is, where both were measured."""
    return {
        label: results[slow]["seconds"] / results[fast]["seconds"]
        for label, slow, fast in RATIOS
        if slow in results and fast in results
    }


def collect(names: Sequence[str], runs: int = 1) -> dict[str, Any]:
    """Measure all of them, as often as asked for; a ratio is of one run, its spread over runs."""
    measured = [measure(names) for _ in range(runs)]
    ratios = [ratios_of(results) for results in measured]
    return {
        "measurements": {
            name: {
                key: min(results[name][key] for results in measured)
                if key == "seconds"
                else measured[-1][name][key]
                for key in measured[0][name]
            }
            for name in names
        },
        "ratios": {
            label: {
                "median": median(found[label] for found in ratios),
                "low": min(found[label] for found in ratios),
                "high": max(found[label] for found in ratios),
            }
            for label in ratios[0]
        },
        "runs": runs,
        "machine": {"cores": os.cpu_count(), "processor": platform.machine()},
        "versions": library_versions(),
    }


def fallen(found: dict[str, float], record: dict[str, Any]) -> list[str]:
    """Say which ratios are worse than those of record by more than the guard allows."""
    return [
        f"{label}: expected {record[label]['median']:.1f} or so, at least a third of it, got "
        f"{value:.1f}"
        for label, value in found.items()
        if label in record and value < record[label]["median"] / WORSE
    ]


def guard(record: Path) -> int:
    """Measure what is guarded; what seems slow is measured once more before it counts."""
    known = json.loads(record.read_text())["ratios"]
    pairs = {label: (slow, fast) for label, slow, fast in RATIOS if label in GUARDED}
    slower: list[str] = []
    for label, pair in pairs.items():
        for _ in range(2):
            found = ratios_of(measure(pair))
            slower_now = fallen({label: found[label]}, known)
            if not slower_now:
                break
        slower += slower_now
        print(f"{label}: {found[label]:.1f} (of record {known[label]['median']:.1f})")
    for line in slower:
        print(f"slower than it was: {line}", file=sys.stderr)
    return 1 if slower else 0


def main() -> None:
    """Run all measurements, or some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUTPUT)
    parser.add_argument("--only", nargs="*", help="names of measurements")
    parser.add_argument("--runs", type=int, default=1, help="how often, for the spread")
    parser.add_argument("--guard", action="store_true", help="only tell whether ratios fell")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    functions = {function.__name__: function for function in (*MEASUREMENTS, *ON_REQUEST)}
    if arguments.one:
        result = functions[arguments.one]()
        # ru_maxrss is in kilobytes on Linux, in bytes on macOS.
        unit = 1e6 if sys.platform == "darwin" else 1e3
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        print(json.dumps({**result, "peak_mb": peak}))
        return
    if arguments.guard:
        sys.exit(guard(RECORD))
    unknown = sorted(set(arguments.only or []) - set(functions))
    if unknown:
        parser.error(f"unknown measurements {unknown}; expected some of {list(functions)}")
    if arguments.runs < 1:
        parser.error(f"runs: expected at least 1, got {arguments.runs}")
    names = arguments.only or [function.__name__ for function in MEASUREMENTS]
    report = collect(names, arguments.runs)
    write_atomically(arguments.out, json_bytes(report))
    print(markdown(report, {name: functions[name].__doc__ or "" for name in names}))
    print(f"\nwritten to {arguments.out}")


if __name__ == "__main__":
    main()
