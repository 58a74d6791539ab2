"""Attention set by hand: by ratios between tokens, by weights per token, or from another sentence.

The paper's intervention (section 5.4): in the row of '=', one '0', one '1' and one '2' get
attention in the proportion 1 : 1/w01 : 1/w02. Other counting tasks have other symbols.
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
from count01_lens.models.task_of import language_for
from count01_lens.tasks.counting import At, CountingLanguage
from count01_lens.tasks.places import place_at

Others = Literal["zero", "keep"]
Scores = Float[Tensor, "head query key"]
LogWeights = tuple[Float[Tensor, "chosen query key"], Iterable[int]]


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

    def row_patch(
        self, numbers: list[int], own: Callable[[], Scores], language: CountingLanguage
    ) -> RowPatch:
        """Write it as weights for some heads, whose own scores are asked for where they matter."""
        weights, named = self._log_weights(numbers, own, language)
        kept = torch.full((language.d_vocab,), self.others == "keep")
        kept[list(named)] = False
        return RowPatch(numbers, weights, kept, language.place(self.at))

    def on_counts(self, form: CountForm) -> CountForm:
        """Apply it to tables over counts."""
        n_heads = form.scores.shape[1]
        numbers = head_numbers(range(n_heads) if self.heads is None else self.heads, 1, n_heads)
        patch = self.row_patch(numbers, lambda: form.scores[0].double(), form.language)
        return PatchedForm.of(form, patch)

    def _hooks(self, model: HookedTransformer, seen: SeenTokens) -> HookList:
        numbers = patchable_heads(model, self.heads)
        patch = self.row_patch(numbers, lambda: _own_scores(model), language_for(model))
        return pattern_hooks(model, patch, seen)

    @abstractmethod
    def _log_weights(
        self, numbers: list[int], own: Callable[[], Scores], language: CountingLanguage
    ) -> LogWeights:
        """Log of the weights, and the tokens that they are about."""


@dataclass(frozen=True, kw_only=True)
class Ratios(RowIntervention):
    """'0', '1', '2' get attention in the proportion 1 : 1/w01 : 1/w02, as in `patch_attention`.

    Attributes:
        w01, w02: attention to one '0' divided by attention to one '1', or to one '2'; None keeps
            each head's own ratio.
        ratios: for any counting task, attention to one of its first symbol divided by attention to
            one of each other symbol, by that symbol: `{"b": 1.0, "c": math.inf}`; those not named
            keep theirs.
    """

    w01: float | None = None
    w02: float | None = None
    ratios: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("w01", "w02"):
            object.__setattr__(self, name, check_ratio(name, getattr(self, name)))
        if self.ratios is not None:
            if not isinstance(self.ratios, Mapping):
                raise TypeError(f"ratios: expected numbers by symbol, got {self.ratios!r:.80}")
            given = self.ratios.items()
            checked = {str(text): check_ratio(f"ratios[{text!r}]", ratio) for text, ratio in given}
            object.__setattr__(self, "ratios", checked)
        if self.w01 == 0 and self.w02 == 0:
            raise ValueError(
                "w01 = 0 and w02 = 0 both take all attention from '0' and say nothing about '1' "
                "against '2': expected at most one zero; set_attention can weigh '1' and '2'"
            )
        if sum(ratio == 0 for ratio in self._given().values()) > 1:
            raise ValueError(
                "ratios: expected at most one zero, which takes all attention from the others, got "
                f"{self._given()}; set_attention can weigh any symbols"
            )

    def _given(self) -> dict[str, float | None]:
        """Ratios of the first symbol to others, as far as they are set."""
        short = {"1": self.w01, "2": self.w02}
        given: dict[str, float | None] = {
            text: ratio for text, ratio in short.items() if ratio is not None
        }
        both = given.keys() & (self.ratios or {}).keys()
        if both:
            raise ValueError(f"ratios: expected those of {sorted(both)} once, got w01 or w02, too")
        return given | dict(self.ratios or {})

    def _log_weights(
        self, numbers: list[int], own: Callable[[], Scores], language: CountingLanguage
    ) -> LogWeights:
        given, (first, *others) = self._given(), language.symbols
        for text in given:
            if text not in others or (self.ratios is None and first != "0"):
                raise ValueError(
                    f"ratios: expected those of {first!r} over {' or '.join(map(repr, others))}, "
                    f"got one over {text!r}"
                )
        n = language.d_vocab
        weights = torch.full((len(numbers), n, n), -math.inf, dtype=torch.float64)
        alone = [text for text, ratio in given.items() if ratio == 0]
        if alone:  # the first symbol gets nothing, nor do others, whose ratio is to it
            weights[..., language.tokens.index(alone[0])] = 0.0
        else:
            weights[..., 1] = 0.0
            ratios = [given.get(text) for text in others]
            scores = own()[numbers] if None in ratios else weights
            for token, ratio in enumerate(ratios, start=2):
                own_ratio = scores[..., token] - scores[..., 1]
                weights[..., token] = own_ratio if ratio is None else -math.log(ratio)
        return weights, range(1, language.equals)

    def __str__(self) -> str:
        """Write the call that does this."""
        given: dict[str, Any] = {"w01": self.w01, "w02": self.w02}
        given["ratios"] = None if self.ratios is None else dict(self.ratios)
        given["heads"] = None if self.heads is None else list(self.heads)
        given["others"] = None if self.others == "zero" else self.others
        given["at"] = None if self.at == "=" else self.at
        written = [f"{name}={as_code(value)}" for name, value in given.items() if value is not None]
        return f"patch_attention({', '.join(['model', *written])})"


@dataclass(frozen=True)
class Weights(RowIntervention):
    """Give each type of token a weight of your choice.

    Attributes:
        weights: by token of the model's task, such as `{"0": 1, "1": 1, "=": 0.5}`: how much one
            token of this type gets, relative to the others; the row is scaled to sum to one.
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
            number = check_ratio(f"weights[{text!r}]", weight)
            if number is None or math.isinf(number):
                raise ValueError(f"weights[{text!r}]: expected a finite number, got {weight!r}")
            checked[text] = number
        object.__setattr__(self, "weights", checked)

    def _log_weights(
        self, numbers: list[int], own: Callable[[], Scores], language: CountingLanguage
    ) -> LogWeights:
        for text in self.weights:
            check_choice("weights: token", text, language.tokens)
        table = torch.zeros(language.d_vocab, dtype=torch.float64)
        named = [language.tokens.index(text) for text in self.weights]
        table[named] = torch.tensor(list(self.weights.values()), dtype=torch.float64)
        return table.log().expand(len(numbers), language.d_vocab, language.d_vocab), named


