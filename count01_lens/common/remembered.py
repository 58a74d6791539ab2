"""Results that are worth keeping for the next time, but not for ever."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Remembered(Generic[Result]):
    """The latest results of a computation, by key; an error is none.

    >>> squares = Remembered(most=100)
    >>> squares.recall(3, lambda: 9), squares.recall(3, lambda: 0)
    (9, 9)
    """

    def __init__(self, most: int):
        self.most = most
        self.results: dict[Hashable, Result] = {}

    def recall(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return the result of this key, computed if it is not known."""
        if key in self.results:
            return self.results[key]
        result = compute()
        while len(self.results) >= self.most:
            self.results.pop(next(iter(self.results)), None)
        self.results[key] = result
        return result
