"""An analysis of heads as a bundle: numbers as tensors, words as JSON.

Reading is strict, because a file may come from anybody: every part must have the kind and the size
that the others call for.
"""

from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np
import pandas as pd
import torch

from count01_lens.common.bundle import Bundle, read_bundle, write_bundle
from count01_lens.common.storage import DamagedFileError
from count01_lens.common.types import Array
from count01_lens.common.validation import check_int
from count01_lens.common.versions import library_versions
from count01_lens.heads.analysis import CATEGORIES, HeadAnalysis
from count01_lens.heads.groups import METRICS, AllGroups
from count01_lens.heads.metrics import HeadData

KIND = "analysis"
# Kind and axes of each array of `HeadData`: f for numbers, b for yes or no.
_ARRAYS = {
    "train_outputs": "f train head d_head",
    "train_labels": "b train",
    "test_outputs": "f test head d_head",
    "test_labels": "b test",
    "shares": "f test head answer",
    "bias": "f test answer",
    "end_shares": "f test head token",
    "end_bias": "f test token",
}


def write_analysis(analysis: HeadAnalysis, path: Path) -> None:
    """Write numbers as tensors and words as JSON."""
    table = analysis.table
    words = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    arrays = {f"table.{name}": table[name].to_numpy() for name in table if name not in words}
    arrays |= {f"pairs.{name}": matrix for name, matrix in analysis.pairs.items()}
    arrays |= {f"data.{name}": getattr(analysis.data, name) for name in _ARRAYS}
    text: dict[str, Any] = {
        "columns": list(table.columns),
        "words": {name: table[name].tolist() for name in words},
        "accuracy": list(analysis.accuracy),
        "notes": analysis.notes,
        "end_token": analysis.data.end_token,
        "additive": analysis.data.ablated is None,
        "versions": library_versions(),
    }
    arrays["accuracy"] = np.array(list(analysis.accuracy.values()))
    arrays["worst_gradient"] = np.array(analysis.worst_gradient)
    if analysis._groups is not None:
        groups = analysis._groups
        arrays |= {f"groups.{name}": groups.table[name].to_numpy() for name in groups.table}
        arrays["groups_empty"] = np.array([groups.empty[name] for name in METRICS])
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
    write_bundle(path, Bundle(KIND, text, tensors))


def read_analysis(path: Path) -> HeadAnalysis:
    """Read a file of `write_analysis`.

    Raises:
        DamagedFileError: the file is missing, changed or not an analysis.
    """
    bundle = read_bundle(path, KIND)
    try:
        arrays = {name: tensor.numpy() for name, tensor in bundle.tensors.items()}
        return _analysis_of(bundle.about, arrays)
    except (LookupError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{path}: not an analysis of heads ({error!r:.500})") from error


def _analysis_of(text: Mapping[str, Any], arrays: dict[str, Array]) -> HeadAnalysis:
    """Put an analysis together; raise where its parts do not fit each other."""
    words = text["words"]
    columns = {
        name: _texts(words[name]) if name in words else arrays[f"table.{name}"]
        for name in _texts(text["columns"])
    }
    sizes = _sizes({name: arrays[f"data.{name}"] for name in _ARRAYS}, _ARRAYS, {"answer": 2})
    n_heads = sizes["head"]
    data = HeadData(
        **{name: arrays[f"data.{name}"] for name in _ARRAYS},
        end_token=check_int("end_token", text["end_token"], at_least=0),
        ablated=None if text["additive"] is True else _cannot_run,
    )
    table = pd.DataFrame(columns)
    pairs = {name: arrays[f"pairs.{name}"] for name in METRICS}
    _sizes(pairs, dict.fromkeys(METRICS, "f head head"), {"head": n_heads})
    if n_heads == 0 or len(table) != n_heads or data.end_token >= sizes["token"]:
        raise ValueError(f"expected a row for each of {n_heads} heads and a token that ends")
    numbers = {name: table[name].to_numpy() for name in (*METRICS, "layer", "head")}
    _sizes(numbers, dict.fromkeys(METRICS, "f row") | {"layer": "i row", "head": "i row"})
    if not set(table["category"]) <= set(CATEGORIES):
        raise ValueError(f"expected categories of {CATEGORIES}")
    _sizes(arrays, {"accuracy": "f split", "worst_gradient": "f"})
    accuracy = dict(zip(_texts(text["accuracy"]), arrays["accuracy"].tolist(), strict=True))
    if not accuracy.keys() <= {"answer", "ties", "others", "eos"}:
        raise ValueError(f"expected accuracies of answers, got {shortened(text['accuracy'])}")
    worst = float(arrays["worst_gradient"])
    analysis = HeadAnalysis(table, pairs, accuracy, _texts(text["notes"]), data, worst)
    if "groups_empty" in arrays:
        kinds = {"mask": "i group", "size": "i group", **dict.fromkeys(METRICS, "f group")}
        groups = {name: arrays[f"groups.{name}"] for name in kinds}
        if _sizes(groups, kinds)["group"] != 2**n_heads - 1:
            raise ValueError(f"expected {2**n_heads - 1} groups of {n_heads} heads")
        _sizes(arrays, {"groups_empty": "f metric"})
        empty = dict(zip(METRICS, arrays["groups_empty"].tolist(), strict=True))
        analysis._groups = AllGroups(pd.DataFrame(groups), empty, worst)
    return analysis


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"expected a list of texts, got {shortened(values)}")
    return values


def _sizes(
    arrays: dict[str, Array], forms: dict[str, str], known: dict[str, int] | None = None
) -> dict[str, int]:
    """Check kinds and axes of arrays, such as "f head token"; return the sizes of the axes."""
    sizes = {**(known or {})}
    for name, form in forms.items():
        kind, *axes = form.split()
        array = arrays[name]
        found = [sizes.setdefault(axis, size) for axis, size in zip(axes, array.shape, strict=True)]
        if array.dtype.kind != kind or found != list(array.shape):
            raise ValueError(f"{name}: expected {form}, got {array.dtype} {array.shape}")
    return sizes


def _cannot_run(mask: Array) -> tuple[Array, Array]:
    raise ValueError("a loaded analysis has no model to run; analyze the model again for groups")
