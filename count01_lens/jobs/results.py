"""Results of jobs: a file each, named by what was computed, never by when or where.

    <key>.safetensors   a bundle: arrays as tensors, and JSON with everything else: the value, and
                        what was computed, in how many seconds, with which versions

Only the process that holds the lock writes; anybody may read at any time, because a file is there
whole or not at all. A file whose checksum does not fit counts as absent, so it is computed again. A
file that is whole but belongs to something else is an error: results are never mixed up.
"""

import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from count01_lens.common import storage
from count01_lens.common.bundle import Bundle, bundle_bytes, open_bundle, read_bundle

if TYPE_CHECKING:
    from count01_lens.jobs.job import Job

KIND = "job result"
# What columns of tables can be; nothing else of a file is looked up by its name.
_NUMBERS = re.compile("bool|u?int(8|16|32|64)|float(16|32|64)")
_WORDS = ("object", "str", "string")


class ResultError(ValueError):
    """A result is missing, or is not that of the job whose name it bears."""


@dataclass(frozen=True)
class Result:
    """What a job returned, and how it came about."""

    value: Any
    name: str
    identity: dict[str, Any]
    seconds: float
    versions: dict[str, str]


def is_result_of(job: "Job", encoded: Any) -> bool:
    """Whether something is the bytes that `encode` makes of a result of this job."""
    try:
        result = decode(open_bundle(encoded, KIND, "result"))
    except (storage.DamagedFileError, LookupError, TypeError, ValueError):
        return False
    return canonical(result.identity) == job.identity


class ResultStore:
    """A directory of results."""

    def __init__(self, directory: str | os.PathLike[str]):
        self.directory = Path(directory)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Prepare for writing and keep other writers out; reading needs no lock."""
        if self.directory.exists() and not self.directory.is_dir():
            raise ResultError(f"{self.directory}: expected a directory, got a file")
        self.directory.mkdir(parents=True, exist_ok=True)
        with storage.locked(self.directory):
            storage.remove_temporary_files(self.directory)
            yield

    def path(self, job: "Job") -> Path:
        """The file of a job's result."""
        return self.directory / f"{job.key}.safetensors"

    def load(self, job: "Job") -> Any:
        """Return what a job returned; arrays as NumPy's, tables as pandas', tuples as lists."""
        result = self.find(job)
        if result is None:
            raise ResultError(f"{self.path(job)}: expected a result, got none; run the job first")
        return result.value

    def find(self, job: "Job") -> Result | None:
        """Return the result of a job, or None if there is none or a damaged one."""
        path = self.path(job)
        if not path.exists():
            return None
        try:
            result = decode(read_bundle(path, KIND))
        except (storage.DamagedFileError, LookupError, TypeError, ValueError) as error:
            warnings.warn(f"a damaged result is not used: {path}: {error}", stacklevel=2)
            return None
        if canonical(result.identity) != job.identity:
            raise ResultError(
                f"{path}: expected the result of {job.identity}, got that of "
                f"{canonical(result.identity)}; delete the file, or choose another directory"
            )
        return result

    def save(self, job: "Job", encoded: bytes) -> None:
        """Write what `encode` made of a job's result."""
        storage.write_atomically(self.path(job), encoded)


def encode(value: Any, **about: Any) -> bytes:
    """Turn a result, and the other fields of `Result`, into a file; raise if a value has no form.

    JSON values, NaN and infinities, arrays of numbers, and tables of numbers and words have one.
    """
    tensors: dict[str, torch.Tensor] = {}

    def other(value: Any, where: str) -> Any:
        if isinstance(value, float):
            return {"$float": repr(value)}
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        if isinstance(value, np.ndarray) and _has_numbers(value):
            # A copy in the machine's byte order; also of what NumPy made read-only.
            array = np.array(value, dtype=value.dtype.newbyteorder("="), order="C")
            tensors[where] = torch.from_numpy(array)
            return {"$array": where}
        if isinstance(value, pd.DataFrame):
            _check_table(value, where)
            columns = [(name, *_column(value[name])) for name in value]
            rows = [[n, dtype, plain(data, f"{where}[{n!r}]", other)] for n, dtype, data in columns]
            return {"$table": rows}
        return _refuse(value, where)

    written = _in_order(plain(value, "result", other))
    return bundle_bytes(Bundle(KIND, {**about, "value": written}, tensors))


