"""Kills, full disks, read-only directories and two writers: nothing is lost, nothing is mixed."""

import re
import stat
from collections import Counter

import pytest

from count01_lens.common.storage import is_temporary
from tests.attacks import attack_and_keep
from tests.attacks.faults import (
    GOOD,
    NEW,
    OLD,
    RESUMED,
    attack_faults,
    contents,
    save_here,
    whole,
)
from tests.attacks.fork_server import fork_server, task
from tests.helpers import LIMIT, small_disk
from tests.lens_versions import has_bridges

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    return fork_server("tests.attacks.faults")


def assert_good(outcomes: Counter[str], cases: int) -> None:
    assert set(outcomes) <= GOOD, outcomes
    assert sum(outcomes.values()) == cases
    assert outcomes[OLD]
    assert outcomes[NEW]
    assert any(word.startswith(RESUMED) for word in outcomes)


def test_kills_in_every_phase_leave_the_old_or_the_new():
    assert_good(attack_faults(40, seed=0), 40)


@pytest.mark.stress
def test_many_kills_in_every_phase_leave_the_old_or_the_new():
    what = (
        "processes killed with SIGKILL before every single file operation of saving and training, "
        "half-way through every write, twice in a row, and from outside at random moments"
    )
    outcomes = attack_and_keep("faults", what, attack_faults, 500, seed=1)
    assert_good(outcomes, 500)
    assert {f"{RESUMED} {epoch}" for epoch in range(4)} <= set(outcomes)


def test_a_file_is_on_the_disk_before_it_gets_its_name(server, tmp_path):
    """A kill does not lose what was written and not flushed; a power failure does."""
    logs = [
        server.run("save", path=str(tmp_path / "checkpoint"), seed=seed).value for seed in (1, 2)
    ]
    logs.append(server.run("run", path=str(tmp_path / "run")).value)
    for log in logs:
        text = "".join(f"{line}\n" for line in log)
        written = re.findall(
            r"open (\S+)\nwrite \1\nwrite the rest of \1\nflush \1\nfsync\nclose \1\n"
            r"replace \1\nfsync\n",
            text,
        )
        assert sorted(written) == sorted(re.findall(r"^write ([^ ]+)$", text, re.MULTILINE))
        assert text.endswith("fsync\n")
        assert text.count("replace") == len(written) > 0


def test_two_processes_save_one_checkpoint(server, tmp_path):
    """Neither waits for the other; each save is whole, and the last one stays."""
    seconds = 2.5 if has_bridges() else 0.7  # bridges take five times as long to make
    for number in range(3):
        path = tmp_path / str(number) / "checkpoint"
        both = [task("save_again_and_again", after=seconds, path=str(path)) for _ in range(2)]
        for end in server.together(*both):
            assert end.killed, end
            assert len(end.values) > 3
        assert whole(path) in (1, 2)
        save_here(4, path)
        assert whole(path) == 4
        assert [file.name for file in path.parent.iterdir()] == ["checkpoint.safetensors"]


def test_a_reader_sees_the_old_or_the_new_while_another_process_saves(server, tmp_path):
    save_here(1, tmp_path / "checkpoint")
    writer, reader = server.together(
        task("save_again_and_again", after=2.5, path=str(tmp_path / "checkpoint")),
        task("load_again_and_again", after=2.5, path=str(tmp_path / "checkpoint")),
    )
    assert len(writer.values) > 3
    assert len(reader.values) > 3
    assert set(reader.values) <= {1, 2}
    assert writer.killed
    assert reader.killed


def test_two_processes_write_one_run(server, tmp_path):
    server.run("run", path=str(tmp_path / "undisturbed"))
    both = [task("run", path=str(tmp_path / "run")) for _ in range(2)]
    ends = server.together(*both)
    done = [end for end in ends if not end.error]
    assert done
    for end in ends:
        assert end in done or end.error.startswith("AlreadyInUseError: "), end
    assert contents(tmp_path / "run") == contents(tmp_path / "undisturbed")


def test_a_full_disk_leaves_the_old_checkpoint(server, tmp_path):
    """The new one is large enough to fill it, beside the old one."""
    with small_disk(tmp_path / "disk") as enlarge:
        path = tmp_path / "disk" / "checkpoint"
        new = {"path": str(path), "seed": 2, "n_ctx": 7000}
        assert server.run("save", **{**new, "seed": 1}).value
        end = server.run("save", **new, largest_file=LIMIT if enlarge is None else None)
        assert ("No space left" if enlarge else "File too large") in end.error
        assert whole(path) == 1
        assert not [file for file in path.parent.iterdir() if is_temporary(file)]
        if enlarge is not None:
            enlarge()
        assert server.run("save", **new).value
        assert whole(path) == 2


def test_a_read_only_directory_is_read_and_not_written(server, tmp_path):
    save_here(1, tmp_path / "checkpoint")
    server.run("run", path=str(tmp_path / "run"))
    before = contents(tmp_path)
    directories = [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())]
    for path in [*directories, *(path for path in tmp_path.rglob("*") if path.is_file())]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        loaded, *refused = server.run("try_to_write", path=str(tmp_path)).value
    finally:
        for path in directories:
            path.chmod(stat.S_IRWXU)
    assert loaded == "1"
    for outcome, place in zip(refused, ("checkpoint", "another", "run"), strict=True):
        assert outcome.startswith("PermissionError: "), outcome
        assert str(tmp_path / place) in outcome
    assert contents(tmp_path) == before
