"""Checks of arguments that several modules share; each error says expected, got, remedy."""

from typing import Any

import numpy as np


def is_int(value: Any) -> bool:
    """Whether a value is a whole number (and not a bool)."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_int(name: str, value: Any, *, at_least: int) -> None:
    """Raise unless a value is a whole number of at least `at_least`."""
    if not is_int(value) or value < at_least:
        raise ValueError(f"{name}: expected a whole number of at least {at_least}, got {value!r}")


def check_seed(seed: Any) -> None:
    """Raise unless a seed is a whole number of at least 0."""
    check_int("seed", seed, at_least=0)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless a value is one of the choices."""
    if value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}: expected {expected}, got {value!r}")


def check_number(name: str, value: Any, *, above: float | None = None) -> None:
    """Raise unless a value is a finite number, at least 0, or above a bound where one is given."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not np.isfinite(value) or (value < 0 if above is None else value <= above):
        bound = "at least 0" if above is None else f"above {above:g}"
        raise ValueError(f"{name}: expected a finite number {bound}, got {value!r}")
