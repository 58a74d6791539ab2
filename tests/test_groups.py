"""All groups against one by one; Shapley values against brute force and their own axioms."""

import itertools
import math
import os

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from count01_lens.dataset import make_splits
from count01_lens.groups import (
    METRICS,
    all_groups,
    as_rows,
    sampled_interactions,
    sampled_shapley,
    shapley_interactions,
    shapley_values,
)
from count01_lens.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.heads import head_data
from count01_lens.metrics import (
    end_accuracy,
    learned_accuracy,
    roc_auc,
    separation_accuracy,
)
from count01_lens.model import ModelConfig, build_model

SPLITS = make_splits()
DATA = head_data(build_model(ModelConfig(d_embed=12, n_heads=6), seed=2), SPLITS)
GROUPS = all_groups(DATA)


def by_orders(values, n):
    """Shapley values by their definition: the mean gain over all orders of arrival."""
    gains = np.zeros(n)
    for order in itertools.permutations(range(n)):
        mask = 0
        for head in order:
            gains[head] += values[mask | 1 << head] - values[mask]
            mask |= 1 << head
    return gains / math.factorial(n)


def interactions_by_definition(values, n):
    result = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        others = [k for k in range(n) if k not in (i, j)]
        for size in range(n - 1):
            weight = math.factorial(size) * math.factorial(n - size - 2) / math.factorial(n - 1)
            for chosen in itertools.combinations(others, size):
                s = sum(1 << k for k in chosen)
                a, b = 1 << i, 1 << j
                result[i, j] += weight * (
                    values[s | a | b] - values[s | a] - values[s | b] + values[s]
                )
    return result


def test_every_group_is_there_with_its_own_metrics():
    table = GROUPS.table
    assert list(table.columns) == ["mask", "size", "l_acc", "roc_auc", "s_acc", "eos_l_acc"]
    assert table["mask"].tolist() == list(range(1, 64))
    masks = as_rows(table["mask"].to_numpy(), 6)
    assert (masks.sum(axis=1) == table["size"]).all()
    np.testing.assert_allclose(table["l_acc"], learned_accuracy(DATA, masks))
    np.testing.assert_allclose(table["roc_auc"], roc_auc(DATA, masks))
    np.testing.assert_allclose(table["eos_l_acc"], end_accuracy(DATA, masks))
    np.testing.assert_allclose(table["s_acc"], separation_accuracy(DATA, masks), atol=2 / 1500)
    assert GROUPS.worst_gradient <= 1e-10


def test_random_groups_refitted_by_scikit_learn():
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    for mask in np.random.default_rng(seed).choice(63, 6, replace=False) + 1:
        heads = [head for head in range(6) if mask >> head & 1]
        train = DATA.train_outputs[:, heads].reshape(7000, -1)
        test = DATA.test_outputs[:, heads].reshape(1500, -1)
        probe = LinearSVC(C=1000, dual=False, tol=1e-10, max_iter=100_000)
        expected = probe.fit(train, DATA.train_labels).score(test, DATA.test_labels)
        assert GROUPS.table["s_acc"][mask - 1] == pytest.approx(expected, abs=3 / 1500)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_shapley_equals_brute_force(n):
    values = np.random.default_rng(n).standard_normal(2**n)
    np.testing.assert_allclose(shapley_values(values), by_orders(values, n), atol=1e-12)
    interactions = shapley_interactions(values)
    off_diagonal = interactions - np.diag(np.diag(interactions))
    np.testing.assert_allclose(off_diagonal, interactions_by_definition(values, n), atol=1e-12)
    np.testing.assert_allclose(np.diag(interactions), shapley_values(values))


