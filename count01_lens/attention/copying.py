"""Attention taken from another sentence: the classic clean/corrupted patch."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.attention.interventions import HookList, Intervention
from count01_lens.attention.rows import AskingRows, heads_by_layer, patchable_heads
from count01_lens.attention.seen_tokens import SeenTokens
from count01_lens.common.types import HookedTransformer
from count01_lens.models.hooks import HeadName, Hook, several_heads
from count01_lens.tasks.language import Sentence, parse
from count01_lens.tasks.places import At, place_at


@dataclass(frozen=True)
class CopyFrom(Intervention):
    """Heads attend, position by position, as on another sentence.

    Attributes:
        source: the sentence whose attention is taken, such as "0011="; those that are run must
            have as many tokens up to the patched row.
        heads: numbers, or (layer, head) pairs; None for all.
        at: the row to patch: that of "=", or of the "answer".
    """

    source: str | Sentence
    heads: tuple[HeadName, ...] | None = None
    at: At = "="

    def __post_init__(self) -> None:
        place = place_at(self.at)
        if self.heads is not None:
            object.__setattr__(self, "heads", several_heads(self.heads))
        sentence = parse(self.source) if isinstance(self.source, str) else self.source
        if not isinstance(sentence, Sentence):
            raise TypeError(f"source: expected a sentence such as '0011=', got {self.source!r}")
        if not any(token in place.queries for token in sentence.tokens):
            raise ValueError(f"source: expected a sentence with its answer, got {str(sentence)!r}")
        object.__setattr__(self, "source", sentence)

    def _hooks(self, model: HookedTransformer, seen: SeenTokens) -> HookList:
        seen.check()
        assert isinstance(self.source, Sentence)
        numbers = patchable_heads(model, self.heads)
        tokens = [int(token) for token in self.source.tokens]
        if len(tokens) > model.cfg.n_ctx:
            raise ValueError(
                f"source: has {len(tokens)} tokens, the model reads {model.cfg.n_ctx} (n_ctx): "
                "expected a shorter sentence"
            )
        queries = place_at(self.at).queries
        row = next(position for position, token in enumerate(tokens) if token in queries)
        layers = list(heads_by_layer(model, numbers))
        with torch.no_grad():
            _, cache = model.run_with_cache(
                torch.tensor([tokens], device=model.W_E.device),
                names_filter=[name for name, _, _ in layers],
            )
        return [
            (name, self._replace(cache[name][0, heads, row, : row + 1], heads, seen))
            for name, _, heads in layers
        ]

    def _replace(self, new: Float[Tensor, "head key"], heads: list[int], seen: SeenTokens) -> Hook:
        length = new.shape[-1]

        def hook_pattern(pattern: Tensor, hook: Any) -> Tensor:
            rows = AskingRows.of(seen.keys(pattern, hook), pattern, place_at(self.at))
            if seen.log_multiplicity(pattern) is not None:
                raise ValueError(
                    "copy_attention: expected whole sentences, got the compact form, in which "
                    "tokens have no places; run the model on sequences"
                )
            lengths = rows.visible.sum(dim=1)
            if (lengths != length).any():
                raise ValueError(
                    f"copy_attention: expected sentences of {length} tokens up to the patched "
                    f"row, as the source has, got {sorted(set(lengths.tolist()))}"
                )
            padded = pattern.new_zeros(len(heads), pattern.shape[-1])
            padded[:, :length] = new
            return rows.replaced(pattern, heads, padded)

        return hook_pattern


@contextmanager
def copy_attention(
    model: HookedTransformer,
    source: str | Sentence,
    *,
    heads: Iterable[HeadName] | None = None,
    at: At = "=",
) -> Iterator[HookedTransformer]:
    """Attend, position by position, as on another sentence, inside a `with` block.

    The short way to `CopyFrom(...).applied(model)`, whose arguments it takes.
    """
    with CopyFrom(source, heads, at).applied(model):  # type: ignore[arg-type]
        yield model
