"""Checks of arguments that several modules share; each error says expected, got, remedy.

Numbers come back as plain Python ones: NumPy's are welcome as input, but JSON has none. NumPy and
torch themselves are not imported at the top, so that configs can be made without them.
"""

import math
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from typing import Any


def is_int(value: Any) -> bool:
    """Whether a value is a whole number (and not a bool)."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_int(name: str, value: Any, *, at_least: int) -> int:
    """Raise unless a value is a whole number of at least `at_least`."""
    if not is_int(value) or value < at_least:
        raise ValueError(f"{name}: expected a whole number of at least {at_least}, got {value!r}")
    return int(value)


def check_seed(seed: Any) -> int:
    """Raise unless a seed is a whole number of at least 0."""
    return check_int("seed", seed, at_least=0)


def check_ints(name: str, values: Any, *, at_least: int) -> list[int]:
    """Raise unless values are several whole numbers of at least `at_least`."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise TypeError(f"{name}: expected several whole numbers such as [0, 1], got {values!r}")
    return [check_int(name, value, at_least=at_least) for value in values]


def check_number(name: str, value: Any, *, above: float | None = None) -> float:
    """Raise unless a value is a finite number, at least 0, or above a bound where one is given."""
    number = _as_float(value)
    if not math.isfinite(number) or (number < 0 if above is None else number <= above):
        bound = "at least 0" if above is None else f"above {above:g}"
        raise ValueError(f"{name}: expected a finite number {bound}, got {value!r}")
    return number


def _as_float(value: Any) -> float:
    """A number as a float: infinite if it is too large for one, NaN if it is no number at all."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.inf


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise unless a value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}: expected {expected}, got {value!r}")


def check_bool(name: str, value: Any) -> None:
    """Raise unless a value is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected True or False, got {value!r}")


def check_dtype(dtype: Any) -> None:
    """Raise unless a dtype is one that models are run in."""
    import torch

    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype: expected torch.float32 or torch.float64, got {dtype!r}")
