"""Paths at which nothing is name what may have been meant."""

import pytest

import count01_lens as cl
from count01_lens.common.bundle import Bundle, write_bundle
from count01_lens.models.checkpoints import save_checkpoint
from count01_lens.models.handcrafted import minimal_model
from count01_lens.tasks.task_file import read_task


@pytest.fixture
def runs(tmp_path):
    save_checkpoint(minimal_model(), tmp_path / "runs" / "demo" / "seed-0")
    save_checkpoint(minimal_model(), tmp_path / "runs" / "demo" / "seed-1")
    write_bundle(tmp_path / "runs" / "demo" / "seed-2.safetensors", Bundle("analysis", {}, {}))
    (tmp_path / "runs" / "demo" / "seed-3.safetensors").write_bytes(b"\xff" * 20)
    (tmp_path / "runs" / "empty").mkdir()
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("demo", "demo is a directory: did you mean RUNS/demo/seed-0 or RUNS/demo/seed-1?"),
        ("empty", "empty is a directory, without such a file in it"),
        ("demo/sed-0", "; did you mean RUNS/demo/seed-0"),
        ("demo/seed-0.safetensor", "; did you mean RUNS/demo/seed-0"),
        ("dmeo/seed-1", "; did you mean RUNS/demo/seed-1 or RUNS/demo/seed-0?"),
    ],
)
def test_a_checkpoint_that_is_not_there(runs, given, said):
    with pytest.raises(cl.CheckpointError) as caught:
        cl.load_checkpoint(runs / given)
    assert said.replace("RUNS", str(runs)) in str(caught.value)
    assert "seed-2" not in str(caught.value)
    assert "seed-3" not in str(caught.value)


@pytest.mark.parametrize("given", ["nothing/alike", "demo/other", "/no/such/place"])
def test_nothing_is_suggested_where_nothing_is_alike(runs, given):
    with pytest.raises(cl.CheckpointError, match="check the path$"):
        cl.load_checkpoint(runs / given)


def test_a_task_that_is_not_there(tmp_path):
    (tmp_path / "first_symbol.json").write_text("{}")
    with pytest.raises(ValueError, match=r"did you mean .*/first_symbol\.json\?"):
        read_task(tmp_path / "first_symbols.json")
