"""Reproduce the paper: every figure, every table, every claim.

    python -m experiments --size quick     a first look, a few minutes
    python -m experiments --size full      the paper's own counts

Stopped at any moment, the same command goes on where it was.
"""

import argparse
from pathlib import Path

from count01_lens.jobs.results import ResultStore
from count01_lens.models.checkpoints import save_checkpoint
from experiments.report import write_report
from experiments.rows import ROWS
from experiments.runs import main_jobs, models_of
from experiments.setup import SHOWN_SEED, Size, paper_setup
from experiments.suite import run_from_command_line, summary


def main() -> None:
    """Run all experiments, judge the claims, write the report."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments, code = run_from_command_line(ROWS, parser)
    print(summary(arguments.out))
    _keep_a_model(arguments.out, arguments.size)
    report = write_report(arguments.out, arguments.out / "report.html")
    print(f"\nthe report is {report}")
    raise SystemExit(code)


def _keep_a_model(out: Path, size: Size) -> None:
    """Save the model that most figures show, for the report and for whoever wants to look."""
    job = main_jobs(paper_setup(size))[0]
    found = ResultStore(out / "jobs").find(job)
    if found is not None:
        model = models_of(job, found.value)[SHOWN_SEED]
        save_checkpoint(model, out / "model", info={"seed": SHOWN_SEED})


if __name__ == "__main__":
    main()
