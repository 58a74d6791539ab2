"""Files are there whole or not at all, and only what we would write is read."""

import os
import stat
from pathlib import Path

import pytest

from count01_lens.common.storage import (
    check_file_to_write,
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


def test_what_is_nested_beyond_what_python_bears_is_refused():
    deep = []
    for _ in range(10**5):
        deep = [deep]
    with pytest.raises(ValueError, match="^it is nested too deeply$"):
        json_bytes(deep)
    with pytest.raises(ValueError, match="^it is nested too deeply$"):
        parse_json(b"[" * 10**5)


def test_only_plain_files_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file") == b"12345"
    with pytest.raises(OSError, match="irectory"):
        read_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="expected a plain file, got a pipe or a device"):
        read_file(tmp_path / "pipe")


def character_device(directory: Path) -> Path:
    """A device such as /dev/null; without the right to make one, the end of a terminal."""
    device = directory / "device"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        device.symlink_to(os.ttyname(os.openpty()[1]))
    return device


@pytest.mark.parametrize("through_link", [False, True])
def test_devices_and_pipes_are_never_replaced(tmp_path, through_link):
    os.mkfifo(tmp_path / "pipe")
    for odd in (character_device(tmp_path), tmp_path / "pipe"):
        path = odd
        if through_link:
            path = tmp_path / f"link to {odd.name}"
            path.symlink_to(odd)
        before = odd.stat()
        for refused in (check_file_to_write, lambda path: write_atomically(path, b"content")):
            with pytest.raises(OSError, match=f"{path}: expected a plain file or a new one, got a"):
                refused(path)
        assert (odd.stat().st_mode, odd.stat().st_ino) == (before.st_mode, before.st_ino)
    assert not list(tmp_path.glob(".count01-tmp-*"))


def test_a_link_stays_and_the_file_that_it_leads_to_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    link.symlink_to("second")
    (tmp_path / "second").symlink_to(Path("elsewhere") / "file")
    for content in (b"the link leads nowhere yet", b"now it leads to a file"):
        check_file_to_write(link)
        write_atomically(link, content)
        assert link.is_symlink()
        assert (tmp_path / "second").is_symlink()
        assert not file.is_symlink()
        assert file.read_bytes() == content
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "elsewhere", "file", "link", "second",
    ]  # fmt: skip


def test_links_that_lead_to_no_place_for_a_file_are_refused(tmp_path):
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere" / "file")
    (tmp_path / "directory").symlink_to(tmp_path)
    for name, error in [
        ("round", "symbolic links: '.*/round'$"),
        ("gone", "got .*nowhere; create it|No such file or directory: '.*/gone'$"),
        ("directory", "got a directory|Is a directory: '.*/directory'$"),
    ]:
        for refused in (check_file_to_write, lambda path: write_atomically(path, b"content")):
            with pytest.raises((OSError, ValueError), match=error):
                refused(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "gone", "round"]
    assert all(path.is_symlink() for path in tmp_path.iterdir())


@pytest.mark.parametrize("late", ["device", "link"])
def test_what_is_put_there_while_a_file_is_written_stays(tmp_path, monkeypatch, late):
    """The look comes again when the data are on the disk, which is what takes long."""
    path, fsync = tmp_path / "file", os.fsync

    def another_is_faster(descriptor):
        if not path.exists():
            if late == "link":
                (tmp_path / "target").touch()
                path.symlink_to("target")
            else:
                os.mkfifo(path)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", another_is_faster)
    if late == "link":
        write_atomically(path, b"content")
        assert path.is_symlink()
        assert (tmp_path / "target").read_bytes() == b"content"
    else:
        with pytest.raises(OSError, match="expected a plain file"):
            write_atomically(path, b"content")
        assert stat.S_ISFIFO(path.stat().st_mode)
    assert not list(tmp_path.glob(".count01-tmp-*"))


@pytest.mark.parametrize("letter", ["a", "ä", "語"])
def test_names_may_be_as_long_as_the_file_system_takes(tmp_path, letter):
    longest = letter * (255 // len(letter.encode()))
    check_file_to_write(tmp_path / longest)
    for content in (b"old", b"new"):
        write_atomically(tmp_path / longest, content)
        assert [path.name for path in tmp_path.iterdir()] == [longest]
        assert (tmp_path / longest).read_bytes() == content
    for refused in (check_file_to_write, lambda path: write_atomically(path, b"content")):
        with pytest.raises(OSError, match="name too long: '/"):
            refused(tmp_path / (longest + letter))


def test_leftovers_of_a_long_name_are_removed_with_it_alone(tmp_path, monkeypatch):
    names = ["a" * 250, "a" * 249 + "b"]
    for name in names:
        with monkeypatch.context() as killed:
            killed.setattr(os, "replace", lambda source, target: 1 / 0)
            killed.setattr(Path, "unlink", lambda path, missing_ok=False: None)
            with pytest.raises(ZeroDivisionError):
                write_atomically(tmp_path / name, b"content")
    assert len(list(tmp_path.iterdir())) == 2
    remove_temporary_files(tmp_path, of=names[0])
    (other,) = tmp_path.iterdir()
    assert is_temporary(other)
    remove_temporary_files(tmp_path, of=names[1])
    assert not list(tmp_path.iterdir())
