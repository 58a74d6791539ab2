"""The mean interaction from the groups at the ends, against all pairs from all groups."""

import numpy as np
import pytest

from count01_lens.heads.ends import EndValues, largest_groups
from count01_lens.heads.games import shapley_interactions


@pytest.mark.parametrize("n_heads", range(2, 9))
def test_it_is_the_mean_over_all_pairs_of_any_game(n_heads):
    rng = np.random.default_rng(n_heads)
    for _ in range(5):
        values = rng.normal(size=2**n_heads)
        pairs = shapley_interactions(values)[np.triu_indices(n_heads, 1)]
        assert EndValues.of_values(values).mean_interaction == pytest.approx(
            pairs.mean(), abs=1e-12
        )


def test_groups_between_the_ends_have_no_part_in_it():
    rng = np.random.default_rng(0)
    values, sizes = rng.normal(size=64), np.bitwise_count(np.arange(64))
    other = np.where((sizes >= 2) & (sizes <= 4), rng.normal(size=64), values)
    assert EndValues.of_values(values) == EndValues.of_values(other)
    means = [shapley_interactions(v)[np.triu_indices(6, 1)].mean() for v in (values, other)]
    assert means[0] == pytest.approx(means[1], abs=1e-12)


def test_what_the_first_and_the_last_head_add():
    # Two heads that work only together, with none right before: 0, 0, 0, 1.
    ends = EndValues.of_values(np.array([0.0, 0.0, 0.0, 1.0]))
    assert (ends.first_gain, ends.last_gain, ends.mean_interaction) == (0, 1, 1)
    copies = EndValues.of_values(np.array([0.5, 1.0, 1.0, 1.0]))
    assert (copies.first_gain, copies.last_gain, copies.mean_interaction) == (0.5, 0, -0.5)


def test_one_head_has_no_pair():
    ends = EndValues.of_values(np.array([0.5, 1.0]))
    assert (ends.first_gain, ends.last_gain) == (0.5, 0.5)
    assert np.isnan(ends.mean_interaction)


def test_the_largest_groups():
    assert largest_groups(3).tolist() == [
        [False, True, True], [True, False, True], [True, True, False], [True, True, True],
    ]  # fmt: skip
    assert largest_groups(1).tolist() == [[True]]
