"""Files are there whole or not at all, and only what we would write is read."""

import os
from pathlib import Path

import pytest

from count01_lens.common.storage import (
    is_temporary,
    json_bytes,
    parse_json,
    read_file,
    remove_temporary_files,
    write_atomically,
)


def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """A power failure loses what was not flushed; the rename is flushed as well."""
    done = []
    replace, fsync = os.replace, os.fsync

    def watched_fsync(descriptor):
        done.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def watched_replace(source, target):
        done.append(f"replace {Path(source).name} {Path(target).name}")
        assert Path(source).read_bytes() == b"content"
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    write_atomically(tmp_path / "file", b"content")
    temporary = done[0].removeprefix("fsync ")
    assert is_temporary(Path(temporary))
    assert done == [f"fsync {temporary}", f"replace {temporary} file", f"fsync {tmp_path.name}"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0o022, 0o644), (0o077, 0o600)])
def test_files_get_the_modes_of_the_umask(tmp_path, umask, mode):
    old = os.umask(umask)
    try:
        write_atomically(tmp_path / "one", b"")
    finally:
        os.umask(old)
    assert (tmp_path / "one").stat().st_mode & 0o777 == mode


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write_atomically(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_atomically(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_file_that_was_taken_for_a_leftover_is_written_again(tmp_path, monkeypatch):
    """Another process that saves the same file tidies up in the moment before the rename."""
    replace, names = os.replace, []

    def tidied_first(source, target):
        names.append(source)
        if len(names) == 1:
            remove_temporary_files(tmp_path)
        replace(source, target)

    monkeypatch.setattr(os, "replace", tidied_first)
    write_atomically(tmp_path / "file", b"content")
    assert len(set(names)) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"content"}


def test_a_missing_directory_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere/file'$"):
        write_atomically(tmp_path / "nowhere" / "file", b"content")


def test_leftovers_are_removed_of_one_name_or_of_all(tmp_path):
    one, two = (tmp_path / f".count01-tmp-0123456789abcdef-{name}" for name in ("a.b", "aXb"))
    mine = [tmp_path / name for name in (".count01-tmp-mine", ".count01-tmp-0123-a.b", "a.b")]
    for path in (one, two, *mine):
        path.touch()
    remove_temporary_files(tmp_path, of="a.b")
    assert sorted(tmp_path.iterdir()) == sorted([two, *mine])
    remove_temporary_files(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(mine)


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "1e999", '{"a":1,"a":1}', "[" * 200 + "]" * 200, "\xff"]
)
def test_only_json_as_we_write_it_is_read(text):
    with pytest.raises(ValueError, match=".+"):
        parse_json(text.encode("latin-1"))
    assert parse_json(b'{"a": [1.5, -2, "x", null]}') == {"a": [1.5, -2, "x", None]}


def test_equal_values_give_equal_bytes():
    assert json_bytes({"b": 1, "a": [None]}) == json_bytes({"a": [None], "b": 1})
    assert json_bytes({"b": 1, "a": 2}, indent=None) == b'{"a": 2, "b": 1}\n'


def test_only_plain_files_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file") == b"12345"
    with pytest.raises(OSError, match="irectory"):
        read_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="expected a plain file, got a pipe or a device"):
        read_file(tmp_path / "pipe")
