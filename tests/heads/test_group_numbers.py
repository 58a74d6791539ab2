"""Numbers of a game, on games whose answers are known."""

import numpy as np
import pytest

from count01_lens.heads.games import shapley_values
from count01_lens.heads.group_numbers import OF_ALL, OF_ENDS, group_numbers, point_labels
from count01_lens.heads.labels import LABELS


def game(n_heads, value):
    """Values of all groups; `value` is a function of a set of heads."""
    return np.array(
        [value({h for h in range(n_heads) if mask >> h & 1}) for mask in range(2**n_heads)],
        dtype=float,
    )


def test_two_heads_that_work_only_together_and_one_that_does_nothing():
    found = group_numbers(game(3, lambda heads: 0.5 + 0.5 * ({0, 1} <= heads)))
    assert tuple(found) == (*OF_ENDS, *OF_ALL)
    assert found == pytest.approx(
        {
            "none": 0.5, "whole": 1.0, "first_gain": 0.0, "last_gain": 1 / 3,
            "mean_interaction": 1 / 6, "cooperating_pairs": 1 / 3, "redundant_pairs": 0.0,
            # (x + y + xy) / 4 of signs: two thirds by single heads, a third by the pair.
            "explained_1": 2 / 3, "explained_2": 1 / 3, "explained_3": 0.0, "heads_for_99": 2,
            "facilitating": 2, "interfering": 0, "irrelevant": 1, "undecided": 0,
        }
    )  # fmt: skip


def test_copies_and_a_head_that_harms():
    found = group_numbers(
        game(3, lambda heads: 0.5 + 0.4 * bool(heads & {0, 1}) - 0.1 * (2 in heads))
    )
    assert found["redundant_pairs"] == pytest.approx(1 / 3)
    assert found["cooperating_pairs"] == 0
    assert (found["facilitating"], found["interfering"], found["irrelevant"]) == (2, 1, 0)
    assert found["heads_for_99"] == 1  # without the one that harms


def test_a_head_that_helps_as_much_as_it_harms_is_undecided():
    values = game(2, lambda heads: {0: 0.5, 1: 0.7, 2: 0.5, 3: 0.3}[sum(1 << h for h in heads)])
    labels = point_labels(values, shapley_values(values))
    assert labels.tolist() == ["undecided", "interfering"]
    assert set(labels) <= set(LABELS)


def test_one_head_has_no_pairs():
    found = group_numbers(np.array([0.5, 1.0]))
    assert np.isnan(found["mean_interaction"])
    assert np.isnan(found["cooperating_pairs"])
    assert (found["explained_1"], found["explained_2"], found["facilitating"]) == (1, 0, 1)
