"""Ctrl-C at random moments of every command, and two commands at once in one directory.

Whatever happens, a user finds the old files or the new ones, whole, and a sentence instead of a
traceback; the same command, given again, ends with the bytes that it always writes.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.attacks.command_line import COMMANDS, arguments_of, make_models, what_is_wrong_with
from tests.attacks.commands import sums_of
from tests.attacks.fork_server import End, fork_server, task

INTERRUPTED, USER_ERROR = 130, 2
ENDED = "the command had ended"
STOPPED = "stopped, and given again with the same bytes"
STOPPED_OVER = "stopped over older files, and given again with the same bytes"
BOTH, REFUSED = "both wrote, one after the other", "one wrote, the other was refused"
GOOD = {ENDED, STOPPED, STOPPED_OVER, BOTH, REFUSED}
# What goes on from its own files alone, or writes none.
NOT_OVER = ("train", "verify", "doctor")
# What a command may say that does not get the directory.
REFUSALS = ("another process is writing here", "holds another run", "expected a")
# Two commands in one directory: those that share it on purpose, and those that should not.
PAIRS = [
    *((name, name) for name in COMMANDS if name != "doctor"),
    ("train", "sweep-models"), ("analyze", "sweep"), ("analyze", "sweep-models"),
    ("train", "analyze"), ("sweep", "sweep-models"),
]  # fmt: skip


@contextmanager
def prepared() -> Iterator["Place"]:
    """Models for the commands, and a directory in which nothing is left afterwards."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "models").mkdir()
        make_models(directory / "models")
        yield Place(directory)


