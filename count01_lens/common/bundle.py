"""Bundles: all that the library stores is one safetensors file, tensors and what they mean.

The metadata of the file, which any reader of safetensors gives as texts, has

    format   "pt", as in files of other tools that hold tensors of torch
    bundle   the number of this format
    kind     what is stored: "checkpoint", "analysis", "job result", ...
    about    all that is no tensor, as JSON
    sha256   of every other byte of the file

The file is replaced by one rename, so whoever reads it finds the old one or the new one. Equal
content gives equal bytes. Nothing is ever unpickled.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import safetensors.torch
from torch import Tensor

from count01_lens.common.storage import (
    DamagedFileError,
    json_bytes,
    parse_json,
    read_file,
    write_atomically,
)
from count01_lens.common.suggestions import did_you_mean

FORMAT = 1
# More than any file of ours has; they keep a hostile one from taking minutes and gigabytes.
LARGEST_HEADER, MOST_TENSORS = 10_000_000, 10_000
_METADATA, SUFFIX = "__metadata__", ".safetensors"


@dataclass(frozen=True, eq=False)
class Bundle:
    """What a file holds: a word for its kind, JSON values (without an order of names), tensors."""

    kind: str
    about: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def write_bundle(path: Path, bundle: Bundle) -> None:
    """Write or replace a file as a whole."""
    write_atomically(path, bundle_bytes(bundle))


def bundle_bytes(bundle: Bundle) -> bytes:
    """Return the bytes of the file.

    Raises:
        ValueError: it could not be read again: not JSON, too deep, or too large.
    """
    # A copy of each: safetensors refuses tensors that share memory.
    plain = {
        name: tensor.detach().cpu().clone().contiguous()
        for name, tensor in sorted(bundle.tensors.items())
    }
    entries, body = _taken_apart(safetensors.torch.save(plain))
    metadata = {
        "format": "pt",
        "bundle": str(FORMAT),
        "kind": bundle.kind,
        "about": json_bytes(dict(bundle.about), indent=None).decode().strip(),
    }
    # safetensors itself would write these in random order.
    head = _sealed_head({_METADATA: metadata, **entries}, body)
    _check_length(len(head))
    return head + body


def read_bundle(path: Path, kind: str) -> Bundle:
    """Read a file of `write_bundle`, every byte checked.

    Raises:
        DamagedFileError: names the file, what is wrong with it, and what can be done.
    """
    try:
        data = read_file(path)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        missing = isinstance(error, FileNotFoundError)
        why = "no such file" if missing else f"cannot be read ({error})"
        kinds = f"{kind!r}, check the path" if missing else repr(kind)
        meant = did_you_mean(path, SUFFIX, lambda file: kind_of(file) == kind) if missing else ""
        raise DamagedFileError(f"{path}: {why}; expected a file of kind {kinds}{meant}") from error
    return open_bundle(data, kind, str(path))


def open_bundle(data: bytes, kind: str, where: str) -> Bundle:
    """Open the bytes of a file, every one of them checked; `where` is what errors begin with."""
    try:
        return _opened(data, kind)
    except DamagedFileError as error:
        raise DamagedFileError(f"{where}: {error}") from error
    except Exception as error:  # safetensors and torch raise several kinds for one damaged file
        raise DamagedFileError(
            f"{where}: expected a file of kind {kind!r}, which this is not ({error!s:.500}); take "
            "another copy, or make it again"
        ) from error


def kind_of(path: Path) -> str | None:
    """Say of what kind a file claims to be, without reading all of it; None if it is no bundle."""
    try:
        if not path.is_file():
            return None
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = parse_json(file.read(length)) if length <= LARGEST_HEADER else {}
        return str(header[_METADATA]["kind"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _opened(data: bytes, kind: str) -> Bundle:
    header, body = _taken_apart(data)
    metadata = header.get(_METADATA)
    if not isinstance(metadata, dict) or not {"bundle", "kind", "about"} <= metadata.keys():
        raise TypeError("its metadata are not those of a bundle")
    if metadata["bundle"] != str(FORMAT):
        raise DamagedFileError(
            f"written in format {shortened(metadata['bundle'])}, this version reads {FORMAT}; "
            "install the version of count01-lens that wrote it"
        )
    if metadata["kind"] != kind:
        raise DamagedFileError(
            f"expected a file of kind {kind!r}, got one of kind {shortened(metadata['kind'])}; "
            "give another file"
        )
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != _METADATA]
    if len(body) < max(ends, default=0):
        raise DamagedFileError(
            f"it was cut off: {max(ends) - len(body)} bytes are missing; take another copy"
        )
    # Written again it must be the same, to the last space: so the checksum is of all there is.
    if _sealed_head(header, body) != data[: len(data) - len(body)]:
        raise DamagedFileError(
            "its content does not fit its checksum; it was changed: take another copy, or make "
            "it again"
        )
    about = parse_json(metadata["about"].encode())
    if not isinstance(about, dict):
        raise TypeError(f"about: expected an object, got {shortened(about)}")
    return Bundle(kind, about, safetensors.torch.load(data))


def _taken_apart(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return header and body of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    _check_length(8 + length)
    if len(data) < 8 + length:
        raise DamagedFileError(
            f"it was cut off: expected {8 + length} bytes or more, got {len(data)}; take another "
            "copy"
        )
    header = parse_json(data[8 : 8 + length])
    if not isinstance(header, dict):
        raise TypeError(f"expected an object as its header, got {shortened(header)}")
    if len(header.keys() - {_METADATA}) > MOST_TENSORS:
        raise ValueError(f"expected at most {MOST_TENSORS} tensors; keep fewer in one file")
    return header, data[8 + length :]


def _check_length(length: int) -> None:
    """Raise for a header that would take long to read; safetensors itself accepts 100 MB."""
    if length > LARGEST_HEADER:
        raise ValueError(
            f"expected names, shapes and all that is no tensor in {LARGEST_HEADER} bytes, got "
            f"{length}; keep fewer in one file, and numbers as tensors"
        )


def _sealed_head(header: dict[str, Any], body: bytes) -> bytes:
    """Return length and header as bytes, with a checksum of themselves without it and the body."""

    def written(checksum: str) -> bytes:
        metadata = {**header[_METADATA], "sha256": checksum}
        text = json.dumps({**header, _METADATA: metadata}, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes, as they should
        return len(text).to_bytes(8, "little") + text

    digest = hashlib.sha256(written(""))
    digest.update(body)
    return written(digest.hexdigest())
