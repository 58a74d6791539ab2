"""How far many jobs are, shown where somebody is likely to look on."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from count01_lens.common.progress import in_notebook


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


def _in_words(seconds: float) -> str:
    """A rough time: '40 s', '12 min', '3 h 10 min'."""
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
