"""Many independent jobs, each done once, on any executor: stop them and start them again.

A job is a function and its configuration. Its result is kept under a key made of these, so a job
whose result is there is not run again, and a changed one is another job.

Processes run one job at a time (see `supervision`), so one that crashes or hangs takes no other
down. They hand their results to this one, which alone writes: cluster workers need no
shared disk. It writes each result as soon as it arrives, so being killed costs only what was still
running. What failed is not kept: the next run tries it again.

Why not joblib, Pebble or a local Dask cluster? The same harm was done to all of them. Pebble came
closest, but it cannot start processes inside the workers of a Dask cluster, nor from a script
without a main guard, and leaves forked helpers behind; joblib hangs if a worker is killed while it
sends a result, and leaves workers behind; Dask has no time limits and blames innocent jobs. The
trial is `experiments/tools/try_job_runners.py`, what it showed is in docs/many_jobs.md.
"""

import os
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, get_args

from count01_lens.common.threads import one_thread
from count01_lens.common.validation import check_int, check_number
from count01_lens.common.versions import library_versions
from count01_lens.jobs.job import ATTEMPTS, Job, Report, State, perform, perform_apart
from count01_lens.jobs.outcome import Failure, Outcome, Status, view_of
from count01_lens.jobs.results import ResultStore, is_result_of
from count01_lens.jobs.supervision import Processes

LONGEST = 366 * 24 * 3600  # seconds; no timer of the system takes much more
_IN_FLIGHT = 1000  # as many jobs as a given executor has to choose from


def run_jobs(
    jobs: Iterable[Job],
    store: ResultStore,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    time_limit: float | None = None,
    progress: bool | Callable[[Status], None] | None = None,
) -> Outcome:
    """Run the jobs that have no result yet, and store each result as soon as it is ready.

    Jobs of the highest cost start first, so that no long one is left to the end.

    On Ctrl-C, running jobs are stopped, results of finished ones are kept, and KeyboardInterrupt is
    raised. (An executor of your own is asked to cancel; what it cannot cancel runs to its end, and
    its result is lost.)

    Args:
        jobs: any; equal ones are run once.
        store: where results are kept; only one process at a time may write there.
        executor: where to run, such as that of `dask_executor("tcp://host:8786")`. Its workers
            start a process for each of their threads, and call the functions there.
        workers: without an executor, how many processes; as many as there are cores by default. 0
            calls the functions in this process, for debugging: without time limit, and a crash ends
            it.
        time_limit: seconds that a job may take, what its module imports included.
        progress: called with the status after every job; or True, False, or None to show progress
            in a terminal or notebook only.
    """
    unique = _unique(jobs)
    if not isinstance(store, ResultStore):
        raise TypeError(f"store: expected a ResultStore, got {store!r}")
    if time_limit is not None:
        check_number("time_limit", time_limit, above=0, at_most=LONGEST)
    if executor is None:
        workers = os.cpu_count() or 1 if workers is None else workers
        check_int("workers", workers, at_least=0)
        if workers == 0 and time_limit is not None:
            raise ValueError("time_limit: expected a process to end; use workers=1 instead of 0")
    elif workers is not None or not isinstance(executor, Executor):
        raise ValueError(f"expected an executor or a number of workers, got {executor}, {workers}")
    with ExitStack() as stack:
        stack.enter_context(store.opened())
        found, waiting = _look_up(unique, store)
        at_once = _IN_FLIGHT
        if executor is None:
            executor = stack.enter_context(Processes(workers) if workers else _Here())
            at_once = _slots(executor)
        view = view_of(progress, len(unique), len(found), stack)
        ahead = sum(job.cost for job in waiting)
        run = _Run(store, executor, time_limit, view, Outcome(found), len(unique), ahead)
        try:
            died = run.attempt(waiting, 0, at_once)
            for attempt in range(1, ATTEMPTS):
                died = run.attempt(died, attempt, 1) if died else []
        except KeyboardInterrupt:
            for future in run.running:
                future.cancel()
            run.keep_finished()
            raise
        return run.outcome


class _Here(Executor):
    """Does a job at once, in this process."""

    slots = 1

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        """Do not call `perform_apart`, but what it would call elsewhere."""
        future: Future[Report] = Future()
        name, identity, versions, *_ = arguments
        with one_thread():
            future.set_result(perform(name, identity, versions))
        return future


