"""Progress of long work: a bar in a terminal or notebook, plain lines or nothing elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from count01_lens.common.text import duration, plural

Item = TypeVar("Item")
_BAR = "{desc} |{bar}| {n_fmt}/{total_fmt}, {remaining} left{postfix}"
_SHORT = 1.0  # seconds that nobody minds to wait without a word


@contextmanager
def epochs_shown(
    total: int, done: int, n_models: int, show: bool | None
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show how far training is; call what this gives with each epoch's line of history.

    `show` is True, False, or None to show it only where somebody is likely to look on.
    """
    models = plural(n_models, "model")
    if show is not False and _watched():
        with _bar(total=total, initial=done, desc=models, leave=True, delay=0) as progress_bar:

            def advance(line: Mapping[str, Any]) -> None:
                short = ", ".join(_figures(line)).replace("validation accuracy", "validation")
                progress_bar.set_postfix_str(short, refresh=False)
                progress_bar.update()

            yield advance
        return
    if show and done:
        print(f"continuing after epoch {done}", file=sys.stderr, flush=True)

    def write(line: Mapping[str, Any]) -> None:
        epoch = line["epoch"]
        if show and (epoch % max(1, total // 10) == 0 or epoch == total):
            told = "  ".join([f"epoch {epoch}/{total}", models, *_figures(line)])
            print(told, file=sys.stderr, flush=True)

    yield write


def _bar(*items: Any, **options: Any) -> Any:
    """A progress bar that has room for its bar in 80 characters, figures and all."""
    from tqdm.auto import tqdm

    look: dict[str, Any] = {
        "bar_format": _BAR,
        "dynamic_ncols": True,
        "leave": False,
        "delay": _SHORT,
    }
    return tqdm(*items, **look | options)


def _figures(line: Mapping[str, Any]) -> list[str]:
    loss, accuracy = np.mean(line["loss"]), np.mean(line["validation_accuracy"])
    return [f"loss {loss:.4f}", f"validation accuracy {accuracy:.4f}"]


def track(items: Iterable[Item], total: int, label: str, show: bool | None) -> Iterator[Item]:
    """Yield items behind a progress bar, in a terminal or notebook, unless `show` is False."""
    if show is False or not _watched():
        yield from items
        return
    yield from _bar(items, total=total, desc=label)


@contextmanager
def counted(total: int, label: str, show: bool | None) -> Iterator[Callable[[int], Any]]:
    """Show how much of something long is done; call what this gives with how much was added.

    A bar in a terminal or notebook, unless `show` is False, which says how long it will take; lines
    elsewhere, if it is True: after the first second an estimate of the time, then each tenth.
    """
    if show is not False and _watched():
        with _bar(total=total, desc=label) as progress_bar:
            yield progress_bar.update
        return
    start, done, told = time.monotonic(), 0, 0

    def write(more: int) -> None:
        nonlocal done, told
        done += more
        seconds = time.monotonic() - start
        if not show or seconds < 1 or done >= total:
            return
        if told == 0:
            left = seconds * (total - done) / done
            print(f"{label}: about {duration(left)} to go", file=sys.stderr, flush=True)
            told = max(1, done * 10 // total)
        elif done * 10 // total > told:
            told = done * 10 // total
            print(f"{label}: {done:,} of {total:,}", file=sys.stderr, flush=True)

    yield write


def _watched() -> bool:
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Whether this runs in a notebook, where progress bars are welcome."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config
