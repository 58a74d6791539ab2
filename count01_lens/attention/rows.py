"""What attention rows are rewritten to: ratios between tokens, or any weight per token.

A new row is built from the tokens of the sentence, never by reweighting the old one: in a collapsed
head the old row is zero where the new one should not be. `interventions` attaches such rows to a
model as hooks; `PatchedForm` applies them to tables over counts. Both call `RowPatch.rewrite`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from count01_lens.common.text import as_code
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.counts.closed_form import KEYS, QUERIES, CountForm, Place, smallest_safe
from count01_lens.counts.compact import count_form_applies
from count01_lens.models.hooks import HeadName, check_heads
from count01_lens.models.model import check_model
from count01_lens.tasks.language import COUNTED, TOKENS, At, Token

Others = Literal["zero", "keep"]
# The tokens in whose rows a model is asked for the next one.
ASKING: dict[At, tuple[Token, ...]] = {"=": (Token.EQUALS,), "answer": (Token.FOUR, Token.FIVE)}


@dataclass(frozen=True, kw_only=True)
class AttentionRatios:
    """What `patch_attention` is asked for, checked.

    Attributes:
        w01: attention of one '0' over that of one '1'; None keeps each head's own ratio.
        w02: attention of one '0' over that of one '2'; likewise.
        heads: numbers or (layer, head) pairs; None for all.
        others: whether '[BOS]', '=' (and the answer) get nothing, or keep their weights.
        at: the row: of '=', or of the answer.
    """

    w01: float | None = None
    w02: float | None = None
    heads: tuple[HeadName, ...] | None = None
    others: Others = "zero"
    at: At = "="

    def __post_init__(self) -> None:
        for name in ("w01", "w02"):
            object.__setattr__(self, name, check_ratio(name, getattr(self, name)))
        if self.w01 == 0 and self.w02 == 0:
            raise ValueError(
                "w01 = 0 and w02 = 0 both take all attention from '0' and say nothing about '1' "
                "against '2': expected at most one zero; set_attention can weigh '1' and '2'"
            )
        check_choice("others", self.others, ("zero", "keep"))
        check_choice("at", self.at, ("=", "answer"))

    @property
    def needs_own(self) -> bool:
        """Whether a ratio of the heads' own takes part."""
        return (self.w01 is None and self.w02 != 0) or (self.w02 is None and self.w01 != 0)

    def log_weights(self, own: Float[Tensor, "*row 3"]) -> Float[Tensor, "*row 3"]:
        """Log of the weights of one '0', one '1', one '2', where `own` are the head's scores."""
        weights = torch.full_like(own, -math.inf)
        if self.w01 == 0:  # '0' gets nothing, nor does '2', whose ratio is to '0'
            weights[..., 1] = 0.0
        elif self.w02 == 0:
            weights[..., 2] = 0.0
        else:
            weights[..., 0] = 0.0
            for key, ratio in ((1, self.w01), (2, self.w02)):
                weights[..., key] = (
                    own[..., key] - own[..., 0] if ratio is None else -math.log(ratio)
                )
        return weights

    def __str__(self) -> str:
        """Write the call that does this."""
        shown = [f"{name}={as_code(value)}" for name, value in self._changed()]
        return f"patch_attention({', '.join(['model', *shown])})"

    def _changed(self) -> Iterator[tuple[str, Any]]:
        for name in ("w01", "w02"):
            if getattr(self, name) is not None:
                yield name, getattr(self, name)
        if self.heads is not None:
            yield "heads", list(self.heads)
        if self.others != "zero":
            yield "others", self.others
        if self.at != "=":
            yield "at", self.at


@dataclass(frozen=True, eq=False)
class RowPatch:
    """New attention rows of some heads, by query and key token.

    Attributes:
        heads: numbers of the heads, counted through the layers.
        log_weights: log of the weight that one key token gets from a query token, for each of
            these heads; -inf is nothing.
        kept: key tokens that keep the weight they have; the others share the rest.
        at: which rows are rewritten.
    """

    heads: list[int]
    log_weights: Float[Tensor, "chosen query=8 key=8"]
    kept: Bool[Tensor, " key=8"]
    at: At

    @classmethod
    def from_ratios(cls, model: HookedTransformer, ratios: AttentionRatios) -> "RowPatch":
        """Turn ratios into weights for the heads of a model."""
        heads = head_numbers(model, ratios.heads)
        own = torch.zeros(len(heads), len(Token), len(COUNTED), dtype=torch.float64)
        if ratios.needs_own:
            own = _own_scores(model)[heads][:, :, list(COUNTED)]
        weights = torch.full((len(heads), len(Token), len(Token)), -math.inf, dtype=torch.float64)
        weights[:, :, list(COUNTED)] = ratios.log_weights(own)
        return cls(heads, weights, _kept(COUNTED, ratios.others), ratios.at)

    @classmethod
    def from_weights(
        cls,
        model: HookedTransformer,
        weights: Mapping[str, float],
        heads: Iterable[HeadName] | None,
        others: Others,
        at: At,
    ) -> "RowPatch":
        """Give every token of a type the same weight in all chosen heads."""
        check_choice("others", others, ("zero", "keep"))
        check_choice("at", at, ("=", "answer"))
        numbers = head_numbers(model, heads)
        by_key = _log_weights_by_token(weights)
        table = by_key.expand(len(numbers), len(Token), len(Token))
        named = [Token(TOKENS.index(text)) for text in weights]
        return cls(numbers, table, _kept(named, others), at)

    def rewrite(
        self,
        own: Float[Tensor, "*row key"],
        log_weights: Float[Tensor, "*row key"],
        kept: Bool[Tensor, "*_ key"],
    ) -> Float[Tensor, "*row key"]:
        """Build rows from log-weights of their keys; the heart of all patches.

        A row in which nothing has a weight stays zero: the head then says nothing.
        """
        log_weights = log_weights.masked_fill(kept, -math.inf)
        largest = log_weights.amax(dim=-1, keepdim=True)
        relative = torch.exp(log_weights - largest.where(largest.isfinite(), largest.new_zeros(())))
        total = relative.sum(dim=-1, keepdim=True)
        shares = relative / total.where(total > 0, torch.ones_like(total))
        rest = own.masked_fill(kept, 0.0).sum(dim=-1, keepdim=True) if self.kept.any() else 1.0
        return own.where(kept, rest * shares)


