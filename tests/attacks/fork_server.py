"""A process that has imported everything, and does each task in a copy of itself.

A process that is to be killed has to be a new one each time, and to import torch takes seconds. A
copy of a process with several threads may hang, so the one that is copied is fresh and has only one.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.processes import start_for_session

_SERVE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tests.attacks.fork_server import serve; serve(sys.argv[2])"
)
_ONE_THREAD = dict.fromkeys(
    ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TOKENIZERS_PARALLELISM"], "1"
)


@dataclass(frozen=True)
class End:
    """How a task ended.

    Attributes:
        values: what it returned, or one by one what it yielded.
        error: kind and message of what it raised, or "".
        signal: what it was killed by, or 0.
        hung: whether it was killed because nothing came for too long.
    """

    values: list[Any]
    error: str
    signal: int
    hung: bool

    @property
    def killed(self) -> bool:
        """Whether `kill -9` ended it."""
        return self.signal == signal.SIGKILL and not self.hung

    @property
    def value(self) -> Any:
        """What it returned; raise if it did not."""
        if self.error or self.signal or len(self.values) != 1:
            raise AssertionError(f"expected a value, got {self}")
        return self.values[0]


Task = tuple[str, float | None, dict[str, Any]]


def task(name: str, *, after: float | None = None, **arguments: Any) -> Task:
    """Describe a task for `ForkServer.together`."""
    return name, after, arguments


class ForkServer:
    """Runs the functions that a module has in its `TASKS`, with JSON values in and out.

    A function that yields tells each value at once, so what it told before its death is known.
    """

    def __init__(self, module: str):
        # Libraries that are asked for with another path, such as a broken build, are found here too.
        self._process = start_for_session(
            sys.executable, "-P", "-c", _SERVE, json.dumps(sys.path), module,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **_ONE_THREAD},
        )  # fmt: skip

    def run(self, name: str, *, after: float | None = None, **arguments: Any) -> End:
        """Do a task and wait for its end; kill it after so many seconds, if they are given."""
        return self.together(task(name, after=after, **arguments))[0]

    def together(self, *tasks: Task, patience: float = 60.0) -> list[End]:
        """Do several tasks at the same time; one of which nothing is heard for too long is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([tasks, patience]) + "\n")
        self._process.stdin.flush()
        reply = self._process.stdout.readline()
        if not reply:
            raise RuntimeError("the process that is copied ended itself")
        return [End(**end) for end in json.loads(reply)]


@cache
def fork_server(module: str) -> ForkServer:
    """Start the process for a module, once; it ends with the session."""
    return ForkServer(module)


def serve(module: str) -> None:
    """Be the process that is copied, until the input ends."""
    import count01_lens as cl

    tasks = importlib.import_module(module).TASKS
    cl.example_model()  # imports what the library imports only when it is needed
    _ = cl.train, cl.analyze_heads
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tasks print is no reply
    for line in sys.stdin:
        wanted, patience = json.loads(line)
        copies = [(_start(tasks[name], arguments), after) for name, after, arguments in wanted]
        ends = [_end(*copy, after, patience) for copy, after in copies]
        print(json.dumps(ends), file=replies, flush=True)


def _start(function: Any, arguments: dict[str, Any]) -> tuple[int, int, float]:
    reading, writing = os.pipe()
    start = time.monotonic()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading, start
    try:
        for told in _told(function, arguments):
            os.write(writing, (json.dumps(told) + "\n").encode())
    finally:
        os._exit(0)


def _told(function: Any, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        made = function(**arguments)
        for value in made if isinstance(made, Iterator) else [made]:
            yield {"value": value}
    except BaseException as error:
        yield {"error": f"{type(error).__name__}: {error}"}


def _end(
    child: int, reading: int, start: float, after: float | None, patience: float
) -> dict[str, Any]:
    told, hung = b"", False
    until = time.monotonic() + patience if after is None else start + after
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            hung = after is None
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            until = time.monotonic() + patience
            continue
        more = os.read(reading, 1 << 16)
        if not more:
            break
        told += more
        if after is None:
            until = time.monotonic() + patience
    os.close(reading)
    _, status = os.waitpid(child, 0)
    lines = [json.loads(line) for line in told.splitlines(keepends=True) if line.endswith(b"\n")]
    return {
        "values": [line["value"] for line in lines if "value" in line],
        "error": "".join(line.get("error", "") for line in lines),
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "hung": hung,
    }
