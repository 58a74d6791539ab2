"""The sentences of an epoch in the order in which each model sees them, batch by batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.tasks.counting import CountingLanguage
from count01_lens.training.recipe import SecondTask

_AT_ONCE = 250_000  # numbers that are gathered together: more would not stay in a cache


@dataclass(frozen=True, eq=False)
class Batch:
    """The sentences of one step, at '=' and then at their answers.

    Attributes:
        sentences: which ones of the split.
        n: multiplicities of what each query sees; those of queries that do not ask are zero.
        right: the token to be said next.
    """

    sentences: Int[Tensor, "model sample"]
    n: Float[Tensor, "model seen both_samples"]
    right: Int[Tensor, "model 1 both_samples"]


class Batches:
    """Gathers sentences: many small batches at once, since each call costs more than a batch."""

    def __init__(
        self,
        counts: Int[Tensor, "sample symbol"],
        dtype: torch.dtype,
        language: CountingLanguage,
        second_task: SecondTask = "end",
    ):
        self.language, self.n_queries = language, len(language.answers) + 1
        # Of '[BOS]', each symbol, '=', and the query itself, a row each.
        once = torch.ones(1, len(counts), dtype=dtype)
        self.n = torch.cat([once, counts.mT.to(dtype), once, once])
        self.answer = language.answer(counts)
        token = self.answer + (language.equals + 1)
        # The other token is the last symbol, '2' in Count01.
        after = language.eos if second_task == "end" else language.equals - 1
        second = token if second_task == "copy" else torch.full_like(token, after)
        self.right = torch.stack([token, second])

    def all(self) -> Batch:
        """All sentences, as if for one model."""
        return next(self.split(torch.arange(self.n.shape[1]).unsqueeze(0), self.n.shape[1]))

    def split(self, order: Int[Tensor, "model sample"], size: int) -> Iterator[Batch]:
        """Cut each model's order into batches; the last may be smaller."""
        per_step = 2 * size * len(order) * len(self.n) * self.n_queries
        together = size * max(1, _AT_ONCE // per_step)
        whole = order.shape[1] // size * size
        for start in range(0, whole, together):
            yield from self._gathered(order[:, start : min(start + together, whole)], size)
        if whole < order.shape[1]:
            yield from self._gathered(order[:, whole:], order.shape[1] - whole)

    def _gathered(self, order: Int[Tensor, "model sample"], size: int) -> Iterator[Batch]:
        n_models, keys = len(order), len(self.n)
        which = order.reshape(n_models, -1, size).transpose(0, 1).contiguous()
        gathered = self.n[:, which].movedim(0, 2)  # step, model, key, sample
        n = gathered.new_zeros(*which.shape[:2], self.n_queries, keys, 2, size)
        n[:, :, 0, :-1, 0] = gathered[:, :, :-1]
        answers = self.answer[which].unsqueeze(2)
        for query in range(1, self.n_queries):
            torch.mul(gathered, answers == query - 1, out=n[:, :, query, :, 1])
        right = self.right[:, which].movedim(0, 2)
        for step, sentences in enumerate(which):
            yield Batch(
                sentences,
                n[step].view(n_models, -1, 2 * size),
                right[step].reshape(n_models, 1, 2 * size),
            )
