"""Experiments that stand by themselves: their command line, and the jobs that may go on later."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from count01_lens.common.storage import AlreadyInUseError, json_bytes, sha256, write_atomically
from count01_lens.common.versions import library_versions
from count01_lens.jobs.job import Job
from count01_lens.jobs.results import ResultStore
from count01_lens.jobs.running import run_jobs
from experiments.setup import Size


def results_of(
    jobs: Sequence[Job], out: Path, *, workers: int | None = None
) -> list[dict[str, Any]] | None:
    """Run jobs that are not done yet, and return the results of all; None if some are missing."""
    store = ResultStore(out / "jobs")
    outcome = run_jobs(jobs, store, workers=workers, progress=True)
    print(outcome, file=sys.stderr)
    if outcome.failed or outcome.left:
        return None
    return [store.load(job) for job in jobs]


def write_verdict(out: Path, size: Size, rules: ModuleType, recipes: Mapping[str, Any]) -> None:
    """Judge results.csv as it is written, if the run was full, by the rules of a module."""
    written = pd.read_csv(out / "results.csv")
    about = {
        "size": size,
        "verdict": rules.judge(written) if size == "full" else None,
        "seeds": sorted(int(seed) for seed in written["seed"].unique()),
        "recipes": {name: config.to_dict() for name, config in recipes.items()},
        "rules_sha256": checksum_of(rules),
        "versions": library_versions(),
    }
    write_atomically(out / "verdict.json", json_bytes(about))


def checksum_of(rules: ModuleType) -> str:
    """Of the file with the rules: a verdict by other rules is another one."""
    return sha256(Path(str(rules.__file__)).read_bytes())


def page_main(about: str | None, write_page: Callable[[Path], Path]) -> None:
    """Update a page of the docs from the results that the command line names."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="directory of a full run")
    print(f"updated {write_page(parser.parse_args().results)}")


def main(
    name: str,
    about: str | None,
    default_out: Path,
    all_jobs: Callable[[Size], list[Job]],
    run: Callable[..., bool],
) -> None:
    """Run an experiment as the command line says.

    Args:
        name: of its module.
        about: what `--help` says.
        default_out: where results go, in a directory for each size.
        all_jobs: what is to be run, by size.
        run: called with the jobs, the directory, the size and `workers`; tells whether all is done.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=("quick", "full"), default="quick")
    parser.add_argument("--out", type=Path, help=f"results [default: {default_out}/SIZE]")
    parser.add_argument("--workers", type=int, help="processes; 0: in this one [default: cores]")
    arguments = parser.parse_args()
    out = arguments.out or default_out / arguments.size
    try:
        done = run(all_jobs(arguments.size), out, arguments.size, workers=arguments.workers)
    except (ValueError, AlreadyInUseError) as error:
        parser.exit(2, f"{error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "\nstopped; the same command goes on where it was\n")
    if done:
        written = sorted(path.name for path in out.iterdir() if path.is_file())
        print(f"written to {out}: {', '.join(written)}")
    raise SystemExit(0 if done else 1)
