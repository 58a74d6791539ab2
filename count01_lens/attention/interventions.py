"""Rewrite attention while a model runs: by ratios, by weights per token, or from another sentence.

The paper's intervention (section 5.4): in the row of '=', one '0', one '1' and one '2' get
attention in the proportion 1 : 1/w01 : 1/w02. Everything here is a hook at `hook_pattern`, for a
`with` block or for `run_with_hooks`, on sequences and, but for what comes from another sentence,
on the compact form.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.attention.rows import (
    ASKING,
    AttentionRatios,
    Others,
    RowPatch,
    head_numbers,
)
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.counts.compact import MULTIPLICITY, SCORES_HOOK
from count01_lens.models.hooks import HeadName, Hook, hooks_attached, torch_hooks
from count01_lens.tasks.language import At, Sentence, parse


@contextmanager
def patch_attention(
    model: HookedTransformer,
    *,
    w01: float | None = None,
    w02: float | None = None,
    heads: Iterable[HeadName] | None = None,
    others: Others = "zero",
    at: At = "=",
) -> Iterator[HookedTransformer]:
    """Give '0', '1', '2' attention in the proportion 1 : 1/w01 : 1/w02, inside a `with` block.

    Works on sequences of different lengths and on the compact form; nests with `ablate_heads` and
    with other patches, of which the innermost decides.

    Args:
        model: any HookedTransformer over the eight tokens.
        w01: attention of one '0' over that of one '1'. 0 takes all from '0' (and from '2', whose
            ratio is to '0'), infinity all from '1'; None keeps each head's own ratio.
        w02: attention of one '0' over that of one '2', likewise. Not 0 together with w01 = 0.
        heads: numbers, or (layer, head) pairs; all by default.
        others: "zero", as in the paper: '[BOS]' and '=' get nothing. "keep": they keep their
            weights, and '0', '1', '2' share the rest.
        at: the row to patch: that of "=", or of the "answer".

    Example:
        >>> model = cl.example_model()
        >>> only_zeros = float("inf")  # '=' sees nothing else
        >>> with cl.patch_attention(model, w01=only_zeros, w02=only_zeros):
        ...     model.generate("0112=", max_new_tokens=1, do_sample=False, verbose=False)
        '0112=5'
    """
    with _attached(model, _ratio_patch(model, w01, w02, heads, others, at)):
        yield model


def patch_attention_hooks(
    model: HookedTransformer,
    *,
    w01: float | None = None,
    w02: float | None = None,
    heads: Iterable[HeadName] | None = None,
    others: Others = "zero",
    at: At = "=",
) -> list[tuple[str, Hook]]:
    """Return the same patch as a `fwd_hooks` list for `run_with_hooks`.

    Example:
        >>> model = cl.example_model()
        >>> hooks = cl.patch_attention_hooks(model, w01=1.0, heads=[3])
        >>> model.run_with_hooks(model.to_tokens("0112="), fwd_hooks=hooks).shape
        torch.Size([1, 6, 8])
    """
    return _hook_list(model, _ratio_patch(model, w01, w02, heads, others, at))


@contextmanager
def set_attention(
    model: HookedTransformer,
    weights: Mapping[str, float],
    *,
    heads: Iterable[HeadName] | None = None,
    others: Others = "zero",
    at: At = "=",
) -> Iterator[HookedTransformer]:
    """Give each token of a type the weight you like, inside a `with` block.

    Args:
        model: any HookedTransformer over the eight tokens.
        weights: by token, such as `{"0": 1, "1": 1, "=": 0.5}`: how much one token of this type
            gets, relative to the others; the row is scaled to sum to one.
        heads: numbers, or (layer, head) pairs; all by default.
        others: whether tokens not named get nothing ("zero") or keep their weights ("keep").
        at: the row to set: that of "=", or of the "answer".
    """
    with _attached(model, RowPatch.from_weights(model, weights, heads, others, at)):
        yield model


def set_attention_hooks(
    model: HookedTransformer,
    weights: Mapping[str, float],
    *,
    heads: Iterable[HeadName] | None = None,
    others: Others = "zero",
    at: At = "=",
) -> list[tuple[str, Hook]]:
    """Return the same patch as a `fwd_hooks` list for `run_with_hooks`."""
    return _hook_list(model, RowPatch.from_weights(model, weights, heads, others, at))


@contextmanager
def copy_attention(
    model: HookedTransformer,
    source: str | Sentence,
    *,
    heads: Iterable[HeadName] | None = None,
    at: At = "=",
) -> Iterator[HookedTransformer]:
    """Attend, position by position, as on another sentence: the classic clean/corrupted patch.

    Args:
        model: any HookedTransformer over the eight tokens.
        source: the sentence whose attention is taken, such as "0011="; those that are run must
            have as many tokens up to the patched row.
        heads: numbers, or (layer, head) pairs; all by default.
        at: the row to patch: that of "=", or of the "answer".
    """
    hooks, seen = _copy_hooks(model, source, heads, at)
    with _tokens_noticed(model, seen), hooks_attached(model, hooks):
        yield model


def copy_attention_hooks(
    model: HookedTransformer,
    source: str | Sentence,
    *,
    heads: Iterable[HeadName] | None = None,
    at: At = "=",
) -> list[tuple[str, Hook]]:
    """Return the same patch as a `fwd_hooks` list for `run_with_hooks`."""
    hooks, seen = _copy_hooks(model, source, heads, at)
    return [("hook_embed", seen.recognise), *hooks]


class _SeenTokens:
    """Which tokens the model is being run on: the attention pattern alone does not tell."""

    def __init__(self, model: HookedTransformer, heads: list[int]):
        self.model = model
        self.chunks: list[Int[Tensor, "sample position"]] = []
        # After the last patched layer they are not those of a pass that starts in the middle.
        self.last, self.over = _pattern_hook(max(heads) // model.cfg.n_heads), False

    def start(self, tokens: Int[Tensor, "sample position"]) -> None:
        """Note the tokens of a forward pass that begins."""
        self.over = False
        self.chunks.append(tokens)
        # What an earlier pass on six tokens may have left behind is not of this one.
        self.model.hook_dict[SCORES_HOOK].ctx.pop(MULTIPLICITY, None)

    def recognise(
        self, embedding: Float[Tensor, "sample position d_model"], hook: Any
    ) -> Float[Tensor, "sample position d_model"]:
        """Note the tokens of a forward pass by their embeddings: a hook sees nothing else."""
        W_E = self.model.W_E.detach()
        equal = (embedding.detach().unsqueeze(-2) == W_E).all(dim=-1)
        tokens = equal.int().argmax(dim=-1)
        ambiguous = (equal & (_KIND.to(W_E.device) != _KIND.to(W_E.device)[tokens, None])).any()
        if ambiguous or not equal.any(dim=-1).all():
            raise ValueError(
                "a list of hooks knows tokens by their embeddings, which are changed or equal for "
                "different tokens here; use the context manager of the same name without _hooks"
            )
        self.start(tokens)
        return embedding

    def keys(
        self, pattern: Float[Tensor, "sample head query key"], hook: Any
    ) -> Int[Tensor, "sample key"]:
        """Return the tokens behind the keys of a pattern, cached ones of earlier passes too."""
        new, length = pattern.shape[-2:]
        if new == length:  # no cache: what came before is over
            self.chunks = self.chunks[-1:]
        known = self.chunks and not self.over
        self.over |= hook.name == self.last
        tokens = torch.cat(self.chunks, dim=1) if known else torch.zeros(0, 0)
        if tokens.shape[1] != length:
            raise ValueError(
                f"attention patch: expected a pattern over the {tokens.shape[1]} tokens that were "
                f"embedded, got one over {length}; run the model from its tokens on"
            )
        return tokens.long()

    def log_multiplicity(self, like: Tensor) -> Float[Tensor, "sample key"] | None:
        """Log of how often each key stands there, in the compact form; None in sequences."""
        n = self.model.hook_dict[SCORES_HOOK].ctx.get(MULTIPLICITY)
        return None if n is None else n.to(like).log()


# Tokens that a patch treats differently; two of one kind may have the same embedding.
_KIND = torch.tensor([0, 1, 2, 3, 4, 5, 6, 0])


@contextmanager
def _attached(model: HookedTransformer, patch: RowPatch) -> Iterator[None]:
    seen = _SeenTokens(model, patch.heads)
    with _tokens_noticed(model, seen), hooks_attached(model, _pattern_hooks(patch, seen)):
        yield


def _hook_list(model: HookedTransformer, patch: RowPatch) -> list[tuple[str, Hook]]:
    seen = _SeenTokens(model, patch.heads)
    return [("hook_embed", seen.recognise), *_pattern_hooks(patch, seen)]


@contextmanager
def _tokens_noticed(model: HookedTransformer, seen: _SeenTokens) -> Iterator[None]:
    notice = lambda module, inputs: seen.start(inputs[0])  # noqa: E731
    with torch_hooks([(model.embed, "forward_pre_hook", notice)]):
        yield


def _pattern_hooks(patch: RowPatch, seen: _SeenTokens) -> list[tuple[str, Hook]]:
    def rewrite(chosen: list[int], heads: list[int]) -> Hook:
        def hook_pattern(
            pattern: Float[Tensor, "sample head query key"], hook: Any
        ) -> Float[Tensor, "sample head query key"]:
            keys = seen.keys(pattern, hook)
            rows = _asking_rows(keys, pattern, patch.at)
            if len(rows.sample) == 0:
                return pattern
            key_tokens = keys[rows.sample]
            table = patch.log_weights.to(pattern)[chosen]
            weights = table[:, rows.token[:, None], key_tokens].transpose(0, 1)
            log_n = seen.log_multiplicity(pattern)
            if log_n is not None:
                weights = weights + log_n[rows.sample, None, :]
            weights = weights.masked_fill(~rows.visible[:, None], -math.inf)
            own = pattern[rows.sample, :, rows.query][:, heads]
            kept = patch.kept.to(pattern.device)[key_tokens][:, None].expand_as(own)
            pattern = pattern.clone()
            pattern[rows.sample[:, None], torch.tensor(heads), rows.query[:, None]] = patch.rewrite(
                own, weights, kept
            )
            return pattern

        return hook_pattern

    return [
        (name, rewrite(chosen, heads)) for name, chosen, heads in _by_layer(seen.model, patch.heads)
    ]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a batch of patterns that are rewritten: where they are, and which keys they see."""

    sample: Int[Tensor, " row"]
    query: Int[Tensor, " row"]
    token: Int[Tensor, " row"]
    visible: Bool[Tensor, "row key"]


