"""Many independent jobs, each done once, on any executor: stop them and start them again.

A job is a function and its configuration. Its result is kept under a key made of these, so a job
whose result is there is not run again, and a changed one is another job.

Processes run one job at a time (see `supervision`), so one that crashes or hangs takes no other
down. They hand their results to this one, which alone writes: cluster workers need no
shared disk. It writes each result as soon as it arrives, so being killed costs only what was still
running. What failed is not kept: the next run tries it again.
"""

import importlib
import json
import os
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from count01_lens.common.progress import in_notebook
from count01_lens.common.storage import sha256
from count01_lens.common.threads import one_thread
from count01_lens.common.validation import check_int, check_number
from count01_lens.common.versions import library_versions
from count01_lens.jobs.results import ResultStore, canonical, encode, plain
from count01_lens.jobs.supervision import ProcessDiedError, Processes, TimeLimitError, supervised

FORMAT = 1
ATTEMPTS = 2  # for a job whose process died: the second is alone, with all the memory
_IN_FLIGHT = 1000  # as many jobs as a given executor has to choose from


@dataclass(frozen=True, eq=False)
class Job:
    """A function of a module, to be called with a configuration.

    Args:
        name: what people call it; no part of the key.
        function: found by its name in other processes, where what it prints goes to stderr, bars
            of progress too; returns what `results.encode` can write.
        configuration: its arguments, as plain values, random seeds among them.
        code_version: change it when the function comes to compute something else.
        cost: roughly how long it takes, in any unit; long jobs are started first, and the time left
            is worked out from it. No part of the key.
    """

    name: str
    function: Callable[..., Any]
    configuration: Mapping[str, Any]
    code_version: str
    cost: float = 1.0

    def __post_init__(self) -> None:
        for name in ("name", "code_version"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name}: expected text, got {getattr(self, name)!r}")
        if not isinstance(self.configuration, Mapping):
            raise TypeError(f"configuration: expected a dict, got {self.configuration!r}")
        check_number("cost", self.cost, above=0)
        object.__setattr__(self, "configuration", plain(self.configuration, "configuration"))
        _ = self.key  # from now on nothing changes it

    @cached_property
    def identity(self) -> str:
        """All that the result depends on, as canonical JSON."""
        return canonical(
            {
                "format": FORMAT,
                "function": _name_of(self.function),
                "configuration": self.configuration,
                "code_version": self.code_version,
            }
        )

    @cached_property
    def key(self) -> str:
        """The SHA-256 sum of the identity."""
        return sha256(self.identity.encode())


@dataclass(frozen=True)
class Failure:
    """A job without a result, and why: a traceback, or how its process ended."""

    job: Job
    reason: str


@dataclass
class Outcome:
    """What became of the jobs; results are in the store.

    Attributes:
        found: had a result before.
        new: have one now.
        failed: raised, took too long, or died again and again.
        left: were not run, or not to their end, because the executor broke: a cluster that lost
            its scheduler. Nothing is known against them.
        broken: how it broke.
    """

    found: list[Job] = field(default_factory=list)
    new: list[Job] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    left: list[Job] = field(default_factory=list)
    broken: str = ""

    def check(self) -> None:
        """Raise if a job has no result."""
        if self.failed or self.left:
            raise JobsFailedError(str(self))

    def __str__(self) -> str:
        lines = [f"{len(self.found) + len(self.new)} jobs done, {len(self.new)} of them now"]
        by_reason: dict[str, list[Job]] = {}
        for failure in self.failed:
            by_reason.setdefault(failure.reason, []).append(failure.job)
        for reason, (job, *others) in by_reason.items():
            more = f" (and {len(others)} more in the same way)" if others else ""
            lines += [f"failed: {job.name} {canonical(job.configuration)}{more}", reason]
        if self.left:
            lines.append(
                f"{len(self.left)} jobs not run, because the executor broke: {self.broken}\n"
                "The same command goes on where it was."
            )
        return "\n".join(lines)


class JobsFailedError(RuntimeError):
    """Some jobs have no result."""


