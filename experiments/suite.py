"""Run experiments: their jobs, their numbers, their files, and the verdicts on the claims.

An experiment is a module of this package with

    ROW, TITLE, PAPER          which row of figures and tables it is, and what the paper says
    CONTRAST                   whether it is measured with the contrasting recipe, too
    jobs(setup)                the jobs whose results it needs; experiments share equal ones
    measure(load, setup)       turns results into a `Measured`: numbers, tables, figures

`quick` has fewer repetitions, for a first look; `full` the paper's own counts.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from count01_lens.common.storage import AlreadyInUseError, json_bytes, write_atomically
from count01_lens.common.student import mean_interval
from count01_lens.common.text import short
from count01_lens.common.versions import library_versions
from count01_lens.jobs.cluster import ClusterError, workplace
from count01_lens.jobs.job import Job
from count01_lens.jobs.outcome import Outcome
from count01_lens.jobs.results import ResultStore
from count01_lens.jobs.running import run_jobs
from count01_lens.views.figures import as_bytes
from count01_lens.views.pieces import LARGEST_SVG
from experiments import claims
from experiments.job_times import job_times
from experiments.setup import Setup, Size, contrast_setup, paper_setup

Load = Callable[[Job], Any]
DEFAULT_OUT = Path("runs/reproduction")
CONTRAST = "contrast"  # the directory of rows that were measured with the other recipe
TOO_FEW = "too few"


# Besides those that the library itself depends on.
LIBRARIES = ("pandas", "scikit-learn", "scipy")


class MixedResultsError(ValueError):
    """A directory holds results of another configuration."""


class MissingLibraryError(RuntimeError):
    """A library is not installed, or does not tell its version."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A figure with the words that go with it."""

    figure: Figure
    alt: str
    caption: str


@dataclass(frozen=True, eq=False)
class Measured:
    """What an experiment found.

    Attributes:
        numbers: by name; those that claims ask for bear the name after the dot of the claim.
        shows: a sentence on what the numbers show.
        tables: data frames, by name.
        figures: by name.
        seeds: of the runs behind them.
        recipe: of these runs.
    """

    numbers: dict[str, Any]
    shows: str
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    figures: dict[str, Shown] = field(default_factory=dict)
    seeds: Sequence[int] = ()
    recipe: dict[str, Any] = field(default_factory=dict)


def spread(values: Iterable[float]) -> dict[str, Any]:
    """Mean of several runs with a 95 % interval (Student's t); missing runs are left out."""
    known = [float(value) for value in values if not np.isnan(value)]
    found = mean_interval(known)._asdict()
    return {**found, "mean": found["mean"] if known else None, "values": known}


def run_suite(
    rows: Sequence[ModuleType],
    out: Path,
    size: Size,
    *,
    workers: int | None = None,
    executor: Any = None,
    progress: bool | None = None,
) -> int:
    """Run experiments, write their files, judge the claims; return an exit code."""
    start = time.perf_counter()
    about = _about(size)
    _claim_directory(out, about)
    store = ResultStore(out / "jobs")
    editions = _editions(rows, size)
    jobs = [job for edition in editions for job in edition.jobs()]
    outcome = run_jobs(jobs, store, workers=workers, executor=executor, progress=progress)
    print(outcome, file=sys.stderr)
    failed = _failures(editions, outcome)
    for edition in editions:
        if edition.name in failed:
            continue
        row = edition.row
        try:
            began = time.perf_counter()
            measured = row.measure(store.load, edition.setup)
            _write_row(row, measured, out / edition.name, about, time.perf_counter() - began)
            print(f"{edition.name:<4} {row.TITLE}", file=sys.stderr)
        except Exception as error:  # one experiment must not cost the others
            traceback.print_exc()
            failed[edition.name] = f"{type(error).__name__}: {error}"
    took = {"seconds": time.perf_counter() - start, "job_times": job_times(jobs, store)}
    _write_claims(out, about, failed, took)
    for name, reason in failed.items():
        print(f"{name} failed: {reason.strip().splitlines()[-1]}", file=sys.stderr)
    return 1 if failed else 0


