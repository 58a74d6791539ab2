"""Fits side by side against scikit-learn, against the careful solver, and on any number of cores."""

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_info

from count01_lens.common.threads import workers
from count01_lens.heads import newton_together
from count01_lens.heads.newton import minimise_squared_hinge, signed_rows
from count01_lens.heads.newton_together import minimise_many_squared_hinges
from count01_lens.heads.probe_fits import fit_many

C, TOL = 1000.0, 1e-10


def overlapping(rng, n=2000, d=6):
    y = rng.random(n) < 0.4
    return rng.standard_normal((n, d)) + rng.uniform(0, 1, d) * np.where(y, 1, -1)[:, None], y


def separable(rng):
    X, y = overlapping(rng)
    X[:, 1] += np.where(y, 9, -9)
    return X, y


def badly_scaled(rng):
    X, y = overlapping(rng)
    return X * np.array([1e-4, 1, 30, 1e-2, 1, 5]), y


def duplicated(rng):
    X, y = overlapping(rng)
    X[:, 3:5] = X[:, :2]
    X[:, 5] = 0
    return X, y


def tiny(rng):
    X, _ = overlapping(rng, n=5)
    return X, np.array([True, False, True, False, False])


def far_samples_matter(rng):
    """A start whose margin is far from samples that are inside in the end."""
    X, y = separable(rng)
    X[:3, 1] *= -300
    return X, y


CASES = [overlapping, separable, badly_scaled, duplicated, tiny, far_samples_matter]


def supports_of(d=6, n=20):
    supports = np.random.default_rng(1).random((n, d)) < 0.5
    supports[0], supports[1:3] = True, np.eye(d, dtype=bool)[:2]
    supports[~supports.any(axis=1), 0] = True
    return supports


def with_bias(supports):
    return np.column_stack([supports, np.ones(len(supports), dtype=bool)])


def objective(Z, v):
    hinge = np.maximum(0, 1 - Z @ v)
    return 0.5 * v @ v + C * (hinge @ hinge)


def never(*_):
    raise AssertionError("the careful solver was asked")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("warm", [False, True])
def test_fits_side_by_side_end_where_others_do(case, warm, monkeypatch):
    rng = np.random.default_rng(7)
    X, y = case(rng)
    Z, allowed = signed_rows(X, y), with_bias(supports_of())
    start = np.where(allowed, rng.standard_normal(allowed.shape), 0) * warm
    monkeypatch.setattr(newton_together, "minimise_squared_hinge", never)
    found = minimise_many_squared_hinges(Z, np.ones(7), allowed, start.copy(), C, TOL, 200)
    assert (found.distances <= TOL).all()
    assert not found.V[~allowed].any()
    for v, reached, row in zip(found.V, found.objectives, allowed, strict=True):
        alone = minimise_squared_hinge(
            Z[:, row], np.ones(row.sum()), C, TOL, 200, np.zeros(row.sum()), 2 * C * len(Z)
        )
        assert reached == pytest.approx(alone.objective, rel=1e-9)
        np.testing.assert_allclose(v[row], alone.v, rtol=1e-4, atol=1e-6)
        theirs = LinearSVC(C=C, dual=False, tol=1e-8, max_iter=100_000).fit(X[:, row[:-1]], y)
        expected = objective(Z[:, row], np.append(theirs.coef_[0], theirs.intercept_))
        assert objective(Z, v) == pytest.approx(reached, rel=1e-10)
        assert reached <= expected * (1 + 1e-9)
        if case is not separable:  # where their tolerance leaves a fifth of a small objective
            assert reached == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_the_end_holds_for_all_samples(case):
    """The gradient and the duality gap from their definitions, with every sample."""
    X, y = case(np.random.default_rng(3))
    Z, allowed = signed_rows(X, y), with_bias(supports_of())
    V, objectives, distances, _ = minimise_many_squared_hinges(
        Z, np.ones(7), allowed, np.zeros(allowed.shape), C, TOL, 200
    )
    for v, reached, distance, row in zip(V, objectives, distances, allowed, strict=True):
        alpha = 2 * C * np.maximum(0, 1 - Z[:, row] @ v[row])
        gradient = v[row] - Z[:, row].T @ alpha
        scale = 2 * C * np.linalg.norm(Z[:, row].sum(axis=0)) + 2 * C
        dual = alpha.sum() - 0.5 * np.sum((Z[:, row].T @ alpha) ** 2) - alpha @ alpha / (4 * C)
        assert np.linalg.norm(gradient) / scale <= TOL
        assert (objective(Z, v) - dual) / reached <= 10 * TOL
        assert distance <= TOL


