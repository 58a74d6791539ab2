"""Estimates against exact values, and how often their intervals cover them."""

import math

import numpy as np
import pytest

from count01_lens.heads.games import shapley_interactions, shapley_values
from count01_lens.heads.sampling import Estimate, sampled_interactions, sampled_shapley


def error_by_hand(drawn):
    """Of each mean, from what was drawn and two observations at either end of the range."""
    low, high, n = drawn.min(), drawn.max(), len(drawn)
    samples = [[*column, low, low, high, high] for column in drawn.T]
    return [math.sqrt(np.var(sample) * (n + 4) / (n + 3) / n) for sample in samples]


def test_sampling_estimates_the_exact_values():
    rng = np.random.default_rng(5)
    values = rng.standard_normal(2**6)

    def value(masks):
        return values[masks @ (1 << np.arange(6))]

    sampled = sampled_shapley(value, 6, n_permutations=4000, seed=1)
    errors = np.abs(sampled.values - shapley_values(values)) / sampled.standard_errors
    assert errors.max() < 5
    assert sampled.values.sum() == pytest.approx(values[-1] - values[0])
    fewer = sampled_shapley(value, 6, n_permutations=40, seed=1)
    assert (fewer.standard_errors > 3 * sampled.standard_errors).all()


def test_sampled_interactions_estimate_the_exact_ones():
    values = np.random.default_rng(6).standard_normal(2**5)

    def value(masks):
        return values[masks @ (1 << np.arange(5))]

    sampled = sampled_interactions(value, 5, n_samples=1500, seed=2)
    errors = np.abs(sampled.values - shapley_interactions(values))
    pairs = np.triu_indices(5, 1)
    assert (errors[pairs] < 5 * sampled.standard_errors[pairs]).all()
    np.testing.assert_array_equal(sampled.values, sampled.values.T)
    assert not np.diag(sampled.values).any()


def test_errors_are_those_of_a_mean_with_the_ends_of_the_range():
    values, asked = np.random.default_rng(7).standard_normal(8), []

    def value(masks):
        asked.append(masks)
        return values[masks @ (1 << np.arange(3))]

    sampled = sampled_shapley(value, 3, n_permutations=5, seed=4)
    gains = []
    assert not asked[0].any()  # what no heads are worth
    for masks in asked[1:]:  # heads come one by one
        steps = np.diff(np.concatenate([[values[0]], values[masks @ (1 << np.arange(3))]]))
        came = [int(np.flatnonzero(new)[0]) for new in np.diff(masks, axis=0, prepend=False)]
        gains.append(steps[np.argsort(came)])
    np.testing.assert_allclose(sampled.values, np.mean(gains, axis=0))
    np.testing.assert_allclose(sampled.standard_errors, error_by_hand(np.array(gains)))
    assert sampled.n_samples == 5

    asked.clear()
    sampled = sampled_interactions(value, 3, n_samples=9, seed=4)
    synergies = []
    for masks in asked:
        both, with_i, with_j, without = values[masks @ (1 << np.arange(3))].reshape(4, 9)
        synergies.append(both - with_i - with_j + without)
    pairs = np.triu_indices(3, 1)
    np.testing.assert_allclose(sampled.values[pairs], np.mean(synergies, axis=1))
    np.testing.assert_allclose(sampled.standard_errors[pairs], error_by_hand(np.array(synergies).T))
    np.testing.assert_array_equal(sampled.standard_errors, sampled.standard_errors.T)
    assert sampled.n_samples == 9


def test_estimates_follow_from_their_seed_and_have_defaults():
    values = np.random.default_rng(8).standard_normal(8)

    def value(masks):
        return values[masks @ (1 << np.arange(3))]

    default = sampled_shapley(value, 3)
    same = sampled_shapley(value, 3, n_permutations=100, seed=0)
    other = sampled_shapley(value, 3, n_permutations=100, seed=1)
    np.testing.assert_array_equal(default.values, same.values)
    assert default.n_samples == 100
    assert not np.array_equal(default.values, other.values)
    default, same, other = (
        sampled_interactions(value, 3, **options).values
        for options in ({}, {"n_samples": 50, "seed": 0}, {"n_samples": 50, "seed": 1})
    )
    np.testing.assert_array_equal(default, same)
    assert not np.array_equal(default, other)


