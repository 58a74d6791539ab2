"""The same command twice gives the same bytes.

Promised, and tested here for every file of `train`, `analyze --out --report`, `view`, `sweep` and
`sweep-models`: on one machine, with the same versions of the libraries, the same command writes the
same bytes. The time and its zone, the working directory, the language of the system, the order of
Python's sets (PYTHONHASHSEED), random states of the process, and in how many processes a sweep of
models runs do not matter. No file tells where or when it was made.

Numbers of threads do not matter either (OMP_NUM_THREADS=1 against 2). For training that is by
design: it runs on one thread. For analyses it holds because the libraries of today share out the rows
of such small products among threads, and never the terms of one sum.

Two kinds of file are left out: `.lock` files, which are empty, and `jobs/*.safetensors` of a sweep of
models, which tell how many seconds each job took; all else in them is compared. Not promised are the
same bytes on another processor or with other versions, or of figures with another matplotlibrc. A
model trained alone and the same one in a stack agree to rounding only.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.commands import LARGE, SMALL, TRAIN, sums_of
from tests.processes import started

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).parent / "count01-lens"


def commands(directory: Path, size: str, threads: int, seed: int, workers: int, **more: str):
    """Start all commands in a process of its own, in a directory of its own."""
    directory.mkdir(parents=True)
    return started(
        sys.executable, "-m", "tests.attacks.commands", size, "out", workers, seed,
        cwd=directory,
        env={**environment(threads, seed), **more},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def environment(threads: int, seed: int) -> dict[str, str]:
    numbers = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    path = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed)}
    screen = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}  # tables fit what is there
    return {**os.environ, **numbers, **path, **screen}


def run_twice(directory: Path, size: str, workers: int) -> dict[Path, str]:
    """Run everything in two processes that have little in common; return what each printed."""
    elsewhere = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "1"}
    places = directory / "a", directory / "b" / "deeper"
    with (
        commands(places[0], size, 1, 1, 0) as one,
        commands(places[1], size, 2, 4242, workers, **elsewhere) as other,
    ):
        ended = {
            place: process.communicate()
            for place, process in zip(places, (one, other), strict=True)
        }
    for process, (_, errors) in zip((one, other), ended.values(), strict=True):
        assert process.returncode == 0, errors
    return {place: printed for place, (printed, _) in ended.items()}


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    return run_twice(tmp_path_factory.mktemp("twice"), SMALL, workers=0)


def assert_same(twice: dict[Path, str]) -> dict[str, str]:
    one, two = (sums_of(place / "out") for place in twice)
    assert {name for name in {*one, *two} if one.get(name) != two.get(name)} == set()
    return one


def test_every_file_has_the_same_bytes(twice):
    names = assert_same(twice)
    expected = {
        "run/seed-0.safetensors", "run/run.safetensors", "run/state.safetensors",
        "run/snapshots/step-0000010.safetensors", "analysis/heads.csv", "analysis/pairs.csv",
        "analysis/analysis.safetensors", "analysis/head_outputs.svg", "analysis/gains.png",
        "report.html", "view.html", "sweep/sweep_w01.csv",
        "sweep/sweep_w02.svg", "models/heads.csv", "models/models.csv", "models/sweep.json",
    }  # fmt: skip
    assert expected <= set(names)
    assert sum(name.startswith("models/jobs/") for name in names) == 4


def test_the_same_is_printed(twice):
    one, two = twice.values()
    assert one == two
    assert "written to out/models: heads.csv, models.csv" in one


def test_no_file_tells_where_or_by_whom_it_was_made(twice):
    place = next(iter(twice))
    words = [str(place), str(Path.home()), socket.gethostname()]
    found = [
        (str(path.relative_to(place)), word)
        for path in sorted((place / "out").rglob("*"))
        if path.is_file()
        for word in words
        if len(word) > 5 and word.encode() in path.read_bytes()
    ]
    assert found == []


def test_the_program_gives_the_bytes_of_the_functions(twice, tmp_path):
    """The commands above were called inside of one process; this one is typed, with a whole path."""
    place = next(iter(twice))
    done = subprocess.run(
        [PROGRAM, "train", "--out", str(tmp_path / "run"), *TRAIN],
        env=environment(2, 7),
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert sums_of(tmp_path / "run") == sums_of(place / "out" / "run")


@pytest.mark.stress
def test_every_file_of_the_paper_s_model_has_the_same_bytes(tmp_path):
    twice = run_twice(tmp_path, LARGE, workers=2)
    names = assert_same(twice)
    assert {"analysis/groups.csv", "analysis/shapley.svg", "models/heads.csv"} <= set(names)
