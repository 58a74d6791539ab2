"""A job: a function and its configuration, the key of its result, and how it is done."""

import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from count01_lens.common.storage import sha256
from count01_lens.common.validation import check_number
from count01_lens.common.versions import library_versions
from count01_lens.jobs.results import canonical, encode, plain
from count01_lens.jobs.supervision import ProcessDiedError, TimeLimitError, supervised

FORMAT = 1
ATTEMPTS = 2  # for a job whose process died: the second is alone, with all the memory


@dataclass(frozen=True, eq=False)
class Job:
    """A call of a module's function with a configuration.

    Args:
        name: what people call it; no part of the key.
        function: imported by its name in other processes, where all it prints, progress bars too,
            goes to stderr; returns what `results.encode` can write.
        configuration: its arguments, as plain values, random seeds among them.
        code_version: change it when the function computes something else than before.
        cost: roughly how long it takes, in any unit; long jobs are started first, and the time left
            is worked out from it. No part of the key.
    """

    name: str
    function: Callable[..., Any]
    configuration: Mapping[str, Any]
    code_version: str
    cost: float = 1.0

    def __post_init__(self) -> None:
        for name in ("name", "code_version"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name}: expected text, got {getattr(self, name)!r}")
        if not isinstance(self.configuration, Mapping):
            raise TypeError(f"configuration: expected a dict, got {self.configuration!r}")
        check_number("cost", self.cost, above=0)
        object.__setattr__(self, "configuration", plain(self.configuration, "configuration"))
        _ = self.key  # from now on nothing changes it

    @cached_property
    def identity(self) -> str:
        """All that the result depends on, as canonical JSON."""
        function, given = _name_of(self.function), self.configuration
        version = self.code_version
        return canonical(
            dict(format=FORMAT, function=function, configuration=given, code_version=version)
        )

    @cached_property
    def key(self) -> str:
        """The SHA-256 sum of the identity."""
        return sha256(self.identity.encode())


def _name_of(function: Any) -> str:
    """Return module:name, by which any process finds the function."""
    name, module = getattr(function, "__qualname__", "?"), getattr(function, "__module__", "?")
    here = sys.modules.get(module)
    if module == "__main__":  # of `python -m package.module`, which others can import by that name
        spec = getattr(here, "__spec__", None)
        module = "__main__" if spec is None else spec.name
    is_found = name.isidentifier() and getattr(here, name, None) is function
    if not is_found or module.rpartition(".")[2] == "__main__":
        raise TypeError(
            f"function: expected one defined at the top of a module that can be imported, got "
            f"{function!r}; other processes could not find it"
        )
    return f"{module}:{name}"


State = Literal["done", "failed", "died", "lost"]


@dataclass(frozen=True)
class Report:
    """What comes back from a job."""

    state: State
    reason: str = ""
    encoded: bytes = b""


def perform(name: str, identity: str, versions: dict[str, str]) -> Report:
    """Run a job in this process, if its libraries are those of the process that handed it out."""
    if (here := library_versions()) != versions:
        wrong = f"expected a worker with {versions}, got one with {here}: results of different "
        return Report("failed", wrong + "versions are not mixed; install the same there")
    try:
        described = json.loads(identity)
        module, _, function = described["function"].partition(":")
        function = getattr(importlib.import_module(module), function)
        start = time.perf_counter()
        value = function(**json.loads(identity)["configuration"])
        seconds = time.perf_counter() - start
        about = dict(name=name, identity=described, seconds=seconds, versions=versions)
        return Report("done", encoded=encode(value, **about))
    except (Exception, SystemExit):
        return Report("failed", traceback.format_exc())


def perform_apart(
    name: str, identity: str, versions: dict[str, str], time_limit: float | None, attempt: int
) -> Report:
    """Run a job in the process of this thread."""
    try:
        return supervised(perform, name, identity, versions, time_limit=time_limit)
    except TimeLimitError as error:
        return Report("failed", str(error))
    except ProcessDiedError as error:
        return Report("died", f"{error}\n(attempt {attempt + 1} of {ATTEMPTS})")
