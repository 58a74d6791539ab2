"""Runs any HookedTransformer on token sequences, through real hooks.

Several layers, positions, MLPs, a final layer norm: everything works. This is the reference that
faster ways are held against.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.models.hooks import (
    Hook,
    ablation_hooks,
    batches,
    has_final_norm,
    hooks_attached,
    through_frozen_norm,
    z_hook,
)
from count01_lens.tasks.prompts import Asked


@dataclass(frozen=True, eq=False)
class Attribution:
    """The logits at the query position, taken apart.

    Attributes:
        heads: what each head writes into them directly.
        rest: everything else: biases, the skip connection, MLPs.
    """

    heads: Float[Tensor, "prompt head token"]
    rest: Float[Tensor, "prompt token"]


@dataclass(frozen=True, eq=False)
class HookRunner:
    """Runs a model on sequences.

    Attributes:
        model: any HookedTransformer; hooks that are attached to it take part.
        why_not_counts: why it is not run on counts, for those who wonder.
        interventions: what is applied to it while it runs, the first outermost.
    """

    model: HookedTransformer
    why_not_counts: str | None = None
    interventions: tuple[Any, ...] = ()
    additive: ClassVar[bool] = False

    @property
    def n_heads(self) -> int:
        """Number of heads, all layers together."""
        return int(self.model.cfg.n_layers * self.model.cfg.n_heads)

    @torch.no_grad()
    def outputs(self, prompts: Asked) -> Float[Tensor, "prompt head d_head"]:
        """`hook_z` of every head of every layer at the query position."""
        return torch.cat([self._z(at) for _, at in self._visits(prompts, self._z_hooks)])

    @torch.no_grad()
    def attribute(self, prompts: Asked) -> Attribution:
        """Direct logit attribution of every head, and the rest of the logits, in float64.

        A final layer norm is not linear; its scale is frozen at what it is on the full model, which
        makes it so.
        """
        model, heads, whole = self.model, [], []
        W_O = rearrange(model.W_O, "layer head d_head d_model -> (layer head) d_head d_model")
        names = [*self._z_hooks, *(["ln_final.hook_scale"] if has_final_norm(model) else [])]
        for logits, at in self._visits(prompts, names):
            written = einsum(self._z(at), W_O, "prompt head d, head d r -> prompt head r")
            if has_final_norm(model):
                written = through_frozen_norm(model, written, at["ln_final.hook_scale"])
            heads.append((written @ model.W_U).double().cpu())
            whole.append(logits.double().cpu())
        attributed = torch.cat(heads)
        return Attribution(attributed, torch.cat(whole) - attributed.sum(dim=1))

    @torch.no_grad()
    def logits(self, prompts: Asked, without: Sequence[int] = ()) -> Float[Tensor, "prompt token"]:
        """Logits at the query position, with the outputs of some heads set to zero."""
        hooks = ablation_hooks(self.model, without) if without else []
        return torch.cat([logits for logits, _ in self._visits(prompts, [], hooks)])

    def under(self, intervention: Any) -> "HookRunner":
        """The same model under an intervention."""
        return replace(self, interventions=(*self.interventions, intervention))

    @property
    def _z_hooks(self) -> list[str]:
        return [z_hook(layer) for layer in range(self.model.cfg.n_layers)]

    def _z(self, at: dict[str, Tensor]) -> Float[Tensor, "prompt head d_head"]:
        return torch.cat([at[name] for name in self._z_hooks], dim=1)

    def _visits(
        self, prompts: Asked, names: list[str], hooks: Sequence[tuple[str, Hook]] = ()
    ) -> Iterator[tuple[Float[Tensor, "prompt token"], dict[str, Tensor]]]:
        """Run the model batch by batch; yield logits and activations at the query positions."""
        with self._intervened(), hooks_attached(self.model, hooks):
            for tokens, asked in batches(self.model, prompts.sequences(), prompts.positions):
                rows = torch.arange(len(tokens), device=tokens.device)
                logits, cache = self.model.run_with_cache(tokens, names_filter=names)
                yield logits[rows, asked], {name: cache[name][rows, asked] for name in names}

    @contextmanager
    def _intervened(self) -> Iterator[None]:
        with ExitStack() as stack:
            for intervention in self.interventions:
                stack.enter_context(intervention.applied(self.model))
            yield
