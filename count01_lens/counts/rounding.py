"""How far rounding can move the margin between two answers: a bound for every way to run a model.

Sequences, the compact form and the closed form compute the same margin by other sums in other
orders. `MarginBound` bounds the distance of each of them from the exact margin of the weights as
they are stored. It is derived, with every symbol, in docs/rounding.md.
"""

import itertools
from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.counts.closed_form import CountForm, count_parameters, smallest_safe
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.stored import Model, attn_scale_of
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.places import COUNT01

_EXP = 4  # how many roundings an exp or a log may be off by: 2 ulp
_FINE = torch.float64  # what the bound itself is computed in
# Covers the rounding of the bound itself, as long as attention is known to `_KNOWN` in `_FINE`.
_SAFETY = 1.01
_KNOWN = 1e-3
# Where attention may be off by more than a quarter, all that is used of it is that it sums to one.
_TAME = 0.25


@dataclass(frozen=True)
class Precision:
    """What is assumed of arithmetic in a dtype.

    Attributes:
        unit: the largest relative error of one operation, half of `eps`.
        lost: the largest absolute error where the result of an operation underflows.
        largest: intermediate results up to here surely do not overflow.
    """

    unit: float
    lost: float
    largest: float

    @classmethod
    def of(cls, dtype: torch.dtype) -> "Precision":
        """Look up a dtype."""
        info = torch.finfo(dtype)
        unit = info.eps / 2
        if dtype == torch.float16:
            # Rounded from float32, with subnormal numbers; the closed form is never run in it.
            return cls(unit, info.tiny * unit, info.max / 2)
        # Some processors flush subnormal numbers to zero, and the closed form sums up thousands.
        return cls(unit, info.tiny, info.max / 2**14)

    def gamma(self, roundings: Float[Tensor, "*batch"] | int) -> Float[Tensor, "*batch"]:
        """Bound the relative error that so many roundings add up to, `k u / (1 - k u)`."""
        errors = torch.as_tensor(roundings, dtype=_FINE) * self.unit
        return torch.where(errors < 1, errors / (1 - errors), torch.inf)


@dataclass(frozen=True)
class Roundings:
    """How many roundings a term goes through at most before it is part of a score, value or logit.

    Products with a weight of zero are exact, and so is adding them.
    """

    score: int
    value: int
    logit: int

    @classmethod
    def of(cls, model: Model, dtype: torch.dtype) -> "Roundings":
        """Count the terms of a model that is run in a dtype."""
        cfg, weights = model.cfg, count_parameters(model)
        reads = torch.cat([weights[f"blocks.0.attn.W_{letter}"] for letter in "QKV"])
        biases = torch.stack([weights[f"blocks.0.attn.b_{letter}"] for letter in "QKV"])
        terms = einsum(_nonzero(model.W_E), _nonzero(reads), "t d_model, h d_model d -> t h d")
        value = int(terms.max()) + int(biases.any())
        # The scale is rounded, maybe inverted, and applied; in the compact form log n is added.
        score = 2 * value + cfg.d_head + (0 if attn_scale_of(model) == 1 else 3) + 1
        logit = cfg.n_heads * cfg.d_head + int(_nonzero(model.W_U).sum(dim=0).max()) + 3
        if torch.finfo(dtype).eps <= torch.finfo(model.W_E.dtype).eps:
            return cls(score, value, logit)
        return cls(score + 4, value + 2, logit + 2)  # the weights themselves are rounded


