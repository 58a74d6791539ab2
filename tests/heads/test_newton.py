"""The solver at its limits: features of any size, held against the optimum in exact fractions."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

from count01_lens.heads.newton import units_of
from count01_lens.heads.probe_fits import fit_many
from count01_lens.heads.probes import LinearSVM, NotConvergedWarning


def two_heads(factor):
    """Two heads of two features each, of which the second is better, and the first larger."""
    rng = np.random.default_rng(0)
    y = rng.random(400) < 0.5
    signs = np.where(y, 1, -1)[:, None]
    large = factor * (rng.standard_normal((400, 2)) + 0.3 * signs)
    return np.hstack([large, rng.standard_normal((400, 2)) + 0.9 * signs]), y


HEADS = np.array([[True, True, False, False], [False, False, True, True]])
BOTH = np.ones((2, 4), dtype=bool)


@pytest.mark.parametrize("factor", [1e-9, 1e6, 1e9, 1e12, 1e100, 1e290])
def test_the_end_does_not_depend_on_the_start_whatever_the_units(factor):
    X, y = two_heads(factor)
    alone = fit_many(X, y, HEADS)
    warm, cold = fit_many(X, y, BOTH, start=alone.starts), fit_many(X, y, BOTH[:1])
    assert warm.worst_gradient < 1e-10
    assert warm.objectives == pytest.approx([cold.objectives[0]] * 2, rel=1e-10)
    assert LinearSVM().fit(X, y).objective_ == pytest.approx(cold.objectives[0], rel=1e-10)
    if factor < 1:
        return
    assert cold.objectives[0] < 0.95 * alone.objectives.min()
    # Weights of a head that is so large cost nothing: the probe is the same in any larger unit.
    smaller = X / np.array([factor, factor, 1, 1]) * np.array([1e6, 1e6, 1, 1])
    other = fit_many(smaller, y, BOTH[:1])
    assert cold.objectives[0] == pytest.approx(other.objectives[0], rel=1e-9)
    np.testing.assert_array_equal(warm.predict(X)[:, 1], other.predict(smaller)[:, 0])


def exact_objective(Z, v, C):
    losses = (max(Fraction(0), 1 - sum(a * b for a, b in zip(row, v, strict=True))) for row in Z)
    return sum(x * x for x in v) / 2 + C * sum(loss * loss for loss in losses)


def solved(matrix, right):
    """Gaussian elimination of a positive definite system."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(rows):
        for k, row in enumerate(rows):
            if k != i and row[i]:
                factor = row[i] / pivot[i]
                rows[k] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def exact_optimum(Z, v, C):
    """Newton's method without rounding: once no sample changes sides, this is the optimum."""
    size = range(len(v))
    for _ in range(12):
        inside = [row for row in Z if sum(a * b for a, b in zip(row, v, strict=True)) < 1]
        hessian = [
            [(i == j) + 2 * C * sum(row[i] * row[j] for row in inside) for j in size] for i in size
        ]
        new = solved(hessian, [2 * C * sum(row[i] for row in inside) for i in size])
        if inside == [row for row in Z if sum(a * b for a, b in zip(row, new, strict=True)) < 1]:
            return exact_objective(Z, new, C)
        v = [Fraction(float(x)) for x in new]
    return None


def extreme_case(rng):
    """Two heads in units of their own: ordinary, nearly dependent, far from zero, or outlying."""
    n = int(rng.integers(8, 25))
    y = rng.random(n) < 0.5
    y[:2] = [False, True]
    X = rng.standard_normal((n, 4)) + rng.uniform(0, 3, 4) * np.where(y, 1, -1)[:, None]
    match rng.integers(4):
        case 1:
            X[:, 1] = X[:, 0] + 10.0 ** rng.uniform(-6, 0) * rng.standard_normal(n)
        case 2:
            X += 10.0 ** rng.uniform(0, 5)
        case 3:
            X[rng.integers(n), rng.integers(4)] *= 10.0 ** rng.uniform(0, 8)
    return X * np.repeat(10.0 ** rng.uniform(-7, 7, 2), 2), y, 10.0 ** int(rng.integers(-2, 4))


