"""Appendix replicas: the same pictures for three more seeds."""

import sys

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.views.plots import plot_attention_ratios, plot_gains, plot_pairs
from experiments.runs import MAIN, by_seed, last_heads, main_jobs, models_of, share
from experiments.suite import Load, Measured, Shown, Size, main

ROW, TITLE = "A1", "Three more seeds"
PAPER = "The appendix shows very similar patterns for three more seeds"
SEEDS = {"quick": [101], "full": [101, 102, 103]}


def jobs(size: Size) -> list[Job]:
    """The main runs."""
    return main_jobs(size)[: 1 if size == "quick" else 2]


def measure(load: Load, size: Size) -> Measured:
    """Draw pairs, gains and ratios of each, and compare shares."""
    models = {seed: m for job in jobs(size) for seed, m in models_of(job, load(job)).items()}
    heads = last_heads(jobs(size), load)
    heads = heads[heads["seed"].isin(SEEDS[size])]
    shares = by_seed(heads, lambda rows: share(rows["category"] == "successful"))
    figures = {}
    for seed in SEEDS[size]:
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
        + ", ".join(map(str, SEEDS[size]))
        + ").",
        tables={"heads": heads},
        figures=figures,
        seeds=SEEDS[size],
        recipe=MAIN.to_dict(),
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
