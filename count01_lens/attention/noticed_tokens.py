"""Tokens followed through a model while it runs, by the tensors that are made of them.

Tokens are noticed as they are embedded. From then on they are known by the tensors that the model
hands on: the residual stream between two blocks, and the keys in a cache. Of any other tensor they
are not known, and never guessed: neither of a cache that was filled elsewhere nor of a pass that
starts in the middle of the model. What a thread is just doing is its own.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module
from torch.utils.weak import WeakTensorKeyDictionary

from count01_lens.attention.seen_tokens import Attended, SeenTokens
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.compact import multiplied_at, note_multiplicity
from count01_lens.models.hooks import TorchHook, torch_hooks
from count01_lens.models.lens import BlockInput, has_bridges

TokenIds = Int[Tensor, "sample position"]
Stream = Float[Tensor, "sample position d_model"]

_NO_STREAM = (
    "expected a run from tokens on, got a residual stream whose tokens are not known; run the "
    "model from its tokens on"
)
_NO_CACHE = (
    "expected cached keys of tokens that went into the cache inside this block, got others; begin "
    "the block before the cache is filled, or run without it"
)


class Embedded(threading.local):
    """What a thread embedded last, and has not yet run through the first block."""

    def __init__(self) -> None:
        self.inside = False  # a call of the model, and not of its method `forward`?
        self.begun: tuple[TokenIds, Stream] | None = None  # by a pass that has just begun
        self.loose: list[tuple[TokenIds, Stream]] = []  # by themselves, as in `generate`
        self.position: Stream | None = None


@dataclass(eq=False)
class BlockRun(Attended):
    """One run of one block: besides, what it has to leave behind."""

    queries: TokenIds | None = None
    cache: Any = None
    cached: Tensor | None = None
    multiplicity: Tensor | None = None


class NoticedTokens(SeenTokens):
    """Tokens noticed as they are embedded, those of cached keys of earlier passes included."""

    def __init__(self, model: HookedTransformer):
        super().__init__(model)
        self.embedded = Embedded()
        self.behind = WeakTensorKeyDictionary()  # residual streams and cached keys -> their tokens

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Watch the model for the length of a `with` block, if tokens are needed."""
        with torch_hooks(self.torch_hooks() if self.layers else []):
            yield

    def torch_hooks(self) -> Iterator[TorchHook]:
        """List what is watched: calls, the embedding, and each block."""
        model, always = self.model, {"always_call": True}
        yield model, "forward_pre_hook", self._called, {}
        yield model, "forward_hook", self._returns, always
        yield model.embed, "forward_hook", self._embeds, {}
        points = model.hook_dict
        if not has_bridges():  # whose embedding holds its hook point
            yield points["hook_embed"], "forward_hook", self._begins, {}
        if model.cfg.positional_embedding_type == "standard":
            yield points["hook_pos_embed"], "forward_hook", self._positions, {}
        for layer, block in enumerate(model.blocks):
            yield block, "forward_pre_hook", partial(self._enters, layer), {"with_kwargs": True}
            yield block, "forward_hook", self._leaves, always

    def _called(self, model: Module, inputs: tuple[Any, ...]) -> None:
        self.embedded.inside, self.embedded.begun = True, None

    def _returns(self, model: Module, inputs: tuple[Any, ...], output: Any) -> None:
        begun = self.embedded.begun
        if isinstance(output, Tensor) and begun is not None:  # it stopped before the first block
            self.behind[output] = begun[0]
        self.embedded.inside, self.embedded.begun = False, None

    def _embeds(self, module: Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        self.embedded.begun = None
        loose = self.embedded.loose
        # Generated tokens come one by one, and belong to those before them.
        if loose and (output.shape[1] != 1 or output.shape[0] != loose[-1][0].shape[0]):
            loose.clear()
        if inputs:
            # A copy, lest they change while their keys are in a cache.
            loose.append((inputs[0].detach().long().clone(), output.detach()))
        if has_bridges():
            self._begins(module, inputs, output)

    def _begins(self, module: Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Take what was just embedded for a pass: `generate` does not go this way, nor users do."""
        if self.embedded.loose:
            self.embedded.begun = self.embedded.loose[-1]
            self.embedded.loose.clear()

    def _positions(self, module: Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        self.embedded.position = None if self.embedded.inside else output.detach()

    def _enters(
        self, layer: int, block: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        run = BlockRun(layer, None, _NO_STREAM)
        self.running.layers.append(run)  # first, since `_leaves` takes one away in any case
        given = BlockInput.of(block, args, kwargs)
        run.queries = self._tokens_of(layer, given.stream)
        run.padding, run.told = given.padding, True
        run.cache = given.cache
        run.cached = None if run.cache is None else run.cache.past_keys
        if run.queries is not None:
            run.keys, run.unknown = self._with_cached(run.cached, run.queries), _NO_CACHE
        if layer == 0:
            # What an earlier pass on six tokens may have left behind is not of this one; a pass
            # around this one gets it back.
            run.multiplicity = note_multiplicity(self.model.hook_dict[multiplied_at()], None)

    def _leaves(self, block: Module, inputs: tuple[Any, ...], output: Any) -> None:
        run = self.running.layers.pop()
        output = output[0] if isinstance(output, tuple) else output  # as bridges give it
        assert isinstance(run, BlockRun)
        if run.multiplicity is not None:
            note_multiplicity(self.model.hook_dict[multiplied_at()], run.multiplicity)
        if output is not None and run.queries is not None:
            self.behind[output] = run.queries
        # A frozen cache keeps the keys that it had.
        if run.keys is not None and run.cache is not None:
            keys = run.cache.past_keys
            if keys is not run.cached and keys.shape[:2] == run.keys.shape:
                self.behind[keys] = run.keys

    def _tokens_of(self, layer: int, stream: Stream) -> TokenIds | None:
        known: TokenIds | None = self.behind.get(stream)  # type: ignore[no-untyped-call]
        return self._embedded_as(stream) if known is None and layer == 0 else known

    def _embedded_as(self, stream: Stream) -> TokenIds | None:
        """Tokens from which a stream before the first block comes."""
        begun, self.embedded.begun = self.embedded.begun, None
        if begun is not None:
            # Nobody says when `forward` by itself returns: what begins here may be another pass.
            # Only hooks can make the stream of the same one differ from what was embedded.
            hooked = any(
                self.model.hook_dict[name].fwd_hooks
                for name in ("hook_embed", "hook_pos_embed")
                if name in self.model.hook_dict
            )
            sure = self.embedded.inside or hooked or self._is_made_of(stream, begun[1])
            return begun[0] if sure and begun[0].shape == stream.shape[:2] else None
        if not self.embedded.loose:
            return None
        n = stream.shape[1]
        tokens, embedding = (
            torch.cat(parts, dim=1)[:, -n:] for parts in zip(*self.embedded.loose, strict=True)
        )
        return tokens if self._is_made_of(stream, embedding) else None

    def _is_made_of(self, stream: Stream, embedding: Float[Tensor, "batch n d_model"]) -> bool:
        """Whether nothing but an embedding and positions is in a stream."""
        position = self.embedded.position
        if self.model.cfg.positional_embedding_type == "standard":
            here = None if position is None else position[:, -stream.shape[1] :]
            if here is None or not here.shape == embedding.shape == stream.shape:
                return False
            embedding = embedding + here
        return torch.equal(embedding, stream)

    def _with_cached(
        self, cached: Tensor | None, queries: TokenIds
    ) -> Int[Tensor, "sample key"] | None:
        if cached is None or cached.shape[1] == 0:
            return queries
        past: Int[Tensor, "sample past"] | None = self.behind.get(cached)  # type: ignore[no-untyped-call]
        if past is None or past.shape != cached.shape[:2] or past.shape[0] != queries.shape[0]:
            return None
        return torch.cat([past, queries], dim=1)
