"""A stack of models as the training step reads it: each block of parameters in one piece.

A row of raw parameters (`stack.Rows`) has the heads of W_Q, W_K and W_V one after the other. A
product over all heads wants them side by side, and a batched product is fast only where what it
writes has no gaps. So while an epoch is trained, parameters, their gradient and the optimiser's
moments are vectors in which the parameters of all models stand block by block:

    W_E     [model, token, d_embed]
    ln      [2, model, 1, d_embed]              weight, bias; with a layer norm
    W_QKV   [model, d_embed (+ 1), 3 d_head head]     the last row: the biases, if there are any
    output  [model, token, d_head head + 1]     W_out, and b_out as its last column; or, residual,
    W_O     [model, d_head head, d_embed],  b_O  [model, 1, d_embed],
    W_U     [model, d_embed, token],        b_U  [model, token, 1]

An optimiser treats every number alike, so it does not notice.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.models.config import ModelConfig
from count01_lens.models.parameters import raw_shapes
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.places import COUNT01
from count01_lens.training.stack import Rows, from_rows, places_of

Flat = Float[Tensor, " number"]


@dataclass(frozen=True)
class Blocks:
    """The order of the numbers of a stack, and the way there and back."""

    n_models: int
    config: ModelConfig
    language: CountingLanguage = COUNT01

    @cached_property
    def places(self) -> dict[str, Int[Tensor, "..."]]:
        """For each block, which numbers of the matrix of rows it holds."""
        shapes = raw_shapes(self.config, self.language.d_vocab).values()
        size = self.n_models * sum(map(math.prod, shapes))
        numbers = torch.arange(size, dtype=torch.float64).reshape(self.n_models, -1)
        raw = {
            name: places.long()
            for name, places in from_rows(numbers, self.config, self.language).items()
        }
        qkv = [rearrange(raw[f"W_{x}"], "m h e d -> m e (d h)") for x in "QKV"]
        blocks = {"W_E": raw["W_E"]}
        if self.config.layer_norm:
            blocks["ln"] = torch.stack([raw["ln_w"], raw["ln_b"]]).unsqueeze(2)
        blocks["W_QKV"] = torch.cat(qkv, dim=2)
        if self.config.qkv_bias:
            biases = [rearrange(raw[f"b_{x}"], "m h d -> m 1 (d h)") for x in "QKV"]
            blocks["W_QKV"] = torch.cat([blocks["W_QKV"], torch.cat(biases, dim=2)], dim=1)
        if self.config.output == "fused":
            weights = rearrange(raw["W_out"], "m h d token -> m token (d h)")
            return blocks | {"output": torch.cat([weights, raw["b_out"].unsqueeze(2)], dim=2)}
        blocks["W_O"] = rearrange(raw["W_O"], "m h d e -> m (d h) e")
        blocks |= {"b_O": raw["b_O"].unsqueeze(1), "W_U": raw["W_U"]}
        return blocks | {"b_U": raw["b_U"].unsqueeze(2)}

    @cached_property
    def _order(self) -> Int[Tensor, " number"]:
        return torch.cat([places.flatten() for places in self.places.values()])

    def flat(self, rows: Rows) -> Flat:
        """Write rows block by block."""
        return rows.flatten()[self._order]

    def rows(self, flat: Flat) -> Rows:
        """Write blocks model by model."""
        numbers = torch.empty_like(flat)
        numbers[self._order] = flat
        return numbers.reshape(self.n_models, -1)

    @property
    def size(self) -> int:
        """How many numbers there are in all."""
        return len(self._order)

    def per_number(self, per_model: Sequence[float], dtype: torch.dtype) -> Flat | float:
        """Write a setting of each model beside each of its numbers; a float, if all have one."""
        if len(set(per_model)) == 1:
            return per_model[0]
        columns = torch.tensor(per_model, dtype=dtype).unsqueeze(1)
        return self.flat(columns.repeat(1, self.size // self.n_models))

    def places_of(self, names: Collection[str]) -> Int[Tensor, " some"]:
        """Where the raw parameters of these names are; names that a config lacks have none."""
        numbers = torch.zeros(self.n_models, self.size // self.n_models)
        numbers[:, places_of(names, self.config, self.language)] = 1
        return self.flat(numbers).nonzero().flatten()

    def views(self, flat: Flat) -> dict[str, Tensor]:
        """Cut a vector into blocks, without a copy."""
        pieces = torch.split(flat, [places.numel() for places in self.places.values()])
        return {
            name: piece.view(places.shape)
            for (name, places), piece in zip(self.places.items(), pieces, strict=True)
        }
