"""Search for the training recipe under which the paper's numbers come out.

    python -m experiments.find_recipe --size quick      few seeds, a tenth of the epochs
    python -m experiments.find_recipe --size full       three to six seeds, --minutes 60 by default

The paper does not say how its models were trained. This trains recipes of a fixed design
(recipe_design.py), measures each against numbers that the paper prints (paper_targets.py), and
ranks them by their distance; those that do not solve the task come last. First recipes of the
design are tried with three seeds; then, for a quarter of the time, recipes around the three
closest; then the ten closest of all get three more seeds, and come first. OUT gets runs.csv
(recipe, seed, metric, value) and ranking.csv (recipe, distance, the value of each target, the
recipe's fields). Stopped at any moment, the same command goes on where it was.

The seeds that it uses are not those that a verdict on the winner may use: choosing the best of many
recipes also chooses luck.
"""

import argparse
import dataclasses
import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import count01_lens as cl
from count01_lens.common.storage import AlreadyInUseError, json_bytes, write_atomically
from count01_lens.common.validation import check_number
from count01_lens.common.versions import library_versions
from count01_lens.jobs.job import Job
from count01_lens.jobs.outcome import Outcome
from count01_lens.jobs.results import ResultStore
from count01_lens.jobs.running import run_jobs
from count01_lens.training.evolution import split_stack
from count01_lens.training.recipe import remaining_rate
from count01_lens.training.trainer import TrainingDivergedError
from experiments.paper_targets import (
    TARGETS,
    distance,
    metrics_of_run,
    nothing_found,
    run_of,
    solves,
    values_of_recipe,
)
from experiments.recipe_design import (
    NAMED,
    SCREENING_SEEDS,
    SEARCH_SEEDS,
    Stack,
    designed_stacks,
    in_words,
    neighbours,
    recipe_id,
    stack_cost,
    stacked,
    within_budget,
)
from experiments.setup import Size

VERSION = "1"
DEFAULT_OUT = Path("runs/recipes")
MINUTES: dict[Size, float] = {"quick": 3, "full": 60}
CHECKPOINTS, PAPERS_EPOCHS = 10, 100
# Shares of the time; recipes that the second round looks around, and that the third repeats.
FIRST_ROUND, SECOND_ROUND, CENTRES, REPEATED = 0.65, 0.25, 3, 10
OF_TRAINING = ("steps", "sum_of_rates", "travelled", "eos_accuracy", "ties_accuracy")
SHOWN = 10


Plan = list[tuple[Stack, Sequence[int]]]  # which recipes, with which seeds


def search(
    plan: Plan,
    out: Path,
    *,
    workers: int | None = None,
    progress: bool | None = None,
) -> tuple[pd.DataFrame, Outcome]:
    """Train and measure recipes, write both tables, and return the ranking."""
    jobs = [stack_job(stack, seeds) for stack, seeds in plan]
    store = ResultStore(out / "jobs")
    outcome = run_jobs(jobs, store, workers=workers, progress=progress)
    done = {job.key for job in [*outcome.found, *outcome.new]}
    recipes = _recipes(plan)
    tables = [store.load(job)["metrics"] for job in jobs if job.key in done]
    if not tables:
        return pd.DataFrame(), outcome
    runs = pd.concat(tables, ignore_index=True)
    ranking = rank(runs, recipes)
    write_atomically(out / "runs.csv", runs.to_csv(index=False, float_format="%.6g").encode())
    write_atomically(out / "ranking.csv", ranking.to_csv(index=False).encode())
    about = {
        "seeds": sorted({seed for _, seeds in plan for seed in seeds}),
        "recipes": len(ranking),
        "jobs_without_result": len(jobs) - len(done),
        "targets": [
            {
                field.name: getattr(target, field.name)
                for field in dataclasses.fields(target)
                if field.name not in ("measure", "over_seeds")
            }
            for target in TARGETS
        ],
        "versions": library_versions(),
    }
    write_atomically(out / "search.json", json_bytes(about))
    return ranking, outcome


def stack_job(stack: Stack, seeds: Sequence[int]) -> Job:
    """The job that trains and measures a stack."""
    configuration = {"recipes": [config.to_dict() for config in stack], "seeds": list(seeds)}
    cost = stack_cost(stack, len(seeds))
    return Job("recipes", measure_stack, configuration, VERSION, cost)


def measure_stack(recipes: list[dict[str, Any]], seeds: list[int]) -> dict[str, Any]:
    """Train recipes together and measure every model; a row per recipe, seed and metric.

    One that diverges takes the others of its stack along, so these are then trained one by one.
    """
    configs = [cl.TrainConfig.from_dict(values) for values in recipes]
    try:
        rows = [*_trained_and_measured(configs, seeds)]
    except TrainingDivergedError:
        rows = [row for config in configs for row in _alone(config, seeds)]
    return {"metrics": pd.DataFrame(rows, columns=["recipe", "seed", "metric", "value"])}


