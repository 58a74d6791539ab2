"""Write docs/cooperation_over_training.md: heads that turn from cooperation to redundancy, or not.

    python -m experiments.change_page OUT

OUT is that of a full run of `experiments.cooperation_over_training`. Its results.csv and
verdict.json are copied beside the page, and the figures drawn from them; every number on the page
comes from them.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from count01_lens.common.storage import write_atomically
from count01_lens.common.student import MeanInterval
from count01_lens.common.text import number, ranges
from count01_lens.heads.comparison import written
from count01_lens.heads.group_numbers import ORDERS
from count01_lens.heads.labels import LABELS
from count01_lens.heads.metrics import METRICS
from count01_lens.views.figures import as_bytes
from experiments.change_figure import distance_figure, training_figure
from experiments.change_rules import JUDGED, MOST, NONE, RECIPES, SAME, over_training, sign_of
from experiments.cooperation_bounds import INTERACTION
from experiments.cooperation_figure import NAMES
from experiments.standalone import page_main

DOCS = Path(__file__).parents[1] / "docs"
NAME = "cooperation_over_training"
ORDER_NAMES = {
    "travelled": "distance",
    "step": "steps",
    "epoch": "epochs",
    "sum_of_rates": "sum of learning rates",
}
DOES_NOT_SAY = """\
- The mean interaction has the sign of what the last head adds minus what the first one adds. It
  does not say which pairs cooperate; the tables give the shares of pairs on both sides.
- A mean over seeds near zero can hide models that go opposite ways, as on '[EOS]': results.csv has
  every model.
- With {n_moments} moments and {n_seeds} seeds, shorter or smaller changes cannot be seen. *None
  shown* does not mean that there is none.
