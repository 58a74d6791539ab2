"""What a model does on whole boxes of sentences at once, without running them one by one.

A head's share in a lead, such as that of one answer over another, is a quotient of two linear
functions of the counts,

    Σ_t n_t e^{S_t} m_t / Σ_t n_t e^{S_t},

with a positive denominator. Along any line such a quotient only rises or only falls, so that over a
box of counts it is largest and smallest at corners. The sum over heads of each one's smallest share
bounds the lead on all sentences of the box from below. Where that is above zero by more than
rounding, all of them are decided by 2^symbols corners. A box that is not decided is cut into
smaller ones, and only what is left near the boundary is run.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.rounding import Precision, Roundings
from count01_lens.models.stored import Model
from count01_lens.tasks.counting import CountingLanguage

_FINE = torch.float64  # what corners are computed in
_EXP = 8  # roundings of an exp and of the log of a count
_TAME = 0.25  # attention that may be off by more than a quarter decides nothing
_CORNERS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of counts, both ends included."""

    low: Int[Tensor, "box symbol"]
    high: Int[Tensor, "box symbol"]

    @classmethod
    def slab(cls, first: range, up_to: int, n_symbols: int, side: int) -> "Boxes":
        """Cut all sentences with so many of the first symbol into boxes of at most one side."""
        low, high = torch.zeros(1, n_symbols, dtype=torch.long), torch.full((1, n_symbols), up_to)
        low[:, 0], high[:, 0] = first[0], first[-1]
        return cls(low, high).cut(side)

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, some: Tensor | slice) -> "Boxes":
        """Take some of the boxes."""
        return Boxes(self.low[some], self.high[some])

    @property
    def sizes(self) -> Int[Tensor, " box"]:
        """How many sentences each has."""
        return (self.high - self.low + 1).prod(dim=1)

    @property
    def longest(self) -> Int[Tensor, " box"]:
        """How many symbols the longest sentence of each has."""
        return self.high.sum(dim=1)

    def corners(self) -> Int[Tensor, "box corner symbol"]:
        """Return the corners of each; some coincide where a box is flat."""
        is_high = torch.tensor(list(itertools.product((False, True), repeat=self.low.shape[1])))
        return torch.where(is_high, self.high.unsqueeze(1), self.low.unsqueeze(1))

    def cut(self, side: int) -> "Boxes":
        """Cut each into boxes of at most one side, those of one box one after the other."""
        return self._cut(side)[1]

    def sentences(self) -> Int[Tensor, "sentence symbol"]:
        """Write out the sentences of all boxes."""
        return self.cut(1).low

    def columns(self, axes: Sequence[int]) -> tuple[Int[Tensor, " column"], "Boxes"]:
        """Cut each into boxes in which only counts of other symbols than these vary.

        Returns the number of the box that each is part of, and the parts.
        """
        is_free = torch.ones(self.low.shape[1], dtype=torch.bool)
        is_free[list(axes)] = False
        which, flat = Boxes(self.low, torch.where(is_free, self.low, self.high))._cut(1)
        return which, Boxes(flat.low, torch.where(is_free, self.high[which], flat.high))

    def parts(self, at_once: int) -> "Iterator[Boxes]":
        """Give so many boxes at a time."""
        for start in range(0, len(self), at_once):
            yield self[start : start + at_once]

    def _cut(self, side: int) -> tuple[Int[Tensor, " part"], "Boxes"]:
        n_symbols = self.low.shape[1]
        lengths = self.high - self.low
        longest = lengths.amax(dim=0).tolist() if len(self) else [0] * n_symbols
        steps = [torch.arange(0, length + 1, side) for length in longest]
        offsets = torch.cartesian_prod(*steps).reshape(-1, n_symbols)
        inside = (offsets <= lengths.unsqueeze(1)).all(dim=-1)
        which, step = inside.nonzero(as_tuple=True)
        low = self.low[which] + offsets[step]
        return which, Boxes(low, torch.minimum(low + side - 1, self.high[which]))


