"""The data set: how many training sentences have no '0', and neither '0' nor '1'."""

import sys

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.views.figures import FIVE, FOUR, NEUTRAL, NotebookFigure
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "D1", "The data set"
CONTRAST = False
PAPER = (
    "7000 / 1500 / 1500 sentences; '0' and '1' counts from [0, 100] / [101, 150] / [151, 200], '2' "
    "counts from 0 up; 73 training sentences have no '0', two of which have no '1' either"
)


def jobs(setup: Setup) -> list[Job]:
    """Nothing heavy."""
    return []


def measure(load: Load, setup: Setup) -> Measured:
    """Draw data sets with several seeds and count."""
    seeds = range(10 if setup.size == "quick" else 100)
    rows = []
    for seed in seeds:
        splits = cl.make_splits(seed)
        n0, n1, _ = splits.train.counts.numpy().T
        rows.append(
            {
                "seed": seed,
                "no_zero": int((n0 == 0).sum()),
                "no_zero_no_one": int(((n0 == 0) & (n1 == 0)).sum()),
                "test_fours": float(splits.test.labels.double().mean()),
                "test_ties": float(splits.test.ties.double().mean()),
            }
        )
    table = pd.DataFrame(rows)
    splits = cl.make_splits(0)
    ours = table.iloc[0]
    return Measured(
        numbers={
            "no_zero": spread(table["no_zero"]),
            "no_zero_no_one": spread(table["no_zero_no_one"]),
            "sizes": [len(split) for split in (splits.train, splits.validation, splits.test)],
            "ties_in_test": spread(table["test_ties"]),
        },
        shows=f"Over {len(table)} data seeds {table['no_zero'].mean():.1f} training sentences "
        "have no "
        f"'0' (expected 7000/101 = 69.3). Our default data set, seed 0, has {ours['no_zero']:.0f}, "
        f"of which {ours['no_zero_no_one']:.0f} have no '1' either.",
        tables={"data_sets": table},
        figures={"data_set": _figure(splits)},
        seeds=list(seeds),
    )


def _figure(splits: cl.Splits) -> Shown:
    figure = NotebookFigure(figsize=(6.4, 4.6), layout="constrained")
    axes = figure.add_subplot()
    colours = {"train": NEUTRAL, "validation": FIVE, "test": FOUR}
    for name, colour in colours.items():
        n0, n1, _ = getattr(splits, name).counts.numpy().T
        axes.plot(n0, n1, ".", ms=2, color=colour, label=f"{name} ({len(n0)})", rasterized=True)
    axes.plot([0, 200], [0, 200], color="black", lw=0.8)
    axes.set(xlabel="number of '0's", ylabel="number of '1's", title="sentences by their counts")
    axes.legend(markerscale=5, frameon=False, loc="lower right")
    ends = {name: int(np.max(getattr(splits, name).counts[:, :2].numpy())) for name in colours}
    alt = f"Counts of '0' and '1' of all sentences, in three separate squares up to {ends}"
    return Shown(figure, alt, "Above the line the answer is '4'; validation and test are longer.")


if __name__ == "__main__":
    main(sys.modules[__name__])
