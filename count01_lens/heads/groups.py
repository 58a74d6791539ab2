"""All groups of heads: a group is a number whose bit i stands for head i."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from count01_lens.common.progress import track
from count01_lens.common.types import Array
from count01_lens.heads.contributions import ContributionsInWork
from count01_lens.heads.games import subset_sizes
from count01_lens.heads.head_data import HeadData
from count01_lens.heads.metrics import METRICS, Groups, Noted, measure_all, metrics_of
from count01_lens.tasks.prompts import Task

LARGEST_EXACT = 18
# Probes fitted together: enough to show progress, few enough to waste little if it is stopped.
_PORTION = 2048
# What takes less than about a minute on a laptop: where attributions add up, all groups of so many
# heads; where groups have to be run, so many tokens.
_QUICK_HEADS, _QUICK_TOKENS = 16, 20_000_000


@dataclass(frozen=True, eq=False)
class AllGroups:
    """Every group of heads with its metrics.

    Attributes:
        table: a row per group: mask, size, and a column per metric.
        empty: the metrics of no heads.
        worst_gradient: the largest relative gradient at the end of any probe's fit; NaN where
            nobody knows.
        contributions: by metric, what each test prompt contributes to Shapley values and
            interactions (`heads.contributions`); of metrics that are means over prompts.
    """

    table: pd.DataFrame
    empty: dict[str, float]
    worst_gradient: float
    contributions: dict[str, Float[Array, "prompt pair"]]

    def values(self, metric: str) -> Float[Array, " mask"]:
        """Values of a metric by mask, the empty group's at 0."""
        return np.concatenate([[self.empty[metric]], self.table[metric].to_numpy()])


def all_groups(data: HeadData, *, progress: bool | None = False) -> AllGroups:
    """Compute the metrics of all 2^a − 1 groups."""
    return GroupsInWork(data).finish(progress=progress)


class GroupsInWork:
    """All groups of heads while they are measured: what is done is kept if it is interrupted."""

    def __init__(self, data: HeadData):
        check_exact(data.n_heads)
        self.data, self.numbers = data, np.arange(1, 2**data.n_heads)
        self.groups = Groups(data, as_rows(self.numbers, data.n_heads), noted=self._note)
        self.probes = ProbesInWork(data, self.groups.masks, noted=self._note)
        self.without_heads = {each.name: each.without_heads(data) for each in metrics_of(data)}
        self.contributions = {
            name: ContributionsInWork(data.n_heads, len(right))
            for name, right in self.without_heads.items()
            if METRICS[name].right_by is not None
        }
        for name, in_work in self.contributions.items():
            in_work.add(np.array([0]), self.without_heads[name][None])

    def finish(self, *, progress: bool | None = False) -> AllGroups:
        """Measure what is not yet measured."""
        groups = self.groups
        groups.progress = progress
        groups.probe_accuracy, worst = self.probes.finish(progress=progress)
        sizes = subset_sizes(self.numbers)
        table = pd.DataFrame({"mask": self.numbers, "size": sizes, **measure_all(groups)})
        empty = {name: float(right.mean()) for name, right in self.without_heads.items()}
        contributions = {name: each.finished() for name, each in self.contributions.items()}
        return AllGroups(table, empty, worst, contributions)

    def _note(
        self, source: str, which: Int[Array, " some"], right: Bool[Array, "some prompt"]
    ) -> None:
        for name, in_work in self.contributions.items():
            if METRICS[name].right_by == source:
                in_work.add(self.numbers[which], right)


def fit_all(
    data: HeadData, masks: Bool[Array, "group head"], *, progress: bool | None = False
) -> tuple[Float[Array, " group"], float]:
    """Fit a probe to each of all groups, which are in the order of their numbers.

    Returns the accuracy of each one's probe, and the worst relative gradient of all fits.
    """
    return ProbesInWork(data, masks).finish(progress=progress)


class ProbesInWork:
    """Probes fitted from small groups to large ones, each from the best one head smaller."""

    def __init__(
        self, data: HeadData, masks: Bool[Array, "group head"], *, noted: Noted | None = None
    ):
        self.data, self.masks, self.noted = data, masks, noted
        n, sizes = len(masks) + 1, masks.sum(axis=1)
        of_size = [np.flatnonzero(sizes == size) + 1 for size in range(1, data.n_heads + 1)]
        self.to_do = [
            part for same in of_size for part in np.array_split(same, -(-len(same) // _PORTION))
        ]
        self.starts: Array | None = None
        self.objectives, self.scores, self.worst = np.full(n, np.inf), np.zeros(n), float("nan")

    def finish(self, *, progress: bool | None = False) -> tuple[Float[Array, " group"], float]:
        """Fit what is not yet fitted; return accuracies, and the worst relative gradient."""
        # A list of its own: what is done is taken out of the other only when it is done.
        for numbers in track(list(self.to_do), len(self.to_do), "fitting all groups", progress):
            self._fit(numbers)
            self.to_do.pop(0)
        return self.scores[1:], self.worst

    def _fit(self, numbers: Int[Array, " group"]) -> None:
        rows, starts, objectives = self.masks[numbers - 1], self.starts, self.objectives
        smaller = np.where(rows, numbers[:, None] ^ (1 << np.arange(self.data.n_heads)), 0)
        best = smaller[np.arange(len(numbers)), objectives[smaller].argmin(axis=1)]
        groups = Groups(
            self.data,
            rows,
            start=None if starts is None else starts[best],
            noted=None if self.noted is None else partial(self._note, numbers),
        )
        scores, fits = groups.probe_accuracy, groups.fits
        if fits.starts is not None:
            if self.starts is None:
                self.starts = np.zeros((len(self.scores), *fits.starts.shape[1:]))
            self.starts[numbers], self.objectives[numbers] = fits.starts, fits.objectives
        self.scores[numbers] = scores
        self.worst = float(np.fmax(self.worst, fits.worst_gradient))

    def _note(
        self,
        numbers: Int[Array, " group"],
        source: str,
        which: Int[Array, " some"],
        right: Bool[Array, "some prompt"],
    ) -> None:
        assert self.noted is not None
        self.noted(source, numbers[which] - 1, right)


def why_groups_take_long(data: HeadData, task: Task) -> str | None:
    """Tell why measuring all groups takes more than about a minute; None if it does not.

    Counts what has to be done instead of timing it, so that the same command does the same thing
    on every machine, however busy.
    """
    n = data.n_heads
    if n > LARGEST_EXACT:
        return f"{n} heads have too many groups"
    if data.group_logits is None:
        return None if n <= _QUICK_HEADS else f"{n} heads have {2**n - 1:,} groups"
    n_tokens = sum(len(row) for asked in task.questions.values() for row in asked.test.sequences())
    if (2**n - 1) * n_tokens <= _QUICK_TOKENS:
        return None
    return f"the model has to be run on {n_tokens:,} tokens for {2**n - 1:,} groups"


def as_rows(numbers: Int[Array, " group"], n_heads: int) -> Bool[Array, "group head"]:
    """Write groups given as numbers as rows of booleans."""
    return ((numbers[:, None] >> np.arange(n_heads)) & 1).astype(bool)


def check_exact(n_heads: int) -> None:
    """Raise if there are too many heads to look at every group."""
    if n_heads > LARGEST_EXACT:
        raise ValueError(
            f"{n_heads} heads have 2^{n_heads} - 1 groups: expected at most {LARGEST_EXACT} heads; "
            "use analysis.sampled_shapley and .sampled_interactions, which estimate from some"
        )