@contextmanager
def patch_attention(
    model: HookedTransformer,
    *,
    w01: float | None = None,
    w02: float | None = None,
    ratios: Mapping[str, float] | None = None,
    heads: Iterable[HeadName] | None = None,
    others: Others = "zero",
    at: At = "=",
) -> Iterator[HookedTransformer]:
    """Give '0', '1', '2' attention in the proportion 1 : 1/w01 : 1/w02, inside a `with` block.

    Short for `Ratios(...).applied(model)`. Works on sequences of different lengths and on the
    compact form; nests with `ablate_heads` and with other patches, of which the innermost wins.

    Args:
        model: any HookedTransformer over the tokens of Count01, or of its counting task.
        w01: attention to one '0' divided by attention to one '1'. 0 leaves nothing to '0' (nor to
            '2', whose ratio is to '0'), infinity nothing to '1'; None keeps each head's own ratio,
            that of its weights, whatever hooks do to scores.
        w02: attention to one '0' divided by attention to one '2', likewise. It cannot be 0 if w01
            is.
        ratios: the same for any counting task: attention to one of its first symbol divided by
            attention to one of another symbol, by that symbol, such as
            {"b": 1.0, "c": float("inf")}.
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
    patch = Ratios(w01=w01, w02=w02, ratios=ratios, heads=heads, others=others, at=at)  # type: ignore[arg-type]
    with patch.applied(model):
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
    """Give each type of token a weight of your choice, inside a `with` block.

    Short for `Weights(...).applied(model)`; takes the same arguments.
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
