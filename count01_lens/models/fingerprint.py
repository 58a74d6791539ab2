"""What a model is, apart from what is attached to it: its fingerprint, and an exact copy.

Fingerprints are equal only if weights, config and modules are. What was computed of a model carries
its fingerprint, which is compared wherever two things have to be of the same model.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from count01_lens.common.fingerprints import hash_of
from count01_lens.common.remembered import Remembered
from count01_lens.common.types import HookedTransformer
from count01_lens.models.lens import (
    beside_fields,
    fields_of,
    has_bridges,
    is_own_hook,
    make_model,
    named_modules,
    state_of,
    wrapped,
)
from count01_lens.models.stored import Model, StoredModel
from count01_lens.models.unpacking import INERT

# Fields of a config that do not change what a model computes: where it came from and where it is,
# how it was initialised, and which of its hooks are switched on.
_INERT = {
    "checkpoint_index", "checkpoint_label_type", "checkpoint_value", "default_prepend_bos",
    "device", "dtype", "from_checkpoint", "init_mode", "init_weights", "initializer_range",
    "model_name", "n_devices", "n_params", "seed", "tokenizer_name", "tokenizer_prepends_bos",
    "trust_remote_code", "use_attn_in", "use_attn_result", "use_hook_mlp_in", "use_hook_tokens",
    "use_split_qkv_input",
}  # fmt: skip


def fingerprint(model: Model) -> str:
    """Hash all that a model is, but for its precision, its device and the hooks attached to it.

    Weights are read as float64, which all of them can be without rounding: `model.double()` is
    still the same model. So is one that another version of TransformerLens makes of its checkpoint.
    """
    if isinstance(model, StoredModel):  # nobody can have put anything into it
        return hash_of([*_fields(vars(model.cfg)), *_tensors(model.state_dict())])
    return hash_of(_parts(model))


def overridden_methods(module: torch.nn.Module) -> list[str]:
    """Methods of a module that were replaced on the object itself, such as its `forward`."""
    kind = type(module)
    return sorted(
        name
        for name, value in vars(module).items()
        if callable(value) and callable(getattr(kind, name, None))
    )


def hooked_modules(model: HookedTransformer) -> list[str]:
    """Names of the modules that hooks are attached to, TransformerLens's or plain torch's."""
    if _global_forward_hooks or _global_forward_pre_hooks:
        return ["every module there is"]
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return [
        name or "the model"
        for name, module in named_modules(model)
        if any(not is_own_hook(hook) for kind in kinds for hook in getattr(module, kind).values())
    ]


def exact_copy(model: HookedTransformer) -> HookedTransformer:
    """Copy a model without the hooks attached to it, in float64, in which rounding is no matter."""
    # What is in here is taken for the copy: hooks may be of things that cannot be copied.
    instead: dict[int, Any] = {id(model.tokenizer): model.tokenizer}
    for module in model.modules():
        for name, value in vars(module).items():
            about_hooks = name.endswith("hooks") or "_hooks_" in name or name == "ctx"
            if about_hooks and isinstance(value, dict | list):
                instead[id(value)] = type(value)()
            elif isinstance(value, Tensor) and not value.is_leaf:
                instead[id(value)] = None  # left by an earlier pass
    plain = copy.deepcopy(model, instead)
    torch.nn.Module.to(plain, "cpu", torch.float64)  # TransformerLens's own `to` prints a line
    for module in plain.modules():
        if hasattr(module, "cfg"):
            module.cfg.dtype = torch.float64  # norms go by it
    return plain


def _parts(model: HookedTransformer) -> Iterator[str | bytes]:
    """What a checkpoint of the model would hold, and all that is not as it would be made of that.

    What no checkpoint can hold is taken as it is, module by module.
    """
    try:
        fields = fields_of(model)
        usual = _USUAL.recall(tuple(_fields(fields)), lambda: frozenset(_as_made(fields)))
        state = state_of(model)
    except Exception:  # whatever a library raises that cannot make such a model
        yield from _lines(model)
        yield from _tensors(model.state_dict())
        return
    yield from sorted(usual.symmetric_difference(_lines(model)))
    yield from _fields(fields)
    yield from _tensors(state)


_USUAL: Remembered[frozenset[str]] = Remembered(most=100)


def _as_made(fields: Mapping[str, Any]) -> Iterator[str]:
    """Describe the modules of a model as its fields alone decide them."""
    # Bridges have buffers that are not stored, and so have to be looked at.
    with torch.device("cpu" if has_bridges() else "meta"):
        yield from _lines(make_model({**fields, **INERT, "init_weights": False}, None, False))


def _lines(model: HookedTransformer) -> Iterator[str]:
    """Describe the modules of a model, and what configs say, each in a line."""
    for name, module in model.named_modules():
        yield f"{name}: {_line(module)} {_settings(module) if name else ''}"
        if getattr(module, "cfg", model.cfg) is not model.cfg:  # most share the model's
            yield from (f"{name}: {line}" for line in _fields(beside_fields(module.cfg)))
    yield from _fields(beside_fields(model.cfg))
    beside = wrapped(model)
    if beside is not None:
        yield f"wrapped: {_line(beside)} {_settings(beside)}"


def _line(module: torch.nn.Module) -> str:
    """Describe a module: its type, methods that were replaced, and buffers that nobody stores."""
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    hidden = {
        name: hash_of(_tensors({name: buffer}))
        for name, buffer in module._buffers.items()
        if name in module._non_persistent_buffers_set and buffer is not None
    }
    return f"{kind} {overridden_methods(module)} {hidden or ''}"


def _tensors(state: Mapping[str, Tensor]) -> Iterator[str | bytes]:
    for name, tensor in sorted(state.items()):
        yield f"{name} {list(tensor.shape)}"
        yield tensor.detach().to("cpu", torch.float64).contiguous().numpy().tobytes()


def _fields(cfg: Mapping[str, Any]) -> Iterator[str]:
    for field, value in sorted(cfg.items()):
        if field not in _INERT:
            yield f"{field} = {_plain(value)!r}"


def code_of(model: HookedTransformer) -> int:
    """Tell classes of modules apart from what they were before somebody replaced a method.

    For this process only: a function is known by its identity.
    """
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    methods = ((kind, name, id(value)) for kind in kinds for name, value in vars(kind).items())
    return hash(frozenset(methods))


def _settings(module: torch.nn.Module) -> list[tuple[str, object]]:
    """Plain values that a module goes by, such as the scale of attention, its kind or direction."""
    return sorted(
        (name, _plain(value))
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str) and name not in _PASSING
    )


def _plain(value: Any) -> Any:
    """NumPy's numbers are written otherwise, and are the same."""
    return value.item() if hasattr(value, "item") else value


# What torch and TransformerLens note while a model runs.
_PASSING = {
    "training", "_is_full_backward_hook", "_ntk_alpha_cached", "_capture_hooks_wired",
    "_current_batch_size", "_fired_hook_out", "_start_at_layer_idx", "_stop_at_layer_idx",
    "_suppress_next_hook_in",
}  # fmt: skip
