"""Checkpoints: a file that holds a HookedTransformer, whole or not at all.

It is a bundle (`common.bundle`), so a safetensors file whose tensors are the model's state_dict,
readable without this package. Its JSON has the cfg, and what is known of the model's making.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from count01_lens.common.bundle import Bundle, bundle_bytes, read_bundle
from count01_lens.common.storage import DamagedFileError, remove_temporary_files, write_atomically
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.common.versions import library_versions
from count01_lens.models.build import make_hooked_transformer
from count01_lens.models.fingerprint import fingerprint
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.language import TOKENS

ExampleName = Literal["accurate", "paper"]
KIND, SUFFIX = "checkpoint", ".safetensors"
EXAMPLES = Path(__file__).parents[1] / "data" / "example"
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64)}
_DEFAULT_DTYPES = (*_DTYPES.values(), torch.float16, torch.bfloat16)
# Of the fields of cfg, those that would act on more than the model: the random state of the
# process, other devices, a hub. They are stored, and not acted on when loading.
_INERT = {"seed": None, "device": "cpu", "n_devices": 1, "tokenizer_name": None}


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or not readable by this version."""


def save_checkpoint(
    model: HookedTransformer,
    path: str | os.PathLike[str],
    *,
    info: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model to a file; an old checkpoint there is replaced as a whole.

    Args:
        model: any HookedTransformer in float32 or float64. The counting task of its tokenizer is
            stored with it, if it has one; see `task_of`.
        path: of the file; `.safetensors` is added where it is missing. Directories are made.
        info: what is known of the model, such as seed and recipe; JSON values.

    Returns:
        The path of the file.
    """
    file = checkpoint_file(path)
    about = _about(model, {} if info is None else info)
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    _check_values(state, "model")
    try:
        data = bundle_bytes(Bundle(KIND, about, state))
    except (TypeError, ValueError) as error:
        raise ValueError(f"info and cfg: expected JSON values only ({error})") from error
    if fingerprint(_model_of(Bundle(KIND, about, state))) != fingerprint(model):
        raise ValueError(
            "model: expected one that its cfg and its weights describe, got modules, methods or "
            "settings of modules that were changed, which a checkpoint does not hold; put them "
            "back, or save the model by other means"
        )
    if os.path.lexists(file):
        try:
            read_bundle(file, KIND)
        except DamagedFileError as error:
            raise ValueError(f"{error}; to save here, delete it or choose another path") from error
    file.parent.mkdir(parents=True, exist_ok=True)
    remove_temporary_files(file.parent, of=file.name)
    write_atomically(file, data)
    return file


def load_checkpoint(path: str | os.PathLike[str]) -> HookedTransformer:
    """Read a model from a file, on the CPU, every byte checked.

    Args:
        path: of the file; `.safetensors` may be left out.

    Raises:
        CheckpointError: names the file and what is wrong with it.
    """
    file = checkpoint_file(path)
    bundle = _read(file)
    try:
        return _model_of(bundle)
    except ValueError as error:
        raise CheckpointError(f"{file}: {error}") from error


def checkpoint_info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what is known of a checkpoint: versions, seed, recipe, training summary, cfg."""
    return dict(_read(checkpoint_file(path)).about)


def checkpoint_file(path: str | os.PathLike[str]) -> Path:
    """Return the file that a path means: with its suffix, whether it was given or not."""
    given = Path(path)
    if given.name in ("", ".."):
        raise CheckpointError(f"{given}: expected the path of a file, got that of a directory")
    return given if given.suffix == SUFFIX else given.with_name(given.name + SUFFIX)


def example_model(recipe: ExampleName = "accurate") -> HookedTransformer:
    """Load a trained 16-head model that ships with the package.

    Args:
        recipe: "accurate": trained by `TrainConfig()`, nearly always right; most of its good heads
            answer alone. "paper": trained by `TrainConfig.paper()`, with which the paper's picture
            holds: heads answer together; ties and close calls are often wrong. Each is the most
            typical of twenty seeds (`python -m experiments.tools.choose_examples`).

    Example:
        >>> model = cl.example_model()
        >>> model.generate("0112=", max_new_tokens=2, do_sample=False, verbose=False)
        '0112=4'
    """
    check_choice("recipe", recipe, get_args(ExampleName))
    return load_checkpoint(example_file(recipe))


def example_file(recipe: str) -> Path:
    """Return the file of a model that ships with the package."""
    return EXAMPLES / f"{recipe}{SUFFIX}"


def _about(model: HookedTransformer, info: Mapping[str, Any]) -> dict[str, Any]:
    from transformer_lens import HookedTransformer

    if not isinstance(model, HookedTransformer):
        raise TypeError(f"model: expected a HookedTransformer, got {type(model).__name__}")
    if not isinstance(info, Mapping):
        raise TypeError(f"info: expected a dict of JSON values, got {info!r}")
    cfg = {name: _plain(value) for name, value in model.cfg.to_dict().items()}
    # The dtype of the weights themselves: `model.double()`, for one, does not tell cfg.
    dtypes = sorted({_plain(parameter.dtype) for parameter in model.parameters()})
    if len(dtypes) != 1 or dtypes[0] not in _DTYPES:
        raise ValueError(
            f"model: expected weights of dtype {' or '.join(_DTYPES)}, got {', '.join(dtypes)}; "
            "convert it with model.to(torch.float32)"
        )
    cfg["dtype"] = dtypes[0]
    vocabulary = getattr(model.tokenizer, "vocab", None)
    task = getattr(model.tokenizer, "counting_task", None)
    return {
        "versions": library_versions(),
        "info": dict(info),
        "hooked_transformer": cfg,
        "reads_count01": vocabulary == {text: index for index, text in enumerate(TOKENS)},
        **({} if task is None else {"counting_task": task.to_dict()}),
        "frozen_parameters": [n for n, p in model.named_parameters() if not p.requires_grad],
    }


def _read(file: Path) -> Bundle:
    try:
        bundle = read_bundle(file, KIND)
    except DamagedFileError as error:
        raise CheckpointError(str(error)) from error
    for name in ("info", "versions"):
        if not isinstance(bundle.about.get(name, {}), dict):
            got = shortened(bundle.about[name])
            raise CheckpointError(f"{file}: expected an object {name!r}, got {got}")
    return bundle


def _model_of(bundle: Bundle) -> HookedTransformer:
    cfg = _cfg_from_json(bundle.about.get("hooked_transformer"))
    _check_state(cfg, bundle.tensors)
    frozen = bundle.about.get("frozen_parameters", [])
    if not isinstance(frozen, list):
        raise ValueError(f"frozen_parameters: expected a list, got {shortened(frozen)}")
    model = _make_model(cfg, _tokenizer_of(bundle.about, cfg))
    model.load_state_dict(bundle.tensors)
    try:
        with torch.no_grad():
            model(torch.zeros(1, 1, dtype=torch.long))
    except Exception as error:  # some impossible values of cfg only show when it is run
        raise ValueError(f"cfg: the model made of it does not run ({error})") from error
    for name in ("seed", "tokenizer_name", "init_weights"):
        setattr(model.cfg, name, cfg[name])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    return model


def _check_values(state: Mapping[str, Tensor], where: str) -> None:
    for name, tensor in state.items():
        # The attention block's constant buffer IGNORE is -inf by design.
        bad = torch.isnan(tensor) if name.endswith("IGNORE") else ~torch.isfinite(tensor)
        if bool(bad.any()):
            raise ValueError(f"{where}: {name} has {int(bad.sum())} NaN or infinite values")


def _cfg_from_json(cfg: Any) -> dict[str, Any]:
    from transformer_lens import HookedTransformerConfig

    if not isinstance(cfg, dict):
        raise ValueError(f"expected an object 'hooked_transformer', got {shortened(cfg)}")
    known = HookedTransformerConfig.__dataclass_fields__
    unknown = sorted(set(cfg) - set(known))
    if unknown or not {"d_model", "n_layers", "dtype", *_INERT} <= set(cfg):
        raise ValueError(
            "cfg: expected the fields of HookedTransformerConfig, "
            f"got unknown {shortened(unknown)} or too few"
        )
    if not isinstance(cfg["dtype"], str) or cfg["dtype"] not in _DTYPES:
        raise ValueError(f"cfg: expected dtype {list(_DTYPES)}, got {shortened(cfg['dtype'])}")
    return {"init_weights": True, **cfg, "dtype": _DTYPES[cfg["dtype"]]}


def _check_state(cfg: dict[str, Any], state: Mapping[str, Tensor]) -> None:
    """Hold names, shapes, dtypes and values against what cfg describes, before making it."""
    if not isinstance(cfg["n_layers"], int) or not 0 < cfg["n_layers"] <= len(state):
        raise ValueError(f"cfg: n_layers = {shortened(cfg['n_layers'])} is not usable")
    with torch.device("meta"):
        expected = _make_model(cfg, None).state_dict()
    different = sorted(set(expected) ^ set(state))
    if different:
        raise ValueError(f"its tensors do not fit cfg: {', '.join(different[:5])}")
    for name, tensor in state.items():
        # The constant buffer IGNORE takes torch's default dtype of the moment; any of them will do.
        dtypes = _DEFAULT_DTYPES if name.endswith("IGNORE") else [expected[name].dtype]
        if tensor.shape != expected[name].shape or tensor.dtype not in dtypes:
            raise ValueError(
                f"{name}: expected {expected[name].dtype} {list(expected[name].shape)}, "
                f"got {tensor.dtype} {list(tensor.shape)}"
            )
    _check_values(state, "its tensors")


def _tokenizer_of(about: Mapping[str, Any], cfg: dict[str, Any]) -> Any:
    """Make the tokenizer of a counting task, if the model has one of these."""
    from count01_lens.tasks.tokenizer import counting_tokenizer

    if "counting_task" not in about:
        return counting_tokenizer() if about.get("reads_count01") is True else None
    try:
        task = CountingTask.from_dict(about["counting_task"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"counting_task: {error}") from error
    if task.language.d_vocab != cfg.get("d_vocab"):
        expected = f"{cfg.get('d_vocab')} tokens, as the model has"
        raise ValueError(f"counting_task: expected {expected}, got {task.language.d_vocab}")
    return counting_tokenizer(task)


def _make_model(cfg: dict[str, Any], tokenizer: Any) -> HookedTransformer:
    try:
        inert = {**cfg, **_INERT, "init_weights": False}
        return make_hooked_transformer(inert, tokenizer=tokenizer, move_to_device=False)
    except Exception as error:  # whatever a config with impossible values makes the library raise
        raise ValueError(f"cfg: no model can be made of it ({error})") from error


def _plain(value: Any) -> Any:
    """Turn NumPy and torch scalars of a cfg into JSON values."""
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return str(value)
    return value.item() if hasattr(value, "item") else value
