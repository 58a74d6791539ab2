"""Compare training recipes on the validation split, which is how the default was chosen.

Run `python -m experiments.tools.choose_recipe`; it writes `docs/recipe.csv` and prints the table of
`docs/recipe.md`. The test split is not looked at.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from count01_lens.training.recipe import TrainConfig
from count01_lens.training.training_run import train

LEARNING_RATES = (2e-3, 5e-3, 1e-2)
BATCH_SIZES = (64, 256)
DECAYS: tuple[Literal["linear", "none"], ...] = ("linear", "none")
OUTPUT = Path("docs/recipe.csv")
RECIPE = ["batch_size", "decay", "learning_rate"]


def measure(seeds: Sequence[int], epochs: int, progress: bool = True) -> pd.DataFrame:
    """Train every recipe with every seed; return their accuracies on the validation split."""
    frames = []
    for batch_size in BATCH_SIZES:
        for decay in DECAYS:
            configs = [
                TrainConfig(epochs=epochs, batch_size=batch_size, decay=decay, learning_rate=rate)
                for rate in LEARNING_RATES
            ]
            # What is here may differ within a stack; batch size and decay may not.
            result = train(configs, seeds=seeds, snapshot_epochs=[], progress=progress)
            last = result.history[result.history["epoch"] == epochs].sort_values("model")
            columns = {name: [getattr(c, name) for c in result.configs] for name in RECIPE}
            frames.append(
                pd.DataFrame(columns).assign(
                    seed=last["seed"].to_numpy(),
                    loss=last["loss"].to_numpy(),
                    validation_accuracy=last["validation_accuracy"].to_numpy(),
                    validation_eos_accuracy=last["validation_eos_accuracy"].to_numpy(),
                )
            )
    return pd.concat(frames, ignore_index=True)


def summarise(measured: pd.DataFrame) -> pd.DataFrame:
    """One line per recipe, best first: by seeds at 0.99 or more, then by the mean."""
    grouped = measured.groupby(RECIPE)["validation_accuracy"]
    summary = pd.DataFrame(
        {
            "seeds": grouped.size(),
            "seeds >= 0.99": grouped.agg(lambda values: int((values >= 0.99).sum())),
            "mean": grouped.mean(),
            "lowest": grouped.min(),
        }
    )
    order = summary.sort_values(["seeds >= 0.99", "mean"], ascending=False)
    return order.reset_index()


def markdown(summary: pd.DataFrame) -> str:
    """Write the summary as a table."""
    lines = ["| " + " | ".join(summary.columns) + " |", "|---" * len(summary.columns) + "|"]
    for row in summary.itertuples(index=False):
        cells = [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row]
        cells[summary.columns.get_loc("learning_rate")] = f"{row.learning_rate:g}"
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds (default 10)")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    measured = measure(range(arguments.seeds), arguments.epochs)
    measured.to_csv(arguments.out, index=False)
    print(markdown(summarise(measured)))


if __name__ == "__main__":
    main()
