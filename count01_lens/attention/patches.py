"""Attention set by hand: by ratios between tokens, by weights per token, or from another sentence.

The paper's intervention (section 5.4): in the row of '=', one '0', one '1' and one '2' get
attention in the proportion 1 : 1/w01 : 1/w02.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.attention.interventions import HookList, Intervention
from count01_lens.attention.rows import PatchedForm, RowPatch, patchable_heads, pattern_hooks
from count01_lens.attention.seen_tokens import SeenTokens
from count01_lens.common.text import as_code
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.counts.closed_form import CountForm
from count01_lens.models.hooks import HeadName, head_numbers, several_heads
from count01_lens.tasks.language import COUNTED, TOKENS, Token
from count01_lens.tasks.places import At, place_at

Others = Literal["zero", "keep"]
Scores = Float[Tensor, "head query=8 key=8"]
LogWeights = tuple[Float[Tensor, "chosen query=8 key=8"], Iterable[Token]]


@dataclass(frozen=True, kw_only=True)
class RowIntervention(Intervention):
    """New attention rows of some heads at one place.

    Attributes:
        heads: numbers or (layer, head) pairs; None for all.
        others: whether tokens that are not named get nothing ("zero") or keep their weights.
        at: the row: that of "=", or of the "answer".
    """

    heads: tuple[HeadName, ...] | None = None
    others: Others = "zero"
    at: At = "="

    def __post_init__(self) -> None:
        if self.heads is not None:
            object.__setattr__(self, "heads", several_heads(self.heads))
        check_choice("others", self.others, ("zero", "keep"))
        place_at(self.at)

    def row_patch(self, numbers: list[int], own: Callable[[], Scores]) -> RowPatch:
        """Write it as weights for some heads, whose own scores are asked for where they matter."""
        weights, named = self._log_weights(numbers, own)
        kept = torch.full((len(Token),), self.others == "keep")
        kept[list(named)] = False
        return RowPatch(numbers, weights, kept, place_at(self.at))

    def on_counts(self, form: CountForm) -> CountForm:
        """Apply it to tables over counts."""
        n_heads = form.scores.shape[1]
        numbers = head_numbers(range(n_heads) if self.heads is None else self.heads, 1, n_heads)
        return PatchedForm.of(form, self.row_patch(numbers, lambda: form.scores[0].double()))

    def _hooks(self, model: HookedTransformer, seen: SeenTokens) -> HookList:
        numbers = patchable_heads(model, self.heads)
        return pattern_hooks(model, self.row_patch(numbers, lambda: _own_scores(model)), seen)

    @abstractmethod
    def _log_weights(self, numbers: list[int], own: Callable[[], Scores]) -> LogWeights:
        """Log of the weights, and the tokens that they are about."""


@dataclass(frozen=True, kw_only=True)
class Ratios(RowIntervention):
    """'0', '1', '2' get attention in the proportion 1 : 1/w01 : 1/w02, as in `patch_attention`."""

    w01: float | None = None
    w02: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("w01", "w02"):
            object.__setattr__(self, name, check_ratio(name, getattr(self, name)))
        if self.w01 == 0 and self.w02 == 0:
            raise ValueError(
                "w01 = 0 and w02 = 0 both take all attention from '0' and say nothing about '1' "
                "against '2': expected at most one zero; set_attention can weigh '1' and '2'"
            )

    def _log_weights(self, numbers: list[int], own: Callable[[], Scores]) -> LogWeights:
        weights = torch.full((len(numbers), len(Token), len(Token)), -math.inf, dtype=torch.float64)
        if self.w01 == 0:  # '0' gets nothing, nor does '2', whose ratio is to '0'
            weights[..., Token.ONE] = 0.0
        elif self.w02 == 0:
            weights[..., Token.TWO] = 0.0
        else:
            weights[..., Token.ZERO] = 0.0
            scores = own()[numbers] if None in (self.w01, self.w02) else weights
            for token, ratio in ((Token.ONE, self.w01), (Token.TWO, self.w02)):
                own_ratio = scores[..., token] - scores[..., Token.ZERO]
                weights[..., token] = own_ratio if ratio is None else -math.log(ratio)
        return weights, COUNTED

    def __str__(self) -> str:
        """Write the call that does this."""
        given: dict[str, Any] = {"w01": self.w01, "w02": self.w02}
        given["heads"] = None if self.heads is None else list(self.heads)
        given["others"] = None if self.others == "zero" else self.others
        given["at"] = None if self.at == "=" else self.at
        written = [f"{name}={as_code(value)}" for name, value in given.items() if value is not None]
        return f"patch_attention({', '.join(['model', *written])})"


@dataclass(frozen=True)
class Weights(RowIntervention):
    """Each token of a type gets the weight you like.

    Attributes:
        weights: by token, such as `{"0": 1, "1": 1, "=": 0.5}`: how much one token of this type
            gets, relative to the others; the row is scaled to sum to one.
    """

    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise TypeError(
                f"weights: expected a mapping such as {{'0': 1, '1': 1}}, got {self.weights!r}"
            )
        checked = {}
        for text, weight in self.weights.items():
            check_choice("weights: token", text, TOKENS)
            number = check_ratio(f"weights[{text!r}]", weight)
            if number is None or math.isinf(number):
                raise ValueError(f"weights[{text!r}]: expected a finite number, got {weight!r}")
            checked[text] = number
        object.__setattr__(self, "weights", checked)

    def _log_weights(self, numbers: list[int], own: Callable[[], Scores]) -> LogWeights:
        table = torch.zeros(len(Token), dtype=torch.float64)
        named = [Token(TOKENS.index(text)) for text in self.weights]
        table[named] = torch.tensor(list(self.weights.values()), dtype=torch.float64)
        return table.log().expand(len(numbers), len(Token), len(Token)), named


@contextmanager
def patch_attention(
    model: HookedTransformer,
    *,
    w01: float | None = None,
    w02: float | None = None,
    heads: Iterable[HeadName] | None = None,
    others: Others = "zero",
    at: At = "=",
) -> Iterator[HookedTransformer]:
    """Give '0', '1', '2' attention in the proportion 1 : 1/w01 : 1/w02, inside a `with` block.

    The short way to `Ratios(...).applied(model)`. Works on sequences of different lengths and on
    the compact form; nests with `ablate_heads` and with other patches, of which the innermost
    decides.

    Args:
        model: any HookedTransformer over the eight tokens.
        w01: attention of one '0' over that of one '1'. 0 takes all from '0' (and from '2', whose
            ratio is to '0'), infinity all from '1'; None keeps each head's own ratio, that of its
            weights, whatever hooks do to scores.
        w02: attention of one '0' over that of one '2', likewise. Not 0 together with w01 = 0.
        heads: numbers, or (layer, head) pairs; all by default.
        others: "zero", as in the paper: '[BOS]' and '=' get nothing. "keep": they keep their
            weights, and '0', '1', '2' share the rest.
        at: the row to patch: that of "=", or of the "answer".

    Example:
        >>> model = cl.example_model()
        >>> only_zeros = float("inf")  # '=' sees nothing else
        >>> with cl.patch_attention(model, w01=only_zeros, w02=only_zeros):
        ...     model.generate("0112=", max_new_tokens=1, do_sample=False, verbose=False)
        '0112=5'
    """
    with Ratios(w01=w01, w02=w02, heads=heads, others=others, at=at).applied(model):  # type: ignore[arg-type]
        yield model


@contextmanager
def set_attention(
    model: HookedTransformer,
    weights: Mapping[str, float],
    *,
    heads: Iterable[HeadName] | None = None,
    others: Others = "zero",
    at: At = "=",
) -> Iterator[HookedTransformer]:
    """Give each token of a type the weight you like, inside a `with` block.

    The short way to `Weights(...).applied(model)`, whose arguments it takes.
    """
    with Weights(weights=weights, heads=heads, others=others, at=at).applied(model):  # type: ignore[arg-type]
        yield model


def check_ratio(name: str, value: Any) -> float | None:
    """Raise unless a value is None or a number from 0 to infinity."""
    if value is None:
        return None
    is_number = hasattr(value, "__float__") and not isinstance(value, bool | str)
    if not is_number or not float(value) >= 0:
        raise ValueError(f"{name}: expected None or a number from 0 to infinity, got {value!r}")
    return float(value)


def _own_scores(model: HookedTransformer) -> Scores:
    """Attention scores between tokens, where they are the same in every sentence."""
    try:
        form = CountForm.from_models([model], dtype=torch.float64, ignore_hooks=True)
    except ValueError as error:
        raise ValueError(
            f"None keeps a head's own ratio, which must be the same in all sentences: {error}; "
            "give both w01 and w02"
        ) from error
    return form.scores[0]
