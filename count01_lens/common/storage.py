"""Files that are never half-written: replaced atomically, flushed to disk, checked on reading."""

import contextlib
import errno
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
_LONGEST_NAME = 200  # bytes: file systems take 255, with the temporary one's own letters
DEEPEST_JSON = 100  # more than any of our files has


class DamagedFileError(ValueError):
    """A file is not what was written."""


class AlreadyInUseError(RuntimeError):
    """Another process is writing the same directory."""


def check_file_to_write(path: Path) -> None:
    """Raise unless a file can be written there, before anything takes long."""
    if path.is_dir():
        raise ValueError(f"{path}: expected a file to write, got a directory")
    # A link may lead to another directory; what is below no directory is no link.
    file = _file_to_replace(path) if path.parent.is_dir() else path
    if not file.parent.is_dir():
        raise ValueError(
            f"{path}: expected a file in a directory that exists, got {file.parent}; create it"
        )


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new one, and nothing between.

    The file gets the modes that the user's umask gives to any new file. A link stays: the file that
    it leads to is written, whether that is there yet or not, as by `open`. Nothing but a plain file
    is replaced. (Who puts another thing there in the instant before the rename can still lose it:
    systems have no rename that looks first.)
    """
    renamed = False
    while not renamed:
        file = _file_to_replace(path)
        temporary = file.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}-{_short(file.name)}")
        try:
            with open(temporary, "xb") as opened:
                opened.write(data)
                opened.flush()
                os.fsync(opened.fileno())
            # Another process may take the file for a leftover and remove it.
            with contextlib.suppress(FileNotFoundError):
                if _file_to_replace(path) == file:  # as before the data were on the disk
                    os.replace(temporary, file)
                    renamed = True
                else:
                    temporary.unlink()
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno is not None:
                # Users know nothing of the temporary one.
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise
    if os.name == "posix":  # the rename, too, has to survive a power failure
        descriptor = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _file_to_replace(path: Path) -> Path:
    """Return the file that a path leads to, there or not; raise if it is no plain file."""
    file = Path(os.path.realpath(path))
    try:
        mode = os.lstat(file).st_mode
    except FileNotFoundError:
        return file
    except OSError as error:
        error.filename = str(path)
        raise
    if stat.S_ISLNK(mode):  # `realpath` leaves what leads round in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # directories have an error of their own
        raise OSError(
            f"{path}: expected a plain file or a new one, got a device, a pipe or a socket; give "
            "another path"
        )
    return file


def _short(name: str) -> str:
    """The name of a file, or what stands for it if a temporary name with all of it is too long."""
    written = os.fsencode(name)
    return name if len(written) <= _LONGEST_NAME else sha256(written)


def is_temporary(path: Path, of: str = ".+") -> bool:
    """Whether a file is what a killed process left of `write_atomically`."""
    return re.fullmatch(rf"{re.escape(_TEMPORARY)}[0-9a-f]{{16}}-{of}", path.name) is not None


def remove_temporary_files(directory: Path, of: str | None = None) -> None:
    """Delete what killed processes left of `write_atomically`, of all files or of one name."""
    for path in directory.iterdir():
        if is_temporary(path, ".+" if of is None else re.escape(_short(of))) and path.is_file():
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