@dataclass
class _Run:
    """Hands out jobs and collects reports."""

    store: ResultStore
    executor: Executor
    time_limit: float | None
    view: Callable[[Status], None]
    outcome: Outcome
    total: int
    ahead: float
    behind: float = 0.0
    running: dict[Future[Report], Job] = field(default_factory=dict)
    start: float = field(default_factory=lambda: time.monotonic())

    def attempt(self, jobs: list[Job], attempt: int, at_once: int) -> list[Job]:
        """Run jobs; return those whose process died, to be tried again.

        From an executor that broke no more is expected: what waits is left.
        """
        waiting, died = deque(sorted(jobs, key=lambda job: -job.cost)), list[Job]()
        self._show()
        while waiting or self.running:
            while waiting and len(self.running) < at_once:
                job = waiting.popleft()
                future = self._submit(job, attempt)
                if future in self.running:
                    future = _broken("it gave the same future for two jobs")
                self.running[future] = job
            self._show()
            for future in wait(self.running, return_when="FIRST_COMPLETED").done:
                job = self.running[future]
                report = _report_of(future, job)
                if report.state == "died" and attempt + 1 < ATTEMPTS:
                    died.append(job)
                else:
                    self._settle(job, report)
                del self.running[future]
            if self.outcome.broken:
                self.outcome.left += waiting
                waiting.clear()
        self._show()
        if self.outcome.broken:
            self.outcome.left += died
            died.clear()
        return died

    def _settle(self, job: Job, report: Report) -> None:
        """Put down what became of a job for good."""
        if report.state == "done":
            self.store.save(job, report.encoded)
            self.outcome.new.append(job)
        elif report.state == "lost":
            self.outcome.broken = self.outcome.broken or report.reason
            self.outcome.left.append(job)
        else:
            self.outcome.failed.append(Failure(job, report.reason))
        self.behind, self.ahead = self.behind + job.cost, self.ahead - job.cost

    def keep_finished(self) -> None:
        """Save what finished and was not looked at."""
        for future, job in self.running.items():
            if future.done() and (report := _report_of(future, job)).state == "done":
                self.store.save(job, report.encoded)

    def _submit(self, job: Job, attempt: int) -> Future[Report]:
        try:  # the attempt makes it another call: Dask may answer equal ones only once
            return self.executor.submit(
                perform_apart, job.name, job.identity, library_versions(), self.time_limit, attempt
            )
        except RuntimeError as error:  # it is broken or was shut down
            return _broken(str(error))

    def _show(self) -> None:
        running = min(len(self.running), _slots(self.executor)) if self.running else 0
        elapsed = time.monotonic() - self.start
        left = elapsed * max(0.0, self.ahead) / self.behind if self.behind else None
        done = len(self.outcome.found) + len(self.outcome.new)
        self.view(Status(self.total, done, len(self.outcome.failed), running, left))


def _report_of(future: Future[Report], job: Job) -> Report:
    """What became of a job; what came from elsewhere is believed only if it is of this one."""
    try:
        report: object = future.result()
    except (BrokenExecutor, CancelledError) as error:  # nobody here cancels and then asks
        return Report("lost", f"{type(error).__name__} {error}".rstrip())
    except Exception as error:  # such as Dask's, that all workers died that ever tried it
        return Report("died", "the executor lost it\n" + "".join(traceback.format_exception(error)))

    if (
        isinstance(report, Report)
        and report.state in get_args(State)
        and isinstance(report.reason, str)
        and (report.state != "done" or is_result_of(job, report.encoded))
    ):
        return report
    return Report("died", f"expected the report of this job, got {report!r:.80}")


def _broken(why: str) -> Future[Report]:
    """The future of a job that an executor did not take."""
    future: Future[Report] = Future()
    future.set_exception(BrokenExecutor(why))
    return future


def _slots(executor: Executor) -> int:
    """How many jobs an executor can run at a time; many, if it does not tell."""
    slots = getattr(executor, "slots", getattr(executor, "_max_workers", _IN_FLIGHT))
    return int(slots)


def _unique(jobs: Iterable[Job]) -> list[Job]:
    unique: dict[str, Job] = {}
    for job in jobs:
        if not isinstance(job, Job):
            raise TypeError(f"jobs: expected several Job, got {job!r}")
        unique.setdefault(job.key, job)
    return list(unique.values())


def _look_up(jobs: list[Job], store: ResultStore) -> tuple[list[Job], list[Job]]:
    """Tell the jobs that have a result from those that have none."""
    found: list[Job] = []
    waiting: list[Job] = []
    versions, others = library_versions(), 0
    for job in jobs:
        result = store.find(job)
        (waiting if result is None else found).append(job)
        others += result is not None and result.versions != versions
    if others:
        warnings.warn(
            f"{store.directory}: {others} results were made with other library versions; new ones "
            "may differ in rounding",
            stacklevel=3,
        )
    return found, waiting
