"""The mean interaction of all pairs: what the last head adds, less what the first does.

Averaged over pairs, v(S+i+j) − v(S+i) − v(S+j) + v(S) is a second difference of v̄_s, the mean value
of groups of s heads. All sizes of S count alike in the Shapley interaction, and a sum of second
differences has two ends:

    mean I = [ (v̄_a − v̄_{a−1}) − (v̄_1 − v̄_0) ] / (a − 1).

So single heads, the whole model and the whole model without one head are enough for it, however
many heads there are; and it says nothing of the groups between. If every head did what all do
together, as exact copies do, it would be −(v̄_a − v̄_0) / (a − 1).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from count01_lens.common.types import Array
from count01_lens.heads.head_data import HeadData
from count01_lens.heads.metrics import Groups, Metric


def mean_interaction(by_size: Float[Array, "*any size"]) -> Float[Array, "*any"]:
    """Mean Shapley interaction of all pairs, from the mean value of groups of 0, 1, ... heads."""
    n = by_size.shape[-1] - 1
    last, first = by_size[..., n] - by_size[..., n - 1], by_size[..., 1] - by_size[..., 0]
    return np.asarray((last - first) / (n - 1))


class Ends(NamedTuple):
    """The mean interaction, by metric that is a mean over prompts.

    Attributes:
        by_prompt: what each test prompt contributes to it.
        gain: what all heads reach beyond none.
    """

    by_prompt: Float[Array, " prompt"]
    gain: float


def measure_ends(
    data: HeadData, metrics: Sequence[Metric], *, progress: bool | None = False
) -> dict[str, Ends]:
    """Measure single heads, the whole model, and the whole model without each one."""
    n = data.n_heads
    singles, whole = np.eye(n, dtype=bool), np.ones((1, n), dtype=bool)
    found: dict[str, Bool[Array, "group prompt"]] = {}

    def note(source: str, which: Array, right: Bool[Array, "some prompt"]) -> None:
        found.setdefault(source, np.zeros((2 * n + 1, right.shape[1]), dtype=bool))[which] = right

    masks = np.concatenate([singles, ~singles, whole])
    groups = Groups(data, masks, noted=note, progress=progress)
    ends = {}
    for metric in metrics:
        metric.measure(groups)
        right, empty = found[metric.right_by or ""], metric.without_heads(data)
        last = right[-1] - right[n:-1].mean(axis=0)
        first = right[:n].mean(axis=0) - empty
        gain = float(right[-1].mean() - empty.mean())
        ends[metric.name] = Ends(np.asarray((last - first) / (n - 1)), gain)
    return ends
