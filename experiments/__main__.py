"""Reproduce the paper: every figure, every table, every claim.

    python -m experiments --size quick     a first look, a few minutes
    python -m experiments --size full      the paper's own counts

Stopped at any moment, the same command goes on where it was.
"""

import argparse
from pathlib import Path
from types import ModuleType

from count01_lens.checkpoints import save_checkpoint
from count01_lens.results import ResultStore
from experiments import (
    compete_or_cooperate,
    data_set,
    eos_bias,
    eos_heads,
    groups_of_heads,
    heads_and_pairs,
    heads_over_training,
    labels,
    logits_of_heads,
    minimal_heads,
    minimal_solution,
    model_sizes,
    monotonicity,
    more_seeds,
    outputs_of_heads,
    ratios_of_heads,
    skip_connection,
    syntax_first,
    untrained_heads,
    vary_w01,
    vary_w02,
    weighted_accuracy,
)
from experiments.report import write_report
from experiments.runs import main_jobs, models_of
from experiments.suite import MixedResultsError, Size, add_arguments, run_suite, summary

# In the order of the report.
ROWS: list[ModuleType] = [
    data_set,
    labels,
    minimal_solution,
    syntax_first,
    logits_of_heads,
    model_sizes,
    heads_and_pairs,
    groups_of_heads,
    ratios_of_heads,
    outputs_of_heads,
    vary_w01,
    vary_w02,
    heads_over_training,
    untrained_heads,
    weighted_accuracy,
    eos_heads,
    eos_bias,
    skip_connection,
    monotonicity,
    compete_or_cooperate,
    minimal_heads,
    more_seeds,
]


def main() -> None:
    """Run all experiments, judge the claims, write the report."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    arguments = parser.parse_args()
    try:
        code = run_suite(
            ROWS, arguments.out, arguments.size, workers=arguments.workers, progress=True
        )
    except MixedResultsError as error:
        parser.exit(2, f"{error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "\nstopped; the same command goes on where it was\n")
    print(summary(arguments.out))
    _keep_a_model(arguments.out, arguments.size)
    report = write_report(arguments.out, arguments.out / "report.html")
    print(f"\nthe report is {report}")
    raise SystemExit(code)


def _keep_a_model(out: Path, size: Size) -> None:
    """Save the model that most figures show, for the report and for whoever wants to look."""
    job = main_jobs(size)[0]
    found = ResultStore(out / "jobs").find(job)
    if found is not None:
        save_checkpoint(models_of(job, found.value)[100], out / "model", info={"seed": 100})


if __name__ == "__main__":
    main()
