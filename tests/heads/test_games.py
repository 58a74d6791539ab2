"""Indices of interaction, shares of variance and least groups by their definitions and shapiq."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import count01_lens as cl
from count01_lens.heads.games import (
    check_values,
    dividends,
    explained_by_order,
    from_dividends,
    interactions,
    interactions_by_group,
    minimal_groups,
    shapley_interactions,
    shapley_values,
    smallest_groups,
    subset_sizes,
)
from tests.known_games import INDICES, together, within


def random_values(n, seed=0):
    return np.random.default_rng([n, seed]).standard_normal(2**n)


def by_definition(values, n, order, index):
    """Sums over all groups of the others, with the weights of the papers."""
    f, result = math.factorial, np.full(2**n, np.nan)
    for group in range(1, 2**n):
        s = group.bit_count()
        if s > order:
            continue
        if index == "shapley_taylor" and s < order:
            result[group] = together(values, group, 0)
            continue
        total = 0.0
        for others in within((1 << n) - 1 & ~group):
            t = others.bit_count()
            weight = {
                "banzhaf": 2.0 ** (s - n),
                "shapley": f(t) * f(n - t - s) / f(n - s + 1),
                "shapley_taylor": order / n / math.comb(n - 1, t),
            }[index]
            total += weight * together(values, group, others)
        result[group] = total
    return result


def faithful_by_least_squares(values, n, order):
    """The polynomial of some order closest to v under Shapley's weights, exact at none and all."""
    masks = np.arange(2**n)
    groups = [group for group in range(1, 2**n) if group.bit_count() <= order]
    design = np.array([(masks & group) == group for group in groups], dtype=float).T
    inner, sizes = (masks > 0) & (masks < masks[-1]), subset_sizes(masks)
    weights = [(n - 1) / (math.comb(n, s) * s * (n - s)) for s in sizes[inner]]
    gains, whole = values - values[0], len(groups)
    # Stationary point of the Lagrangian with the constraint that all heads have their value.
    system = np.zeros((whole + 1, whole + 1))
    system[:whole, :whole] = design[inner].T @ (np.array(weights)[:, None] * design[inner])
    system[whole, :whole] = system[:whole, whole] = 1
    target = np.append(design[inner].T @ (np.array(weights) * gains[inner]), gains[-1])
    result = np.full(2**n, np.nan)
    result[groups] = np.linalg.solve(system, target)[:whole]
    return result


