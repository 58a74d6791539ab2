"""How far many jobs are, shown where somebody is likely to look on, and what became of them."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from count01_lens.common.progress import in_notebook
from count01_lens.common.text import plural
from count01_lens.jobs.job import Job
from count01_lens.jobs.results import canonical


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
        lines = [
            f"{plural(len(self.found) + len(self.new), 'job')} done, {len(self.new)} of them now"
        ]
        by_reason: dict[str, list[Job]] = {}
        for failure in self.failed:
            by_reason.setdefault(failure.reason, []).append(failure.job)
        for reason, (job, *others) in by_reason.items():
            more = f" (and {len(others)} more in the same way)" if others else ""
            lines += [f"failed: {job.name} {canonical(job.configuration)}{more}", reason]
        if self.left:
            left = plural(len(self.left), "job")
            lines.append(f"{left} not run, because the executor broke: {self.broken}")
            lines.append("Run the same command again to go on from here.")
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
        return f"{self.done}/{plural(self.total, 'job')} done, {running}{self.failed} failed{left}"


def view_of(
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
        bar = tqdm(total=total, initial=found, bar_format=style, dynamic_ncols=True)
        stack.enter_context(bar)

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


def _in_words(seconds: float) -> str:
    """A rough time: '40 s', '12 min', '3 h 10 min'."""
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
