"""Train a grid of recipes with many seeds, and measure every head of every model.

A job is a stack: some seeds of one recipe, trained together, which is many times faster than one by
one. Results are kept per job, so a sweep that was stopped goes on, and one that asks for more
computes only the stacks that are new.
"""

import itertools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from count01_lens.common.outputs import Outputs
from count01_lens.common.storage import json_bytes
from count01_lens.common.text import plural
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_int, check_seeds
from count01_lens.common.versions import library_versions
from count01_lens.jobs.job import Job
from count01_lens.jobs.outcome import Outcome, Status
from count01_lens.jobs.results import ResultStore
from count01_lens.jobs.running import run_jobs
from count01_lens.models.build import hooked_transformer, language_of
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.training.evolution import head_evolution
from count01_lens.training.recipe import TrainConfig, training_cost
from count01_lens.training.stack import raw_of
from count01_lens.training.training_run import train

_VERSION = "1"
_MOST_MODELS, _MOST_HEADS = 50, 400  # of a stack: beyond, a larger one is no faster per model
_MOST_TRAININGS = 1_000_000  # and jobs, which are made before the first is run


@dataclass(frozen=True, eq=False)
class ModelSweep:
    """Models of many recipes and seeds.

    Attributes:
        configs: the recipes; `config` in the tables is the place in this list.
        models: a row per model: its recipe and seed, the loss and accuracies after training.
        heads: a row per head of every model: recipe, seed, and the columns of `head_metrics`.
        outcome: which jobs were done, now or before, and which failed.
        store: the jobs' results.
        task: what the models were trained on; None for Count01.
    """

    configs: tuple[TrainConfig, ...]
    models: pd.DataFrame
    heads: pd.DataFrame
    outcome: Outcome
    store: ResultStore
    task: CountingTask | None = None

    def model(self, config: int, seed: int) -> HookedTransformer:
        """Build one of the trained models."""
        for job in [*self.outcome.found, *self.outcome.new]:
            about = job.configuration
            if about["recipe"] == self.configs[config].to_dict() and seed in about["seeds"]:
                rows = torch.from_numpy(self.store.load(job)["parameters"])
                shape, language = self.configs[config].model, language_of(self.task)
                raw = raw_of(rows, about["seeds"].index(seed), shape, language)
                return hooked_transformer(raw, shape, self.task)
        raise ValueError(f"expected a recipe and a seed of the sweep, got {config} and {seed}")

    @property
    def summary(self) -> pd.DataFrame:
        """A row per recipe: what varies, how many models, their accuracies, successful heads."""
        varied = varied_columns(self.configs) or ["n_heads", "d_embed"]
        table = self.models.groupby(varied, dropna=False).agg(
            models=("seed", "size"),
            accuracy=("test_accuracy", "mean"),
            lowest=("test_accuracy", "min"),
            eos=("test_eos_accuracy", "mean"),
        )
        good = self.heads.assign(is_good=self.heads["category"] == "successful")
        table["successful heads"] = good.groupby(varied, dropna=False)["is_good"].mean()
        return table

    def __repr__(self) -> str:
        done = f"{plural(len(self.models), 'model')}, {plural(len(self.heads), 'head')}"
        if self.models.empty:
            return done
        return f"{done}\n{self.summary.to_string(float_format='{:.4f}'.format, na_rep='–')}"


def model_grid(
    base: TrainConfig | None = None, **axes: Sequence[Any]
) -> tuple[list[TrainConfig], list[str]]:
    """Make a recipe for every combination of values of fields of `TrainConfig` and `ModelConfig`.

    Args:
        base: the values of all other fields. Its d_head is kept only where neither d_embed nor
            n_heads varies; otherwise it is d_embed // n_heads, unless given.
        axes: by the name of a field, such as n_heads=[1, 2, 4].

    Returns:
        recipes, in the order of the axes; and why each impossible combination is left out.

    Example:
        >>> configs, impossible = cl.model_grid(cl.TrainConfig(), n_heads=[1, 4], d_embed=[2, 8])
        >>> len(configs), len(impossible)  # four heads need at least four dimensions
        (3, 1)
    """
    base = TrainConfig() if base is None else base
    for name, values in axes.items():
        if name not in base.fields():
            raise ValueError(f"expected fields of {sorted(base.fields())}, got {name!r}")
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ValueError(f"{name}: expected a list of values, got {values!r}")
    if (many := math.prod(map(len, axes.values()))) > _MOST_TRAININGS:
        raise ValueError(
            f"expected at most {_MOST_TRAININGS:,} combinations, got {many:,}; give fewer values"
        )
    configs, impossible = [], []
    for chosen in itertools.product(*axes.values()):
        given = dict(zip(axes, chosen, strict=True))
        shape = {name: value for name, value in given.items() if hasattr(base.model, name)}
        recipe = base.changed(**{name: given[name] for name in given if name not in shape})
        try:
            configs.append(recipe.changed(**shape))
        except ValueError as error:
            impossible.append(f"{given}: {error}")
    return configs, impossible


