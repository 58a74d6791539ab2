"""Compete or cooperate? The verdict on ten fresh models of each recipe, with all groups of heads.

    python -m experiments.answer_over_seeds --size quick   development seeds, no verdict
    python -m experiments.answer_over_seeds --size full    ten judged seeds of each recipe

Trains 16-head models by the paper's recipe and by the accurate one, and analyses each as
`analyze_heads(model).with_groups()` does. The rules were fixed before the judged seeds were run
(answer_rules.py). OUT gets results.csv (a row per recipe, seed and metric), labels.csv (heads by
word and category) and verdict.json; `python -m experiments.answer_page OUT` makes the page in the
docs of them. Stopped at any moment, the same command goes on where it was.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import count01_lens as cl
from count01_lens.common.storage import write_atomically
from count01_lens.heads.labels import LABELS
from count01_lens.jobs.job import Job
from count01_lens.training.recipe import training_cost
from experiments import answer_rules, standalone
from experiments.answer_rules import DEVELOPMENT_SEEDS, JUDGED_SEEDS, METRICS
from experiments.setup import Size
from experiments.standalone import results_of

VERSION = "1"
DEFAULT_OUT = Path("runs/answer_over_seeds")
RECIPES = {"paper": cl.TrainConfig.paper(), "accurate": cl.TrainConfig()}
TOGETHER = 5  # seeds in one job
SECONDS_TO_MEASURE = 30  # a model of 16 heads


def stack_job(recipe: str, seeds: Sequence[int]) -> Job:
    """The job that trains and analyses some seeds of a recipe."""
    config = RECIPES[recipe]
    configuration = {"recipe": recipe, "config": config.to_dict(), "seeds": list(seeds)}
    cost = training_cost(config, len(seeds)) + len(seeds) * SECONDS_TO_MEASURE
    return Job(f"{recipe}, seeds {seeds[0]}-{seeds[-1]}", measure, configuration, VERSION, cost)


def measure(recipe: str, config: dict[str, Any], seeds: list[int]) -> dict[str, Any]:
    """Train a stack and analyse every model with all groups: a row per metric, and labels."""
    result = cl.train(
        cl.TrainConfig.from_dict(config), seeds=seeds, snapshot_epochs=(), progress=False
    )
    rows, labels = [], []
    for seed, model in zip(seeds, result.models, strict=True):
        analysis = cl.analyze_heads(model, progress=False).with_groups(progress=False)
        place = {"recipe": recipe, "seed": seed}
        for metric in METRICS:
            rows.append({**place, **numbers_of(analysis, metric)})
            labels += [
                {**place, "metric": metric, "label": label, "category": category, "heads": n}
                for label, row in analysis.agreement(metric).iterrows()
                for category, n in row.items()
            ]
        print(f"{recipe}, seed {seed}: {analysis.answer}", file=sys.stderr)
    return {"results": pd.DataFrame(rows), "labels": pd.DataFrame(labels)}


def numbers_of(analysis: cl.HeadAnalysis, metric: str) -> dict[str, Any]:
    """What the verdict says of a model by a metric, as numbers."""
    finding, labels = analysis.verdict[metric], analysis.labels(metric)
    assert finding.independent is not None
    counts = labels.heads["label"].value_counts()
    pairs = labels.pairs["label"]
    explained = analysis.explained(metric)
    return {
        "metric": metric,
        "accuracy": analysis.accuracy["answer"],
        "word": finding.word,
        "mean_interaction": finding.mean_interaction,
        "copies": finding.copies,
        "against_independent": finding.against_independent,
        "beyond": finding.independent.beyond,
        "enough": finding.enough,
        "cooperating_pairs": float((pairs == "cooperating").mean()),
        "redundant_pairs": float((pairs == "redundant").mean()),
        **{f"explained_{order}": float(explained[order]) for order in (1, 2, 3)},
        **{label: int(counts.get(label, 0)) for label in LABELS},
    }


def all_jobs(size: Size) -> list[Job]:
    """A job for every recipe and every few seeds."""
    seeds = JUDGED_SEEDS if size == "full" else DEVELOPMENT_SEEDS
    return [
        stack_job(recipe, seeds[start : start + TOGETHER])
        for start in range(0, len(seeds), TOGETHER)
        for recipe in RECIPES
    ]


def run(jobs: Sequence[Job], out: Path, size: Size, *, workers: int | None = None) -> bool:
    """Run what is not done yet and write the files; tell whether all is done."""
    found = results_of(jobs, out, workers=workers)
    if found is None:
        return False
    for name in ("results", "labels"):
        table = pd.concat([each[name] for each in found], ignore_index=True)
        ordered = table.sort_values(["recipe", "seed"], kind="stable")
        text = ordered.to_csv(index=False, float_format="%.6g")
        write_atomically(out / f"{name}.csv", text.encode())
    standalone.write_verdict(out, size, answer_rules, RECIPES)
    return True


def rules_checksum() -> str:
    """Of the rules that these results are judged by."""
    return standalone.checksum_of(answer_rules)


def main() -> None:
    """Run as the command line says."""
    standalone.main("answer_over_seeds", __doc__, DEFAULT_OUT, all_jobs, run)


if __name__ == "__main__":
    main()
