"""Nothing is overwritten that the library did not write."""

import json

import pytest

from count01_lens.common import outputs as module
from count01_lens.common.outputs import LIST, Outputs, check_page_to_write
from count01_lens.common.storage import AlreadyInUseError, sha256
from count01_lens.views.document import render


def test_files_are_written_again_by_whoever_wrote_them(tmp_path):
    for content in (b"a\n1\n", b"a\n2\n"):
        outputs = Outputs(tmp_path / "new", "analyze")
        outputs.check("*.csv")
        with outputs.opened():
            outputs.write({"heads.csv": content})
        assert (tmp_path / "new" / "heads.csv").read_bytes() == content


@pytest.mark.parametrize("by", ["analyze", "sweep-models"])
def test_a_file_of_somebody_is_kept(tmp_path, by):
    (tmp_path / "heads.csv").write_text("mine")
    with pytest.raises(ValueError, match=rf"heads\.csv: expected a file that count01-lens {by} "):
        Outputs(tmp_path, by).check("heads.csv", "pairs.csv")
    with pytest.raises(ValueError, match="got another file; .*force=True"):
        Outputs(tmp_path, by).write({"pairs.csv": b"", "heads.csv": b""})
    assert [path.name for path in tmp_path.iterdir()] == ["heads.csv"]
    Outputs(tmp_path, by, force=True).write({"heads.csv": b"ours"})
    Outputs(tmp_path, by).check("heads.csv")


def test_commands_keep_each_others_files_and_those_that_were_changed(tmp_path):
    Outputs(tmp_path, "analyze").write({"heads.csv": b"1"})
    Outputs(tmp_path, "sweep").write({"sweep.csv": b"2"})
    with pytest.raises(ValueError, match="got one of count01-lens analyze"):
        Outputs(tmp_path, "sweep").check("*.csv")
    Outputs(tmp_path, "analyze").check("heads.csv")
    (tmp_path / "heads.csv").write_text("1, and what I know of it")
    with pytest.raises(ValueError, match="got one that was changed"):
        Outputs(tmp_path, "analyze").check("heads.csv")


@pytest.mark.parametrize("killed_at", [1, 2, 3, 4])
def test_a_command_that_was_killed_while_writing_can_be_given_again(
    tmp_path, monkeypatch, killed_at
):
    Outputs(tmp_path, "analyze").write({"heads.csv": b"old", "pairs.csv": b"old"})
    write, calls = module.write_atomically, []

    def killed(path, data):
        calls.append(path)
        if len(calls) == killed_at:
            raise KeyboardInterrupt
        write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            Outputs(tmp_path, "analyze").write({"heads.csv": b"new", "pairs.csv": b"new"})
    outputs = Outputs(tmp_path, "analyze")
    outputs.check("*.csv")
    outputs.write({"heads.csv": b"newest", "pairs.csv": b"newest"})
    listed = json.loads((tmp_path / LIST).read_text())
    assert all(len(about["sha256"]) == 1 for about in listed.values())


def test_a_second_command_is_refused_while_the_first_is_at_work(tmp_path):
    leftover = tmp_path / ".count01-tmp-0123456789abcdef-heads.csv"
    leftover.touch()  # of one that was killed
    with Outputs(tmp_path, "analyze").opened():
        assert not leftover.exists()
        for by in ("analyze", "sweep"):
            with (
                pytest.raises(AlreadyInUseError, match="another process is writing here; wait"),
                Outputs(tmp_path, by).opened(),
            ):
                pass
    with Outputs(tmp_path, "sweep").opened():
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    "listed", ["", "[]", '{"heads.csv": 1}', '{"heads.csv": {"by": "analyze"}}']
)
def test_a_list_that_is_none_lists_nothing(tmp_path, listed):
    (tmp_path / "heads.csv").write_text("mine")
    (tmp_path / LIST).write_text(listed)
    with pytest.raises(ValueError, match="got another file"):
        Outputs(tmp_path, "analyze").check("heads.csv")


def test_what_an_earlier_run_left_is_taken_away_unless_somebody_changed_it(tmp_path):
    Outputs(tmp_path, "sweep").write({"sweep.csv": b"0"})
    first = Outputs(tmp_path, "analyze")
    first.write({"heads.csv": b"1", "groups.csv": b"1", "shapley.svg": b"1"})
    first.write({"pairs.csv": b"1"})
    assert first.remove_older() == []
    (tmp_path / "groups.csv").write_text("1, and what I know of it")
    (tmp_path / "mine.csv").write_text("mine")
    second = Outputs(tmp_path, "analyze")
    second.write({"heads.csv": b"2"})
    assert second.remove_older() == ["pairs.csv", "shapley.svg"]
    names = {"heads.csv", "groups.csv", "sweep.csv", "mine.csv", LIST}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert set(json.loads((tmp_path / LIST).read_text())) == {"heads.csv", "sweep.csv"}
    assert second.remove_older() == []
    with pytest.raises(ValueError, match=r"groups\.csv.* got another file"):
        Outputs(tmp_path, "analyze").check("*.csv")
    Outputs(tmp_path, "analyze").check("heads.csv")


def test_a_list_of_somebody_else_takes_nothing_away_elsewhere(tmp_path):
    mine, out = tmp_path / "mine.txt", tmp_path / "out"
    mine.write_bytes(b"mine")
    out.mkdir()
    (out / "folder").mkdir()
    about = {"by": "analyze", "sha256": [sha256(b"mine"), None]}
    names = ["../mine.txt", str(mine), "folder", "gone.csv", ""]
    (out / LIST).write_text(json.dumps(dict.fromkeys(names, about)))
    outputs = Outputs(out, "analyze")
    outputs.write({"heads.csv": b"1"})
    assert outputs.remove_older() == []
    assert mine.read_bytes() == b"mine"
    assert (out / "folder").is_dir()
    assert set(json.loads((out / LIST).read_text())) == {"heads.csv"}


def test_pages_are_known_by_their_head(tmp_path):
    page = tmp_path / "page.html"
    check_page_to_write(page)
    page.write_text("<title>My thesis</title>")
    with pytest.raises(
        ValueError, match=r"page\.html: expected a page of count01-lens, got another"
    ):
        check_page_to_write(page)
    check_page_to_write(page, force=True)
    page.write_text(render("explorer.html", title="count01-lens" * 200, content=""))
    check_page_to_write(page)
    page.write_text("")
    check_page_to_write(page)