@dataclass(frozen=True, eq=False)
class Decisions:
    """What is known of all sentences of each box, beyond any doubt of rounding.

    Attributes:
        answer: the place of the answer that leads the others; -1 where that is not known.
        margin: the lead is at least this, where the answer is known.
        speaks: whether an answer leads all other tokens at '='.
        ended: whether '[EOS]' leads all other tokens after the right answer.
        complete: whether all of this is known.
    """

    answer: Int[Tensor, " box"]
    margin: Float[Tensor, " box"]
    speaks: Bool[Tensor, " box"]
    ended: Bool[Tensor, " box"]
    complete: Bool[Tensor, " box"]

    def __getitem__(self, some: Tensor) -> "Decisions":
        """Take those on some of the boxes."""
        return Decisions(**{name: value[some] for name, value in vars(self).items()})


class _Leads:
    """Leads of some tokens over others, asked from one query token, bounded over boxes.

    Attributes:
        scores: of the keys that are seen: '[BOS]', the symbols, '=', and an answer that asks.
        alone: a head's share in each lead if it saw one key only.
        bias: what leads are without any head.
        slack: how far rounding may move a lead.
    """

    def __init__(
        self,
        form: CountForm,
        query: int,
        pairs: Sequence[tuple[int, int]],
        slack: Float[Tensor, " token"],
    ):
        language = form.language
        keys = [*range(language.equals + 1), *([query] if query != language.equals else [])]
        ahead, behind = torch.tensor(pairs).T
        logits = form.values[0, :, keys] @ form.logit_weights[0]
        self.scores = form.scores[0, :, query, keys]
        self.alone = logits[..., ahead] - logits[..., behind]
        bias = form.logit_bias[0, query]
        self.bias = bias[ahead] - bias[behind]
        self.slack = slack[ahead] + slack[behind]

    def over(
        self, corners: Int[Tensor, "box corner symbol"]
    ) -> tuple[Float[Tensor, "box lead"], Float[Tensor, "box lead"]]:
        """Bound each lead from below and from above, rounding included."""
        counts = rearrange(corners, "box corner symbol -> (box corner) symbol")
        once = torch.ones_like(counts[:, :1])
        after = once.expand(-1, self.scores.shape[1] - counts.shape[1] - 1)
        log_n = torch.cat([once, counts, after], dim=1).to(_FINE).log()
        attention = torch.softmax(self.scores + log_n.unsqueeze(1), dim=-1)
        shares = einsum(attention, self.alone, "row head key, head key lead -> row head lead")
        by_box = rearrange(
            shares, "(box corner) head lead -> box corner head lead", corner=corners.shape[1]
        )
        lowest, highest = by_box.amin(dim=1).sum(dim=1), by_box.amax(dim=1).sum(dim=1)
        return lowest + self.bias - self.slack, highest + self.bias + self.slack