Row = tuple[str, int, str, float]


def _alone(config: cl.TrainConfig, seeds: Sequence[int]) -> list[Row]:
    try:
        return [*_trained_and_measured([config], seeds)]
    except TrainingDivergedError:
        found = nothing_found(CHECKPOINTS) | _of_training(config, math.nan)
        return [(recipe_id(config), seed, *item) for seed in seeds for item in found.items()]


def _trained_and_measured(configs: Sequence[cl.TrainConfig], seeds: Sequence[int]) -> Iterator[Row]:
    epochs = checkpoint_epochs(configs[0].epochs)
    splits = cl.make_splits(configs[0].data_seed)
    kept = sorted({0, *epochs, configs[0].epochs})
    result = cl.train(configs, seeds=seeds, splits=splits, snapshot_epochs=kept, progress=False)
    evolution = cl.head_evolution(result, epochs, splits)
    first, *_, last = (result.snapshots[step] for step in sorted(result.snapshots))
    travelled = (torch.linalg.vector_norm(last - first, dim=1) / first.norm(dim=1)).tolist()
    forms = split_stack(result.count_form())
    for model, (config, seed, form) in enumerate(
        zip(result.configs, result.seeds, forms, strict=True)
    ):
        heads = evolution[evolution["model"] == model]
        tables = [table for _, table in heads.groupby("epoch", sort=True)]
        found = metrics_of_run(run_of(form, splits, tables))
        found |= _of_training(config, travelled[model])
        yield from ((recipe_id(config), seed, *item) for item in found.items())


def checkpoint_epochs(epochs: int) -> list[int]:
    """The paper's epochs 10, 20 … 100; tenths of the run, if it is shorter."""
    last = min(epochs, PAPERS_EPOCHS)
    return sorted({max(1, round(last * k / CHECKPOINTS)) for k in range(1, CHECKPOINTS + 1)})