class MarginBound:
    """Bounds the error of the margin between two answers in a run of a model in a dtype.

    The margin is that at '=', run in any way and order; the answers are given by their places.

    Attributes:
        tau: how far the logarithm of a token's weight in a head's attention is off at most, but
            for what `log n` brings.
        alone: what a head would add to the margin if it saw one token only.
        sizes: for such a head, what the errors of its output, its values and of logits are relative
            to.
        skip: the same for what reaches the logits past the heads.
        underflow: the absolute error for each token of a sentence.
        factor: infinite where something may overflow, otherwise a little above 1.
    """

    def __init__(
        self,
        model: Model,
        dtype: torch.dtype,
        pair: tuple[int, int] = (0, 1),
        language: CountingLanguage = COUNT01,
    ):
        self.language = language
        equals, before = language.equals, slice(0, language.equals + 1)
        answers = [language.equals + 1 + place for place in pair]
        self.precision = precision = Precision.of(dtype)
        self.roundings = roundings = Roundings.of(model, dtype)
        floor, gamma = precision.lost / precision.unit, precision.gamma
        self.form = form = CountForm.from_models([model], dtype=_FINE, task=language)
        magnitudes = CountForm.magnitudes(model, _FINE, task=language, floor=floor)
        scale = abs(attn_scale_of(model))

        scores = form.scores[0, :, equals, before]
        products = magnitudes.scores[0, :, equals, before]
        off = gamma(roundings.score) * (products + floor * (1 + 1 / scale))
        below = scores.amax(dim=-1, keepdim=True) - scores
        furthest = below + 2 * off.amax(dim=-1, keepdim=True)
        self.tau = off + precision.unit * furthest + gamma(_EXP)

        values, written = magnitudes.values[0, :, before], magnitudes.logit_weights[0] + floor
        towards_one = _lead(form.logit_weights[0], answers).abs()
        both = written[..., answers].sum(dim=-1)
        self.alone = _lead(form.values[0, :, before] @ form.logit_weights[0], answers)
        self.sizes = torch.stack(
            [
                _read(form.values[0, :, before].abs(), towards_one),
                _read(values, towards_one),
                _read(values, both),
            ],
            dim=-1,
        )
        self.skip = magnitudes.logit_bias[0, equals, answers].sum()
        per_token = precision.lost / min(1.0, smallest_safe(dtype))
        self.underflow = 4 * per_token * ((values.amax(dim=1) + 1) * towards_one).sum()
        overflows = not _largest(model, magnitudes, scale) < precision.largest
        self.factor = torch.inf if overflows else _SAFETY

    def of(self, counts: Int[Tensor, "sample symbol"]) -> Float[Tensor, " sample"]:
        """Bound the error on sentences, each by the attention that its tokens get."""
        sentences = Multiplicities.of(counts, self.language.at_equals, _FINE)
        attention = self.form.attention(sentences)[0, :, :, 0, : self.language.equals + 1]
        n_tokens = sentences.n.sum(dim=(-2, -1))
        share = einsum(attention, self.alone, "sample head key, head key -> sample head")
        tau = self.tau + self._by_log(n_tokens)[:, None, None]
        distance = (self.alone - share.unsqueeze(-1)).abs()
        moved = (attention * tau * distance).sum(dim=-1)
        sizes = einsum(attention, self.sizes, "sample head key, head key size -> sample head size")
        return self._total(n_tokens, moved, share.abs(), sizes)

    def at_most(self, n_tokens: Float[Tensor, " sample"]) -> Float[Tensor, " sample"]:
        """Bound the error on all sentences of so many tokens up to '=', whatever they are."""
        n_heads = len(self.alone)
        tau = self.tau.amax(dim=-1) + self._by_log(n_tokens)[:, None]
        share = self.alone.abs().amax(dim=-1).expand(len(n_tokens), n_heads)
        sizes = self.sizes.amax(dim=1).expand(len(n_tokens), n_heads, 3)
        return self._total(n_tokens, tau * self._range(), share, sizes)

    def _by_log(self, n_tokens: Float[Tensor, " sample"]) -> Float[Tensor, " sample"]:
        """Bound the part of tau that the compact form's `log n` brings."""
        return self.precision.gamma(_EXP + 4) * n_tokens.log()

    def _range(self) -> Float[Tensor, " head"]:
        return self.alone.amax(dim=-1) - self.alone.amin(dim=-1)

    def _total(
        self,
        n_tokens: Float[Tensor, " sample"],
        moved: Float[Tensor, "sample head"],
        share: Float[Tensor, "sample head"],
        sizes: Float[Tensor, "sample head size=3"],
    ) -> Float[Tensor, " sample"]:
        """Put the error together from averages over attention.

        Args:
            n_tokens: up to '='.
            moved: the error of the share by that of attention, to first order.
            share: absolute contribution to the margin.
            sizes: averages of `self.sizes`.
        """
        gamma, roundings = self.precision.gamma, self.roundings
        tau = self.tau.amax(dim=-1) + self._by_log(n_tokens)[:, None]
        tame = tau <= min(_TAME, _KNOWN * self.precision.unit / Precision.of(_FINE).unit)
        spread = torch.exp(4 * tau.clamp(max=_TAME))
        moved = torch.where(tame, (spread * moved).minimum(self._range()), self._range())
        largest = self.sizes.amax(dim=1)
        sizes = torch.where(
            tame.unsqueeze(-1), (spread.unsqueeze(-1) * sizes).minimum(largest), largest
        )
        by_sum, by_norm = gamma(n_tokens + 2), gamma(n_tokens + 1)
        by_value, by_logit = gamma(roundings.value), gamma(roundings.logit)
        relative = torch.stack(
            [by_sum, by_value.expand_as(by_sum), by_logit.expand_as(by_sum)], dim=-1
        )
        again = (1 + by_sum) * (1 + by_norm) * (1 + by_value)
        of_heads = (
            moved
            + by_norm.unsqueeze(-1) * (share + moved)
            + again.unsqueeze(-1) * (sizes * relative.unsqueeze(-2)).sum(dim=-1)
        )
        total = of_heads.sum(dim=-1) + by_logit * self.skip + n_tokens * self.underflow
        # What is no number, such as infinity times zero, is no bound.
        return (self.factor * total).nan_to_num(nan=torch.inf, posinf=torch.inf)


