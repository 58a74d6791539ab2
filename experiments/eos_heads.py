"""The '[EOS]' task: l-acc of single heads and of pairs."""

import sys

import numpy as np

from count01_lens.jobs.job import Job
from count01_lens.views.figures import END, NEUTRAL, NotebookFigure
from experiments.runs import by_seed, last_heads, main_jobs, share, together
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "E1", "The '[EOS]' task"
CONTRAST = True
PAPER = "100 % '[EOS]' l-acc for 46 % of heads and 50 % of pairs (5 experiments, 80 heads)"
RUNS = 5


def jobs(setup: Setup) -> list[Job]:
    """The main runs."""
    return main_jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Count heads and pairs that always end the sentence; of five runs, as the paper."""
    heads, pairs = last_heads(jobs(setup), load), together(jobs(setup), load, "pairs")
    seeds = sorted(heads["seed"].unique().tolist())[:RUNS]
    heads, pairs = (table[table["seed"].isin(seeds)] for table in (heads, pairs))
    single = by_seed(heads, lambda rows: share(rows["eos_l_acc"] == 1))
    double = by_seed(pairs, lambda rows: share(rows["eos_l_acc"] == 1))
    never = by_seed(heads, lambda rows: share(rows["eos_l_acc"] == 0))
    return Measured(
        numbers={
            "single": spread(single),
            "pairs": spread(double),
            "single_never": spread(never),
            "heads": len(heads),
            "number_of_pairs": len(pairs),
        },
        shows=f"{100 * np.mean(single):.0f} % of {len(heads)} single heads and "
        f"{100 * np.mean(double):.0f} % of {len(pairs)} pairs always write '[EOS]' after the "
        f"answer; {100 * np.mean(never):.0f} % of single heads never do.",
        tables={
            "heads": heads[["seed", "head", "eos_l_acc", "l_acc", "s_acc", "category"]],
            "pairs": pairs[["seed", "first", "second", "eos_l_acc"]],
        },
        figures={"eos": _figure(heads["eos_l_acc"], pairs["eos_l_acc"])},
        seeds=seeds,
        recipe=setup.recipe.to_dict(),
    )


def _figure(single: "object", double: "object") -> Shown:
    figure = NotebookFigure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    bins = np.linspace(0, 1, 21).tolist()
    for values, colour, label in ((single, END, "single heads"), (double, NEUTRAL, "pairs")):
        weights = np.full(len(values), 1 / len(values))  # type: ignore[arg-type]
        axes.hist(values, bins, weights=weights, histtype="step", lw=2, color=colour, label=label)  # type: ignore[arg-type]
    axes.set(xlabel="'[EOS]' l-acc", ylabel="share")
    axes.set_title("how often a head or pair alone ends the sentence")
    axes.legend(frameon=False, loc="upper center")
    return Shown(figure, "Histograms of [EOS] l-acc of heads and pairs", "Mostly always or never.")


if __name__ == "__main__":
    main(sys.modules[__name__])
