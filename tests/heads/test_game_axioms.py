"""What every index of interaction has to fulfil, whatever the game."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from count01_lens.heads.games import (
    dividends,
    from_dividends,
    interactions,
    interactions_by_group,
    shapley_interactions,
    shapley_values,
    subset_sizes,
)
from tests.known_games import INDICES, together

games_of_four = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=16, max_size=16).map(
    np.array
)


@given(games_of_four)
def test_dividends_and_back(values):
    found = dividends(values)
    for group in range(16):
        assert found[group] == pytest.approx(together(values, group, 0), abs=1e-12)
    np.testing.assert_allclose(from_dividends(found), values, atol=1e-12)
    np.testing.assert_allclose(dividends(from_dividends(values)), values, atol=1e-12)


@given(games_of_four, st.integers(1, 4))
def test_what_sums_to_what_all_heads_gain(values, order):
    for index in ("shapley_taylor", "faithful"):
        sums = np.nansum(interactions_by_group(values, order, index)[1:])
        assert sums == pytest.approx(values[-1] - values[0], abs=1e-11)
    assert shapley_values(values).sum() == pytest.approx(values[-1] - values[0], abs=1e-11)


@given(
    games_of_four, games_of_four, st.floats(-3, 3), st.sampled_from([*INDICES]), st.integers(1, 4)
)
def test_indices_are_linear(v, w, factor, index, order):
    both, one, other = (interactions_by_group(x, order, index) for x in (v + factor * w, v, w))
    np.testing.assert_allclose(both, one + factor * other, atol=1e-11)


@given(games_of_four, st.floats(-5, 5), st.sampled_from([*INDICES]), st.integers(1, 4))
def test_a_dummy_has_what_it_adds_and_interacts_with_nobody(values, worth, index, order):
    masks = np.arange(16)
    dummy = values[masks & ~4] + worth * (masks >> 2 & 1)
    found = interactions_by_group(dummy, order, index)
    assert found[4] == pytest.approx(worth, abs=1e-11)
    groups = masks[(masks & 4 > 0) & (masks != 4) & (subset_sizes(masks) <= order)]
    np.testing.assert_allclose(found[groups], 0, atol=1e-11)


@given(games_of_four, st.permutations(range(4)), st.sampled_from([*INDICES]), st.integers(1, 4))
def test_interactions_move_with_the_heads(values, renamed, index, order):
    """Symmetry: heads that do the same have the same, whatever their numbers."""
    masks = np.arange(16)
    moved = sum((masks >> head & 1) << new for head, new in enumerate(renamed))
    other = np.empty(16)
    other[moved] = values
    np.testing.assert_allclose(
        interactions_by_group(other, order, index)[moved],
        interactions_by_group(values, order, index),
        atol=1e-11,
    )


def test_interactions_of_heads_that_need_replace_and_ignore_each_other():
    masks = np.arange(16)
    both = ((masks & 3) == 3).astype(float)  # worth 1 if heads 0 and 1 are there
    either = ((masks & 3) > 0).astype(float)
    additive = (masks & 1) + 3.0 * (masks >> 2 & 1)
    assert shapley_interactions(both)[0, 1] == pytest.approx(1)
    assert shapley_interactions(either)[0, 1] == pytest.approx(-1)
    interactions = shapley_interactions(additive)
    assert np.abs(interactions - np.diag(np.diag(interactions))).max() < 1e-12
    np.testing.assert_allclose(interactions, interactions.T)


def test_shapley_taylor_gives_interactions_of_more_heads_to_groups_of_the_order():
    """Interaction distribution: a dividend of four heads is shared by its pairs alone."""
    alone = np.zeros(32)
    alone[0b01111] = 1.0
    found = interactions(from_dividends(alone), 2, "shapley_taylor")
    np.testing.assert_allclose(np.diag(found), 0, atol=1e-14)
    np.testing.assert_allclose(found[np.triu_indices(4, 1)], 1 / 6)
    np.testing.assert_allclose(found[4], 0, atol=1e-14)
