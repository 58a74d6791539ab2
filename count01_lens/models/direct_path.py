"""The direct path of heads into the logits: W_O, a norm after attention, the final norm, W_U.

Norms are not linear. Each is frozen at the scale it has on the full model, which makes it so; then
what heads write, and everything else that is in the residual stream, add up to the logits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.precision import at_least_float32, without_autocast
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.models.hooks import z_hook
from count01_lens.models.lens import has_parallel_mlp, module_at, norms_after_attention, output_bias

Activations = Mapping[str, Tensor]  # by hook point, at the query position of each prompt
Tokens = slice | list[int]  # columns of the logits


@dataclass(frozen=True, eq=False)
class DirectPath:
    """How the heads of a model reach its logits directly.

    `hooks` are the hook points whose activations its methods want.
    """

    model: HookedTransformer

    @property
    def hooks(self) -> list[str]:
        """Hook points of head outputs, of the scales of norms, and of the stream at the end."""
        return [*map(z_hook, self._layers), *self.scales, self._end]

    @property
    def scales(self) -> list[str]:
        """Hook points of the scales of norms on the way."""
        norms = [self.norm_after_attention(layer) for layer in self._layers]
        return [f"{name}.hook_scale" for name in (*norms, self._final_norm) if name is not None]

    @property
    def has_norms(self) -> bool:
        """Whether norms have to be frozen."""
        return self.model.cfg.normalization_type is not None

    @property
    def adds_up(self) -> bool:
        """Whether logits are a sum over heads and the rest, whichever heads there are.

        Nothing but the output matrix reads what they write, up to a soft cap, which keeps order.
        """
        cfg = self.model.cfg
        return (
            cfg.n_layers == 1
            and not self.has_norms
            and (cfg.attn_only or has_parallel_mlp(self.model))
        )

    def heads(
        self, at: Activations, tokens: Tokens = slice(None)
    ) -> Float[Tensor, "prompt head token"]:
        """Direct logit attribution of every head of every layer, to some tokens or to all."""
        return self.of_outputs([at[z_hook(layer)] for layer in self._layers], at, tokens)

    @without_autocast
    def of_outputs(
        self,
        outputs: Sequence[Float[Tensor, "prompt head_of_layer d_head"]],
        at: Activations,
        tokens: Tokens = slice(None),
    ) -> Float[Tensor, "prompt head token"]:
        """What given outputs of heads, or parts of them, by layer, would add to the logits."""
        written = [
            self.written(z, at, layer) for layer, z in zip(self._layers, outputs, strict=True)
        ]
        read = self._through(self._final_norm, torch.cat(written, dim=1), at)
        return read @ precise(self.model.W_U[:, tokens])

    @without_autocast
    def written(
        self, outputs: Float[Tensor, "prompt head d_head"], at: Activations, layer: int
    ) -> Float[Tensor, "prompt head d_model"]:
        """What outputs of the heads of a layer add to the residual stream."""
        W_O = precise(self.model.blocks[layer].attn.W_O)
        added = einsum(precise(outputs), W_O, "prompt head d, head d r -> prompt head r")
        return self._through(self.norm_after_attention(layer), added, at)

    @without_autocast
    def written_by_bias(self, at: Activations, layer: int) -> Float[Tensor, "prompt d_model"]:
        """What attention adds to the residual stream besides."""
        norm = self.norm_after_attention(layer)
        b_O = precise(output_bias(self.model, layer))
        added = self._through(norm, b_O.expand(len(at[z_hook(layer)]), 1, -1), at)[:, 0]
        return added + self._bias(norm)

    @without_autocast
    def read(self, at: Activations) -> Float[Tensor, "prompt d_model"]:
        """What W_U reads: the end of the residual stream through the frozen final norm."""
        stream = precise(at[self._end]).unsqueeze(1)
        return self._through(self._final_norm, stream, at)[:, 0] + self._bias(self._final_norm)

    @without_autocast
    def logits(self, at: Activations) -> Float[Tensor, "prompt token"]:
        """Logits before any soft cap."""
        return self.read(at) @ precise(self.model.W_U) + precise(self.model.b_U)

    def uncapped(
        self, logits: Float[Tensor, "prompt token"], at: Activations
    ) -> Float[Tensor, "prompt token"]:
        """Logits of a run without their soft cap, which heads do not add up through.

        Capping keeps their order, and so what the model says.
        """
        return logits if self._cap <= 0 else self.logits(at)

    def capped(self, logits: Float[Tensor, "*any token"]) -> Float[Tensor, "*any token"]:
        """Apply the soft cap, if the model has one."""
        return logits if self._cap <= 0 else self._cap * torch.tanh(logits / self._cap)

    def uncap(self, logits: Float[Array, "*any"]) -> Float[Array, "*any"]:
        """Take the soft cap back, if the model has one."""
        if self._cap <= 0:
            return logits
        inside = np.clip(logits / self._cap, -1 + 1e-15, 1 - 1e-15)
        return np.asarray(self._cap * np.arctanh(inside))

    def norm_after_attention(self, layer: int) -> str | None:
        """The norm between heads of a layer and the residual stream, in models that have one."""
        cfg = self.model.cfg
        if cfg.normalization_type is None:
            return None
        if cfg.original_architecture in norms_after_attention():
            return f"blocks.{layer}.ln1"
        return f"blocks.{layer}.ln1_post" if cfg.use_normalization_before_and_after else None

    @property
    def _cap(self) -> float:
        return float(self.model.cfg.output_logits_soft_cap)

    @property
    def _layers(self) -> range:
        return range(self.model.cfg.n_layers)

    @property
    def _end(self) -> str:
        return f"blocks.{self.model.cfg.n_layers - 1}.hook_resid_post"

    @property
    def _final_norm(self) -> str | None:
        return None if self.model.cfg.normalization_type is None else "ln_final"

    def _through(
        self, norm: str | None, written: Float[Tensor, "prompt part d_model"], at: Activations
    ) -> Float[Tensor, "prompt part d_model"]:
        """Apply the linear part of a norm: centring (not for RMS), frozen scale, learned weight."""
        if norm is None:
            return written
        module = module_at(self.model, norm)
        # By the module: a model of type "LN" may end with an RMS norm.
        if not type(module).__name__.startswith("RMS"):
            written = written - written.mean(dim=-1, keepdim=True)
        normalised = written / precise(at[f"{norm}.hook_scale"]).unsqueeze(1)
        weight = getattr(module, "w", None)
        return normalised if weight is None else normalised * precise(weight)

    def _bias(self, norm: str | None) -> Tensor | float:
        bias = None if norm is None else getattr(module_at(self.model, norm), "b", None)
        return 0.0 if bias is None else precise(bias)


def precise(tensor: Tensor) -> Tensor:
    """Take a tensor out of the graph, in at least float32."""
    return tensor.detach().to(at_least_float32(tensor.dtype))
