"""Heads together during training: what groups of them are worth at many moments of a run.

A pass over the moments gives two tables. That of models has a row for each metric, because every
metric has the same numbers: one can be picked, plotted and averaged over seeds like another. That
of heads is the one of `head_evolution`, with what each head is worth beside what it does alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from count01_lens.common.types import Array
from count01_lens.common.validation import check_choice
from count01_lens.heads.games import shapley_values
from count01_lens.heads.group_numbers import (
    OF_ALL,
    OF_ENDS,
    ends_numbers,
    group_numbers,
    label_heads,
)
from count01_lens.heads.groups import LARGEST_EXACT, as_rows, fit_all
from count01_lens.heads.mean_interaction import Ends, largest_groups
from count01_lens.heads.metrics import METRICS, Groups, metrics_of
from count01_lens.tasks.dataset import Splits
from count01_lens.training.evolution import Moment, follow

if TYPE_CHECKING:
    from count01_lens.training.training_run import TrainResult

WhichGroups = Literal["ends", "all"]
PROBED = "s_acc"  # the metric that needs a fit for each group


@dataclass(frozen=True, eq=False)
class GroupEvolution:
    """What heads are worth together during training.

    Attributes:
        table: a row per model, epoch and metric: model, seed, epoch, metric, and the columns of
            `heads.group_numbers.group_numbers`; NaN where not all groups were measured.
        heads: the table of `head_evolution`, with `shapley_<metric>` and `label_<metric>` where all
            groups were measured.
    """

    table: pd.DataFrame
    heads: pd.DataFrame

    def __repr__(self) -> str:
        epochs = self.table["epoch"]
        last = self.table[epochs == epochs.max()].groupby("metric", sort=False)["mean_interaction"]
        models = self.table["model"].nunique()
        lines = [
            f"{models} models at {epochs.nunique()} epochs, {epochs.min()} to {epochs.max()}; mean "
            "interaction of two heads at the last, and over models from … to:"
        ]
        lines += [
            f"{METRICS[str(metric)].label}: {found.mean():+.4f} ({found.min():+.4f} to "
            f"{found.max():+.4f})"
            for metric, found in last
        ]
        return "\n".join(lines)


def group_evolution(
    result: "TrainResult",
    epochs: Iterable[int] | None = None,
    splits: Splits | None = None,
    *,
    steps: Iterable[int] | None = None,
    groups: WhichGroups = "all",
    probes: WhichGroups = "ends",
    progress: bool | None = None,
) -> GroupEvolution:
    """Measure what heads are worth together, after each of some epochs, for all models of a run.

    The mean interaction over pairs is exact in every case: it follows from the groups at the ends,
    of one head and of all but one (`heads.mean_interaction`). Which pairs cooperate, what each head
    is worth and how large a group has to be need all groups: two seconds for a model of 16 heads at
    one moment, and minutes if a probe is to be fitted to each.

    Args:
        result: of `train` or `load_run`, with snapshots of these epochs.
        epochs: by default all that were kept.
        splits: the data set of Count01; by default that of the run. Other tasks have their own.
        steps: instead of epochs, steps of which snapshots were kept, such as early ones
            (`first_epoch_steps` of `train`); the tables then have parts of epochs.
        groups: "all" of them, or those at the "ends" only, for l-acc, ROC AUC and '[EOS]' l-acc.
        probes: the same for s-acc, which needs a fit for each group.
        progress: whether to show it; None in a terminal or notebook only.

    Returns:
        two tables. Ctrl-C keeps the moments that are done.

    Raises:
        ValueError: there are too many heads for all groups; choose "ends".

    Example:
        >>> config = cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=4), epochs=2)
        >>> result = cl.train(config, seeds=[0], progress=False)
        >>> found = cl.group_evolution(result, [0, 2])
        >>> found.table.groupby("metric", sort=False)["epoch"].apply(list).to_dict()
        {'l_acc': [0, 2], 'roc_auc': [0, 2], 's_acc': [0, 2], 'eos_l_acc': [0, 2]}
    """
    n_heads = result.configs[0].model.n_heads
    for name, chosen in (("groups", groups), ("probes", probes)):
        check_choice(name, chosen, ("ends", "all"))
        if chosen == "all" and n_heads > LARGEST_EXACT:
            raise ValueError(
                f"{name}: expected 'ends' for {n_heads} heads, which have 2^{n_heads} - 1 groups "
                f"(all are measured of up to {LARGEST_EXACT} heads), got 'all'"
            )
    measuring = _Measuring(groups == "all", probes == "all", [None] * len(result.seeds))
    label = "groups of heads during training"
    table, heads = follow(result, epochs, splits, measuring.tables, label, progress, steps)
    return GroupEvolution(table, heads)


@dataclass
class _Measuring:
    """How moments are measured; probes of large groups start from those of the moment before."""

    all_groups: bool
    all_probes: bool
    starts: list[Array | None]

    def tables(self, moment: Moment) -> list[pd.DataFrame]:
        """A row per metric, and a row per head."""
        rows, heads = [], moment.table.copy()
        ends, everything = self._ends(moment), self._all(moment)
        for metric in metrics_of(moment.data):
            numbers = dict.fromkeys((*OF_ENDS, *OF_ALL), np.nan) | ends_numbers(ends[metric.name])
            if metric.name in everything:
                values = everything[metric.name]
                worth = shapley_values(values)
                numbers |= group_numbers(values)
                heads[f"shapley_{metric.name}"] = worth
                heads[f"label_{metric.name}"] = label_heads(values, worth)
            rows.append({**moment.place, "metric": metric.name, **numbers})
        return [pd.DataFrame(rows), pd.DataFrame({**moment.place, **heads})]

    def _ends(self, moment: Moment) -> dict[str, Ends]:
        data = moment.data
        large = Groups(data, largest_groups(data.n_heads), start=self.starts[moment.model])
        found = {}
        for metric in metrics_of(data):
            alone, values = moment.table[metric.name], metric.measure(large)
            none, whole = metric.of_no_heads(data), float(values[-1])
            but_one = float(values[:-1].mean()) if data.n_heads > 1 else none
            found[metric.name] = Ends(data.n_heads, none, float(alone.mean()), but_one, whole)
        self.starts[moment.model] = large.fits.starts
        return found

    def _all(self, moment: Moment) -> dict[str, Float[Array, " mask"]]:
        """Values of all groups by metric, of those metrics for which they are asked for."""
        data = moment.data
        chosen = [
            metric
            for metric in metrics_of(data)
            if (self.all_probes if metric.name == PROBED else self.all_groups)
        ]
        if not chosen:
            return {}
        masks = as_rows(np.arange(1, 2**data.n_heads), data.n_heads)
        groups: Any = Groups(data, masks)
        if self.all_probes:
            groups.probe_accuracy, _ = fit_all(data, masks)
        return {
            metric.name: np.concatenate([[metric.of_no_heads(data)], metric.measure(groups)])
            for metric in chosen
        }
