"""A stack of models as a matrix with one row of raw parameters per model."""

import math
from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.counts.closed_form import CountForm, scores_and_values
from count01_lens.models.config import ModelConfig
from count01_lens.models.parameters import (
    Raw,
    raw_shapes,
    read_by_attention,
    transformer_lens_parameters,
)
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.places import COUNT01

Rows = Float[Tensor, "model parameter"]


def to_rows(raws: Sequence[Raw]) -> Rows:
    """Write the raw parameters of each model as one row."""
    return torch.stack([torch.cat([value.flatten() for value in raw.values()]) for raw in raws])


def from_rows(rows: Rows, config: ModelConfig, language: CountingLanguage = COUNT01) -> Raw:
    """Cut rows into raw parameters with a leading `model` axis; differentiable."""
    shapes = raw_shapes(config, language.d_vocab)
    pieces = torch.split(rows, [math.prod(shape) for shape in shapes.values()], dim=1)
    return {
        name: piece.reshape(len(rows), *shape)
        for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


def places_of(
    names: Collection[str], config: ModelConfig, language: CountingLanguage = COUNT01
) -> Int[Tensor, " parameter"]:
    """Where in a row the parameters of these names are; names that a config lacks have none."""
    sizes = {name: math.prod(shape) for name, shape in raw_shapes(config, language.d_vocab).items()}
    named = torch.tensor([name in names for name in sizes])
    return named.repeat_interleave(torch.tensor(list(sizes.values()))).nonzero().squeeze(1)


def raw_of(
    rows: Rows, index: int, config: ModelConfig, language: CountingLanguage = COUNT01
) -> Raw:
    """Take one model's raw parameters out of the stack."""
    one = from_rows(rows[index : index + 1], config, language)
    return {name: value[0] for name, value in one.items()}


def count_form_of(
    rows: Rows, config: ModelConfig, language: CountingLanguage = COUNT01
) -> CountForm:
    """Make the token tables of the whole stack; differentiable."""
    raw = from_rows(rows, config, language)
    if config.output == "residual":
        return CountForm.from_parameters(
            transformer_lens_parameters(raw, config), config.attn_scale, language
        )
    # The same without the two lanes, which are half zeros: a third of the time of a training step.
    scores, values = scores_and_values(
        read_by_attention(raw, config),
        [raw[f"W_{letter}"] for letter in "QKV"],
        [raw[f"b_{letter}"] for letter in "QKV"] if config.qkv_bias else [],
        config.attn_scale,
    )
    bias = raw["b_out"].unsqueeze(1).expand(-1, language.d_vocab, -1)
    return CountForm(scores, values, raw["W_out"], bias, language)
