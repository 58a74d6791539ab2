"""Groups of heads of a model measured as far as is asked for: all of them, or those at the ends."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from count01_lens.common.types import Array
from count01_lens.common.validation import check_choice
from count01_lens.heads.ends import EndValues, largest_groups
from count01_lens.heads.group_numbers import OF_ALL, ends_numbers, group_numbers
from count01_lens.heads.groups import LARGEST_EXACT, as_rows, fit_all
from count01_lens.heads.head_data import HeadData
from count01_lens.heads.metrics import Groups, Starts, metrics_of

WhichGroups = Literal["ends", "all"]
PROBED = "s_acc"  # the metric that needs a fit for each group


@dataclass(frozen=True, eq=False)
class GroupValues:
    """Values of groups by a metric: those at the ends and, where they were measured, of all."""

    ends: EndValues
    values: Float[Array, " mask"] | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """What they come to (`group_numbers`); NaN where that needs all groups."""
        if self.values is not None:
            return group_numbers(self.values)
        return ends_numbers(self.ends) | dict.fromkeys(OF_ALL, np.nan)


class MeasuredGroups(NamedTuple):
    """Values by metric, and what the probes of the largest groups may start from another time."""

    metrics: dict[str, GroupValues]
    starts: Starts | None


def check_which(n_heads: int, groups: WhichGroups, probes: WhichGroups) -> None:
    """Raise unless these groups of so many heads can be measured."""
    for name, chosen in (("groups", groups), ("probes", probes)):
        check_choice(name, chosen, ("ends", "all"))
        if chosen == "all" and n_heads > LARGEST_EXACT:
            raise ValueError(
                f"{name}: expected 'ends' for {n_heads} heads, which have 2^{n_heads} - 1 groups "
                f"(all are measured of up to {LARGEST_EXACT} heads), got 'all'"
            )


def measure_groups(
    data: HeadData,
    alone: Mapping[str, Float[Array, " head"]],
    *,
    groups: WhichGroups = "all",
    probes: WhichGroups = "ends",
    starts: Starts | None = None,
    progress: bool | None = False,
) -> MeasuredGroups:
    """Measure groups of heads by every metric of a task.

    Args:
        data: of the model.
        alone: values of single heads by metric, which are known already.
        groups: "all", or those at the "ends": single heads, all but one, and all.
        probes: the same for s-acc, which needs a fit for each group.
        starts: of an earlier call, for a model that is nearly the same.
        progress: whether to show it; None in a terminal or notebook only.
    """
    check_which(data.n_heads, groups, probes)
    large = Groups(data, largest_groups(data.n_heads), start=starts, progress=progress)
    everything = _all_values(data, groups == "all", probes == "all", progress)
    found = {}
    for metric in metrics_of(data):
        values, none = metric.measure(large), metric.of_no_heads(data)
        but_one = float(values[:-1].mean()) if data.n_heads > 1 else none
        single = float(np.mean(alone[metric.name]))
        ends = EndValues(data.n_heads, none, single, but_one, float(values[-1]))
        found[metric.name] = GroupValues(ends, everything.get(metric.name))
    return MeasuredGroups(found, large.fits.starts)


def _all_values(
    data: HeadData, groups: bool, probes: bool, progress: bool | None
) -> dict[str, Float[Array, " mask"]]:
    """Values of all groups by metric, of those metrics for which they are asked for."""
    chosen = [
        metric for metric in metrics_of(data) if (probes if metric.name == PROBED else groups)
    ]
    if not chosen:
        return {}
    masks = as_rows(np.arange(1, 2**data.n_heads), data.n_heads)
    measured: Any = Groups(data, masks, progress=progress)
    if probes:
        measured.probe_accuracy, _ = fit_all(data, masks, progress=progress)
    return {
        metric.name: np.concatenate([[metric.of_no_heads(data)], metric.measure(measured)])
        for metric in chosen
    }
