"""Files that are not what the library wrote: each is refused in our own words, or changes nothing.

Checkpoints, saved analyses, results of jobs and directories of runs are changed in all the ways that
disks, mistakes and enemies know. Whoever changes a file on purpose also makes the checksums fit
again; such a file may be read, if it is whole, and then as it is written.

Cases run in copies of a process that has a limit of memory. It writes down every file that is opened
and all code that is run; one that hangs is killed.
"""

import contextlib
import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

import count01_lens as cl
from count01_lens.common.storage import DamagedFileError
from count01_lens.jobs.results import ResultError
from count01_lens.training.run_directory import RunDirectoryError
from tests.attacks.fork_server import fork_server, task
from tests.attacks.mutations import MUTATIONS, SECRET, Place, add_files, change_kind_of_file
from tests.attacks.stored_things import KINDS

SAME, RESEALED = "same bits", "resealed, and read as written"
ERRORS = (cl.CheckpointError, DamagedFileError, ResultError, RunDirectoryError)
GOOD = {SAME, RESEALED, *(error.__name__ for error in ERRORS)}
SECONDS, MEMORY = 2.0, 600_000_000


class Guard:
    """Notes what this process opens, writes and runs, for ever: an audit hook cannot be taken back."""

    def __init__(self, outside: Path):
        self.outside = os.path.realpath(outside)
        self.here: str | None = None  # only while something is read
        self.may_write = False
        self.seen: set[str] = set()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.here is None:
            return
        if event in _CODE:
            self.seen.add(f"runs code: {event}")
        elif event == "exec" and getattr(arguments[0], "co_filename", "<").startswith("<string"):
            self.seen.add("runs code: exec")
        elif event in _CHANGES or event == "open":
            self._look_at(event, arguments)

    def _look_at(self, event: str, arguments: tuple[Any, ...]) -> None:
        here, self.here = self.here, None  # what follows is our own
        try:
            if isinstance(arguments[0], int):
                return
            given = Path(os.fsdecode(arguments[0]))
            # Only what opens a link follows it; to remove one is to remove the link.
            parent = os.path.realpath(given.parent)
            path = os.path.realpath(given) if event == "open" else f"{parent}/{given.name}"
            writes = event != "open" or arguments[2] & _WRITING
            if os.path.commonpath([path, str(here)]) == here:
                if writes and not self.may_write:
                    self.seen.add(f"writes: {event}")
            elif writes:
                self.seen.add(f"writes elsewhere: {event}")
            elif os.path.commonpath([path, self.outside]) == self.outside:
                self.seen.add("opens a file outside")
        finally:
            self.here = here


_CODE = {
    "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen",
    "ctypes.dlopen", "socket.connect", "socket.getaddrinfo", "webbrowser.open",
}  # fmt: skip
_CHANGES = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod", "os.chown", "shutil.rmtree", "shutil.copyfile",
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def make_all(directory: str) -> int:
    """Write two things of each kind, and what is outside."""
    place = Path(directory)
    for name, kind in KINDS.items():
        for seed in (0, 5):
            kind.make(place / f"{name} {seed}", seed)
    (place / "outside").mkdir()
    (place / "outside" / "canary").write_bytes(SECRET)
    os.mkfifo(place / "outside" / "pipe")
    safetensors.torch.save_file({"rows": torch.zeros(2, 3)}, place / "outside" / "stranger")
    return len(KINDS)


def mutants(directory: str, seed: int, first: int, last: int) -> Iterator[str]:
    """Change and read things; yield what came of each case."""
    warnings.simplefilter("ignore")  # a damaged result is a warning and then an error
    place = Path(directory)
    whole = {name: kind.read(place / f"{name} 0") for name, kind in KINDS.items()}
    guard = Guard(place / "outside")
    limit_memory()
    for number in range(first, last):
        yield one_mutant(place, guard, whole, seed, number)


def read_one(kind: str, place: str) -> str:
    """Read a thing of a kind; return what came of it."""
    warnings.simplefilter("ignore")
    limit_memory()
    try:
        KINDS[kind].read(Path(place))
    except ERRORS as error:
        return f"{type(error).__name__}: {error}"
    return SAME


def limit_memory() -> None:
    """Leave this process so much memory more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def one_mutant(
    directory: Path, guard: Guard, whole: dict[str, dict[str, Any]], seed: int, number: int
) -> str:
    """Make a mutant and read it; return a word for the outcome, or a sentence if it is bad."""
    rng = np.random.default_rng([seed, number])
    name = list(KINDS)[number % len(KINDS)]
    kind, outside = KINDS[name], directory / "outside"
    here = directory / "here"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(directory / f"{name} 0", here)
    (outside / "twin").unlink(missing_ok=True)
    place = Place(name, here, directory / f"{name} 5", outside, rng)
    mutation = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
    with contextlib.suppress(IndexError, UnicodeEncodeError):
        resealed = mutation(place)
    before = sorted(path.name for path in outside.iterdir())
    guard.seen, guard.may_write, guard.here = set(), kind.writes, os.path.realpath(here)
    start, problem, found = time.process_time(), "", None
    try:
        found = kind.read(here)
    except ERRORS as error:
        guard.here = None
        outcome = type(error).__name__
        if not isinstance(error, kind.error):
            problem = f"{outcome} is not what {name} documents"
        elif SECRET.decode() in str(error):
            problem = "the error tells what is in a file outside"
        elif str(here) not in str(error):
            problem = f"the error does not name the file: {error}"
    except BaseException as error:
        guard.here = None
        outcome = problem = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        guard.here = None
    seconds = time.process_time() - start
    if found is not None:
        outcome = SAME
        if found != whole[name]:
            outcome = RESEALED
            if not resealed:
                problem = "something else is read without a word"
            elif not kind.as_written(here, found):
                problem = "what is read is not what is written"
    links = mutation in (change_kind_of_file, add_files)
    guard.seen -= {"opens a file outside"} if links else set()
    if guard.seen:
        problem = f"{sorted(guard.seen)}"
    elif seconds > SECONDS:
        problem = f"takes {seconds:.1f} s"
    elif sorted(path.name for path in outside.iterdir()) != before:
        problem = "leaves something outside"
    elif (outside / "canary").read_bytes() != SECRET:
        problem = "changes a file outside"
    return f"{name} {number}, {mutation.__name__}: {problem}" if problem else outcome


def attack_hostile_files(cases: int, seed: int) -> Counter[str]:
    """Change stored things in every way, and read them."""
    outcomes: Counter[str] = Counter()
    server = fork_server(__name__)
    with tempfile.TemporaryDirectory() as directory:
        assert server.run("make_all", directory=directory).value
        done = 0
        while done < cases:
            last = min(cases, done + 250)
            batch = task("mutants", directory=directory, seed=seed, first=done, last=last)
            [end] = server.together(batch, patience=20.0)
            outcomes.update(end.values)
            done += len(end.values)
            if done < last:  # its death is an outcome, too
                how = "hangs" if end.hung else f"dies: signal {end.signal} {end.error}"
                outcomes[f"{list(KINDS)[done % len(KINDS)]} {done}: the process {how}"] += 1
                done += 1
    return outcomes


TASKS = {"make_all": make_all, "mutants": mutants, "read_one": read_one}
