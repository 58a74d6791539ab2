"""Does a task with two sub-tasks make heads cooperate? All counting tasks side by side.

    python -m experiments.tasks_and_cooperation --size quick    development seeds, no verdict
    python -m experiments.tasks_and_cooperation --size full     ten judged seeds, 120 models

Trains models of one size on every counting task that ships, and on a control for the one with two
comparisons, by the paper's recipe and by the accurate one; measures all groups of heads of every
model; and judges the interactions by rules that were fixed before (cooperation_rules.py). OUT gets
results.csv (task, recipe, seed, metric, value), verdict.json and a figure; `python -m
experiments.cooperation_page OUT` makes the page in the docs of them. Stopped at any moment, the
same command goes on where it was.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

import count01_lens as cl
from count01_lens.common.storage import json_bytes, write_atomically
from count01_lens.common.types import Array
from count01_lens.common.versions import library_versions
from count01_lens.heads.games import shapley_interactions, subset_sizes
from count01_lens.heads.groups import AllGroups, all_groups
from count01_lens.heads.head_data import head_data
from count01_lens.heads.thresholds import SUCCESSFUL
from count01_lens.jobs.job import Job
from count01_lens.tasks.task_names import COUNTING_TASKS
from count01_lens.training.recipe import training_cost
from count01_lens.views.figures import as_bytes
from experiments import cooperation_rules, standalone
from experiments.cooperation_bounds import AGAINST, INTERACTION
from experiments.cooperation_figure import figure
from experiments.cooperation_rules import (
    DEVELOPMENT_SEEDS,
    JUDGED,
    JUDGED_SEEDS,
    ONE,
    TWO,
    judge,
    share_of,
)
from experiments.setup import Size
from experiments.standalone import results_of

VERSION = "1"
DEFAULT_OUT = Path("runs/tasks_and_cooperation")
# Half of the paper's heads, so that all 255 groups of 120 models can be measured; each head has two
# dimensions, as there. One size for all tasks: interactions depend on the number of heads.
SHAPE = {"n_heads": 8, "d_embed": 16}
NEARLY = 0.99  # of the whole model
COLUMNS = ["task", "recipe", "seed", "metric", "value"]


def recipes(size: Size) -> dict[str, cl.TrainConfig]:
    """Both recipes, with models of the one size; a quick run has a tenth of the epochs."""
    found = {"paper": cl.TrainConfig.paper(), "accurate": cl.TrainConfig()}
    shares = {"quick": 10, "full": 1}
    return {
        name: config.changed(**SHAPE, epochs=config.epochs // shares[size])
        for name, config in found.items()
    }


def tasks() -> dict[str, cl.CountingTask]:
    """The tasks that ship, and the control for two comparisons, beside it."""
    shipped = {name: cl.counting_task(name) for name in COUNTING_TASKS}
    two = shipped.pop(TWO)
    return {**shipped, ONE: one_comparison(two), TWO: two}


def one_comparison(two: cl.CountingTask) -> cl.CountingTask:
    """One comparison of the same symbols in the same sentences, right about as often.

    Whether the 1s and 3s together are more than the 0s and 2s by some margin: the one whose share
    of '4' in the training sentences comes closest.
    """
    train = two.splits.train
    lead = train.counts @ train.counts.new_tensor([-1, 1, -1, 1])
    share = train.labels.double().mean()
    margins = range(int(lead.max()))
    margin = min(margins, key=lambda m: float(((lead > m).double().mean() - share).abs()))
    described = {**two.to_dict(), "rule": [f"n1 + n3 > n0 + n2 + {margin}"], "name": ONE}
    return cl.CountingTask.from_dict(described)


def stack_job(
    name: str, task: cl.CountingTask, recipe: str, config: cl.TrainConfig, seeds: Sequence[int]
) -> Job:
    """The job that trains and measures all seeds of a task and a recipe."""
    configuration = {
        "name": name,
        "task": task.to_dict(),
        "recipe": recipe,
        "config": config.to_dict(),
        "seeds": list(seeds),
    }
    cost = training_cost(config, len(seeds)) * len(task.splits.train) / 7000
    several = max(1, len(task.language.answers) - 1)
    return Job(
        f"{name}, {recipe}", measure_stack, configuration, VERSION, cost + 4 * several * len(seeds)
    )


def measure_stack(
    name: str, task: dict[str, Any], recipe: str, config: dict[str, Any], seeds: list[int]
) -> dict[str, Any]:
    """Train a stack and measure every model; a row per seed and metric."""
    asked = _task_of(task)
    recipe_config = cl.TrainConfig.from_dict(config)
    last = [recipe_config.epochs]
    result = cl.train(recipe_config, seeds=seeds, task=asked, snapshot_epochs=last, progress=False)
    rows = []
    for model, seed in zip(result.models, seeds, strict=True):
        found = measures(all_groups(head_data(model, asked)))
        rows += [(name, recipe, seed, metric, value) for metric, value in found.items()]
        print(f"{name}, {recipe}, seed {seed}: measured", file=sys.stderr)
    return {"results": pd.DataFrame(rows, columns=COLUMNS)}


def _task_of(described: Mapping[str, Any]) -> cl.CountingTask:
    """Read a task; Count01 is its name alone."""
    if set(described) == {"name"}:
        return cl.counting_task(described["name"])
    return cl.CountingTask.from_dict(described)


def measures(groups: AllGroups) -> dict[str, float]:
    """All numbers of a model, by name; those of l-acc and s-acc bear the metric's name in front.

    interaction is the mean over pairs, interaction_of_gain its share of what the whole model has
    more than no heads. heads_for_99 is the size of the smallest group with 99 % of the whole
    model's value, heads_for_99_of_gain that with 99 % of what it has more than no heads.
    """
    s_acc = groups.values("s_acc")
    alone = s_acc[1 << np.arange(_n_heads(s_acc))]
    majority, accuracy = groups.empty["s_acc"], float(groups.values("l_acc")[-1])
    nearly = s_acc[0] + 0.9 * (s_acc[-1] - s_acc[0])
    found = {
        "accuracy": accuracy,
        "gap_closed": (accuracy - majority) / (1 - majority),
        "successful_heads": float((alone >= SUCCESSFUL).mean()),
        "heads_with_90_of_gain": float((alone >= nearly).mean()),
    }
    for metric in JUDGED:
        for name, value in _of_metric(groups.values(metric)).items():
            found[f"{metric}_{name}"] = value
    return found


def _of_metric(values: Float[Array, " mask"]) -> dict[str, float]:
    matrix = shapley_interactions(values)
    pairs = matrix[np.triu_indices(len(matrix), 1)]
    none, whole = float(values[0]), float(values[-1])
    sizes = subset_sizes(np.arange(len(values)))
    return {
        "none": none,
        "whole": whole,
        "interaction": float(pairs.mean()),
        "interaction_of_gain": share_of(float(pairs.mean()), whole - none),
        "cooperating_pairs": float((pairs >= INTERACTION).mean()),
        "redundant_pairs": float((pairs <= -INTERACTION).mean()),
        "competing_heads": float((np.diag(matrix) <= AGAINST).sum()),
        "heads_for_99": float(sizes[values >= NEARLY * whole].min()),
        "heads_for_99_of_gain": float(sizes[values >= none + NEARLY * (whole - none)].min()),
    }


def _n_heads(values: Float[Array, " mask"]) -> int:
    return len(values).bit_length() - 1


def run(jobs: Sequence[Job], out: Path, size: Size, *, workers: int | None = None) -> bool:
    """Run what is not done yet and write the files; tell whether all is done."""
    found = results_of(jobs, out, workers=workers)
    if found is None:
        return False
    table = pd.concat([each["results"] for each in found], ignore_index=True)
    write_results(table, out, jobs, size)
    return True


def write_results(table: pd.DataFrame, out: Path, jobs: Sequence[Job], size: Size) -> None:
    """Write the table, the verdict on the table as written, and the figure."""
    write_atomically(out / "results.csv", table.to_csv(index=False, float_format="%.6g").encode())
    written = pd.read_csv(out / "results.csv")
    judged = size == "full"
    verdict = {
        "size": size,
        "verdict": judge(written) if judged else None,
        "seeds": sorted(int(seed) for seed in written["seed"].unique()),
        "tasks": {job.configuration["name"]: job.configuration["task"] for job in jobs},
        "recipes": {job.configuration["recipe"]: job.configuration["config"] for job in jobs},
        "rules_sha256": rules_checksum(),
        "versions": library_versions(),
    }
    write_atomically(out / "verdict.json", json_bytes(verdict))
    drawn = figure(written)
    for kind in ("svg", "png"):
        write_atomically(out / f"interactions.{kind}", as_bytes(drawn, kind))


def rules_checksum() -> str:
    """Of the rules that these results are judged by."""
    return standalone.checksum_of(cooperation_rules)


def all_jobs(size: Size) -> list[Job]:
    """A stack for every task and recipe."""
    seeds = JUDGED_SEEDS if size == "full" else DEVELOPMENT_SEEDS
    return [
        stack_job(name, task, recipe, config, seeds)
        for recipe, config in recipes(size).items()
        for name, task in tasks().items()
    ]


def main() -> None:
    """Run as the command line says."""
    standalone.main("tasks_and_cooperation", __doc__, DEFAULT_OUT, all_jobs, run)


if __name__ == "__main__":
    main()
