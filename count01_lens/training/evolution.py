"""Heads during training: the metrics of every head at many moments of a run.

Figures 9 and 11 of the paper. Works on the token tables of a whole stack of models, so that
thousands of heads are measured without building a single HookedTransformer.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from count01_lens.common.progress import track
from count01_lens.common.types import Array
from count01_lens.common.validation import check_ints
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.readout import attention_ratios, head_weights
from count01_lens.heads.analysis import category_of
from count01_lens.heads.metrics import (
    end_accuracy,
    learned_accuracy,
    model_accuracies,
    roc_auc,
    separation_fits,
    separation_scores,
)
from count01_lens.heads.runners import head_data_of_form
from count01_lens.tasks.dataset import Splits, make_splits

if TYPE_CHECKING:
    from count01_lens.training.training_run import TrainResult


def head_evolution(
    result: "TrainResult",
    epochs: Iterable[int] | None = None,
    splits: Splits | None = None,
    *,
    progress: bool | None = False,
) -> pd.DataFrame:
    """Measure every head of every model of a run after each of some epochs.

    Args:
        result: of `train`, with snapshots of these epochs.
        epochs: by default all that were kept.
        splits: the data set; by default that of the run's recipe.
        progress: whether to show it; None in a terminal only.

    Returns:
        a row per model, epoch and head: the columns of `head_metrics`, and model, seed, epoch.
    """
    config = result.configs[0]
    splits = make_splits(config.data_seed) if splits is None else splits
    chosen = result.snapshot_epochs if epochs is None else check_ints("epochs", epochs, at_least=0)
    starts: list[Array | None] = [None] * len(result.seeds)
    tables = []
    for epoch in track(chosen, len(chosen), "heads during training", progress):
        forms = split_stack(result.count_form(epoch=epoch))
        for model, (form, seed) in enumerate(zip(forms, result.seeds, strict=True)):
            table, starts[model] = _measured(form, splits, starts[model])
            table.insert(0, "epoch", epoch)
            table.insert(0, "seed", seed)
            table.insert(0, "model", model)
            tables.append(table)
    return pd.concat(tables, ignore_index=True)


def head_metrics(form: CountForm, splits: Splits) -> pd.DataFrame:
    """Measure every head of one model, given as its token tables.

    Returns:
        a row per head: l_acc, roc_auc, s_acc, category, eos_l_acc, mean_margin, std_margin,
        one_sided (how often its share favours the answer that it favours more often), w01, w02,
        head_weight; accuracy and eos_accuracy are those of the whole model.
    """
    return _measured(form, splits, None)[0]


def split_stack(form: CountForm) -> list[CountForm]:
    """Take the tables of a stack apart: a CountForm for each model."""
    return [
        CountForm(
            form.scores[[model]],
            form.values[[model]],
            form.logit_weights[[model]],
            form.logit_bias[[model]],
        )
        for model in range(len(form.scores))
    ]


def _measured(
    form: CountForm, splits: Splits, start: Float[Array, "head feature_and_bias"] | None
) -> tuple[pd.DataFrame, Array]:
    """Measure heads; separators start from those of the epoch before, which are close."""
    data = head_data_of_form(form, splits)
    singles = np.eye(data.n_heads, dtype=bool)
    fits = separation_fits(data, singles, start=start)
    s_acc = separation_scores(data, fits)
    margins = data.shares[:, :, 0] - data.shares[:, :, 1]
    w01, w02 = attention_ratios(form)
    whole = model_accuracies(data, splits.test.ties.numpy())
    table = pd.DataFrame(
        {
            "head": np.arange(data.n_heads),
            "l_acc": learned_accuracy(data, singles),
            "roc_auc": roc_auc(data, singles),
            "s_acc": s_acc,
            "category": category_of(s_acc),
            "eos_l_acc": end_accuracy(data, singles),
            "mean_margin": margins.mean(axis=0),
            "std_margin": margins.std(axis=0),
            # How often the head's share favours the answer that it favours more often.
            "one_sided": np.maximum((margins > 0).mean(axis=0), (margins <= 0).mean(axis=0)),
            "w01": w01,
            "w02": w02,
            "head_weight": head_weights(form),
            "accuracy": whole["answer"],
            "eos_accuracy": whole["eos"],
        }
    )
    return table, fits.weights
