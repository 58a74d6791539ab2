"""Why heads are biased: the same seeds at the start, and trained with and without a second task."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure
from experiments.bias_shares import (
    ONE_SIDED,
    ORIGINS,
    bias_of,
    compared,
    measured_again,
    origins_by_seed,
)
from experiments.runs import recipe_of, run_job, share
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "E2", "Why heads are biased"
CONTRAST = True
PAPER = (
    "The biases of heads to '4' or '5' balance the answer and the '[EOS]' task: the model needs "
    "them so that the answer beats '[EOS]' at '=' and '[EOS]' beats the answer after it"
)
SEEDS = {"quick": range(7400, 7402), "full": range(7400, 7410)}
IN_STACK = 5  # seeds that are trained together, where several recipes are


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A way to train: its words, its colour, and what it changes in the recipe."""

    label: str
    colour: str
    changes: Mapping[str, Any]
    sizes: tuple[str, ...] = ("quick", "full")


START = "at_start"
CONDITIONS = {
    "with": Condition(label="'[EOS]'", colour=END, changes={"eos_weight": 1.0}),
    "tenth": Condition(
        label="'[EOS]' × 0.1", colour=END, changes={"eos_weight": 0.1}, sizes=("full",)
    ),
    "without": Condition(label="no second task", colour=FIVE, changes={"eos_weight": 0.0}),
    "copy": Condition(
        label="copy the answer", colour=FOUR, changes={"eos_weight": 1.0, "second_task": "copy"}
    ),
    "other_token": Condition(
        label="'2' instead", colour=FOUR, changes={"eos_weight": 1.0, "second_task": "other_token"}
    ),
    "frozen": Condition(
        label="'[EOS]', output bias frozen",
        colour=END,
        changes={"eos_weight": 1.0, "train_output_bias": False},
    ),
}
LABELS = {START: "at the start"} | {name: each.label for name, each in CONDITIONS.items()}
COLOURS = {START: NEUTRAL} | {name: each.colour for name, each in CONDITIONS.items()}
ORIGIN_LABELS = {
    "initialisation": "initialisation: at the start,\nand without the second task",
    "both": "both: at the start,\nbut not without the second task",
    "answer_task": "answer task: not at the start,\nbut without the second task",
    "only_with_second_task": "second task: not at the start,\nand not without it",
}


def recipes(setup: Setup) -> dict[str, cl.TrainConfig]:
    """The recipe of each condition, by its name."""
    chosen = {name: each for name, each in CONDITIONS.items() if setup.size in each.sizes}
    return {name: setup.trained(**each.changes) for name, each in chosen.items()}


def jobs(setup: Setup) -> list[Job]:
    """The same seeds under each condition; those that differ in a loss weight as one stack."""
    stacks: dict[Any, list[cl.TrainConfig]] = {}
    for recipe in recipes(setup).values():
        shared = (recipe.second_task, recipe.train_output_bias)
        stacks.setdefault(shared, []).append(recipe)
    seeds = list(SEEDS[setup.size])
    found = []
    for stack in stacks.values():
        size = IN_STACK if len(stack) > 1 else len(seeds)
        parts = [seeds[first : first + size] for first in range(0, len(seeds), size)]
        found += [run_job(stack, part, [0, setup.epochs]) for part in parts]
    return found


def measure(load: Load, setup: Setup) -> Measured:
    """Compare biases and single-head l-acc seed by seed, and share biases out head by head."""
    heads = pd.concat([heads_of(job, load(job), setup) for job in jobs(setup)], ignore_index=True)
    biases = biases_by_head(heads)
    runs = runs_of(heads, biases)
    by_seed = origins_by_seed(biases, START)
    numbers = numbers_of(runs) | origin_numbers(by_seed)
    labelled = [table.assign(condition=table["condition"].map(LABELS)) for table in (runs, heads)]
    return Measured(
        numbers=numbers,
        shows=sentence(numbers),
        tables={
            "runs": labelled[0],
            "heads": labelled[1],
            "origins": by_seed.reset_index(),
        },
        figures={"eos_bias": _figure(runs, by_seed)},
        seeds=list(SEEDS[setup.size]),
        recipe=recipe_of(list(recipes(setup).values())),
    )


def heads_of(job: Job, value: dict[str, Any], setup: Setup) -> pd.DataFrame:
    """A row per condition, seed, moment (start or trained) and head, with the head's bias."""
    names = {recipe: name for name, recipe in recipes(setup).items()}
    stack = [names[cl.TrainConfig.from_dict(each)] for each in job.configuration["recipes"]]
    heads: pd.DataFrame = value["heads"].merge(
        measured_again(job, value), on=["model", "epoch", "head"], validate="one_to_one"
    )
    models = heads.pop("model") // len(job.configuration["seeds"])
    heads.insert(0, "condition", [stack[model] for model in models])
    heads.insert(2, "moment", np.where(heads.pop("epoch") == 0, "start", "trained"))
    return heads.assign(bias=bias_of(heads["one_sided"], heads["favours_four"]))


