"""Test accuracy by number of heads and embedding size."""

import sys
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.training.recipe import training_cost
from count01_lens.views.figures import NotebookFigure
from experiments.runs import VERSION, recipe_of, share
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F2", "Accuracy by number of heads and embedding size"
CONTRAST = False  # hundreds of trainings in small batches
PAPER = (
    "More heads and larger d make learning more robust; 16 heads with d = 32 almost always reaches "
    "near-perfect test accuracy (10 seeds)"
)
GRID = {
    "quick": ([1, 4, 16], [4, 32], range(7200, 7203)),
    "full": ([1, 2, 4, 8, 16, 32], [1, 4, 16, 32, 64], range(7200, 7210)),
}


def jobs(setup: Setup) -> list[Job]:
    """A job per cell of the grid; a head needs at least one dimension."""
    heads, sizes, seeds = GRID[setup.size]
    found = []
    for n_heads, d_embed in product(heads, sizes):
        if d_embed >= n_heads:
            recipe = _recipe(setup, n_heads, d_embed)
            configuration = {"recipe": recipe.to_dict(), "seeds": list(seeds)}
            cost = training_cost(recipe, len(seeds))
            found.append(Job("size", accuracies, configuration, VERSION, cost))
    return found


def accuracies(recipe: dict[str, Any], seeds: list[int]) -> dict[str, Any]:
    """Train a stack of one size; return where it ends."""
    config = cl.TrainConfig.from_dict(recipe)
    result = cl.train(config, seeds=seeds, snapshot_epochs=[], progress=False)
    return {"last": result.history.groupby("model").last().reset_index()}


def _recipe(setup: Setup, n_heads: int, d_embed: int) -> cl.TrainConfig:
    """With d = 1 a layer norm would make all tokens alike, so it is left out there."""
    layer_norm = setup.recipe.model.layer_norm and d_embed > 1
    return setup.trained(n_heads=n_heads, d_embed=d_embed, layer_norm=layer_norm)


def measure(load: Load, setup: Setup) -> Measured:
    """Put the cells together."""
    tables = []
    for job in jobs(setup):
        shape = job.configuration["recipe"]["model"]
        cell = {name: shape[name] for name in ("n_heads", "d_embed")}
        tables.append(load(job)["last"].assign(**cell))
    runs = pd.concat(tables, ignore_index=True)
    cells = runs.groupby(["n_heads", "d_embed"])["test_accuracy"]
    table = cells.agg(["mean", "std", "min", "max", "count"]).reset_index()
    best = runs[(runs["n_heads"] == 16) & (runs["d_embed"] == 32)]["test_accuracy"]
    return Measured(
        numbers={
            "sixteen_heads": share(best >= 0.99),
            "sixteen_heads_mean": spread(best),
            "more_heads": spread(_trends(table, "n_heads", "d_embed")),
            "larger_d": spread(_trends(table, "d_embed", "n_heads")),
            "trainings": len(runs),
        },
        shows=f"{int((best >= 0.99).sum())} of {len(best)} models with 16 heads and d = 32 reach "
        f"0.99 (lowest {best.min():.4f}); over {len(runs)} trainings, accuracy ranges from "
        f"{table['mean'].min():.3f} to {table['mean'].max():.3f} by size.",
        tables={"sizes": table, "runs": runs},
        figures={"sizes": _figure(table)},
        seeds=sorted(runs["seed"].unique().tolist()),
        recipe=recipe_of(
            [cl.TrainConfig.from_dict(job.configuration["recipe"]) for job in jobs(setup)]
        ),
    )


def _trends(table: pd.DataFrame, along: str, fixed: str) -> list[float]:
    """Rank correlations of accuracy along one axis, for each value of the other."""
    rows = [
        rows for _, rows in table.groupby(fixed) if rows["mean"].nunique() > 1 and len(rows) > 1
    ]
    return [float(spearmanr(rows[along], rows["mean"]).statistic) for rows in rows]


def _figure(table: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(9, 3.8), layout="constrained")
    for place, (column, title) in enumerate((("mean", "mean"), ("std", "standard deviation"))):
        axes = figure.add_subplot(1, 2, place + 1)
        grid = table.pivot(index="n_heads", columns="d_embed", values=column)
        limits = {"vmin": 0.5, "vmax": 1} if column == "mean" else {"vmin": 0}
        image = axes.imshow(grid, cmap="viridis" if column == "mean" else "magma_r", **limits)
        for (row, place_in_row), value in np.ndenumerate(grid.to_numpy()):
            if not np.isnan(value):
                dark = value < 0.75 if column == "mean" else value > np.nanmax(grid) / 2
                ink = "white" if dark else "black"
                text = axes.text(place_in_row, row, f"{value:.3f}", fontsize=8, color=ink)
                text.set(ha="center", va="center")
        axes.set_xticks(range(len(grid.columns)), grid.columns)
        axes.set_yticks(range(len(grid.index)), grid.index)
        axes.set(xlabel="embedding size d", ylabel="heads", title=f"test accuracy: {title}")
        figure.colorbar(image, ax=axes)
    alt = "Heat maps of mean and standard deviation of test accuracy by heads and embedding size"
    return Shown(
        figure, alt, f"{int(table['count'].max())} seeds per cell; no cell where d < heads."
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
