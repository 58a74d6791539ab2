"""Intervals of means, by resampling what they are means of (the bootstrap)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from count01_lens.common.types import Array

N_RESAMPLES = 2000
_AT_ONCE = 250  # resamples, whose weights should fit the processor's cache
# If none of n samples shows something, up to 3/n of all may (the rule of three, at 95 %).
_RULE_OF_THREE = 3.0


class Intervals(NamedTuple):
    """Means with intervals: arrays of one entry for each quantity."""

    mean: Float[Array, " quantity"]
    low: Float[Array, " quantity"]
    high: Float[Array, " quantity"]


def simultaneous_intervals(
    samples: Float[Array, "sample quantity"], *, level: float = 0.95, seed: int = 0
) -> Intervals:
    """Give each mean an interval, so that all of them hold together with probability `level`.

    Each draw of the bootstrap gives every sample a normal weight g: mean*_q − mean_q is the mean of
    g·(sample_q − mean_q) then. The interval of quantity q is mean_q ± c·se_q, where c is the
    `level` quantile of max_q |mean*_q − mean_q| / se_q over the draws; with one quantity this is
    the usual interval. For few samples c is widened as Student's t is against the normal
    distribution. Quantities lie between −1 and 1, as differences of
    accuracies do: no interval is narrower than what the rule of three leaves open.
    """
    n = len(samples)
    mean = samples.mean(axis=0)
    if n < 2:
        endless = np.full_like(mean, np.inf)
        return Intervals(mean, -endless, endless)
    errors = samples.std(axis=0, ddof=1) / np.sqrt(n)
    varies = errors > 1e-12
    widths = np.full_like(mean, _RULE_OF_THREE / n)
    if varies.any():
        deviations = (samples - mean)[:, varies] / errors[varies]
        rng, largest = np.random.default_rng(seed), []
        for start in range(0, N_RESAMPLES, _AT_ONCE):
            draws = min(_AT_ONCE, N_RESAMPLES - start)
            weights = rng.standard_normal((draws, n)) / n
            largest.append(np.abs(weights @ deviations).max(axis=1))
        middle = (1 + level) / 2
        few = stats.t.ppf(middle, n - 1) / stats.norm.ppf(middle)
        reach = float(np.quantile(np.concatenate(largest), level) * few)
        widths[varies] = np.maximum(widths[varies], reach * errors[varies])
    return Intervals(mean, mean - widths, mean + widths)