class RoundingErrors:
    """Tells which answers are safe from rounding: of a computation, and of the model's own runs."""

    def __init__(
        self,
        model: Model,
        dtype: torch.dtype,
        up_to: int,
        language: CountingLanguage = COUNT01,
    ):
        """Prepare for sentences of up to `up_to` of each token, whose margins a dtype gave."""
        n_answers = len(language.answers)
        self.language = language
        self.bounds = {
            pair: [MarginBound(model, each, pair, language) for each in (dtype, model.W_E.dtype)]
            for pair in itertools.combinations(range(n_answers), 2)
        }
        longest = len(language.symbols) * up_to
        lengths = torch.arange(longest + 3, dtype=_FINE).clamp(min=2)
        of_pairs = [
            torch.stack([bound.at_most(lengths) for bound in bounds]).sum(dim=0)
            for bounds in self.bounds.values()
        ]
        self.largest = torch.stack(of_pairs).amax(dim=0)

    def count_unsafe(
        self, counts: Int[Tensor, "sample symbol"], margin: Float[Tensor, " sample"]
    ) -> int:
        """Count the sentences whose margin is not larger than both errors together.

        The margin is that of the right answer over the best other one, with either sign.
        """
        close = ~(margin.abs() > self.largest[counts.sum(dim=1) + 2])
        if not bool(close.any()):
            return 0
        return int((~(margin[close].abs() > self._errors(counts[close]))).sum())

    def _errors(self, counts: Int[Tensor, "sample symbol"]) -> Float[Tensor, " sample"]:
        """Bound both errors together; of leads over several answers, the largest of theirs."""
        right, errors = self.language.answer(counts), torch.zeros(len(counts), dtype=_FINE)
        for pair, bounds in self.bounds.items():
            of_pair = (right == pair[0]) | (right == pair[1])
            if bool(of_pair.any()):
                found = torch.stack([bound.of(counts[of_pair]) for bound in bounds]).sum(dim=0)
                errors[of_pair] = torch.maximum(errors[of_pair], found)
        return errors


def _nonzero(weights: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return (weights.detach().cpu() != 0).to(_FINE)


def _lead(logits: Float[Tensor, "*batch token"], pair: list[int]) -> Float[Tensor, "*batch"]:
    return logits[..., pair[0]] - logits[..., pair[1]]


def _read(
    values: Float[Tensor, "head key d_head"], weights: Float[Tensor, "head d_head"]
) -> Float[Tensor, "head key"]:
    return einsum(values, weights, "head key d_head, head d_head -> head key")


def _largest(model: Model, magnitudes: CountForm, scale: float) -> float:
    """Bound everything that is computed on the way to the margin, to see that it is finite."""
    size = {
        name.removeprefix("blocks.0.attn."): value.abs()
        for name, value in count_parameters(model, _FINE).items()
    }
    embedding = size["embed.W_E"]
    reads = [embedding @ size[f"W_{letter}"] + size[f"b_{letter}"][:, None] for letter in "QKV"]
    outputs = magnitudes.values[0].amax(dim=1)
    written = einsum(outputs, size["W_O"], "head d_head, head d_head d_model -> d_model")
    stream = embedding + written + size["b_O"]
    logits = einsum(outputs, magnitudes.logit_weights[0], "head d, head d vocab -> vocab")
    found = [*reads, stream, magnitudes.scores * max(scale, 1.0), logits + magnitudes.logit_bias]
    return max(float(table.max()) for table in found)
