"""Probes against scikit-learn at the same objective, and against what is known by arithmetic."""

import os
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from count01_lens.heads.probes import LinearSVM, NotConvergedWarning, fit_many
from count01_lens.heads.runners import head_outputs
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.tasks.dataset import make_splits

SPLITS = make_splits()
Y = SPLITS.train.labels.numpy()
TRAINED = head_outputs(example_model(), SPLITS.train).double().numpy()
UNTRAINED = head_outputs(build_model(seed=7), SPLITS.train).double().numpy()
RNG = np.random.default_rng(0)
EASY = RNG.standard_normal((400, 3)) + np.where(np.arange(400) % 2, 2.0, -2.0)[:, None]
CASES = {
    "successful head": (TRAINED[:, 2], Y),
    "failed head": (TRAINED[:, 0], Y),
    "untrained head": (UNTRAINED[:, 0], Y),
    "group of three": (UNTRAINED[:, :3].reshape(7000, -1), Y),
    "whole model": (UNTRAINED.reshape(7000, -1), Y),
    "separable": (EASY * 5, np.arange(400) % 2 == 1),
    "collapsed": (np.full((7000, 2), 3.0), Y),
    "nearly constant": (3.0 + 1e-7 * UNTRAINED[:, 1], Y),
}


def objective(w, b, X, y, *, C=1000.0, squared=True, average=False, penalise_bias=True):
    hinge = np.maximum(0, 1 - np.where(y, 1, -1) * (X @ w + b))
    losses = hinge**2 if squared else hinge
    total = losses.mean() if average else losses.sum()
    return 0.5 * w @ w + (0.5 * b * b if penalise_bias else 0) + C * total


@pytest.mark.parametrize("name", CASES)
def test_the_optimum_is_that_of_scikit_learn(name):
    X, y = CASES[name]
    ours = LinearSVM().fit(X, y)
    theirs = LinearSVC(C=1000, dual=False, tol=1e-12, max_iter=100_000).fit(X, y)
    reached = objective(ours.coef_, ours.intercept_, X, y)
    expected = objective(theirs.coef_[0], theirs.intercept_[0], X, y)
    assert reached == pytest.approx(ours.objective_, rel=1e-9)
    # scikit-learn stops a little above the optimum on separable data: ours may be lower.
    assert reached <= expected * (1 + 1e-6)
    if name != "separable":
        assert reached >= expected * (1 - 1e-5)
    assert ours.converged_
    assert ours.gradient_norm_ < 1e-9