@pytest.mark.parametrize("index", ["shapley", "banzhaf", "shapley_taylor"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_interactions_equal_their_definitions(n, index):
    values = random_values(n)
    for order in range(1, n + 1):
        found = interactions_by_group(values, order, index)
        expected = by_definition(values, n, order, index)
        np.testing.assert_allclose(found[1:], expected[1:], atol=1e-13)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_faithful_interactions_are_the_closest_polynomial(n):
    values = random_values(n)
    for order in range(1, n):  # of order n, the system is singular: any value fits
        found = interactions_by_group(values, order, "faithful")
        expected = faithful_by_least_squares(values, n, order)
        np.testing.assert_allclose(found[1:], expected[1:], atol=1e-10)
    np.testing.assert_allclose(interactions_by_group(values, n, "faithful"), dividends(values))


@pytest.mark.parametrize("n", [3, 5, 8, 16])
def test_faithful_interactions_are_dividends_corrected(n):
    """The formula of Tsai, Yeh and Ravikumar, whose closed form is what is averaged here."""
    values = random_values(n)
    m, masks = dividends(values), np.arange(2**n)
    sizes = subset_sizes(masks)
    for order in sorted({1, 2, 3, n // 2, n - 1}):
        found = interactions_by_group(values, order, "faithful")
        for group in [0b1, 0b10, 0b101, (1 << order) - 1]:
            s = group.bit_count()
            if s > order:
                continue
            larger = masks[((masks & group) == group) & (sizes > order)]
            weights = [math.comb(t - 1, order) / math.comb(t + order - 1, order + s) for t in range(order + 1, n + 1)]  # fmt: skip
            rest = np.array(weights)[sizes[larger] - order - 1] @ m[larger]
            sign = (-1) ** (order - s) * s / (order + s) * math.comb(order, s)
            assert found[group] == pytest.approx(m[group] + sign * rest, abs=1e-9)


@pytest.mark.parametrize(
    "n", [3, 4, 5, 6, *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 8))]
)
def test_all_indices_and_orders_equal_those_of_shapiq(n):
    from shapiq.game_theory.exact import ExactComputer

    values = random_values(n, seed=1)

    def game(rows):
        return values[np.asarray(rows).astype(int) @ (1 << np.arange(n))]

    computer = ExactComputer(game, n_players=n)

    def theirs(index, order):
        found, expected = computer(index, order), np.full(2**n, np.nan)
        for heads, place in found.interaction_lookup.items():
            expected[sum(1 << head for head in heads)] = found.values[place]
        return expected

    np.testing.assert_allclose(dividends(values), theirs("Moebius", n), atol=1e-12)
    np.testing.assert_allclose(
        shapley_values(values), theirs("SV", 1)[1 << np.arange(n)], atol=1e-12
    )
    for ours, index in INDICES.items():
        for order in range(1, n + 1):
            found, expected = interactions_by_group(values, order, ours), theirs(index, order)
            # Of order 1 it writes v(∅) for no heads, of higher ones the mean, as we do always.
            start = 1 if (index, order) == ("SII", 1) else 0
            # It solves for the faithful ones with a large weight in the place of constraints.
            tolerance = 1e-7 if index == "FSII" else 1e-12
            np.testing.assert_allclose(found[start:], expected[start:], atol=tolerance)


def test_shapley_values_are_mean_gains_over_all_orders_of_arrival():
    values, gains = random_values(5), np.zeros(5)
    for order in itertools.permutations(range(5)):
        masks = np.cumsum([0, *(1 << head for head in order)])
        gains[list(order)] += np.diff(values[masks])
    np.testing.assert_allclose(shapley_values(values), gains / math.factorial(5), atol=1e-13)


@pytest.mark.parametrize("index", INDICES)
def test_a_tensor_has_the_interaction_of_the_set_of_its_heads(index):
    values = random_values(4)
    found, by_group = interactions(values, 3, index), interactions_by_group(values, 3, index)
    assert found.shape == (4, 4, 4)
    for heads in itertools.product(range(4), repeat=3):
        assert found[heads] == by_group[sum(1 << head for head in set(heads))]
    assert np.isnan(by_group[0b1111])
    assert not np.isnan(by_group[:0b1111]).any()


def test_the_short_ways():
    values = random_values(4)
    np.testing.assert_array_equal(shapley_interactions(values), interactions(values))
    np.testing.assert_allclose(np.diag(shapley_interactions(values)), shapley_values(values))
    np.testing.assert_array_equal(shapley_interactions(np.array([1.0, 3.0])), [[2.0]])


@pytest.mark.parametrize("index", INDICES)
def test_several_games_at_once(index):
    games = np.stack([[random_values(4, 2 * i + j) for j in range(3)] for i in range(2)])
    for function in (
        dividends,
        from_dividends,
        explained_by_order,
        shapley_values,
        shapley_interactions,
        lambda v: interactions(v, 3, index),
        lambda v: interactions_by_group(v, 2, index),
    ):
        together = function(games)
        for i, j in itertools.product(range(2), range(3)):
            np.testing.assert_allclose(together[i, j], function(games[i, j]), atol=1e-14)


def test_precision_does_not_go_with_the_number_of_heads():
    """Of 16 heads a million times off zero, against the definition summed in another order."""
    n, head = 16, 3
    values = 1e6 + random_values(n)
    masks = np.arange(2**n)
    without = masks[masks >> head & 1 == 0]
    weights = [math.factorial(s) * math.factorial(n - 1 - s) / math.factorial(n) for s in range(n)]
    terms = np.array(weights)[subset_sizes(without)] * (
        values[without | 1 << head] - values[without]
    )
    assert shapley_values(values)[head] == pytest.approx(math.fsum(terms), abs=1e-9)


def test_values_in_single_precision_are_worked_on_in_double_precision():
    values = (1000 + np.random.default_rng(0).random(256)).astype(np.float32)
    found, expected = dividends(values), dividends(values.astype(np.float64))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_explained_is_what_least_squares_explain(n):
    values, masks = random_values(n), np.arange(2**n)
    explained = []
    for order in range(n + 1):
        groups = [group for group in range(2**n) if group.bit_count() <= order]
        design = np.array([(masks & group) == group for group in groups], dtype=float).T
        fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
        explained.append(1 - np.var(values - fitted) / np.var(values))
    found = explained_by_order(values)
    np.testing.assert_allclose(found, np.diff(explained), atol=1e-12)
    assert found.sum() == pytest.approx(1)
    banzhaf = interactions_by_group(values, n, "banzhaf")
    sizes = subset_sizes(masks)
    for order in range(1, n + 1):
        energy = np.sum((banzhaf[sizes == order] / 2**order) ** 2)
        assert found[order - 1] == pytest.approx(energy / values.var())


def test_explained_where_the_answer_is_known():
    masks = np.arange(16)
    additive = 1e6 + 0.3 * (masks & 1) - (masks >> 2 & 1)
    np.testing.assert_allclose(explained_by_order(additive), [1, 0, 0, 0], atol=1e-12)
    parity = (subset_sizes(masks) % 2).astype(float)
    np.testing.assert_array_equal(explained_by_order(parity), [0, 0, 0, 1])
    np.testing.assert_array_equal(explained_by_order(np.full(16, 0.1)), [0, 0, 0, 0])


@given(
    st.lists(st.integers(0, 3), min_size=16, max_size=16).map(np.array),
    st.sampled_from([0.2, 0.45, 0.55, 0.99, 1.0]),
)
def test_smallest_and_minimal_groups_by_their_definition(whole_numbers, share):
    values = whole_numbers * 1.0
    reach = [m for m in range(16) if values[m] - values[0] >= share * (values[15] - values[0])]
    fewest = min(mask.bit_count() for mask in reach)
    assert smallest_groups(values, share).tolist() == [m for m in reach if m.bit_count() == fewest]
    minimal = [m for m in reach if not any(part in reach for part in within(m) if part != m)]
    assert minimal_groups(values, share).tolist() == minimal


def test_groups_that_have_just_the_share():
    values = np.array([10, 12, 19, 20]) / 20  # 19 have nine tenths of the gain from 10 to 20
    assert values[2] - values[0] < 0.9 * (values[3] - values[0])  # but for rounding
    assert smallest_groups(values, 0.9).tolist() == [0b10]
    assert minimal_groups(values, 0.9).tolist() == [0b10]
    assert smallest_groups(np.array([0.5, 0.0, 0.0, 0.4])).tolist() == [0]


BAD = [
    (np.zeros(5), r"expected one for each of 2\^a groups, got 5: 3 fewer than the 8 .* 3 heads$"),
    (np.zeros(7), r"1 fewer than the 8 .* is that of the empty group, the first, left out\?"),
    (np.zeros(1), r"got 1: 1 fewer than the 2 groups of 1 head"),
    (np.zeros(0), r"got 0: 2 fewer"),
    (np.array([1, 2, np.inf, np.nan]), r"got 2 of 4 .* NaN or infinite, first .* heads \[1\];"),
    (np.array([[0, 0, 0, 0], [1, 2, 3, np.nan]]), r"got 1 of 8 .* heads \[0, 1\];"),
]


@pytest.mark.parametrize(("values", "message"), BAD)
def test_values_that_are_no_game(values, message):
    for function in (
        check_values,
        dividends,
        from_dividends,
        explained_by_order,
        shapley_values,
        shapley_interactions,
        interactions,
    ):
        with pytest.raises(ValueError, match=f"values: .*{message}"):
            function(values)
    if values.ndim == 1:
        for function in (smallest_groups, minimal_groups):
            with pytest.raises(ValueError, match=f"values: .*{message}"):
                function(values)


def test_orders_indices_and_shares_that_there_are_not():
    values = random_values(3)
    for call, message in [
        (lambda: interactions(values, 4), "order: expected at most 3, the number of heads, got 4"),
        (lambda: interactions(values, 0), "order: expected a whole number of at least 1, got 0"),
        (lambda: interactions_by_group(values, 1.5), "order: expected a whole number"),
        (lambda: smallest_groups(values, 0), "share: expected a finite number above 0, got 0"),
        (lambda: minimal_groups(values, 1.01), "share: expected .* at most 1, got 1.01"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            call()
    with pytest.raises((ValueError, TypeError), match="'shapley' or 'banzhaf'|index"):
        interactions(values, 2, "core")
    assert check_values(values) == 3


def test_an_analysis_has_them_by_metric():
    analysis = cl.analyze_heads(cl.build_model(cl.ModelConfig(d_embed=8, n_heads=4), seed=1))
    # What cannot be answered is refused before groups are measured.
    for call, message in [
        (lambda: analysis.interactions("s_acc", order=5), "order: expected at most 4"),
        (lambda: analysis.smallest_groups("s_acc", share=2), "share: expected"),
        (lambda: analysis.dividends("accuracy"), "metric: expected 'l_acc' or"),
        (lambda: analysis.explained("accuracy"), "metric: expected 'l_acc' or"),
        (lambda: analysis.interactions("accuracy", 3), "metric: expected 'l_acc' or"),
        (lambda: analysis.smallest_groups("accuracy"), "metric: expected 'l_acc' or"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert not analysis._computed
    groups = analysis.groups().set_index("mask")["l_acc"]
    added = analysis.dividends("l_acc")
    for mask, value in groups.items():
        assert added[within(mask)].sum() == pytest.approx(value)
    values = np.append(added[0], groups)
    for index in INDICES:
        found = analysis.interactions("l_acc", 3, index)
        np.testing.assert_array_equal(found, interactions(values, 3, index))
    explained = analysis.explained("l_acc")
    assert (explained.name, explained.index.name) == ("l_acc", "order")
    assert explained.index.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(explained, explained_by_order(values))
    for share in (0.5, 0.99):
        found = analysis.smallest_groups("l_acc", share)
        masks = [sum(1 << head for head in heads) for heads in found]
        assert masks == smallest_groups(values, share).tolist()