def _of_training(config: cl.TrainConfig, travelled: float) -> dict[str, float]:
    """How hard a recipe trains: steps, their sizes, and how far the weights went from their start.

    The distance is relative to the length of all initial parameters together.
    """
    train_size = len(cl.make_splits(config.data_seed).train)
    steps = config.epochs * -(-train_size // config.batch_size)
    rates = [remaining_rate(config.decay, step / steps) for step in range(steps)]
    total = config.learning_rate * float(np.sum(rates))
    return {"steps": float(steps), "sum_of_rates": total, "travelled": travelled}


def rank(runs: pd.DataFrame, recipes: dict[str, cl.TrainConfig]) -> pd.DataFrame:
    """Put the seeds of each recipe together, and the closest recipe first."""
    rows = []
    for recipe, of_recipe in runs.groupby("recipe", sort=True):
        metrics = of_recipe.pivot(index="seed", columns="metric", values="value")
        values = values_of_recipe(metrics)
        config = recipes[str(recipe)]
        rows.append(
            {
                "recipe": recipe,
                "words": in_words(config),
                "distance": distance(values),
                "solves": solves(values),
                "seeds": len(metrics),
                **values,
                **{name: float(metrics[name].mean()) for name in OF_TRAINING},
                **config.fields(),
            }
        )
    columns, ascending = ["solves", "seeds", "distance", "recipe"], [False, False, True, True]
    return pd.DataFrame(rows).sort_values(columns, ascending=ascending, ignore_index=True)


def summary(ranking: pd.DataFrame) -> str:
    """Write the best recipes as text of at most 80 columns."""
    names = [target.name for target in TARGETS]
    head = "".join(f"{target.short:>5}" for target in TARGETS)
    paper = "".join(_cell(target.value) for target in TARGETS)
    lines = [
        f"{len(ranking)} recipes of up to {ranking['seeds'].max()} seeds; the closest:",
        f"{'recipe':<10}{'off':>5}{head}",
        f"{'paper':<15}{paper}",
    ]
    best = ranking.head(SHOWN)
    for row in best.to_dict("records"):
        cells = "".join(_cell(row[name]) for name in names)
        lines.append(f"{row['recipe']:<10}{_cell(row['distance'])}{cells}")
    lines.append("off: mean distance in tolerances, each at most 3")
    lines += [f"{row['recipe']}  {row['words']}"[:80] for row in best.to_dict("records")]
    return "\n".join(lines)


def _cell(value: float) -> str:
    if math.isnan(value):
        return f"{'-':>5}"
    text = f"{value:.0f}" if abs(value) >= 10 else f"{value:.2f}".replace("0.", ".", 1)
    return f"{text:>5}"


def first_round(size: Size, minutes: float, workers: int | None) -> Plan:
    """Take named recipes, then those of the design, as many as fit into their share of the time."""
    seeds = SCREENING_SEEDS if size == "full" else SCREENING_SEEDS[:2]
    stacks: Iterable[Stack] = itertools.chain(stacked(NAMED), designed_stacks())
    if size == "quick":
        stacks = (tuple(map(_shortened, stack)) for stack in stacks)
    chosen = within_budget(stacks, len(seeds), FIRST_ROUND * _seconds(minutes, workers))
    if not chosen:
        raise ValueError(f"minutes: expected enough for one stack, got {minutes:g}; give more")
    return [(stack, seeds) for stack in chosen]


def second_round(ranking: pd.DataFrame, plan: Plan, minutes: float, workers: int | None) -> Plan:
    """Look around the closest recipes that solve the task; none twice, cheap ones first.

    There, unlike in the first round, most changes are worth trying, and few are expensive.
    """
    known, seeds = _recipes(plan), plan[0][1]
    around = itertools.chain.from_iterable(
        neighbours(known[name]) for name in _closest(ranking, CENTRES)
    )
    new = dict.fromkeys(config for config in around if recipe_id(config) not in known)
    stacks = sorted(stacked(new), key=lambda stack: stack_cost(stack, len(seeds)))
    budget = SECOND_ROUND * _seconds(minutes, workers)
    return [(stack, seeds) for stack in within_budget(stacks, len(seeds), budget)]


def third_round(ranking: pd.DataFrame, plan: Plan) -> Plan:
    """Give the closest recipes more seeds: the best of many was lucky, too."""
    known = _recipes(plan)
    more = [seed for seed in SEARCH_SEEDS if seed not in plan[0][1]]
    stacks = stacked(known[name] for name in _closest(ranking, REPEATED))
    return [(stack, more) for stack in stacks]


def _recipes(plan: Plan) -> dict[str, cl.TrainConfig]:
    return {recipe_id(config): config for stack, _ in plan for config in stack}


def _closest(ranking: pd.DataFrame, n: int) -> list[str]:
    return [str(name) for name in ranking.loc[ranking["solves"], "recipe"].head(n)]


def _seconds(minutes: float, workers: int | None) -> float:
    """Of all cores together."""
    return 60 * minutes * max(1, os.cpu_count() or 1 if workers is None else workers)


def _shortened(config: cl.TrainConfig) -> cl.TrainConfig:
    return dataclasses.replace(config, epochs=max(CHECKPOINTS, config.epochs // 10))


def main() -> None:
    """Search as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.find_recipe",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=("quick", "full"), default="quick")
    parser.add_argument(
        "--minutes", type=float, help="about how long it may take [default: quick 3, full 60]"
    )
    parser.add_argument("--out", type=Path, help=f"results [default: {DEFAULT_OUT}/SIZE]")
    parser.add_argument("--workers", type=int, help="processes; 0: in this one [default: cores]")
    arguments = parser.parse_args()
    out = arguments.out or DEFAULT_OUT / arguments.size
    try:
        minutes = MINUTES[arguments.size] if arguments.minutes is None else arguments.minutes
        check_number("minutes", minutes, above=0)
        plan = first_round(arguments.size, minutes, arguments.workers)
        ranking, outcome = _go_on(plan, out, arguments.workers)
        if _complete(ranking, outcome):
            plan += second_round(ranking, plan, minutes, arguments.workers)
            ranking, outcome = _go_on(plan, out, arguments.workers)
        if _complete(ranking, outcome):
            plan += third_round(ranking, plan)
            ranking, outcome = _go_on(plan, out, arguments.workers)
    except (ValueError, AlreadyInUseError) as error:
        parser.exit(2, f"{error}\n")
    except OSError as error:  # such as a full disk
        parser.exit(2, f"{error}; the same command goes on where it was\n")
    except KeyboardInterrupt:
        parser.exit(130, "\nstopped; the same command goes on where it was\n")
    print(outcome, file=sys.stderr)
    if not ranking.empty:
        print(summary(ranking))
        print(f"written to {out}: ranking.csv, runs.csv, search.json")
    raise SystemExit(1 if outcome.failed or outcome.left else 0)


def _go_on(plan: Plan, out: Path, workers: int | None) -> tuple[pd.DataFrame, Outcome]:
    recipes = len(_recipes(plan))
    print(f"{recipes} recipes in {len(plan)} stacks", file=sys.stderr)
    return search(plan, out, workers=workers, progress=True)


def _complete(ranking: pd.DataFrame, outcome: Outcome) -> bool:
    """Whether there is something to look around, and nothing missing."""
    return not (outcome.failed or outcome.left) and bool(ranking["solves"].any())


if __name__ == "__main__":
    main()
