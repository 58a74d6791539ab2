"""All groups of heads: a group is a number whose bit i stands for head i."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from count01_lens.common.progress import track
from count01_lens.common.types import Array
from count01_lens.heads.games import subset_sizes
from count01_lens.heads.head_data import HeadData
from count01_lens.heads.metrics import Groups, measure_all, metrics_of

LARGEST_EXACT = 18
# Probes fitted together: enough to show progress, few enough to waste little if it is stopped.
_PORTION = 512


@dataclass(frozen=True, eq=False)
class AllGroups:
    """Every group of heads with its metrics.

    Attributes:
        table: a row per group: mask, size, and a column per metric.
        empty: the metrics of no heads.
        worst_gradient: the largest relative gradient at the end of any probe's fit; NaN where
            nobody knows.
    """

    table: pd.DataFrame
    empty: dict[str, float]
    worst_gradient: float

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
        self.groups = Groups(data, as_rows(self.numbers, data.n_heads))
        self.probes = ProbesInWork(data, self.groups.masks)

    def finish(self, *, progress: bool | None = False) -> AllGroups:
        """Measure what is not yet measured."""
        data, groups = self.data, self.groups
        groups.progress = progress
        groups.probe_accuracy, worst = self.probes.finish(progress=progress)
        sizes = subset_sizes(self.numbers)
        table = pd.DataFrame({"mask": self.numbers, "size": sizes, **measure_all(groups)})
        empty = {metric.name: metric.of_no_heads(data) for metric in metrics_of(data)}
        return AllGroups(table, empty, worst)


def fit_all(
    data: HeadData, masks: Bool[Array, "group head"], *, progress: bool | None = False
) -> tuple[Float[Array, " group"], float]:
    """Fit a probe to each of all groups, which are in the order of their numbers.

    Returns the accuracy of each one's probe, and the worst relative gradient of all fits.
    """
    return ProbesInWork(data, masks).finish(progress=progress)


class ProbesInWork:
    """Probes fitted from small groups to large ones, each from the best one head smaller."""

    def __init__(self, data: HeadData, masks: Bool[Array, "group head"]):
        self.data, self.masks = data, masks
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
        groups = Groups(self.data, rows, start=None if starts is None else starts[best])
        scores, fits = groups.probe_accuracy, groups.fits
        if fits.starts is not None:
            if self.starts is None:
                self.starts = np.zeros((len(self.scores), *fits.starts.shape[1:]))
            self.starts[numbers], self.objectives[numbers] = fits.starts, fits.objectives
        self.scores[numbers] = scores
        self.worst = float(np.fmax(self.worst, fits.worst_gradient))


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
