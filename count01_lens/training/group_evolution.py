"""Heads together during training: what groups of them are worth at many moments of a run.

A pass over the moments gives two tables. That of models has a row for each metric, because every
metric has the same numbers: one can be picked, plotted and averaged over seeds like another. That
of heads is the one of `head_evolution`, with what each head is worth beside what it does alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from count01_lens.common.text import number, plural, written_signed
from count01_lens.heads.games import shapley_values
from count01_lens.heads.group_measures import (
    GroupValues,
    WhichGroups,
    check_which,
    measure_groups,
)
from count01_lens.heads.group_numbers import point_labels
from count01_lens.heads.metrics import METRICS, Starts, metrics_of
from count01_lens.tasks.dataset import Splits
from count01_lens.training.evolution import Moment, follow

if TYPE_CHECKING:
    from count01_lens.training.training_run import TrainResult


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
        n = epochs.nunique()
        when = (
            plural(n, "epoch")
            + f", {number(epochs.min())}"
            + (f" to {number(epochs.max())}" if n > 1 else "")
        )
        lines = [
            f"{plural(models, 'model')} at {when}. Mean interaction of two heads after the last"
            f"{', in the mean over models (lowest to highest)' if models > 1 else ''}:"
        ]
        lines += [
            f"{METRICS[str(metric)].label}: {written_signed(found.mean(), '.4f')}"
            + (
                f" ({written_signed(found.min(), '.4f')} to {written_signed(found.max(), '.4f')})"
                if models > 1
                else ""
            )
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

    The mean interaction over pairs is always exact: it follows from the groups at the ends, of one
    head and of all but one (`heads.ends`). All groups are needed to tell which pairs cooperate,
    what each head is worth and how large a group has to be; for 16 heads, each moment then takes
    seconds, or minutes if a probe is fitted to each group.

    Args:
        result: of `train` or `load_run`, with snapshots of these epochs.
        epochs: by default all of which snapshots were kept.
        splits: the data set of Count01; by default that of the run. Other tasks have their own.
        steps: instead of epochs, steps of which snapshots were kept, such as early ones
            (`first_epoch_steps` of `train`); epochs in the tables are then fractions.
        groups: "all" of them, or those at the "ends" only, for l-acc, ROC AUC and '[EOS]' l-acc.
        probes: the same for s-acc, which needs a fit for each group.
        progress: whether to show progress; None shows it in a terminal or notebook only.

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
    check_which(result.configs[0].model.n_heads, groups, probes)
    starts: list[Starts | None] = [None] * len(result.seeds)

    def tables(moment: Moment) -> list[pd.DataFrame]:
        # Probes of large groups start from those of the moment before, which are close.
        found = measure_groups(
            moment.data,
            {
                metric.name: moment.table[metric.name].to_numpy()
                for metric in metrics_of(moment.data)
            },
            groups=groups,
            probes=probes,
            starts=starts[moment.model],
        )
        starts[moment.model] = found.starts
        return _tables(moment, found.metrics)

    label = "groups of heads during training"
    return GroupEvolution(*follow(result, epochs, splits, tables, label, progress, steps))


def _tables(moment: Moment, metrics: Mapping[str, GroupValues]) -> list[pd.DataFrame]:
    """A row per metric, and a row per head."""
    rows, heads = [], moment.table.copy()
    for metric, found in metrics.items():
        rows.append({**moment.place, "metric": metric, **found.numbers})
        if found.values is not None:
            worth = shapley_values(found.values)
            heads[f"shapley_{metric}"] = worth
            heads[f"label_{metric}"] = point_labels(found.values, worth)
    return [pd.DataFrame(rows), pd.DataFrame({**moment.place, **heads})]
