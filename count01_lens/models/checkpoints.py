"""Checkpoints: a directory that holds a HookedTransformer, whole or not at all.

    config.json         the HookedTransformer's cfg, and what is known of the model's making
    model.safetensors   its state_dict, readable without this package
    manifest.json       format, sizes and SHA-256 sums of the two

A save writes `config.json.new` and `model.safetensors.new`, then replaces the manifest, which is
the moment of change, then gives the new files their names. The loader takes, for each file, the one
that fits the manifest, new or named. So a crash at any point leaves the old checkpoint or the new.
Nothing is ever unpickled.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from count01_lens.common.storage import (
    LARGEST_JSON,
    is_temporary,
    json_bytes,
    locked,
    parse_json,
    read_file,
    remove_temporary_files,
    safetensors_header,
    sha256,
    sync_directory,
    write_atomically,
)
from count01_lens.common.types import HookedTransformer
from count01_lens.common.versions import library_versions
from count01_lens.models.build import make_hooked_transformer
from count01_lens.tasks.language import TOKENS

FORMAT = 1
CONFIG, WEIGHTS, MANIFEST = "config.json", "model.safetensors", "manifest.json"
_NEW = ".new"
_OWN_FILES = {CONFIG, WEIGHTS, MANIFEST, CONFIG + _NEW, WEIGHTS + _NEW, ".lock"}
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
) -> None:
    """Write a model to a directory; an old checkpoint there is replaced as a whole.

    Args:
        model: any HookedTransformer in float32 or float64.
        path: a directory that is new, empty, or a checkpoint.
        info: what is known of the model, such as seed and recipe; JSON values.
    """
    directory = Path(path)
    contents = {
        CONFIG: json_bytes(_config_of(model, {} if info is None else info)),
        WEIGHTS: safetensors.torch.save(_state_of(model), {"format": "pt"}),
    }
    safetensors_header(contents[WEIGHTS])  # what could not be read is not written
    if len(contents[CONFIG]) > LARGEST_JSON:
        raise ValueError(
            f"info and cfg: expected at most {LARGEST_JSON} bytes as JSON, got "
            f"{len(contents[CONFIG])}; keep large things in files of their own"
        )
    manifest = {
        "format": FORMAT,
        "files": {
            name: {"sha256": sha256(data), "bytes": len(data)} for name, data in contents.items()
        },
    }
    _check_writable(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        _finish_interrupted_save(directory)
        for name, data in contents.items():
            write_atomically(directory / (name + _NEW), data)
        write_atomically(directory / MANIFEST, json_bytes(manifest))
        for name in contents:
            os.replace(directory / (name + _NEW), directory / name)
        sync_directory(directory)


def load_checkpoint(path: str | os.PathLike[str]) -> HookedTransformer:
    """Read a model from a directory, on the CPU, every byte checked.

    Raises:
        CheckpointError: names the file and what is wrong with it.
    """
    directory = Path(path)
    contents = _read_files(directory)
    config = _parse_config(contents[CONFIG], directory / CONFIG)
    cfg = _cfg_from_json(config.get("hooked_transformer"), directory / CONFIG)
    state = _parse_weights(contents[WEIGHTS], directory / WEIGHTS)
    _check_state(cfg, state, directory)
    model = _make_model(cfg, directory, is_count01=_reads_count01(config))
    model.load_state_dict(state)
    _try_out(model, directory)
    for name in _INERT.keys() - {"device", "n_devices"}:
        setattr(model.cfg, name, cfg[name])
    frozen = config.get("frozen_parameters", [])
    if not isinstance(frozen, list):
        raise CheckpointError(f"{directory / CONFIG}: frozen_parameters: expected a list")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    return model


def checkpoint_info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what is known of a checkpoint: versions, seed, recipe, training summary, cfg."""
    directory = Path(path)
    return _parse_config(_read_files(directory)[CONFIG], directory / CONFIG)


def example_model() -> HookedTransformer:
    """Load the trained 16-head model that ships with the package.

    Example:
        >>> model = cl.example_model()
        >>> model.generate("0112=", max_new_tokens=2, do_sample=False, verbose=False)
        '0112=4'
    """
    return load_checkpoint(Path(__file__).parents[1] / "data" / "example")


def _config_of(model: HookedTransformer, info: Mapping[str, Any]) -> dict[str, Any]:
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
    try:
        json_bytes({"cfg": cfg, "info": info})
    except (TypeError, ValueError) as error:
        raise ValueError(f"info and cfg: expected JSON values only, got {error}") from error
    vocabulary = getattr(model.tokenizer, "vocab", None)
    return {
        "versions": library_versions(),
        "info": dict(info),
        "hooked_transformer": cfg,
        "reads_count01": vocabulary == {text: index for index, text in enumerate(TOKENS)},
        "frozen_parameters": [n for n, p in model.named_parameters() if not p.requires_grad],
    }


