"""Write docs/tasks_and_cooperation.md: interactions of all counting tasks side by side.

    python -m experiments.cooperation_page OUT

OUT is that of a full run of `experiments.tasks_and_cooperation`. Its results.csv, verdict.json and
figure are copied beside the page; every number on the page comes from them.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from count01_lens.common.storage import write_atomically
from count01_lens.common.text import number, ranges, rounded_percent, signed
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.thresholds import SUCCESSFUL
from experiments.cooperation_bounds import AGAINST, INTERACTION
from experiments.cooperation_figure import NAMES
from experiments.cooperation_rules import (
    JUDGED,
    LEARNED,
    LEAST_GAIN,
    MORE,
    ONE,
    PAPERS,
    RECIPES,
    TWO,
    interval_of,
)
from experiments.standalone import page_main

DOCS = Path(__file__).parents[1] / "docs"
NAME = "tasks_and_cooperation"
FILES = ("results.csv", "verdict.json", "interactions.svg", "interactions.png")
ASKED = {"s_acc": "In what heads know together", "l_acc": "In what heads answer together"}
ANSWERS = {
    "yes": "under both recipes heads cooperate on two comparisons, and more than on one",
    "no": "heads do not cooperate on two comparisons under either recipe, or no more than on one",
    "depends on the recipe": "yes under one, no under the other",
    "undecided": "by the rules fixed beforehand, these models do not decide it",
}
DOES_NOT_SAY = """\
- Models have {n_heads} heads of {d_head} dimensions and one layer, not the paper's 16 heads. The
  interaction of a pair depends on how many other heads there are: tasks are compared at one size
  here, and not with numbers of other pages.
- Tasks also differ in ranges, in the number of symbols and answers, and in how similar their
  training and test sentences are. Only `{one}` has the same sentences as `{two}`, and models are
  more accurate on it.
- With several answers, s-acc is the accuracy of one-vs-rest probes fitted to training sentences; on
  longer sentences it can be lower than the accuracy of the model itself. The probe of one head
  decides by one inequality over counts per answer. So no single head can represent a rule with
  "and" exactly; this is due to the task, not to training.
- That heads answer together does not mean that they divide the work, one head for each comparison:
  which head does what was not measured. A sum of heads can approximate "and" in other ways.
- A mean over pairs can hide a few cooperating pairs among many redundant ones: the tables have the
  shares of both.
