"""What `try_job_runners` does to runners of jobs: odd jobs, and how programs come to harm.

Each job leaves a file when it is begun.
"""

import ctypes
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

GOOD, ODD = set(range(6)), 100
TIME_LIMIT = 15.0  # enough for workers to start on a busy machine, which joblib counts, too


def begin(log: str, value: int) -> int:
    """Leave a file; return how often this value was begun."""
    (Path(log) / f"{value}-{os.getpid()}-{secrets.token_hex(4)}").touch()
    return len(list(Path(log).glob(f"{value}-*")))


def good(log: str, value: int) -> int:
    """Take a moment, so that the next one is begun by another worker."""
    begin(log, value)
    time.sleep(0.1)
    return value**2


def raises(log: str, value: int) -> None:
    """Raise."""
    begin(log, value)
    raise ArithmeticError(f"no luck with {value}")


def out_of_memory(log: str, value: int) -> Any:
    """Ask for more memory than there can be."""
    begin(log, value)
    return np.empty(2**50)


def unpicklable(log: str, value: int) -> Any:
    """Return what no process can send to another."""
    begin(log, value)
    return threading.Lock()


def killed(log: str, value: int) -> None:
    """Be killed while others are at work."""
    begin(log, value)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


def killed_once(log: str, value: int) -> int:
    """Be killed at the first try only."""
    if begin(log, value) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return value**2


def leaves(log: str, value: int) -> None:
    """End the process without a word."""
    begin(log, value)
    os._exit(3)


def crashes(log: str, value: int) -> None:
    """Crash in C."""
    begin(log, value)
    os.kill(os.getpid(), signal.SIGSEGV)


class _Bomb:
    """Kills its process 0.3 s after it was packed, while what is around it is being sent."""

    def __reduce__(self) -> Any:
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGKILL]).start()
        return (int, ())


def killed_while_sending(log: str, value: int) -> Any:
    """Be killed as workers often are: when a large result takes its memory a second time."""
    begin(log, value)
    return [np.ones(50_000_000), _Bomb()]


def sleeps(log: str, value: int) -> None:
    """Sleep, in Python."""
    begin(log, value)
    time.sleep(600)


def in_c(log: str, value: int) -> None:
    """Hang with the interpreter locked: no Python code can run any more, in any thread."""
    begin(log, value)
    ctypes.PyDLL(None).sleep(600)


def stubborn(log: str, value: int) -> None:
    """Do not listen to SIGTERM, as Python does not in the middle of a long call into C."""
    begin(log, value)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def stopped(log: str, value: int) -> None:
    """Be stopped, as by Ctrl-Z or a debugger."""
    begin(log, value)
    os.kill(os.getpid(), signal.SIGSTOP)


def forks(log: str, value: int) -> None:
    """Start a helper by fork, which has all that is open, and outlives its parent."""
    begin(log, value)
    os.fork()
    time.sleep(600)


def waits(log: str, value: int) -> int:
    """Go on when a file is there."""
    begin(log, value)
    while not (Path(log).parent / "go").exists():
        time.sleep(0.02)
    return value**2


def large(log: str, value: int) -> Any:
    """Return more than fits on the disk."""
    begin(log, value)
    while len(list((Path(log).parent / "store").glob("*.safetensors"))) < len(GOOD):
        time.sleep(0.02)
    return np.ones(50_000)


def nothing(number: int) -> int:
    """Do nothing: what is left is what a job costs."""
    return number


def counts(number: int) -> int:
    """Keep a core busy for about half a second."""
    return sum(range(number, number + 30_000_000))


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        what: in words.
        odd: the odd job.
        time_limit: of every job, in seconds.
        odd_is_done: whether the odd job should have a result in the end.
        says: what the reason of its failure should contain.
        harm: a signal to the program while the odd job is running; then it is started again.
        start: where the program runs: "plain", "script", "inside Dask", "full disk".
    """

    what: str
    odd: Callable[..., Any] = good
    time_limit: float | None = None
    odd_is_done: bool = False
    says: str = ""
    harm: signal.Signals | None = None
    start: str = "plain"


FAULTS = [
    Fault("a job raises", raises, says="in raises"),
    Fault("a job runs out of memory (MemoryError)", out_of_memory, says="MemoryError"),
    Fault("a job returns what cannot be sent", unpicklable),
    Fault("a worker is killed (SIGKILL), once", killed_once, odd_is_done=True),
    Fault("a worker is killed each time", killed),
    Fault("a worker leaves (`os._exit`)", leaves),
    Fault("a worker crashes (SIGSEGV)", crashes, says="in crashes"),
    Fault("a worker is killed while it sends 400 MB", killed_while_sending),
    Fault("time limit: asleep", sleeps, TIME_LIMIT, says="in sleeps"),
    Fault("time limit: in C, interpreter locked", in_c, TIME_LIMIT, says="in in_c"),
    Fault("time limit: deaf to SIGTERM", stubborn, TIME_LIMIT, says="in stubborn"),
    Fault("time limit: a stopped worker (SIGSTOP)", stopped, TIME_LIMIT),
    Fault("time limit: it forked a helper", forks, TIME_LIMIT),
    Fault("Ctrl-C", waits, odd_is_done=True, harm=signal.SIGINT),
    Fault("the program is killed (SIGKILL)", waits, odd_is_done=True, harm=signal.SIGKILL),
    Fault("the disk is full", large, odd_is_done=True, start="full disk"),
    Fault("a script without a main guard", odd_is_done=True, start="script"),
    Fault("inside a worker of a Dask cluster", killed, start="inside Dask"),
]