def _state_of(model: HookedTransformer) -> dict[str, Tensor]:
    # A clone each: safetensors refuses tensors that share memory.
    state = {
        name: tensor.detach().cpu().clone().contiguous()
        for name, tensor in model.state_dict().items()
    }
    _check_values(state, "model")
    return dict(sorted(state.items()))


def _check_writable(directory: Path) -> None:
    if directory.is_file():
        raise ValueError(f"{directory}: expected a directory, got a file; choose another path")
    if not directory.is_dir():
        return
    # One look at all names: another process may be writing.
    found, own = {entry.name: entry for entry in directory.iterdir()}, set(_OWN_FILES)
    if MANIFEST in found:
        try:
            _manifest_files(directory)
        except CheckpointError as error:
            raise ValueError(f"{error}; delete it or choose another path") from error
    else:
        own -= {CONFIG, WEIGHTS}  # before its manifest, a save writes no file of these names
    if ".lock" not in found:
        own -= {CONFIG + _NEW, WEIGHTS + _NEW}  # and these only after the lock
    foreign = sorted(
        name for name, entry in found.items() if name not in own and not is_temporary(entry)
    )
    if foreign:
        raise ValueError(
            f"{directory}: expected a new or empty directory or a checkpoint, got one with "
            f"{', '.join(foreign[:5])}; choose another path"
        )


def _finish_interrupted_save(directory: Path) -> None:
    """Bring a directory into its plain state before new files take the place of old ones."""
    remove_temporary_files(directory)
    if (directory / MANIFEST).exists():
        for name, entry in _manifest_files(directory).items():
            new = directory / (name + _NEW)
            # A new file that the manifest does not name is of a save that never came to pass.
            if new.is_file() and sha256(read_file(new)) == entry["sha256"]:
                os.replace(new, directory / name)
        sync_directory(directory)


def _read_files(directory: Path) -> dict[str, bytes]:
    """Read the files that fit the manifest; once more whenever a save came between."""
    path = directory / MANIFEST
    while True:
        manifest = _read(path)
        try:
            files = _manifest_entries(manifest, path)
            return {name: _read_checked(directory, name, files[name]) for name in (CONFIG, WEIGHTS)}
        except CheckpointError:
            if _read(path) == manifest:
                raise


def _manifest_files(directory: Path) -> dict[str, dict[str, Any]]:
    return _manifest_entries(_read(directory / MANIFEST), directory / MANIFEST)


