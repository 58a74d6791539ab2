"""Functions that tests run as jobs: apart from the tests, so that processes import them at once."""

import ctypes
import os
import secrets
import signal
import sys
import time
from pathlib import Path


def mark(log: str, value: int) -> int:
    """Leave a file for this call; return how many there are for this value."""
    (Path(log) / f"{value}-{os.getpid()}-{secrets.token_hex(4)}").touch()
    return len(list(Path(log).glob(f"{value}-*")))


def calls(log: Path) -> dict[int, int]:
    """How often each value was computed."""
    values = [int(path.name.split("-")[0]) for path in log.iterdir()]
    return {value: values.count(value) for value in sorted(values)}


def processes(log: Path) -> set[int]:
    """Which processes computed something."""
    return {int(path.name.split("-")[1]) for path in log.iterdir()}


def square(log: str, value: int):
    mark(log, value)
    return {"square": value**2}


def wait_for(log: str, value: int, file: str):
    mark(log, value)
    while not Path(file).exists():
        time.sleep(0.02)
    return {"square": value**2}


def raises(log: str, value: int):
    mark(log, value)
    raise ArithmeticError(f"no luck with {value}")


def leaves(log: str, value: int):
    mark(log, value)
    sys.exit("leaving")


def returns_a_set(log: str, value: int):
    mark(log, value)
    return {"numbers": {1, 2}}


def killed(log: str, value: int, times: int):
    if mark(log, value) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": value**2}


def crashes(log: str, value: int):
    mark(log, value)
    os.kill(os.getpid(), signal.SIGSEGV)


def kills_its_parent(log: str, value: int):
    if mark(log, value) == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    return {"square": value**2}


def sleeps(log: str, value: int):
    mark(log, value)
    time.sleep(600)


def spins(log: str, value: int):
    mark(log, value)
    while True:
        pass


def hangs_in_c(log: str, value: int):
    """Hang with the interpreter locked: no Python code can run any more, in any thread."""
    mark(log, value)
    ctypes.PyDLL(None).sleep(600)


def is_stopped(log: str, value: int):
    mark(log, value)
    os.kill(os.getpid(), signal.SIGSTOP)


def forks(log: str, value: int, then: str):
    """Start a helper that has all that is open, then hang or be killed."""
    if os.fork() == 0:
        mark(log, value)
        time.sleep(600)
    while not calls(Path(log)):
        time.sleep(0.02)
    mark(log, value)
    if then == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def forks_away(log: str, value: int, then: str):
    """Start a helper that nobody finds by its group, but that has all that is open."""
    if os.fork() == 0:
        os.setsid()
        mark(log, value)
        time.sleep(600)
    while not calls(Path(log)):
        time.sleep(0.02)
    if then == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if then == "hangs":
        time.sleep(600)
    return {"square": value**2}


def surroundings():
    """What a job sees of the world, after doing its worst to the reply."""
    import numpy
    import torch

    print("not a reply")
    os.write(1, b"not a reply either\n")
    return {
        "threads": torch.get_num_threads(),
        "stdin": sys.stdin.read(),
        "large": numpy.arange(1_000_000),
    }


def changes_its_arguments(values: list[int]):
    values.append(3)
    return {"values": values}


def pid() -> int:
    return os.getpid()


def pid_of(value: int) -> dict[str, int]:
    return {"value": value, "pid": os.getpid()}


def large(value: int):
    """Eighty kilobytes; from the fifth on, more."""
    import numpy

    return {"numbers": numpy.random.default_rng(value).random(10_000 if value < 5 else 20_000)}
