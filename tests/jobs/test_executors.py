"""Jobs on executors that break, lose jobs, or have other libraries."""

import multiprocessing
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

from count01_lens.common.versions import library_versions
from count01_lens.jobs.job import Job, Report, perform
from count01_lens.jobs.outcome import JobsFailedError
from count01_lens.jobs.running import run_jobs
from tests import job_functions
from tests.helpers import is_gone, within
from tests.job_functions import calls, processes
from tests.jobs.jobs import job, loaded, squares


class BrokenExecutor(Executor):
    """Breaks with the second job."""

    def __init__(self) -> None:
        self.future: Future[object] | None = None

    def submit(self, function, /, *arguments, **more):
        if self.future is not None:
            if not self.future.done():
                self.future.set_exception(BrokenProcessPool("a worker died"))
            raise BrokenProcessPool("a worker died before")
        self.future = Future()
        return self.future


def test_an_executor_that_breaks_leaves_jobs_and_blames_none(store, log):
    jobs = squares(log)
    outcome = run_jobs(jobs, store, executor=BrokenExecutor())
    assert not outcome.failed
    assert {job.key for job in outcome.left} == {job.key for job in jobs}
    assert len(outcome.left) == 4
    assert "a worker died" in outcome.broken
    assert "4 jobs not run, because the executor broke: Broken" in str(outcome)
    with pytest.raises(JobsFailedError, match="4 jobs not run"):
        outcome.check()
    assert len(run_jobs(jobs, store, workers=0).new) == 4


class LosingExecutor(Executor):
    """Loses every job, as Dask does with one whose workers die."""

    def submit(self, function, /, *arguments, **more):
        future: Future[object] = Future()
        future.set_exception(ConnectionError("three workers died"))
        return future


def test_jobs_that_an_executor_loses_are_tried_again_and_named_together(store, log):
    outcome = run_jobs(squares(log), store, executor=LosingExecutor())
    assert len(outcome.failed) == 4
    assert not outcome.left
    text = str(outcome)
    assert text.count("the executor lost it") == 1
    assert "(and 3 more in the same way)" in text
    assert "three workers died" in text


class LyingExecutor(Executor):
    """Does each job, and then gives something else than its report."""

    def __init__(self, lie, times: int):
        self.lie, self.times, self.before = lie, times, None

    def submit(self, function, name, identity, versions, time_limit, attempt):
        report = perform(name, identity, versions)
        future: Future[object] = Future()
        self.times -= 1
        future.set_result(report if self.times < 0 else self.lie(report, self.before or report))
        self.before = report
        return future


LIES = {
    "nothing": lambda report, before: None,
    "no report": lambda report, before: {"state": "done", "encoded": report.encoded},
    "another word": lambda report, before: Report("finished", encoded=report.encoded),
    "no bytes": lambda report, before: Report("done", encoded=None),
    "cut off": lambda report, before: Report("done", encoded=report.encoded[:-1]),
    "changed": lambda report, before: Report("done", encoded=report.encoded[:-9] + b"x" * 9),
    "of another job": lambda report, before: Report(
        "done", encoded=perform("other", OTHER, library_versions()).encoded
    ),
    "no reason": lambda report, before: Report("failed", reason=b"bytes"),
}
OTHER = Job("other", job_functions.pid_of, {"value": 7}, "1").identity


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_result_of_a_job_is_never_kept(store, log, lie):
    """It is tried again, as that of a process that died; and failed, if it comes again."""
    jobs = squares(log, range(3))
    outcome = run_jobs(jobs, store, executor=LyingExecutor(LIES[lie], times=99))
    assert not outcome.new
    assert not list(store.directory.glob("*.safetensors"))
    assert {failure.job.key for failure in outcome.failed} == {job.key for job in jobs}
    assert "expected the report of this job" in str(outcome)
    outcome = run_jobs(jobs, store, executor=LyingExecutor(LIES[lie], times=1))
    outcome.check()
    assert loaded(store, jobs) == [0, 1, 4]


def test_an_executor_that_mixes_up_its_futures_loses_no_job_in_silence(store, log):
    class OneForAll(Executor):
        future: Future[Report] = Future()

        def submit(self, function, /, *arguments, **more):
            return self.future

    threading.Timer(0.5, OneForAll.future.set_result, [Report("failed", "no luck")]).start()
    jobs = squares(log, range(3))
    outcome = run_jobs(jobs, store, executor=OneForAll())
    assert len(outcome.failed) + len(outcome.left) == 3
    with pytest.raises(JobsFailedError):
        outcome.check()


def test_a_worker_with_other_libraries_is_refused(store, log, monkeypatch):
    identity = squares(log, [0])[0].identity
    report = perform("square", identity, {"torch": "0.1"})
    assert report.state == "failed"
    assert "expected a worker with {'torch': '0.1'}, got one with" in report.reason
    assert calls(log) == {}


def test_a_process_pool_may_be_given_and_may_break(store, log):
    jobs = [*squares(log, [0]), job(job_functions.kills_its_parent, log, 10)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        outcome = run_jobs(jobs, store, executor=executor)
    assert outcome.new == jobs[:1]
    assert outcome.left == jobs[1:]
    assert "BrokenProcessPool" in outcome.broken
    assert within(60, lambda: all(is_gone(pid) for pid in processes(log)))


def test_who_died_is_tried_again_alone(store, log):
    """Many die at first, as if memory were short; in the second round one at a time is running."""
    at_once: list[int] = []

    class Dying(Executor):
        def __init__(self) -> None:
            self.futures: list[Future[Report]] = []

        def submit(self, function, name, identity, versions, time_limit, attempt):
            self.futures.append(Future())
            if attempt == 0:
                self.futures[-1].set_result(Report("died", "no memory"))
            else:
                at_once.append(sum(not future.done() for future in self.futures))
                threading.Timer(
                    0.05, self.futures[-1].set_result, [perform(name, identity, versions)]
                ).start()
            return self.futures[-1]

    outcome = run_jobs(squares(log), store, executor=Dying())
    assert len(outcome.new) == 4
    assert at_once == [1, 1, 1, 1]
