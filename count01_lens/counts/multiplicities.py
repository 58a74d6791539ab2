"""Sentences as the closed form reads them: how often each token is seen from a query position."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.tasks.dataset import labels_of
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS, Place

# Nothing is asked after '[EOS]', so no query sees it.
KEYS = slice(Token.BOS, Token.EOS)


@dataclass(frozen=True, eq=False)
class Multiplicities:
    """How often each key token stands before (or at) each query token of sentences.

    A sentence asked at one place has one query token; the multiplicities of the others are zero.
    `rows` are the query tokens, as rows of a table over the vocabulary.
    """

    n: Float[Tensor, "*model sample query key"]
    rows: slice

    @classmethod
    def of(
        cls, counts: Int[Tensor, "*model sample 3"], place: Place, dtype: torch.dtype
    ) -> "Multiplicities":
        """Ask sentences at one place; at the answer, it is the right one."""
        n0, n1, n2 = counts.unbind(-1)
        one, zero = torch.ones_like(n0), torch.zeros_like(n0)
        before = torch.stack([one, n0, n1, n2, one, zero, zero], dim=-1).unsqueeze(-2)
        if place == AT_EQUALS:
            return cls(before.to(dtype), place.rows)
        is_four = labels_of(counts)
        asked = torch.stack([is_four, ~is_four], dim=-1).unsqueeze(-1)
        itself = F.pad(torch.eye(2, dtype=counts.dtype), (Token.FOUR, 0))
        return cls((asked * (before + itself)).to(dtype), place.rows)

    @classmethod
    def at_both(
        cls, counts: Int[Tensor, "*model sample 3"], dtype: torch.dtype
    ) -> "Multiplicities":
        """Ask all sentences at '=', then all at their answer: what training needs."""
        at_equals = F.pad(cls.of(counts, AT_EQUALS, dtype).n, (0, 0, 0, 2))
        at_answer = F.pad(cls.of(counts, AT_ANSWER, dtype).n, (0, 0, 1, 0))
        rows = slice(AT_EQUALS.rows.start, AT_ANSWER.rows.stop)
        return cls(torch.cat([at_equals, at_answer], dim=-3), rows)

    @property
    def asked(self) -> Float[Tensor, "*model sample query"]:
        """Tell which query token each sentence has: the one that '[BOS]' stands before."""
        return self.n[..., Token.BOS]

    def __getitem__(self, sample: Bool[Tensor, " sample"]) -> "Multiplicities":
        """Take some of the sentences."""
        return Multiplicities(self.n[..., sample, :, :], self.rows)

    def batch(self, sample: Int[Tensor, "model batch"]) -> "Multiplicities":
        """Take a batch of sentences for each model; rows copied whole, which is much faster."""
        rows = self.n.index_select(0, sample.flatten())
        return Multiplicities(rows.reshape(*sample.shape, *self.n.shape[1:]), self.rows)

    def split(self, at_once: int) -> "Iterator[Multiplicities]":
        """Cut sentences into portions."""
        for part in torch.split(self.n, at_once):
            yield Multiplicities(part, self.rows)
