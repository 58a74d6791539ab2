"""Native bridges of TransformerLens 4, made of and written as what a HookedTransformer would be.

A model is described by the fields of a HookedTransformerConfig and by a HookedTransformer's
state_dict; checkpoints hold these two. Here they become a TransformerBridge, and back again without
a rounding, so that a checkpoint is the same file for both versions of TransformerLens.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from count01_lens.models.fields import DEFAULTS, completed

# TransformerLens 4 divides attention scores by √d_head also where it is told not to, and refuses
# to divide by one. Here it divides by a half, and queries are half as large: exact in binary.
UNSCALED = 0.5
_MEANT = {
    "d_model", "n_heads", "d_head", "d_vocab", "n_ctx", "n_layers", "d_mlp", "d_vocab_out",
    "act_fn", "attn_only", "normalization_type", "n_key_value_heads", "attn_scores_soft_cap",
    "output_logits_soft_cap", "final_rms", "eps", "attention_dir", "use_attn_scale", "attn_scale",
    "dtype",
}  # fmt: skip
# Fields that say where a model comes from and is, and which optional hooks are switched on.
_NOTED = {
    "checkpoint_index", "checkpoint_label_type", "checkpoint_value", "default_prepend_bos",
    "device", "from_checkpoint", "init_mode", "init_weights", "initializer_range", "model_name",
    "n_devices", "n_params", "seed", "tokenizer_name", "tokenizer_prepends_bos",
    "trust_remote_code",
}  # fmt: skip
_SWITCHES = {
    "use_attn_in", "use_attn_result", "use_hook_mlp_in", "use_hook_tokens", "use_split_qkv_input",
}  # fmt: skip
_ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
_NORMS = (None, "LN", "LNPre", "RMS", "RMSPre")


# Names in a state_dict of a bridge, what a HookedTransformer calls them, and how their axes stand.
_NAMES: tuple[tuple[str, str, str], ...] = (
    ("embed.weight", "embed.W_E", ""),
    ("pos_embed.weight", "pos_embed.W_pos", ""),
    ("unembed.weight", "unembed.W_U", "write read -> read write"),
    ("unembed.bias", "unembed.b_U", ""),
    ("attn.q.weight", "attn.W_Q", "(head d) r -> head r d"),
    ("attn.q.bias", "attn.b_Q", "(head d) -> head d"),
    ("attn.k.weight", "attn.W_K", "(head d) r -> head r d"),
    ("attn.k.bias", "attn.b_K", "(head d) -> head d"),
    ("attn.v.weight", "attn.W_V", "(head d) r -> head r d"),
    ("attn.v.bias", "attn.b_V", "(head d) -> head d"),
    ("attn.o.weight", "attn.W_O", "r (head d) -> head d r"),
    ("attn.o.bias", "attn.b_O", ""),
    ("mlp.in.weight", "mlp.W_in", "write read -> read write"),
    ("mlp.in.bias", "mlp.b_in", ""),
    ("mlp.out.weight", "mlp.W_out", "write read -> read write"),
    ("mlp.out.bias", "mlp.b_out", ""),
    ("ln1.weight", "ln1.w", ""),
    ("ln1.bias", "ln1.b", ""),
    ("ln2.weight", "ln2.w", ""),
    ("ln2.bias", "ln2.b", ""),
    ("ln_final.weight", "ln_final.w", ""),
    ("ln_final.bias", "ln_final.b", ""),
)


def make_bridge(
    given: Mapping[str, Any], tokenizer: Any = None, move_to_device: bool = True
) -> Any:
    """Make the bridge that fields of a HookedTransformerConfig describe.

    Raises:
        ValueError: TransformerLens 4 would make another model of them.
    """
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    fields = completed(given)
    _check_meant(fields)
    meant = {name: fields[name] for name in _MEANT}
    meant["act_fn"] = meant["act_fn"] or "relu"
    if not fields["use_attn_scale"] or (fields["attn_scale"] == 1.0 and fields["d_head"] > 1):
        meant |= {"use_attn_scale": True, "attn_scale": UNSCALED}
    cfg = TransformerBridgeConfig(
        **meant,
        **{name: fields[name] for name in ("init_weights", "init_mode", "initializer_range")},
        seed=fields["seed"],
    )
    # Weights that are not initialised are drawn by torch nevertheless.
    quiet = not fields["init_weights"] or fields["seed"] is not None
    with torch.random.fork_rng(devices=[], enabled=quiet):
        device = fields["device"] if move_to_device else None
        bridge = TransformerBridge.boot_native(cfg, device=device, dtype=fields["dtype"])
    # Given to `boot_native`, it would be asked to encode an "a", which not every language has.
    bridge.tokenizer = tokenizer
    for name in _NOTED:
        setattr(bridge.cfg, name, fields[name])
    if tokenizer is not None:  # one of a counting task, which leaves '[BOS]' to the model
        bridge.cfg.tokenizer_prepends_bos = False
    return bridge


def fields_of(bridge: Any) -> dict[str, Any]:
    """Describe a native bridge by the fields of a HookedTransformerConfig.

    Raises:
        ValueError: no HookedTransformer, and so no checkpoint, is like it.
    """
    _check_native(bridge)
    cfg = bridge.cfg.to_dict()
    given = {name: cfg[name] for name in (*_MEANT, *_NOTED, *DEFAULTS) if name in cfg}
    given |= dict.fromkeys(_SWITCHES, False)
    scales = {attention_of(bridge, layer).scale for layer in range(cfg["n_layers"])}
    if len(scales) != 1:
        raise ValueError(f"model: expected one scale of attention scores, got {sorted(scales)}")
    scale = float(scales.pop())
    unscaled = scale == UNSCALED
    given |= {"use_attn_scale": not unscaled, "attn_scale": -1.0 if unscaled else scale}
    fields = completed(given)
    _check_meant(fields)
    return fields


def state_of(bridge: Any) -> dict[str, Tensor]:
    """Write the weights of a native bridge as the state_dict of a HookedTransformer."""
    _check_native(bridge)
    state: dict[str, Tensor] = {}
    for name, tensor in bridge.state_dict().items():
        known, form = _known_as(name, bridge.cfg)
        sizes = {"d": bridge.cfg.d_head} if "head" in form else {}
        state[known] = (rearrange(tensor, form, **sizes) if form else tensor).contiguous()
    for layer in range(bridge.cfg.n_layers):
        attention = f"blocks.{layer}.attn."
        if attention_of(bridge, layer).scale == UNSCALED:
            for name in ("W_Q", "b_Q"):
                state[attention + name] = state[attention + name] / UNSCALED
        state[attention + "mask"] = torch.empty((0, 0), dtype=torch.bool)
        state[attention + "IGNORE"] = torch.tensor(-math.inf)
    return state


def load_state(bridge: Any, state: Mapping[str, Tensor]) -> None:
    """Take the weights of a HookedTransformer, all of them."""
    bridge.load_state_dict(named_as_bridge(bridge, state))


def named_as_bridge(bridge: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Write a HookedTransformer's state_dict as that of a native bridge; it is differentiable."""
    found = {}
    for name in bridge.state_dict():
        known, form = _known_as(name, bridge.cfg)
        tensor = state[known]
        layer = name.split(".")[1]
        if ".attn.q." in name and attention_of(bridge, int(layer)).scale == UNSCALED:
            tensor = tensor * UNSCALED
        back = " -> ".join(reversed(form.split(" -> ")))
        found[name] = rearrange(tensor, back) if form else tensor
    return found


