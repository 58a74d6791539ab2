"""What heads can tell when their attention is set by hand: s-acc over a grid of ratios.

Figures 7 and 8 of the paper. In the first, '2' gets nothing and w01 varies; in the second '0' and
'1' get the same and w02 varies. The separator of every head is fitted anew to its patched outputs
at every point of the grid.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from count01_lens.attention.interventions import patch_attention
from count01_lens.attention.rows import AttentionRatios, PatchedForm, RowPatch, check_ratio
from count01_lens.common.progress import track
from count01_lens.common.text import short
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.counts.closed_form import CountForm, multiplicities
from count01_lens.counts.compact import count_form_applies
from count01_lens.counts.readout import attention_ratios
from count01_lens.heads.metrics import (
    HeadData,
    model_accuracies,
    separation_fits,
    separation_scores,
)
from count01_lens.heads.runners import head_data, head_data_of_form, model_logits
from count01_lens.tasks.dataset import Splits, make_splits
from count01_lens.tasks.decisions import eos_margin

Ratio = Literal["w01", "w02"]
RATIOS: tuple[Ratio, Ratio] = ("w01", "w02")
DEFAULT_GRID = (0.0, *np.logspace(-4, 4, 41).tolist(), math.inf)


@dataclass(frozen=True, eq=False)
class RatioSweep:
    """Heads and model over a grid of one attention ratio, the other one fixed.

    Attributes:
        ratio: "w01" (with '2' at zero) or "w02" (with w01 = 1).
        values: the grid.
        s_acc: of every head, its separator refitted at each value.
        own: the ratio that each head has by itself; NaN for models without such a ratio.
        model: a row per value: accuracy of the whole model with all heads patched, on all
            sentences, on ties and on others; of '[EOS]', whose row is not patched; and of '[EOS]'
            when its row is patched in the same way.
        worst_gradient: largest relative gradient of all fits: how well they converged.
    """

    ratio: Ratio
    values: Float[Array, " value"]
    s_acc: Float[Array, "value head"]
    own: Float[Array, " head"]
    model: pd.DataFrame
    worst_gradient: float

    @property
    def table(self) -> pd.DataFrame:
        """A row per value: mean and standard deviation of s-acc over heads, and the whole model."""
        columns = {
            self.ratio: self.values,
            "s_acc_mean": self.s_acc.mean(axis=1),
            "s_acc_std": self.s_acc.std(axis=1),
            "s_acc_min": self.s_acc.min(axis=1),
            "s_acc_max": self.s_acc.max(axis=1),
        }
        return pd.DataFrame(columns).join(self.model)

    @property
    def heads(self) -> pd.DataFrame:
        """A row per value and head: the lines of the figure."""
        value, head = np.indices(self.s_acc.shape).reshape(2, -1)
        columns = {self.ratio: self.values[value], "head": head, "s_acc": self.s_acc.ravel()}
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        text = self.table.to_string(index=False, float_format=short)
        return f"{self.s_acc.shape[1]} heads over {len(self.values)} values of {self.ratio}\n{text}"


def sweep_attention(
    model: HookedTransformer,
    ratio: Ratio = "w01",
    values: Iterable[float] | None = None,
    splits: Splits | None = None,
    *,
    progress: bool | None = False,
) -> RatioSweep:
    """Measure every head's s-acc while its attention is set to a grid of ratios.

    Args:
        model: any HookedTransformer over the eight tokens.
        ratio: "w01", with w02 infinite ('2' gets nothing), or "w02", with w01 = 1.
        values: the grid, 0 and infinity allowed; by default both, and 41 values from 1e-4 to 1e4.
        splits: the data set; the paper's by default.
        progress: whether to show it; None in a terminal only.

    Example:
        >>> sweep = cl.sweep_attention(cl.example_model(), "w01", values=[0.5, 1.0, 2.0])
        >>> sweep.s_acc.shape  # value, head
        (3, 16)
    """
    check_choice("ratio", ratio, RATIOS)
    grid = _checked_grid(ratio, DEFAULT_GRID if values is None else values)
    splits = make_splits() if splits is None else splits
    if not isinstance(splits, Splits):
        raise TypeError(f"splits: expected the result of make_splits, got {splits!r}")
    s_acc, rows, worst, start = [], [], 0.0, None
    singles: Any = None
    for value in track(grid.tolist(), len(grid), f"sweep of {ratio}", progress):
        data, eos_at_answer = patched_head_data(model, _ratios(ratio, value), splits)
        singles = np.eye(data.n_heads, dtype=bool) if singles is None else singles
        fits = separation_fits(data, singles, start=start)
        start, worst = fits.weights, max(worst, float(fits.gradient_norms.max()))
        s_acc.append(separation_scores(data, fits))
        rows.append(model_accuracies(data, splits.test.ties.numpy()) | eos_at_answer)
    own = np.full(singles.shape[0], np.nan)
    if count_form_applies(model) is None:
        own = attention_ratios(CountForm.from_models([model]))[RATIOS.index(ratio)]
    return RatioSweep(ratio, grid, np.stack(s_acc), own, pd.DataFrame(rows), worst)


def patched_head_data(
    model: HookedTransformer, ratios: AttentionRatios, splits: Splits
) -> tuple[HeadData, dict[str, float]]:
    """Collect what the metrics need under a patch of '=', and '[EOS]' under one of the answer."""
    at_answer = AttentionRatios(
        w01=ratios.w01, w02=ratios.w02, heads=ratios.heads, others=ratios.others, at="answer"
    )
    if count_form_applies(model) is None:
        form = CountForm.from_models([model])
        patched = PatchedForm.of(form, RowPatch.from_ratios(model, ratios))
        data = head_data_of_form(patched, splits)
        moved = PatchedForm.of(form, RowPatch.from_ratios(model, at_answer))
        with torch.no_grad():
            n = multiplicities(splits.test.counts, "answer", form.scores.dtype)
            logits = moved.logits(n, "answer")[0]
    else:
        call = dict(w01=ratios.w01, w02=ratios.w02, heads=ratios.heads, others=ratios.others)
        with patch_attention(model, **call):  # type: ignore[arg-type]
            data = head_data(model, splits)
        with patch_attention(model, **call, at="answer"):  # type: ignore[arg-type]
            logits = model_logits(model, splits.test, "answer")
    return data, {"eos_if_patched_at_answer": float((eos_margin(logits) > 0).double().mean())}


def _ratios(ratio: Ratio, value: float) -> AttentionRatios:
    if ratio == "w01":
        return AttentionRatios(w01=value, w02=math.inf)
    return AttentionRatios(w01=1.0, w02=value)


def _checked_grid(ratio: str, values: Iterable[float]) -> Float[Array, " value"]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"values: expected several numbers such as [0.1, 1, 10], got {values!r}")
    grid = [check_ratio(ratio, value) for value in values]
    if not grid or any(value is None for value in grid):
        raise ValueError(f"values: expected at least one number from 0 to infinity, got {grid}")
    return np.array(sorted(grid), dtype=float)  # type: ignore[type-var]
