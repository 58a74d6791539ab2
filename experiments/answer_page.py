"""Write docs/answer.md: compete or cooperate, over ten fresh seeds of each recipe.

    python -m experiments.answer_page OUT

OUT is that of a full run of `experiments.answer_over_seeds`. Its files are copied beside the page;
every number on the page comes from them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from count01_lens.common.storage import write_atomically
from count01_lens.common.student import MeanInterval
from count01_lens.common.text import ranges, written_signed
from count01_lens.heads.comparison import written
from count01_lens.heads.labels import LABELS
from count01_lens.heads.metrics import CATEGORIES
from count01_lens.heads.metrics import METRICS as ALL_METRICS
from count01_lens.heads.thresholds import THRESHOLDS
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure, as_bytes
from experiments.answer_rules import METRICS, RECIPES
from experiments.standalone import page_main

DOCS = Path(__file__).parents[1] / "docs"
FILES = ("results.csv", "labels.csv", "verdict.json")
NAMES = {"paper": "the paper's recipe", "accurate": "the accurate recipe"}
ASKED = {
    "s_acc": "What heads know (s-acc)",
    "l_acc": "What they answer together (l-acc)",
    "eos_l_acc": "'[EOS]' (l-acc)",
}
WORDS = {
    "cooperate": "they cooperate",
    "redundant": "they are redundant",
    "neither": "on average they neither cooperate nor repeat each other",
    "undecided": "undecided",
}
AGAINST = {
    "better": "better: they complement each other",
    "worse": "worse: they share their mistakes",
    "alike": "alike",
    "undecided": "undecided",
}


def page(results: pd.DataFrame, labels: pd.DataFrame, about: Mapping[str, Any]) -> str:
    """Write the page of a full run."""
    verdict = about["verdict"]
    if verdict is None:
        raise ValueError("results: expected those of a full run, got a quick one, without verdict")
    parts = [
        "# Compete or cooperate? The answer over ten seeds",
        _question(about),
        *(f"## With {NAMES[recipe]}\n\n{_answers(verdict[recipe])}" for recipe in RECIPES),
        "![What groups of heads reach beyond independent heads, against the mean interaction]"
        "(answer/answer.svg)",
        "Each mark is a model. To the left of the vertical grey band heads are redundant, to the "
        "right they cooperate. Below the horizontal band groups do worse than groups of "
        "independent heads of the same quality, above it better.",
        f"## Verdicts on single models\n\n{_words(results)}",
        f"## Labels of heads, and the paper's categories\n\n{_labels(labels)}",
        f"## Numbers\n\n{_numbers(results)}",
        f"## How it was judged\n\n{_how(about)}",
    ]
    return "\n\n".join(parts) + "\n"


def _question(about: Mapping[str, Any]) -> str:
    n = len(about["seeds"])
    return (
        f"With each of two recipes, {n} models of 16 heads were trained. All 65,535 groups of "
        "heads of each model were measured, and the verdicts combined over seeds. The mean "
        "interaction of two heads says whether they are worth more together than apart; for "
        "comparison, the table gives its value for exact copies of one head. Good heads have "
        "diminishing returns even if they are independent, because accuracy cannot exceed 1. So "
        "groups are also compared with groups of *independent* heads of the same quality, made by "
        "shuffling the outputs of each head among sentences with the same answer."
    )


def _answers(found: Mapping[str, Any]) -> str:
    head = (
        "| | mean interaction | verdict | exact copies | against independent heads | a mean below "
        "zero means |\n|---|---|---|---|---|---|"
    )
    rows = [
        f"| {ASKED[metric]} | {_interval(each['mean_interaction'])} | **{WORDS[each['word']]}** | "
        f"{written_signed(each['copies'])} | {_interval(each['beyond'])}: "
        f"**{AGAINST[each['against_independent']]}** | {each['reading']} |"
        for metric, each in ((metric, found[metric]) for metric in METRICS)
    ]
    return "\n".join([head, *rows])


def _words(results: pd.DataFrame) -> str:
    counts = results.groupby(["recipe", "metric"])["word"].value_counts()
    head = f"| recipe | metric | {' | '.join(WORDS)} |\n|{'---|' * (2 + len(WORDS))}"
    rows = [
        f"| {NAMES[recipe]} | {ALL_METRICS[metric].label} | "
        + " | ".join(str(counts.get((recipe, metric, word), 0)) for word in WORDS)
        + " |"
        for recipe in RECIPES
        for metric in METRICS
    ]
    text = (
        "The number of models with each verdict, from their own test sentences. A mean that is "
        "undecided over seeds can hide models that are decided, but differ."
    )
    return "\n".join([f"{text}\n\n{head}", *rows])


def _labels(labels: pd.DataFrame) -> str:
    head = f"| recipe | metric | label | {' | '.join(CATEGORIES)} |\n|---|---|---|---|---|---|"
    counts = labels.groupby(["recipe", "metric", "label", "category"])["heads"].sum()
    rows = [
        f"| {NAMES[recipe]} | {ALL_METRICS[metric].label} | {label} | "
        + " | ".join(str(counts[recipe, metric, label, kind]) for kind in CATEGORIES)
        + " |"
        for recipe in RECIPES
        for metric in METRICS
        for label in LABELS
    ]
    text = (
        "The number of heads with each label, over all models, by what a linear probe finds in "
        "the head alone. A head gets a label if the interval over test sentences rules out the "
        "others."
    )
    return "\n".join([f"{text}\n\n{head}", *rows])


def _numbers(results: pd.DataFrame) -> str:
    columns = {
        "accuracy": "accuracy",
        "enough": "heads enough for 99 % (of models whose heads gain something)",
        "cooperating_pairs": "cooperating pairs",
        "redundant_pairs": "redundant pairs",
        "explained_1": "explained by heads",
        "explained_2": "by pairs",
        "explained_3": "by triples",
    }
    # Where heads gain nothing over none, no heads are enough: that says nothing of others.
    known = results.assign(enough=results["enough"].where(results["enough"] > 0))
    means = known.groupby(["recipe", "metric"])[list(columns)].mean()
    head = f"| recipe | metric | {' | '.join(columns.values())} |\n|{'---|' * (2 + len(columns))}"
    rows = [
        f"| {NAMES[recipe]} | {ALL_METRICS[metric].label} | "
        + " | ".join(f"{float(means[name][recipe, metric]):.3g}" for name in columns)
        + " |"
        for recipe in RECIPES
        for metric in METRICS
    ]
    return "\n".join(["Means over seeds.\n", head, *rows])


def _how(about: Mapping[str, Any]) -> str:
    return (
        "```sh\npython -m experiments.answer_over_seeds --size full\npython -m "
        "experiments.answer_page runs/answer_over_seeds/full\n```\n\n"
        f"The seeds are {ranges(about['seeds'])}, which nobody had seen before. The rules in "
        "`experiments/answer_rules.py` were committed before these models were trained: the "
        "interval of a mean over seeds (Student's t, 95 %) has to be beyond "
        f"±{THRESHOLDS.mean:g} for a verdict, and beyond ±{THRESHOLDS.beyond:g} against "
        "independent heads. These bounds were chosen on the bundled and the handcrafted models."
    )


def _interval(found: Mapping[str, Any]) -> str:
    return written(MeanInterval(**found))


def figure(results: pd.DataFrame) -> Figure:
    """Draw every model by its mean interaction, and by how it does against independent heads."""
    drawn = NotebookFigure(figsize=(9.6, 3.9), layout="constrained")
    for axes, recipe in zip(drawn.subplots(1, 2, sharex=True, sharey=True), RECIPES, strict=True):
        axes.axvspan(-THRESHOLDS.mean, THRESHOLDS.mean, color=NEUTRAL, alpha=0.13, lw=0)
        axes.axhspan(-THRESHOLDS.beyond, THRESHOLDS.beyond, color=NEUTRAL, alpha=0.13, lw=0)
        _marks(axes, results[results["recipe"] == recipe])
        axes.set(title=NAMES[recipe], xlabel="mean interaction of two heads")
        axes.grid(alpha=0.25)
    drawn.axes[0].set_ylabel("reached beyond independent heads")
    handles, names = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    return drawn


def _marks(axes: Axes, results: pd.DataFrame) -> None:
    looks = zip(METRICS, (FOUR, FIVE, END), ("o", "s", "^"), strict=True)
    for metric, colour, marker in looks:
        some = results[results["metric"] == metric]
        x, y = (np.asarray(some[name]) for name in ("mean_interaction", "beyond"))
        axes.scatter(x, y, c=colour, marker=marker, s=28, alpha=0.8, label=ASKED[metric])


def write_page(out: Path, docs: Path = DOCS) -> Path:
    """Copy the results of a full run beside the page, draw the figure, and write the page."""
    about = json.loads((out / "verdict.json").read_text("utf-8"))
    results, labels = (pd.read_csv(out / f"{name}.csv") for name in ("results", "labels"))
    text = page(results, labels, about)
    (docs / "answer").mkdir(parents=True, exist_ok=True)
    for name in FILES:
        write_atomically(docs / "answer" / name, (out / name).read_bytes())
    write_atomically(docs / "answer" / "answer.svg", as_bytes(figure(results), "svg"))
    write_atomically(docs / "answer.md", text.encode())
    return docs / "answer.md"


def main() -> None:
    """Update the page."""
    page_main(__doc__, write_page)


if __name__ == "__main__":
    main()
