"""Processes killed while they save and train: what they leave is old or new, and they go on.

A victim counts what it does to files, and kills itself with SIGKILL at the call that it was told:
before each of them, and half-way through each write. So every phase of a save is hit, not only the
slow ones; other victims are killed from outside, at random moments.
"""

import builtins
import ctypes
import fcntl
import io
import os
import re
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import count01_lens as cl
from count01_lens.common.bundle import read_bundle
from count01_lens.common.types import HookedTransformer
from count01_lens.models.checkpoints import checkpoint_info
from count01_lens.tasks.dataset import SplitSpec, make_splits
from tests.attacks.fork_server import End, fork_server

CONFIG = cl.TrainConfig(
    model=cl.ModelConfig(d_embed=4, n_heads=2, n_ctx=32), epochs=3, batch_size=700
)
SEEDS = [0, 1]
SPLITS = make_splits(
    0,
    train=SplitSpec(size=1400, zeros_and_ones=(0, 20), twos=(0, 20)),
    validation=SplitSpec(size=100, zeros_and_ones=(21, 30), twos=(0, 30)),
    test=SplitSpec(size=100, zeros_and_ones=(31, 40), twos=(0, 40)),
)
OLD, NEW, NONE = "old checkpoint whole", "new checkpoint whole", "no checkpoint before, none after"
RESUMED = "resumed bit-identical from epoch"
GOOD = {OLD, NEW, NONE, *(f"{RESUMED} {epoch}" for epoch in range(CONFIG.epochs + 1))}


# What victims do


def save(
    path: str, seed: int, n_ctx: int = 32, die_at: int = 0, largest_file: int | None = None
) -> list[str]:
    """Save a model; return what was done to files."""
    model = model_of(seed, n_ctx)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    log = watch_files(Path(path).parent, die_at)
    cl.save_checkpoint(model, path, info={"seed": seed, "n_ctx": n_ctx})
    return log


def save_again_and_again(path: str) -> Iterator[int]:
    """Save one model and another by turns, without end."""
    models = {seed: model_of(seed) for seed in (1, 2)}
    while True:
        for seed, model in models.items():
            cl.save_checkpoint(model, path, info={"seed": seed, "n_ctx": 32})
            yield seed


def load_again_and_again(path: str) -> Iterator[int]:
    """Tell which of these two models is there, or 0, without end."""
    models = {seed: model_of(seed) for seed in (1, 2)}
    while True:
        found = cl.load_checkpoint(path)
        yield sum(seed for seed, model in models.items() if same_bits(found, model))


def run(path: str, die_at: int = 0) -> list[str]:
    """Do what `count01-lens train` does; return what was done to files."""
    directory = Path(path)
    log = watch_files(directory, die_at)
    cl.train(CONFIG, seeds=SEEDS, splits=SPLITS, directory=directory).save_models(directory)
    return log


def try_to_write(path: str) -> list[str]:
    """Read and write in a directory without the right to write; return what came of each."""
    give_up_privileges()
    directory = Path(path)
    tries: list[Callable[[], Any]] = [
        lambda: whole(directory / "checkpoint"),
        lambda: cl.save_checkpoint(model_of(2), directory / "checkpoint"),
        lambda: cl.save_checkpoint(model_of(2), directory / "another"),
        lambda: cl.train(CONFIG, seeds=SEEDS, splits=SPLITS, directory=directory / "run"),
    ]
    outcomes = []
    for attempt in tries:
        try:
            outcomes.append(str(attempt()))
        except Exception as error:
            outcomes.append(f"{type(error).__name__}: {error}")
    return outcomes


