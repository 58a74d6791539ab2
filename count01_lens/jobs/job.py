"""A job: a function and its configuration, and the key under which its result is kept."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from count01_lens.common.storage import sha256
from count01_lens.common.validation import check_number
from count01_lens.jobs.results import canonical, plain

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Job:
    """A function of a module, to be called with a configuration.

    Args:
        name: what people call it; no part of the key.
        function: found by its name in other processes, where what it prints goes to stderr, bars
            of progress too; returns what `results.encode` can write.
        configuration: its arguments, as plain values, random seeds among them.
        code_version: change it when the function comes to compute something else.
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
        return canonical(
            {
                "format": FORMAT,
                "function": _name_of(self.function),
                "configuration": self.configuration,
                "code_version": self.code_version,
            }
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
