"""Probes against scikit-learn at the same objective, and against what is known by arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from count01_lens.heads.probes import DEFAULT_C, LinearSVM, NotConvergedWarning
from count01_lens.heads.runners import head_outputs
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.tasks.dataset import make_splits

SPLITS = make_splits()
Y = SPLITS.train.labels.numpy()
TRAINED = head_outputs(example_model(), SPLITS.train).double().numpy()
UNTRAINED = head_outputs(build_model(seed=7), SPLITS.train).double().numpy()
RNG = np.random.default_rng(0)
ODD = np.arange(400) % 2 == 1
EASY = RNG.standard_normal((400, 3)) + np.where(ODD, 2.0, -2.0)[:, None]
CASES = {
    "successful head": (TRAINED[:, 2], Y),
    "failed head": (TRAINED[:, 0], Y),
    "untrained head": (UNTRAINED[:, 0], Y),
    "group of three": (UNTRAINED[:, :3].reshape(7000, -1), Y),
    "whole model": (UNTRAINED.reshape(7000, -1), Y),
    "separable": (EASY * 5, ODD),
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
    reached = objective(ours.coef_[0], ours.intercept_[0], X, y)
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
    reached = objective(probe.coef_[0], probe.intercept_[0], X, y, **options)
    assert reached == pytest.approx(probe.objective_, rel=1e-8)
    rng = np.random.default_rng(1)
    for size in (1e-6, 1e-3, 1e-1, 1.0):
        for _ in range(10):
            w = probe.coef_[0] + size * rng.standard_normal(X.shape[1])
            b = probe.intercept_[0] + size * rng.standard_normal()
            assert objective(w, b, X, y, **options) >= reached * (1 - 1e-8)


@pytest.mark.parametrize("penalise_bias", [False, True])
def test_the_plain_hinge_is_that_of_scikit_learn(penalise_bias):
    ours = LinearSVM(loss="hinge", C=1.0, penalise_bias=penalise_bias).fit(EASY, ODD)
    if penalise_bias:
        theirs = LinearSVC(C=1.0, loss="hinge", tol=1e-10, max_iter=10**6, random_state=0)
    else:
        theirs = SVC(C=1.0, kernel="linear", tol=1e-10)
    theirs.fit(EASY, ODD)
    options = dict(C=1.0, squared=False, penalise_bias=penalise_bias)
    expected = objective(theirs.coef_[0], theirs.intercept_[0], EASY, ODD, **options)
    assert ours.objective_ == pytest.approx(expected, rel=1e-6)


def test_a_problem_solved_by_hand():
    """Two points at ±1, C → ∞: the widest margin has w = 1, b = 0."""
    X, y = np.array([[1.0], [-1.0]]), np.array([True, False])
    for loss in ("squared_hinge", "hinge"):
        probe = LinearSVM(C=1e9, loss=loss).fit(X, y)
        assert probe.coef_.shape == (1, 1)
        assert probe.coef_[0, 0] == pytest.approx(1, rel=1e-6)
        assert probe.intercept_.shape == (1,)
        assert probe.intercept_[0] == pytest.approx(0, abs=1e-6)
        assert probe.score(X, y) == 1.0
        assert probe.predict(np.array([[0.2], [-3.0]])).tolist() == [True, False]


def test_one_that_did_not_converge_says_so():
    X, y = CASES["group of three"]
    with pytest.warns(NotConvergedWarning, match="did not converge in 1 steps"):
        probe = LinearSVM(max_iter=1).fit(X, y)
    assert not probe.converged_
    assert probe.gradient_norm_ > 1e-9


@pytest.mark.parametrize("average", [False, True])
def test_what_is_left_is_relative_to_the_gradient_at_the_start(average):
    weight = 3e-4
    C = weight * len(EASY) if average else weight
    with pytest.warns(NotConvergedWarning):
        probe = LinearSVM(C=C, average=average, max_iter=1, tol=1e-30).fit(EASY, ODD)
    Z = np.column_stack([EASY, np.ones(len(EASY))]) * np.where(ODD, 1.0, -1.0)[:, None]
    v = np.append(probe.coef_[0], probe.intercept_[0])
    gradient = v - 2 * weight * Z.T @ np.maximum(1 - Z @ v, 0)
    at_start = 2 * weight * np.linalg.norm(Z.sum(axis=0))
    gap = 0.5 * gradient @ gradient / probe.objective_
    relative = np.linalg.norm(gradient) / (at_start + 2 * weight)
    assert relative > gap
    assert probe.gradient_norm_ == pytest.approx(relative, rel=1e-9)


def test_the_defaults():
    assert LinearSVM().get_params() == {
        "C": 1000.0,
        "loss": "squared_hinge",
        "average": False,
        "penalise_bias": True,
        "tol": 1e-10,
        "max_iter": 200,
    }
    assert DEFAULT_C == 1000.0


@pytest.mark.parametrize(
    "probe",
    [
        LinearSVM(),
        LinearSVM(loss="hinge"),
        LinearSVM(average=True, penalise_bias=False),
        LinearSVM(loss="hinge", average=True, penalise_bias=False),
    ],
    ids=repr,
)
def test_it_keeps_the_conventions_of_scikit_learn(probe):
    results = check_estimator(probe, on_skip=None)
    # Arrays of other libraries are looked at only where an environment variable asks for it.
    others = {result["check_name"] for result in results if result["status"] != "passed"}
    assert others <= {"check_array_api_input"}
    assert len(results) > 40


def test_it_works_in_the_tools_of_scikit_learn():
    scaled = make_pipeline(StandardScaler(), LinearSVM(C=10.0))
    assert cross_val_score(scaled, EASY, ODD, cv=3).min() > 0.9
    grid = {"C": [1e-6, 1.0], "average": [True, False], "loss": ["squared_hinge", "hinge"]}
    search = GridSearchCV(LinearSVM(), grid, cv=3).fit(EASY, ODD)
    assert (search.cv_results_["mean_test_score"] > 0.9).all()
    assert len(search.cv_results_["params"]) == 8
    assert search.best_estimator_.converged_
    copy = clone(LinearSVM(C=3.0, penalise_bias=False).fit(EASY, ODD))
    assert (copy.C, copy.penalise_bias) == (3.0, False)
    with pytest.raises(NotFittedError, match="LinearSVM instance is not fitted yet"):
        copy.predict(EASY)
    with pytest.raises(NotFittedError, match="LinearSVM instance is not fitted yet"):
        copy.decision_function(EASY)
    assert is_classifier(copy)
    assert issubclass(NotConvergedWarning, ConvergenceWarning)


@pytest.mark.parametrize("labels", [["no", "yes"], [7, 3], [-1, 1], [False, True], [0.0, 1.0]])
def test_any_two_labels(labels):
    y = np.array(labels)[ODD.astype(int)]
    probe, expected = LinearSVM().fit(EASY, y), LinearSVM().fit(EASY, ODD)
    assert probe.classes_.tolist() == sorted(labels)
    sign = 1 if labels == sorted(labels) else -1
    np.testing.assert_allclose(probe.coef_, sign * expected.coef_, rtol=1e-9)
    assert probe.predict(EASY).dtype == y.dtype
    assert (probe.predict(EASY) == y).mean() == expected.score(EASY, ODD)
    assert probe.n_features_in_ == 3
    with pytest.raises(ValueError, match="X has 2 features, but LinearSVM is expecting 3"):
        probe.predict(EASY[:, :2])


def test_a_decision_of_zero_is_the_first_class():
    probe = LinearSVM().fit(np.array([[1.0], [-1.0]]), np.array([1, 0]))
    probe.coef_, probe.intercept_ = np.array([[1.0]]), np.array([0.0])
    tiny = np.nextafter(0, 1)
    assert probe.predict(np.array([[-tiny], [0.0], [tiny]])).tolist() == [0, 0, 1]
    assert probe.decision_function(np.array([[2.0], [3.0]])).tolist() == [2.0, 3.0]


def three_classes(seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(300) % 3
    return rng.standard_normal((300, 2)) + 2 * np.array([[0, 1], [1, -1], [-1, -1]])[y], y


def test_several_classes_are_those_of_scikit_learn():
    X, y = three_classes()
    labels = np.array([10, 20, 40])[y]
    ours = LinearSVM(C=5.0).fit(X, labels)
    theirs = LinearSVC(C=5.0, dual=False, tol=1e-8, max_iter=100_000).fit(X, labels)
    assert ours.classes_.tolist() == [10, 20, 40]
    assert ours.coef_.shape == (3, 2)
    assert ours.intercept_.shape == (3,)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-5)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert 0.8 < ours.score(X, labels) < 1
    rows = [LinearSVM(C=5.0).fit(X, labels == label) for label in ours.classes_]
    assert ours.objective_ == sum(row.objective_ for row in rows)
    assert ours.gradient_norm_ == max(row.gradient_norm_ for row in rows)
    assert ours.n_iter_ == max(row.n_iter_ for row in rows)
    assert ours.converged_


def test_of_equal_decisions_the_first_class_wins():
    X, y = three_classes()
    probe = LinearSVM().fit(X, y)
    probe.coef_, probe.intercept_ = np.zeros((3, 2)), np.array([1.0, 2.0, 2.0])
    assert probe.predict(X[:2]).tolist() == [1, 1]


def test_one_class_of_several_that_did_not_converge_is_enough_to_say_so():
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 2, 2])
    with pytest.warns(NotConvergedWarning, match="did not converge in 2 steps.* raise max_iter"):
        probe = LinearSVM(max_iter=2).fit(X, y)
    assert not probe.converged_


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
        ({"C": 0}, EASY, ODD, "C: expected a finite number above 0"),
        ({"loss": "log"}, EASY, ODD, "loss: expected 'squared_hinge'"),
        ({"average": 1}, EASY, ODD, "average: expected True or False"),
        ({"penalise_bias": None}, EASY, ODD, "penalise_bias: expected True or False"),
        ({"tol": 0.0}, EASY, ODD, "tol: expected a finite number above 0"),
        ({"max_iter": 0}, EASY, ODD, "max_iter: expected a whole number of at least 1, got 0"),
        ({}, EASY, ODD | True, "at least two classes, got one class only, np.True_; give"),
        ({}, EASY, np.full(400, 3), "at least two classes, got one class only, np.int64"),
        ({}, EASY, EASY[:, 0], "Unknown label type: continuous"),
        ({}, EASY * np.nan, ODD, "Input X contains NaN"),
        ({}, EASY + np.inf, ODD, "Input X contains infinity"),
        ({}, EASY[:, :0], ODD, "Found array with 0 feature"),
        ({}, EASY, ODD[:-1], "inconsistent numbers of samples"),
    ],
)
def test_bad_input(options, X, y, message):
    with pytest.raises(ValueError, match=message):
        LinearSVM(**options).fit(X, y)


def test_a_gradient_that_rounding_alone_makes_is_no_gradient():
    """Features up to 10,000 whose bias nearly cancels them: margins are known to 1e-12 only.

    The heads of the cooperative model count like this. Its gradient cannot become smaller.
    """
    splits = make_splits()
    counts = splits.train.counts.double().numpy()
    X = 1e4 * counts[:, 1:2] / (counts[:, 1:2] + 1e-3 * counts[:, :1] + 1e-12)
    labels = splits.train.labels.numpy()
    probe = LinearSVM().fit(X, labels)  # a warning would be an error
    assert probe.converged_
    y = np.where(labels, 1.0, -1.0)

    def objective(w, b):
        hinge = np.maximum(0, 1 - y * (X[:, 0] * w + b))
        return 0.5 * (w * w + b * b) + 1000 * hinge @ hinge

    w, b = probe.coef_[0, 0], probe.intercept_[0]
    around = [
        objective(w * (1 + dw), b * (1 + db)) for dw in (-1e-6, 0, 1e-6) for db in (-1e-6, 0, 1e-6)
    ]
    assert objective(w, b) <= min(around) * (1 + 1e-12)
    with pytest.warns(NotConvergedWarning):
        LinearSVM(max_iter=1).fit(X, labels)
