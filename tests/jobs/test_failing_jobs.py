"""Jobs that raise, die or hang cost nobody but themselves."""

import time

import pytest

from count01_lens.jobs.job import Job
from count01_lens.jobs.outcome import JobsFailedError
from count01_lens.jobs.running import run_jobs
from tests import job_functions
from tests.job_functions import calls
from tests.jobs.jobs import job, squares


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_that_raises_does_not_stop_the_others(store, log, pool, workers):
    place = {"executor": pool} if workers else {"workers": 0}
    bad = [
        job(job_functions.raises, log, 10),
        job(job_functions.leaves, log, 11),
        job(job_functions.returns_a_set, log, 12),
        Job("wrong arguments", job_functions.square, {"colour": "red"}, "1"),
    ]
    outcome = run_jobs([*bad, *squares(log)], store, **place)
    assert len(outcome.new) == 4
    reasons = {failure.job.name: failure.reason for failure in outcome.failed}
    assert "in raises\n" in reasons["raises"]
    assert "ArithmeticError: no luck with 10" in reasons["raises"]
    assert "SystemExit: leaving" in reasons["leaves"]
    assert "result['numbers']: expected plain values" in reasons["returns_a_set"]
    assert "unexpected keyword argument 'colour'" in reasons["wrong arguments"]
    with pytest.raises(JobsFailedError, match='failed: raises {.*"value":10}\nTraceback'):
        outcome.check()
    run_jobs([*bad, *squares(log)], store, **place)  # what failed is tried again, once each time
    assert calls(log) == {0: 1, 1: 1, 2: 1, 3: 1, 10: 2, 11: 2, 12: 2}


def test_a_killed_process_costs_time_and_one_killed_again_a_job_but_never_others(store, log, pool):
    once = job(job_functions.killed, log, 10, times=1)
    always = job(job_functions.killed, log, 11, times=99)
    outcome = run_jobs([once, always, *squares(log, range(6))], store, executor=pool)
    assert len(outcome.new) == 7
    assert store.load(once) == {"square": 100}
    assert [failure.job for failure in outcome.failed] == [always]
    expected = "its process died (killed by SIGKILL)\n(attempt 2 of 2)"
    assert outcome.failed[0].reason == expected
    assert calls(log) == {**dict.fromkeys(range(6), 1), 10: 2, 11: 2}


def test_a_job_that_hangs_ends_in_time(store, log, pool):
    jobs = [job(job_functions.hangs_in_c, log, 10), *squares(log)]
    start = time.monotonic()
    outcome = run_jobs(jobs, store, executor=pool, time_limit=6)
    assert time.monotonic() - start < 60
    assert len(outcome.new) == 4
    assert [failure.job for failure in outcome.failed] == jobs[:1]
    assert "took longer than 6 s; it was here:\nTimeout" in outcome.failed[0].reason
    assert "in hangs_in_c" in outcome.failed[0].reason
    assert calls(log) == {0: 1, 1: 1, 2: 1, 3: 1, 10: 1}
