"""Attention taken from another sentence: the classic clean/corrupted patch."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from count01_lens.attention.interventions import HookList, Intervention
from count01_lens.attention.rows import (
    AskingRows,
    heads_by_layer,
    patchable_heads,
    pattern_hook,
    row_hooks,
)
from count01_lens.attention.seen_tokens import Pattern, SeenTokens
from count01_lens.common.types import HookedTransformer
from count01_lens.models.hooks import HeadName, several_heads
from count01_lens.models.lens import attends_everywhere
from count01_lens.models.task_of import language_for
from count01_lens.tasks.counting import At
from count01_lens.tasks.language import Sentence
from count01_lens.tasks.places import place_at
from count01_lens.tasks.sentences import encode_sentence


@dataclass(frozen=True)
class CopyFrom(Intervention):
    """Make heads attend, position by position, as they do on another sentence.

    Attributes:
        source: the sentence to take attention from, such as "0011="; sentences that are run must
            have as many tokens up to the patched row.
        heads: numbers, or (layer, head) pairs; None for all.
        at: the row to patch: that of "=", or of the "answer".
    """

    source: str | Sentence
    heads: tuple[HeadName, ...] | None = None
    at: At = "="

    def __post_init__(self) -> None:
        place_at(self.at)
        if self.heads is not None:
            object.__setattr__(self, "heads", several_heads(self.heads))
        if not isinstance(self.source, str | Sentence):
            raise TypeError(f"source: expected a sentence such as '0011=', got {self.source!r}")

    def _hooks(self, model: HookedTransformer, seen: SeenTokens) -> HookList:
        numbers = patchable_heads(model, self.heads)
        language = language_for(model)
        place = language.place(self.at)
        tokens = encode_sentence(str(self.source), language)
        if not any(token in place.queries for token in tokens):
            raise ValueError(f"source: expected a sentence with its answer, got {self.source!s}")
        if len(tokens) > model.cfg.n_ctx:
            raise ValueError(
                f"source: has {len(tokens)} tokens, the model reads {model.cfg.n_ctx} (n_ctx): "
                "expected a shorter sentence"
            )
        layers = [layer for layer, _, _ in heads_by_layer(model, numbers)]
        for layer in layers:
            if not attends_everywhere(model, layer):
                raise ValueError(
                    f"copy_attention: expected layers that see whole sentences, got the local "
                    f"attention of layer {layer}; choose heads of other layers"
                )
        row = next(position for position, token in enumerate(tokens) if token in place.queries)
        with torch.no_grad():
            _, cache = model.run_with_cache(
                torch.tensor([tokens], device=model.W_E.device),
                names_filter=[pattern_hook(layer) for layer in layers],
            )
        source = torch.cat(
            [
                cache[pattern_hook(layer)][0, heads, row, : row + 1]
                for layer, _, heads in heads_by_layer(model, numbers)
            ]
        )

        def new_rows(
            rows: AskingRows, pattern: Pattern, chosen: list[int], heads: list[int]
        ) -> Float[Tensor, "row chosen key"]:
            if seen.log_multiplicity(pattern) is not None:
                raise ValueError(
                    "copy_attention: expected whole sentences, got the compact form, in which "
                    "tokens have no positions; run the model on sequences"
                )
            return _spread(source[chosen].to(pattern), ~rows.hidden[:, heads])

        return row_hooks(model, numbers, place, seen, new_rows)


def _spread(
    source: Float[Tensor, "chosen seen"], visible: Bool[Tensor, "row chosen key"]
) -> Float[Tensor, "row chosen key"]:
    """Give the keys that are seen, one after the other, the weights of another sentence."""
    lengths, expected = visible.sum(dim=-1), source.shape[-1]
    if (lengths != expected).any():
        raise ValueError(
            f"copy_attention: expected sentences of {expected} tokens up to the patched "
            f"row, as the source has, got {sorted(set(lengths.flatten().tolist()))}"
        )
    new = source.new_zeros(visible.shape)
    new[visible] = source.expand(len(visible), -1, -1).flatten()
    return new


@contextmanager
def copy_attention(
    model: HookedTransformer,
    source: str | Sentence,
    *,
    heads: Iterable[HeadName] | None = None,
    at: At = "=",
) -> Iterator[HookedTransformer]:
    """Attend, position by position, as on another sentence, inside a `with` block.

    Short for `CopyFrom(...).applied(model)`; takes the same arguments.
    """
    with CopyFrom(source, heads, at).applied(model):  # type: ignore[arg-type]
        yield model
