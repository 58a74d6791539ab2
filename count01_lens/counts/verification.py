"""Run a model on every sentence up to a size: exact accuracies instead of estimates.

Of three symbols there are (up_to + 1)³ triples of counts, 8.1 million up to 200, a billion up to
1,000. They are counted slab by slab (`exhaustion`), so that memory stays small however large the
domain is, and what is done can be kept in a file.
"""

import math
import os
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from count01_lens.common.progress import counted
from count01_lens.common.text import number, percent_in_column, plural
from count01_lens.common.threads import workers
from count01_lens.common.validation import check_dtype, check_int
from count01_lens.counts.applies import require_counts
from count01_lens.counts.exhaustion import Exhaustion, Found, merged
from count01_lens.counts.kept_slabs import KeptSlabs
from count01_lens.models.stored import Model
from count01_lens.models.task_of import known_task, language_for
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.places import COUNT01

LARGEST_SIZE = 2000
_MOST_SENTENCES = (LARGEST_SIZE + 1) ** 3
_UP_TO = 200  # of Count01


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Verification:
    """What a model does on all sentences with at most `up_to` of each symbol.

    The answer after '=' is that with the highest logit, of equal ones the later: '4' where its
    logit is above that of '5'. '[EOS]' is asked for after the right answer and counts if it leads
    all other tokens.

    Attributes:
        up_to: the size.
        dtype: what was computed in. float64 on a float32 model takes its weights as they are.
        n_sentences: (up_to + 1)³ for three symbols.
        n_ties: sentences in which a comparison of the rule has equal sides: as many '0's as '1's in
            Count01, where their right answer is '5'. None are known of a rule that is a function.
        n_errors: sentences answered wrongly.
        n_tie_errors: those of them that are ties.
        n_eos_errors: sentences that are not ended.
        n_other_tokens: sentences in which another token than an answer leads at '='.
        n_below_rounding: answers whose margin is not larger than a bound on its rounding errors,
            that of this computation and that of a run in the model's own precision together.
            Running the model another way may turn them round. All others stay, on sequences in
            any order, compact or in closed form; docs/rounding.md says what is assumed.
        smallest_margin: the smallest distance between the logits of the right answer and of the
            best other one.
        frontier: the largest size up to which there is no wrong answer; -1 if there is none.
        non_tie_frontier: the same, ties left aside.
        counterexamples: counts of the smallest wrongly answered sentences.
        eos_counterexamples: counts of the smallest sentences that are not ended.
        language: what was counted.
    """

    up_to: int
    dtype: str
    n_sentences: int
    n_ties: int
    n_errors: int
    n_tie_errors: int
    n_eos_errors: int
    n_other_tokens: int
    n_below_rounding: int
    smallest_margin: float
    frontier: int
    non_tie_frontier: int
    counterexamples: Int[Tensor, "wrong symbol"]
    eos_counterexamples: Int[Tensor, "unended symbol"]
    language: CountingLanguage = COUNT01

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return 1 - self.n_errors / self.n_sentences

    @property
    def tie_accuracy(self) -> float:
        """Share of right answers among ties; NaN if there are none."""
        return 1 - self.n_tie_errors / self.n_ties if self.n_ties else float("nan")

    @property
    def non_tie_accuracy(self) -> float:
        """Share of right answers among all but ties; NaN if all sentences are ties."""
        n = self.n_sentences - self.n_ties
        return 1 - (self.n_errors - self.n_tie_errors) / n if n else float("nan")

    @property
    def eos_accuracy(self) -> float:
        """Share of sentences that are ended."""
        return 1 - self.n_eos_errors / self.n_sentences

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        shares = ("accuracy", "tie_accuracy", "non_tie_accuracy", "eos_accuracy")
        names = [name for name in self.__dataclass_fields__ if name != "language"]
        values = {name: getattr(self, name) for name in (*names, *shares)}
        for name, value in values.items():
            if isinstance(value, Tensor):
                values[name] = value.tolist()
            elif isinstance(value, float) and not math.isfinite(value):
                values[name] = None  # JSON has no NaN
        return values

    def __repr__(self) -> str:
        n_others, n_other_errors = self.n_sentences - self.n_ties, self.n_errors - self.n_tie_errors
        ties = [
            f"    ties        {percent_in_column(self.tie_accuracy)}  "
            f"({self.n_tie_errors:,} wrong of {self.n_ties:,})",
            f"    others      {percent_in_column(self.non_tie_accuracy)}  "
            f"({n_other_errors:,} wrong of {n_others:,})",
        ]
        aside = f"; ties aside {_frontier_text(self.non_tie_frontier, self.up_to)}"
        ties_aside = aside if self.n_ties else ""
        lines = [
            f"{'all ' * (self.n_sentences > 1)}{plural(self.n_sentences, 'sentence')} with "
            f"{f'0 to {self.up_to}' if self.up_to else 0} of each token ({self.dtype})",
            f"  answer        {percent_in_column(self.accuracy)}  ({self.n_errors:,} wrong)",
            *(ties if self.n_ties else []),
            f"  [EOS]         {percent_in_column(self.eos_accuracy)}  "
            f"({self.n_eos_errors:,} not ended)",
            f"  no error      {_frontier_text(self.frontier, self.up_to)}{ties_aside}",
            f"  too close     {_rounding_text(self.n_below_rounding)} "
            f"(smallest margin {number(self.smallest_margin, 2)})",
        ]
        if self.n_other_tokens:
            few = self.language.answers if len(self.language.answers) == 2 else None
            what = f"says neither {' nor '.join(few)}" if few else "gives no answer"
            sentences = plural(self.n_other_tokens, "sentence")
            lines.append(f"  off syntax    after {sentences}, the model {what}")
        if self.n_errors:
            wrong = self.counterexamples[:3]
            right = [self.language.answers[place] for place in self.language.answer(wrong).tolist()]
            symbols = ", ".join(self.language.symbols)
            lines.append(f"  smallest wrong answers, as counts of {symbols}:")
            lines += [
                f"    {', '.join(map(str, counts))}  (right: {answer})"
                for counts, answer in zip(wrong.tolist(), right, strict=True)
            ]
        return "\n".join(lines)


