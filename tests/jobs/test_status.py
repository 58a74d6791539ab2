"""How far jobs are is shown where somebody looks."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from count01_lens.jobs.job import Job
from count01_lens.jobs.outcome import Status
from count01_lens.jobs.running import run_jobs
from tests import job_functions
from tests.jobs.jobs import job, squares


def test_progress_goes_to_a_function(store, log):
    run_jobs(squares(log, [0]), store, workers=0)
    seen: list[Status] = []
    jobs = [*squares(log, range(3)), job(job_functions.raises, log, 9)]
    run_jobs(jobs, store, workers=0, progress=seen.append)
    assert (seen[0].total, seen[0].done, seen[0].failed) == (4, 1, 0)
    assert seen[0].seconds_left is None
    assert (seen[-1].done, seen[-1].failed, seen[-1].running) == (3, 1, 0)
    assert seen[-1].seconds_left == 0
    assert max(status.running for status in seen) == 1
    assert [status.done for status in seen] == sorted(status.done for status in seen)


def test_long_jobs_start_first_and_the_time_left_follows_their_costs(store, log, monkeypatch):
    def monotonic() -> float:
        return 60.0 * len(list(log.iterdir()))  # every job takes a minute

    times = SimpleNamespace(monotonic=monotonic, perf_counter=time.perf_counter)
    monkeypatch.setattr("count01_lens.jobs.running.time", times)
    jobs = [
        Job("square", job_functions.square, {"log": str(log), "value": value}, "1", cost)
        for value, cost in enumerate([1, 6, 2, 3])
    ]
    seen: list[Status] = []
    outcome = run_jobs(jobs, store, workers=0, progress=seen.append)
    assert [job.cost for job in outcome.new] == [6, 3, 2, 1]
    # Costs of 6, 9, 11 and 12 are behind us, out of 12.
    left = {status.done: status.seconds_left for status in seen}
    assert left.pop(0) is None
    # A status is shown when the next job has been started: here, when it has been run.
    assert left == pytest.approx({1: 120 * 6 / 6, 2: 180 * 3 / 9, 3: 240 * 1 / 11, 4: 0})


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (99.4, "99 s"), (99.5, "2 min"), (5940, "99 min"), (11_400, "3 h 10 min")],
)
def test_times_left_are_readable(seconds, words):
    assert (
        str(Status(3, 1, 0, 2, seconds))
        == f"1/3 jobs done, 2 running, 0 failed, about {words} left"
    )


@pytest.mark.parametrize(
    ("progress", "terminal", "expected"),
    [
        (False, True, ""),
        (False, False, ""),
        (None, False, ""),
        (None, True, "  0%|"),
        (True, True, "3/4 jobs done, 1 failed, about 0 s left ["),
        (True, False, "3/4 jobs done, 1 failed, about 0 s left\n"),
    ],
)
def test_progress_is_shown_where_somebody_looks(
    store, log, monkeypatch, progress, terminal, expected
):
    shown = io.StringIO()
    shown.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", shown)
    jobs = [*squares(log, range(3)), job(job_functions.raises, log, 9)]
    run_jobs(jobs, store, workers=0, progress=progress)
    assert expected in shown.getvalue()
    assert bool(expected) == bool(shown.getvalue())
