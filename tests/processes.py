"""Processes that tests start: Ctrl-C reaches them, and none of them is left behind.

A program that was started in the background, or by some CI, ignores SIGINT, and so do its children:
Ctrl-C would never be heard. And a test that fails half-way must not leave a training running.

Every process has marks in its environment, one of the session and one of the test's own. Whatever it
starts in turn inherits them, so that it is found even if its parent has ended.
"""

import atexit
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psutil
import pytest

MARKS = "COUNT01_LENS_TESTS"
PATIENCE = 30.0  # seconds for what is about to end by itself
# Of multiprocessing and of joblib: ends with the process whose things it tidies up, here pytest.
_ENDS_WITH_PYTEST = "resource_tracker"
_of_session = ExitStack()
atexit.register(_of_session.close)  # where no pytest runs


@contextmanager
def started(*command: object, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process that hears Ctrl-C; at the end, kill it and all that it has started.

    The options are those of Popen.
    """
    mark = secrets.token_hex(8)
    environment = {**options.pop("env", os.environ), MARKS: f"{os.environ.get(MARKS, '')} {mark}"}
    with _hearing_ctrl_c():
        process = subprocess.Popen(list(map(str, command)), env=environment, **options)
    with process:  # closes pipes
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            kill_all(mark)


def start_for_session(*command: object, **options: Any) -> subprocess.Popen[Any]:
    """Start a process that serves many tests, and ends with the last of them."""
    return _of_session.enter_context(started(*command, **options))


@contextmanager
def _hearing_ctrl_c() -> Iterator[None]:
    """Give SIGINT a handler, which children do not inherit: they begin with the default."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def with_mark(mark: str) -> list[psutil.Process]:
    """All processes with a mark, but for this one."""
    return [
        process
        for process in psutil.process_iter(["environ"])
        if mark in (process.info["environ"] or {}).get(MARKS, "").split()
        and process.pid != os.getpid()
    ]


def kill_all(mark: str) -> None:
    """Kill all processes with a mark, and what they start meanwhile."""
    end = time.monotonic() + PATIENCE
    while left := with_mark(mark):
        assert time.monotonic() < end, f"cannot be killed: {left}"
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.01)


# What pytest calls

_session_mark = pytest.StashKey[str]()
_left = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers of xdist have the mark of who started them
        config.stash[_session_mark] = secrets.token_hex(8)
        os.environ[MARKS] = f"{os.environ.get(MARKS, '')} {config.stash[_session_mark]}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a process is left; with xdist this is after the end of its workers."""
    _of_session.close()
    mark = session.config.stash.get(_session_mark, "")
    left = session.config.stash[_left] = _left_behind(mark) if mark else []
    if left:
        kill_all(mark)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if left := config.stash.get(_left, []):
        terminalreporter.section("processes that tests left behind", red=True)
        for command in left:
            terminalreporter.line(command)


def _left_behind(mark: str) -> list[str]:
    """The commands of processes that do not end by themselves."""
    end = time.monotonic() + PATIENCE
    while True:
        commands = []
        for process in with_mark(mark):
            with suppress(psutil.Error):
                commands.append(f"{process.pid}: {' '.join(process.cmdline())}")
        commands = [command for command in commands if _ENDS_WITH_PYTEST not in command]
        if not commands or time.monotonic() > end:
            return commands
        time.sleep(0.05)
