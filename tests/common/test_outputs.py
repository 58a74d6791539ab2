"""Nothing is overwritten that the library did not write."""

import json

import pytest

from count01_lens.common import outputs as module
from count01_lens.common.outputs import LIST, Outputs, check_page_to_write
from count01_lens.common.storage import AlreadyInUseError
from count01_lens.models.checkpoints import save_checkpoint
from count01_lens.models.handcrafted import minimal_model
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


def test_a_bundle_says_itself_what_it_is(tmp_path):
    outputs = Outputs(tmp_path, "analyze")
    outputs.check_bundle("model.safetensors", "analysis")
    save_checkpoint(minimal_model(), tmp_path / "model")
    outputs.check_bundle("model.safetensors", "checkpoint")
    with pytest.raises(ValueError, match="expected a file of kind 'analysis'.*force=True"):
        outputs.check_bundle("model.safetensors", "analysis")
    Outputs(tmp_path, "analyze", force=True).check_bundle("model.safetensors", "analysis")


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
