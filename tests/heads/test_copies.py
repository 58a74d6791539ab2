"""Clusters of copies: distances against scikit-learn and the labels of pairs, clusters by rule."""

import itertools

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from count01_lens.heads.copies import APART, apartness, clusters, side_by_side, unlikeness
from count01_lens.heads.labels import label_heads
from tests.known_games import BY_HAND, game, random_game


@pytest.mark.parametrize("n_answers", [2, 3, 7])
def test_unlikeness_is_one_minus_cohens_kappa(n_answers):
    rng = np.random.default_rng(n_answers)
    answers = rng.integers(0, n_answers, (80, 5))
    answers[:70, 1] = answers[:70, 0]
    answers[:, 4] = 1
    found = unlikeness(answers + 10)
    for i, j in itertools.permutations(range(5), 2):
        assert found[i, j] == pytest.approx(1 - cohen_kappa_score(answers[:, i], answers[:, j]))
    assert (np.diag(found) == 0).all()


def test_probes_that_always_give_one_answer_are_no_copies_of_each_other():
    answers = np.array([[4, 4, 5], [4, 4, 4]] * 10)
    found = unlikeness(answers)
    assert found[0, 1] == found[0, 2] == 1
    assert clusters(found, 0.1) == ()
    # An answer that is given once in ten times: agreement of 90 % is no more than chance has.
    rare = np.zeros((100, 2), dtype=int)
    rare[:10, 0] = rare[10:20, 1] = 1
    assert unlikeness(rare)[0, 1] > 1


def test_opposite_answers_are_far_apart():
    yes = np.arange(40) % 2
    assert unlikeness(np.stack([yes, 1 - yes], axis=1))[0, 1] == pytest.approx(2)


def test_close_heads_are_the_pairs_that_are_labelled_copies():
    games = [game(n, value) for n, value, _ in BY_HAND.values()]
    games += [random_game(seed) for seed in range(40)]
    seen = 0
    for values in games:
        apart = apartness(values)
        np.testing.assert_array_equal(apart, apart.T)
        close = [
            (i, j) for i, j in itertools.combinations(range(len(apart)), 2) if apart[i, j] <= APART
        ]
        assert tuple(close) == label_heads(values).copies
        seen += len(close)
    assert seen > 5


def test_heads_that_undo_each_other_are_no_copies():
    values = np.array([0.5, 0.9, 0.9, 0.5])
    assert apartness(values)[0, 1] == 1


def test_everyone_in_a_cluster_is_close_to_everyone():
    """A chain: 0 is close to 1 and 1 to 2, but 0 is not close to 2."""
    chain = np.array([[0, 0.05, 0.5], [0.05, 0, 0.08], [0.5, 0.08, 0]])
    assert clusters(chain, 0.1) == ((0, 1),)
    assert clusters(chain, 0.6) == ((0, 1, 2),)
    assert clusters(chain, 0.01) == ()
    assert clusters(np.zeros((1, 1)), 0.1) == ()
    assert side_by_side(np.zeros((1, 1))) == [0]


@pytest.mark.parametrize("seed", range(10))
def test_clusters_of_random_distances(seed):
    rng = np.random.default_rng(seed)
    points = rng.random((9, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    order = side_by_side(distances)
    assert sorted(order) == list(range(9))
    for bound in (0.1, 0.3, 0.6, 2.0):
        found = clusters(distances, bound)
        heads = [head for cluster in found for head in cluster]
        assert len(heads) == len(set(heads))
        assert [len(c) for c in found] == sorted(map(len, found), reverse=True)
        for cluster in found:
            assert distances[np.ix_(cluster, cluster)].max() <= bound
            places = sorted(order.index(head) for head in cluster)
            assert places == list(range(places[0], places[0] + len(cluster)))
        # No two clusters, or heads that stayed alone, could have been joined.
        parts = [*found, *((head,) for head in set(range(9)) - set(heads))]
        for one, other in itertools.combinations(parts, 2):
            assert distances[np.ix_(one, other)].max() > bound
