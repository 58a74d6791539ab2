"""The comparison of solvers, on samples so few that every solver finds the optimum."""

import numpy as np
import pytest

import count01_lens as cl
from experiments.tools import bench_probes


def test_every_solver_finds_the_optimum_of_an_easy_problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = X[:, 0] + 0.5 * rng.standard_normal(60) > 0
    table = bench_probes.compare({"few": (X, y)}, C=10.0)
    readings = table.groupby(["average", "penalise_bias"])["solver"].apply(list).to_dict()
    theirs = {True: "LinearSVC", False: "SVC"}
    assert readings == {
        (average, penalised): ["ours", f"{name}, tol=0.001", f"{name}, tol=1e-06"]
        for average in (False, True)
        for penalised, name in theirs.items()
    }
    strict = table[table["solver"] == "ours"]
    assert (strict["excess"] < 1e-9).all()
    assert (table["excess"] >= 0).all()
    assert (table[table["solver"].str.endswith("1e-06")]["excess"] < 1e-6).all()
    assert (table["s"] >= 0).all()


@pytest.mark.parametrize("penalise_bias", [False, True])
def test_the_objective_is_computed_from_weights_alone(penalise_bias):
    X, y = np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([False, True, False, True])
    probe = cl.LinearSVM(loss="hinge", C=2.0, penalise_bias=penalise_bias).fit(X, y)
    probe.coef_, probe.intercept_ = np.array([[2.0]]), np.array([-3.0])
    # Margins 3, -1, -1, 5: two hinges of 2 each.
    expected = 2.0 + (4.5 if penalise_bias else 0.0) + 0.5 * 4
    assert bench_probes.objective(probe, X, y, 0.5, penalise_bias) == expected


def test_the_samples_are_heads_of_all_kinds_and_a_plane():
    samples = bench_probes.samples()
    assert {name: X.shape for name, (X, _) in samples.items()} == {
        "successful head": (7000, 2),
        "failed head": (7000, 2),
        "untrained head": (7000, 2),
        "three heads": (7000, 6),
        "random plane": (7000, 2),
    }
    scores = {name: cl.LinearSVM().fit(X, y).score(X, y) for name, (X, y) in samples.items()}
    assert scores["successful head"] > 0.98
    assert scores["failed head"] < 0.6


def test_every_kind_of_squared_hinges_is_timed_by_every_solver():
    table = bench_probes.squared_hinges(n_groups=2, turns=1)
    kinds = [f"groups of {size}" for size in (2, 4, 8, 12)]
    assert table["fits"].tolist() == [*kinds, "heads of a sweep"]
    ours, theirs = table["together"], table["LinearSVC, halved"]
    assert (table.drop(columns="fits") > 0).all(axis=None)
    np.testing.assert_allclose(table["over scikit-learn"], theirs / ours)
    np.testing.assert_allclose(table["over one by one"], table["one by one"] / ours)
