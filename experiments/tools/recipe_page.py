"""Write what the searches for recipes found into docs/recipe.md: two tables and a figure.

    python -m experiments.tools.recipe_page

Reads docs/recipes: the tables of `experiments.find_recipe` (ranking.csv, runs.csv, search.json) and
of `experiments.find_minimal_recipe` (minimal_ranking.csv, minimal_runs.csv). Nothing is typed.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from count01_lens.common.storage import write_atomically
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure, as_bytes
from experiments.claims import T1_ROWS
from experiments.find_minimal_recipe import HEADS
from experiments.generated_part import write_parts
from experiments.paper_targets import TARGETS
from experiments.recipe_design import recipe_id
from experiments.setup import MINIMAL, contrast_setup, paper_setup

DOCS = Path(__file__).parents[2] / "docs"
FOUND, PAGE = DOCS / "recipes", DOCS / "recipe.md"
SHOWN = 12


def parts(found: Path = FOUND) -> dict[str, str]:
    """Write the tables of the page, by the name of their part."""
    ranking = pd.read_csv(found / "ranking.csv", dtype={"recipe": str})
    minimal = pd.read_csv(found / "minimal_ranking.csv", dtype={"recipe": str})
    search = json.loads((found / "search.json").read_text())
    runs = pd.read_csv(found / "runs.csv", dtype={"recipe": str})
    models = len(runs[["recipe", "seed"]].drop_duplicates())
    seeds = search["seeds"]
    said = (
        f"{len(ranking)} recipes, {models:,} models (seeds {seeds[0]} to {seeds[-1]}); "
        f"{int(ranking['solves'].sum())} of the recipes solve the task."
    )
    return {
        "search": said,
        "closest": _closest(ranking),
        "targets": _targets(),
        "minimal": _minimal(minimal),
    }


def _closest(ranking: pd.DataFrame) -> str:
    """The closest recipes, and ours for accurate models, beside the paper."""
    paper, accurate = (recipe_id(make("full").recipe) for make in (paper_setup, contrast_setup))
    shown = ranking.head(SHOWN)
    if accurate not in set(shown["recipe"]):
        shown = pd.concat([shown, ranking[ranking["recipe"] == accurate]])
    head = ["recipe", "seeds", "off", *(target.short for target in TARGETS)]
    lines = [head, ["---"] * len(head)]
    lines.append(["**paper**", "", "", *(_short(target.value) for target in TARGETS)])
    for row in shown.to_dict("records"):
        mark = {paper: " ← `TrainConfig.paper()`", accurate: " ← `TrainConfig()`"}
        words = str(row["words"]) + mark.get(str(row["recipe"]), "")
        values = (_short(row[target.name]) for target in TARGETS)
        lines.append([words, str(row["seeds"]), f"{row['distance']:.2f}", *values])
    return _markdown(lines)


def _targets() -> str:
    lines = [["", "target", "the paper", "tolerance", "because"], ["---"] * 5]
    for target in TARGETS:
        name = target.name.replace("_", " ")
        lines.append([target.short, name, target.printed, f"{target.tolerance:.3g}", target.why])
    return _markdown(lines)


def _minimal(ranking: pd.DataFrame) -> str:
    names = [f"d{d_embed}_{kind}" for d_embed in HEADS for kind in ("successful", "perfect")]
    printed = {(d, heads): shares for d, _, heads, *shares in T1_ROWS}
    head = ["recipe", "off", *(name.replace("_", " ").replace("d", "d = ", 1) for name in names)]
    paper = [f"{share:.3g}" for d_embed in HEADS for share in printed[d_embed, 1]]
    lines = [head, ["---"] * len(head), ["**paper**", "", *paper]]
    for row in ranking.to_dict("records"):
        mark = " ← the one taken" if row["recipe"] == recipe_id(MINIMAL) else ""
        values = (f"{row[name]:.2f}" for name in names)
        lines.append([f"{row['words']}{mark}", f"{row['distance']:.2f}", *values])
    return _markdown(lines)


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _short(value: float) -> str:
    if pd.isna(value):
        return "–"
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2f}"


def figure(ranking: pd.DataFrame) -> NotebookFigure:
    """Draw the distance from the paper of every recipe against how far its weights travelled."""
    drawn = NotebookFigure(figsize=(7.4, 4.4), layout="constrained")
    axes = drawn.add_subplot()
    kinds = {"adamw": (FOUR, "o"), "adam": (END, "^"), "sgd": (FIVE, "s")}
    for optimiser, (colour, marker) in kinds.items():
        for solves in (True, False):
            some = ranking[(ranking["optimiser"] == optimiser) & (ranking["solves"] == solves)]
            face = colour if solves else "none"
            axes.scatter(some["travelled"], some["distance"], 34, fc=face, ec=colour, marker=marker)
        axes.scatter([], [], 34, color=colour, marker=marker, label=optimiser)
    axes.scatter([], [], 34, fc="none", ec=NEUTRAL, label="does not solve the task")
    marked = {"paper": paper_setup("full").recipe, "accurate": contrast_setup("full").recipe}
    for name, config in marked.items():
        for row in ranking[ranking["recipe"] == recipe_id(config)].to_dict("records"):
            place: Any = (row["travelled"], row["distance"])
            arrow: dict[str, Any] = {"arrowstyle": "-", "color": "black", "lw": 0.8}
            axes.annotate(
                name, place, (14, -22), textcoords="offset points", fontweight="bold",
                arrowprops=arrow,
            )  # fmt: skip
    axes.set_ylim(bottom=0)  # the paper itself would be there
    axes.set(xscale="log", xlabel="distance travelled by the weights, over their initial length")
    axes.set_ylabel("distance from the paper, in tolerances")
    axes.set_title(f"{len(ranking)} recipes")
    axes.legend(frameon=False)
    return drawn


def main() -> None:
    """Update the page and its figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    ranking = pd.read_csv(FOUND / "ranking.csv", dtype={"recipe": str})
    write_atomically(FOUND / "distances.svg", as_bytes(figure(ranking), "svg"))
    write_parts(PAGE, parts())
    print(f"updated {PAGE.name}")


if __name__ == "__main__":
    main()