def verify(
    model: Model,
    up_to: int | None = None,
    *,
    task: CountingTask | None = None,
    dtype: torch.dtype = torch.float64,
    keep: int = 100,
    resume: str | os.PathLike[str] | None = None,
    progress: bool | None = False,
) -> Verification:
    """Run every sentence with 0 to `up_to` of each symbol: of '0', '1' and '2', in Count01.

    Args:
        model: one that can be run on counts (see `why_not_counts`).
        up_to: the largest number of each symbol; by default that in the task's data, 200 in
            Count01. For three symbols, time grows with about its square, because most sentences are
            decided a whole box at a time (`counts.boxes`). Sentences longer than the model's
            context (n_ctx) are computed as if they fitted.
        task: by default the one that the model was made for (`task_of`), or else Count01.
        dtype: precision of the computation.
        keep: how many counterexamples to keep, smallest first.
        resume: a file to keep progress in; if the call is stopped, the same call continues from
            there.
        progress: show progress and the time left; None shows it in a terminal or notebook only.

    Example:
        >>> found = cl.verify(cl.example_model(), up_to=60)
        >>> found.n_sentences, found.n_errors
        (226981, 12)
    """
    language = language_for(model, task)
    if up_to is None:
        known = task or known_task(model)
        up_to = known.up_to if isinstance(known, CountingTask) else _UP_TO
    up_to = check_int("up_to", up_to, at_least=0)
    keep = check_int("keep", keep, at_least=0)
    if up_to > LARGEST_SIZE:
        raise ValueError(f"up_to: expected at most {LARGEST_SIZE}, got {up_to}")
    n_symbols = len(language.symbols)
    if (up_to + 1) ** n_symbols > _MOST_SENTENCES:
        raise ValueError(
            f"up_to: expected at most {_MOST_SENTENCES:,} sentences, got {up_to + 1}^{n_symbols}; "
            "verify up to a smaller number"
        )
    check_dtype(dtype)
    require_counts(model, language)
    work = Exhaustion(model, up_to, dtype, keep, language)
    kept = None if resume is None else KeptSlabs(resume, work)
    whole = _exhausted(work, kept, progress)
    for name in ("frontier", "non_tie_frontier"):
        whole[name] = min(whole[name], up_to)
    written = str(dtype).removeprefix("torch.")
    return Verification(up_to=up_to, dtype=written, language=language, **whole)


def _exhausted(work: Exhaustion, kept: KeptSlabs | None, progress: bool | None) -> Found:
    """Count on all slabs, or on those that a file does not have yet."""
    slabs, whole = work.slabs, None if kept is None else kept.found
    left = slabs[0 if kept is None else kept.done :]
    n_workers, waiting = torch.get_num_threads(), 0
    with (
        counted(sum(map(work.n_sentences, left)), "verifying", progress) as advance,
        workers() as pool,
    ):
        try:
            for number, found in enumerate(pool.map(work.of_slab, left), start=1):
                whole = found if whole is None else merged([whole, found], work.keep)
                if kept is not None:
                    kept.add(whole, is_last=kept.done + 1 == len(slabs))
                # Those that are done at the same time count together, for a fair estimate.
                waiting += work.n_sentences(left[number - 1])
                if number % n_workers == 0:
                    advance(waiting)
                    waiting = 0
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            if kept is not None:
                kept.write()
            raise
    assert whole is not None
    return whole


def _rounding_text(n_answers: int) -> str:
    return f"{plural(n_answers, 'answer') if n_answers else 'no answer'} may depend on rounding"


def _frontier_text(frontier: int, up_to: int) -> str:
    if frontier < 0:
        return "not even with 0 of each"
    return f"up to {frontier}" + (" and maybe beyond" if frontier == up_to else "")
