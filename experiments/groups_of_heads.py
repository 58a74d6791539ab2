"""The three metrics over all 65,535 groups of heads, by group size."""

import sys

import numpy as np
import pandas as pd

from count01_lens.heads.games import subset_sizes
from count01_lens.heads.metrics import METRICS
from count01_lens.jobs.job import Job
from count01_lens.views.figures import END, FIVE, FOUR, NotebookFigure
from experiments.runs import close_looks, main_jobs
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F4", "All groups of heads"
CONTRAST = True
PAPER = (
    "Groups of 3-4 heads already separate almost perfectly, ROC AUC follows closely, most heads "
    "are needed for strong l-acc, all 16 for perfect l-acc"
)
QUANTILES = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
STYLES = {"s_acc": (FOUR, "o"), "roc_auc": (END, "s"), "l_acc": (FIVE, "^")}


def jobs(setup: Setup) -> list[Job]:
    """The main runs whose groups were all measured."""
    return [job for job in main_jobs(setup) if job.configuration["closely"]]


def groups_by_seed(load: Load, setup: Setup) -> dict[int, pd.DataFrame]:
    """Every group of every measured model: mask, size, metrics."""
    tables = {}
    for seed, look in close_looks(jobs(setup), load).items():
        table = pd.DataFrame(look["values"], columns=list(METRICS))
        masks = np.arange(1, len(table) + 1)
        tables[seed] = table.assign(mask=masks, size=subset_sizes(masks))
    return tables


def measure(load: Load, setup: Setup) -> Measured:
    """Take medians by group size, for each model."""
    tables = groups_by_seed(load, setup)
    rows, quantiles = [], []
    for seed, table in tables.items():
        median = table.groupby("size")[list(STYLES)].median()
        strong = median.index[median["l_acc"] >= 0.90]
        rows.append(
            {
                "seed": seed,
                "groups": len(table),
                "four_heads_separate": median["s_acc"][4],
                "roc_follows": median["s_acc"][4] - median["roc_auc"][4],
                "most_heads_needed": float(strong.min()) if len(strong) else 17.0,
                "all_for_perfect": (table[table["size"] == 15]["l_acc"] == 1).mean(),
                "perfect_l_acc_below_16": (table[table["size"] < 16]["l_acc"] == 1).mean(),
            }
        )
        long = table.melt(id_vars=["size"], value_vars=list(STYLES), var_name="metric")
        found = long.groupby(["size", "metric"])["value"].quantile(QUANTILES)
        quantiles.append(found.unstack().reset_index().assign(seed=seed))
    table = pd.DataFrame(rows)
    by_size = pd.concat(quantiles, ignore_index=True)
    by_size.columns = [str(column) for column in by_size.columns]
    names = [c for c in table.columns if c not in ("seed", "groups")]
    return Measured(
        numbers={name: spread(table[name]) for name in names} | {"groups": int(table["groups"][0])},
        shows=f"Of {table['groups'][0]:,} groups per model, those of four heads have a median "
        f"s-acc of {table['four_heads_separate'].mean():.4f}; a median l-acc of 0.90 takes "
        f"{table['most_heads_needed'].mean():.0f} heads; "
        f"{100 * table['all_for_perfect'].mean():.0f} % of groups of 15 have perfect l-acc.",
        tables={"groups_by_model": table, "groups_by_size": by_size},
        figures={"groups": _figure(by_size, len(tables))},
        seeds=list(tables),
        recipe=setup.recipe.to_dict(),
    )


def _figure(by_size: pd.DataFrame, n_models: int) -> Shown:
    figure = NotebookFigure(figsize=(8, 4.2), layout="constrained")
    axes = figure.add_subplot()
    mean = by_size.groupby(["metric", "size"]).mean(numeric_only=True)
    for offset, (metric, (colour, marker)) in zip((-0.22, 0, 0.22), STYLES.items(), strict=True):
        rows = mean.loc[metric]
        x = rows.index.to_numpy() + offset
        axes.vlines(x, rows["0.05"], rows["0.95"], color=colour, lw=1)
        axes.vlines(x, rows["0.25"], rows["0.75"], color=colour, lw=4, alpha=0.5)
        axes.plot(x, rows["0.5"], marker, color=colour, ms=4, label=metric)
    axes.set(xlabel="heads in the group", ylabel="metric on the test split", xticks=range(1, 17))
    axes.set_title(f"all groups of {n_models} model(s): median, quartiles, 5 % and 95 %")
    axes.legend(frameon=False, loc="lower right")
    axes.grid(axis="y", alpha=0.3)
    alt = "Median and quantiles of three metrics by the number of heads in a group"
    return Shown(figure, alt, "Quantiles over all groups of a size, averaged over models.")


if __name__ == "__main__":
    main(sys.modules[__name__])