@dataclass(frozen=True)
class Status:
    """How far the jobs are."""

    total: int
    done: int
    failed: int
    running: int
    seconds_left: float | None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {_in_words(self.seconds_left)} left"
        running = f"{self.running} running, " if self.running else ""
        return f"{self.done}/{self.total} jobs done, {running}{self.failed} failed{left}"


def run_jobs(
    jobs: Iterable[Job],
    store: ResultStore,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    time_limit: float | None = None,
    progress: bool | Callable[[Status], None] | None = None,
) -> Outcome:
    """Run the jobs that have no result yet, and keep each result as soon as it is there.

    Those of the highest cost are started first, so that no long one is left to the end.

    On Ctrl-C what is running is stopped, what is finished is kept, and KeyboardInterrupt goes on.
    (A given executor is asked to cancel; what it cannot cancel ends by itself, and is lost.)

    Args:
        jobs: any; of equal ones, one is run.
        store: where results are; only one process at a time may write there.
        executor: where to run, such as that of `dask_executor("tcp://host:8786")`. Its workers
            start a process for each of their threads, and call the functions there.
        workers: without an executor, how many processes; as many as there are cores by default. 0
            calls the functions right here, for debugging: no time limit, and a crash is a crash.
        time_limit: seconds that a job may take, what its module imports included.
        progress: called with the status after every job; or True, False, or None to show it only
            where somebody is likely to look on.
    """
    unique = _unique(jobs)
    if not isinstance(store, ResultStore):
        raise TypeError(f"store: expected a ResultStore, got {store!r}")
    if time_limit is not None:
        check_number("time_limit", time_limit, above=0)
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
        processes = stack.enter_context(Processes(workers)) if workers else None
        place = processes if executor is None else executor
        view = _view(progress, len(unique), len(found), stack)
        ahead = sum(job.cost for job in waiting)
        run = _Run(store, place, time_limit, view, Outcome(found), len(unique), ahead)
        run.slots = lambda: workers or (1 if executor is None else _slots(executor))
        try:
            died = run.attempt(waiting, 0, 1 if workers == 0 else workers or _IN_FLIGHT)
            for attempt in range(1, ATTEMPTS):
                died = run.attempt(died, attempt, 1) if died else []
        except KeyboardInterrupt:
            for future in run.running:
                future.cancel()
            if processes is not None:
                processes.stop()
            run.keep_finished()
            raise
        return run.outcome


@dataclass(frozen=True)
class _Report:
    """What comes back from a job."""

    state: Literal["done", "failed", "died", "lost"]
    reason: str = ""
    encoded: bytes = b""


@dataclass
class _Run:
    """Hands out jobs and collects reports."""

    store: ResultStore
    executor: Executor | None
    time_limit: float | None
    view: Callable[[Status], None]
    outcome: Outcome
    total: int
    ahead: float
    behind: float = 0.0
    running: dict[Future[_Report], Job] = field(default_factory=dict)
    start: float = field(default_factory=lambda: time.monotonic())
    slots: Callable[[], int] = lambda: 1

    def attempt(self, jobs: list[Job], attempt: int, at_once: int) -> list[Job]:
        """Run jobs; return those whose process died, to be tried again.

        From an executor that broke no more is expected: what waits is left.
        """
        waiting, died = deque(sorted(jobs, key=lambda job: -job.cost)), list[Job]()
        self._show()
        while waiting or self.running:
            while waiting and len(self.running) < at_once:
                job = waiting.popleft()
                self.running[self._submit(job, attempt)] = job
            self._show()
            for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                job, report = self.running[future], _report_of(future)
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

    def _settle(self, job: Job, report: _Report) -> None:
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
            if future.done() and (report := _report_of(future)).state == "done":
                self.store.save(job, report.encoded)

    def _submit(self, job: Job, attempt: int) -> Future[_Report]:
        future: Future[_Report] = Future()
        if self.executor is None:
            with one_thread():
                future.set_result(_perform(job.name, job.identity, library_versions()))
            return future
        try:  # the attempt makes it another call: Dask may answer equal ones only once
            return self.executor.submit(
                _supervise, job.name, job.identity, library_versions(), self.time_limit, attempt
            )
        except RuntimeError as error:  # it is broken or was shut down
            future.set_exception(BrokenExecutor(str(error)))
            return future

    def _show(self) -> None:
        running = min(len(self.running), self.slots()) if self.running else 0
        elapsed = time.monotonic() - self.start
        left = elapsed * max(0.0, self.ahead) / self.behind if self.behind else None
        done = len(self.outcome.found) + len(self.outcome.new)
        self.view(Status(self.total, done, len(self.outcome.failed), running, left))