@dataclass(frozen=True)
class _Edition:
    """A row with what it is measured with; its name is that of its directory."""

    name: str
    row: ModuleType
    setup: Setup

    def jobs(self) -> list[Job]:
        found: list[Job] = self.row.jobs(self.setup)
        return found


def _editions(rows: Sequence[ModuleType], size: Size) -> list[_Edition]:
    """Every row as the paper has it, then the contrast of those that have one."""
    first = [_Edition(row.ROW, row, paper_setup(size)) for row in rows]
    contrast = contrast_setup(size)
    return first + [
        _Edition(f"{CONTRAST}/{row.ROW}", row, contrast) for row in rows if row.CONTRAST
    ]


def main(row: ModuleType) -> None:
    """Run one experiment from the command line."""
    parser = argparse.ArgumentParser(description=f"{row.ROW}: {row.TITLE}. {row.__doc__}")
    arguments, code = run_from_command_line([row], parser)
    print(summary(arguments.out))
    raise SystemExit(code)


def run_from_command_line(
    rows: Sequence[ModuleType], parser: argparse.ArgumentParser
) -> tuple[argparse.Namespace, int]:
    """Run experiments as the command line says; return its arguments and an exit code."""
    arguments = _parsed(parser)
    try:
        with workplace(arguments.workers, arguments.dask) as place:
            code = run_suite(rows, arguments.out, arguments.size, progress=True, **place)
    except (MixedResultsError, MissingLibraryError, ClusterError, AlreadyInUseError) as error:
        parser.exit(2, f"{error}\n")
    except OSError as error:  # such as a full disk
        parser.exit(2, f"{error}; the same command goes on where it was\n")
    except KeyboardInterrupt:
        parser.exit(130, "\nstopped; the same command goes on where it was\n")
    return arguments, code


def _parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument("--size", choices=("quick", "full"), default="quick")
    parser.add_argument("--out", type=Path, help=f"results [default: {DEFAULT_OUT}/SIZE]")
    parser.add_argument("--workers", type=int, default=None, help="processes; 0: in this one")
    parser.add_argument("--dask", help="run on a cluster: its scheduler, tcp://host:8786")
    arguments = parser.parse_args()
    arguments.out = arguments.out or DEFAULT_OUT / arguments.size
    return arguments


def summary(out: Path) -> str:
    """Write the verdicts as text of at most 80 columns: with the paper's recipe, and the contrast.

    Claims that were not measured at all are only counted.
    """
    judged = json.loads((out / "claims.json").read_text())
    lines = [f"{'claim':<28} {'paper recipe':<25} accurate recipe"]
    for claim in judged:
        if claim["verdict"] != "not measured":
            other = "" if claim["contrast"] is None else _cell(claim["contrast"])
            lines.append(f"{claim['id']:<28} {_cell(claim)} {other}".rstrip())
    counted = Counter(claim["verdict"] for claim in judged)
    told = ", ".join(f"{number} {verdict}" for verdict, number in counted.most_common())
    return "\n".join([*lines, f"of {len(judged)} claims: {told}"])


def _cell(claim: Mapping[str, Any]) -> str:
    value = "-" if claim["value"] is None else short(claim["value"])
    return f"{value:>9} {claim['verdict']:<15}"


def _about(size: Size) -> dict[str, Any]:
    """All that results must have in common to stand side by side."""
    versions = library_versions()
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            raise MissingLibraryError(
                f"{library}: expected to be installed, got no version of it; experiments need "
                "more than the library does: pip install 'count01-lens[dev]'"
            ) from None
    return {"size": size, "claims_sha256": claims.sha256(), "versions": versions}


