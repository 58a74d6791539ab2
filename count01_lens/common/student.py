"""Means over a few runs, such as seeds, with intervals by Student's t."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.95


class MeanInterval(NamedTuple):
    """A mean of n numbers, and its interval: None where there are fewer than two."""

    mean: float
    low: float | None
    high: float | None
    n: int


def mean_interval(values: Iterable[float], *, level: float = LEVEL) -> MeanInterval:
    """Mean with an interval of this level; numbers that are missing (NaN) are left out.

    >>> found = mean_interval([1.0, 2.0, 3.0, float("nan")])
    >>> found.mean, round(found.low, 3), round(found.high, 3), found.n
    (2.0, -0.484, 4.484, 3)
    """
    known = np.array([value for value in map(float, values) if not np.isnan(value)])
    n = len(known)
    if n < 2:
        return MeanInterval(float(known[0]) if n else float("nan"), None, None, n)
    half = stats.t.ppf((1 + level) / 2, n - 1) * known.std(ddof=1) / np.sqrt(n)
    mean = float(known.mean())
    return MeanInterval(mean, float(mean - half), float(mean + half), n)