def _asking_rows(keys: Int[Tensor, "sample key"], pattern: Tensor, at: At) -> _Rows:
    first = pattern.shape[-1] - pattern.shape[-2]  # keys from a cache come before the queries
    queries = keys[:, first:]
    asking = torch.isin(queries, torch.tensor(ASKING[at], device=queries.device))
    sample, query = asking.nonzero(as_tuple=True)
    # Masked keys, later ones or padding, have exactly no weight; but so may others of a collapsed
    # head. What comes later is never seen in these causal models, and nothing else is masked.
    position = torch.arange(keys.shape[1], device=keys.device)
    visible = position[None, :] <= (query + first)[:, None]
    return _Rows(sample, query, queries[sample, query], visible)


def _copy_hooks(
    model: HookedTransformer,
    source: str | Sentence,
    heads: Iterable[HeadName] | None,
    at: At,
) -> tuple[list[tuple[str, Hook]], _SeenTokens]:
    check_choice("at", at, ("=", "answer"))
    numbers = head_numbers(model, heads)
    sentence = parse(source) if isinstance(source, str) else source
    if not isinstance(sentence, Sentence):
        raise TypeError(f"source: expected a sentence such as '0011=', got {source!r}")
    tokens = [int(token) for token in sentence.tokens]
    asking = [place for place, token in enumerate(tokens) if token in ASKING[at]]
    if not asking:
        raise ValueError(f"source: expected a sentence with its answer, got {str(sentence)!r}")
    if len(tokens) > model.cfg.n_ctx:
        raise ValueError(
            f"source: has {len(tokens)} tokens, the model reads {model.cfg.n_ctx} (n_ctx): "
            "expected a shorter sentence"
        )
    row = asking[0]
    layers = list(_by_layer(model, numbers))
    with torch.no_grad():
        _, cache = model.run_with_cache(
            torch.tensor([tokens], device=model.W_E.device),
            names_filter=[name for name, _, _ in layers],
        )
    seen = _SeenTokens(model, numbers)

    def replace(new: Float[Tensor, "head key"], chosen: list[int]) -> Hook:
        def hook_pattern(pattern: Tensor, hook: Any) -> Tensor:
            rows = _asking_rows(seen.keys(pattern, hook), pattern, at)
            if seen.log_multiplicity(pattern) is not None:
                raise ValueError(
                    "copy_attention: expected whole sentences, got the compact form, in which "
                    "tokens have no places; run the model on sequences"
                )
            lengths = rows.visible.sum(dim=1)
            if (lengths != row + 1).any():
                raise ValueError(
                    f"copy_attention: expected sentences of {row + 1} tokens up to the patched "
                    f"row, as the source has, got {sorted(set(lengths.tolist()))}"
                )
            pattern = pattern.clone()
            padded = pattern.new_zeros(len(chosen), pattern.shape[-1])
            padded[:, : row + 1] = new
            pattern[rows.sample[:, None], torch.tensor(chosen), rows.query[:, None]] = padded
            return pattern

        return hook_pattern

    hooks = [
        (name, replace(cache[name][0, heads_of_layer, row, : row + 1], heads_of_layer))
        for name, _, heads_of_layer in layers
    ]
    return hooks, seen


def _ratio_patch(
    model: HookedTransformer,
    w01: float | None,
    w02: float | None,
    heads: Iterable[HeadName] | None,
    others: Others,
    at: At,
) -> RowPatch:
    chosen = None if heads is None else tuple(head_numbers(model, heads))
    ratios = AttentionRatios(w01=w01, w02=w02, heads=chosen, others=others, at=at)
    return RowPatch.from_ratios(model, ratios)


def _by_layer(
    model: HookedTransformer, numbers: list[int]
) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield hook point, places in `numbers`, and heads within the layer, for each layer."""
    for layer in range(model.cfg.n_layers):
        chosen = [p for p, number in enumerate(numbers) if number // model.cfg.n_heads == layer]
        if chosen:
            heads = [numbers[place] % model.cfg.n_heads for place in chosen]
            yield _pattern_hook(layer), chosen, heads


def _pattern_hook(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_pattern"
