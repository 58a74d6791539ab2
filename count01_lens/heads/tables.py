"""Tables of an analysis: each head alone, what counts say of it, and every pair."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from count01_lens.common.progress import counted
from count01_lens.common.types import Array
from count01_lens.counts.choice_readout import (
    ChoiceReadout,
    choice_readout,
    learned_choice_readout,
)
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.readout import (
    CountReadout,
    attention_ratios,
    head_weights,
    learned_readout,
    ratio_names,
    readout,
)
from count01_lens.heads.effects import effects
from count01_lens.heads.metrics import Groups, category_of, measure_all, metrics_of
from count01_lens.heads.probe_fits import Fits
from count01_lens.tasks.count01 import CountPrompts
from count01_lens.tasks.prompts import Task

_PORTION = 512  # pairs at a time


def head_table(singles: Groups, names: list[tuple[int, int]]) -> pd.DataFrame:
    """Measure every head alone: a row each; and what the model loses without it, if it is deep."""
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
    if data.group_logits is not None:
        columns |= effects(data, progress=singles.progress)
    return pd.DataFrame(columns)


def head_labels(heads: pd.DataFrame) -> list[str]:
    """Names of heads for people: numbers or, where there are several layers, "layer.head"."""
    if heads["layer"].max() == 0:
        return [str(head) for head in heads["head"]]
    return [f"{layer}.{head}" for layer, head in zip(heads["layer"], heads["head"], strict=True)]


def count_table(form: CountForm, fits: Fits, task: Task) -> pd.DataFrame:
    """What the tables over counts say of each head; only a linear probe is an inequality."""
    ratios = dict(zip(ratio_names(form.language), attention_ratios(form), strict=True))
    table = pd.DataFrame({**ratios, "head_weight": head_weights(form)})
    learned = learned_readout if len(form.language.answers) == 2 else learned_choice_readout
    readouts: dict[str, list[Any]] = {
        "learned_readout": [learned(form, head) for head in range(len(table))]
    }
    if (probes := readouts_of_probes(form, fits)) is not None:
        readouts = {"readout": probes, **readouts}
    test = task.questions["answer"].test
    assert isinstance(test, CountPrompts)
    for name, inequalities in readouts.items():
        table[name] = [str(each) for each in inequalities]
        table[f"{name}_off"] = [each.disagreement(test.counts) for each in inequalities]
    return table


def readouts_of_probes(form: CountForm, fits: Fits) -> list[Any] | None:
    """Linear probes, one of each head, as read-outs over counts; None of any other probe."""
    if fits.weights is not None:
        return list(_of_probes(form, fits.weights))
    return None if fits.starts is None else list(_of_choosing_probes(form, fits.starts))


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


def _of_choosing_probes(
    form: CountForm, weights: Float[Array, "head answer feature_and_bias"]
) -> list[ChoiceReadout]:
    """Those with a row for each answer, of which the largest decides."""
    d_head = form.values.shape[-1]
    return [
        choice_readout(form, head, rows[:, head * d_head : (head + 1) * d_head], rows[:, -1])
        for head, rows in enumerate(weights)
    ]


def strongest(heads: pd.DataFrame, n_pairs: int) -> Int[Array, " some"]:
    """The heads without which the most is lost, as many as have no more than so many pairs."""
    effect = "total_effect" if "total_effect" in heads else "s_acc"
    n = int((1 + np.sqrt(1 + 8 * n_pairs)) / 2)
    return np.asarray(np.argsort(-np.abs(heads[effect].to_numpy()), kind="stable")[:n])


class Pairs(NamedTuple):
    """Metrics of pairs of heads.

    Attributes:
        matrices: by metric; single heads on the diagonal, NaN for pairs that were not measured.
        worst_gradient: the largest relative gradient at the end of any probe's fit.
        n_missing: how many of those asked for are missing, because of Ctrl-C.
    """

    matrices: dict[str, Float[Array, "head head"]]
    worst_gradient: float = float("nan")
    n_missing: int = 0


def pair_matrices(
    singles: Groups,
    heads: pd.DataFrame,
    among: Int[Array, " some"] | None = None,
    *,
    progress: bool | None = False,
) -> Pairs:
    """Measure every pair, or every pair among some heads. Ctrl-C keeps those that are done."""
    data, n = singles.data, singles.data.n_heads
    some = np.arange(n) if among is None else np.sort(among)
    first, second = (some[numbers] for numbers in np.triu_indices(len(some), 1))
    matrices = {}
    for metric in metrics_of(data):
        matrices[metric.name] = np.full((n, n), np.nan)
        np.fill_diagonal(matrices[metric.name], heads[metric.name].to_numpy())
    worst, done = float("nan"), 0
    portions = np.array_split(np.arange(len(first)), max(1, -(-len(first) // _PORTION)))
    try:
        with counted(len(first), "measuring pairs of heads", progress) as advance:
            for part in portions if len(first) else []:
                pairs = _pairs_of(singles, first[part], second[part])
                for name, values in measure_all(pairs).items():
                    matrices[name][first[part], second[part]] = values
                    matrices[name][second[part], first[part]] = values
                worst, done = float(np.fmax(worst, pairs.fits.worst_gradient)), done + len(part)
                advance(len(part))
    except KeyboardInterrupt:
        warnings.warn(f"interrupted: {done} of {len(first)} pairs were measured", stacklevel=3)
    return Pairs(matrices, worst, len(first) - done)


def _pairs_of(singles: Groups, first: Int[Array, " pair"], second: Int[Array, " pair"]) -> Groups:
    """Pairs of heads, whose probes start from that of the better head."""
    masks = np.zeros((len(first), singles.data.n_heads), dtype=bool)
    masks[np.arange(len(first)), first] = masks[np.arange(len(first)), second] = True
    start, fits = None, singles.fits
    if fits.starts is not None and fits.objectives is not None:
        better = np.where(fits.objectives[first] <= fits.objectives[second], first, second)
        start = fits.starts[better]
    return Groups(singles.data, masks, start=start)
