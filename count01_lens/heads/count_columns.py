"""What the tables over counts say of each head: attention ratios, weight, read-outs."""

import pandas as pd
from jaxtyping import Float

from count01_lens.common.types import Array
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.readout import attention_ratios, head_weights, learned_readout, readout
from count01_lens.heads.probe_fits import Fits


def count_columns(form: CountForm, fits: Fits) -> pd.DataFrame:
    """Describe every head of one model: a row each.

    Args:
        form: the model's tables.
        fits: the probe of each head; only a linear one can be read as an inequality.
    """
    w01, w02 = attention_ratios(form)
    table = pd.DataFrame({"w01": w01, "w02": w02, "head_weight": head_weights(form)})
    if fits.weights is not None:
        table["readout"] = probe_readouts(form, fits.weights)
    table["learned_readout"] = [str(learned_readout(form, head)) for head in range(len(table))]
    return table


def probe_readouts(form: CountForm, weights: Float[Array, "head feature_and_bias"]) -> list[str]:
    """Write linear probes, one of each head, as inequalities over counts."""
    d_head = form.values.shape[-1]
    return [
        str(readout(form, head, row[head * d_head : (head + 1) * d_head], float(row[-1])))
        for head, row in enumerate(weights)
    ]
