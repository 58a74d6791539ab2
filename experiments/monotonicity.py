"""How often s-acc of a group falls when a head is added, and that no optimiser is to blame."""

import sys

import numpy as np
import pandas as pd

from count01_lens.heads.metrics import METRICS
from count01_lens.jobs.job import Job
from experiments import groups_of_heads
from experiments.runs import close_looks
from experiments.setup import Setup
from experiments.suite import Load, Measured, main, spread

ROW, TITLE = "S2", "s-acc of a group against its subgroups"
CONTRAST = True
PAPER = "Not always monotone (appendix C)"


def jobs(setup: Setup) -> list[Job]:
    """The main runs whose groups were all measured."""
    return groups_of_heads.jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Compare every group with every group one head larger: all 524,272 nested pairs."""
    rows = []
    for seed, look in close_looks(jobs(setup), load).items():
        s_acc = np.concatenate([[np.nan], look["values"][:, list(METRICS).index("s_acc")]])
        masks = np.arange(1, len(s_acc))
        changes = []
        for head in range(int(np.log2(len(s_acc)))):
            without = masks[(masks >> head) & 1 == 0]
            changes.append(s_acc[without | (1 << head)] - s_acc[without])
        change = np.concatenate(changes)
        rows.append(
            {
                "seed": seed,
                "nested_pairs": len(change),
                "decreases": float(np.mean(change < 0)),
                "decreases_above_0.01": float(np.mean(change < -0.01)),
                "largest_decrease": float(-change.min()),
                "worst_gradient": look["worst_gradient"],
            }
        )
    table = pd.DataFrame(rows)
    return Measured(
        numbers={
            "decreases": spread(table["decreases"]),
            "decreases_above_0.01": spread(table["decreases_above_0.01"]),
            "largest_decrease": float(table["largest_decrease"].max()),
            "worst_gradient": float(table["worst_gradient"].max()),
            "nested_pairs": int(table["nested_pairs"].sum()),
        },
        shows=f"s-acc falls in {100 * table['decreases'].mean():.1f} % of "
        f"{table['nested_pairs'].sum():,} "
        f"nested pairs, by up to {table['largest_decrease'].max():.3f}. All fits are converged "
        f"(relative gradient at most {table['worst_gradient'].max():.0e}), so none of this is the "
        "optimiser's: it is generalisation from training to longer test sentences.",
        tables={"monotonicity": table},
        seeds=table["seed"].tolist(),
        recipe=setup.recipe.to_dict(),
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
