"""Which tokens a layer attends to: the attention pattern alone does not tell.

Hooks at the scores and at the pattern of a layer ask what is `Attended` there. Either the user said
on which tokens the model is run (`GivenTokens`), or they are followed through it
(`noticed_tokens`).
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.counts.compact import multiplied_at, note_multiplicity, noted_multiplicity
from count01_lens.models.hooks import Hook, z_hook

Pattern = Float[Tensor, "sample head query key"]
Tokens = str | Int[Tensor, "sample position"] | None


@dataclass(eq=False)
class Attended:
    """What one run of one layer attends to.

    Attributes:
        layer: its number.
        keys: the tokens behind its keys; None if they are not known.
        unknown: why they are not, and what can be done.
        padding: which keys are tokens (1) and which padding (0), in bridges that were told.
        told: whether it is known what the layer was told of padding, if anything.
        found: what hooks at its scores left for hooks at its pattern.
    """

    layer: int
    keys: Int[Tensor, "sample key"] | None
    unknown: str = ""
    padding: Tensor | None = None
    told: bool = False
    found: dict[object, Any] = field(default_factory=dict)


class Running(threading.local):
    """Layers that are being run, the innermost last; each thread has its own."""

    def __init__(self) -> None:
        self.layers: list[Attended] = []


class SeenTokens:
    """Tells hooks at scores and pattern of a layer which tokens its keys are."""

    def __init__(self, model: HookedTransformer):
        self.model = model
        self.layers: set[int] = set()
        self.running = Running()

    def need(self, layers: Iterable[int]) -> None:
        """Say in which layers they will be asked for; raise if they cannot be known."""
        self.layers |= set(layers)

    def attended(self, scores: Pattern, hook: Any) -> Attended:
        """Return what the layer attends to whose scores or pattern these are."""
        now = self.running.layers[-1] if self.running.layers else None
        if now is None or now.layer != hook.layer():
            raise ValueError(
                f"attention patch: expected layer {hook.layer()} to run as a part of the model, "
                "got its attention alone, or a hook that ran the model again on the way; run the "
                "model from its tokens on, and not inside its own hooks"
            )
        if now.keys is None:
            raise ValueError(f"attention patch: {now.unknown}")
        self._check_shape(now.keys, scores)
        return now

    def log_multiplicity(self, like: Tensor) -> Float[Tensor, "sample key"] | None:
        """Log of how often each key stands there, in the compact form; None in sequences."""
        n = noted_multiplicity(self.model.hook_dict[multiplied_at()])
        return None if n is None else n.to(like).log()

    def _check_shape(self, keys: Int[Tensor, "known_sample known_key"], scores: Pattern) -> None:
        if keys.shape != (scores.shape[0], scores.shape[-1]):
            raise ValueError(
                f"attention patch: expected a pattern over the tokens {list(keys.shape)} that were "
                f"embedded, got one over {[scores.shape[0], scores.shape[-1]]}; hooks must not "
                "change their number"
            )


class GivenTokens(SeenTokens):
    """Tokens that the user said the model will be run on."""

    def __init__(self, model: HookedTransformer, tokens: Tokens):
        super().__init__(model)
        tokens = model.to_tokens(tokens) if isinstance(tokens, str) else tokens
        # A copy, lest they change after the hooks were made.
        self.tokens = None if tokens is None else tokens.detach().clone()

    def need(self, layers: Iterable[int]) -> None:
        """Raise if there are no tokens."""
        super().need(layers)
        if self.tokens is None:
            raise ValueError(
                "fwd_hooks: expected the tokens that the model will be run on, got none; give "
                "them, fwd_hooks(model, tokens), or use the context manager"
            )

    @property
    def hooks(self) -> list[tuple[str, Hook]]:
        """Tell that a layer begins and ends, and compare tokens where there are any."""
        if not self.layers:
            return []
        points = [(f"blocks.{layer}.attn.hook_q", self._begin) for layer in sorted(self.layers)]
        ends = [(z_hook(layer), self._end) for layer in sorted(self.layers)]
        return [("hook_embed", self._compare), *points, *ends]

    def _compare(self, embedding: Float[Tensor, "sample position d_model"], hook: Any) -> Tensor:
        tokens = self.tokens
        assert tokens is not None
        if embedding.shape[:2] != tokens.shape:
            raise self._other_tokens(embedding.shape[:2])
        # Not by the module, whose hooks would take this for a pass of the model.
        expected = self.model.W_E[tokens.to(embedding.device)]
        if not torch.allclose(embedding, expected, rtol=0, atol=0, equal_nan=True):
            raise ValueError(
                "attention patch: expected a run on the tokens that were given to fwd_hooks, got "
                "another embedding; give those that the model is run on. Hooks that change the "
                "embedding have to come after these, or inside the context manager"
            )
        return embedding

    def _begin(self, q: Tensor, hook: Any) -> Tensor:
        # What an earlier pass left behind, compact or cut short, is not of this one.
        note_multiplicity(self.model.hook_dict[multiplied_at()], None)
        assert self.tokens is not None
        self.running.layers[:] = [Attended(hook.layer(), self.tokens.to(q.device))]
        return q

    def _end(self, z: Tensor, hook: Any) -> Tensor:
        self.running.layers.clear()
        return z

    def _check_shape(self, keys: Int[Tensor, "known_sample known_key"], scores: Pattern) -> None:
        shape = (scores.shape[0], scores.shape[-1])
        if keys.shape != shape or scores.shape[-2] != scores.shape[-1]:
            raise self._other_tokens(shape)

    def _other_tokens(self, shape: Iterable[int]) -> ValueError:
        assert self.tokens is not None
        return ValueError(
            f"attention patch: expected a run on the tokens {list(self.tokens.shape)} that were "
            f"given to fwd_hooks, got a pattern over {list(shape)}; give those that the model is "
            "run on"
        )