def test_axioms_of_the_values():
    rng = np.random.default_rng(1)
    v, w = rng.standard_normal(32), rng.standard_normal(32)
    assert shapley_values(v).sum() == pytest.approx(v[31] - v[0])  # efficiency
    np.testing.assert_allclose(shapley_values(2 * v + w), 2 * shapley_values(v) + shapley_values(w))
    masks = np.arange(32)
    dummy = v[masks & ~4] + 0.7 * (masks >> 2 & 1)  # head 2 adds 0.7 to any group
    assert shapley_values(dummy)[2] == pytest.approx(0.7)
    assert np.abs(np.delete(shapley_interactions(dummy)[2], 2)).max() < 1e-12
    swapped = masks & ~3 | (masks & 1) << 1 | (masks & 2) >> 1
    symmetric = v + v[swapped]
    assert shapley_values(symmetric)[0] == pytest.approx(shapley_values(symmetric)[1])


def test_axioms_of_the_interactions():
    masks = np.arange(16)
    both = ((masks & 3) == 3).astype(float)  # worth 1 if heads 0 and 1 are there
    either = ((masks & 3) > 0).astype(float)
    additive = (masks & 1) + 3.0 * (masks >> 2 & 1)
    assert shapley_interactions(both)[0, 1] == pytest.approx(1)
    assert shapley_interactions(either)[0, 1] == pytest.approx(-1)
    interactions = shapley_interactions(additive)
    assert np.abs(interactions - np.diag(np.diag(interactions))).max() < 1e-12
    np.testing.assert_allclose(interactions, interactions.T)


@pytest.mark.parametrize("metric", METRICS)
def test_efficiency_holds_for_every_metric(metric):
    values = GROUPS.values(metric)
    assert shapley_values(values).sum() == pytest.approx(values[-1] - values[0])


def test_the_controls():
    cooperative = all_groups(head_data(cooperative_model(), SPLITS))
    assert shapley_interactions(cooperative.values("s_acc"))[0, 1] > 0.4
    ensemble = all_groups(head_data(ensemble_model(3), SPLITS))
    off_diagonal = shapley_interactions(ensemble.values("s_acc"))[np.triu_indices(3, 1)]
    assert (off_diagonal < -0.2).all()
    minimal = all_groups(head_data(minimal_model(), SPLITS))
    assert len(minimal.table) == 1
    assert shapley_values(minimal.values("l_acc"))[0] == pytest.approx(1 - minimal.empty["l_acc"])


def test_sampling_estimates_the_exact_values():
    rng = np.random.default_rng(5)
    values = rng.standard_normal(2**6)

    def value(masks):
        return values[masks @ (1 << np.arange(6))]

    sampled = sampled_shapley(value, 6, empty=values[0], n_permutations=4000, seed=1)
    errors = np.abs(sampled.values - shapley_values(values)) / sampled.standard_errors
    assert errors.max() < 5
    assert sampled.values.sum() == pytest.approx(values[-1] - values[0])
    fewer = sampled_shapley(value, 6, empty=values[0], n_permutations=40, seed=1)
    assert (fewer.standard_errors > 3 * sampled.standard_errors).all()


def test_sampled_interactions_estimate_the_exact_ones():
    values = np.random.default_rng(6).standard_normal(2**5)

    def value(masks):
        return values[masks @ (1 << np.arange(5))]

    means, errors = sampled_interactions(value, 5, n_samples=1500, seed=2)
    exact = shapley_interactions(values)
    pairs = np.triu_indices(5, 1)
    assert (np.abs(means - exact)[pairs] < 5 * errors[pairs]).all()
    np.testing.assert_array_equal(means, means.T)
    assert not np.diag(means).any()


def test_too_many_heads_are_told_what_to_do():
    data = head_data(build_model(ModelConfig(d_embed=64, n_heads=64)), SPLITS)
    with pytest.raises(
        ValueError, match=r"64 heads .* use sampled_shapley and sampled_interactions"
    ):
        all_groups(data)
    sampled = sampled_shapley(
        lambda masks: learned_accuracy(data, masks), 64, empty=0.5, n_permutations=5
    )
    assert sampled.values.shape == (64,)


def test_bad_values():
    with pytest.raises(ValueError, match=r"one for each of 2\^a groups, got 5"):
        shapley_values(np.zeros(5))
    with pytest.raises(ValueError, match="n_permutations: expected"):
        sampled_shapley(lambda masks: masks.sum(axis=1), 3, empty=0.0, n_permutations=1)
