"""Call a function in another process, which may hang or die without harm to anything else.

A thread that calls `supervised` has a process of its own. It is kept for the next call, since
importing torch takes seconds, and replaced when it died.

- A process serves one call at a time, so it is known whose fault its death is.
- Time limits are kept by the watchdog of faulthandler. It runs outside Python, so it also ends a
  process that hangs in C code with the interpreter locked; and it says where the process was. One
  that cannot even do that, because it was stopped, is ended from outside a little later.
- A process ends when its input is closed: however its caller ends, it is not left behind. With it
  end the helpers that it has forked, and nobody waits for one that left the group of its process.
- It is a plain subprocess, because multiprocessing runs the caller's script a second time, and
  forbids children to daemonic processes, which Dask's workers are.
"""

import faulthandler
import io
import json
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")

# There are as many processes as cores, so each computes on one thread.
_ONE_THREAD = dict.fromkeys(
    ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"], "1"
)
# glibc gives large blocks of memory back to the system when they are freed; training asks for the
# same ones again at every step. Keeping them saves a third of the time of wide stacks. (Dask sets
# the first of these for its workers, so low that training there takes half as long again.)
_KEEP_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TOP_PAD_": str(2**26),
}
_SERVE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from count01_lens.jobs.supervision import serve; serve()"
)
_GRACE = 10.0  # seconds, so that a process that has only just started can say where it was
_LAST_WORDS = 1.0  # seconds to read what an ended process has written
_of_thread = threading.local()


class ProcessDiedError(RuntimeError):
    """The process ended before the function returned."""


class TimeLimitError(RuntimeError):
    """The function took too long."""


def supervised(function: Callable[..., T], *arguments: Any, time_limit: float | None = None) -> T:
    """Call a function, found by its name, in the process of this thread.

    Raises:
        TimeLimitError: it took longer than so many seconds, with what it imports.
        ProcessDiedError: its process crashed or was killed.
    """
    if not hasattr(_of_thread, "child"):
        _of_thread.child = Child()
    value: T = _of_thread.child.call(function, arguments, time_limit)
    return value


class Processes(ThreadPoolExecutor):
    """An executor for `supervised`; on leaving it, what is still running is killed."""

    def __init__(self, workers: int):
        self._children: list[Child] = []
        super().__init__(workers, initializer=self._start_thread)

    def _start_thread(self) -> None:
        _of_thread.child = Child()
        self._children.append(_of_thread.child)

    def stop(self) -> None:
        """Cancel what waits, kill what runs."""
        self.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            child.stop()
        self.shutdown(wait=True)
        for child in self._children:
            child.end()

    def __exit__(self, *error: object) -> None:
        self.stop()


class Child:
    """The process of a thread, started when it is needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: io.BufferedReader
        self.end: Callable[[], object] = lambda: None
        self._stopped = False

    def call(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], time_limit: float | None
    ) -> Any:
        """Do what `supervised` says."""
        request = pickle.dumps((function, arguments, time_limit))
        process = self._started()
        try:
            with _deadline(process, time_limit) as is_late:
                is_answered, said = _ask(process, self._replies, request)
        except BaseException:
            self.end()  # or the next call would get the reply to this one
            raise
        if is_answered and not is_late.is_set():
            return said
        code = process.wait()
        self.end()
        if is_answered:
            return said
        if said.startswith("Timeout (") or is_late.is_set():
            where = f"; it was here:\n{said}" if said else ", and could not say where it was"
            raise TimeLimitError(f"took longer than {time_limit:g} s{where}")
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise ProcessDiedError(f"its process died ({how})\n{said}".rstrip())

    def stop(self) -> None:
        """Kill the process from another thread, for good."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                _kill(self._process)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise ProcessDiedError("it was stopped")
            if self._process is None or self._process.poll() is not None:
                self.end()
                self._process, line = _start()
                self._replies = line.makefile("rb")
                self.end = weakref.finalize(self, _end, self._process, self._replies, line)
            return self._process


def _start() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process; return it and the line on which it replies.

    The line is no pipe, because a socket can be shut from this side: a pipe is open for as long as
    anybody has its other end, such as a helper that left the group of the process.
    """
    line, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-u", "-c", _SERVE, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=theirs.fileno(),
            env={**os.environ, **_ONE_THREAD, **_KEEP_MEMORY},
            # Ctrl-C is for the caller, who decides what it means; and helpers that the process
            # forks are found by its group.
            start_new_session=True,
        )
    threading.Thread(target=_end_helpers, args=[process, line], daemon=True).start()
    return process, line


def _ask(
    process: subprocess.Popen[bytes], replies: io.BufferedReader, request: bytes
) -> tuple[bool, Any]:
    """Return True and the reply; or False, when the process has ended, and its last words."""
    assert process.stdin is not None
    with suppress(OSError):  # it died already; what it left to read says so
        pickle.dump(request, process.stdin)
        process.stdin.flush()
    if replies.peek(1)[:1] == pickle.PROTO:
        with suppress(EOFError, pickle.UnpicklingError):
            return True, pickle.load(replies)
    return False, replies.read().decode(errors="replace")


@contextmanager
def _deadline(
    process: subprocess.Popen[bytes], time_limit: float | None
) -> Iterator[threading.Event]:
    """Kill a process that has not kept its own time limit; yield what tells whether it was."""
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        _kill(process)

    if time_limit is None:
        yield is_late
        return
    timer = threading.Timer(time_limit + _GRACE, end)
    timer.start()
    try:
        yield is_late
    finally:
        timer.cancel()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that has not ended, and its helpers."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _end_helpers(process: subprocess.Popen[bytes], line: socket.socket) -> None:
    """Kill what a process leaves behind, and let nobody wait for a reply of what got away."""
    process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    time.sleep(_LAST_WORDS)
    with suppress(OSError):  # it was closed meanwhile
        line.shutdown(socket.SHUT_RD)


def _end(process: subprocess.Popen[bytes], replies: io.BufferedReader, line: socket.socket) -> None:
    _kill(process)
    process.wait()
    assert process.stdin is not None
    for end in (process.stdin, replies, line):
        with suppress(OSError):  # a request that could not be delivered
            end.close()


def serve() -> None:
    """Be the process: answer calls until the input is closed. What functions print is no reply."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    faulthandler.enable(replies)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests, inbox), daemon=True).start()
    while True:
        function, arguments, time_limit = pickle.loads(inbox.get())
        if time_limit is not None:
            faulthandler.dump_traceback_later(time_limit, exit=True, file=replies)
        value = function(*arguments)
        faulthandler.cancel_dump_traceback_later()
        pickle.dump(value, replies)
        replies.flush()


def _receive(requests: io.BufferedReader, inbox: "queue.SimpleQueue[bytes]") -> None:
    try:
        while True:
            inbox.put(pickle.load(requests))
    finally:
        os.killpg(0, signal.SIGKILL)  # nobody waits for the reply any more