def biases_by_head(heads: pd.DataFrame) -> pd.DataFrame:
    """Put the biases of each head side by side: at the start, and under each condition."""
    return _side_by_side(heads, ["seed", "head"], "bias")


def _side_by_side(table: pd.DataFrame, index: list[str], column: str) -> pd.DataFrame:
    """Spread a column over the start, which all conditions share, and each condition."""
    start = table[(table["moment"] == "start") & (table["condition"] == "with")]
    trained = table[table["moment"] == "trained"]
    both = pd.concat([start.assign(condition=START), trained])
    wide = both.pivot(index=index, columns="condition", values=column)
    return wide.reindex(columns=[name for name in LABELS if name in wide])


def runs_of(heads: pd.DataFrame, biases: pd.DataFrame) -> pd.DataFrame:
    """A row per condition, seed and moment.

    Biased heads are `kept` (biased to the same answer at the start) or `new`: shares of all heads.
    `second_accuracy` is of the condition's own second task, '[EOS]' where there is none.
    """
    start = biases[START].rename("start").reset_index()
    table = heads.merge(start, on=["seed", "head"], validate="many_to_one")
    biased = table["bias"] != 0
    same = table["bias"] == table["start"]
    order = list(dict.fromkeys(heads["condition"]))
    return (
        table.assign(biased=biased, kept=biased & same, new=biased & ~same)
        .groupby(["condition", "moment", "seed"])
        .agg(
            biased=("biased", "mean"),
            kept=("kept", "mean"),
            new=("new", "mean"),
            at_half=("l_acc", lambda values: share(values.between(0.45, 0.55))),
            l_acc=("l_acc", "mean"),
            s_acc=("s_acc", "mean"),
            mean_abs_margin=("mean_margin", lambda values: float(np.mean(np.abs(values)))),
            spread_of_margin=("std_margin", "mean"),
            accuracy=("accuracy", "first"),
            second_accuracy=("second_accuracy", "first"),
        )
        .reindex(order, level="condition")
        .reset_index()
    )


def numbers_of(runs: pd.DataFrame) -> dict[str, Any]:
    """Shares and l-acc of every condition, and the differences that claims are about."""
    columns = ("biased", "kept", "new", "l_acc", "at_half")
    wide = {column: _side_by_side(runs, ["seed"], column) for column in columns}
    biased, l_acc = wide["biased"], wide["l_acc"]
    differences = {
        "fewer_biased": spread(biased["with"] - biased["without"]),
        "l_acc_rises": spread(l_acc["without"] - l_acc["with"]),
        "copy_fewer_biased": spread(biased["with"] - biased["copy"]),
        "other_token_fewer_biased": spread(biased["with"] - biased["other_token"]),
        "frozen_fewer_biased": spread(biased["with"] - biased["frozen"]),
    }
    return differences | {
        f"{column}_{name}": spread(table[name]) for column, table in wide.items() for name in table
    }


def origin_numbers(by_seed: pd.DataFrame) -> dict[str, Any]:
    """Shares of each origin over seeds, and how far two of them are from what they are held to."""
    beyond = {
        "kept_beyond_chance": by_seed["kept_from_start"] - by_seed["kept_from_start_by_chance"],
        "without_beyond_other_token": by_seed["without_it_too"] - by_seed["other_token_too"],
    }
    return {name: spread(values) for name, values in {**by_seed, **beyond}.items()}


def sentence(numbers: Mapping[str, Any]) -> str:
    """Say in which shares biases come from where; every word follows from the numbers."""

    def percent(name: str) -> str:
        return f"{100 * numbers[name]['mean']:.0f} %"

    biased = (
        f"At the start {percent('biased_at_start')} of heads are biased (one answer on "
        f"{100 * ONE_SIDED:.0f} % of sentences). Trained from there, it is "
        f"{percent('biased_with')} with the '[EOS]' loss, {percent('biased_without')} without a "
        f"second task, {percent('biased_copy')} with the answer once more, "
        f"{percent('biased_other_token')} with '2' instead of '[EOS]', and "
        f"{percent('biased_frozen')} with '[EOS]' and a frozen output bias; single heads answer "
        f"{percent('l_acc_with')} right with '[EOS]' and {percent('l_acc_without')} without."
    )
    if not numbers["initialisation"]["n"]:
        return f"{biased} No head is biased after training with '[EOS]', so nothing is shared out."
    parts = [
        f"{percent(name)} come from {ORIGINS[name]}; by chance {percent(f'{name}_by_chance')})"
        for name in sorted(ORIGINS, key=lambda name: -numbers[name]["mean"])
    ]
    return (
        f"{biased} Of the biases with '[EOS]', {', '.join(parts[:-1])} and {parts[-1]}. "
        f"{percent('kept_from_start')} were there at the start, "
        f"{compared(numbers['kept_beyond_chance'])} {percent('kept_from_start_by_chance')} by "
        f"chance. {percent('without_it_too')} are the same without a second task, "
        f"{compared(numbers['without_beyond_other_token'])} {percent('other_token_too')} with '2' "
        "instead of '[EOS]', which says how alike two trainings with tasks of one kind are."
    )


