"""Count what a model does on every sentence up to a size, part by part.

Parts are slabs: all sentences with some numbers of the first symbol. In each, boxes of sentences
are decided as a whole where they can be (`boxes`), and only what is left is run, so that time grows
with the boundary between answers and not with the number of sentences. What comes out is exactly
what running all of them gives.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.common.fingerprints import hash_of
from count01_lens.counts.boxes import BoxBounds, Boxes, Decisions
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.counts.rounding import RoundingErrors
from count01_lens.models.stored import Model
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.decisions import answer_margin, eos_margin, is_right, says_answer

# Boxes that cannot be decided are cut into smaller ones; below the last side they are run, which
# then costs less than looking at their corners.
SIDES = (32, 16, 8)
NO_ERROR = 2**31  # the frontier where there is no error
_AT_ONCE = 8192  # sentences at a time: what fits the processor's cache is fastest
_BOXES_AT_ONCE = 256

# By the names of the fields of `Verification`.
Found = dict[str, Any]


class Exhaustion:
    """Counts what a model does on slabs of sentences.

    Attributes:
        up_to: the largest count of each symbol.
        keep: how many counterexamples to keep, smallest first.
    """

    def __init__(
        self,
        model: Model,
        up_to: int,
        dtype: torch.dtype,
        keep: int,
        language: CountingLanguage,
    ):
        self.up_to, self.dtype, self.keep, self.language = up_to, dtype, keep, language
        self.form = CountForm.from_models([model], dtype=dtype, task=language)
        if not all(bool(torch.isfinite(table).all()) for table in self.form.tables.values()):
            raise ValueError("model: expected finite weights, got NaN or infinite ones")
        self.errors = RoundingErrors(model, dtype, up_to, language)
        self.bounds = BoxBounds(model, dtype, up_to, language)

    @property
    def slabs(self) -> list[range]:
        """Numbers of the first symbol, a range for each part."""
        ends = range(0, self.up_to + 1, SIDES[0])
        return [range(start, min(start + SIDES[0], self.up_to + 1)) for start in ends]

    def n_sentences(self, slab: range) -> int:
        """How many sentences a slab has."""
        return len(slab) * math.prod([self.up_to + 1] * (len(self.language.symbols) - 1))

    @property
    def identity(self) -> dict[str, Any]:
        """What the result depends on, as JSON; raise if the rule is a function."""
        tables = (table.contiguous().numpy().tobytes() for table in self.form.tables.values())
        return {
            "model": hash_of(tables),
            "up_to": self.up_to,
            "dtype": str(self.dtype),
            "keep": self.keep,
            "task": self.language.describe(),
        }

    @torch.no_grad()  # grad mode belongs to a thread
    def of_slab(self, slab: range) -> Found:
        """Count what happens on all sentences with so many of the first symbol."""
        boxes = Boxes.slab(slab, self.up_to, len(self.language.symbols), SIDES[0])
        found, decided = [], []
        for side in SIDES:
            boxes = boxes.cut(side)
            if len(boxes) == 0:
                break
            known = self.bounds.decide(boxes)
            largest = self.errors.largest[: int(boxes.longest.max()) + 3].cummax(dim=0).values
            is_sure = known.complete & (known.margin > largest[boxes.longest + 2])
            decided.append((boxes[is_sure], known.margin[is_sure]))
            for some in torch.split(is_sure.nonzero().squeeze(1), _BOXES_AT_ONCE):
                found.append(self._of_decided(boxes[some], known[some]))
            boxes = boxes[~is_sure]
        found += [self._of_sentences(counts) for counts in _portions(boxes)]
        whole = merged(found, self.keep)
        whole["smallest_margin"] = self._smallest_margin(decided, whole["smallest_margin"])
        return whole

    def _of_sentences(self, counts: Int[Tensor, "sample symbol"]) -> Found:
        """Run sentences."""
        language = self.language
        at_equals = self.form.logits(Multiplicities.of(counts, language.at_equals, self.dtype))[0]
        at_answer = self.form.logits(Multiplicities.of(counts, language.at_answer, self.dtype))[0]
        labels = language.labels(counts)
        margin = answer_margin(at_equals, labels, language)
        wrong, not_ended = ~is_right(at_equals, labels, language), eos_margin(at_answer) <= 0
        ties = self._ties(counts)
        return {
            "n_sentences": len(counts),
            "n_ties": int(ties.sum()),
            "n_errors": int(wrong.sum()),
            "n_tie_errors": int((wrong & ties).sum()),
            "n_eos_errors": int(not_ended.sum()),
            "n_other_tokens": int((~says_answer(at_equals, language)).sum()),
            "n_below_rounding": self.errors.count_unsafe(counts, margin),
            "smallest_margin": float(margin.abs().min()),
            "frontier": _last_size_before(counts[wrong]),
            "non_tie_frontier": _last_size_before(counts[wrong & ~ties]),
            "counterexamples": smallest(counts[wrong], self.keep),
            "eos_counterexamples": smallest(counts[not_ended], self.keep),
        }

    def _of_decided(self, boxes: Boxes, known: Decisions) -> Found:
        """Count on boxes in which the model does the same on all sentences.

        The rule does not look at all symbols: sentences that differ in others only are a column,
        of which the lowest stands for all.
        """
        which, columns = boxes.columns(self.language.rule.named())
        wrong = self.language.answer(columns.low) != known.answer[which]
        ties, times = self._ties(columns.low), columns.sizes
        not_ended = boxes[~known.ended]
        return {
            "n_sentences": int(boxes.sizes.sum()),
            "n_ties": int(times[ties].sum()),
            "n_errors": int(times[wrong].sum()),
            "n_tie_errors": int(times[wrong & ties].sum()),
            "n_eos_errors": int(not_ended.sizes.sum()),
            "n_other_tokens": int(boxes[~known.speaks].sizes.sum()),
            "n_below_rounding": 0,
            "smallest_margin": torch.inf,  # see `_smallest_margin`
            "frontier": _last_size_before(columns.low[wrong]),
            "non_tie_frontier": _last_size_before(columns.low[wrong & ~ties]),
            "counterexamples": _smallest_of(columns[wrong], self.keep),
            "eos_counterexamples": _smallest_of(not_ended, self.keep),
        }

    def _smallest_margin(
        self, decided: Iterable[tuple[Boxes, Float[Tensor, "..."]]], smallest: float
    ) -> float:
        """Look for a smaller margin in decided boxes, whose margins are bounded from below."""
        for boxes, margin in decided:
            boxes = boxes[margin < smallest]
            for side in SIDES:
                if len(boxes) == 0:
                    break
                boxes = boxes.cut(side)
                boxes = boxes[self.bounds.decide(boxes).margin < smallest]
            for counts in _portions(boxes):
                asked = Multiplicities.of(counts, self.language.at_equals, self.dtype)
                labels = self.language.labels(counts)
                found = answer_margin(self.form.logits(asked)[0], labels, self.language)
                smallest = min(smallest, float(found.abs().min()))
        return smallest

    def _ties(self, counts: Int[Tensor, "sample symbol"]) -> Bool[Tensor, " sample"]:
        known = self.language.ties(counts)
        return torch.zeros(len(counts), dtype=torch.bool) if known is None else known


def merged(parts: Iterable[Found], keep: int) -> Found:
    """Put together what was counted on parts of the sentences, in any order."""
    listed = list(parts)
    whole: Found = {}
    for name, value in listed[0].items():
        values = [part[name] for part in listed]
        if isinstance(value, Tensor):
            whole[name] = smallest(torch.cat(values), keep)
        else:
            whole[name] = sum(values) if name.startswith("n_") else min(values)
    return whole


def smallest(counts: Int[Tensor, "sample symbol"], keep: int) -> Int[Tensor, "example symbol"]:
    """Sort by the largest count, then by the length of the sentence, then by the counts."""
    return counts[_in_order(counts)[:keep]]


def _smallest_of(boxes: Boxes, keep: int) -> Int[Tensor, "example symbol"]:
    """Return the smallest sentences of boxes.

    The lowest sentence of a box is the smallest one in it, so that there is none of the smallest
    `keep` in more boxes than these.
    """
    first = boxes[_in_order(boxes.low)[:keep]]
    found = boxes.low[:0]
    for box in first.parts(1):
        found = smallest(torch.cat([found, box.sentences()]), keep)
    return found


def _in_order(counts: Int[Tensor, "sample symbol"]) -> Int[Tensor, " sample"]:
    order = torch.arange(len(counts))
    keys = [*reversed(counts.unbind(dim=1)), counts.sum(dim=1)]
    if len(counts):
        keys.append(counts.amax(dim=1))
    for key in keys:  # the last one counts most
        order = order[key[order].argsort(stable=True)]
    return order


def _last_size_before(wrong: Int[Tensor, "sample symbol"]) -> int:
    return int(wrong.amax(dim=1).min()) - 1 if len(wrong) else NO_ERROR


def _portions(boxes: Boxes) -> Iterable[Int[Tensor, "sample symbol"]]:
    """Write out sentences of boxes, so many at a time."""
    together = max(1, _AT_ONCE // SIDES[-1] ** boxes.low.shape[1])
    for part in boxes.parts(together):
        yield from torch.split(part.sentences(), _AT_ONCE)
