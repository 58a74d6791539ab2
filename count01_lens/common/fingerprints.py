"""Hashes of what things are made of, to tell whether two are the same."""

import hashlib
from collections.abc import Iterable


def hash_of(parts: Iterable[bytes | str]) -> str:
    """Hash parts in their order; each counts with its length, so that none runs into the next.

    >>> hash_of(["ab", "c"]) == hash_of(["a", "bc"])
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.hexdigest()
