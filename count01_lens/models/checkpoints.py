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

from count01_lens.common.bundle import Bundle, bundle_bytes, read_bundle
from count01_lens.common.storage import DamagedFileError, remove_temporary_files, write_atomically
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.common.versions import library_versions
from count01_lens.models.fields import DTYPES
from count01_lens.models.fingerprint import fingerprint
from count01_lens.models.lens import fields_of, parameters_of, require_model, state_of
from count01_lens.models.stored import StoredModel, as_stored
from count01_lens.models.unpacking import check_values, hooked_from
from count01_lens.tasks.language import TOKENS

ExampleName = Literal["accurate", "paper", "puzzle"]
KIND, SUFFIX = "checkpoint", ".safetensors"
EXAMPLES = Path(__file__).parents[1] / "data" / "example"


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or not readable by this version."""


def save_checkpoint(
    model: HookedTransformer,
    path: str | os.PathLike[str],
    *,
    info: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model to a file; an old checkpoint is replaced as a whole.

    Args:
        model: any HookedTransformer in float32 or float64. The counting task of its tokenizer is
            stored with it, if it has one; see `task_of`.
        path: of the file; `.safetensors` is added where it is missing. Directories are made.
        info: facts about the model, such as seed and recipe; JSON values.

    Returns:
        The path of the file.
    """
    file = checkpoint_file(path)
    about = _about(model, {} if info is None else info)
    state = {name: tensor.detach().cpu() for name, tensor in state_of(model).items()}
    check_values(state, "model")
    try:
        data = bundle_bytes(Bundle(KIND, about, state))
    except (TypeError, ValueError) as error:
        raise ValueError(f"info and cfg: expected JSON values only ({error})") from error
    if fingerprint(hooked_from(Bundle(KIND, about, state))) != fingerprint(model):
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
    """Read a model from a checkpoint, on the CPU, with every byte checked.

    Args:
        path: of the file; `.safetensors` may be left out.

    Raises:
        CheckpointError: names the file and what is wrong with it.
    """
    file = checkpoint_file(path)
    return _built(_read(file), file)


def open_checkpoint(path: str | os.PathLike[str]) -> HookedTransformer | StoredModel:
    """Read a model that is going to be measured, without TransformerLens where that will do.

    Every byte is checked as by `load_checkpoint`, and raises the same errors.

    Returns:
        A StoredModel if the file is without any doubt a plain model over counts; else what
        `load_checkpoint` gives, so that TransformerLens decides what the file is.
    """
    file = checkpoint_file(path)
    bundle = _read(file)
    return as_stored(bundle) or _built(bundle, file)


def checkpoint_info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what a checkpoint says of its model: versions, seed, recipe, training summary, cfg."""
    return dict(_read(checkpoint_file(path)).about)


def checkpoint_file(path: str | os.PathLike[str]) -> Path:
    """Return the file that a path means: with its suffix, whether it was given or not."""
    given = Path(path)
    if given.name in ("", ".."):
        raise CheckpointError(f"{given}: expected the path of a file, got that of a directory")
    return given if given.suffix == SUFFIX else given.with_name(given.name + SUFFIX)


def example_model(recipe: ExampleName = "accurate") -> HookedTransformer:
    """Load a trained model that ships with the package.

    Args:
        recipe: "accurate": 16 heads trained by `TrainConfig()`, nearly always right; most of its
            good heads can answer alone. "paper": 16 heads trained by `TrainConfig.paper()`, with
            which the paper's picture holds: heads answer together; ties and close calls are often
            wrong. Each is the most typical of twenty seeds. "puzzle": four heads, one of which
            attends to '2' two thousand times more than to '0' and is still successful; a tutorial
            explains why. All are written by `python -m experiments.tools.choose_examples`.

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
    require_model(model)
    if not isinstance(info, Mapping):
        raise TypeError(f"info: expected a dict of JSON values, got {info!r}")
    cfg = {name: _plain(value) for name, value in fields_of(model).items()}
    # The dtype of the weights themselves: `model.double()`, for one, does not tell cfg.
    dtypes = sorted({_plain(parameter.dtype) for parameter in model.parameters()})
    if len(dtypes) != 1 or dtypes[0] not in DTYPES:
        raise ValueError(
            f"model: expected weights of dtype {' or '.join(DTYPES)}, got {', '.join(dtypes)}; "
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
        "frozen_parameters": [n for n, p in parameters_of(model).items() if not p.requires_grad],
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


def _built(bundle: Bundle, file: Path) -> HookedTransformer:
    try:
        return hooked_from(bundle)
    except ValueError as error:
        raise CheckpointError(f"{file}: {error}") from error


def _plain(value: Any) -> Any:
    """Turn NumPy and torch scalars of a cfg into JSON values."""
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return str(value)
    return value.item() if hasattr(value, "item") else value
