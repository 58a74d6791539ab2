"""Checks of arguments that several modules share; each error says expected, got, remedy.

Numbers come back as plain Python ones: NumPy's are welcome as input, but JSON has none. NumPy and
torch themselves are not imported at the top, so that configs can be made without them.
"""

import math
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from typing import Any

LARGEST_SEED = 2**63 - 1  # tables have whole numbers of 64 bits


def is_int(value: Any) -> bool:
    """Whether a value is a whole number (and not a bool)."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_int(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """Raise unless a value is a whole number of at least `at_least`, and not above a bound."""
    if not is_int(value) or value < at_least or (at_most is not None and value > at_most):
        bound = f"of at least {at_least}" if at_most is None else f"from {at_least} to {at_most:,}"
        raise ValueError(f"{name}: expected a whole number {bound}, got {value!r}")
    return int(value)


def check_seed(seed: Any) -> int:
    """Raise unless a seed is a whole number of at least 0 that tables can hold."""
    return check_int("seed", seed, at_least=0, at_most=LARGEST_SEED)


def check_ints(name: str, values: Any, *, at_least: int, at_most: int | None = None) -> list[int]:
    """Raise unless values are several whole numbers of at least `at_least`, none above a bound."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise TypeError(f"{name}: expected several whole numbers such as [0, 1], got {values!r}")
    return [check_int(name, value, at_least=at_least, at_most=at_most) for value in values]


def check_seeds(seeds: Any) -> list[int]:
    """Raise unless seeds are several whole numbers of at least 0 that tables can hold."""
    return check_ints("seeds", seeds, at_least=0, at_most=LARGEST_SEED)


def check_number(
    name: str, value: Any, *, above: float | None = None, at_most: float = math.inf
) -> float:
    """Raise unless a value is a finite number within bounds: at least 0, or above another one."""
    number = _as_float(value)
    too_low = number < 0 if above is None else number <= above
    if not math.isfinite(number) or too_low or number > at_most:
        bound = "at least 0" if above is None else f"above {above:g}"
        bound += f" and at most {at_most:,.0f}" if at_most < math.inf else ""
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


def check_default_device() -> None:
    """Raise unless tensors are made on the CPU where no device is given."""
    import torch

    if (device := torch.get_default_device()).type != "cpu":
        raise ValueError(
            f"torch's default device: expected 'cpu', on which this library works, got '{device}'; "
            "call torch.set_default_device('cpu') (models may stay on any device)"
        )