def test_the_fewest_heads_and_samples():
    assert sampled_shapley(lambda masks: masks.sum(axis=1), 1, n_permutations=2).values
    sampled = sampled_interactions(lambda masks: masks.all(axis=1) * 1.0, 2, n_samples=2)
    assert sampled.values[0, 1] == 1.0
    for call, message in [
        (lambda: sampled_shapley(len, 0), "n_heads: expected .* at least 1"),
        (lambda: sampled_interactions(len, 1), "n_heads: expected .* at least 2"),
        (lambda: sampled_interactions(len, 2, n_samples=1), "n_samples: expected .* at least 2"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            call()


def threshold_game(votes, need):
    """Share of prompts on which the votes of a group reach what is needed, and its true indices.

    As l-acc of heads that write into the logits. The votes [prompt, head] are whole numbers, so that
    groups of each size can be counted by the sum of their votes.
    """
    n = votes.shape[1]
    worth, pairs = np.zeros(n), np.zeros((n, n))
    for row, needed in zip(votes, need, strict=True):
        for i in range(n):
            worth[i] += _expected(np.delete(row, i), needed, [row[i]])
            for j in range(i):
                rest = np.delete(row, [i, j])
                pairs[i, j] = pairs[j, i] = pairs[i, j] + _expected(rest, needed, [row[i], row[j]])
    return (
        (lambda masks: (masks @ votes.T >= need).mean(axis=1)),
        worth / len(need),
        pairs / len(need),
    )


def _expected(others, needed, added):
    """Mean of what some heads add together to a group of others, each of its sizes equally likely."""
    n, low = len(others), others.clip(max=0).sum()
    groups = np.zeros((n + 1, np.abs(others).sum() + 1))  # how many, by size and sum less `low`
    groups[0, -low] = 1
    for vote in others:
        groups[1:] += np.roll(groups[:-1], vote, axis=1)
    sums = np.arange(groups.shape[1]) + low
    total = sum(added)
    reached = (sums + total >= needed) * 1.0
    if len(added) == 2:
        reached += (
            (sums >= needed) * 1.0 - (sums + added[0] >= needed) - (sums + added[1] >= needed)
        )
    else:
        reached -= sums >= needed
    shares = [1 / (n + 1) / math.comb(n, size) for size in range(n + 1)]
    return shares @ groups @ reached


def votes_of(rng, prompts, n, *, idle=6):
    """Margins of heads, most of them for the right answer, the last few seldom more than nothing."""
    votes = np.rint(rng.normal(2, 3, (prompts, n))).astype(int)
    votes[:, n - idle :] = rng.choice([0, 0, 0, 0, 0, 0, 0, 1], (prompts, idle))
    return votes, np.rint(rng.normal(4, 6, prompts)).astype(int)


def sum_of_dividends(rng, n):
    """A few groups that are worth something only as a whole, and the true indices of heads, pairs."""
    groups = [rng.choice(n, rng.integers(1, 6), replace=False) for _ in range(12)]
    worth, pairs = np.zeros(n), np.zeros((n, n))
    amounts = rng.standard_normal(12)
    for group, amount in zip(groups, amounts, strict=True):
        worth[group] += amount / len(group)
        pairs[np.ix_(group, group)] += amount / max(len(group) - 1, 1)

    def value(masks):
        parts = [amount * masks[:, group].all(axis=1) for group, amount in zip(groups, amounts)]  # noqa: B905
        return np.sum(parts, axis=0)

    return value, worth, pairs


def games(n):
    """Games of n heads whose true indices are known: name, value, of heads, of pairs."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal(n)
    yield "additive", lambda masks: masks @ weights, weights, np.zeros((n, n))
    electors = np.array([[1] * (n - 8) + [2, 2, 2, 2, 3, 3, 8, 9]])
    yield "vote of half", *threshold_game(electors, electors.sum(axis=1) // 2 + 1)
    states = np.array([[1] * (n - 3) + [10, 12, 14]])
    yield "rare gains", *threshold_game(states, np.array([30]))
    yield "dividends", *sum_of_dividends(rng, n)
    yield "margins", *threshold_game(*votes_of(rng, 8, n))


def coverage(estimate, truth, runs):
    """How often each true value is in its interval, over seeds."""
    covered = []
    for seed in range(runs):
        low, high = estimate(seed).interval()
        covered.append((low - 1e-12 <= truth) & (truth <= high + 1e-12))
    return np.mean(covered, axis=0)


def test_the_games_whose_answers_are_known():
    rng = np.random.default_rng(0)
    rows = (np.arange(2**9)[:, None] >> np.arange(9) & 1).astype(bool)
    for name, value, worth, pairs in [
        ("margins", *threshold_game(*votes_of(rng, 3, 9, idle=3))),
        ("dividends", *sum_of_dividends(rng, 9)),
    ]:
        exact = shapley_interactions(value(rows))
        np.testing.assert_allclose(np.diag(exact), worth, atol=1e-12, err_msg=name)
        off_diagonal = ~np.eye(9, dtype=bool)
        np.testing.assert_allclose(exact[off_diagonal], pairs[off_diagonal], atol=1e-12)


# Estimates are random but seeds are fixed: these runs always give the same.
def check_coverage(n, runs, orders, groups):
    off_diagonal = np.triu_indices(n, 1)
    for name, value, worth, pairs in games(n):
        for n_permutations in orders:
            found = coverage(
                lambda seed: sampled_shapley(value, n, n_permutations=n_permutations, seed=seed),  # noqa: B023
                worth,
                runs,
            )
            print(f"{name}, {n_permutations} orders: {found.mean():.3f}, worst {found.min():.3f}")
            assert found.mean() >= 0.93, (name, n_permutations)
            # Also of the worst head, less three standard errors of a share from so few runs.
            assert found.min() >= 0.93 - 3 * math.sqrt(0.93 * 0.07 / runs), (name, n_permutations)
        for n_samples in groups:
            found = coverage(
                lambda seed: sampled_interactions(value, n, n_samples=n_samples, seed=seed),  # noqa: B023
                pairs,
                max(runs // 10, 4),
            )[off_diagonal]
            print(f"{name}, {n_samples} groups: {found.mean():.3f}")
            assert found.mean() >= 0.93, (name, n_samples)


def test_intervals_cover():
    check_coverage(20, runs=40, orders=[10, 50], groups=[20])


@pytest.mark.slow
def test_intervals_cover_with_more_heads_and_draws():
    check_coverage(24, runs=200, orders=[7, 30, 100], groups=[20, 50])


def test_a_gain_that_was_never_seen_is_not_ruled_out():
    """Each of twenty heads, all of which are needed, decides in one order of twenty: ten are drawn."""
    found = sampled_shapley(lambda masks: masks.all(axis=1) * 1.0, 20, n_permutations=10)
    assert (found.values == 0).sum() >= 10
    low, high = found.interval()
    assert ((low <= 1 / 20) & (high >= 1 / 20)).all()


def test_intervals_are_those_of_student():
    estimate = Estimate(np.array([1.0, -2.0]), np.array([0.1, 0.0]), 11)
    low, high = estimate.interval()
    np.testing.assert_allclose(low, [1 - 0.2228139, -2])  # 2.228139: the table's 97.5 % for 10
    np.testing.assert_allclose(high, [1 + 0.2228139, -2])
    low, _ = estimate.interval(0.8)
    np.testing.assert_allclose(low[0], 1 - 0.1372184, rtol=1e-6)
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match="level: expected"):
            estimate.interval(level)


def test_one_order_is_too_few():
    with pytest.raises(ValueError, match="n_permutations: expected"):
        sampled_shapley(lambda masks: masks.sum(axis=1), 3, n_permutations=1)