@dataclass(frozen=True, eq=False)
class PatchedForm(CountForm):
    """Tables of a model whose attention is patched; everything of `CountForm` works on it."""

    patch: RowPatch

    @classmethod
    def of(cls, form: CountForm, patch: RowPatch) -> "PatchedForm":
        """Patch the tables of a model."""
        return cls(form.scores, form.values, form.logit_weights, form.logit_bias, patch)

    def attention(
        self, multiplicity: Float[Tensor, "*model sample query key"], place: Place
    ) -> Float[Tensor, "model sample head query key"]:
        """Attention that all tokens of one type get together, in patched rows and others."""
        attention = super().attention(multiplicity, place).clone()
        patch, queries = self.patch, range(*QUERIES[place].indices(len(Token)))
        for row, query in enumerate(queries):
            if query not in ASKING[patch.at]:
                continue
            log_n = multiplicity[..., row, :].log().unsqueeze(-2)
            weights = patch.log_weights[:, query, KEYS].to(attention) + log_n
            own = attention[..., patch.heads, row, :]
            present = multiplicity[..., row, : Token.BOS + 1] > 0  # is this the query asked here?
            attention[..., patch.heads, row, :] = patch.rewrite(
                own, weights.expand_as(own), patch.kept[KEYS]
            ) * present.unsqueeze(-1)
        return attention

    def _outputs_by_coordinate(
        self, multiplicity: Float[Tensor, "*model sample query key"], place: Place
    ) -> Float[Tensor, "model sample d_head head"]:
        patch = self.patch
        queries = list(ASKING[patch.at])
        if patch.kept.any() or place != patch.at or (patch.log_weights == -math.inf).all(-1).any():
            return self._outputs_by_attention(multiplicity, place)
        # Where nothing is kept, new weights are nothing but other scores: the fast way works, but
        # for the few sentences with next to nothing to attend to.
        scores = self.scores.clone()
        scores[:, torch.tensor(patch.heads)[:, None], torch.tensor(queries)] = patch.log_weights[
            :, queries
        ].to(scores)
        numerator, denominator = self._sums(scores[:, :, QUERIES[place], KEYS], multiplicity)
        outputs = numerator * denominator.reciprocal().unsqueeze(-2)
        unsafe = (denominator < smallest_safe(scores.dtype)).any(dim=-1).any(dim=0)
        if unsafe.any():
            outputs[:, unsafe] = self._outputs_by_attention(multiplicity[..., unsafe, :, :], place)
        return outputs


def head_numbers(model: HookedTransformer, heads: Iterable[HeadName] | None) -> list[int]:
    """Return the numbers of heads, all where None is given, of a model that can be patched."""
    check_model(model)
    if model.cfg.attention_dir != "causal":
        raise ValueError("model: expected causal attention, in which '=' sees what stands before")
    if heads is None:
        return list(range(model.cfg.n_layers * model.cfg.n_heads))
    return check_heads(model, heads)


def _own_scores(
    model: HookedTransformer,
) -> Float[Tensor, "head query=8 key=8"]:
    """Attention scores between tokens, where they are the same in every sentence."""
    reason = count_form_applies(model, ignore_hooks=True)
    if reason is not None:
        raise ValueError(
            f"None keeps a head's own ratio, but this model has none for all sentences: {reason}; "
            "give both w01 and w02"
        )
    return CountForm.from_models([model], dtype=torch.float64, ignore_hooks=True).scores[0]


def _kept(named: Iterable[Token], others: Others) -> Bool[Tensor, " key=8"]:
    kept = torch.full((len(Token),), others == "keep")
    kept[list(named)] = False
    return kept


def _log_weights_by_token(weights: Mapping[str, float]) -> Float[Tensor, " key=8"]:
    if not isinstance(weights, Mapping) or not weights:
        raise TypeError(f"weights: expected a mapping such as {{'0': 1, '1': 1}}, got {weights!r}")
    table = torch.zeros(len(Token), dtype=torch.float64)
    for text, weight in weights.items():
        check_choice("weights: token", text, TOKENS)
        number = check_ratio(f"weights[{text!r}]", weight)
        if number is None or math.isinf(number):
            raise ValueError(f"weights[{text!r}]: expected a finite number, got {weight!r}")
        table[TOKENS.index(text)] = number
    return table.log()


def check_ratio(name: str, value: Any) -> float | None:
    """Raise unless a value is None or a number from 0 to infinity."""
    if value is None:
        return None
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise ValueError(f"{name}: expected None or a number from 0 to infinity, got {value!r}")
    number = float(value)
    if math.isnan(number) or number < 0:
        raise ValueError(f"{name}: expected None or a number from 0 to infinity, got {value!r}")
    return number