class BoxBounds:
    """Decides boxes of sentences of a model, whose margins are computed in a dtype."""

    def __init__(
        self,
        model: Model,
        dtype: torch.dtype,
        up_to: int,
        language: CountingLanguage,
    ):
        """Prepare for sentences of up to `up_to` of each symbol."""
        form = CountForm.from_models([model], dtype=_FINE, task=language)
        slack = _slack(model, dtype, up_to, language) + _slack(model, _FINE, up_to, language)
        answers = range(language.equals + 1, language.eos)
        tokens = range(language.d_vocab)
        self.n_answers, self.language = len(answers), language
        self.at_equals = _Leads(
            form,
            language.equals,
            [(answer, token) for answer in answers for token in tokens],
            slack[language.equals],
        )
        self.at_answers = [
            _Leads(form, answer, [(language.eos, t) for t in tokens[:-1]], slack[answer])
            for answer in answers
        ]

    def decide(self, boxes: Boxes) -> Decisions:
        """Tell what is known of boxes, at least one."""
        at_once = max(1, _CORNERS_AT_ONCE >> boxes.low.shape[1])
        found = [vars(self._decide(part)) for part in boxes.parts(at_once)]
        return Decisions(**{name: torch.cat([one[name] for one in found]) for name in found[0]})

    def _decide(self, boxes: Boxes) -> Decisions:
        corners, answers = boxes.corners(), self.language.answer_ids
        low, high = (
            rearrange(bound, "box (answer token) -> box answer token", answer=self.n_answers)
            for bound in self.at_equals.over(corners)
        )
        itself = torch.eye(self.language.d_vocab, dtype=torch.bool)[answers]
        low = low.masked_fill(itself, torch.inf)
        margin, answer = low[..., answers].amin(dim=-1).max(dim=-1)
        # Some answer is above all tokens for sure, or all are below one that is no answer.
        speaks = (low.amin(dim=-1) > 0).any(dim=-1)
        no_answer = ~itself.any(dim=0)
        is_silent = (high < 0)[..., no_answer].all(dim=1).any(dim=-1)
        ended, goes_on = self._ends(boxes, corners)
        known = (margin > 0) & (speaks | is_silent) & (ended | goes_on)
        return Decisions(torch.where(margin > 0, answer, -1), margin, speaks, ended, known)

    def _ends(
        self, boxes: Boxes, corners: Int[Tensor, "box corner symbol"]
    ) -> tuple[Bool[Tensor, " box"], Bool[Tensor, " box"]]:
        """Tell where '[EOS]' leads for sure, and where another token, after all right answers."""
        asked = self._right_answers(boxes)
        ended, goes_on = torch.ones_like(asked), torch.ones_like(asked)
        for answer, leads in enumerate(self.at_answers):
            rows = asked[:, answer].nonzero().squeeze(1)
            low, high = leads.over(corners[rows])
            ended[rows, answer] = (low > 0).all(dim=-1)
            goes_on[rows, answer] = (high < 0).any(dim=-1)
        return ended.all(dim=1), goes_on.all(dim=1)

    def _right_answers(self, boxes: Boxes) -> Bool[Tensor, "box answer"]:
        """Tell which answers are right for some sentence of each box."""
        found = torch.zeros(len(boxes), self.n_answers, dtype=torch.bool)
        which, columns = boxes.columns(self.language.rule.named())
        found[which, self.language.answer(columns.low)] = True
        return found


def _slack(
    model: Model, dtype: torch.dtype, up_to: int, language: CountingLanguage
) -> Float[Tensor, "query token"]:
    """Bound the error of a logit in a dtype, with the query token before it, generously.

    This is the bound of docs/rounding.md with each of its parts at its largest over sentences and
    tokens, eight times, so that it needs no attention. Infinite where that is of no use.
    """
    precision, roundings = Precision.of(dtype), Roundings.of(model, dtype)
    form = CountForm.from_models([model], dtype=_FINE, task=language)
    sizes = CountForm.magnitudes(model, _FINE, task=language, floor=precision.lost / precision.unit)
    longest = len(language.symbols) * up_to + 3
    keys = slice(0, language.eos)
    spread = form.scores[0, :, :, keys].amax(dim=-1) - form.scores[0, :, :, keys].amin(dim=-1)
    products = sizes.scores[0, :, :, keys].amax(dim=-1)
    log_n = float(torch.tensor(longest, dtype=_FINE).log())
    tau = (
        precision.gamma(roundings.score) * (products + 1)
        + precision.unit * (spread + 2 * precision.gamma(roundings.score) * products)
        + precision.gamma(_EXP) * (1 + log_n)
    )
    relative = tau + precision.gamma(2 * longest + 8 + roundings.value + roundings.logit)
    relative = torch.where(tau <= _TAME, relative, torch.inf)
    written = (sizes.values[0, :, keys] @ sizes.logit_weights[0]).amax(dim=1)
    of_heads = einsum(relative, written, "head query, head token -> query token")
    past_heads = precision.gamma(roundings.logit) * sizes.logit_bias[0]
    slack = 8 * (of_heads + past_heads) + longest * precision.lost
    return slack.nan_to_num(nan=torch.inf)
