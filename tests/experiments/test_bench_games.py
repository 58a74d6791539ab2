"""The comparison with shapiq: both are asked the same, about the groups of a real model."""

import numpy as np
import pytest

import count01_lens as cl
from count01_lens.heads.games import dividends, interactions_by_group
from experiments.tools import bench, bench_games


@pytest.fixture
def small(monkeypatch):
    values = np.random.default_rng(0).standard_normal(2**5)
    monkeypatch.setattr(bench_games, "HEADS", 5)
    monkeypatch.setattr(bench_games, "table", lambda: values)
    return values


def test_every_measurement_runs_and_finds_the_same(small):
    found = {measure.__name__: measure() for measure in bench_games.MEASUREMENTS}
    assert all(result["seconds"] > 0 for result in found.values())
    off = {name: result["largest_difference"] for name, result in found.items() if "by" in name}
    assert len(off) == 4
    assert max(off.values()) < 1e-12


def test_a_difference_would_be_seen(small):
    assert bench_games._shapiq("SII", 2, 1.5 * interactions_by_group(small, 2))[
        "largest_difference"
    ] == pytest.approx(0.5 * np.nanmax(np.abs(interactions_by_group(small, 2)[1:])))
    assert bench_games._shapiq("Moebius", 5, dividends(-small))["largest_difference"] > 1


@pytest.mark.slow
def test_the_table_has_the_groups_of_the_example_model():
    values, model, test = bench_games.table(), cl.example_model(), cl.make_splits().test
    assert values.shape == (2**16,)
    written = cl.head_logits(model, test, at="=").double()
    for mask in (0, 1, 0b1000_0000_0011_0000, 2**16 - 1):
        heads = [head for head in range(16) if mask >> head & 1]
        logits = written[:, heads].sum(dim=1) + model.b_U
        says_four = logits[:, cl.Token.FOUR] > logits[:, cl.Token.FIVE]
        assert values[mask] == (says_four == test.labels).double().mean()


def test_they_are_part_of_the_bench():
    names = {measure.__name__ for measure in bench.MEASUREMENTS}
    assert {name for _, *pair in bench_games.RATIOS for name in pair} == {
        measure.__name__ for measure in bench_games.MEASUREMENTS
    }
    assert all({slow, fast} <= names for _, slow, fast in bench.RATIOS)
