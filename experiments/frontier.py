"""Do the paper's headline and its picture of heads hold together? The frontier between them.

The headline says that biases of heads balance the answer and the '[EOS]' task: without that task
there should be fewer. F3 to F5 say what heads look like. Each recipe of the map (P1) is trained
once more without the '[EOS]' loss, and both are held side by side.
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

import count01_lens as cl
from count01_lens.common.text import signed
from count01_lens.jobs.job import Job
from count01_lens.views.figures import NEUTRAL, NotebookFigure
from experiments import map_of_claims
from experiments.claims import HEADLINE
from experiments.headline import CLAIM_OF, map_table, rank_correlation
from experiments.map_of_claims import DESIGNS, follow_job, grid, named
from experiments.recipe_design import recipe_id, stacked
from experiments.runs import recipe_of
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "P3", "The headline against the picture of heads"
CONTRAST = False  # the other recipe is among them
PAPER = "Both: biases balance the two tasks (E2), and heads are as in F3 to F5"
PICTURE = tuple(name for name in HEADLINE if name[:2] in ("F3", "F4", "F5"))
ENOUGH = CLAIM_OF["E2.fewer_biased"].reproduced[0]


def pairs(setup: Setup) -> dict[cl.TrainConfig, cl.TrainConfig]:
    """Recipes of the map, each with the same one without the '[EOS]' loss.

    Of the grid, all but the smallest batches, which take longest.
    """
    batches = DESIGNS[setup.size].batches
    cells = [config for (batch, _), config in grid(setup).items() if batch != min(batches)]
    chosen = dict.fromkeys([*cells, named(setup)["paper"], named(setup)["accurate"]])
    return {config: config.changed(eos_weight=0.0) for config in chosen}


def jobs(setup: Setup) -> list[Job]:
    """The trainings of the map, and those without the '[EOS]' loss, in as few stacks as can be."""
    design, without = DESIGNS[setup.size], stacked(pairs(setup).values())
    return [*map_of_claims.jobs(setup), *(follow_job(stack, design, (1.0,)) for stack in without)]


def measure(load: Load, setup: Setup) -> Measured:
    """Count the claims on heads that hold, and the biases that go without the '[EOS]' loss."""
    models = pd.concat([load(job)["models"] for job in jobs(setup)], ignore_index=True)
    table = pd.DataFrame([_row(models, *pair) for pair in pairs(setup).items()])
    names = {recipe_id(config): name for name, config in named(setup).items()}
    table.insert(1, "name", table["recipe"].map(names).fillna(""))
    solving = table[table["solves"]]
    numbers = numbers_of(solving)
    return Measured(
        numbers=numbers,
        shows=sentence(numbers),
        tables={"frontier": table.round(5)},
        figures={"frontier": _figure(table)},
        seeds=DESIGNS[setup.size].seeds,
        recipe=recipe_of([*pairs(setup), *pairs(setup).values()]),
    )


def _row(models: pd.DataFrame, config: cl.TrainConfig, without: cl.TrainConfig) -> dict[str, Any]:
    both = [
        models[(models["recipe"] == recipe_id(each)) & (models["epoch"] == each.epochs)]
        for each in (config, without)
    ]
    with_task, alone = (rows.drop_duplicates("seed").set_index("seed") for rows in both)
    (of_moment,) = map_table(with_task.reset_index()).to_dict("records")
    fewer = spread(with_task["F1.biased"] - alone["F1.biased"])
    return {
        "recipe": recipe_id(config),
        "batch_size": config.batch_size,
        "learning_rate": config.learning_rate,
        "travelled": of_moment["travelled"],
        "accuracy": of_moment["accuracy"],
        "solves": of_moment["solves"],
        "picture_held": sum(of_moment[f"{name}.verdict"] == "reproduced" for name in PICTURE),
        "fewer_biased": fewer["mean"],
        "low": fewer["low"],
        "high": fewer["high"],
    }


def numbers_of(solving: pd.DataFrame) -> dict[str, Any]:
    """Where the two meet: the most of one where the other holds."""
    enough = solving[solving["fewer_biased"] >= ENOUGH]
    best = solving[solving["picture_held"] == solving["picture_held"].max()]
    rank = rank_correlation(solving["picture_held"], solving["fewer_biased"])
    return {
        "claims_on_heads": len(PICTURE),
        "recipes_that_solve": len(solving),
        "recipes_with_headline": len(enough),
        "most_held_with_headline": None if enough.empty else int(enough["picture_held"].max()),
        "most_held": None if best.empty else int(best["picture_held"].iloc[0]),
        "most_fewer_biased_there": None if best.empty else float(best["fewer_biased"].max()),
        "most_fewer_biased": None if solving.empty else float(solving["fewer_biased"].max()),
        "rank_correlation": None if np.isnan(rank) else rank,
    }


def sentence(numbers: Mapping[str, Any]) -> str:
    """Say what came out, whichever way."""
    if numbers["most_held"] is None:
        return "No recipe solves the task, so nothing can be said."
    told = (
        f"Of {numbers['recipes_that_solve']} recipes that solve the task, those that hold most of "
        f"the {numbers['claims_on_heads']} headline claims on heads hold {numbers['most_held']}; "
        f"there the share of biased heads falls by at most "
        f"{signed(100 * numbers['most_fewer_biased_there'], '.0f')} points without the '[EOS]' "
        f"loss (the headline asks for {100 * ENOUGH:.0f}). "
    )
    if numbers["most_held_with_headline"] is None:
        told += "The headline holds in none of them"
    else:
        told += (
            f"The headline holds in {numbers['recipes_with_headline']}, which hold at most "
            f"{numbers['most_held_with_headline']} claims on heads"
        )
    if numbers["rank_correlation"] is not None:
        told += f"; the rank correlation of the two is {signed(numbers['rank_correlation'], '.2f')}"
    return told + "."


def _figure(table: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(7.4, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.axhspan(ENOUGH, 1, color="#74c7ab", alpha=0.25, lw=0)
    style: dict[str, Any] = {"transform": axes.transAxes, "color": "#1d6b52", "va": "top"}
    axes.text(0.02, 0.97, "the headline holds (E2)", **style)
    axes.axhline(0, color=NEUTRAL, lw=0.8)
    rates = np.log10(table["learning_rate"])
    # Recipes with as many claims stand beside each other, not on top.
    beside = (
        table.groupby("picture_held").cumcount()
        - (table.groupby("picture_held")["recipe"].transform("count") - 1) / 2
    )
    x = table["picture_held"] + 0.09 * beside
    around = table[["low", "high"]].sub(table["fewer_biased"], axis=0).abs().fillna(0).T
    axes.errorbar(x, table["fewer_biased"], around, fmt="none", ecolor=NEUTRAL, lw=0.8, zorder=1)
    for solves, marker in ((True, "o"), (False, "x")):
        some = table["solves"] == solves
        axes.scatter(
            x[some], table["fewer_biased"][some], c=rates[some], marker=marker, s=48,
            cmap="viridis", vmin=rates.min(), vmax=rates.max(), zorder=2,
        )  # fmt: skip
    axes.scatter([], [], marker="o", color=NEUTRAL, label="solves the task")
    axes.scatter([], [], marker="x", color=NEUTRAL, label="does not")
    for place, value, name in zip(x, table["fewer_biased"], table["name"], strict=True):
        if name:
            text = axes.annotate(name, (place, value), (0, 9), textcoords="offset points")
            text.set(fontweight="bold", ha="center")
    axes.set(xlim=(-0.6, len(PICTURE) + 0.6), xticks=range(len(PICTURE) + 1))
    axes.set_ylim(min(-0.2, table["low"].min()) - 0.02, max(0.35, table["high"].max()) + 0.02)
    axes.set_xlabel(f"of {len(PICTURE)} headline claims on heads (F3 to F5), how many hold")
    axes.set_ylabel("biased heads, with '[EOS]' loss\nminus without")
    axes.set_title("each recipe trained with and without the '[EOS]' loss")
    axes.legend(frameon=False, loc="upper right")
    scale = Normalize(rates.min(), rates.max())
    mapped = ScalarMappable(scale, "viridis")
    figure.colorbar(mapped, ax=axes, label="log10 of the learning rate")
    alt = "How many claims on heads hold, against how many biases go without the [EOS] loss"
    caption = (
        "A point per recipe, with the 95 % interval over seeds; both hold at the right above the "
        "edge of the green band. 'paper' and 'accurate' are the two recipes of this reproduction."
    )
    return Shown(figure, alt, caption)


if __name__ == "__main__":
    main(sys.modules[__name__])
