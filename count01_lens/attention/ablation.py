"""Heads taken out of a model: their outputs replaced by zero, or by their mean."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from count01_lens.attention.interventions import HookList, Intervention
from count01_lens.attention.rows import PatchedForm
from count01_lens.attention.seen_tokens import SeenTokens
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.runners import CountRunner, as_prompts, head_outputs
from count01_lens.models.build import check_model
from count01_lens.models.hooks import (
    HeadName,
    ablation_hooks,
    check_heads,
    head_numbers,
    several_heads,
)
from count01_lens.tasks.dataset import CountsLike, make_splits
from count01_lens.tasks.prompts import Prompts

Mode = Literal["zero", "mean"]


@dataclass(frozen=True)
class Ablate(Intervention):
    """Heads whose outputs are replaced, at all positions.

    Attributes:
        heads: numbers, or (layer, head) pairs.
        mode: "zero" puts zeros in the place of their outputs, "mean" their mean at the query
            position over some data.
        data: what the mean is taken over; the default training split if None.
    """

    heads: tuple[HeadName, ...]
    mode: Mode = "zero"
    data: CountsLike | Prompts | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", several_heads(self.heads))
        check_choice("mode", self.mode, ("zero", "mean"))

    def on_counts(self, form: CountForm) -> CountForm | None:
        """Apply it to tables over counts, unless its mean is over prompts written out as tokens."""
        numbers = head_numbers(self.heads, 1, form.scores.shape[1])
        if self.mode == "zero":
            return form.with_outputs_of(numbers, 0.0)
        if isinstance(self.data, Prompts):
            return None
        means = CountRunner(form).outputs(as_prompts(self._data())).mean(dim=0)
        return PatchedForm.of(form).with_outputs_of(numbers, means[numbers])

    def _hooks(self, model: HookedTransformer, seen: SeenTokens) -> HookList:
        check_model(model, d_vocab=None)
        numbers = check_heads(model, self.heads)
        means = head_outputs(model, self._data()).mean(dim=0) if self.mode == "mean" else None
        return ablation_hooks(model, numbers, means=means)

    def _data(self) -> CountsLike | Prompts:
        return make_splits().train if self.data is None else self.data


@contextmanager
def ablate_heads(
    model: HookedTransformer,
    heads: Iterable[HeadName],
    mode: Mode = "zero",
    *,
    data: CountsLike | Prompts | None = None,
) -> Iterator[HookedTransformer]:
    """Take heads out of a model for the length of a `with` block.

    The short way to `Ablate(...).applied(model)`, whose arguments it takes.

    Example:
        >>> model = cl.example_model()
        >>> with cl.ablate_heads(model, range(16)):
        ...     left = model("0112=")[0, -1]  # nothing but the bias of the output layer
        >>> torch.equal(left, model.b_U)
        True
    """
    with Ablate(heads, mode, data).applied(model):  # type: ignore[arg-type]
        yield model
