"""What is measured belongs together, and a ratio that fell is noticed."""

import json

import pandas as pd
import pytest

from experiments.tools import bench, bench_general, bench_scaling
from experiments.tools.bench_tables import markdown


def test_ratios_are_of_what_is_measured_and_names_are_used_once():
    names = [function.__name__ for function in (*bench.MEASUREMENTS, *bench.ON_REQUEST)]
    assert len(names) == len(set(names))
    assert all({slow, fast} <= set(names) for _, slow, fast in bench.RATIOS)
    labels = [label for label, _, _ in bench.RATIOS]
    assert len(labels) == len(set(labels))
    assert set(bench.GUARDED) <= set(labels)


def measured(monkeypatch, seconds):
    """Let each measurement take as long as it is said to, run by run."""
    asked = []

    def measure(names):
        asked.append(tuple(names))
        return {n: {"seconds": seconds[n].pop(0), "peak_mb": 5.0} for n in names}

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(bench, "RATIOS", [("twice", "slow", "fast")])
    monkeypatch.setattr(bench, "GUARDED", ("twice",))
    return asked


def test_the_spread_is_over_runs_and_a_ratio_of_one_run(monkeypatch):
    measured(monkeypatch, {"slow": [10.0, 40.0, 9.0], "fast": [5.0, 4.0, 3.0]})
    report = bench.collect(["slow", "fast"], runs=3)
    assert report["ratios"]["twice"] == {"median": 3.0, "low": 2.0, "high": 10.0}
    assert report["measurements"]["slow"] == {"seconds": 9.0, "peak_mb": 5.0}
    text = markdown(report, {"slow": "Takes long.\n\nMore.", "fast": "The same."})
    assert "| twice | 3.0 | 2.0 to 10.0 |" in text
    assert "| slow | 9 | 5 | Takes long. |" in text


@pytest.mark.parametrize(
    ("slow", "code", "n_times"),
    [([9.0], 0, 1), ([1.0, 9.0], 0, 2), ([1.0, 1.0], 1, 2), ([2.1], 0, 1)],
)
def test_the_guard_fails_on_a_third_of_the_record_twice(monkeypatch, tmp_path, slow, code, n_times):
    record = tmp_path / "bench.json"
    record.write_text(json.dumps({"ratios": {"twice": {"median": 6.0}}}))
    asked = measured(monkeypatch, {"slow": list(slow), "fast": [1.0] * len(slow)})
    assert bench.guard(record) == code
    assert asked == [("slow", "fast")] * n_times


def test_groups_by_hooks_and_by_the_library_are_the_same(monkeypatch):
    monkeypatch.setattr(bench_general, "N_HEADS", 4)
    monkeypatch.setattr(bench_general, "N_PROMPTS", 30)
    bench_general.model_and_task.cache_clear()
    try:
        for n_layers in (1, 2):
            found = bench_general._by_library(n_layers)
            assert found["largest_difference"] == 0.0
            by_hooks = bench_general._by_hooks(n_layers)
            assert len(by_hooks) == 15
            assert by_hooks.max() > by_hooks.min()  # else nothing would be compared
    finally:
        bench_general.model_and_task.cache_clear()


def test_slopes_are_of_the_last_half():
    assert bench_scaling.slope([1, 10, 100, 1000], [5, 5, 7, 700]) == 2.0
    assert bench_scaling.slope([1, 2], [8.0, 4.0]) == -1.0


def test_the_table_and_the_figure_show_every_curve():
    rows = [
        {"curve": name, "x": x, "seconds": x**curve.slope, "peak_mb": 500.0}
        for name, curve in bench_scaling.CURVES.items()
        for x in curve.values
    ]
    table = bench_scaling.table_of(pd.DataFrame(rows))
    for curve in bench_scaling.CURVES.values():
        assert f"| {curve.title} | " in table
        assert f"| {curve.slope:.2f} | {curve.slope:g} |" in table
    figure = bench_scaling.figure_of(pd.DataFrame(rows))
    titles = [axes.get_title() for axes in figure.axes]
    assert {curve.title for curve in bench_scaling.CURVES.values()} <= set(titles)


@pytest.mark.slow
@pytest.mark.parametrize("name", bench_scaling.CURVES)
def test_every_curve_can_be_measured(name):
    value = {"groups_by_heads": 3, "jobs_by_workers": 1}.get(
        name, bench_scaling.CURVES[name].values[0]
    )
    assert bench_scaling.CURVES[name].run(value) > 0