class Place:
    """Where commands are run, and what each writes if nobody disturbs it."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.server = fork_server("tests.attacks.command_line")
        self.number = 0
        self._undisturbed: dict[tuple[str, ...], tuple[dict[str, str], float]] = {}

    def new(self) -> Path:
        """An empty directory."""
        self.number += 1
        made = self.directory / f"out-{self.number}"
        made.mkdir()
        return made

    def words(self, command: str, out: Path, variant: str = "a") -> list[str]:
        """The command as a user gives it."""
        return arguments_of(command, self.directory / "models", out, variant)

    def run(self, command: str, out: Path, variant: str = "a", **how: Any) -> dict[str, Any]:
        """Run a command; how it ended."""
        return _ended(
            self.server.run("command", arguments=self.words(command, out, variant), **how)
        )

    def undisturbed(self, command: str, *variants: str) -> tuple[dict[str, str], float]:
        """The files of a command, given once or again with something else, and its seconds."""
        key = (command, *variants)
        if key not in self._undisturbed:
            out, seconds = self.new(), 0.0
            for variant in variants:
                end = self.run(command, out, variant)
                if end["code"] != 0:
                    raise RuntimeError(f"{command} fails: {end}")
                seconds = end["seconds"]
            self._undisturbed[key] = sums_of(out), seconds
            shutil.rmtree(out)
        return self._undisturbed[key]


def _ended(end: End) -> dict[str, Any]:
    if end.hung or end.signal or end.error:
        return {"code": "hung" if end.hung else "died", "errors": f"{end}", "out": "", "seconds": 0}
    return dict(end.value)


def attack_ctrl_c(cases: int, seed: int) -> Counter[str]:
    """Press Ctrl-C at a random moment of each command by turns, and give it again."""
    rng = np.random.default_rng(seed)
    outcomes: Counter[str] = Counter()
    with prepared() as place:
        names = list(COMMANDS)
        for case in range(cases):
            command = names[case % len(names)]
            over = case // len(names) % 2 == 1 and command not in NOT_OVER
            outcome = _stop_and_go_on(place, command, over, float(rng.uniform(0, 1)))
            outcomes[outcome if outcome in GOOD else f"{command}: {outcome}"] += 1
    return outcomes


def _stop_and_go_on(place: Place, command: str, over: bool, moment: float) -> str:
    old = ["b"] if over else []
    expected, seconds = place.undisturbed(command, *old, "a")
    allowed = expected | {
        f"old {k}": v for k, v in place.undisturbed(command, *old or "a")[0].items()
    }
    out = place.new()
    for variant in old:
        place.run(command, out, variant)
    end = place.run(command, out, ctrl_c_after=moment * seconds)
    if end["code"] not in (0, INTERRUPTED):
        return f"ends with {end['code']}: {end['errors'][-300:]}"
    if "Traceback" in end["errors"]:
        return f"says more than a sentence: {end['errors'][-600:]}"
    if wrong := what_is_wrong_with(out, allowed):
        return wrong
    again = place.run(command, out)
    if again["code"] != 0:
        return f"cannot be given again: {again['errors'][-300:]}"
    different = _different(sums_of(out), expected)
    shutil.rmtree(out)
    if different:
        return f"ends with other files: {different}"
    if end["code"] == 0:
        return ENDED
    return STOPPED_OVER if over else STOPPED


def attack_together(cases: int, seed: int) -> Counter[str]:
    """Run two commands in one directory at once."""
    rng = np.random.default_rng(seed)
    outcomes: Counter[str] = Counter()
    with prepared() as place:
        for case in range(cases):
            pair = PAIRS[case % len(PAIRS)]
            wait = float(rng.uniform(0, 0.6)) if rng.random() < 0.7 else 0.0
            outcome = _both(place, pair, wait)
            outcomes[outcome if outcome in GOOD else f"{' and '.join(pair)}: {outcome}"] += 1
    return outcomes


def _both(place: Place, pair: tuple[str, str], wait: float) -> str:
    variants = ("a", "b")
    written = [place.undisturbed(name, v) for name, v in zip(pair, variants, strict=True)]
    one_directory = pair[0] != pair[1]
    out = place.new()
    words = [place.words(name, out, v) for name, v in zip(pair, variants, strict=True)]
    if one_directory:  # each would take one of its own
        words = [_into(each, out) for each in words]
    ends = [
        _ended(end)
        for end in place.server.together(
            task("command", arguments=words[0]), task("command", arguments=words[1], wait=wait)
        )
    ]
    for end in ends:
        if "Traceback" in end["errors"] or end["code"] not in (0, USER_ERROR):
            return f"ends with {end['code']}: {end['errors'][-600:]}"
        if end["code"] == USER_ERROR and not any(word in end["errors"] for word in REFUSALS):
            return f"is refused without a reason: {end['errors'][-300:]}"
    done = [n for n, end in enumerate(ends) if end["code"] == 0]
    if not done:
        return f"neither works: {[end['errors'][-200:] for end in ends]}"
    allowed = {f"{n} {k}": v for n, (files, _) in enumerate(written) for k, v in files.items()}
    if wrong := what_is_wrong_with(out, allowed):
        return wrong
    if not one_directory and pair[0] != "sweep-models" and (mixed := _mixed(out, written, done)):
        return mixed
    shutil.rmtree(out)
    return BOTH if len(done) == 2 else REFUSED


def _into(words: list[str], out: Path) -> list[str]:
    """Let a command write straight into the directory; a report has a name of its own."""
    directories = {"run", "analysis", "sweep", "models"}
    inside = {str(out / name) for name in directories}
    return [str(out) if word in inside else word for word in words]


def _mixed(out: Path, written: list[tuple[dict[str, str], float]], done: list[int]) -> str:
    """Say which part of a directory is of neither command alone."""
    found = sums_of(out)
    parts = {name.partition("/")[0] for name in found}
    for part in parts:
        here = {k: v for k, v in found.items() if k.partition("/")[0] == part}
        there = [
            {k: v for k, v in written[n][0].items() if k.partition("/")[0] == part} for n in done
        ]
        if here not in there:
            return f"{part} is a mixture: {_different(here, there[0])}"
    return ""


def _different(found: dict[str, str], expected: dict[str, str]) -> str:
    names = sorted(n for n in {*found, *expected} if found.get(n) != expected.get(n))
    return ", ".join(names[:5])
