"""A bundle becomes a HookedTransformer: what is in it is held against what its cfg describes."""

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any

import torch
from torch import Tensor

from count01_lens.common.bundle import Bundle
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_default_device
from count01_lens.models.fields import DTYPES
from count01_lens.models.lens import freeze, known_fields, load_state, make_model, state_of
from count01_lens.tasks.counting_task import CountingTask

DEFAULT_DTYPES = (*DTYPES.values(), torch.float16, torch.bfloat16)
# Of the fields of cfg, those that would act on more than the model: the random state of the
# process, other devices, a hub. They are stored, and not acted on when loading.
INERT = {"seed": None, "device": "cpu", "n_devices": 1, "tokenizer_name": None}


def hooked_from(bundle: Bundle) -> HookedTransformer:
    """Make the model that a bundle describes, on the CPU.

    Raises:
        ValueError: says what in it does not fit.
    """
    check_default_device()
    cfg = _cfg_from_json(bundle.about.get("hooked_transformer"))
    _check_state(cfg, bundle.tensors)
    frozen = bundle.about.get("frozen_parameters", [])
    if not isinstance(frozen, list):
        raise ValueError(f"frozen_parameters: expected a list, got {shortened(frozen)}")
    model = _make_model(cfg, _tokenizer_of(bundle.about, cfg))
    load_state(model, bundle.tensors)
    try:
        with torch.no_grad():
            model(torch.zeros(1, 1, dtype=torch.long))
    except Exception as error:  # some impossible values of cfg only show when it is run
        raise ValueError(f"cfg: the model made of it does not run ({error})") from error
    for name in ("seed", "tokenizer_name", "init_weights"):
        setattr(model.cfg, name, cfg[name])
    freeze(model, frozen)
    return model


def check_values(state: Mapping[str, Tensor], where: str) -> None:
    """Raise if a tensor has values that are no numbers."""
    for name, tensor in state.items():
        # The attention block's constant buffer IGNORE is -inf by design.
        bad = torch.isnan(tensor) if name.endswith("IGNORE") else ~torch.isfinite(tensor)
        if bool(bad.any()):
            raise ValueError(f"{where}: {name} has {int(bad.sum())} NaN or infinite values")


def _cfg_from_json(cfg: Any) -> dict[str, Any]:
    if not isinstance(cfg, dict):
        raise ValueError(f"expected an object 'hooked_transformer', got {shortened(cfg)}")
    unknown = sorted(set(cfg) - known_fields())
    if unknown or not {"d_model", "n_layers", "dtype", *INERT} <= set(cfg):
        raise ValueError(
            "cfg: expected the fields of HookedTransformerConfig, "
            f"got unknown {shortened(unknown)} or too few"
        )
    if not isinstance(cfg["dtype"], str) or cfg["dtype"] not in DTYPES:
        raise ValueError(f"cfg: expected dtype {list(DTYPES)}, got {shortened(cfg['dtype'])}")
    return {"init_weights": True, **cfg, "dtype": DTYPES[cfg["dtype"]]}


def _check_state(cfg: dict[str, Any], state: Mapping[str, Tensor]) -> None:
    """Hold names, shapes, dtypes and values against what cfg describes, before making it."""
    if not isinstance(cfg["n_layers"], int) or not 0 < cfg["n_layers"] <= len(state):
        raise ValueError(f"cfg: n_layers = {shortened(cfg['n_layers'])} is not usable")
    with torch.device("meta"):
        expected = state_of(_make_model(cfg, None))
    different = sorted(set(expected) ^ set(state))
    if different:
        raise ValueError(f"its tensors do not fit cfg: {', '.join(different[:5])}")
    for name, tensor in state.items():
        # The constant buffer IGNORE takes torch's default dtype of the moment; any of them will do.
        dtypes = DEFAULT_DTYPES if name.endswith("IGNORE") else [expected[name].dtype]
        if tensor.shape != expected[name].shape or tensor.dtype not in dtypes:
            raise ValueError(
                f"{name}: expected {expected[name].dtype} {list(expected[name].shape)}, "
                f"got {tensor.dtype} {list(tensor.shape)}"
            )
    check_values(state, "its tensors")


def task_in(about: Mapping[str, Any], d_vocab: Any) -> CountingTask | None:
    """Return the counting task that is stored with a model of so many tokens, if there is one."""
    if "counting_task" not in about:
        return None
    try:
        task = CountingTask.from_dict(about["counting_task"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"counting_task: {error}") from error
    if task.language.d_vocab != d_vocab:
        expected = f"{d_vocab} tokens, as the model has"
        raise ValueError(f"counting_task: expected {expected}, got {task.language.d_vocab}")
    return task


def _tokenizer_of(about: Mapping[str, Any], cfg: dict[str, Any]) -> Any:
    """Make the tokenizer of a counting task, if the model has one of these."""
    from count01_lens.tasks.tokenizer import counting_tokenizer

    task = task_in(about, cfg.get("d_vocab"))
    if task is None and about.get("reads_count01") is not True:
        return None
    return counting_tokenizer(task)


def _make_model(cfg: dict[str, Any], tokenizer: Any) -> HookedTransformer:
    try:
        inert = {**cfg, **INERT, "init_weights": False}
        return make_model(inert, tokenizer=tokenizer, move_to_device=False)
    except Exception as error:  # whatever a config with impossible values makes the library raise
        raise ValueError(f"cfg: no model can be made of it ({error})") from error
