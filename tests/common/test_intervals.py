"""Intervals of means: they cover, together, as often as they say; and by hand."""

import numpy as np
import pytest
from scipy import stats

from count01_lens.common.intervals import simultaneous_intervals


def drawn(rng, n, kind):
    """Samples of ten quantities that share much with each other, and their true means."""
    common = rng.standard_normal((n, 1))
    if kind == "normal":
        return 0.4 * common + 0.3 * rng.standard_normal((n, 10)), np.zeros(10)
    shares = np.linspace(0.05, 0.5, 10)  # yes or no, as right answers are
    return (
        common + rng.standard_normal((n, 10)) < stats.norm.ppf(shares) * np.sqrt(2)
    ) * 1.0, shares


@pytest.mark.parametrize("kind", ["normal", "yes or no"])
@pytest.mark.parametrize("n", [60, 300])
def test_all_intervals_hold_together_as_often_as_they_say(kind, n):
    rng = np.random.default_rng(n)
    held, one_by_one = [], []
    for seed in range(150):
        samples, truth = drawn(rng, n, kind)
        _, low, high = simultaneous_intervals(samples, seed=seed)
        inside = (low <= truth) & (truth <= high)
        held.append(inside.all())
        one_by_one.append(inside.mean())
    # 150 trials at 95 % are between 90 % and 99 % nearly always; a few rare events cost some more.
    assert (0.86 if n == 60 else 0.9) <= np.mean(held) < 1
    assert np.mean(one_by_one) > np.mean(held)


@pytest.mark.parametrize(("n", "scale"), [(12, 1.0), (500, 0.5)])
def test_one_quantity_has_the_usual_interval(n, scale):
    samples = np.random.default_rng(0).standard_normal((n, 1)) * scale
    mean, low, high = (part[0] for part in simultaneous_intervals(samples))
    expected = stats.t.interval(0.95, n - 1, samples.mean(), stats.sem(samples[:, 0]))
    width = expected[1] - expected[0]
    assert mean == samples.mean()
    assert (low, high) == pytest.approx(expected, abs=0.06 * width)
    assert high - mean == pytest.approx(mean - low)


def test_what_no_sample_shows_may_still_be_there():
    found = simultaneous_intervals(np.zeros((300, 2)))
    assert found.low.tolist() == [-0.01, -0.01]
    assert found.high.tolist() == [0.01, 0.01]
    nothing = simultaneous_intervals(np.zeros((1, 2)))
    assert nothing.mean.tolist() == [0, 0]
    assert nothing.high.tolist() == (-nothing.low).tolist() == [np.inf, np.inf]


def test_the_same_samples_give_the_same_intervals_and_levels_widen_them():
    samples = np.random.default_rng(1).random((50, 3))
    first, again = (simultaneous_intervals(samples) for _ in range(2))
    np.testing.assert_array_equal(first.low, again.low)
    wider = simultaneous_intervals(samples, level=0.99)
    assert (wider.high > first.high).all()
