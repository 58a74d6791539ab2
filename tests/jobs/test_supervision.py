"""Processes that die, hang or are left alone."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from count01_lens.jobs.supervision import ProcessDiedError, Processes, TimeLimitError, supervised
from tests import job_functions
from tests.helpers import is_gone, within


def test_a_thread_keeps_its_process_and_the_process_ends_with_it():
    with ThreadPoolExecutor(1) as pool:
        first, second = (pool.submit(supervised, job_functions.pid).result() for _ in range(2))
        assert first == second != os.getpid()
    assert within(30, lambda: is_gone(first))


def test_a_process_killed_while_it_waits_is_replaced_or_reported():
    """The kill may come between the look whether it lives and the call: never hang, never mix up."""
    with Processes(1) as pool:
        for _ in range(3):
            os.kill(pool.submit(supervised, job_functions.pid).result(), signal.SIGKILL)
            try:
                assert pool.submit(supervised, job_functions.pid).result() > 0
            except ProcessDiedError as error:
                assert "killed by SIGKILL" in str(error)


def test_what_a_crash_says_is_passed_on(tmp_path):
    with Processes(1) as pool, pytest.raises(ProcessDiedError, match="killed by SIGSEGV") as caught:
        pool.submit(supervised, job_functions.crashes, str(tmp_path), 1).result()
    assert "in crashes" in str(caught.value)


@pytest.mark.parametrize("hang", ["sleeps", "spins", "hangs_in_c"])
def test_a_hang_ends_in_time_and_says_where(tmp_path, hang):
    start, function = time.monotonic(), getattr(job_functions, hang)
    with Processes(1) as pool:
        with pytest.raises(TimeLimitError, match="longer than 1 s") as caught:
            pool.submit(supervised, function, str(tmp_path), 1, time_limit=1).result()
        assert pool.submit(supervised, job_functions.pid).result() > 0
    assert f"in {hang}" in str(caught.value)
    assert time.monotonic() - start < 60
    assert all(is_gone(pid) for pid in job_functions.processes(tmp_path))


def test_a_process_that_cannot_keep_its_time_limit_is_ended_from_outside(tmp_path, monkeypatch):
    monkeypatch.setattr("count01_lens.jobs.supervision._GRACE", 2.0)
    with Processes(1) as pool:
        with pytest.raises(TimeLimitError, match="longer than 1 s, and could not say where"):
            pool.submit(
                supervised, job_functions.is_stopped, str(tmp_path), 1, time_limit=1
            ).result(timeout=60)
        assert pool.submit(supervised, job_functions.pid).result() > 0
    assert all(is_gone(pid) for pid in job_functions.processes(tmp_path))


@pytest.mark.parametrize(
    ("then", "time_limit", "error"),
    [("hangs", 2, TimeLimitError), ("is killed", None, ProcessDiedError)],
)
def test_helpers_end_with_their_process_and_keep_nobody_waiting(tmp_path, then, time_limit, error):
    with Processes(1) as pool:
        future = pool.submit(
            supervised, job_functions.forks, str(tmp_path), 1, then, time_limit=time_limit
        )
        assert isinstance(future.exception(timeout=60), error)
    assert len(job_functions.processes(tmp_path)) == 2
    assert within(30, lambda: all(is_gone(pid) for pid in job_functions.processes(tmp_path)))


@pytest.fixture
def helper_ends(tmp_path):
    """End what the library cannot find: processes that left the group of the one they were in."""
    yield
    for pid in job_functions.processes(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("then", "time_limit", "error", "words"),
    [
        ("hangs", 2, TimeLimitError, "in forks_away"),
        ("is killed", None, ProcessDiedError, "killed by SIGKILL"),
        ("returns", None, type(None), "None"),
    ],
)
@pytest.mark.usefixtures("helper_ends")
def test_helpers_that_leave_the_group_keep_nobody_waiting(tmp_path, then, time_limit, error, words):
    with Processes(1) as pool:
        future = pool.submit(
            supervised, job_functions.forks_away, str(tmp_path), 1, then, time_limit=time_limit
        )
        assert isinstance(future.exception(timeout=60), error)
        assert words in str(future.exception())
        assert pool.submit(supervised, job_functions.pid).result(timeout=60) > 0


@pytest.mark.usefixtures("helper_ends")
def test_stopping_does_not_wait_for_a_helper_that_left_the_group(tmp_path):
    start = time.monotonic()
    with Processes(1) as pool:
        future = pool.submit(supervised, job_functions.forks_away, str(tmp_path), 1, "hangs")
        assert within(60, lambda: job_functions.calls(tmp_path) == {1: 1})
    assert isinstance(future.exception(), ProcessDiedError)
    assert time.monotonic() - start < 60


def test_a_time_limit_ends_with_its_call():
    with Processes(1) as pool:
        first = pool.submit(supervised, job_functions.pid, time_limit=0.5).result()
        time.sleep(0.7)
        assert pool.submit(supervised, job_functions.pid).result() == first


def test_stopping_ends_what_runs_and_cancels_what_waits(tmp_path):
    with Processes(1) as pool:
        futures = [pool.submit(supervised, job_functions.sleeps, str(tmp_path), n) for n in (0, 1)]
        assert within(60, lambda: job_functions.calls(tmp_path) == {0: 1})
    assert isinstance(futures[0].exception(), ProcessDiedError)
    assert futures[1].cancelled()
    assert all(is_gone(pid) for pid in job_functions.processes(tmp_path))


def test_threads_have_processes_of_their_own():
    barrier = threading.Barrier(2)

    def both() -> int:
        barrier.wait()
        return supervised(job_functions.pid)

    with Processes(2) as pool:
        assert len({future.result() for future in [pool.submit(both), pool.submit(both)]}) == 2
