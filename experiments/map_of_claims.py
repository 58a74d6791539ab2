"""When the paper's claims hold: learning rate, batch size, and how long models are trained."""

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any

import pandas as pd

import count01_lens as cl
from count01_lens.common.text import signed
from count01_lens.jobs.job import Job
from count01_lens.training.recipe import training_cost
from experiments.claims import HEADLINE
from experiments.headline import (
    map_table,
    order_by_claim,
    order_table,
    rank_correlation,
    train_and_follow,
)
from experiments.map_figures import (
    LABELS,
    ORDER_LABELS,
    grid_figure,
    order_figure,
    time_figure,
    value_figure,
)
from experiments.recipe_design import recipe_id
from experiments.runs import recipe_of, share
from experiments.setup import Setup, contrast_setup
from experiments.suite import Load, Measured, main, spread

ROW, TITLE = "P1", "When the paper's claims hold"
CONTRAST = False  # the other recipe is on the map
PAPER = "Nothing: the paper does not say how its models were trained"
VERSION = "1"
SECONDS_TO_MEASURE = 1.0  # a model of 16 heads at one moment


@dataclasses.dataclass(frozen=True)
class Design:
    """Which models are trained, and when they are measured.

    Attributes:
        rates, batches: of the grid; all else is as in the paper's recipe.
        seeds: of each recipe.
        epochs: at most so many, but for training on.
        moments: shares of a training after which it is measured.
        longer: by how much models are trained on, without decay.
    """

    rates: tuple[float, ...]
    batches: tuple[int, ...]
    seeds: tuple[int, ...]
    epochs: int
    moments: tuple[float, ...]
    longer: int


DESIGNS = {
    "quick": Design((1e-3, 1e-2), (256, 1024), (8000, 8001), 10, (0.3, 1), 2),
    "full": Design(
        (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), (32, 64, 256, 1024), tuple(range(8000, 8004)), 100,
        (0.05, 0.1, 0.2, 0.5, 1), 5,
    ),
}  # fmt: skip


def grid(setup: Setup) -> dict[tuple[int, float], cl.TrainConfig]:
    """The recipe of each batch size and learning rate."""
    design, recipe = DESIGNS[setup.size], setup.recipe
    epochs = min(design.epochs, recipe.epochs)
    return {
        (batch, rate): dataclasses.replace(
            recipe, batch_size=batch, learning_rate=rate, epochs=epochs
        )
        for batch in design.batches
        for rate in design.rates
    }


def named(setup: Setup) -> dict[str, cl.TrainConfig]:
    """The paper's recipe, the same trained on, and the accurate one."""
    design = DESIGNS[setup.size]
    paper, accurate = (
        recipe if setup.size == "full" else dataclasses.replace(recipe, epochs=design.epochs)
        for recipe in (setup.recipe, contrast_setup(setup.size).recipe)
    )
    longer = dataclasses.replace(paper, decay="none", epochs=design.longer * paper.epochs)
    return {"paper": paper, "trained on": longer, "accurate": accurate}


def jobs(setup: Setup) -> list[Job]:
    """A stack of all learning rates for each batch size, and the named recipes one by one."""
    cells, design = grid(setup), DESIGNS[setup.size]
    on_grid = set(cells.values())
    stacks = [[cells[batch, rate] for rate in design.rates] for batch in design.batches]
    # The paper's recipe may be one of the grid.
    alone = {name: [config] for name, config in named(setup).items() if config not in on_grid}
    on_the_way = [share / design.longer for share in design.moments]
    shares = {"trained on": [*on_the_way, 2 / design.longer, 1.0]}
    return [follow_job(stack, design, design.moments) for stack in stacks] + [
        follow_job(stack, design, shares.get(name, design.moments)) for name, stack in alone.items()
    ]


def follow_job(stack: Sequence[cl.TrainConfig], design: Design, moments: Sequence[float]) -> Job:
    """Train a stack, and measure it after some shares of its training."""
    epochs = sorted({max(1, round(share * stack[0].epochs)) for share in moments})
    models = len(stack) * len(design.seeds)
    configuration = {
        "recipes": [config.to_dict() for config in stack],
        "seeds": list(design.seeds),
        "epochs": epochs,
    }
    cost = training_cost(stack[0], models) + models * len(epochs) * SECONDS_TO_MEASURE
    return Job("map", train_and_follow, configuration, VERSION, cost)


def measure(load: Load, setup: Setup) -> Measured:
    """Judge the headline claims in every recipe and moment, and look for what orders them."""
    models = pd.concat([load(job)["models"] for job in jobs(setup)], ignore_index=True)
    recipes = recipe_table(setup)
    moments = recipes.merge(map_table(models), on="recipe")
    orders, by_claim = order_table(models, moments), order_by_claim(moments)
    numbers = _numbers(models, moments, orders)
    for order, rows in by_claim.groupby("order", sort=False):
        numbers[f"{order}_r2_of_values"] = _known(float(rows["r2"].mean()))
    configs = [*grid(setup).values(), *named(setup).values()]
    return Measured(
        numbers=numbers,
        shows=_shows(numbers),
        tables={
            "models": recipes.merge(models, on="recipe").round(5),
            "map": moments.round(5),
            "orders": orders.round(4),
            "orders_by_claim": by_claim.round(4),
        },
        figures={
            "grid": grid_figure(moments, named(setup)),
            "over_training": time_figure(moments),
            "values": value_figure(moments),
            "orders": order_figure(moments, orders),
        },
        seeds=DESIGNS[setup.size].seeds,
        recipe=recipe_of(configs),
    )


