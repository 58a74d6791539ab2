"""Jobs that experiments share: train models, and measure their heads while they are at hand.

What is heavy happens in these functions, in processes of their own; experiments only put their
results together.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

import count01_lens as cl
from count01_lens.attention.sweeps import RATIOS
from count01_lens.heads.games import shapley_interactions
from count01_lens.heads.groups import all_groups
from count01_lens.heads.head_data import head_data
from count01_lens.heads.metrics import METRICS
from count01_lens.jobs.job import Job
from count01_lens.models.build import hooked_transformer
from count01_lens.training.recipe import steps_per_epoch, training_cost
from count01_lens.training.stack import raw_of
from experiments.readings import under_each_reading
from experiments.setup import SEEDS, Setup

VERSION = "2"
EARLY_STEPS = [0, 1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100]


def main_jobs(setup: Setup) -> list[Job]:
    """The paper's model, 16 heads and d = 32: ten seeds, four of them in every detail."""
    recipe, last = setup.recipe, setup.recipe.epochs
    if setup.size == "quick":
        epochs = sorted({*range(0, min(last, 100) + 1, 10), last})
        return [run_job([recipe], SEEDS[:2], epochs, closely=SEEDS[:1], read=6)]
    every = sorted({*range(min(last, 100) + 1), last})
    return [
        run_job([recipe], SEEDS[:2], every, closely=SEEDS[:2], read=16),
        run_job([recipe], SEEDS[2:4], every, closely=SEEDS[2:4], read=16),
        run_job([recipe], SEEDS[4:], sorted({0, 10, 50, last})),
    ]


def run_job(
    recipes: Sequence[cl.TrainConfig],
    seeds: Sequence[int] | range,
    head_epochs: Sequence[int] | range,
    *,
    closely: Sequence[int] = (),
    read: int = 0,
) -> Job:
    """A stack of models, trained and measured.

    Args:
        recipes: trained together, each with every seed.
        seeds: of the models.
        head_epochs: after which epochs every head is measured.
        closely: seeds whose groups of heads, sweeps of attention and readings are measured, too.
        read: how many of their heads are probed under each reading of appendix C.
    """
    configuration: dict[str, Any] = {
        "recipes": [recipe.to_dict() for recipe in recipes],
        "seeds": list(seeds),
        "head_epochs": list(head_epochs),
        "closely": list(closely),
        "read": read,
    }
    models = len(recipes) * len(list(seeds))
    cost = training_cost(recipes[0], models) + models * len(configuration["head_epochs"]) / 10
    return Job("train", train_and_measure, configuration, VERSION, cost + 50 * len(closely))


def recipe_of(recipes: Sequence[cl.TrainConfig]) -> dict[str, Any]:
    """Write recipes as one, with a list of values wherever they differ."""

    def merged(values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            return {name: merged([value[name] for value in values]) for name in values[0]}
        distinct = sorted(set(values))
        return distinct[0] if len(distinct) == 1 else distinct

    return dict(merged([recipe.to_dict() for recipe in recipes]))


def train_and_measure(
    recipes: list[dict[str, Any]],
    seeds: list[int],
    head_epochs: list[int],
    closely: list[int],
    read: int,
) -> dict[str, Any]:
    """Train a stack; measure heads after some epochs, pairs at the end, and some models closely."""
    configs = [cl.TrainConfig.from_dict(recipe) for recipe in recipes]
    splits = cl.make_splits(configs[0].data_seed)
    first_epoch = steps_per_epoch(configs[0], splits)
    result = cl.train(
        configs,
        seeds=seeds,
        snapshot_epochs=head_epochs,
        splits=splits,
        first_epoch_steps=[step for step in EARLY_STEPS if step <= first_epoch],
        progress=False,
    )
    pairs, looked_at = [], {}
    for number, (model, seed) in enumerate(zip(result.models, result.seeds, strict=True)):
        table = cl.analyze_heads(model, splits).pairs_table()
        pairs.append(table.assign(model=number, seed=seed))
        if seed in closely:
            looked_at[str(seed)] = _close_look(model, splits, read)
    return {
        "history": result.history,
        "heads": cl.head_evolution(result, head_epochs, splits),
        "pairs": pd.concat(pairs, ignore_index=True),
        "closely": looked_at,
        "rows": result.snapshots[max(result.snapshots)].numpy(),
    }


def _close_look(model: Any, splits: cl.Splits, read: int) -> dict[str, Any]:
    """All groups of heads, sweeps of both attention ratios, and readings of some heads."""
    data = head_data(model, splits)
    found = all_groups(data, progress=False)
    return {
        "values": found.table[list(METRICS)].to_numpy(),
        "interactions": {m: shapley_interactions(found.values(m)) for m in METRICS},
        "worst_gradient": found.worst_gradient,
        "sweeps": {
            ratio: dataclasses.asdict(cl.sweep_attention(model, ratio, task=splits))
            for ratio in RATIOS
        },
        "readings": under_each_reading(data, list(range(read))),
    }


def close_looks(jobs: Sequence[Job], load: Any) -> dict[int, dict[str, Any]]:
    """What was measured closely, by seed."""
    return {int(seed): look for job in jobs for seed, look in load(job)["closely"].items()}


def models_of(job: Job, value: dict[str, Any]) -> dict[int, Any]:
    """Build the trained models of a job, by seed; of its first recipe."""
    config = cl.TrainConfig.from_dict(job.configuration["recipes"][0]).model
    rows = torch.from_numpy(value["rows"])
    seeds = job.configuration["seeds"]
    return {
        seed: hooked_transformer(raw_of(rows, number, config), config)
        for number, seed in enumerate(seeds)
    }


def together(jobs: Sequence[Job], load: Any, table: str) -> pd.DataFrame:
    """Put one table of several jobs together."""
    tables: list[pd.DataFrame] = [load(job)[table] for job in jobs]
    return pd.concat(tables, ignore_index=True)


def last_heads(jobs: Sequence[Job], load: Any) -> pd.DataFrame:
    """Heads of all models of some jobs at the end of training."""
    heads = together(jobs, load, "heads")
    last: pd.DataFrame = heads[heads["epoch"] == heads["epoch"].max()].reset_index(drop=True)
    return last


def share(condition: Any) -> float:
    """Share of rows for which something holds; NaN of no rows."""
    values = np.asarray(condition)
    return float(values.mean()) if len(values) else float("nan")


def by_seed(table: pd.DataFrame, measure: Any) -> list[float]:
    """Compute a number for each seed by itself."""
    return [float(measure(rows)) for _, rows in table.groupby("seed")]
