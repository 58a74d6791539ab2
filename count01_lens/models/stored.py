"""Models as they are stored: cfg, weights and counting task, without TransformerLens.

To import TransformerLens takes several times as long as what most commands compute. What follows
from a model's tables over counts needs none of it: a checkpoint holds nothing but what its cfg and
its weights describe, no hooks and no changed modules, so that these two say what the model
computes. A `StoredModel` is one of which that is certain; whoever needs hooks asks for `.hooked()`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.bundle import Bundle
from count01_lens.common.types import HookedTransformer
from count01_lens.models.fields import DTYPES, PLAIN, SIZES, completed
from count01_lens.models.lens import attn_scale
from count01_lens.models.unpacking import DEFAULT_DTYPES, hooked_from, task_in
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.places import COUNT01

# Products of four weights, and sums of them, are then numbers in float64, whatever is computed.
_LARGEST_WEIGHT = 1e50


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A plain model over counts as a file has it: one causal layer of attention, no positions.

    What it has in common with a HookedTransformer has the same name. It does not change.

    Attributes:
        bundle: what the file holds.
        cfg: the fields of its HookedTransformerConfig.
        counting_task: what its tokenizer is of; None for Count01 with the paper's data.
    """

    bundle: Bundle
    cfg: SimpleNamespace
    counting_task: CountingTask | None

    def hooked(self) -> HookedTransformer:
        """Return the HookedTransformer, built when it is asked for the first time."""
        return self._hooked

    @cached_property
    def _hooked(self) -> HookedTransformer:
        return hooked_from(self.bundle)

    def state_dict(self) -> Mapping[str, Tensor]:
        """Return parameters and buffers by name."""
        return self.bundle.tensors

    @property
    def attn_scale(self) -> float:
        """What attention scores are divided by."""
        return float(self.cfg.attn_scale) if self.cfg.use_attn_scale else 1.0

    @property
    def W_E(self) -> Float[Tensor, "token d_model"]:
        """The embedding."""
        return self.bundle.tensors["embed.W_E"]

    @property
    def W_U(self) -> Float[Tensor, "d_model token"]:
        """The unembedding."""
        return self.bundle.tensors["unembed.W_U"]

    @property
    def W_pos(self) -> Float[Tensor, "position d_model"]:
        """The embedding of positions, which are none: zeros."""
        return self.bundle.tensors["pos_embed.W_pos"]


Model: TypeAlias = HookedTransformer | StoredModel


def hooked(model: Model) -> HookedTransformer:
    """Return a model as a HookedTransformer, for what needs its hooks or its tokenizer."""
    return model.hooked() if isinstance(model, StoredModel) else model


def attn_scale_of(model: Model) -> float:
    """What attention scores of the first layer are divided by."""
    if isinstance(model, StoredModel):
        return model.attn_scale
    return attn_scale(model)


def as_stored(bundle: Bundle) -> StoredModel | None:
    """Return what a bundle holds if it is without any doubt a plain model over counts, else None.

    Every field of cfg has to be there with its usual value, every tensor with its name, shape,
    dtype and values in range. Of anything else TransformerLens has to say what it is.
    """
    cfg = bundle.about.get("hooked_transformer")
    if not isinstance(cfg, dict) or not _is_plain(cfg) or not _fits(cfg, bundle.tensors):
        return None
    if not isinstance(bundle.about.get("frozen_parameters", []), list):
        return None
    try:
        task = task_in(bundle.about, cfg["d_vocab"])
    except ValueError:
        return None
    if task is None and not (
        bundle.about.get("reads_count01") is True and cfg["d_vocab"] == COUNT01.d_vocab
    ):
        return None
    fields = SimpleNamespace(**{**cfg, "dtype": DTYPES[cfg["dtype"]]})
    return StoredModel(bundle, fields, None if isinstance(task, Count01) else task)


def _is_plain(cfg: Mapping[str, Any]) -> bool:
    """Tell whether a cfg has exactly the fields and values of a plain model over counts."""
    sizes = {name: cfg.get(name) for name in SIZES}
    if not all(type(size) is int and size > 0 for size in sizes.values()):
        return False
    if not isinstance(cfg.get("dtype"), str) or cfg["dtype"] not in DTYPES:
        return False
    scaled = cfg.get("use_attn_scale") is True
    expected = completed({**sizes, "dtype": cfg["dtype"], "use_attn_scale": scaled}, PLAIN)
    # 1, 1.0 and True are equal, and not the same to TransformerLens.
    return cfg.keys() == expected.keys() and all(
        type(cfg[name]) is type(value) and cfg[name] == value for name, value in expected.items()
    )


def _fits(cfg: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    """Tell whether tensors are those of a plain model: names, shapes, dtypes, and values."""
    d_model, heads, d_head, d_vocab, n_ctx = (cfg[name] for name in SIZES)
    attention = {
        **dict.fromkeys(("W_Q", "W_K", "W_V"), (heads, d_model, d_head)),
        **dict.fromkeys(("b_Q", "b_K", "b_V"), (heads, d_head)),
        "W_O": (heads, d_head, d_model),
        "b_O": (d_model,),
        "IGNORE": (),
        "mask": (0, 0),
    }
    expected = {
        "embed.W_E": (d_vocab, d_model),
        "pos_embed.W_pos": (n_ctx, d_model),
        **{f"blocks.0.attn.{name}": shape for name, shape in attention.items()},
        "unembed.W_U": (d_model, d_vocab),
        "unembed.b_U": (d_vocab,),
    }
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != expected:
        return False
    weights = dict(tensors)
    ignore, mask = (weights.pop(f"blocks.0.attn.{name}") for name in ("IGNORE", "mask"))
    if ignore.dtype not in DEFAULT_DTYPES or mask.dtype != torch.bool:
        return False
    if any(weight.dtype != DTYPES[cfg["dtype"]] for weight in weights.values()):
        return False
    if ignore.item() != -math.inf or bool(weights["pos_embed.W_pos"].any()):
        return False
    # A maximum of what is not a number is not a number, and not below anything.
    return all(float(weight.abs().max()) <= _LARGEST_WEIGHT for weight in weights.values())