def attention_of(bridge: Any, layer: int) -> Any:
    """The module that attends in a layer of a native bridge."""
    return bridge.blocks[layer].attn.original_component


def _known_as(name: str, cfg: Any) -> tuple[str, str]:
    """What a HookedTransformer calls a tensor of a bridge, and how axes go from there to here."""
    for suffix, known, form in _NAMES:
        if name == suffix or name.endswith("." + suffix):
            if cfg.n_key_value_heads is not None and known[5:] in ("W_K", "b_K", "W_V", "b_V"):
                known = known.replace("attn.", "attn._")
            return name[: -len(suffix)] + known, form
    raise ValueError(f"model: expected the weights of a HookedTransformer, got {name}")


def is_native(bridge: Any) -> bool:
    """Whether TransformerLens itself computes what a bridge leads to."""
    from transformer_lens.model_bridge.sources.native import NativeModel

    return type(bridge.original_model) is NativeModel


def _check_native(bridge: Any) -> None:
    if not is_native(bridge):
        raise ValueError(
            "model: expected one that TransformerBridge.boot_native makes, got a bridge to a "
            f"{type(bridge.original_model).__name__}, which a checkpoint does not hold; save it by "
            "other means"
        )


def _check_meant(fields: Mapping[str, Any]) -> None:
    """Raise if a bridge would not do what a field says."""
    unknown = sorted(set(fields) - set(DEFAULTS) - _MEANT - _NOTED - _SWITCHES)
    if unknown:
        raise ValueError(f"expected the fields of a HookedTransformerConfig, got {unknown}")
    for name in sorted(set(DEFAULTS) - _MEANT - _NOTED - _SWITCHES):
        if fields[name] != DEFAULTS[name]:
            raise _not_in_4(name, fields[name])
    if not fields["attn_only"] and fields["act_fn"] not in _ACTIVATIONS:
        raise _not_in_4("act_fn", fields["act_fn"])
    if fields["normalization_type"] not in _NORMS:
        raise _not_in_4("normalization_type", fields["normalization_type"])
    if fields["normalization_type"] is None and fields["final_rms"]:
        raise _not_in_4("final_rms", True)
    if fields["use_attn_scale"] and fields["attn_scale"] == UNSCALED:
        raise _not_in_4("attn_scale", UNSCALED)


def _not_in_4(name: str, value: Any) -> ValueError:
    return ValueError(
        f"{name} = {value!r}: expected what the versions 3 and 4 of TransformerLens make the same "
        "model of, got what only one of them does; use TransformerLens 3 for HookedTransformers, "
        "and TransformerBridge.boot_native itself for bridges"
    )


def parameters_of(bridge: Any) -> dict[str, torch.nn.Parameter]:
    """Parameters of a native bridge by the names of a HookedTransformer."""
    state = bridge.state_dict(keep_vars=True).items()
    return {
        _known_as(name, bridge.cfg)[0]: tensor
        for name, tensor in state
        if isinstance(tensor, torch.nn.Parameter)
    }


def known_fields() -> set[str]:
    """Names of the fields that can describe a model."""
    return set(DEFAULTS) | _MEANT | _NOTED | _SWITCHES


def own_types() -> set[type]:
    """Types of the modules of which a native bridge over counts is made."""
    from transformer_lens.model_bridge import generalized_components as components
    from transformer_lens.model_bridge.sources.native import NativeAttention, NativeBlock

    parts = {
        components.AttentionBridge, components.BlockBridge, components.EmbeddingBridge,
        components.LinearBridge, components.PosEmbedBridge, components.UnembeddingBridge,
        components.base.GeneralizedComponent,
    }  # fmt: skip
    wrapped = {NativeBlock, NativeAttention, torch.nn.Linear, torch.nn.Embedding}
    return parts | wrapped | {torch.nn.ModuleList}