- Models that have not learned their task say little about heads that solve it: the tables have
  their accuracy."""


def page(results: pd.DataFrame, about: Mapping[str, Any]) -> str:
    """Write the page of a full run."""
    verdict = about["verdict"]
    if verdict is None:
        raise ValueError("results: expected those of a full run, got a quick one, without verdict")
    sections = [
        "# Do sub-tasks make heads cooperate?",
        _question(results, about),
        *(_answer(verdict, metric) for metric in JUDGED),
        *(_recipe_answer(results, verdict, recipe) for recipe in RECIPES),
        f"![Mean Shapley interaction of two heads, for each task and recipe]"
        f"({NAME}/interactions.svg)",
        "Small points are models, large points means over seeds with 95 % intervals. In the grey "
        f"band, within ±{INTERACTION:g}, heads neither cooperate nor repeat each other.",
        "## Rules",
        _rules(),
        "## All tasks",
        *(part for recipe in RECIPES for part in _tables(results, verdict, recipe)),
        "## What it does not say",
        _limits(about),
        "## How it was run",
        _run(results, about),
    ]
    return "\n\n".join(sections) + "\n"


def _question(results: pd.DataFrame, about: Mapping[str, Any]) -> str:
    # No heads always give the answer that is right most often, here the second one.
    second = {
        task: interval_of(results, task, RECIPES[0], "s_acc_none")["mean"] for task in (TWO, ONE)
    }
    two, one = (about["tasks"][name]["rule"][0] for name in (TWO, ONE))
    return (
        "Count01 needs one comparison, and the paper says that heads are a pseudo-ensemble: each "
        "tries it by itself. Do they work together if there are two comparisons? "
        f"`{TWO}` asks for `{two}`. Its control `{ONE}` has the same sentences and symbols, but "
        f"one comparison: `{one}`. Its constant makes '4' about as frequent in training as on "
        f"`{TWO}`. Of the test sentences, '4' is right in {rounded_percent(1 - second[ONE])}, and "
        f"in {rounded_percent(1 - second[TWO])} on `{TWO}`."
    )


def _answer(verdict: Mapping[str, Any], metric: str) -> str:
    found, main = verdict["answers"][metric], ", the main question" * (metric == JUDGED[0])
    because = ANSWERS[found]
    words = {verdict["questions"][recipe][metric]["than_control"]["word"] for recipe in RECIPES}
    if found == "no" and words == {"more"}:
        because = "heads do not cooperate on two comparisons, although they are less redundant "
        because += "than on one, under both recipes"
    return f"{ASKED[metric]} ({METRICS[metric].label}{main}): **{found}**, {because}."


def _recipe_answer(results: pd.DataFrame, verdict: Mapping[str, Any], recipe: str) -> str:
    lines = [f"With {NAMES[recipe]}:", ""]
    for metric in JUDGED:
        found, tasks = verdict["questions"][recipe][metric], verdict["tasks"][recipe]
        told = f"- {METRICS[metric].label}: **{found['answer']}**. "
        told += f"On `{TWO}` the mean interaction is {_interval(tasks[TWO][metric])}: "
        told += f"{_do(tasks[TWO][metric]['word'])}. As a share of the gain it is "
        told += f"{_interval(found['of_gain'])}; "
        for name, other in (("than_control", ONE), ("than_count01", PAPERS)):
            interval = found[name]
            told += f"minus that on `{other}`, {_interval(interval)} ({interval['word']})"
            told += "; " if other == ONE else "."
        told += _counted(results, recipe, metric)
        if not found["learned"]:
            missed = [task for task in (TWO, ONE, PAPERS) if not tasks[task]["learned"]]
            told += f" Not learned: {', '.join(f'`{task}`' for task in missed)}."
        lines.append(told)
    return "\n".join(lines)


def _counted(results: pd.DataFrame, recipe: str, metric: str) -> str:
    """The pairs and heads behind the mean."""
    means = [
        interval_of(results, TWO, recipe, f"{metric}_{name}")["mean"]
        for name in ("cooperating_pairs", "redundant_pairs", "competing_heads")
    ]
    return (
        f" Of the pairs, {rounded_percent(means[0])} cooperate and {rounded_percent(means[1])} are "
        f"redundant; {means[2]:.1f} heads work against the rest on average."
    )


def _do(word: str) -> str:
    verbs = {"cooperate": "heads cooperate", "redundant": "heads are redundant"}
    verbs["neither"] = "heads neither cooperate nor repeat each other"
    return verbs.get(word, "undecided")


def _interval(found: Mapping[str, Any]) -> str:
    if found["mean"] is None:
        return "–"
    if found["low"] is None:
        return _signed(found["mean"])
    return f"{_signed(found['mean'])} [{_signed(found['low'])}, {_signed(found['high'])}]"


def _signed(value: float) -> str:
    return signed(round(value, 3) + 0.0, ".3f")  # adding zero takes the sign off a negative one


def _rules() -> str:
    return (
        "The rules were fixed in `experiments/cooperation_rules.py` before the judged seeds were "
        "run. By then we had seen models of development seeds: two before the first version of the "
        "rules (s-acc is the main question because it decides the verdict of an analysis), six "
        "before the second, which made *no* harder to reach, and 36 of a quick run before the "
        "last, which reports the answer of l-acc beside that of s-acc. Brackets are 95 % "
        "intervals over seeds (Student's t; Welch's for differences).\n\n"
        "- The statistic is the mean Shapley interaction of all pairs of heads of a model. Heads "
        f"**cooperate** if its interval is at or above +{INTERACTION:g}, are **redundant** if it "
        f"is at or below −{INTERACTION:g}.\n"
        "- Chance differs between tasks, and so does what heads can gain. Tasks are compared by "
        "the interaction divided by the *gain*, the whole model's value minus that of no heads. "
        f"**More** is a difference of at least +{MORE:g} whose interval is above 0; **not more** "
        f"is an interval below +{MORE:g}.\n"
        f"- **Yes**: heads cooperate on `{TWO}`, with more interaction than on `{ONE}` and on "
        f"`{PAPERS}`. **No**: the interval of `{TWO}` is below +{INTERACTION:g} and, as a share of "
        f"the gain, below +{MORE:g}, or it is not more than on `{ONE}`. Else "
        "**undecided**, also if models of these tasks close less than "
        f"{rounded_percent(LEARNED)} of the gap between always giving the most frequent answer and "
        "always being right.\n"
        "- The main answer is by s-acc, what heads know together. l-acc is what they answer "
        "together."
    )


def _tables(results: pd.DataFrame, verdict: Mapping[str, Any], recipe: str) -> Iterator[str]:
    tasks = verdict["tasks"][recipe]
    names = list(results["task"].unique())
    yield f"### With {NAMES[recipe]}"
    yield _markdown(
        ["task", "accuracy", "gap closed", "heads ≥ 98 %", "heads ≥ 90 % of gain"],
        [
            [f"`{task}`{'' if tasks[task]['learned'] else ' (not learned)'}"]
            + [_mean(results, task, recipe, name, 3) for name in _OF_MODEL]
            for task in names
        ],
    )
    for metric in JUDGED:
        rows = []
        for task in names:
            found = tasks[task][metric]
            shares = interval_of(results, task, recipe, f"{metric}_interaction_of_gain")
            others = (
                _mean(results, task, recipe, f"{metric}_{name}", digits)
                for name, digits in _OF_METRIC.items()
            )
            rows.append([f"`{task}`", _interval(found), found["word"], _interval(shares), *others])
        yield _markdown([METRICS[metric].label, *_HEADINGS], rows)


_OF_MODEL = ("accuracy", "gap_closed", "successful_heads", "heads_with_90_of_gain")
_OF_METRIC = {
    "none": 3, "whole": 3, "cooperating_pairs": 2, "redundant_pairs": 2, "heads_for_99": 1,
    "heads_for_99_of_gain": 1, "competing_heads": 1,
}  # fmt: skip
_HEADINGS = [
    "mean interaction", "heads", "as share of gain", "no heads", "all heads",
    "cooperating pairs", "redundant pairs", "heads for 99 %", "for 99 % of gain", "competing heads",
]  # fmt: skip


def _mean(results: pd.DataFrame, task: str, recipe: str, metric: str, digits: int) -> str:
    mean = interval_of(results, task, recipe, metric)["mean"]
    return "–" if mean is None else f"{mean:.{digits}f}"


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _limits(about: Mapping[str, Any]) -> str:
    shape = about["recipes"][RECIPES[0]]["model"]
    return DOES_NOT_SAY.format(
        n_heads=shape["n_heads"], d_head=shape["d_embed"] // shape["n_heads"], one=ONE, two=TWO
    )


def _run(results: pd.DataFrame, about: Mapping[str, Any]) -> str:
    models = len(results[["task", "recipe", "seed"]].drop_duplicates())
    missing = int(results["value"].isna().sum())
    shape = about["recipes"][RECIPES[0]]["model"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"    python -m experiments.{NAME} --size full\n"
        "    python -m experiments.cooperation_page runs/tasks_and_cooperation/full\n\n"
        f"{models} models, seeds {ranges(about['seeds'])}, d = {shape['d_embed']} with "
        f"{shape['n_heads']} heads, all {number(2 ** shape['n_heads'] - 1)} groups of heads "
        "of each: half as many heads as in the paper, of the same size. Tables show means "
        f"over seeds: *heads ≥ 98 %* is the share of heads with an s-acc of at least "
        f"{SUCCESSFUL:g} alone, *heads ≥ 90 % of gain* that of heads whose s-acc alone has 90 % of "
        "the gain, "
        "*heads for 99 %* the size of the smallest group with 99 % of the whole model's value, "
        "*competing heads* the number of those with a Shapley value of at most "
        f"{number(AGAINST)}; pairs cooperate or are redundant from ±{INTERACTION:g} on. "
        f"{missing} shares of gains below {LEAST_GAIN:g} are left out. Every model is in "
        f"`{NAME}/results.csv` (task, recipe, seed, metric, value), the verdict with tasks and "
        f"recipes in `{NAME}/verdict.json`. Rules: SHA-256 `{about['rules_sha256'][:16]}…`. "
        f"Versions: {versions}."
    )


def write_page(results: Path, docs: Path = DOCS) -> Path:
    """Copy the files of a full run into the docs, and write the page of them."""
    table, about = pd.read_csv(results / "results.csv"), read_about(results)
    text = page(table, about)
    (docs / NAME).mkdir(parents=True, exist_ok=True)
    for name in FILES:
        write_atomically(docs / NAME / name, (results / name).read_bytes())
    write_atomically(docs / f"{NAME}.md", text.encode())
    return docs / f"{NAME}.md"


def read_about(results: Path) -> dict[str, Any]:
    """Read the verdict of a run, with what it was run with."""
    return dict(json.loads((results / "verdict.json").read_text("utf-8")))


def main() -> None:
    """Update the page."""
    page_main(__doc__, write_page)


if __name__ == "__main__":
    main()
