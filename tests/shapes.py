"""Check array annotations at run time, and only these.

Wrong types of other arguments must reach the library's own checks: their messages are tested.
"""

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function with beartype, every annotation without an array replaced by Any."""
    function.__annotations__ = {
        name: annotation if _holds_array(annotation) else Any
        for name, annotation in function.__annotations__.items()
    }
    return beartype(function)


def _holds_array(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, AbstractArray):
        return True
    return any(_holds_array(part) for part in get_args(annotation))