def sweep_models(
    configs: Sequence[TrainConfig],
    seeds: Iterable[int],
    directory: str | os.PathLike[str],
    *,
    task: CountingTask | None = None,
    per_job: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    time_limit: float | None = None,
    progress: bool | Callable[[Status], None] | None = None,
    force: bool = False,
) -> ModelSweep:
    """Train every recipe with every seed, and measure every head.

    Args:
        configs: recipes, such as those of `model_grid`.
        seeds: each recipe is trained with all of them.
        directory: where `heads.csv`, `models.csv` and `sweep.json` are written; `jobs` there keeps
            results.
        task: what to train on; Count01 by default, with the data of each recipe's `data_seed`.
        per_job: models in a stack; up to 50 by default, fewer if they have many heads. With another
            number, no old results are found.
        workers: the number of processes; see `run_jobs`, also for what follows.
        executor: where to run instead, such as that of `dask_executor`.
        time_limit: seconds per job.
        progress: whether to show it.
        force: whether to overwrite files of these names that no sweep wrote.
    """
    recipes = tuple(dict.fromkeys(configs))
    if not recipes or not all(isinstance(config, TrainConfig) for config in recipes):
        raise TypeError(f"configs: expected a list of TrainConfig, got {configs!r}")
    numbers = list(dict.fromkeys(check_seeds(seeds)))
    if not numbers:
        raise ValueError("seeds: expected at least one, got none")
    if (many := len(recipes) * len(numbers)) > _MOST_TRAININGS:
        raise ValueError(
            f"expected at most {_MOST_TRAININGS:,} models, got {many:,}: {len(recipes):,} recipes "
            f"with {len(numbers):,} seeds each; give fewer"
        )
    if per_job is not None:
        check_int("per_job", per_job, at_least=1)
    language_of(task)  # raises if it is none
    task = None if isinstance(task, Count01) else task
    out = Path(directory)
    outputs = Outputs(out, "sweep-models", force=force)
    outputs.check("heads.csv", "models.csv", "sweep.json")
    jobs = {
        job: number
        for number, config in enumerate(recipes)
        for job in _jobs_of(config, numbers, per_job, task)
    }
    store = ResultStore(out / "jobs")
    with outputs.opened():
        outcome = run_jobs(
            jobs,
            store,
            workers=workers,
            executor=executor,
            time_limit=time_limit,
            progress=progress,
        )
        done = {job.key for job in [*outcome.found, *outcome.new]}
        values = [(store.load(job), number) for job, number in jobs.items() if job.key in done]
        tables = {}
        for name in ("models", "heads"):
            found = [_described(value[name], number, recipes[number]) for value, number in values]
            tables[name] = pd.concat(found, ignore_index=True) if found else pd.DataFrame()
        about = {
            "configs": [config.to_dict() for config in recipes],
            "seeds": numbers,
            "versions": library_versions(),
            **_named(task),
            "models": len(tables["models"]),
            "jobs_without_result": len(jobs) - len(done),
        }
        files = {
            f"{name}.csv": table.to_csv(index=False).encode() for name, table in tables.items()
        }
        outputs.write(files | {"sweep.json": json_bytes(about)})
    return ModelSweep(recipes, tables["models"], tables["heads"], outcome, store, task)


def train_stack(
    recipe: dict[str, Any], seeds: list[int], task: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Train a stack and measure its heads: the job of a sweep."""
    config = TrainConfig.from_dict(recipe)
    result = train(
        config,
        seeds=seeds,
        task=None if task is None else CountingTask.from_dict(task),
        snapshot_epochs=[config.epochs],
        progress=False,
    )
    last = result.history.groupby("model").last().reset_index(drop=True)
    heads = head_evolution(result, [config.epochs])
    return {
        "models": last.drop(columns=["epoch", "step"]),
        "heads": heads.drop(columns=["model", "epoch"]),
        "parameters": result.snapshots[max(result.snapshots)].numpy(),
    }


def varied_columns(configs: Iterable[TrainConfig]) -> list[str]:
    """Name the fields in which recipes differ."""
    first, *others = (config.fields() for config in configs)
    return [name for name in first if any(other[name] != first[name] for other in others)]


def _named(task: CountingTask | None) -> dict[str, Any]:
    """A task among plain values; Count01 goes without saying."""
    return {} if task is None else {"task": task.to_dict()}


def _jobs_of(
    config: TrainConfig, seeds: Sequence[int], per_job: int | None, task: CountingTask | None
) -> list[Job]:
    size = per_job or min(_MOST_MODELS, max(1, _MOST_HEADS // config.model.n_heads))
    jobs = []
    for start in range(0, len(seeds), size):
        together = list(seeds[start : start + size])
        configuration = {"recipe": config.to_dict(), "seeds": together, **_named(task)}
        cost = training_cost(config, len(together))
        jobs.append(Job("stack", train_stack, configuration, _VERSION, cost))
    return jobs


def _described(table: pd.DataFrame, number: int, config: TrainConfig) -> pd.DataFrame:
    """Put the recipe in front of its results."""
    described = pd.DataFrame({"config": number, **config.fields()}, index=table.index)
    return pd.concat([described, table], axis=1)
