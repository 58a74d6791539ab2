"""Attention patches in every way that a model can be run, against plain hooks with plain loops.

The reference runs whole sequences at once, and writes each row by hand from the tokens, the mask and
the window. The library is asked the same with caches, padding, masks, threads, and nested patches.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformer_lens import (
    TransformerLensKeyValueCache,
)

import count01_lens as cl
from count01_lens.models.lens import attends_everywhere, has_bridges, parameters_of
from count01_lens.tasks.tokenizer import count01_tokenizer
from tests.attacks.numpy_model import BOS, EOS, EQUALS, FIVE, FOUR, TWO, ZERO
from tests.lens_versions import NO_CACHE, NO_THREADS, made

Rng = np.random.Generator
QUERIES = {"=": (EQUALS,), "answer": (FOUR, FIVE)}
KINDS = ("one layer", "two layers", "windows", "grouped", "rotary")


@cache
def model_of(kind: str) -> Any:
    """A model with random weights, some of its heads collapsed."""
    options = dict(n_layers=2, d_mlp=8, act_fn="relu")
    if kind == "one layer":
        options = dict(n_layers=1, attn_only=True)
    elif kind == "windows":
        options |= dict(use_local_attn=True, attn_types=["global", "local"], window_size=3)
    elif kind == "grouped":
        options |= dict(n_key_value_heads=2)
    elif kind == "rotary":
        options |= dict(positional_embedding_type="rotary", rotary_dim=4)
    model = made(
        count01_tokenizer(),
        d_model=12, n_heads=4, d_head=4, n_ctx=32, d_vocab=8, seed=KINDS.index(kind),
        dtype=torch.float64, **options,
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in parameters_of(model).items():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64) * 0.7)
            if name.endswith("W_Q"):  # the first head: its first rows in a bridge
                parameter[: model.cfg.d_head if has_bridges() else 1] *= 1000
    return model


@dataclass(frozen=True)
class Patch:
    """One patch, in the words of the reference: weights by token."""

    weights: dict[int, float]
    heads: tuple[tuple[int, int], ...]
    keep: bool = False
    at: str = "="

    def value(self) -> cl.Weights:
        """The same in the words of the library."""
        weights = {cl.Token(token).text: weight for token, weight in self.weights.items()}
        others = "keep" if self.keep else "zero"
        return cl.Weights(weights, heads=self.heads, others=others, at=self.at)


def reference_hooks(
    model: Any, tokens: Tensor, mask: Tensor | None, patches: Sequence[Patch]
) -> list[tuple[str, Callable[..., Tensor]]]:
    """Plain hooks that write each row by hand, for whole sequences."""
    return [
        (f"blocks.{layer}.attn.hook_pattern", _by_hand(model, layer, tokens, mask, patch))
        for patch in patches
        for layer in range(model.cfg.n_layers)
    ]


def _by_hand(model, layer, tokens, mask, patch):
    local = not attends_everywhere(model, layer)
    window = model.cfg.window_size if local else math.inf

    def hook_pattern(pattern, hook):
        pattern = pattern.clone()
        for sample, row in enumerate(tokens.tolist()):
            for query, token in enumerate(row):
                if token not in QUERIES[patch.at]:
                    continue
                new = [
                    patch.weights.get(key, 0.0) if query - window < place <= query else 0.0
                    for place, key in enumerate(row)
                ]
                if mask is not None:
                    new = [w * int(m) for w, m in zip(new, mask[sample].tolist(), strict=True)]
                share = torch.tensor(new, dtype=torch.float64) / (sum(new) or 1.0)
                named = torch.tensor([key in patch.weights for key in row])
                for at_layer, head in patch.heads:
                    if at_layer == layer:
                        own = pattern[sample, head, query]
                        rest = own[named].sum() if patch.keep else 1.0
                        kept = own * ~named if patch.keep else 0.0
                        pattern[sample, head, query] = kept + rest * share
        return pattern

    return hook_pattern


def reference_logits(model, tokens, mask, patches) -> Tensor:
    """Logits at all positions of whole sequences."""
    hooks = reference_hooks(model, tokens, mask, patches)
    return model.run_with_hooks(tokens, attention_mask=mask, fwd_hooks=hooks)


def new_cache(model: Any, batch: int) -> TransformerLensKeyValueCache:
    """An empty cache."""
    if has_bridges():
        pytest.skip(f"TransformerLens 4: {NO_CACHE}")
    return TransformerLensKeyValueCache.init_cache(model.cfg, model.cfg.device, batch)


# --- Random cases ----------------------------------------------------------------------------------


def random_batch(rng: Rng) -> tuple[Tensor, Tensor | None]:
    """Sentences of one length, or padded on either side; with a mask, or without."""
    n = int(rng.integers(1, 4))
    bodies = [rng.integers(ZERO, TWO + 1, int(rng.integers(0, 6))).tolist() for _ in range(n)]
    rows = [[BOS, *body, EQUALS, int(rng.choice([FOUR, FIVE]))] for body in bodies]
    longest = max(map(len, rows))
    left = rng.random() < 0.5
    pads = [[EOS] * (longest - len(row)) for row in rows]
    padded = [pad + row if left else row + pad for row, pad in zip(rows, pads, strict=True)]
    tokens = torch.tensor(padded)
    way = rng.choice(["none", "padding", "holes"])
    if way == "none":
        return tokens, None
    mask = (tokens != EOS).long()
    if way == "holes":
        mask &= torch.from_numpy((rng.random(tokens.shape) < 0.7).astype(int))
        mask[:, -1] = 1
    return tokens, mask


def random_patch(rng: Rng, model: Any) -> Patch:
    """Random weights of some tokens, for some heads."""
    tokens = rng.permutation(range(EOS))[: int(rng.integers(1, 5))].tolist()
    weights = {token: float(rng.choice([0.0, 1.0, rng.exponential()])) for token in tokens}
    every = [(layer, h) for layer in range(model.cfg.n_layers) for h in range(model.cfg.n_heads)]
    chosen = rng.permutation(len(every))[: int(rng.integers(1, len(every) + 1))]
    heads = tuple(every[place] for place in sorted(chosen.tolist()))
    return Patch(weights, heads, bool(rng.random() < 0.4), str(rng.choice(["=", "answer"])))


def _in_chunks(model, tokens, mask, cuts, kv) -> list[Callable[[], Tensor]]:
    """Runs of the parts of sequences on one cache, to be called in this order."""
    mask = torch.ones_like(tokens) if mask is None else mask
    places = list(zip([0, *cuts], [*cuts, tokens.shape[1]], strict=True))
    return [
        lambda a=a, b=b: model(tokens[:, a:b], attention_mask=mask[:, a:b], past_kv_cache=kv)
        for a, b in places
    ]


def _cuts(rng: Rng, tokens: Tensor) -> list[int]:
    inner = np.arange(1, tokens.shape[1])
    return sorted(rng.permutation(inner)[: int(rng.integers(1, 4))].tolist())


def run_whole(rng, model, batches):
    """All at once."""
    return [model(tokens, attention_mask=mask) for tokens, mask in batches]


def run_on_caches(rng, model, batches):
    """Part by part, each batch on its own cache, in turns."""
    waiting = [
        _in_chunks(model, tokens, mask, _cuts(rng, tokens), new_cache(model, len(tokens)))
        for tokens, mask in batches
    ]
    parts = [[] for _ in batches]
    while any(waiting):
        turn = int(rng.choice([place for place, runs in enumerate(waiting) if runs]))
        parts[turn].append(waiting[turn].pop(0)())
    return [torch.cat(each, dim=1) for each in parts]


def run_in_threads(rng, model, batches):
    """Each batch in a thread of its own, again and again at the same time."""
    if has_bridges():
        pytest.skip(f"TransformerLens 4: {NO_THREADS}")
    results: list[list[Tensor]] = [[] for _ in batches]
    start = threading.Barrier(len(batches))

    def work(place):
        tokens, mask = batches[place]
        start.wait()
        with torch.no_grad(), suppress(Exception):  # who fails has fewer results
            for _ in range(6):
                results[place].append(model(tokens, attention_mask=mask))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One that differs from the others is the one to be looked at.
    return [
        max(each, key=lambda one: float((one - each[0]).abs().max())) if len(each) == 6 else None
        for each in results
    ]


def run_nested(rng, model, batches):
    """Each batch while a hook of the run before is being called."""
    results: list[Tensor | None] = [None] * len(batches)
    point = model.blocks[0].attn
    name = str(rng.choice(["hook_q", "hook_attn_scores", "hook_pattern", "hook_z"]))

    def run(place):
        def again(module, inputs, output):
            handle.remove()
            if place + 1 < len(batches):
                run(place + 1)

        handle = getattr(point, name).register_forward_hook(again)
        tokens, mask = batches[place]
        results[place] = model(tokens, attention_mask=mask)

    run(0)
    return results


WAYS = {
    "whole": run_whole,
    "caches in turn": run_on_caches,
    "threads": run_in_threads,
    "nested runs": run_nested,
}


def attack_patches(cases: int, seed: int) -> Counter[str]:
    """Patches of random models in random ways; each batch must be as by hand."""
    outcomes: Counter[str] = Counter()
    for case in range(cases):
        outcome = _case(np.random.default_rng([seed, case]))
        if outcome not in outcomes:
            print(f"{outcome}: first in case {case} of seed {seed}")
        outcomes[outcome] += 1
    return outcomes


def _case(rng: Rng) -> str:
    model = model_of(str(rng.choice(KINDS)))
    patches = [random_patch(rng, model) for _ in range(int(rng.integers(1, 3)))]
    batches = [random_batch(rng) for _ in range(3)]
    way = str(rng.choice([*WAYS, "list of hooks"]))
    with torch.no_grad():
        expected = [reference_logits(model, tokens, mask, patches) for tokens, mask in batches]
        if way == "list of hooks":
            found = [_listed(model, tokens, mask, patches) for tokens, mask in batches]
        else:
            with ExitStack() as stack:
                for patch in patches:
                    stack.enter_context(patch.value().applied(model))
                try:
                    found = WAYS[way](rng, model, batches)
                except ValueError:
                    return f"{way}: refused"
    for ours, right in zip(found, expected, strict=True):
        if ours is None:
            return f"{way}: failed"
        if not torch.allclose(ours, right, rtol=1e-9, atol=1e-9):
            return f"{way}: other logits than by hand"
    return f"agrees ({way})"


def _listed(model, tokens, mask, patches):
    hooks = [hook for patch in patches for hook in patch.value().fwd_hooks(model, tokens)]
    return model.run_with_hooks(tokens, attention_mask=mask, fwd_hooks=hooks)