def _claim_directory(out: Path, about: dict[str, Any]) -> None:
    """Refuse a directory of another size, other rules or other versions: nothing is mixed."""
    path = out / "suite.json"
    if path.exists():
        known = _read_suite(path)
        for name, value in about.items():
            if known.get(name) != value:
                raise MixedResultsError(
                    f"{out}: expected results with {name} = {value}, got {known.get(name)}; "
                    "choose another --out, or move this directory away"
                )
    out.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write_atomically(path, json_bytes(about))


def _read_suite(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text("utf-8"))
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise MixedResultsError(
            f"{path}: expected what results there have in common, got a damaged file; choose "
            "another --out, or move this directory away"
        )
    return known


def _failures(editions: Sequence[_Edition], outcome: Outcome) -> dict[str, str]:
    reasons = {failure.job.key: failure.reason for failure in outcome.failed}
    return {
        edition.name: f"job {job.name}: {reasons[job.key]}"
        for edition in editions
        for job in edition.jobs()
        if job.key in reasons
    }


def _write_row(
    row: ModuleType, measured: Measured, directory: Path, about: dict[str, Any], seconds: float
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in measured.tables.items():
        text = table.to_csv(index=False, float_format="%.8g")
        write_atomically(directory / f"{name}.csv", text.encode())
    figures = []
    for name, shown in measured.figures.items():
        files = {"file": f"{name}.svg"}
        drawing = as_bytes(shown.figure, "svg")
        write_atomically(directory / f"{name}.svg", drawing)
        if len(drawing) >= LARGEST_SVG:  # slower to show than a picture of it
            files["png"] = f"{name}.png"
            write_atomically(directory / f"{name}.png", as_bytes(shown.figure, "png"))
        figures.append({**files, "alt": shown.alt, "caption": shown.caption})
    content = {
        "row": row.ROW,
        "name": _name(row),
        "title": row.TITLE,
        "paper": row.PAPER,
        "shows": measured.shows,
        **about,
        "seeds": list(measured.seeds),
        "recipe": measured.recipe,
        "seconds": seconds,
        "numbers": measured.numbers,
        "tables": [f"{name}.csv" for name in measured.tables],
        "figures": figures,
    }
    write_atomically(directory / "numbers.json", json_bytes(content))


def _name(row: ModuleType) -> str:
    """Name of a module, also of one that was started with `python -m`."""
    spec = getattr(row, "__spec__", None)
    return str(spec.name if spec else row.__name__).rpartition(".")[2]


def _write_claims(
    out: Path, about: dict[str, Any], failed: dict[str, str], took: dict[str, Any]
) -> None:
    judged = []
    for claim in claims.CLAIMS:
        rows = [
            None if name in failed else _row_content(out / name)
            for name in (claim.row, f"{CONTRAST}/{claim.row}")
        ]
        judged.append(judged_twice(claim, *rows))
    write_atomically(out / "claims.json", json_bytes(judged))
    previous = _read_suite(out / "suite.json")
    suite = {
        **about,
        **took,
        # A run that was continued took as long as its parts.
        "seconds": previous.get("seconds", 0.0) + took["seconds"],
        "machine": {"cores": os.cpu_count()},
        "failed": failed,
    }
    write_atomically(out / "suite.json", json_bytes(suite))


def _row_content(directory: Path) -> dict[str, Any] | None:
    path = directory / "numbers.json"
    return json.loads(path.read_text()) if path.exists() else None


def judged_twice(
    claim: claims.Claim, row: Mapping[str, Any] | None, contrast: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Judge a claim by its row, and beside it by the same row under the contrasting recipe."""
    other = None if contrast is None else _judged(claim, contrast)
    kept = ("value", "low", "high", "n", "verdict")
    return {
        **_judged(claim, row),
        "contrast": None if other is None else {name: other[name] for name in kept},
    }


def _judged(claim: claims.Claim, row: Mapping[str, Any] | None) -> dict[str, Any]:
    found = claims.judged(claim, None if row is None else row["numbers"])
    # One or two trained models, or short trainings, decide nothing.
    if row is not None and row["size"] != "full" and row["recipe"] and found["value"] is not None:
        found["verdict"] = TOO_FEW
    return found
