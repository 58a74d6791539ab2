"""All groups against one by one, and what heads are worth in models whose answer is known."""

import dataclasses
import math
import os

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from count01_lens.heads import groups, metrics
from count01_lens.heads.games import shapley_interactions, shapley_values
from count01_lens.heads.groups import (
    all_groups,
    as_rows,
    check_exact,
    fit_all,
    why_groups_take_long,
)
from count01_lens.heads.head_data import head_data
from count01_lens.heads.metrics import METRICS, Groups, measure_all, roc_auc
from count01_lens.heads.probe_fits import fit_probes
from count01_lens.heads.sampling import sampled_shapley
from count01_lens.models.build import build_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.dataset import make_splits
from count01_lens.tasks.prompts import Prompts, Task
from tests.helpers import TINY
from tests.views.other_tasks import two_layers_three_answers

SPLITS = make_splits()
DATA = head_data(build_model(ModelConfig(d_embed=12, n_heads=6), seed=2), SPLITS)


@pytest.fixture(scope="module")
def found():
    return all_groups(DATA)


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


def test_whether_all_groups_take_long_is_counted_not_timed():
    task = Count01(SPLITS)
    assert why_groups_take_long(DATA, task) is None
    for n, told in ((17, "17 heads have 131,071 groups"), (64, "64 heads have too many groups")):
        data = head_data(build_model(ModelConfig(d_embed=n, n_heads=n)), TINY)
        assert why_groups_take_long(data, Count01(TINY)) == told
    sixteen = head_data(build_model(ModelConfig(d_embed=16, n_heads=16)), TINY)
    assert why_groups_take_long(sixteen, Count01(TINY)) is None


def test_groups_that_have_to_be_run_are_counted_by_their_tokens():
    analysis = two_layers_three_answers()
    assert why_groups_take_long(analysis.data, analysis.task) is None
    question = analysis.task.questions["answer"]
    tokens = question.test.sequences()
    longer = Prompts(list(tokens) * 500, question.test.answers.repeat(500))
    task = Task(train=question.train, test=longer, choices=question.choices)
    told = why_groups_take_long(analysis.data, task)
    n_tokens = 500 * sum(map(len, tokens))
    assert told == f"the model has to be run on {n_tokens:,} tokens for 255 groups"