def test_a_sample_that_was_not_near_is_noticed(monkeypatch):
    """Blocks see samples near the start's margin only; what others do is looked at afterwards."""
    X, y = far_samples_matter(np.random.default_rng(5))
    Z, allowed = signed_rows(X, y), np.ones((1, 7), dtype=bool)
    start = np.array([[0.0, 0.2, 0, 0, 0, 0, 0]])
    seen = []
    plain = newton_together.descend

    def noted(block, *options):
        seen.append(block.rows.shape[2])
        return plain(block, *options)

    monkeypatch.setattr(newton_together, "descend", noted)
    found = minimise_many_squared_hinges(Z, np.ones(7), allowed, start, C, TOL, 200)
    again = minimise_many_squared_hinges(Z, np.ones(7), allowed, found.V, C, TOL, 200)
    assert min(seen) < len(Z)
    assert again.n_iter.tolist() == [0]
    expected = LinearSVC(C=C, dual=False, tol=1e-8, max_iter=100_000).fit(X, y)
    v = np.append(expected.coef_[0], expected.intercept_)
    assert found.objectives[0] <= objective(Z, v) * (1 + 1e-9)


@pytest.mark.parametrize("factor", [1e5, 1e9, 1e150])
def test_features_too_large_for_squares_are_left_to_the_careful_solver(factor, monkeypatch):
    X, y = overlapping(np.random.default_rng(2), n=300)
    X[:, :2] *= factor
    asked = []

    def careful(*options):
        asked.append(options)
        return minimise_squared_hinge(*options)

    monkeypatch.setattr(newton_together, "minimise_squared_hinge", careful)
    supports = np.array([[True] * 6, [False, False, True, True, True, True]])
    fits = fit_many(X, y, supports)
    assert len(asked) == 1
    assert fits.worst_gradient <= TOL
    alone = fit_many(X[:, 2:], y, supports[1:, 2:])
    np.testing.assert_allclose(fits.objectives[1], alone.objectives[0], rtol=1e-12)


@pytest.mark.parametrize("distance", [np.inf, np.nan, 1e-5])
def test_what_steps_do_not_solve_is_left_to_the_careful_solver(distance, monkeypatch):
    X, y = overlapping(np.random.default_rng(6))
    plain = newton_together.descend

    def stuck(block, V, *options):
        ended = plain(block, V, *options)
        ended.V[:], ended.n_iter[:], ended.distances[:] = np.nan, 0, distance
        return ended

    expected = fit_many(X, y, supports_of())
    monkeypatch.setattr(newton_together, "descend", stuck)
    fits = fit_many(X, y, supports_of())
    assert fits.worst_gradient <= TOL
    np.testing.assert_allclose(fits.objectives, expected.objectives, rtol=1e-9)
    np.testing.assert_allclose(fits.starts, expected.starts, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_too_few_steps_end_as_the_careful_solver_does(max_iter):
    X, y = overlapping(np.random.default_rng(0))
    Z, allowed = signed_rows(X, y), np.ones((1, 7), dtype=bool)
    scale = 2 * C * float(np.linalg.norm(Z.sum(axis=0))) + 2 * C
    found = minimise_many_squared_hinges(Z, np.ones(7), allowed, np.zeros((1, 7)), C, TOL, max_iter)
    alone = minimise_squared_hinge(Z, np.ones(7), C, TOL, max_iter, np.zeros(7), scale)
    if found.distances[0] > TOL:
        np.testing.assert_allclose(found.V[0], alone.v, rtol=1e-9)
        assert found.distances[0] == pytest.approx(alone.gradient_norm, rel=1e-6)
    assert found.n_iter[0] <= max_iter


@pytest.mark.parametrize("n_fits", [1, 20, 300])
def test_any_number_of_threads_gives_the_same_bits(n_fits):
    X, y = overlapping(np.random.default_rng(4))
    labels = y + 2 * (X[:, 2] > 1)  # four classes
    supports, before = supports_of(n=max(n_fits, 3))[:n_fits], torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(fit_many(X, labels, supports))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        np.testing.assert_array_equal(other.starts, found[0].starts)
        np.testing.assert_array_equal(other.objectives, found[0].objectives)
        np.testing.assert_array_equal(other.n_iter, found[0].n_iter)


def test_workers_have_a_thread_each_and_put_it_back():
    def blas():
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    threads, before = torch.get_num_threads(), blas()

    def fail():
        with workers() as pool:
            assert set(blas()) <= {1}
            assert list(pool.map(lambda _: torch.get_num_threads(), range(3))) == [1, 1, 1]
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (torch.get_num_threads(), blas()) == (threads, before)