def test_a_fit_is_at_the_exact_optimum_or_says_that_it_is_not():
    compared = warned = 0
    for seed in range(100):
        X, y, C = extreme_case(np.random.default_rng(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            alone = fit_many(X, y, HEADS, C=C)
            start = np.concatenate([alone.starts, np.zeros((1, 1, 5))])
            fits = fit_many(X, y, np.ones((3, 4), dtype=bool), start=start, C=C)
            one = LinearSVM(C=C).fit(X, y)
        found = [*zip(fits.starts[:, 0], fits.gradient_norms, strict=True)]
        found.append((np.append(one.coef_, one.intercept_), one.gradient_norm_))
        signed = np.column_stack([X, np.ones(len(X))]) * np.where(y, 1, -1)[:, None]
        Z = [list(map(Fraction, row)) for row in signed.tolist()]
        best = exact_optimum(Z, list(map(Fraction, found[-1][0].tolist())), Fraction(C))
        if best is None:
            continue
        for v, gradient_norm in found:
            excess = exact_objective(Z, list(map(Fraction, v.tolist())), Fraction(C)) / best - 1
            assert excess <= 1e-9 or gradient_norm > 1e-10, seed
            compared += 1
            warned += gradient_norm > 1e-10
    assert compared > 300
    assert warned < 0.05 * compared


def test_what_float64_cannot_reach_is_said():
    """Weights of 1e-200 have squares of zero: any that separate look like the best."""
    X, y = two_heads(1.0)
    X[:, 2] += np.where(y, 6, -6)
    with pytest.warns(NotConvergedWarning, match="or scale features"):
        fits = fit_many(X * 1e200, y, BOTH[:1])
    assert fits.worst_gradient > 1e-10
    with pytest.warns(NotConvergedWarning, match="or scale features"):
        assert not LinearSVM().fit(X * 1e200, y).converged_


def test_units_are_powers_of_two_for_large_features_only():
    largest = np.finfo(float).max
    X = np.array([[0.0, 1e-300, -1023.9, 1024.0, 1e6, -largest], [0, 0, 0, 0, 0, 1]])
    units = units_of(X)
    assert units[:4].tolist() == [1, 1, 1, 2]
    assert (np.frexp(units)[0] == 0.5).all()
    assert (np.abs(X / units).max(axis=0) <= 1024).all()
    assert (np.abs(X / units).max(axis=0)[3:] >= 512).all()


@pytest.mark.parametrize("factor", [1e3, 1e6, 1e9, 1e150])
@pytest.mark.parametrize("average", [False, True])
def test_plain_hinges_have_the_same_optimum_in_any_large_unit(factor, average):
    X, y = two_heads(1.0)
    factors = np.array([factor, factor, 1, 1])
    probe = LinearSVM(C=1.0, loss="hinge", average=average, penalise_bias=False)
    large = probe.fit(X * factors, y)
    assert large.converged_
    weights, b = large.coef_[0] * factors, float(large.intercept_[0])

    def objective(w, b):
        losses = np.maximum(0, 1 - np.where(y, 1, -1) * (X @ w + b))
        return 0.5 * w @ (w / factors**2) + (losses.mean() if average else losses.sum())

    assert large.objective_ == pytest.approx(objective(weights, b), rel=1e-9)
    rng = np.random.default_rng(1)
    for size in (1e-1, 1e-3, 1e-5):
        for _ in range(50):
            nearby = objective(weights + size * rng.standard_normal(4), b + size * rng.normal())
            assert nearby >= large.objective_ * (1 - 1e-9)


def test_plain_hinges_of_a_tiny_objective_are_solved_to_their_own_size():
    """Weights of 1e-6 have an objective of 1e-12, of which an absolute gap of 1e-10 is nothing."""
    X, y = two_heads(1.0)
    X[:, 2] += np.where(y, 6, -6)
    probe = LinearSVM(C=1.0, loss="hinge", penalise_bias=False)
    small, large = probe.fit(X, y).objective_, probe.fit(X * 1e6, y).objective_
    assert large == pytest.approx(small * 1e-12, rel=1e-6)
