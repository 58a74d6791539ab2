"""What heads can tell when their attention is set by hand: s-acc over a grid of ratios.

Figures 7 and 8 of the paper. In the first, '2' gets nothing and w01 varies; in the second '0' and
'1' get the same and w02 varies. In any counting task the symbols that the rule names get the same,
and all others nothing, but for the one whose ratio varies. The probe of every head is fitted anew
to its patched outputs at every point of the grid.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Float

from count01_lens.attention.patches import Ratios, check_ratio
from count01_lens.common.progress import track
from count01_lens.common.text import in_words, number, plural
from count01_lens.common.types import Array
from count01_lens.common.validation import check_choice
from count01_lens.counts.readout import attention_ratios, ratio_names
from count01_lens.heads.head_data import collect
from count01_lens.heads.metrics import Groups
from count01_lens.heads.runners import CountRunner, runner_for
from count01_lens.models.stored import Model
from count01_lens.models.task_of import counting_task_for
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.decisions import eos_margin
from count01_lens.tasks.places import COUNT01

RATIOS = ("w01", "w02")  # of Count01
DEFAULT_GRID = (0.0, *np.logspace(-4, 4, 41).tolist(), math.inf)


@dataclass(frozen=True, eq=False)
class RatioSweep:
    """Heads and model over a grid of one attention ratio, the other one fixed.

    Attributes:
        ratio: "w01" (with '2' at zero) or "w02" (with w01 = 1), or one of another task.
        values: the grid.
        s_acc: of every head, its probe refitted at each value.
        own: the ratio that each head has by itself; NaN for models without such a ratio.
        model: a row per value: accuracy of the whole model with all heads patched, on all
            sentences, on ties and on others; of '[EOS]', whose row is not patched; and of '[EOS]'
            when its row is patched in the same way.
        worst_gradient: largest relative gradient of all fits: how well they converged.
        fixed: what attention the other symbols get, in words.
    """

    ratio: str
    values: Float[Array, " value"]
    s_acc: Float[Array, "value head"]
    own: Float[Array, " head"]
    model: pd.DataFrame
    worst_gradient: float
    fixed: str = ""

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
        text = self.table.to_string(index=False, float_format=number, na_rep="–")
        heads, values = plural(self.s_acc.shape[1], "head"), plural(len(self.values), "value")
        return f"{heads} over {values} of {self.ratio}\n{text}"


def sweep_attention(
    model: Model,
    ratio: str = "w01",
    values: Iterable[float] | None = None,
    task: CountingTask | Splits | None = None,
    *,
    progress: bool | None = False,
) -> RatioSweep:
    """Measure every head's s-acc while its attention is set to a grid of ratios.

    Args:
        model: any HookedTransformer over the tokens of the task.
        ratio: "w01", with w02 infinite ('2' gets nothing), or "w02", with w01 = 1. In other tasks
            "w", the first symbol and another one, such as "wab".
        values: the grid, 0 and infinity allowed; by default these two and 41 values from 1e-4 to
            1e4.
        task: a counting task, or a data set of Count01; by default the task that the model was made
            for (`task_of`), or else the paper's.
        progress: whether to show progress; None shows it in a terminal only.

    Example:
        >>> sweep = cl.sweep_attention(cl.example_model(), "w01", values=[0.5, 1.0, 2.0])
        >>> sweep.s_acc.shape  # value, head
        (3, 16)
    """
    task = counting_task_for(model, task)
    language, names = task.language, ratio_names(task.language)
    check_choice("ratio", ratio, names)
    grid = _checked_grid(ratio, DEFAULT_GRID if values is None else values)
    answer, end = task.questions["answer"], task.questions["end"]
    runner = runner_for(model, answer.test)
    singles = np.eye(runner.n_heads, dtype=bool)
    s_acc, rows, worst = [], [], 0.0
    for value in track(grid.tolist(), len(grid), f"sweep of {ratio}", progress):
        patch = _ratios(names.index(ratio) + 1, value, language)
        groups = Groups(collect(runner.under(patch), task), singles)
        worst = max(worst, groups.fits.worst_gradient)
        s_acc.append(groups.probe_accuracy)
        ends = runner.under(replace(patch, at="answer")).logits(end.test)
        patched_too = float((eos_margin(ends) > 0).double().mean())
        rows.append(groups.data.accuracies() | {"end_if_patched_at_answer": patched_too})
    own = np.full(runner.n_heads, np.nan)
    if isinstance(runner, CountRunner):
        own = attention_ratios(runner.form)[names.index(ratio)]
    fixed = _fixed(names.index(ratio) + 1, language)
    return RatioSweep(ratio, grid, np.stack(s_acc), own, pd.DataFrame(rows), worst, fixed)


def _fixed(varied: int, language: CountingLanguage) -> str:
    """Say what attention the symbols get that are not varied."""
    named, symbols = language.rule.named(), [f"'{symbol}'" for symbol in language.symbols]
    others = [place for place in range(1, len(symbols)) if place != varied]
    alike = [symbols[place] for place in others if place in named]
    nothing = [symbols[place] for place in others if place not in named]
    told = [f"{in_words([symbols[0], *alike])} alike"] if alike else []
    if nothing:
        told.append(f"{in_words(nothing)} {'gets' if len(nothing) == 1 else 'get'} nothing")
    return ", ".join(told)


def _ratios(varied: int, value: float, language: CountingLanguage) -> Ratios:
    """Set one ratio; other symbols that the rule names get as much as the first, the rest none."""
    named, ratios = language.rule.named(), {}
    for place, symbol in enumerate(language.symbols[1:], start=1):
        ratios[symbol] = value if place == varied else 1.0 if place in named else math.inf
    if language == COUNT01:
        return Ratios(w01=ratios["1"], w02=ratios["2"])
    return Ratios(ratios=ratios)


def _checked_grid(ratio: str, values: Iterable[float]) -> Float[Array, " value"]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"values: expected several numbers such as [0.1, 1, 10], got {values!r}")
    grid = [check_ratio(ratio, value) for value in values]
    if not grid or any(value is None for value in grid):
        raise ValueError(f"values: expected at least one number from 0 to infinity, got {grid}")
    return np.array(sorted(grid), dtype=float)  # type: ignore[type-var]
