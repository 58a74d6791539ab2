"""`compare_heads({...})`: the heads of several models, such as seeds, side by side.

One model says what its heads do; several say what heads of such models do. For each metric the mean
interaction over pairs has an interval over models (Student's t), and a word: they **cooperate** if
the interval is at or above +0.01, are **redundant** if it is at or below −0.01, do **neither** if
it is between the two; else it is **undecided**.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import nn

from count01_lens.common.progress import track
from count01_lens.common.student import MeanInterval, mean_interval
from count01_lens.common.text import plural, written_signed
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.ends import EndValues
from count01_lens.heads.games import shapley_interactions, subset_sizes
from count01_lens.heads.group_measures import (
    GroupValues,
    WhichGroups,
    check_which,
    measure_groups,
)
from count01_lens.heads.groups import LARGEST_EXACT
from count01_lens.heads.made_from import n_models
from count01_lens.heads.metrics import CATEGORIES, METRICS
from count01_lens.heads.sentences import headline, mean_interactions
from count01_lens.heads.verdict import judged_metrics, word_of
from count01_lens.models.checkpoints import open_checkpoint
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.prompts import Task


def word_over_models(interval: MeanInterval) -> str:
    """Name what heads do, by the interval of their mean interaction over models."""
    if interval.low is None or interval.high is None:
        return "undecided"
    return word_of(interval.low, interval.high)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The heads of several models side by side.

    Attributes:
        table: a row per model: model (its name), heads, accuracy by question (`accuracy`,
            `end_accuracy`), successful, mixed and failed heads, and for each metric
            `<metric>_<number>` with the numbers of `heads.group_numbers.group_numbers`; NaN where
            not all groups were measured.
        metrics: the names of the metrics.
        judged: the metrics that the answer in words is about, each with its question, as in the
            verdict of an analysis.
        groups: by model and metric, the values of groups.
        notes: what to keep in mind.
    """

    table: pd.DataFrame
    metrics: tuple[str, ...]
    judged: Mapping[str, str]
    groups: Mapping[str, Mapping[str, GroupValues]] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def means(self) -> pd.DataFrame:
        """A row per number of the table: its mean over models, 95 % interval, and their number."""
        numbers = self.table.columns.drop("model")
        return pd.DataFrame(
            [{"number": name, **mean_interval(self.table[name])._asdict()} for name in numbers]
        )

    def interaction(self, metric: str) -> MeanInterval:
        """Mean interaction over pairs, averaged over models, with its 95 % interval."""
        return mean_interval(self.table[f"{metric}_mean_interaction"])

    @property
    def words(self) -> dict[str, str]:
        """By metric: cooperate, redundant, neither or undecided."""
        return {metric: word_over_models(self.interaction(metric)) for metric in self.metrics}

    @property
    def curves(self) -> pd.DataFrame:
        """A row per model, metric and size of group: the mean over groups of that size."""
        rows = []
        for model, metrics in self.groups.items():
            for metric, found in metrics.items():
                for size, value in means_by_size(found).items():
                    rows.append({"model": model, "metric": metric, "size": size, "mean": value})
        return pd.DataFrame(rows)

    def interactions(self, metric: str) -> dict[str, Float[Array, "head head"]]:
        """Shapley interactions of all pairs, for every model with all groups measured."""
        values = {model: metrics[metric].values for model, metrics in self.groups.items()
                  if metric in metrics}  # fmt: skip
        return {
            model: shapley_interactions(found)
            for model, found in values.items()
            if found is not None
        }

    @property
    def answer(self) -> str:
        """The result in words."""
        n = len(self.table)
        words: dict[str, dict[str, str]] = {}
        numbers: dict[str, dict[str, str]] = {}
        for metric, question in self.judged.items():
            words.setdefault(question, {})[metric] = self.words[metric]
            numbers.setdefault(question, {})[metric] = written(self.interaction(metric))
        heads = f"the heads of these {n} models" if n > 1 else "the heads of this model"
        intervals = (
            "In brackets: the 95 % interval of its mean over models."
            if n > 1
            else "One model has no interval over models: compare several."
        )
        return f"{headline(words, heads)} {mean_interactions(numbers)} {intervals}"

    @property
    def summary(self) -> pd.DataFrame:
        """A row per model: its accuracy, its heads by category, and their mean interactions."""
        shown = self.table[
            ["model", "heads", "accuracy", *CATEGORIES]
            + [f"{metric}_mean_interaction" for metric in self.metrics]
        ]
        return shown.rename(columns=lambda name: str(name).replace("_mean_inter", " inter"))

    def __repr__(self) -> str:
        lines = [
            self.answer,
            self.summary.to_string(index=False, float_format=lambda x: f"{x:.4f}", na_rep="–"),
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def report(self, path: str | Path) -> Path:
        """Write the comparison as one HTML file, which opens from disk."""
        from count01_lens.views.comparison_report import write_comparison

        return write_comparison(self, Path(path))


def compare_heads(
    models: Mapping[str, HeadAnalysis | HookedTransformer | str | PathLike[str]],
    task: Task | Splits | None = None,
    *,
    groups: WhichGroups = "all",
    probes: WhichGroups = "ends",
    progress: bool | None = None,
) -> Comparison:
    """Put the heads of several models side by side, and say what they have in common.

    The mean interaction over pairs, which decides the words, is exact for any number of heads: it
    needs single heads, all heads, and all heads but one. Models may differ in their number of
    heads; with more than 18, not all groups are measured.

    Args:
        models: by name: analyses, HookedTransformers, or paths of checkpoints. Groups that an
            analysis has measured are not measured again.
        task: what models and checkpoints are asked; by default the task each was built for.
        groups: for l-acc, ROC AUC and '[EOS]' l-acc, "all" groups (seconds for a model of 16
            heads), or only the "ends": single heads, all heads, and all but one.
        probes: the same for s-acc; "all" takes minutes.
        progress: whether to show progress; None shows it in a terminal or notebook only.

    Example:
        >>> found = cl.compare_heads({"one": cl.ensemble_model(2), "two": cl.ensemble_model(3)})
        >>> found.table["s_acc_mean_interaction"].round(2).tolist()
        [-0.46, -0.23]
        >>> found.words["s_acc"]
        'undecided'
    """
    if not isinstance(models, Mapping) or not models:
        raise TypeError(
            f"models: expected several by name, {{'name': model, ...}}, got {models!r:.80}"
        )
    for name, model in models.items():
        if not isinstance(name, str):
            raise TypeError(f"models: expected names as keys, got {name!r:.80}")
        if not isinstance(model, HeadAnalysis | nn.Module | str | PathLike):
            raise TypeError(
                f"models[{name!r}]: expected an analysis, a HookedTransformer or the path of a "
                f"checkpoint, got {model!r:.80}"
            )
    check_which(1, groups, probes)
    opened = {
        name: open_checkpoint(model) if isinstance(model, str | PathLike) else model
        for name, model in models.items()
    }
    rows, measured, notes, seen = [], {}, [], dict[str, HeadAnalysis]()
    questions: dict[str, None] = {}
    n_layers = 1
    for name in track(opened, len(opened), "comparing models", progress):
        model = opened[name]
        analysis = (
            model if isinstance(model, HeadAnalysis) else analyze_heads(model, task, progress=False)
        )
        seen[name] = analysis
        found, few = _measured(analysis, groups, probes)
        if few:
            notes.append(
                f"{name}: {len(analysis.heads)} heads have too many groups to measure all of them"
            )
        questions |= dict.fromkeys(analysis.data.asked)
        n_layers = max(n_layers, analysis.heads["layer"].nunique())
        rows.append({"model": name, **_row(analysis, found)})
        measured[name] = found
    metrics = tuple(name for name in METRICS if any(name in found for found in measured.values()))
    judged = judged_metrics(list(questions), n_layers)
    notes += _mixed(seen)
    return Comparison(pd.DataFrame(rows), metrics, judged, measured, tuple(notes))


def _mixed(analyses: Mapping[str, HeadAnalysis]) -> list[str]:
    """Say where models are the same, or were not asked or not measured in the same way."""
    again = len(analyses) - n_models([each.made_from for each in analyses.values()])
    twice = [f"{plural(again, 'model')} given more than once: intervals count each as a new model"]
    found: dict[str, set[str]] = {
        "asked about different tasks or data": {each.made_from.task for each in analyses.values()},
        "measured with different ablations": {each.data.ablation for each in analyses.values()},
        "probed by different probes": {repr(each.data.probe) for each in analyses.values()},
    }
    mixed = [
        f"the models were {how}: means mix them" for how, ways in found.items() if len(ways) > 1
    ]
    return twice[: bool(again)] + mixed


def _measured(
    analysis: HeadAnalysis, groups: WhichGroups, probes: WhichGroups
) -> tuple[dict[str, GroupValues], bool]:
    """Values of groups by metric, and whether there are too many heads for what was asked."""
    if analysis.known_groups is not None:
        known = {metric: analysis.known_groups.values(metric) for metric in analysis.pairs}
        return {name: GroupValues(EndValues.of_values(v), v) for name, v in known.items()}, False
    many = len(analysis.heads) > LARGEST_EXACT and "all" in (groups, probes)
    alone = {metric: np.diag(matrix) for metric, matrix in analysis.pairs.items()}
    if many:
        groups = probes = "ends"
    return measure_groups(analysis.data, alone, groups=groups, probes=probes).metrics, many


def _row(analysis: HeadAnalysis, found: Mapping[str, GroupValues]) -> dict[str, float]:
    kinds = analysis.heads["category"].value_counts()
    accuracies = {"accuracy": analysis.accuracy["answer"]} | {
        f"{question}_accuracy": analysis.accuracy[question]
        for question in analysis.data.asked
        if question != "answer"
    }
    numbers = {
        f"{metric}_{name}": value
        for metric, values in found.items()
        for name, value in values.numbers.items()
    }
    counted = {kind: int(kinds.get(kind, 0)) for kind in CATEGORIES}
    return {"heads": len(analysis.heads), **accuracies, **counted, **numbers}


def means_by_size(found: GroupValues) -> dict[int, float]:
    """Mean value over the groups of each size; of sizes that were measured."""
    if found.values is None:
        ends = found.ends
        known = {0: ends.none, 1: ends.first, ends.n_heads - 1: ends.but_one}
        return dict(sorted((known | {ends.n_heads: ends.whole}).items()))
    sizes = subset_sizes(np.arange(len(found.values)))
    sums = np.bincount(sizes, found.values) / np.bincount(sizes)
    return dict(enumerate(sums.tolist()))


def written(interval: MeanInterval, form: str = ".3f") -> str:
    """Write a mean with its interval, if there is one."""
    if interval.n == 0:
        return "–"
    if interval.low is None or interval.high is None:
        return written_signed(interval.mean, form)
    low, high = written_signed(interval.low, form), written_signed(interval.high, form)
    return f"{written_signed(interval.mean, form)} [{low}, {high}]"