def recipe_table(setup: Setup) -> pd.DataFrame:
    """What is varied of each recipe, whether it is on the grid, and its name if it has one."""
    cells, names = set(grid(setup).values()), {v: k for k, v in named(setup).items()}
    rows = [
        {
            "recipe": recipe_id(config),
            "name": names.get(config, ""),
            "on_grid": config in cells,
            "batch_size": config.batch_size,
            "learning_rate": config.learning_rate,
            "decay": config.decay,
        }
        for config in dict.fromkeys([*grid(setup).values(), *names])
    ]
    return pd.DataFrame(rows)


def _numbers(models: pd.DataFrame, moments: pd.DataFrame, orders: pd.DataFrame) -> dict[str, Any]:
    at_end = moments[moments["at_end"]]
    ends = at_end[at_end["solves"]].sort_values("travelled")
    by_name = at_end.set_index("name")["held"]
    last = models.merge(at_end[["recipe", "epoch"]], on=["recipe", "epoch"])
    alone = [map_table(rows).query("solves") for _, rows in last.groupby("seed")]
    without = ends["held"] - (ends["F2.sixteen_heads.verdict"] == "reproduced")
    numbers = {
        "falls": _known(_falls(ends)),
        "falls_by_seed": spread(map(_falls, alone)),
        "falls_without_accuracy": _known(rank_correlation(ends["travelled"], without)),
        "held_by_paper_recipe": int(by_name["paper"]),
        "held_by_training_on": int(by_name["trained on"]),
        "held_by_accurate_recipe": int(by_name["accurate"]),
        "claims": len(HEADLINE),
        "trainings": len(at_end),
        "trainings_that_solve": len(ends),
        "models": len(models),
    }
    half = len(ends) // 2
    for name in HEADLINE:
        holds = (ends[f"{name}.verdict"] == "reproduced").to_numpy()
        numbers[f"near_{name}"] = _known(share(holds[:half]))
        numbers[f"far_{name}"] = _known(share(holds[len(holds) - half :]))
    for row in orders.to_dict("records"):
        order = str(row.pop("order")).replace(" ", "_")
        numbers |= {f"{order}_{name}": _known(value) for name, value in row.items()}
    return numbers


def _falls(ends: pd.DataFrame) -> float:
    """Rank correlation of the number of claims that hold and the distance travelled."""
    return rank_correlation(ends["travelled"], ends["held"])


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _shows(numbers: dict[str, Any]) -> str:
    """Say what came out, whichever way."""
    told = (
        f"Of {numbers['claims']} headline claims {numbers['held_by_paper_recipe']} hold with the "
        f"paper's recipe, {numbers['held_by_training_on']} if it is trained on without decay, "
        f"{numbers['held_by_accurate_recipe']} with the accurate one. "
    )
    if numbers["falls"] is None:
        return told + "Too few trainings solve the task to tell how this depends on distance."
    told += (
        f"Over {numbers['trainings_that_solve']} of {numbers['trainings']} trainings, which solve "
        "the task, the number that hold and the distance travelled by the weights have a rank "
        f"correlation of {signed(numbers['falls'], '.2f')}. "
    )
    best, r2 = _best(numbers, "r2_of_other_recipes")
    if best is not None:
        told += (
            f"Of single numbers the {ORDER_LABELS[best]} tells most about how many hold in a "
            f"recipe not seen (R² {signed(r2, '.2f')}; recipe and epoch: "
            f"{signed(numbers['recipe_and_epoch_r2'], '.2f')}). "
        )
    best, r2 = _best(numbers, "r2_of_values")
    if best is not None:
        told += (
            f"The numbers behind the claims follow the {ORDER_LABELS[best]} best (mean R² of "
            f"monotone curves {signed(r2, '.2f')}). "
        )
    return told + _gone(numbers)


def _best(numbers: dict[str, Any], name: str) -> tuple[str | None, float]:
    known = {order: numbers[f"{order}_{name}"] for order in ORDER_LABELS}
    known = {order: value for order, value in known.items() if value is not None}
    return max(known.items(), key=lambda item: item[1]) if known else (None, math.nan)


def _gone(numbers: dict[str, Any]) -> str:
    """Name the claims that hold less often far from the start than near it, and the opposite."""
    ends = {name: (numbers[f"near_{name}"], numbers[f"far_{name}"]) for name in HEADLINE}
    less, more = (
        ", ".join(
            f"{LABELS[name]} ({100 * near:.0f} to {100 * far:.0f} %)"
            for name, (near, far) in ends.items()
            if sign * (far - near) > 0
        )
        for sign in (-1, 1)
    )
    return (
        "From the half of these trainings that stayed nearer to the half that went farther, "
        f"claims that hold less often: {less or 'none'}; more often: {more or 'none'}."
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
