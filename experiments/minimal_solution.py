"""The handcrafted minimal solution of appendix A, run on every sentence up to 200 of each token."""

import sys
from typing import Any

import pandas as pd

import count01_lens as cl
from count01_lens.jobs.job import Job
from experiments.setup import Setup
from experiments.suite import Load, Measured, main

ROW, TITLE = "M1", "The minimal solution"
CONTRAST = False
PAPER = "One head, d = 1, no layer norm: solves both tasks if n0 + n1 > 0"
VARIANTS = {"with_skip": True, "without_skip": False}


def jobs(setup: Setup) -> list[Job]:
    """Nothing heavy."""
    return []


def measure(load: Load, setup: Setup) -> Measured:
    """Verify both variants exhaustively."""
    up_to = 60 if setup.size == "quick" else 200
    rows: list[dict[str, Any]] = []
    for name, skip in VARIANTS.items():
        found = cl.verify(cl.minimal_model(skip=skip), up_to)
        # All sentences are asked for, also those without '0' and '1', which the paper leaves out.
        rows.append(
            {
                "variant": name,
                "sentences": found.n_sentences,
                "wrong_answers": found.n_errors,
                "not_ended": found.n_eos_errors,
                "right_on_both": 1 - (found.n_errors + found.n_eos_errors) / found.n_sentences,
                "smallest_margin": found.smallest_margin,
            }
        )
    table = pd.DataFrame(rows)
    errors = int(table["wrong_answers"].sum() + table["not_ended"].sum())
    return Measured(
        numbers={row["variant"]: row["right_on_both"] for row in rows} | {"up_to": up_to},
        shows=f"{errors} errors in {int(table['sentences'].sum()):,} sentences of both variants, "
        "those without '0' and '1' included, which the paper leaves out.",
        tables={"minimal_solution": table},
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
