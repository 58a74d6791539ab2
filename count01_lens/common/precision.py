"""Which precision results are computed in."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in: half precision has too few digits to add up many tokens."""
    return torch.promote_types(dtype, torch.float32)


def without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Compute in the dtype of the numbers, also where somebody has torch round products."""

    @wraps(function)
    def precise(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.is_autocast_enabled("cpu"):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return function(*args, **kwargs)

    return precise