def _in_order(value: Any) -> Any:
    """Write objects as pairs where their names are not sorted, as those of a bundle are."""
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    pairs = [[name, _in_order(item)] for name, item in value.items()]
    return dict(pairs) if list(value) == sorted(value) else {"$pairs": pairs}


def decode(bundle: Bundle) -> Result:
    """Undo `encode`."""

    def decoded(value: Any) -> Any:
        match value:
            case {"$float": text}:
                return float(text)
            case {"$array": name}:
                array = bundle.tensors[name].numpy()
                if not _has_numbers(array):
                    raise TypeError(f"expected an array of numbers, got {array.dtype}")
                return array
            case {"$pairs": pairs}:
                if not all(isinstance(name, str) for name, _ in pairs):
                    raise TypeError(f"expected pairs of a name and a value, got {pairs!r:.80}")
                return {name: decoded(item) for name, item in pairs}
            case {"$table": columns}:
                return pd.DataFrame({n: _series(n, dtype, decoded(d)) for n, dtype, d in columns})
            case dict():
                return {name: decoded(item) for name, item in value.items()}
            case list():
                return [decoded(item) for item in value]
        return value

    result = Result(**{**bundle.about, "value": decoded(bundle.about["value"])})
    kinds = {"name": str, "identity": dict, "seconds": int | float, "versions": dict}
    for field, kind in kinds.items():
        if not isinstance(getattr(result, field), kind):
            raise TypeError(f"{field}: expected {kind}, got {type(getattr(result, field))}")
    return result


def _has_numbers(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind in "biuf" and array.itemsize <= 8


def _series(name: Any, dtype: Any, values: Any) -> Any:
    """Make a column of numbers as an array, or words as a list, as `encode` writes them."""
    if dtype in _WORDS:
        good = isinstance(values, list) and all(isinstance(v, str | None) for v in values)
    else:
        good = isinstance(values, np.ndarray) and str(values.dtype) == dtype
        good = good and _NUMBERS.fullmatch(dtype) is not None
    if not good or not isinstance(name, str):
        raise TypeError(f"expected a column of numbers or words, got {name!r:.80} of {dtype!r:.80}")
    return pd.Series(values, dtype=dtype)


def canonical(value: Any) -> str:
    """Write JSON so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _refuse(value: Any, where: str) -> Any:
    raise TypeError(
        f"{where}: expected plain values (None, bool, finite numbers, text, lists, dicts with text "
        f"as keys; in results also arrays and tables of numbers), got {value!r:.80} of type "
        f"{type(value).__name__}; convert it"
    )


def plain(value: Any, where: str, other: Callable[[Any, str], Any] = _refuse) -> Any:
    """Copy a value as plain JSON ones; what JSON does not have is left to `other`."""
    if isinstance(value, np.generic):
        value = value.item()
    is_finite = isinstance(value, float) and math.isfinite(value)
    if is_finite or value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]", other) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str) or name.startswith("$"):
                raise TypeError(f"{where}: expected keys of text, without $ in front, got {name!r}")
        return {name: plain(item, f"{where}[{name!r}]", other) for name, item in value.items()}
    return other(value, where)


def _check_table(table: pd.DataFrame, where: str) -> None:
    if not table.index.equals(pd.RangeIndex(len(table))):
        raise TypeError(f"{where}: expected a table numbered from 0; call .reset_index() first")
    if not table.columns.is_unique or not all(isinstance(name, str) for name in table.columns):
        raise TypeError(f"{where}: expected columns with different names, got {table.columns}")


def _column(column: Any) -> tuple[str, Any]:
    """Name the dtype; give numbers as an array, words as a list, None where one is missing."""
    dtype, missing = column.dtype, column.isna()
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return str(dtype.newbyteorder("=")), column.to_numpy()  # as arrays are written
    if str(dtype) in _WORDS and all(isinstance(word, str) for word in column[~missing]):
        words = zip(column, missing, strict=True)
        return str(dtype), [None if absent else word for word, absent in words]
    return str(dtype), column.array  # which has no form: the message names the column
