"""The first steps of training: the model learns to answer at all before it learns to count."""

import sys

import pandas as pd

from count01_lens.jobs.job import Job
from count01_lens.views.figures import FIVE, FOUR, NotebookFigure
from experiments.runs import main_jobs, together
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F0", "Syntax before counting"
CONTRAST = True
PAPER = (
    "After the first few steps the model always answers '4' or '5', at 50 %, before it learns to "
    "count"
)


def jobs(setup: Setup) -> list[Job]:
    """The main runs."""
    return main_jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Find the first measured step at which nearly all answers are '4' or '5'."""
    history = together(jobs(setup), load, "history")
    rows = []
    for seed, run in history.groupby("seed"):
        answers = run[run["test_says_answer"] >= 0.99]
        counts = run[run["test_accuracy"] >= 0.9]
        rows.append(
            {
                "seed": seed,
                "step": _first(answers, "step"),
                "accuracy": _first(answers, "test_accuracy"),
                "step_of_counting": _first(counts, "step"),
            }
        )
    table = pd.DataFrame(rows)
    early = history[history["step"] <= 110][
        ["seed", "step", "test_says_answer", "test_accuracy", "loss"]
    ]
    return Measured(
        numbers={
            "first_step_of_syntax": spread(table["step"]),
            "accuracy_then": spread(table["accuracy"]),
            "first_step_of_counting": spread(table["step_of_counting"]),
        },
        shows=f"Nearly all answers are '4' or '5' from step {table['step'].mean():.0f} on (mean "
        f"over {len(table)} seeds), at {100 * table['accuracy'].mean():.0f} % accuracy; 90 % "
        f"accuracy comes at step {table['step_of_counting'].mean():.0f}.",
        tables={"first_steps": table, "early_history": early},
        figures={"syntax_first": _figure(early)},
        seeds=table["seed"].tolist(),
        recipe=setup.recipe.to_dict(),
    )


def _first(rows: pd.DataFrame, column: str) -> float:
    """NaN where it never came to that."""
    return float(rows.iloc[0][column]) if len(rows) else float("nan")


def _figure(early: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for _, run in early.groupby("seed"):
        axes.plot(run["step"], run["test_says_answer"], color=FOUR, lw=1, alpha=0.6)
        axes.plot(run["step"], run["test_accuracy"], color=FIVE, lw=1, alpha=0.6)
    axes.plot([], [], color=FOUR, label="'4' or '5' leads all other tokens")
    axes.plot([], [], color=FIVE, label="the answer is right")
    axes.set(xlabel="training step", ylabel="share of test sentences", ylim=(-0.02, 1.02))
    axes.legend(loc="lower right")
    axes.set_title("the first epoch")
    alt = "Share of answers that are 4 or 5, and that are right, over the first 110 steps"
    return Shown(figure, alt, "One line per seed: the form of the answer comes before its content.")


if __name__ == "__main__":
    main(sys.modules[__name__])