def _figure(runs: pd.DataFrame, by_seed: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(8, 7), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(4, 3))
    top, bottom = parts
    left, right = top.subplots(1, 2, sharey=True)
    _seed_by_seed(left, _side_by_side(runs, ["seed"], "biased"))
    left.set(title="share of biased heads", xlim=(-0.03, 1.03))
    _seed_by_seed(right, _side_by_side(runs, ["seed"], "l_acc"))
    right.set(title="mean l-acc of single heads")
    right.locator_params(axis="x", nbins=5)
    _origins(bottom.subplots(), by_seed)
    alt = (
        "Above, seed by seed: the share of biased heads and the mean l-acc of single heads at the "
        "start and after training under each condition. Below: where the biases of heads trained "
        "with '[EOS]' come from, beside what chance would give."
    )
    caption = (
        "Above: a thin line per seed, diamonds are means; biased heads favour one answer on at "
        f"least {100 * ONE_SIDED:.0f} % of test sentences. Below: heads that are biased after "
        "training with '[EOS]', by whether they were biased to the same answer at the start, and "
        "whether they are when trained from there without a second task. Bars are means, dots are "
        "seeds, black marks are what heads paired at random would give."
    )
    return Shown(figure, alt, caption)


def _seed_by_seed(axes: Any, table: pd.DataFrame) -> None:
    """Draw a line for each seed over the conditions, from top to bottom, and the means."""
    places = np.arange(len(table.columns))
    axes.plot(table.T, places, color=NEUTRAL, lw=0.6, alpha=0.5, marker="o", ms=2.5)
    means = table.mean()
    colours = [COLOURS[str(name)] for name in table]
    axes.scatter(means, places, c=colours, s=70, marker="D", ec="black", zorder=4)
    for place, mean in zip(places, means, strict=True):
        style = {"ha": "center", "zorder": 5, "textcoords": "offset points", "xytext": (0, 8)}
        box = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8}
        axes.annotate(f"{mean:.2f}", (mean, place), bbox=box, fontweight="bold", **style)
    axes.set_yticks(places, [LABELS[str(name)] for name in table])
    axes.set(ylim=(len(places) - 0.6, -0.7))
    axes.axhline(0.5, color=NEUTRAL, lw=0.8, ls=":")


def _origins(axes: Any, by_seed: pd.DataFrame) -> None:
    """Draw the share of each origin, every seed, and what chance would give."""
    colours = {"initialisation": NEUTRAL, "both": FOUR, "answer_task": FIVE}
    for place, name in enumerate(ORIGIN_LABELS):
        seeds, mean = by_seed[name], by_seed[name].mean()
        axes.barh(place, mean, color=colours.get(name, END), alpha=0.75, height=0.6)
        axes.plot(seeds, np.full(len(seeds), place), "o", color="black", ms=3, alpha=0.4, ls="")
        chance = by_seed[f"{name}_by_chance"].mean()
        label = "by chance" if place == 0 else None
        axes.plot([chance] * 2, [place - 0.4, place + 0.4], color="black", lw=2.5, label=label)
        axes.text(1.02, place, f"{mean:.2f}", va="center", fontweight="bold")
        axes.text(1.13, place, f"{chance:.2f}", va="center")
    axes.set_yticks(range(len(ORIGIN_LABELS)), list(ORIGIN_LABELS.values()))
    axes.text(1.02, -0.6, "mean", va="center", fontweight="bold", size="small")
    axes.text(1.13, -0.6, "chance", va="center", size="small")
    axes.set(xlim=(0, 1.24), ylim=(len(ORIGIN_LABELS) - 0.5, -0.85))
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set(title="origin of the biases of heads trained with '[EOS]'", xlabel="share of them")
    # Beside the label of the axis, where no bar can reach it.
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, -0.1))


if __name__ == "__main__":
    main(sys.modules[__name__])
