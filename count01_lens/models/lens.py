"""What the library needs of TransformerLens, the same in its versions 3 and 4.

A model is a `HookedTransformer` in version 3; version 4 has none, and there it is a
`TransformerBridge`. Whatever differs between the two is asked here (and in `models.bridges`, which
makes bridges): nothing else imports TransformerLens.

Two things in version 4 would give wrong numbers in silence. Edits of `hook_attn_scores` do
nothing: `scores_act` says so. A hook of torch itself at `hook_z` sees heads flattened, so that an
index means something else: hooks are attached by `HookPoint.add_hook` (`models.hooks`).
"""

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_default_device
from count01_lens.models import bridges


@cache
def has_bridges() -> bool:
    """Whether models are bridges: since version 4, where there are no HookedTransformers."""
    return int(version("transformer-lens").split(".")[0]) >= 4


def kind_of_models() -> str:
    """The name of the class of models."""
    return "TransformerBridge" if has_bridges() else "HookedTransformer"


@cache
def model_class() -> type:
    """The class of models."""
    if has_bridges():
        from transformer_lens.model_bridge import TransformerBridge

        return TransformerBridge  # type: ignore[no-any-return]
    from transformer_lens import HookedTransformer

    return HookedTransformer  # type: ignore[no-any-return]


def is_model(model: Any) -> bool:
    """Whether something is a model that can be measured."""
    return isinstance(model, model_class())


def require_model(model: Any) -> None:
    """Raise unless something is a model."""
    if is_model(model):
        check_default_device()
        return
    got, remedy = type(model).__name__, ""
    if got == "TransformerBridge":
        remedy = "; bridges are measured with TransformerLens 4: pip install 'transformer-lens>=4'"
    raise TypeError(f"model: expected a {kind_of_models()}, got {got}{remedy}")


def make_model(
    fields: Mapping[str, Any], tokenizer: Any = None, move_to_device: bool = True
) -> HookedTransformer:
    """Make the model that fields of a HookedTransformerConfig describe."""
    if has_bridges():
        return bridges.make_bridge(fields, tokenizer, move_to_device)
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        return HookedTransformer(
            HookedTransformerConfig(**fields), tokenizer=tokenizer, move_to_device=move_to_device
        )


def fields_of(model: HookedTransformer) -> dict[str, Any]:
    """Fields of a HookedTransformerConfig that describe a model, as checkpoints hold them."""
    return bridges.fields_of(model) if has_bridges() else dict(model.cfg.to_dict())


def state_of(model: HookedTransformer) -> Mapping[str, Tensor]:
    """Weights and buffers of a model by the names of a HookedTransformer, as checkpoints do."""
    return bridges.state_of(model) if has_bridges() else model.state_dict()


def load_state(
    model: HookedTransformer, state: Mapping[str, Tensor], *, strict: bool = True
) -> None:
    """Take weights by the names of a HookedTransformer; buffers may be missing if not strict."""
    if has_bridges():
        bridges.load_state(model, state)
    else:
        model.load_state_dict(state, strict=strict)


def freeze(model: HookedTransformer, names: list[str]) -> None:
    """Let exactly the parameters of these names, of a HookedTransformer, have no gradients."""
    for name, parameter in parameters_of(model).items():
        parameter.requires_grad_(name not in names)


def parameters_of(model: HookedTransformer) -> dict[str, torch.nn.Parameter]:
    """Parameters of a model by the names of a HookedTransformer."""
    return bridges.parameters_of(model) if has_bridges() else dict(model.named_parameters())


def attn_scale(model: HookedTransformer, layer: int = 0) -> float:
    """What attention scores of a layer are divided by, with weights as in `state_of`."""
    if not has_bridges():
        return float(model.blocks[layer].attn.attn_scale)
    scale = float(bridges.attention_of(model, layer).scale)
    return 1.0 if scale == bridges.UNSCALED else scale


def divided_by(model: HookedTransformer, layer: int = 0) -> float:
    """What a layer divides the products of its own queries and keys by."""
    if has_bridges():
        return float(bridges.attention_of(model, layer).scale)
    return attn_scale(model, layer)


def output_bias(model: HookedTransformer, layer: int) -> Tensor:
    """What attention of a layer writes besides its heads: b_O, or zeros where there is none."""
    attention = model.blocks[layer].attn
    bias: Tensor | None = attention.b_O
    return attention.W_O.new_zeros(attention.W_O.shape[-1]) if bias is None else bias


def rounds_to_float32(model: HookedTransformer) -> bool:
    """Whether a model in float64 computes in float32 here and there.

    TransformerLens has ALiBi's slopes in it; norms of native bridges are computed in it, but for
    the usual layer norm.
    """
    cfg = model.cfg
    if not has_bridges():
        return bool(cfg.positional_embedding_type == "alibi")
    return cfg.normalization_type not in (None, "LN") or bool(cfg.final_rms)


def attends_everywhere(model: HookedTransformer, layer: int) -> bool:
    """Whether a layer sees whole prompts, and not a window of them."""
    attention = model.blocks[layer].attn
    return has_bridges() or bool(attention.attn_type == "global")


def scores_act() -> bool:
    """Whether edits at `hook_attn_scores` do anything."""
    return not has_bridges()


