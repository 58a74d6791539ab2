"""Sentences as the closed form reads them: how often each token is seen from a query position."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.tasks.counting import CountingLanguage, Place
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import COUNT01


@dataclass(frozen=True, eq=False)
class Multiplicities:
    """How often each key token stands before (or at) each query token of sentences.

    A sentence asked at one place has one query token; the multiplicities of the others are zero.
    Nothing is asked after '[EOS]', the last token, so that no query sees it, and it is no key.
    `rows` are the query tokens, as rows of a table over the vocabulary.
    """

    n: Float[Tensor, "*model sample query key"]
    rows: slice
    language: CountingLanguage = COUNT01

    @classmethod
    def of(
        cls, counts: Int[Tensor, "*model sample symbol"], place: Place, dtype: torch.dtype
    ) -> "Multiplicities":
        """Ask sentences at one place; at the answer, it is the right one."""
        language, n_answers = place.language, len(place.language.answers)
        once, never = torch.ones_like(counts[..., :1]), torch.zeros_like(counts[..., :1])
        seen = [once, counts, once, never.expand(*never.shape[:-1], n_answers)]
        before = torch.cat(seen, dim=-1).unsqueeze(-2)
        if place.name == "=":
            return cls(before.to(dtype), place.rows, language)
        right = language.answer(counts).unsqueeze(-1)
        asked = (right == torch.arange(n_answers)).unsqueeze(-1)
        itself = F.pad(torch.eye(n_answers, dtype=counts.dtype), (language.equals + 1, 0))
        return cls((asked * (before + itself)).to(dtype), place.rows, language)

    @classmethod
    def at_both(
        cls,
        counts: Int[Tensor, "*model sample symbol"],
        dtype: torch.dtype,
        language: CountingLanguage = COUNT01,
    ) -> "Multiplicities":
        """Ask all sentences at '=', then all at their answer: what training needs."""
        one, other = language.at_equals, language.at_answer
        at_equals = F.pad(cls.of(counts, one, dtype).n, (0, 0, 0, len(other.queries)))
        at_answer = F.pad(cls.of(counts, other, dtype).n, (0, 0, 1, 0))
        rows = slice(one.rows.start, other.rows.stop)
        return cls(torch.cat([at_equals, at_answer], dim=-3), rows, language)

    @property
    def asked(self) -> Float[Tensor, "*model sample query"]:
        """Tell which query token each sentence has: the one that '[BOS]' stands before."""
        return self.n[..., Token.BOS]

    @property
    def seen(self) -> Float[Tensor, "query key"]:
        """Zero where a query sees a key, -inf elsewhere."""
        return self.language.seen[self.rows]

    def __getitem__(self, sample: Bool[Tensor, " sample"]) -> "Multiplicities":
        """Take some of the sentences."""
        return replace(self, n=self.n[..., sample, :, :])

    def batch(self, sample: Int[Tensor, "model batch"]) -> "Multiplicities":
        """Take a batch of sentences for each model; rows copied whole, which is much faster."""
        rows = self.n.index_select(0, sample.flatten())
        return replace(self, n=rows.reshape(*sample.shape, *self.n.shape[1:]))

    def split(self, at_once: int) -> "Iterator[Multiplicities]":
        """Cut sentences into portions."""
        for part in torch.split(self.n, at_once):
            yield replace(self, n=part)
