"""Tables of an analysis: each head alone, what counts say of it, and every pair."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from count01_lens.common.types import Array
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.readout import (
    CountReadout,
    attention_ratios,
    head_weights,
    learned_readout,
    readout,
)
from count01_lens.heads.metrics import Groups, category_of, measure_all, metrics_of
from count01_lens.heads.probe_fits import Fits
from count01_lens.tasks.count01 import CountPrompts
from count01_lens.tasks.prompts import Task


def head_table(singles: Groups, names: list[tuple[int, int]]) -> pd.DataFrame:
    """Measure every head alone: a row each."""
    data = singles.data
    layers, heads = zip(*names, strict=True)
    columns: dict[str, Any] = {"layer": layers, "head": heads, **measure_all(singles)}
    flat = data.test_outputs.reshape(len(data.test_outputs), -1)
    right = singles.fits.predict(flat) == data.test_labels[:, None]
    for name, mask in data.answer.subsets.items():
        columns[f"s_acc_{name}"] = right[mask].mean(axis=0) if mask.any() else np.nan
    columns["category"] = category_of(columns["s_acc"])
    if data.answer.rest.shape[1] == 2:
        # The biases of figure F1: by how much a head favours the first answer, and how it varies.
        margins = data.answer.heads[:, :, 0] - data.answer.heads[:, :, 1]
        columns |= {"mean_margin": margins.mean(axis=0), "std_margin": margins.std(axis=0)}
    return pd.DataFrame(columns)


def head_labels(heads: pd.DataFrame) -> list[str]:
    """Names of heads for people: numbers or, where there are several layers, "layer.head"."""
    if heads["layer"].max() == 0:
        return [str(head) for head in heads["head"]]
    return [f"{layer}.{head}" for layer, head in zip(heads["layer"], heads["head"], strict=True)]


def count_table(form: CountForm, fits: Fits, task: Task) -> pd.DataFrame:
    """What the tables over counts say of each head; only a linear probe is an inequality."""
    w01, w02 = attention_ratios(form)
    table = pd.DataFrame({"w01": w01, "w02": w02, "head_weight": head_weights(form)})
    readouts = {"learned_readout": [learned_readout(form, head) for head in range(len(table))]}
    if fits.weights is not None:
        readouts = {"readout": _of_probes(form, fits.weights), **readouts}
    test = task.questions["answer"].test
    assert isinstance(test, CountPrompts)
    for name, inequalities in readouts.items():
        table[name] = [str(each) for each in inequalities]
        table[f"{name}_off"] = [each.disagreement(test.counts) for each in inequalities]
    return table


def probe_readouts(form: CountForm, weights: Float[Array, "head feature_and_bias"]) -> list[str]:
    """Write linear probes, one of each head, as inequalities over counts."""
    return [str(each) for each in _of_probes(form, weights)]


def _of_probes(
    form: CountForm, weights: Float[Array, "head feature_and_bias"]
) -> list[CountReadout]:
    d_head = form.values.shape[-1]
    return [
        readout(form, head, row[head * d_head : (head + 1) * d_head], float(row[-1]))
        for head, row in enumerate(weights)
    ]


def pair_matrices(singles: Groups, heads: pd.DataFrame) -> tuple[dict[str, Array], float]:
    """Measure every pair, single heads on the diagonal; return the worst fit's gradient, too."""
    data, n = singles.data, singles.data.n_heads
    first, second = np.triu_indices(n, 1)
    names = [metric.name for metric in metrics_of(data)]
    matrices = {name: np.diag(heads[name].to_numpy()) for name in names}
    if len(first) == 0:
        return matrices, float("nan")
    masks = np.zeros((len(first), n), dtype=bool)
    masks[np.arange(len(first)), first] = masks[np.arange(len(first)), second] = True
    start, fits = None, singles.fits
    if fits.starts is not None and fits.objectives is not None:
        better = np.where(fits.objectives[first] <= fits.objectives[second], first, second)
        start = fits.starts[better]
    pairs = Groups(data, masks, start=start)
    for name, values in measure_all(pairs).items():
        matrices[name][first, second] = matrices[name][second, first] = values
    return matrices, pairs.fits.worst_gradient
