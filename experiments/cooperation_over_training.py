"""Do heads turn from cooperation to redundancy while they are trained? Both recipes, ten seeds.

    python -m experiments.cooperation_over_training --size quick   development seeds, no verdict
    python -m experiments.cooperation_over_training --size full    ten judged seeds, 20 models

Trains models of the paper's size by the paper's recipe and by the accurate one, and measures what
heads are worth together at twenty moments of their training: all 65,535 groups by l-acc, ROC AUC
and '[EOS]' l-acc; by s-acc the mean interaction, which needs no more than 34 groups. The rules were
fixed before the judged seeds were run (change_rules.py). OUT gets results.csv (a row per recipe,
seed, moment and metric) and verdict.json; `python -m experiments.change_page OUT` makes the page in
the docs of them. Stopped at any moment, the same command goes on where it was.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import count01_lens as cl
from count01_lens.common.storage import write_atomically
from count01_lens.jobs.job import Job
from count01_lens.training.recipe import steps_per_epoch, training_cost
from experiments import change_rules, standalone
from experiments.change_rules import DEVELOPMENT_SEEDS, JUDGED_SEEDS
from experiments.headline import sum_of_rates, travelled
from experiments.setup import Size
from experiments.standalone import results_of

VERSION = "1"
DEFAULT_OUT = Path("runs/cooperation_over_training")
RECIPES = {"paper": cl.TrainConfig.paper(), "accurate": cl.TrainConfig()}
# After these steps of the first epoch, and these epochs: dense where most changes.
MOMENTS = {
    "paper": ((0, 7, 14), (1, 2, 3, 4, 5, 7, 10, 13, 16, 20, 25, 30, 40, 50, 60, 75, 100)),
    "accurate": ((0, 5, 10, 20, 35, 55, 80), (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 80, 100)),
}
TOGETHER = 2  # seeds in one job
SECONDS_TO_MEASURE = 2.5  # a model of 16 heads at one moment


def stack_job(recipe: str, seeds: Sequence[int]) -> Job:
    """The job that trains and follows some seeds of a recipe."""
    config, (early, epochs) = RECIPES[recipe], MOMENTS[recipe]
    configuration = {
        "recipe": recipe,
        "config": config.to_dict(),
        "seeds": list(seeds),
        "early": list(early),
        "epochs": list(epochs),
    }
    cost = training_cost(config, len(seeds))
    cost += len(seeds) * len([*early, *epochs]) * SECONDS_TO_MEASURE
    return Job(f"{recipe}, seeds {seeds[0]}-{seeds[-1]}", follow, configuration, VERSION, cost)


def follow(
    recipe: str, config: dict[str, Any], seeds: list[int], early: list[int], epochs: list[int]
) -> dict[str, Any]:
    """Train a stack and measure every model at every moment; a row per metric."""
    of_recipe = cl.TrainConfig.from_dict(config)
    splits = cl.make_splits(of_recipe.data_seed)
    per_epoch = steps_per_epoch(of_recipe, splits)
    result = cl.train(
        of_recipe,
        seeds=seeds,
        snapshot_epochs=epochs,
        first_epoch_steps=early,
        progress=False,
    )
    tables = []
    for step in [*early, *(epoch * per_epoch for epoch in epochs)]:
        found = cl.group_evolution(result, steps=[step], progress=False)
        moved = travelled(result.snapshots[0], result.snapshots[step], of_recipe.model)
        models = found.heads.groupby("model", sort=False)[["accuracy", "eos_accuracy"]].first()
        models["step"], models["sum_of_rates"] = step, sum_of_rates(of_recipe, step, per_epoch)
        for name, distances in moved.items():
            models[name] = distances.tolist()
        tables.append(found.table.merge(models, left_on="model", right_index=True))
        print(f"{recipe}, seeds {seeds}: step {step} measured", file=sys.stderr)
    table = pd.concat(tables, ignore_index=True).drop(columns="model")
    return {"results": pd.DataFrame({"recipe": recipe, **table})}


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
    table = pd.concat([each["results"] for each in found], ignore_index=True)
    write_results(table, out, size)
    return True


def write_results(table: pd.DataFrame, out: Path, size: Size) -> None:
    """Write the table, and the verdict on the table as written."""
    ordered = table.sort_values(["recipe", "seed", "step"], kind="stable")
    write_atomically(out / "results.csv", ordered.to_csv(index=False, float_format="%.6g").encode())
    standalone.write_verdict(out, size, change_rules, RECIPES)


def rules_checksum() -> str:
    """Of the rules that these results are judged by."""
    return standalone.checksum_of(change_rules)


def main() -> None:
    """Run as the command line says."""
    standalone.main("cooperation_over_training", __doc__, DEFAULT_OUT, all_jobs, run)


if __name__ == "__main__":
    main()
