"""Heads during training: the metrics of every head at many moments of a run.

Figures 9 and 11 of the paper. Works on the token tables of a whole stack of models, so that
thousands of heads are measured without building a single HookedTransformer.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from count01_lens.common.progress import counted
from count01_lens.common.types import Array
from count01_lens.common.validation import check_ints
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.readout import attention_ratios, head_weights, ratio_names
from count01_lens.heads.head_data import HeadData, collect
from count01_lens.heads.metrics import Groups
from count01_lens.heads.runners import CountRunner
from count01_lens.heads.tables import head_table
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.prompts import Task

if TYPE_CHECKING:
    from count01_lens.training.training_run import TrainResult


@dataclass(frozen=True, eq=False)
class Moment:
    """A model after an epoch: its heads' outputs and attributions, and its heads one by one."""

    model: int
    seed: int
    epoch: int | float
    data: HeadData
    singles: Groups
    table: pd.DataFrame

    @property
    def place(self) -> dict[str, int | float]:
        """Which model and epoch, as columns of a table."""
        return {"model": self.model, "seed": self.seed, "epoch": self.epoch}

    def rows_of_heads(self) -> list[pd.DataFrame]:
        """A row per head, as the only table."""
        return [pd.DataFrame({**self.place, **self.table})]


def head_evolution(
    result: "TrainResult",
    epochs: Iterable[int] | None = None,
    splits: Splits | None = None,
    *,
    progress: bool | None = False,
) -> pd.DataFrame:
    """Measure every head of every model of a run after each of some epochs.

    What heads are worth together is measured by `group_evolution`. Ctrl-C keeps what is done.

    Args:
        result: of `train` or `load_run`, with snapshots of these epochs.
        epochs: by default all of which snapshots were kept.
        splits: the data set of Count01; by default that of the run. Other tasks have their own.
        progress: whether to show progress; None shows it in a terminal only.

    Returns:
        a row per model, epoch and head: the columns of `head_metrics`, and model, seed, epoch.
    """
    return follow(result, epochs, splits, Moment.rows_of_heads, "heads during training", progress)[
        0
    ]


def follow(
    result: "TrainResult",
    epochs: Iterable[int] | None,
    splits: Splits | None,
    measure: Callable[[Moment], Sequence[pd.DataFrame]],
    label: str,
    progress: bool | None,
    steps: Iterable[int] | None = None,
) -> list[pd.DataFrame]:
    """Measure every model after each epoch or step; put the tables of all moments together.

    Ctrl-C keeps the moments that are done, if there are any.
    """
    if result.task is not None and splits is not None:
        raise ValueError(f"splits: expected none, as the run is of {result.task!r}")
    task: Task = result.asked if splits is None else Count01(splits)
    chosen = _chosen(result, epochs, steps)
    total, done = len(chosen) * len(result.seeds), list[Sequence[pd.DataFrame]]()
    try:
        with counted(total, label, progress) as advance:
            for moment in _moments(result, chosen, task):
                done.append(measure(moment))
                advance(1)
    except KeyboardInterrupt:
        if not done:
            raise
        warnings.warn(f"interrupted: {len(done)} of {total} moments were measured", stacklevel=3)
    return [pd.concat(tables, ignore_index=True) for tables in zip(*done, strict=True)]


def _chosen(
    result: "TrainResult", epochs: Iterable[int] | None, steps: Iterable[int] | None
) -> list[tuple[int | float, Mapping[str, int]]]:
    """What each moment is called, and how its parameters are asked for."""
    if steps is None:
        if epochs is None:
            epochs = result.snapshot_epochs
        return [(epoch, {"epoch": epoch}) for epoch in check_ints("epochs", epochs, at_least=0)]
    if epochs is not None:
        raise ValueError("expected epochs or steps, got both")
    last = result.history.iloc[-1]
    return [
        (step * int(last["epoch"]) / int(last["step"]), {"step": step})
        for step in check_ints("steps", steps, at_least=0)
    ]


def _moments(
    result: "TrainResult", chosen: Iterable[tuple[int | float, Mapping[str, int]]], task: Task
) -> Iterator[Moment]:
    starts: list[Array | None] = [None] * len(result.seeds)
    for epoch, asked in chosen:
        forms = split_stack(result.count_form(**asked))
        for model, (form, seed) in enumerate(zip(forms, result.seeds, strict=True)):
            table, singles = _measured(form, task, starts[model])
            starts[model] = singles.fits.starts
            yield Moment(model, seed, epoch, singles.data, singles, table)


def head_metrics(form: CountForm, splits: Splits) -> pd.DataFrame:
    """Measure every head of one model, given as its token tables.

    Returns:
        a row per head: head, a column per metric, s-acc on ties and others, category,
        mean_margin, std_margin (of two answers), one_sided (how often the head favours the answer
        that it favours most often), w01, w02 (other tasks have other ratios), head_weight; accuracy
        and eos_accuracy of the whole model.
    """
    return _measured(form, Count01(splits), None)[0]


def split_stack(form: CountForm) -> list[CountForm]:
    """Take the tables of a stack apart: a CountForm for each model."""
    return [form.of_models(torch.tensor([model])) for model in range(len(form.scores))]


def _measured(
    form: CountForm, task: Task, start: Float[Array, "head row feature_and_bias"] | None
) -> tuple[pd.DataFrame, Groups]:
    """Measure heads; probes start from those of the epoch before, which are close."""
    data = collect(CountRunner(form), task)
    singles = Groups(data, np.eye(data.n_heads, dtype=bool), start=start)
    table = head_table(singles, [(0, head) for head in range(data.n_heads)])
    table["one_sided"] = _one_sided(data.answer.heads)
    for name, ratio in zip(ratio_names(form.language), attention_ratios(form), strict=True):
        table[name] = ratio
    table["head_weight"] = head_weights(form)
    whole = data.accuracies()
    table["accuracy"], table["eos_accuracy"] = whole["answer"], whole["end"]
    return table.drop(columns="layer"), singles


def _one_sided(parts: Float[Array, "prompt head answer"]) -> Float[Array, " head"]:
    """How often a head favours the answer that it favours most often; of equal ones the later."""
    n_answers = parts.shape[-1]
    favoured = n_answers - 1 - parts[..., ::-1].argmax(axis=-1)
    shares = [(favoured == place).mean(axis=0) for place in range(n_answers)]
    return np.asarray(np.max(shares, axis=0))
