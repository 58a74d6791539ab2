"""Draw the interactions of all counting tasks side by side."""

import pandas as pd

from count01_lens.heads.metrics import METRICS
from count01_lens.views.figures import FIVE, FOUR, NEUTRAL, NotebookFigure
from experiments.cooperation_bounds import INTERACTION
from experiments.cooperation_rules import JUDGED, interval_of, values_of

NAMES = {"paper": "the paper's recipe", "accurate": "the accurate recipe"}


def figure(results: pd.DataFrame) -> NotebookFigure:
    """Draw the mean interaction of every model; narrow enough for small screens."""
    tasks = list(results["task"].unique())
    drawn = NotebookFigure(figsize=(5.2, 2.2 + 0.85 * len(tasks)), layout="constrained")
    styles = {"paper": (FOUR, "o", -0.13), "accurate": (FIVE, "s", 0.13)}
    for place, metric in enumerate(JUDGED):
        axes = drawn.add_subplot(len(JUDGED), 1, place + 1)
        axes.axvspan(-INTERACTION, INTERACTION, color=NEUTRAL, alpha=0.15, lw=0)
        axes.axvline(0, color=NEUTRAL, lw=0.8)
        for recipe, (colour, marker, offset) in styles.items():
            for row, task in enumerate(tasks):
                values = values_of(results, task, recipe, f"{metric}_interaction")
                found = interval_of(results, task, recipe, f"{metric}_interaction")
                # Models stand beside their mean: on its line they could not be seen.
                beside = [row + 2.3 * offset] * len(values)
                axes.scatter(values, beside, 13, color=colour, alpha=0.55, lw=0, marker=marker)
                if found["low"] is not None:
                    ends = [found["low"], found["high"]]
                    axes.plot(ends, [row + offset] * 2, color=colour, lw=2.2)
                if found["mean"] is not None:
                    axes.plot(found["mean"], row + offset, marker, color=colour, ms=7, mec="white")
            axes.plot([], [], marker, color=colour, label=NAMES[recipe])
        axes.set_yticks(range(len(tasks)), [task.replace("_", "\n") for task in tasks])
        axes.set_ylim(len(tasks) - 0.5, -0.5)
        axes.set_title(f"{METRICS[metric].label}: ← redundant | cooperate →", fontsize=11)
        axes.tick_params(labelsize=10)
        axes.locator_params(axis="x", nbins=6)
        axes.set_xlabel("mean Shapley interaction of two heads", fontsize=10)
    handles, labels = axes.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=10)
    return drawn