@pytest.mark.parametrize("name", ["failed head", "group of three", "collapsed", "separable"])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("penalise_bias", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_every_reading_is_at_its_minimum(name, average, penalise_bias, loss):
    X, y = CASES[name]
    probe = LinearSVM(average=average, penalise_bias=penalise_bias, loss=loss).fit(X, y)
    assert probe.converged_
    options = dict(squared=loss == "squared_hinge", average=average, penalise_bias=penalise_bias)
    reached = objective(probe.coef_, probe.intercept_, X, y, **options)
    assert reached == pytest.approx(probe.objective_, rel=1e-8)
    rng = np.random.default_rng(1)
    for size in (1e-6, 1e-3, 1e-1, 1.0):
        for _ in range(10):
            w = probe.coef_ + size * rng.standard_normal(probe.coef_.shape)
            b = probe.intercept_ + size * rng.standard_normal()
            assert objective(w, b, X, y, **options) >= reached * (1 - 1e-8)


def test_the_plain_hinge_is_that_of_scikit_learn():
    X, y = EASY, np.arange(400) % 2 == 1
    ours = LinearSVM(loss="hinge", C=1.0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = LinearSVC(C=1.0, loss="hinge", tol=1e-10, max_iter=10**6, random_state=0).fit(X, y)
    expected = objective(theirs.coef_[0], theirs.intercept_[0], X, y, C=1.0, squared=False)
    assert ours.objective_ == pytest.approx(expected, rel=1e-5)


def test_a_problem_solved_by_hand():
    """Two points at ±1, C → ∞: the widest margin has w = 1, b = 0."""
    X, y = np.array([[1.0], [-1.0]]), np.array([True, False])
    for loss in ("squared_hinge", "hinge"):
        probe = LinearSVM(C=1e9, loss=loss).fit(X, y)
        assert probe.coef_[0] == pytest.approx(1, rel=1e-6)
        assert probe.intercept_ == pytest.approx(0, abs=1e-6)
        assert probe.score(X, y) == 1.0
        assert probe.predict(np.array([[0.2], [-3.0]])).tolist() == [True, False]


def test_one_that_did_not_converge_says_so():
    X, y = CASES["group of three"]
    with pytest.warns(NotConvergedWarning, match="did not converge in 1 steps"):
        probe = LinearSVM(max_iter=1).fit(X, y)
    assert not probe.converged_
    assert probe.gradient_norm_ > 1e-9


def test_many_at_once_are_the_same_as_one_by_one():
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    X = TRAINED.reshape(7000, -1)
    supports = np.repeat(rng.random((12, 16)) < 0.3, 2, axis=1)
    supports[~supports.any(axis=1), :2] = True
    together = fit_many(X, Y, supports)
    assert together.gradient_norms.max() < 1e-9
    test = head_outputs(example_model(), SPLITS.test).double().numpy().reshape(1500, -1)
    scores = together.scores(test, SPLITS.test.labels.numpy())
    for index, support in enumerate(supports):
        alone = LinearSVM().fit(X[:, support], Y)
        assert together.objectives[index] == pytest.approx(alone.objective_, rel=1e-9)
        assert not together.weights[index, :-1][~support].any()
        np.testing.assert_allclose(
            together.weights[index, :-1][support], alone.coef_, rtol=1e-5, atol=1e-7
        )
        expected = alone.score(test[:, support], SPLITS.test.labels.numpy())
        assert scores[index] == pytest.approx(expected, abs=2 / 1500)


def test_many_that_did_not_converge_say_so():
    X = UNTRAINED[:, :3].reshape(7000, -1)
    with pytest.warns(NotConvergedWarning, match="2 of 2 probes did not converge"):
        fits = fit_many(X, Y, np.ones((2, 6), dtype=bool), max_iter=1)
    assert (fits.gradient_norms > 1e-10).all()


def test_a_start_changes_the_way_and_not_the_end():
    X = TRAINED[:, :4].reshape(7000, -1)
    small = LinearSVM().fit(X[:, :6], Y)
    start = np.concatenate([small.coef_, [0, 0, small.intercept_]])
    cold, warm = LinearSVM().fit(X, Y), LinearSVM().fit(X, Y, start)
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-10)
    assert warm.n_iter_ < cold.n_iter_


@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=40)
def test_random_data_converge(seed, features, scale):
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((60, features))
    y = X[:, 0] + 0.5 * scale * rng.standard_normal(60) > 0
    if y.all() or not y.any():
        return
    squared = LinearSVM(C=10.0).fit(X, y)
    plain = LinearSVM(C=10.0, loss="hinge").fit(X, y)
    assert squared.converged_
    assert plain.converged_


@pytest.mark.parametrize(
    ("options", "X", "y", "message"),
    [
        ({"C": 0}, EASY, np.arange(400) % 2 == 1, "C: expected a finite number above 0"),
        ({"loss": "log"}, EASY, np.arange(400) % 2 == 1, "loss: expected 'squared_hinge'"),
        ({"average": 1}, EASY, np.arange(400) % 2 == 1, "average: expected True or False"),
        ({}, EASY, np.ones(400, dtype=bool), "both classes"),
        ({}, EASY, np.zeros(400, dtype=bool), "both classes"),
        ({}, EASY * np.nan, np.arange(400) % 2 == 1, "expected finite features"),
        ({}, EASY[:, :0], np.arange(400) % 2 == 1, "at least one feature"),
    ],
)
def test_bad_input(options, X, y, message):
    with pytest.raises(ValueError, match=message):
        LinearSVM(**options).fit(X, y)


def test_bad_supports():
    with pytest.raises(ValueError, match="supports: expected rows of 3 booleans"):
        fit_many(EASY, np.arange(400) % 2 == 1, np.zeros((1, 3), dtype=bool))