def give_up_privileges() -> None:
    """Let modes of files apply to this process, also if it belongs to root."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        version_3, no_capabilities = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        if libc.capset(version_3, no_capabilities) != 0:
            raise OSError(ctypes.get_errno(), "capset")


def model_of(seed: int, n_ctx: int = 32) -> HookedTransformer:
    """A model that its seed and size alone decide."""
    return cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2, n_ctx=n_ctx), seed=seed)


def watch_files(directory: Path, die_at: int = 0) -> list[str]:
    """Write down all that this process does to files of a directory; die before the given one."""
    log: list[str] = []

    def note(what: str, path: Any = "") -> None:
        log.append(f"{what} {re.sub('^[.]count01-tmp-[0-9a-f]*-', '', Path(path).name)}".rstrip())
        if len(log) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # it is a matter of microseconds

    def inside(path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and Path(path).is_relative_to(directory)

    class Watched:
        """A file that is written."""

        def __init__(self, file: Any, path: Any):
            self._file, self._path = file, path

        def write(self, data: bytes) -> int:
            note("write", self._path)
            if len(log) + 1 == die_at:
                self._file.write(data[: len(data) // 2])
                self._file.flush()
            note("write the rest of", self._path)
            return self._file.write(data)

        def flush(self) -> None:
            note("flush", self._path)
            self._file.flush()

        def __enter__(self) -> "Watched":
            return self

        def __exit__(self, *error: Any) -> None:
            note("close", self._path)
            self._file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    def watched_open(path: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if not (inside(path) and set(mode) & set("wxa+")):
            return real_open(path, mode, *arguments, **named)
        note("open", path)
        opened = real_open(path, mode, *arguments, **named)
        return Watched(opened, path) if "b" in mode else opened

    def watched(module: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def operation(*arguments: Any, **named: Any) -> Any:
            is_path = isinstance(arguments[0], str | os.PathLike)
            if not is_path or inside(arguments[0]):
                note(name, arguments[-1] if is_path and name == "replace" else "")
            return real(*arguments, **named)

        setattr(module, name, operation)

    real_open = builtins.open
    builtins.open = io.open = watched_open
    for name in ("fsync", "replace", "rename", "link", "unlink", "remove", "mkdir", "truncate"):
        watched(os, name)
    watched(fcntl, "flock")
    return log


# What is looked at afterwards


def whole(path: Path) -> int | str:
    """Say which model a checkpoint holds, all of it, or what is wrong."""
    try:
        model, info = cl.load_checkpoint(path), checkpoint_info(path)["info"]
    except cl.CheckpointError as error:
        return f"does not load: {error}"
    return int(info["seed"]) if same_bits(model, model_of(**info)) else "a mixture"


def same_bits(one: HookedTransformer, other: HookedTransformer) -> bool:
    """Whether two models have the same parameters and buffers."""
    found, expected = one.state_dict(), other.state_dict()
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], tensor) for name, tensor in expected.items()
    )


def save_here(seed: int, path: Path) -> None:
    """Save a model in this process."""
    cl.save_checkpoint(model_of(seed), path, info={"seed": seed, "n_ctx": 32})


def contents(directory: Path) -> dict[str, bytes]:
    """All files of a run with their bytes; the lock belongs to nobody."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def difference(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """Name the files that differ."""
    names = sorted(n for n in {*found, *expected} if found.get(n) != expected.get(n))
    return f"ends with other files: {', '.join(names[:5])}" if names else ""


class Attack:
    """Kills victims in a directory, one after the other."""

    def __init__(self, directory: Path, seed: int):
        self.server, self.directory = fork_server(__name__), directory
        self.rng = np.random.default_rng(seed)
        self.number = 0
        first = self._place() / "model"
        self.log_first: list[str] = self.server.run("save", path=str(first), seed=1).value
        self.log_over: list[str] = self.server.run("save", path=str(first), seed=2).value
        undisturbed = self._place()
        start = time.monotonic()
        self.log_run: list[str] = self.server.run("run", path=str(undisturbed)).value
        self.seconds = time.monotonic() - start
        self.expected = contents(undisturbed)

    def points(self) -> list[tuple[str, int]]:
        """Every point at which a first save, a second one and a run can be killed."""
        logs = {"first": self.log_first, "over": self.log_over, "run": self.log_run}
        return [(name, at) for name, log in logs.items() for at in range(1, len(log) + 1)]

    def kill_at(self, what: str, at: int) -> str:
        """Kill a victim at a point, look at what it left, and let the next one go on."""
        if what == "run":
            return self._kill_runs([{"die_at": at}])
        return self._kill_saves(what, at)

    def kill_twice(self) -> str:
        """Kill a victim, and the next one that finds what the first one left."""
        if self.rng.random() < 0.5:
            ends = [{"die_at": self._any(self.log_run)} for _ in range(2)]
            return self._kill_runs(ends)
        return self._kill_saves("twice", self._any(self.log_over))

    def kill_from_outside(self) -> str:
        """Kill a victim at a random moment."""
        if self.rng.random() < 0.5:
            after = float(self.rng.uniform(0, self.seconds))
            return self._kill_runs([{"after": after}])
        path = self._place() / "model"
        save_here(2, path)
        after = float(self.rng.uniform(0, 0.15))
        end = self.server.run("save_again_and_again", path=str(path), after=after)
        saved = [2, *end.values]
        # The next one may be there before it is told.
        return self._judge(path, end, old=saved[-1], new=3 - saved[-1])

    def _kill_saves(self, what: str, at: int) -> str:
        path, old = self._place() / "model", 0
        if what != "first":
            save_here(1, path)
            old = 1
        if what == "twice":
            earlier = self._any(self.log_over)
            end = self.server.run("save", path=str(path), seed=2, die_at=earlier)
            left = whole(path)
            if not end.killed or left not in (1, 2):
                return f"after the first kill: {left} {end.error}"
            old = int(left)
        end = self.server.run("save", path=str(path), seed=3, die_at=at)
        return self._judge(path, end, old=old, new=3)

    def _judge(self, path: Path, end: End, *, old: int, new: int) -> str:
        if not end.killed:
            return f"not killed: {end}"
        found = whole(path)
        if old == 0 and isinstance(found, str) and "no such file" in found:
            outcome = NONE
        elif found not in (old, new):
            return f"expected {old} or {new}: {found}"
        else:
            outcome = OLD if found == old else NEW
        return self._next_save(path) or outcome

    def _next_save(self, path: Path) -> str:
        """Say what is wrong with the save that comes after, or nothing."""
        try:
            save_here(4, path)
        except Exception as error:
            return f"the next save fails: {error!r}"
        names = {file.name for file in path.parent.iterdir()}
        found = whole(path)
        shutil.rmtree(path.parent)
        if found != 4 or names != {"model.safetensors"}:
            return f"the next save leaves {found}, {sorted(names)}"
        return ""

    def _kill_runs(self, ways: list[dict[str, Any]]) -> str:
        path = self._place()
        for way in ways:
            end = self.server.run("run", path=str(path), **way)
            if end.error or end.hung:
                return f"ends by itself: {end}"
        epoch = self._epoch(path)
        end = self.server.run("run", path=str(path))
        if end.error or end.signal:
            return f"does not resume: {end}"
        wrong = difference(contents(path), self.expected)
        shutil.rmtree(path)
        return wrong or f"{RESUMED} {epoch}"

    def _epoch(self, path: Path) -> int:
        state = path / "state.safetensors"
        return int(read_bundle(state, "training state").about["epoch"]) if state.exists() else 0

    def _any(self, log: list[str]) -> int:
        return int(self.rng.integers(1, len(log) + 1))

    def _place(self) -> Path:
        self.number += 1
        return self.directory / str(self.number)


def attack_faults(cases: int, seed: int) -> Counter[str]:
    """Kill processes in every phase of saving and training, and at random moments."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        attack = Attack(Path(name), seed)
        points, outside = attack.points(), cases // 4
        # A save has few points, and only one of them leaves the new one: all of them come first.
        saves = [point for point in points if point[0] != "run"]
        runs = points[len(saves) :]
        for point in saves:
            outcomes[attack.kill_at(*point)] += 1
        # Spread evenly where there are fewer cases than points.
        start, some = int(attack.rng.integers(len(runs))), cases - outside - len(saves)
        for number in range(min(len(runs), some)):
            place = (start + number * len(runs) // some) % len(runs)
            outcomes[attack.kill_at(*runs[place])] += 1
        inside = len(saves) + min(len(runs), some)
        for _ in range(cases - outside - inside):
            outcomes[attack.kill_twice()] += 1
        for _ in range(outside):
            outcomes[attack.kill_from_outside()] += 1
    return outcomes


TASKS = {
    "save": save,
    "save_again_and_again": save_again_and_again,
    "load_again_and_again": load_again_and_again,
    "run": run,
    "try_to_write": try_to_write,
}
