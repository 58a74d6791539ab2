"""What each shipped counting task reaches, into docs/how_to/counting_tasks.md.

    python -m experiments.tools.counting_tasks            about ten minutes on two cores

Trains three seeds of every task with both recipes, and runs the models on the test split and on
every sentence up to the largest count of it. The ranges of "two_comparisons" were chosen on other
seeds (20000 to 20002).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.common.progress import track
from count01_lens.common.storage import write_atomically
from experiments.generated_part import write_generated

DOCS = Path(__file__).parents[2] / "docs"
PAGE, TABLE = DOCS / "how_to" / "counting_tasks.md", DOCS / "how_to" / "counting_tasks.csv"
SEEDS = range(21000, 21003)
RECIPES = {"accurate": cl.TrainConfig(), "paper": cl.TrainConfig.paper()}
_RIGHT = {
    "count01": "more 1s than 0s",
    "majority": "the most frequent of three",
    "twice": "more 1s than twice the 0s",
    "two_comparisons": "more 1s than 0s, and more 3s than 2s",
    "most_frequent": "the most frequent of five",
}


def measured(name: str, recipe: str, config: cl.TrainConfig, seeds: Sequence[int]) -> pd.DataFrame:
    """Train a task and run its models: a row for each seed."""
    task = cl.counting_task(name)
    result = cl.train(config, seeds=seeds, task=task, snapshot_epochs=[], progress=None)
    rows = []
    for seed, model in zip(result.seeds, result.models, strict=True):
        whole = cl.verify(model, progress=None)
        rows.append(
            {
                "task": name,
                "recipe": recipe,
                "seed": seed,
                "test": cl.accuracy(model, task),
                "every_sentence": whole.accuracy,
                "ties": whole.tie_accuracy,
                "up_to": whole.up_to,
            }
        )
    return pd.DataFrame(rows)


def lines(table: pd.DataFrame) -> str:
    """The table of the page: means over seeds."""
    head = "| name | right is | trained on | tested on | recipe | test | every sentence | ties |"
    written = [head, "|" + "---|" * 8]
    for name, of_task in table.groupby("task", sort=False):
        task = cl.counting_task(str(name))
        ranges = [_ranges(part) for part in (task.splits.train, task.splits.test)]
        cells = [f"`{name}`", _RIGHT[str(name)], *ranges]
        for recipe, some in of_task.groupby("recipe", sort=False):
            means = (some[column].mean() for column in ("test", "every_sentence", "ties"))
            # Rounded down: nothing but 1 is written as 1.
            shown = [f"{np.floor(mean * 1e4) / 1e4:.4f}" for mean in means]
            written.append(f"| {' | '.join([*cells, str(recipe), *shown])} |")
            cells = [""] * 4
    return "\n".join(written)


def _ranges(split: cl.Split) -> str:
    """Smallest and largest counts; symbols of one range together, all of them without names."""
    found: dict[tuple[int, int], str] = {}
    for symbol, column in zip(split.language.symbols, split.counts.T, strict=True):
        found.setdefault((int(column.min()), int(column.max())), "")
        found[int(column.min()), int(column.max())] += symbol
    if len(found) == 1:
        return "{}–{}".format(*next(iter(found)))
    return ", ".join(f"{symbols}: {low}–{high}" for (low, high), symbols in found.items())


def main() -> None:
    """Measure all tasks, and write the table and the page."""
    jobs = [(name, recipe) for name in cl.COUNTING_TASKS for recipe in RECIPES]
    found = [
        measured(name, recipe, RECIPES[recipe], list(SEEDS))
        for name, recipe in track(jobs, len(jobs), "training tasks", None)
    ]
    table = pd.concat(found)
    write_atomically(TABLE, table.to_csv(index=False).encode())
    write_generated(PAGE, lines(table))


if __name__ == "__main__":
    main()
