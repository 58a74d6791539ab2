"""Change the explorer's engine in small ways, one at a time, and see whether its tests notice.

    python -m experiments.tools.engine_mutants                 a random share: some minutes
    python -m experiments.tools.engine_mutants --share 1       all of them

What mutmut does for Python (experiments.tools.mutants), for JavaScript: an operator, a number or a
word becomes another one. The tests run in a fork of this process, so that nothing is imported more
than once. The record goes to that of the other mutants, runs/trust/mutants.json.
"""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module

import pytest

from count01_lens.views import explorer_module
from experiments.tools.harmless_mutants import reason_of
from experiments.tools.mutants import is_drawn, record

TESTS = ("tests/views/explorer/test_engine_probes.py", "tests/views/explorer/test_engine.py")
# pytest warns of what was imported before it, which is why nothing is imported twice here.
OPTIONS = ("-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-W", "ignore:Module already")
ENGINE_FILES = tuple(f"data/explorer/{name}" for name in explorer_module.ENGINE)
PATIENCE = 60.0  # seconds; a mutant may never end
# Each match of the first becomes each of the others.
CHANGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"===", ("!==",)),
    (r"!==", ("===",)),
    (r"<=", ("<", ">")),
    (r">=", (">", "<")),
    (r"(?<= )<(?= )", ("<=", ">=")),
    (r"(?<= )>(?= )", (">=", "<=")),
    (r"&&", ("||",)),
    (r"\|\|", ("&&",)),
    (r"\?\?", ("&&",)),
    (r"(?<= )\+(?= )", ("-",)),
    (r"(?<= )-(?= )", ("+",)),
    (r"(?<= )\*(?= )", ("/",)),
    (r"(?<= )/(?= )", ("*",)),
    (r"\+=", ("-=", "=")),
    (r"-=", ("+=", "=")),
    (r"(?<=[\[( =])-(?=[\w(])", ("",)),
    (r"(?<=[^\w.])!(?=[\w(])", ("",)),
    (r"\b\d+(?:\.\d+)?(?:e-?\d+)?\b", ("({} + 1)",)),
    (r"\bMath\.max\b", ("Math.min",)),
    (r"\bMath\.min\b", ("Math.max",)),
    (r"\btrue\b", ("false",)),
    (r"\bfalse\b", ("true",)),
    (r"\bInfinity\b", ("0",)),
    (r"\bcontinue\b", ("break",)),
    (r"\bbreak\b", ("continue",)),
)
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"|`[^`]*`|^import[^;]*;", re.S | re.M)


@dataclass(frozen=True)
class Mutant:
    """A file of the engine with one change."""

    file: str
    name: str
    was: str
    became: str
    text: str


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Make all mutants of a file; comments, texts and imports stay as they are."""
    code = _NO_CODE.sub(lambda found: " " * len(found[0]), text)
    for pattern, others in CHANGES:
        for place in re.finditer(pattern, code):
            for i, other in enumerate(others):
                changed = text[: place.start()] + other.format(place[0]) + text[place.end() :]
                line = text.count("\n", 0, place.start())
                yield Mutant(
                    file=file,
                    name=f"{file} {place.start()} {pattern} {i}",
                    was=text.splitlines()[line].strip(),
                    became=changed.splitlines()[line].strip(),
                    text=changed,
                )


def is_noticed(mutant: Mutant | None) -> bool:
    """Whether the engine's tests fail on a mutant, or never end; without one they must pass."""
    process = os.fork()
    if process == 0:
        os.setsid()
        _silence()
        if mutant is not None:
            _put_in_place(mutant)
        os._exit(pytest.main([*TESTS, *OPTIONS]))
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return True


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _put_in_place(mutant: Mutant) -> None:
    read = explorer_module.module_file

    def changed(name: str, directory: str) -> str:
        return mutant.text if name == mutant.file else read(name, directory)

    explorer_module.module_file = changed  # type: ignore[assignment]
    explorer_module.explorer_module.cache_clear()


def main() -> None:
    """Run a share of the mutants of the engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=explorer_module.ENGINE)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for tests in TESTS:
        import_module(tests.removesuffix(".py").replace("/", "."))
    if is_noticed(None):
        sys.exit(f"expected {' and '.join(TESTS)} to pass as they are; mend that first")
    for file in arguments.files:
        mutants = list(mutants_of(file, explorer_module.explorer_file(file)))
        drawn = [one for one in mutants if is_drawn(one.name, arguments.share, arguments.seed)]
        alive = [{"was": one.was, "became": one.became} for one in drawn if not is_noticed(one)]
        found = {"made": len(mutants), "killed": len(drawn) - len(alive), "survivors": alive}
        record(f"data/explorer/{file}", found)
        print(f"{file}: {found['killed']} killed, {len(alive)} survived")
        for survivor in alive:
            if reason_of(survivor) is None:
                print(f"    - {survivor['was']}\n    + {survivor['became']}", flush=True)


if __name__ == "__main__":
    main()
