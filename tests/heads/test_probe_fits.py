"""Fits to many subsets of features: together, one by one, and by any classifier."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from count01_lens.heads.probe_fits import (
    ClassifierFits,
    ManyFits,
    check_probe,
    fit_many,
    fit_probes,
)
from count01_lens.heads.probes import LinearSVM, NotConvergedWarning
from count01_lens.heads.runners import head_outputs
from count01_lens.models.checkpoints import example_model
from count01_lens.tasks.dataset import make_splits

SPLITS = make_splits()
Y = SPLITS.train.labels.numpy()
TRAINED = head_outputs(example_model(), SPLITS.train).double().numpy()
RNG = np.random.default_rng(0)
THREE = np.arange(300) % 3
X3 = (
    RNG.standard_normal((300, 4))
    + 2 * np.array([[0, 1], [1, -1], [-1, -1]])[THREE][:, [0, 1, 0, 1]]
)
TWO, X2 = THREE == 1, X3
SUPPORTS = np.array(
    [[True, True, True, True], [True, False, False, True], [False, True, False, False]]
)


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
            together.weights[index, :-1][support], alone.coef_[0], rtol=1e-5, atol=1e-7
        )
        expected = alone.score(test[:, support], SPLITS.test.labels.numpy())
        assert scores[index] == pytest.approx(expected, abs=2 / 1500)


def test_many_that_did_not_converge_say_so():
    X = TRAINED[:, :3].reshape(7000, -1)
    with pytest.warns(NotConvergedWarning, match="2 of 2 probes did not converge.* raise max_iter"):
        fits = fit_many(X, Y, np.ones((2, 6), dtype=bool), max_iter=1)
    assert (fits.gradient_norms > 1e-10).all()


def test_a_start_changes_the_way_and_not_the_end():
    X = TRAINED[:, :4].reshape(7000, -1)
    everything = np.ones((1, 8), dtype=bool)
    small = fit_many(X, Y, np.arange(8)[None] < 6)
    cold, warm = fit_many(X, Y, everything), fit_many(X, Y, everything, start=small.starts)
    assert warm.objectives == pytest.approx(cold.objectives, rel=1e-10)
    assert warm.n_iter[0] < cold.n_iter[0]
    again = fit_many(X, Y, everything, start=cold.starts)
    assert again.n_iter[0] == 0
    np.testing.assert_array_equal(again.weights, cold.weights)


@pytest.mark.parametrize("n_fits", [1, 64, 65, 129])
def test_any_number_of_fits_comes_back_in_order(n_fits):
    supports = np.array([[i % 2 == 0, i % 3 == 0, True, i % 5 == 0] for i in range(n_fits)])
    fits = fit_many(X2, TWO, supports)
    last = fit_many(X2, TWO, supports[-1:])
    assert fits.weights.shape == (n_fits, 5)
    assert len(fits.objectives) == len(fits.gradient_norms) == len(fits.n_iter) == n_fits
    np.testing.assert_allclose(fits.weights[-1], last.weights[0], rtol=1e-6, atol=1e-9)
    assert fits.objectives[-1] == pytest.approx(last.objectives[0], rel=1e-10)


@given(st.integers(0, 2**32), st.integers(3, 6), st.sampled_from([1e-2, 1.0, 30.0]))
@settings(max_examples=25)
def test_several_random_classes_reach_the_minimum_of_scikit_learn(seed, n_classes, C):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((80, 3)), rng.integers(n_classes, size=80)
    y[:n_classes] = np.arange(n_classes)
    X[:, 0] += y
    fits = fit_probes(X, y, np.ones((1, 3), dtype=bool), probe=LinearSVM(C=C))
    theirs = LinearSVC(C=C, dual=False, tol=1e-8, max_iter=100_000).fit(X, y)

    def objective(label, w, b):
        hinge = np.maximum(0, 1 - np.where(y == label, 1, -1) * (X @ w + b))
        return 0.5 * (w @ w + b * b) + C * (hinge @ hinge)

    found = []
    for label, row in enumerate(fits.starts[0]):
        expected = objective(label, theirs.coef_[label], theirs.intercept_[label])
        found.append(objective(label, row[:-1], row[-1]))
        assert found[-1] == pytest.approx(expected, rel=1e-6)
        assert found[-1] <= expected * (1 + 1e-9)
    assert fits.objectives[0] == pytest.approx(sum(found), rel=1e-9)


def test_a_start_outside_its_features_is_left_out():
    start = np.full((3, 1, 5), 7.0)
    fits = fit_many(X2, TWO, SUPPORTS, start=start)
    assert not fits.weights[:, :-1][~SUPPORTS].any()
    cold = fit_many(X2, TWO, SUPPORTS)
    np.testing.assert_allclose(fits.objectives, cold.objectives, rtol=1e-10)


def test_the_default_is_a_linear_svm_fitted_together():
    fits, expected = fit_probes(X2, TWO, SUPPORTS), fit_many(X2, TWO, SUPPORTS)
    assert isinstance(fits, ManyFits)
    np.testing.assert_array_equal(fits.weights, expected.weights)
    np.testing.assert_array_equal(fits.starts[:, 0], expected.weights)
    assert fits.worst_gradient == expected.gradient_norms.max() <= 1e-10
    warm = fit_probes(X2, TWO, SUPPORTS, start=expected.starts)
    assert warm.n_iter.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "together"),
    [
        ({"C": 0.5}, {"C": 0.5}),
        ({"C": 30.0, "average": True}, {"C": 30.0 / 300}),
        ({"tol": 1e-3, "max_iter": 100}, {"tol": 1e-3, "max_iter": 100}),
    ],
)
def test_other_linear_svms_are_fitted_together_too(options, together):
    fits = fit_probes(X2, TWO, SUPPORTS, probe=LinearSVM(**options))
    assert isinstance(fits, ManyFits)
    np.testing.assert_array_equal(fits.weights, fit_many(X2, TWO, SUPPORTS, **together).weights)
    for row, support in zip(fits.weights, SUPPORTS, strict=True):
        alone = LinearSVM(**options).fit(X2[:, support], TWO)
        np.testing.assert_allclose(row[:-1][support], alone.coef_[0], rtol=1e-2)


class Contrary(LinearSVM):
    """A subclass may decide otherwise than its weights say."""

    def decision_function(self, X):
        return -super().decision_function(X)


@pytest.mark.parametrize(
    "probe", [LinearSVM(loss="hinge"), LinearSVM(penalise_bias=False), Contrary()], ids=repr
)
def test_readings_that_newton_together_does_not_solve_are_fitted_one_by_one(probe):
    fits = fit_probes(X2, TWO, SUPPORTS, probe=probe)
    assert isinstance(fits, ClassifierFits)
    for column, support in zip(fits.predict(X2).T, SUPPORTS, strict=True):
        np.testing.assert_array_equal(
            column, probe.fit(X2[:, support], TWO).predict(X2[:, support])
        )
    assert (fits.weights is None) == isinstance(probe, Contrary)


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.int32])
@pytest.mark.parametrize("probe", [None, LogisticRegression(), DecisionTreeClassifier(max_depth=3)])
def test_labels_come_back_in_their_own_dtype(dtype, probe):
    labels = TWO.astype(dtype) if dtype is bool else np.where(TWO, 3, 5).astype(dtype)
    fits = fit_probes(X2, labels, SUPPORTS, probe=probe)
    predicted = fits.predict(X2)
    assert predicted.shape == (300, 3)
    assert predicted.dtype == labels.dtype
    assert set(np.unique(predicted)) == set(np.unique(labels)) == set(fits.classes)
    scores = fits.scores(X2, labels)
    np.testing.assert_array_equal(scores, (predicted == labels[:, None]).mean(axis=0))
    assert (scores[:2] > 0.9).all()


def test_a_label_that_was_never_seen_is_never_right():
    fits = fit_probes(X2, TWO.astype(int), SUPPORTS)
    assert fits.scores(X2, np.full(300, 2)).tolist() == [0, 0, 0]


def test_a_decision_of_zero_is_the_first_class():
    norms = np.zeros(1)
    fits = ManyFits(np.array([[[1.0, 0.0]]]), norms, norms, norms.astype(int), np.array([4, 5]))
    tiny = np.nextafter(0, 1)
    assert fits.predict(np.array([[-tiny], [0.0], [tiny]])).tolist() == [[4], [4], [5]]
    bias = ManyFits(np.array([[[1.0, 2.0]]]), norms, norms, norms.astype(int), np.array([4, 5]))
    assert bias.predict(np.array([[-1.9], [-2.1]])).tolist() == [[5], [4]]


def test_several_classes_are_one_against_the_rest():
    labels = np.array([20, 10, 40])[THREE]
    fits = fit_probes(X3, labels, SUPPORTS)
    assert fits.weights is None
    assert fits.weights is None
    assert fits.classes.tolist() == [10, 20, 40]
    assert fits.predict(X3).dtype == labels.dtype
    for index, support in enumerate(SUPPORTS):
        theirs = LinearSVC(C=1000, dual=False, tol=1e-12, max_iter=100_000)
        theirs.fit(X3[:, support], labels)
        np.testing.assert_allclose(
            fits.starts[index, :, :-1][:, support], theirs.coef_, rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            fits.starts[index, :, -1], theirs.intercept_, rtol=1e-4, atol=1e-5
        )
        np.testing.assert_array_equal(fits.predict(X3)[:, index], theirs.predict(X3[:, support]))
        alone = LinearSVM().fit(X3[:, support], labels)
        assert fits.objectives[index] == pytest.approx(alone.objective_, rel=1e-9)
        assert fits.scores(X3, labels)[index] == alone.score(X3[:, support], labels)
    assert fits.worst_gradient == fits.gradient_norms.max() <= 1e-10
    warm = fit_probes(X3, labels, SUPPORTS, start=fits.starts)
    assert warm.n_iter.tolist() == [0, 0, 0]


def test_of_equal_decisions_the_first_class_wins():
    norms = np.zeros(1)
    rows = np.array([[[0.0, b] for b in (1.0, 2.0, 2.0)]])
    fits = ManyFits(rows, norms, norms, norms.astype(int), np.array([4, 6, 9]))
    assert fits.predict(np.zeros((2, 1))).tolist() == [[6], [6]]


@pytest.mark.parametrize(
    "probe",
    [
        LogisticRegression(C=3.0),
        LinearSVC(),
        SVC(kernel="linear"),
        RidgeClassifier(),
        LinearSVC(fit_intercept=False),
    ],
    ids=lambda probe: " ".join(repr(probe).split()),
)
def test_a_linear_classifier_has_weights(probe):
    fits = fit_probes(X2, TWO, SUPPORTS, probe=probe)
    assert fits.weights.shape == (3, 5)
    assert not fits.weights[:, :-1][~SUPPORTS].any()
    decisions = X2 @ fits.weights[:, :-1].T + fits.weights[:, -1]
    np.testing.assert_array_equal(decisions > 0, fits.predict(X2))
    assert np.isnan(fits.worst_gradient)
    assert fits.starts is None
    assert not hasattr(probe, "coef_"), "the classifier that was given is left alone"
    assert len(fits.probes) == 3


class Scaling(ClassifierMixin, BaseEstimator):
    """Calls the weights of features that it has scaled its own."""

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(2 * X, y)
        self.classes_, self.coef_, self.intercept_ = (
            np.unique(y),
            self.inner_.coef_,
            self.inner_.intercept_,
        )
        return self

    def predict(self, X):
        return self.inner_.predict(2 * X)


class ScalingDecisions(Scaling):
    def decision_function(self, X):
        return self.inner_.decision_function(2 * X)


@pytest.mark.parametrize(
    "probe",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        SVC(kernel="rbf"),
        DecisionTreeClassifier(max_depth=2),
        DummyClassifier(),
        Scaling(),
        ScalingDecisions(),
    ],
    ids=lambda probe: " ".join(repr(probe).split()),
)
def test_where_weights_would_not_be_exact_there_are_none(probe):
    fits = fit_probes(X2, TWO, SUPPORTS, probe=probe)
    assert fits.weights is None
    expected = probe.fit(X2[:, SUPPORTS[1]], TWO).predict(X2[:, SUPPORTS[1]])
    np.testing.assert_array_equal(fits.predict(X2)[:, 1], expected)


def test_several_classes_by_any_classifier():
    fits = fit_probes(X3, THREE, SUPPORTS, probe=LogisticRegression())
    assert fits.weights is None
    assert fits.classes.tolist() == [0, 1, 2]
    expected = LogisticRegression().fit(X3[:, SUPPORTS[1]], THREE).predict(X3[:, SUPPORTS[1]])
    np.testing.assert_array_equal(fits.predict(X3)[:, 1], expected)


class NoParameters(ClassifierMixin):
    def fit(self, X, y): ...
    def predict(self, X): ...


@pytest.mark.parametrize(
    "probe",
    [
        LinearRegression(),
        LogisticRegression,
        StandardScaler(),
        "svm",
        3,
        object(),
        NoParameters(),
        make_pipeline(StandardScaler()),
    ],
    ids=lambda probe: getattr(probe, "__name__", type(probe).__name__),
)
def test_what_is_no_classifier_is_refused(probe):
    with pytest.raises(TypeError, match="probe: expected a classifier.*, got .*; give an object"):
        check_probe(probe)
    with pytest.raises(TypeError, match="probe: expected a classifier"):
        fit_probes(X2, TWO, SUPPORTS, probe=probe)


def test_a_classifier_is_returned_as_it_is():
    for probe in (LinearSVM(), LogisticRegression(), make_pipeline(StandardScaler(), SVC())):
        assert check_probe(probe) is probe


@pytest.mark.parametrize("probe", [None, LogisticRegression()])
@pytest.mark.parametrize(
    ("X", "y", "supports", "message"),
    [
        (X2, np.ones(300, dtype=bool), SUPPORTS, "of at least two classes, got bool of 1; number"),
        (X2, np.zeros(300, dtype=int), SUPPORTS, "of at least two classes, got int64 of 1; number"),
        (X2, X2[:, 0], SUPPORTS, "y: expected whole numbers or booleans .* got float64 of 300"),
        (X2 * np.nan, TWO, SUPPORTS, "X: expected finite features, got NaN"),
        (X2 * np.inf, TWO, SUPPORTS, "X: expected finite features, got NaN or infinite"),
        (X2[:, :0], TWO, SUPPORTS[:, :0], r"at least one feature .* got \[300, 0\] and \[300\]"),
        (X2, TWO, np.zeros((1, 4), dtype=bool), r"supports: expected rows of 4 booleans.* \[1, 4\]"),
        (X2, TWO, np.ones((0, 4), dtype=bool), r"supports: expected rows of 4 booleans.* \[0, 4\]"),
    ],
)  # fmt: skip
def test_bad_input(X, y, supports, message, probe):
    with pytest.raises(ValueError, match=message):
        fit_probes(X, y, supports, probe=probe)
    if probe is None:
        with pytest.raises(ValueError, match=message):
            fit_many(X, y, supports)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0}, "C: expected a finite number above 0"),
        ({"tol": 0}, "tol: expected a finite number above 0"),
        ({"max_iter": 0}, "max_iter: expected a whole number of at least 1"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        fit_many(X2, TWO, SUPPORTS, **options)
    with pytest.raises(ValueError, match=message):
        fit_probes(X2, TWO, SUPPORTS, probe=LinearSVM(**options))


def test_parameters_of_a_probe_are_checked():
    with pytest.raises(ValueError, match="average: expected True or False, got 1"):
        fit_probes(X2, TWO, SUPPORTS, probe=LinearSVM(average=1))
