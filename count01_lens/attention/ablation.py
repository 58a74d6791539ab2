"""Heads taken out of a model: their outputs replaced by zero, their mean, or other outputs."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

from torch import Tensor

from count01_lens.attention.interventions import HookList, Intervention
from count01_lens.attention.rows import PatchedForm
from count01_lens.attention.seen_tokens import SeenTokens
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_choice, check_seed
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.hook_runner import HookRunner
from count01_lens.heads.replacements import Mode, Replacement
from count01_lens.heads.runners import CountRunner, as_prompts, head_outputs
from count01_lens.models.acting_hooks import check_hooks_act
from count01_lens.models.build import check_model
from count01_lens.models.hooks import (
    HeadName,
    ablation_hooks,
    check_heads,
    head_numbers,
    replacing_hooks,
    several_heads,
)
from count01_lens.models.task_of import counting_task_for
from count01_lens.tasks.dataset import CountsLike, make_splits
from count01_lens.tasks.places import COUNT01
from count01_lens.tasks.prompts import Prompts


@dataclass(frozen=True)
class Ablate(Intervention):
    """Heads whose outputs are replaced, at all positions.

    Attributes:
        heads: numbers, or (layer, head) pairs.
        mode: "zero" replaces their outputs by zeros, "mean" by their mean at the query position
            over some data, "resample" by their outputs on another prompt of the data, drawn for
            each prompt that is run (see `heads.replacements`).
        data: where the mean or the outputs come from; for models of counting tasks, by default the
            training split of their task.
        seed: for "resample".
    """

    heads: tuple[HeadName, ...]
    mode: Mode = "zero"
    data: CountsLike | Prompts | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", several_heads(self.heads))
        check_choice("mode", self.mode, get_args(Mode))
        check_seed(self.seed)

    def on_counts(self, form: CountForm) -> CountForm | None:
        """Apply it to tables over counts, unless it needs prompts written out as tokens."""
        numbers = head_numbers(self.heads, 1, form.scores.shape[1])
        if self.mode == "zero":
            return form.with_outputs_of(numbers, 0.0)
        if isinstance(self.data, Prompts) or self.mode == "resample":
            return None
        if self.data is None and form.language != COUNT01:
            return None  # the model knows its data
        data = make_splits().train if self.data is None else self.data
        means = CountRunner(form).outputs(as_prompts(data, language=form.language)).mean(dim=0)
        return PatchedForm.of(form).with_outputs_of(numbers, means[numbers])

    def _hooks(self, model: HookedTransformer, seen: SeenTokens) -> HookList:
        check_model(model, d_vocab=None)
        numbers = check_heads(model, self.heads)
        check_hooks_act(model, "z")
        if self.mode == "zero":
            return ablation_hooks(model, numbers)
        data = self._data(model)
        if self.mode == "mean":
            means = head_outputs(model, data).mean(dim=0)
            return ablation_hooks(model, numbers, means=means)
        prompts = as_prompts(data, model=model)
        replacement = Replacement.by(HookRunner(model), "resample", prompts, self.seed)
        return _resampling_hooks(model, numbers, replacement, seen)

    def _data(self, model: HookedTransformer) -> CountsLike | Prompts:
        if self.data is not None:
            return self.data
        task = counting_task_for(model)
        if model.cfg.d_vocab != task.language.d_vocab:
            raise ValueError(
                f"data: expected prompts for mode={self.mode!r}, got none, and the model is not of "
                "a counting task, which has its own; give data=prompts"
            )
        return task.splits.train


def _resampling_hooks(
    model: HookedTransformer, numbers: list[int], replacement: Replacement, seen: SeenTokens
) -> HookList:
    """Replace outputs by those on other prompts, which are drawn by the tokens that are run."""
    layers = sorted({number // model.cfg.n_heads for number in numbers})
    seen.need(layers)
    mine = threading.local()  # each thread that runs the model runs its own tokens

    def note_tokens(pattern: Tensor, hook: Any) -> Tensor:
        mine.tokens = seen.attended(pattern, hook).keys
        if pattern.shape[-2] != pattern.shape[-1]:
            raise ValueError(
                "ablation: expected whole prompts to resample outputs for, got a run on a cache; "
                "run without it, or use mode='mean'"
            )
        return pattern

    points = [(f"blocks.{layer}.attn.hook_pattern", note_tokens) for layer in layers]
    values = replacing_hooks(model, numbers, lambda layer: replacement.in_layer(layer, mine.tokens))
    return [*points, *values]


@contextmanager
def ablate_heads(
    model: HookedTransformer,
    heads: Iterable[HeadName],
    mode: Mode = "zero",
    *,
    data: CountsLike | Prompts | None = None,
    seed: int = 0,
) -> Iterator[HookedTransformer]:
    """Ablate heads of a model inside a `with` block.

    Short for `Ablate(...).applied(model)`; takes the same arguments.

    Example:
        >>> model = cl.example_model()
        >>> with cl.ablate_heads(model, range(16)):
        ...     left = model("0112=")[0, -1]  # nothing but the bias of the output layer
        >>> torch.equal(left, model.b_U)
        True
    """
    with Ablate(heads, mode, data, seed).applied(model):  # type: ignore[arg-type]
        yield model