- The recipes differ in batch size, learning rate, decay, biases and output layer, and the distance
  may stand for any of these."""


def page(results: pd.DataFrame, about: Mapping[str, Any]) -> str:
    """Write the page of a full run."""
    verdict = about["verdict"]
    if verdict is None:
        raise ValueError("results: expected those of a full run, got a quick one, without verdict")
    moments = len(over_training(results, RECIPES[0], JUDGED[0]))
    sections = [
        "# Do heads turn from cooperation to redundancy in training?",
        _question(),
        _summary(verdict),
        *(_answer(verdict, recipe) for recipe in RECIPES),
        _distance_answer(verdict),
        "Observed in the results, but not judged by a rule: when the interval over seeds is on "
        "one side of zero, and how far the weights have travelled by then.",
        _markdown(["", *(NAMES[recipe] for recipe in RECIPES)], _sides(results)),
        "Also not judged: how far apart the curves of the two recipes are as functions of "
        "distance, steps, epochs or summed learning rates. The numbers are the absolute "
        "difference between the means over seeds, averaged over the moments of the paper's recipe.",
        _markdown(["along", *(METRICS[metric].label for metric in JUDGED)], _apart(results)),
        f"![Mean interaction of two heads over the epochs, for each recipe and metric]"
        f"({NAME}/over_training.svg)",
        "Lines are means over seeds, bands their 95 % intervals. In the grey band, within "
        f"±{INTERACTION:g}, heads neither cooperate nor repeat each other. A circle marks the "
        "first moment of a lasting change.",
        f"![Mean interaction of two heads against the distance that weights travelled]"
        f"({NAME}/distance.svg)",
        "The same means against the distance of the weights from their start, relative to their "
        "initial length.",
        "## Numbers",
        *(part for recipe in RECIPES for part in _tables(results, verdict, recipe)),
        "## Rules",
        _rules(),
        "## What it does not say",
        DOES_NOT_SAY.format(n_moments=moments, n_seeds=len(about["seeds"])),
        "## How it was run",
        _run(results, about),
    ]
    return "\n\n".join(sections) + "\n"


def _question() -> str:
    return (
        "Two heads cooperate if they are worth more together than apart, and are redundant if one "
        "adds what the other already provides. The mean Shapley interaction over all pairs of "
        "heads shows which of the two prevails. It can be computed exactly from few groups: with "
        "v_t the mean value of groups of t of the a heads,\n\n"
        "    mean interaction = [ (v_a − v_(a−1)) − (v_1 − v_0) ] / (a − 1),\n\n"
        "what the last head adds minus what the first one adds. This page follows models of the "
        "paper's recipe and of the accurate one through training: is there a moment when heads "
        "that cooperated become redundant?"
    )


def _summary(verdict: Mapping[str, Any]) -> str:
    """Count the changes, whichever way they go."""
    found = [
        f"{METRICS[metric].label} with {NAMES[recipe]}"
        for recipe in RECIPES
        for metric in JUDGED
        if verdict["changes"][recipe][metric]["answer"] != NONE
    ]
    asked = len(RECIPES) * len(JUDGED)
    if not found:
        return (
            f"**No such change is shown**, with either recipe, by any of {len(JUDGED)} metrics: "
            "there is no evidence that heads first cooperate and later repeat each other."
        )
    return f"**A lasting change is shown in {len(found)} of {asked} cases**: {', '.join(found)}."


def _answer(verdict: Mapping[str, Any], recipe: str) -> str:
    lines = [f"With {NAMES[recipe]}:", ""]
    for metric in JUDGED:
        found = verdict["changes"][recipe][metric]
        told = f"- {METRICS[metric].label}: **{found['answer']}**"
        if found["answer"] != NONE:
            told += f", at epoch {number(round(found['epoch'], 2))} (distance "
            told += f"{found['travelled']:.2f})"
        end, most = found["end"], found["largest"]
        told += f". The mean interaction is largest at epoch {number(round(most['epoch'], 2))}, "
        told += f"{_interval(most)}, and {_interval(end)} at the end: {_do(end['word'])}."
        lines.append(told)
    return "\n".join(lines)


def _distance_answer(verdict: Mapping[str, Any]) -> str:
    if all(not found["crossed"] for found in verdict["with_distance"].values()):
        return (
            "Whether the change comes with the distance of the weights from their start applies "
            "only to metrics that change, and there are none."
        )
    lines = ["Does the change come with the distance that weights travel?", ""]
    for metric in JUDGED:
        found = verdict["with_distance"][metric]
        told = f"- {METRICS[metric].label}: **{found['answer']}**"
        if "factors" in found:
            factors = ", ".join(f"{ORDER_NAMES[o]} {x:.2f}" for o, x in found["factors"].items())
            told += f". Medians of the two recipes at the crossing differ by a factor of: {factors}"
        elif "reached" in found:
            (recipe,) = found["medians"]
            (other,) = set(RECIPES) - {recipe}
            told += f". With {NAMES[recipe]} models cross at a distance of "
            told += f"{found['medians'][recipe]['travelled']:.2f} (median of "
            told += f"{found['crossed'][recipe]}); with {NAMES[other]} they reach "
            told += f"{found['reached']:.2f} at the end"
        elif found["answer"] == "undecided":
            counts = ", ".join(f"{n} with {NAMES[r]}" for r, n in found["crossed"].items())
            told += f". Too few models cross by themselves: {counts}"
        else:
            told += ", as no recipe changes" if not found["crossed"] else ", as recipes differ"
        lines.append(told + ".")
    return "\n".join(lines)


def _sides(results: pd.DataFrame) -> list[list[str]]:
    """For each metric and recipe, the stretches of training on one side of zero."""
    rows = []
    for metric in JUDGED:
        cells = [METRICS[metric].label]
        for recipe in RECIPES:
            curve = over_training(results, recipe, metric)
            stretches = [
                (side, list(moments))
                for side, moments in itertools.groupby(curve, sign_of)
                if side != "undecided"
            ]
            cells.append("; ".join(_stretch(side, found) for side, found in stretches) or "neither")
        rows.append(cells)
    return rows


def _apart(results: pd.DataFrame) -> list[list[str]]:
    """For each order, the mean difference of the recipes at equal places, by metric."""
    rows = []
    for order, name in ORDER_NAMES.items():
        cells = [name]
        for metric in JUDGED:
            paper, accurate = (
                results[(results["recipe"] == recipe) & (results["metric"] == metric)]
                .groupby("step")[["mean_interaction", "travelled", "epoch", "sum_of_rates"]]
                .mean()
                .reset_index()
                for recipe in RECIPES
            )
            there = np.interp(paper[order], accurate[order], accurate["mean_interaction"])
            cells.append(f"{np.abs(paper['mean_interaction'] - there).mean():.4f}")
        rows.append(cells)
    return rows


def _stretch(side: str, moments: list[dict[str, Any]]) -> str:
    first, last = moments[0], moments[-1]
    epochs = [number(round(moment["epoch"], 2)) for moment in (first, last)]
    distances = [f"{moment['travelled']:.2f}" for moment in (first, last)]
    if len(moments) == 1:
        return f"{side} at epoch {epochs[0]} (distance {distances[0]})"
    return f"{side} in epochs {' to '.join(epochs)} (distance {' to '.join(distances)})"


def _tables(results: pd.DataFrame, verdict: Mapping[str, Any], recipe: str) -> Iterator[str]:
    yield f"### With {NAMES[recipe]}"
    for metric in JUDGED:
        rows = []
        curve = over_training(results, recipe, metric)
        known = results.loc[results["metric"] == metric, list(_COLUMNS)].notna().any()
        columns = {name: digits for name, digits in _COLUMNS.items() if known[name]}
        for place in _shown_places(curve, verdict["changes"][recipe][metric]):
            moment = curve[place]
            at = results[
                (results["recipe"] == recipe)
                & (results["metric"] == metric)
                & (results["step"] == moment["step"])
            ]
            means = at.drop(columns=["recipe", "metric"]).mean()
            rows.append(
                [
                    number(round(moment["epoch"], 2)),
                    f"{moment['travelled']:.2f}",
                    f"{means['whole']:.3f}",
                    _interval(moment),
                    *(_cell(means[name], digits) for name, digits in columns.items()),
                ]
            )
        heads = _HEADINGS[: 3 + len(columns)]
        yield _markdown([f"{METRICS[metric].label}: epoch", *heads], rows)


_COLUMNS = {
    "first_gain": 3, "last_gain": 3, "cooperating_pairs": 2, "redundant_pairs": 2,
    **{f"explained_{order}": 2 for order in ORDERS}, "heads_for_99": 1,
    **dict.fromkeys(LABELS[:3], 1),
}  # fmt: skip
_HEADINGS = [
    "distance", "all heads", "mean interaction", "first head adds", "last head adds",
    "cooperating pairs", "redundant pairs", "explained by heads", "by pairs", "by triples",
    "heads for 99 %", *LABELS[:3],
]  # fmt: skip


def _shown_places(curve: list[dict[str, Any]], change: Mapping[str, Any]) -> list[int]:
    """Some moments over all of training, and those of the largest value and of the change."""
    largest = max(range(len(curve)), key=lambda place: float(curve[place]["mean"]))
    places = {0, len(curve) - 1, largest, *range(3, len(curve), 4)}
    return sorted(places | ({change["place"]} if change["place"] is not None else set()))


def _cell(value: float, digits: int) -> str:
    written_value = f"{value:.{digits}f}"
    return "–" if pd.isna(value) else f"{float(written_value) + 0.0:.{digits}f}".replace("-", "−")


def _interval(found: Mapping[str, Any]) -> str:
    return written(MeanInterval(found["mean"], found["low"], found["high"], 2))


def _do(word: str) -> str:
    verbs = {"cooperate": "heads cooperate", "redundant": "heads are redundant"}
    verbs["neither"] = "heads neither cooperate nor repeat each other"
    return verbs.get(word, "undecided")


def _rules() -> str:
    return (
        "The rules were fixed in `experiments/change_rules.py` before the judged seeds were run; "
        "the moments were chosen on two models of each recipe with other seeds. Brackets are 95 % "
        "intervals over seeds (Student's t).\n\n"
        f"- At a moment heads **cooperate** if the interval is at or above +{INTERACTION:g}, are "
        f"**redundant** if it is at or below −{INTERACTION:g}. A recipe and metric turns **from "
        "cooperation to redundancy** if heads cooperate at some moment, and are redundant from "
        "some later moment to the end; **from above zero to below zero** if the interval is above "
        "zero at some moment, and below it from some later one to the end; and the opposite ways. "
        f"Else: **{NONE}**.\n"
        "- Where both recipes change in the same direction, it **comes with the distance** if the "
        "medians over models of the distance where they cross zero for good differ by a factor of "
        f"at most {SAME:g}, and by less than those of steps, epochs and sum of learning rates. "
        "Where one does, if models of the other do not travel as far as that. It is undecided if "
        f"fewer than {MOST} models of a recipe that changes cross."
    )


def _run(results: pd.DataFrame, about: Mapping[str, Any]) -> str:
    models = len(results[["recipe", "seed"]].drop_duplicates())
    shape = about["recipes"][RECIPES[0]]["model"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"    python -m experiments.{NAME} --size full\n"
        f"    python -m experiments.change_page runs/{NAME}/full\n\n"
        f"{models} models, seeds {ranges(about['seeds'])}, d = {shape['d_embed']} with "
        f"{shape['n_heads']} heads. At each moment, all {number(2 ** shape['n_heads'] - 1)} "
        "groups of heads were measured by l-acc, ROC AUC and '[EOS]' l-acc; by s-acc, which needs "
        f"a fit for each group, only the {2 * shape['n_heads'] + 1} groups that the mean "
        "interaction needs. Tables show means over "
        "seeds: *explained* is the share of the variance over "
        "groups that single heads, pairs and triples explain; *heads for 99 %* the size of the "
        "smallest group with 99 % of what all heads gain over none; *facilitating*, *interfering* "
        "and *irrelevant* are numbers of heads with a Shapley value above +0.01, below −0.01, and "
        "of heads that change groups by no more than 0.01 on average. Every model and moment is in "
        f"`{NAME}/results.csv`, the verdict in `{NAME}/verdict.json`. Rules: SHA-256 "
        f"`{about['rules_sha256'][:16]}…`. Versions: {versions}."
    )


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def write_page(results: Path, docs: Path = DOCS) -> Path:
    """Copy the files of a full run into the docs, draw the figures, and write the page."""
    table = pd.read_csv(results / "results.csv")
    about = dict(json.loads((results / "verdict.json").read_text("utf-8")))
    text = page(table, about)
    (docs / NAME).mkdir(parents=True, exist_ok=True)
    for name in ("results.csv", "verdict.json"):
        write_atomically(docs / NAME / name, (results / name).read_bytes())
    for name, drawn in (
        ("over_training", training_figure(table, about["verdict"])),
        ("distance", distance_figure(table)),
    ):
        for kind in ("svg", "png"):
            write_atomically(docs / NAME / f"{name}.{kind}", as_bytes(drawn, kind))
    write_atomically(docs / f"{NAME}.md", text.encode())
    return docs / f"{NAME}.md"


def main() -> None:
    """Update the page."""
    page_main(__doc__, write_page)


if __name__ == "__main__":
    main()
