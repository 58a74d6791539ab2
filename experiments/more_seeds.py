"""Appendix replicas: the same pictures for three more seeds."""

import sys

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.views.plots import plot_attention_ratios, plot_gains, plot_pairs
from experiments.runs import by_seed, last_heads, main_jobs, models_of, share
from experiments.setup import SEEDS, Setup
from experiments.suite import Load, Measured, Shown, main

ROW, TITLE = "A1", "Three more seeds"
CONTRAST = True
PAPER = "The appendix shows very similar patterns for three more seeds"
MORE = {"quick": SEEDS[1:2], "full": SEEDS[1:4]}


def jobs(setup: Setup) -> list[Job]:
    """The main runs."""
    return main_jobs(setup)[: 1 if setup.size == "quick" else 2]


def measure(load: Load, setup: Setup) -> Measured:
    """Draw pairs, gains and ratios of each, and compare shares."""
    models = {seed: m for job in jobs(setup) for seed, m in models_of(job, load(job)).items()}
    heads = last_heads(jobs(setup), load)
    heads = heads[heads["seed"].isin(MORE[setup.size])]
    shares = by_seed(heads, lambda rows: share(rows["category"] == "successful"))
    figures = {}
    for seed in MORE[setup.size]:
        analysis = cl.analyze_heads(models[seed])
        drawings = {
            "pairs": plot_pairs(analysis, "s_acc"),
            "gains": plot_gains(analysis),
            "ratios": plot_attention_ratios(analysis),
        }
        for name, figure in drawings.items():
            alt = f"{name} of the model with seed {seed}"
            figures[f"{name}_{seed}"] = Shown(figure, alt, f"Seed {seed}.")
    return Measured(
        numbers={
            "similar_shares": max(shares) - min(shares) if len(shares) > 1 else None,
            "successful": shares,
        },
        shows="Shares of successful heads: "
        + ", ".join(f"{100 * value:.0f} %" for value in shares)
        + " (seeds "
        + ", ".join(map(str, MORE[setup.size]))
        + ").",
        tables={"heads": heads},
        figures=figures,
        seeds=MORE[setup.size],
        recipe=setup.recipe.to_dict(),
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
