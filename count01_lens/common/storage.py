"""Files that are never half-written: replaced atomically, flushed to disk, checked on reading."""

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: no lock between processes there
    fcntl = None

_TEMPORARY = ".count01-tmp-"
DEEPEST_JSON = 100  # more than any of our files has


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
    renamed = False
    while not renamed:
        temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}-{path.name}")
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            # Another process may take the file for a leftover and remove it.
            with contextlib.suppress(FileNotFoundError):
                os.replace(temporary, path)
                renamed = True
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError):
                error.filename = str(path)  # users know nothing of the temporary one
            raise
    if os.name == "posix":  # the rename, too, has to survive a power failure
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_temporary(path: Path, of: str = ".+") -> bool:
    """Whether a file is what a killed process left of `write_atomically`."""
    return re.fullmatch(rf"{re.escape(_TEMPORARY)}[0-9a-f]{{16}}-{of}", path.name) is not None


def remove_temporary_files(directory: Path, of: str | None = None) -> None:
    """Delete what killed processes left of `write_atomically`, of all files or of one name."""
    for path in directory.iterdir():
        if is_temporary(path, ".+" if of is None else re.escape(of)) and path.is_file():
            path.unlink(missing_ok=True)


def sha256(data: bytes) -> str:
    """Return the SHA-256 sum in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_file(path: Path) -> bytes:
    """Read a plain file, else raise an OSError; never wait for a pipe or a device without end."""
    # To open a pipe is to wait for somebody who writes to it, unless one says not to.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("expected a plain file, got a pipe or a device")
        try:
            return file.read(status.st_size)
        except MemoryError as error:
            raise OSError(f"{status.st_size} bytes are more than the memory can hold") from error


def json_bytes(value: Any, *, indent: int | None = 2) -> bytes:
    """Write JSON with sorted keys: equal values give equal bytes."""
    try:
        written = json.dumps(value, indent=indent, sort_keys=True, allow_nan=False) + "\n"
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check_json(value, written)
    return written.encode()


def parse_json(data: bytes) -> Any:
    """Read JSON as `json_bytes` writes it: no name twice in an object, not too deep, no NaN."""
    written = data.decode()
    try:
        value = json.loads(
            written, object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check_json(value, written)
    return value


def _check_json(value: Any, written: str) -> None:
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
