"""Files that are never half-written: replaced atomically, flushed to disk, checked on reading."""

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import safetensors.torch
from torch import Tensor

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: no lock between processes there
    fcntl = None

_TEMPORARY = ".count01-tmp-"
# More than any of our files has; they keep a hostile one from taking minutes and gigabytes.
LARGEST_JSON = 10_000_000
LARGEST_HEADER = 1_000_000  # of a safetensors file; some 8,000 tensors
DEEPEST_JSON = 100


class DamagedFileError(ValueError):
    """A file is not what was written."""


class AlreadyInUseError(RuntimeError):
    """Another process is writing the same directory."""


def check_file_to_write(path: Path) -> None:
    """Raise unless a file can be written there, before anything takes long."""
    if path.is_dir():
        raise ValueError(f"{path}: expected a file to write, got a directory")
    if not path.parent.is_dir():
        raise ValueError(
            f"{path}: expected a file in a directory that exists, got {path.parent}; create it"
        )


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new one, and nothing between.

    The file gets the modes that the user's umask gives to any new file.
    """
    temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}-{path.name}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Flush a directory, so that a rename in it survives a power failure."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_temporary(path: Path) -> bool:
    """Whether a file is what a killed process left of `write_atomically`."""
    return re.fullmatch(rf"{re.escape(_TEMPORARY)}[0-9a-f]{{16}}-.+", path.name) is not None


def remove_temporary_files(directory: Path) -> None:
    """Delete what a killed process left of `write_atomically`."""
    for path in directory.iterdir():
        if is_temporary(path) and path.is_file():
            path.unlink(missing_ok=True)


def sha256(data: bytes) -> str:
    """Return the SHA-256 sum in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_file(path: Path, at_most: int | None = None) -> bytes:
    """Read a plain file; never wait for a pipe, nor read from a device without end.

    Raises:
        OSError: it cannot be read, is no plain file, or has more bytes than `at_most`.
    """
    # To open a pipe is to wait for somebody who writes to it, unless one says not to.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("expected a plain file, got a pipe or a device")
        if at_most is not None and status.st_size > at_most:
            raise OSError(f"expected at most {at_most} bytes, got {status.st_size}")
        try:
            return file.read(status.st_size)
        except MemoryError as error:
            raise OSError(f"{status.st_size} bytes are more than the memory can hold") from error


def json_bytes(value: Any) -> bytes:
    """Write JSON with sorted keys: equal values give equal bytes."""
    try:
        written = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    check_json(value, written)
    return written.encode()


def parse_json(data: bytes, *, finite: bool = True) -> Any:
    """Read JSON as `json_bytes` writes it: no name twice in an object, not too deep, no NaN.

    Raises:
        ValueError: it is anything else.
    """
    number, written = _finite if finite else float, data.decode()
    try:
        value = json.loads(
            written, object_pairs_hook=_object, parse_constant=number, parse_float=number
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    check_json(value, written)
    return value


def check_json(value: Any, written: str) -> None:
    """Raise if others could not go through these values, or not write them as text."""
    if "\\ud" in written.lower():  # half a character, perhaps; JSON has both halves of some
        json.dumps(value, ensure_ascii=False).encode()
    level = [value]
    for _ in range(DEEPEST_JSON):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list | tuple)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError(f"expected values nested at most {DEEPEST_JSON} deep, got deeper ones")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object has two values of one name")
    return made


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no finite number")
    return value


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as one safetensors file that carries its own checksum."""
    plain = {name: tensor.detach().contiguous() for name, tensor in sorted(tensors.items())}
    # A single key of metadata: safetensors writes several in random order.
    data = safetensors.torch.save(plain, {"sha256": _digest(plain)})
    safetensors_header(data)  # what could not be read is not written
    write_atomically(path, data)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of `save_tensors`.

    Raises:
        DamagedFileError: the file is missing, cut off or changed.
    """
    try:
        data = read_file(path)
        metadata = safetensors_header(data).get("__metadata__", {})
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
        fits = metadata.get("sha256") == _digest(tensors)
    except Exception as error:  # safetensors and torch raise several kinds for one damaged file
        raise DamagedFileError(f"{path}: cannot be read ({error})") from error
    if not fits:
        raise DamagedFileError(f"{path}: its content does not fit its checksum; it was damaged")
    return tensors


def safetensors_header(data: bytes) -> dict[str, Any]:
    """Read the header of a safetensors file; safetensors itself accepts one of 100 MB.

    Raises:
        ValueError: it is too large, or no header.
    """
    length = int.from_bytes(data[:8], "little")
    if length > LARGEST_HEADER:
        raise ValueError(
            f"expected names and shapes of tensors in {LARGEST_HEADER} bytes, got {length}; keep "
            "fewer in one file"
        )
    header = parse_json(data[8 : 8 + length])
    if not isinstance(header, dict):
        raise ValueError(f"expected an object as its header, got {type(header).__name__}")
    return header


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other processes from writing the same directory; the lock dies with the process."""
    if fcntl is None:
        yield
        return
    path = directory / ".lock"
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise DamagedFileError(
            f"{path}: expected a plain file, got a link, a pipe or a directory; delete it"
        )
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyInUseError(
                f"{directory}: another process is writing here; wait for it or choose another "
                "directory"
            ) from error
        yield


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
