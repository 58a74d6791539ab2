"""All groups against one by one; Shapley values against brute force and their own axioms."""

import dataclasses
import itertools
import math
import os

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from count01_lens.heads import groups, metrics
from count01_lens.heads.games import shapley_interactions, shapley_values
from count01_lens.heads.groups import all_groups, as_rows, check_exact, fit_all
from count01_lens.heads.head_data import head_data
from count01_lens.heads.metrics import METRICS, Groups, measure_all, roc_auc
from count01_lens.heads.probe_fits import fit_probes
from count01_lens.heads.sampling import sampled_interactions, sampled_shapley
from count01_lens.models.build import build_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.tasks.dataset import make_splits

SPLITS = make_splits()
DATA = head_data(build_model(ModelConfig(d_embed=12, n_heads=6), seed=2), SPLITS)


@pytest.fixture(scope="module")
def found():
    return all_groups(DATA)


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


def test_every_group_is_there_with_its_own_metrics(found):
    table = found.table
    assert list(table.columns) == ["mask", "size", "l_acc", "roc_auc", "s_acc", "eos_l_acc"]
    assert table["mask"].tolist() == list(range(1, 64))
    masks = as_rows(table["mask"].to_numpy(), 6)
    assert (masks.sum(axis=1) == table["size"]).all()
    alone = Groups(DATA, masks)
    np.testing.assert_allclose(table["l_acc"], alone.accuracy["answer"])
    np.testing.assert_allclose(table["roc_auc"], roc_auc(alone))
    np.testing.assert_allclose(table["eos_l_acc"], alone.accuracy["end"])
    np.testing.assert_allclose(table["s_acc"], alone.probe_accuracy, atol=2 / 1500)
    assert found.worst_gradient <= 1e-10


def test_a_fit_starts_from_the_best_group_with_one_head_less(monkeypatch):
    data = head_data(build_model(ModelConfig(d_embed=8, n_heads=4), seed=2), SPLITS)
    known = {(): (np.inf, np.zeros(9))}

    def noted(X, y, supports, *, probe, start):
        fits = fit_probes(X, y, supports, probe=probe, start=start)
        starts = np.zeros_like(fits.weights) if start is None else start[:, 0]
        for support, begun, weights, objective in zip(
            supports, starts, fits.weights, fits.objectives, strict=True
        ):
            heads = tuple(np.flatnonzero(support.reshape(4, -1).all(axis=1)))
            smaller = [known[tuple(h for h in heads if h != left)] for left in heads]
            np.testing.assert_array_equal(begun, min(smaller, key=lambda pair: pair[0])[1])
            known[heads] = objective, weights
        return fits

    monkeypatch.setattr(metrics, "fit_probes", noted)
    all_groups(data)
    assert len(known) == 16


def test_no_group_is_fitted_twice(monkeypatch):
    fitted = []

    def noted(X, y, supports, **options):
        fitted.extend(map(tuple, supports))
        return fit_probes(X, y, supports, **options)

    monkeypatch.setattr(metrics, "fit_probes", noted)
    all_groups(head_data(ensemble_model(3), SPLITS))
    assert len(fitted) == len(set(fitted)) == 7


def test_probes_that_are_fitted_already_are_not_fitted_again(monkeypatch):
    masks = as_rows(np.arange(1, 4), 6)
    first = Groups(DATA, masks)
    fits, expected = first.fits, measure_all(first)
    monkeypatch.setattr(metrics, "fit_probes", None)
    found = measure_all(Groups(DATA, masks, fits=fits))
    assert list(found) == list(METRICS)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_of_probes_of_other_kinds_nobody_knows_the_gradient():
    data = dataclasses.replace(head_data(cooperative_model(), SPLITS), probe=LogisticRegression())
    found = all_groups(data)
    assert math.isnan(found.worst_gradient)
    expected = [
        LogisticRegression()
        .fit(data.train_outputs[:, heads, 0], data.train_labels)
        .score(data.test_outputs[:, heads, 0], data.test_labels)
        for heads in ([0], [1], [0, 1])
    ]
    assert found.table["s_acc"].tolist() == expected


@pytest.mark.parametrize(("asked", "shown"), [({}, False), ({"progress": None}, None)])
def test_progress_is_shown_only_if_asked_for(monkeypatch, asked, shown):
    seen = []
    monkeypatch.setattr(groups, "track", lambda items, *rest: seen.append(rest) or items)
    all_groups(head_data(minimal_model(), SPLITS), **asked)
    assert seen == [(1, "fitting all groups", shown)]
    fit_all(head_data(minimal_model(), SPLITS), np.ones((1, 1), dtype=bool))
    assert seen[-1] == (1, "fitting all groups", False)


def test_random_groups_refitted_by_scikit_learn(found):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    for mask in np.random.default_rng(seed).choice(63, 6, replace=False) + 1:
        heads = [head for head in range(6) if mask >> head & 1]
        train = DATA.train_outputs[:, heads].reshape(7000, -1)
        test = DATA.test_outputs[:, heads].reshape(1500, -1)
        probe = LinearSVC(C=1000, dual=False, tol=1e-10, max_iter=100_000)
        expected = probe.fit(train, DATA.train_labels).score(test, DATA.test_labels)
        assert found.table["s_acc"][mask - 1] == pytest.approx(expected, abs=3 / 1500)


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
def test_efficiency_holds_for_every_metric(found, metric):
    values = found.values(metric)
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


def test_errors_of_estimates_are_those_of_a_mean():
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
    expected = np.std(gains, axis=0, ddof=1) / np.sqrt(5)
    np.testing.assert_allclose(sampled.standard_errors, expected)
    assert sampled.n_samples == 5

    asked.clear()
    sampled = sampled_interactions(value, 3, n_samples=9, seed=4)
    both, with_i, with_j, without = values[asked[0] @ (1 << np.arange(3))].reshape(4, 9)
    synergy = both - with_i - with_j + without
    assert synergy.std() > 0
    assert sampled.values[0, 1] == pytest.approx(synergy.mean())
    errors = sampled.standard_errors
    assert errors[0, 1] == errors[1, 0] == pytest.approx(synergy.std(ddof=1) / 3)
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


def test_the_largest_number_of_heads():
    assert check_exact(18) is None
    with pytest.raises(ValueError, match="19 heads"):
        check_exact(19)


def test_too_many_heads_are_told_what_to_do():
    data = head_data(build_model(ModelConfig(d_embed=64, n_heads=64)), SPLITS)
    with pytest.raises(
        ValueError, match=r"64 heads .* use analysis.sampled_shapley and .sampled_interactions"
    ):
        all_groups(data)
    sampled = sampled_shapley(
        lambda masks: Groups(data, masks).accuracy["answer"], 64, n_permutations=5
    )
    assert sampled.values.shape == (64,)


def test_bad_values():
    with pytest.raises(ValueError, match=r"one for each of 2\^a groups, got 5"):
        shapley_values(np.zeros(5))
    with pytest.raises(ValueError, match="n_permutations: expected"):
        sampled_shapley(lambda masks: masks.sum(axis=1), 3, n_permutations=1)
