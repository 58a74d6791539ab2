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
    check_exact(data.n_heads)
    numbers = np.arange(1, 2**data.n_heads)
    groups = Groups(data, as_rows(numbers, data.n_heads))
    groups.probe_accuracy, worst = fit_all(data, groups.masks, progress=progress)
    table = pd.DataFrame({"mask": numbers, "size": subset_sizes(numbers), **measure_all(groups)})
    empty = {metric.name: metric.of_no_heads(data) for metric in metrics_of(data)}
    return AllGroups(table, empty, worst)


def fit_all(
    data: HeadData, masks: Bool[Array, "group head"], *, progress: bool | None = False
) -> tuple[Float[Array, " group"], float]:
    """Fit probes from small groups to large ones, each starting from the best one head smaller.

    The groups are all there are, in the order of their numbers. Returns the accuracy of each one's
    probe, and the worst relative gradient of all fits.
    """
    n = len(masks) + 1
    starts: Array | None = None
    objectives, scores, worst = np.full(n, np.inf), np.zeros(n), float("nan")
    sizes = masks.sum(axis=1)
    of_size = [np.flatnonzero(sizes == size) + 1 for size in range(1, data.n_heads + 1)]
    portions = [
        part for same in of_size for part in np.array_split(same, -(-len(same) // _PORTION))
    ]
    for numbers in track(portions, len(portions), "fitting all groups", progress):
        rows = masks[numbers - 1]
        smaller = np.where(rows, numbers[:, None] ^ (1 << np.arange(data.n_heads)), 0)
        best = smaller[np.arange(len(numbers)), objectives[smaller].argmin(axis=1)]
        groups = Groups(data, rows, start=None if starts is None else starts[best])
        scores[numbers] = groups.probe_accuracy
        fits = groups.fits
        worst = float(np.fmax(worst, fits.worst_gradient))
        if fits.starts is not None:
            if starts is None:
                starts = np.zeros((n, *fits.starts.shape[1:]))
            starts[numbers], objectives[numbers] = fits.starts, fits.objectives
    return scores[1:], worst


def as_rows(numbers: Int[Array, " group"], n_heads: int) -> Bool[Array, "group head"]:
    """Write groups given as numbers as rows of booleans."""
    return ((numbers[:, None] >> np.arange(n_heads)) & 1).astype(bool)


def check_exact(n_heads: int) -> None:
    """Raise if there are too many heads to look at every group."""
    if n_heads > LARGEST_EXACT:
        raise ValueError(
            f"{n_heads} heads have 2^{n_heads} - 1 groups: expected at most {LARGEST_EXACT} heads; "
            "use analysis.sampled_shapley and .sampled_interactions, which estimate from a few"
        )