def _perform(name: str, identity: str, versions: dict[str, str]) -> _Report:
    """Run a job in this process, if its libraries are those of the process that handed it out."""
    if library_versions() != versions:
        return _Report(
            "failed",
            f"expected a worker with {versions}, got one with {library_versions()}: results of "
            "different versions are not mixed; install the same there",
        )
    try:
        described = json.loads(identity)
        module, _, function = described["function"].partition(":")
        function = getattr(importlib.import_module(module), function)
        start = time.perf_counter()
        value = function(**json.loads(identity)["configuration"])
        seconds = time.perf_counter() - start
        about = dict(name=name, identity=described, seconds=seconds, versions=versions)
        return _Report("done", encoded=encode(value, **about))
    except (Exception, SystemExit):
        return _Report("failed", traceback.format_exc())


def _supervise(
    name: str, identity: str, versions: dict[str, str], time_limit: float | None, attempt: int
) -> _Report:
    """Run a job in the process of this thread."""
    try:
        return supervised(_perform, name, identity, versions, time_limit=time_limit)
    except TimeLimitError as error:
        return _Report("failed", str(error))
    except ProcessDiedError as error:
        return _Report("died", f"{error}\n(attempt {attempt + 1} of {ATTEMPTS})")


def _report_of(future: Future[_Report]) -> _Report:
    try:
        return future.result()
    except (BrokenExecutor, CancelledError) as error:  # nobody here cancels and then asks
        return _Report("lost", f"{type(error).__name__} {error}".rstrip())
    except Exception as error:  # such as Dask's, that all workers died that ever tried it
        return _Report(
            "died", "the executor lost it\n" + "".join(traceback.format_exception(error))
        )


def _slots(executor: Executor) -> int:
    """How many jobs an executor can run at a time; many, if it does not tell."""
    slots = getattr(executor, "slots", getattr(executor, "_max_workers", _IN_FLIGHT))
    return int(slots)


def _name_of(function: Any) -> str:
    """Return module:name, by which any process finds the function."""
    name, module = getattr(function, "__qualname__", "?"), getattr(function, "__module__", "?")
    here = sys.modules.get(module)
    if module == "__main__":  # of `python -m package.module`, which others can import by that name
        spec = getattr(here, "__spec__", None)
        module = "__main__" if spec is None else spec.name
    is_found = name.isidentifier() and getattr(here, name, None) is function
    if not is_found or module.rpartition(".")[2] == "__main__":
        raise TypeError(
            f"function: expected one defined at the top of a module that can be imported, got "
            f"{function!r}; other processes could not find it"
        )
    return f"{module}:{name}"


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


def _in_words(seconds: float) -> str:
    """A rough time: '40 s', '12 min', '3 h 10 min'."""
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _view(
    progress: bool | Callable[[Status], None] | None, total: int, found: int, stack: ExitStack
) -> Callable[[Status], None]:
    """Return what shows a status: a function of the user's, a bar, lines, or nothing."""
    if callable(progress):
        return progress
    interactive = sys.stderr.isatty() or in_notebook()
    if interactive and progress is not False:
        from tqdm.auto import tqdm

        # The time left is our own: tqdm thinks that all jobs take the same time.
        style = "{percentage:3.0f}%|{bar}| {desc} [{elapsed}]"
        bar = stack.enter_context(
            tqdm(total=total, initial=found, bar_format=style, dynamic_ncols=True)
        )

        def update(status: Status) -> None:
            bar.set_description_str(str(status), refresh=False)
            bar.update(status.done + status.failed - bar.n)
            bar.refresh()

        return update
    shown = found

    def print_now_and_then(status: Status) -> None:
        nonlocal shown
        ended = status.done + status.failed
        if ended > shown and (ended == total or ended - shown >= total / 10):
            shown = ended
            print(status, file=sys.stderr, flush=True)

    return print_now_and_then if progress is True else lambda status: None
