"""Which tokens a model is being run on: the attention pattern alone does not tell."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.counts.compact import MULTIPLICITY, SCORES_HOOK
from count01_lens.models.hooks import torch_hooks

Pattern = Float[Tensor, "sample head query key"]
Tokens = str | Int[Tensor, "sample position"] | None


class SeenTokens(ABC):
    """Tells hooks at the attention pattern which tokens its keys are."""

    def __init__(self, model: HookedTransformer):
        self.model = model

    @abstractmethod
    def keys(self, pattern: Pattern, hook: Any) -> Int[Tensor, "sample key"]:
        """Return the tokens behind the keys of a pattern."""

    @abstractmethod
    def check(self) -> None:
        """Say that they are needed; raise if they cannot be known, before the model runs."""

    def log_multiplicity(self, like: Tensor) -> Float[Tensor, "sample key"] | None:
        """Log of how often each key stands there, in the compact form; None in sequences."""
        n = self.model.hook_dict[SCORES_HOOK].ctx.get(MULTIPLICITY)
        return None if n is None else n.to(like).log()


class GivenTokens(SeenTokens):
    """Tokens that the user said the model will be run on."""

    def __init__(self, model: HookedTransformer, tokens: Tokens):
        super().__init__(model)
        self.tokens = model.to_tokens(tokens) if isinstance(tokens, str) else tokens

    @property
    def hooks(self) -> list[tuple[str, Any]]:
        """What has to be hooked besides: a pass that begins forgets what an earlier one left."""

        def forget(embedding: Tensor, hook: Any) -> Tensor:
            self.model.hook_dict[SCORES_HOOK].ctx.pop(MULTIPLICITY, None)
            return embedding

        return [] if self.tokens is None else [("hook_embed", forget)]

    def check(self) -> None:
        """Raise if there are no tokens."""
        if self.tokens is None:
            raise ValueError(
                "fwd_hooks: expected the tokens that the model will be run on, got none; give "
                "them, fwd_hooks(model, tokens), or use the context manager"
            )

    def keys(self, pattern: Pattern, hook: Any) -> Int[Tensor, "sample key"]:
        """Return the tokens behind the keys of a pattern."""
        assert self.tokens is not None
        expected, got = list(self.tokens.shape), [pattern.shape[0], pattern.shape[-1]]
        if expected != got or pattern.shape[-2] != pattern.shape[-1]:
            raise ValueError(
                f"attention patch: expected a run on the tokens {expected} that were given to "
                f"fwd_hooks, got a pattern over {got}; give those that the model is run on"
            )
        return self.tokens.to(pattern.device)


class NoticedTokens(SeenTokens):
    """Tokens noticed as they are embedded, those of cached keys of earlier passes included."""

    def __init__(self, model: HookedTransformer):
        super().__init__(model)
        self.needed = False
        self.chunks: list[Int[Tensor, "sample position"]] = []
        # A pass that starts in the middle of the model embeds nothing: then the last tokens are
        # not its own. A pass reads its patterns layer by layer, so a layer comes again only in the
        # next one.
        self.layers: set[str] = set()

    def check(self) -> None:
        """Say that they are needed; they will be known."""
        self.needed = True

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Watch the embedding for the length of a `with` block, if tokens are needed."""

        def notice(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
            self.layers.clear()
            self.chunks.append(inputs[0])
            # What an earlier pass on six tokens may have left behind is not of this one.
            self.model.hook_dict[SCORES_HOOK].ctx.pop(MULTIPLICITY, None)

        with torch_hooks([(self.model.embed, "forward_pre_hook", notice)] if self.needed else []):
            yield

    def keys(self, pattern: Pattern, hook: Any) -> Int[Tensor, "sample key"]:
        """Return the tokens behind the keys of a pattern."""
        new, length = pattern.shape[-2:]
        if new == length:  # no cache: what came before is over
            self.chunks = self.chunks[-1:]
        known = self.chunks and hook.name not in self.layers
        self.layers.add(hook.name)
        tokens = torch.cat(self.chunks, dim=1) if known else torch.zeros(0, 0)
        if tokens.shape[1] != length:
            raise ValueError(
                f"attention patch: expected a pattern over the {tokens.shape[1]} tokens that were "
                f"embedded, got one over {length}; run the model from its tokens on"
            )
        return tokens.long()