def module_at(model: HookedTransformer, name: str) -> Any:
    """A module by its name in TransformerLens, such as "blocks.0.ln1"."""
    found: Any = model
    for part in name.split("."):
        found = found[int(part)] if part.isdigit() else getattr(found, part)
    return found


def named_modules(model: HookedTransformer) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules of a model, those of bridges under the names that users know them by."""
    if not has_bridges():
        yield from model.named_modules()
        return
    known = {id(point): name for name, point in model.hook_dict.items()}
    for name, module in model.named_modules():
        yield known.get(id(module), name.replace("._original_component", "")), module


def run_block(
    model: HookedTransformer, layer: int, stream: Tensor, attention_mask: Tensor | None = None
) -> Tensor:
    """Run one block of a model on a residual stream."""
    if has_bridges():
        given = {} if attention_mask is None else {"attention_mask": attention_mask}
        found = model.blocks[layer](stream, **given)
        after: Tensor = found[0] if isinstance(found, tuple) else found
    else:
        after = model(
            stream, start_at_layer=layer, stop_at_layer=layer + 1, attention_mask=attention_mask
        )
    return after


def has_parallel_mlp(model: HookedTransformer) -> bool:
    """Whether MLPs read what attention reads; native bridges have a field for it, and ignore it."""
    if has_bridges() and bridges.is_native(model):
        return False
    return bool(model.cfg.parallel_attn_mlp)


def attention_outputs(layer: int) -> tuple[str, ...]:
    """Name hook points of what attention writes.

    Bridges have two, of which one or the other may have something else in it already: a norm that
    follows attention, or the residual stream.
    """
    written = f"blocks.{layer}.hook_attn_out"
    return (f"blocks.{layer}.attn.hook_out", written) if has_bridges() else (written,)


def shows_masks(model: HookedTransformer) -> bool:
    """Whether hooks at attention, told of no mask, know which keys are hidden but for padding.

    Scores show it. Native bridges hide what comes later, and nothing else.
    """
    return scores_act() or bridges.is_native(model)


def require_steady(model: HookedTransformer) -> None:
    """Raise if every pass of a model would be another one."""
    if has_bridges() and not bridges.is_native(model) and model.original_model.training:
        raise ValueError(
            "model: expected a bridge in evaluation mode, got one in training mode, in which "
            "dropout makes every pass another one; call model.eval()"
        )


def beside_fields(cfg: Any) -> dict[str, Any]:
    """What a config says that `fields_of` does not tell."""
    said: dict[str, Any] = cfg.to_dict()
    return {n: v for n, v in said.items() if n not in known_fields()} if has_bridges() else said


def wrapped(model: HookedTransformer) -> torch.nn.Module | None:
    """A module that computes, and is not among the modules of a model: bridges lead to one."""
    found: torch.nn.Module | None = model.original_model if has_bridges() else None
    return found


def run_mlp(block: Any, stream: Tensor) -> Tensor:
    """Run the MLP of a block."""
    added: Tensor = block.mlp(stream) if has_bridges() else block.apply_mlp(stream)
    return added


def is_hook_point(model: HookedTransformer, name: str, module: Any) -> bool:
    """Whether a module is the hook point of a name at which hooks are attached to a model."""
    from transformer_lens.hook_points import HookPoint

    return type(module) is HookPoint and model.hook_dict.get(name) is module


def is_own_hook(hook: Any) -> bool:
    """Whether a hook of torch is a part of a model itself: bridges note inputs of norms by some."""
    return has_bridges() and str(getattr(hook, "__module__", "")).startswith(
        "transformer_lens.model_bridge.generalized_components"
    )


@cache
def own_types() -> frozenset[type]:
    """Types of the modules of which TransformerLens makes a model over counts."""
    from transformer_lens.hook_points import HookPoint
    from transformer_lens.utilities import TypedModuleList

    everywhere = {model_class(), TypedModuleList, HookPoint, torch.nn.Identity}
    if has_bridges():
        return frozenset(everywhere | bridges.own_types())
    from transformer_lens import components

    return frozenset(
        everywhere
        | {components.TransformerBlock, components.Attention}
        | {components.Embed, components.PosEmbed, components.Unembed}
    )


def norms_after_attention() -> frozenset[str]:
    """Architectures in which a block's first norm stands after its attention."""
    from transformer_lens.utilities.architectures import POST_NORM_ARCHITECTURES

    return frozenset(POST_NORM_ARCHITECTURES)


def known_fields() -> set[str]:
    """Names of the fields that can describe a model."""
    if has_bridges():
        return bridges.known_fields()
    from transformer_lens import HookedTransformerConfig

    return set(HookedTransformerConfig.__dataclass_fields__)


class BlockInput(NamedTuple):
    """What a block of a model is called with.

    Attributes:
        stream: the residual stream before it.
        cache: keys and values of earlier tokens, with `past_keys`, in version 3.
        padding: which keys are tokens (1) and which are not (0), in version 4; in version 3 scores
            have it.
    """

    stream: Tensor
    cache: Any = None
    padding: Tensor | None = None

    @classmethod
    def of(
        cls, block: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "BlockInput":
        """Find it among the arguments of a block."""
        if has_bridges():
            stream = args[0] if args else kwargs["hidden_states"]
            return cls(stream, padding=kwargs.get("attention_mask"))
        given = signature(block.forward).bind(*args, **kwargs).arguments
        return cls(given["resid_pre"], given.get("past_kv_cache_entry"))
