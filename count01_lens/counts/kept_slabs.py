"""What is done of a verification, kept in a file, so that the same call goes on from there."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from count01_lens.common.bundle import Bundle, read_bundle, write_bundle
from count01_lens.common.storage import DamagedFileError, remove_temporary_files
from count01_lens.counts.exhaustion import Exhaustion, Found

KIND = "verification"
_SECONDS = 5.0  # between two writings


class KeptSlabs:
    """The slabs of a verification that are done, first ones first, and what was found in them.

    Attributes:
        path: of the file; it is made when there is something to keep.
        done: how many slabs are.
        found: in all of them together; None if there are none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        work: Exhaustion,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Read what the file has.

        Raises:
            ValueError: it is another kind of file, damaged, or of another verification.
        """
        self.path, self.clock, self.written = Path(path), clock, clock()
        self.identity = work.identity
        self.done, self.found = 0, None
        if not os.path.lexists(self.path):
            return
        try:
            bundle = read_bundle(self.path, KIND)
        except DamagedFileError as error:
            raise ValueError(f"resume: {error}; or choose another file") from error
        self._check_identity(bundle.about.get("identity"))
        self.done = int(bundle.about["done"])
        self.found = _with_floats(bundle.about["counted"]) | dict(bundle.tensors)

    def add(self, found: Found, *, is_last: bool) -> None:
        """Keep what was found in one more slab, together with all before it."""
        self.done, self.found = self.done + 1, found
        if is_last or self.clock() - self.written >= _SECONDS:
            self.write()

    def write(self) -> None:
        """Write the file."""
        if self.found is None:
            return
        tensors = {name: value for name, value in self.found.items() if hasattr(value, "shape")}
        counted = {name: value for name, value in self.found.items() if name not in tensors}
        about = {"identity": self.identity, "done": self.done, "counted": _as_json(counted)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        remove_temporary_files(self.path.parent, of=self.path.name)
        write_bundle(self.path, Bundle(KIND, about, tensors))
        self.written = self.clock()

    def _check_identity(self, stored: Any) -> None:
        different = [
            name
            for name, value in self.identity.items()
            if not isinstance(stored, dict) or stored.get(name) != value
        ]
        if different:
            raise ValueError(
                f"resume: expected a file of the same model and arguments, got {self.path} of "
                f"another {', '.join(different)}; choose another file"
            )


def _as_json(counted: Mapping[str, Any]) -> dict[str, Any]:
    """Write floats as texts, which are exact and may be infinite."""
    return {n: v.hex() if isinstance(v, float) else v for n, v in counted.items()}


def _with_floats(counted: Mapping[str, Any]) -> dict[str, Any]:
    return {
        n: float.fromhex(value) if isinstance(value, str) else value for n, value in counted.items()
    }