def _manifest_entries(data: bytes, path: Path) -> dict[str, dict[str, Any]]:
    manifest = _parse_json(data, path)
    version = manifest.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CheckpointError(f"{path}: expected a format number, got {shortened(version)}")
    if version > FORMAT:
        raise CheckpointError(
            f"{path}: written in format {version}, this version reads up to {FORMAT}; "
            "update count01-lens"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or set(files) != {CONFIG, WEIGHTS}:
        raise CheckpointError(f"{path}: expected entries for {CONFIG} and {WEIGHTS}")
    for name, entry in files.items():
        if (
            not isinstance(entry, dict)
            or not isinstance(entry.get("sha256"), str)
            or not isinstance(entry.get("bytes"), int)
        ):
            raise CheckpointError(
                f"{path}: expected sha256 and bytes of {name}, got {shortened(entry)}"
            )
    return files


def _read_checked(directory: Path, name: str, entry: dict[str, Any]) -> bytes:
    problem = ""
    # The new one first: a save that is under way may give it its name at any moment.
    for path in (directory / (name + _NEW), directory / name):
        try:
            # The size first: a file of any other size need not be read.
            size = path.stat().st_size
            if size != entry["bytes"]:
                problem = f"expected {entry['bytes']} bytes, got {size}; it was cut off or changed"
                continue
            data = read_file(path, LARGEST_JSON if name == CONFIG else None)
            if sha256(data) == entry["sha256"]:
                return data
            problem = "its SHA-256 sum does not fit the manifest; it was damaged"
        except FileNotFoundError:
            problem = "missing"
        except OSError as error:
            problem = f"cannot be read ({error})"
    raise CheckpointError(f"{directory / name}: {problem}")


def _read(path: Path) -> bytes:
    try:
        return read_file(path, LARGEST_JSON)
    except FileNotFoundError as error:
        missing = "no such directory" if not path.parent.is_dir() else "missing"
        raise CheckpointError(f"{path}: {missing}; expected a checkpoint directory") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise CheckpointError(f"{path}: cannot be read ({error})") from error


def _parse_json(data: bytes, path: Path) -> dict[str, Any]:
    try:
        value = parse_json(data)
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _parse_config(data: bytes, path: Path) -> dict[str, Any]:
    config = _parse_json(data, path)
    for name in ("info", "versions"):
        if not isinstance(config.get(name, {}), dict):
            raise CheckpointError(
                f"{path}: expected an object {name!r}, got {shortened(config[name])}"
            )
    return config


def _parse_weights(data: bytes, path: Path) -> dict[str, Tensor]:
    try:
        safetensors_header(data)
        state: dict[str, Tensor] = safetensors.torch.load(data)
    except Exception as error:  # the library raises several kinds for one damaged file
        raise CheckpointError(f"{path}: not a valid safetensors file ({error})") from error
    return state


def _check_values(state: Mapping[str, Tensor], where: str) -> None:
    for name, tensor in state.items():
        # The attention block's constant buffer IGNORE is -inf by design.
        bad = torch.isnan(tensor) if name.endswith("IGNORE") else ~torch.isfinite(tensor)
        if bool(bad.any()):
            raise ValueError(f"{where}: {name} has {int(bad.sum())} NaN or infinite values")


def _cfg_from_json(cfg: Any, path: Path) -> dict[str, Any]:
    from transformer_lens import HookedTransformerConfig

    if not isinstance(cfg, dict):
        raise CheckpointError(
            f"{path}: expected an object 'hooked_transformer', got {shortened(cfg)}"
        )
    known = HookedTransformerConfig.__dataclass_fields__
    unknown = sorted(set(cfg) - set(known))
    if unknown or not {"d_model", "n_layers", "dtype", *_INERT} <= set(cfg):
        raise CheckpointError(
            f"{path}: expected the fields of HookedTransformerConfig, "
            f"got unknown {shortened(unknown)} or too few"
        )
    if not isinstance(cfg["dtype"], str) or cfg["dtype"] not in _DTYPES:
        raise CheckpointError(
            f"{path}: expected dtype {list(_DTYPES)}, got {shortened(cfg['dtype'])}"
        )
    return {**cfg, "dtype": _DTYPES[cfg["dtype"]]}


def _check_state(cfg: dict[str, Any], state: Mapping[str, Tensor], directory: Path) -> None:
    """Hold names, shapes, dtypes and values against what cfg describes, before making it."""
    if not isinstance(cfg["n_layers"], int) or not 0 < cfg["n_layers"] <= len(state):
        raise CheckpointError(
            f"{directory / CONFIG}: n_layers = {shortened(cfg['n_layers'])} is not usable"
        )
    with torch.device("meta"):
        expected = _make_model(cfg, directory, is_count01=False).state_dict()
    different = sorted(set(expected) ^ set(state))
    if different:
        raise CheckpointError(
            f"{directory / WEIGHTS}: its tensors do not fit {CONFIG}: {', '.join(different[:5])}"
        )
    for name, tensor in state.items():
        # The constant buffer IGNORE takes torch's default dtype of the moment; any of them will do.
        dtypes = _DEFAULT_DTYPES if name.endswith("IGNORE") else [expected[name].dtype]
        same_dtype = tensor.dtype in dtypes
        if tensor.shape != expected[name].shape or not same_dtype:
            raise CheckpointError(
                f"{directory / WEIGHTS}: {name}: expected {expected[name].dtype} "
                f"{list(expected[name].shape)}, got {tensor.dtype} {list(tensor.shape)}"
            )
    try:
        _check_values(state, str(directory / WEIGHTS))
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def _make_model(cfg: dict[str, Any], directory: Path, *, is_count01: bool) -> HookedTransformer:
    tokenizer = None
    if is_count01:
        from count01_lens.tasks.tokenizer import count01_tokenizer

        tokenizer = count01_tokenizer()
    stored_init = cfg.get("init_weights", True)
    try:
        model = make_hooked_transformer(
            {**cfg, **_INERT, "init_weights": False}, tokenizer=tokenizer, move_to_device=False
        )
    except Exception as error:  # whatever a config with impossible values makes the library raise
        raise CheckpointError(
            f"{directory / CONFIG}: no model can be made of it ({error})"
        ) from error
    model.cfg.init_weights = stored_init
    return model


def _try_out(model: HookedTransformer, directory: Path) -> None:
    """Run one token: some impossible values of cfg only show then."""
    try:
        with torch.no_grad():
            model(torch.zeros(1, 1, dtype=torch.long))
    except Exception as error:
        message = f"{directory / CONFIG}: the model made of it does not run ({error})"
        raise CheckpointError(message) from error


def _reads_count01(config: dict[str, Any]) -> bool:
    return config.get("reads_count01") is True


def _plain(value: Any) -> Any:
    """Turn NumPy and torch scalars of a cfg into JSON values."""
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return str(value)
    return value.item() if hasattr(value, "item") else value
