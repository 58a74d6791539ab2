"""Files that are never half-written: replaced atomically, flushed to disk, checked on reading."""

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: no lock between processes there
    fcntl = None

_TEMPORARY = ".count01-tmp-"


class DamagedFileError(ValueError):
    """A file is not what was written."""


class AlreadyInUseError(RuntimeError):
    """Another process is writing the same directory."""


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


def json_bytes(value: Any) -> bytes:
    """Write JSON with sorted keys: equal values give equal bytes."""
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as one safetensors file that carries its own checksum."""
    plain = {name: tensor.detach().contiguous() for name, tensor in sorted(tensors.items())}
    # A single key of metadata: safetensors writes several in random order.
    data = safetensors.torch.save(plain, {"sha256": _digest(plain)})
    write_atomically(path, data)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of `save_tensors`.

    Raises:
        DamagedFileError: the file is missing, cut off or changed.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise DamagedFileError(f"{path}: cannot be read ({error})") from error
    if metadata.get("sha256") != _digest(tensors):
        raise DamagedFileError(f"{path}: its content does not fit its checksum; it was damaged")
    return tensors


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other processes from writing the same directory; the lock dies with the process."""
    if fcntl is None:
        yield
        return
    with open(directory / ".lock", "a") as file:
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
