import pytest

import count01_lens.counts.verification as verification
from count01_lens.counts.exhaustion import Exhaustion
from count01_lens.counts.verification import verify
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model, save_checkpoint
from count01_lens.models.handcrafted import minimal_model
from count01_lens.tasks.counting_task import CountingTask


@pytest.fixture(scope="module")
def model():
    return example_model("paper")


class StoppedError(Exception):
    pass


def stop_at(monkeypatch, number):
    """Let the slab of this number fail, as if somebody stopped it there."""
    original = Exhaustion.of_slab

    def of_slab(self, slab):
        if slab.start // 32 == number:
            raise StoppedError
        return original(self, slab)

    monkeypatch.setattr(Exhaustion, "of_slab", of_slab)


def test_a_stopped_verification_goes_on_where_it_was(model, tmp_path, monkeypatch):
    file, expected = tmp_path / "kept.safetensors", verify(model, up_to=140).to_dict()
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(StoppedError):
            verify(model, up_to=140, resume=file)
    with monkeypatch.context() as patch:
        stop_at(patch, 2)  # which is not run again
        assert verify(model, up_to=140, resume=file).to_dict() == expected
    with monkeypatch.context() as patch:
        for number in range(5):
            stop_at(patch, number)  # all is done
        assert verify(model, up_to=140, resume=file).to_dict() == expected


def test_margins_that_are_infinite_or_inexact_in_decimals_are_kept_to_the_bit(tmp_path):
    file = tmp_path / "kept.safetensors"
    first = verify(minimal_model(), up_to=5, resume=file)
    again = verify(minimal_model(), up_to=5, resume=file)
    assert first.to_dict() == again.to_dict()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (dict(up_to=41), "up_to"),
        (dict(up_to=40, keep=7), "keep"),
        (dict(up_to=40, model=minimal_model), "model"),
    ],
)
def test_a_file_of_another_verification_is_refused(model, tmp_path, other, named):
    file = tmp_path / "kept.safetensors"
    verify(model, up_to=40, resume=file)
    before = file.read_bytes()
    asked = other.pop("model", lambda: model)()
    with pytest.raises(ValueError, match=f"of another .*{named}.*; choose another file"):
        verify(asked, resume=file, **other)
    assert file.read_bytes() == before


def test_foreign_and_damaged_files_are_refused_and_kept(model, tmp_path):
    file = tmp_path / "mine.safetensors"
    for content in (b"my thesis", save_checkpoint(model, tmp_path / "model").read_bytes()):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="resume: .*mine.safetensors"):
            verify(model, up_to=10, resume=file)
        assert file.read_bytes() == content


def test_a_rule_that_cannot_be_stored_cannot_be_resumed(tmp_path):
    task = CountingTask("01", "45", lambda counts: counts[:, 0] % 2)
    with pytest.raises(ValueError, match="expected conditions as text"):
        verify(build_model(task=task), up_to=5, resume=tmp_path / "kept")
    assert not list(tmp_path.iterdir())


def test_the_time_is_estimated_first(model, capsys, monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr("count01_lens.common.progress.time.monotonic", lambda: next(ticks))
    verify(model, up_to=140, progress=True)
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("verifying: about ")
    assert all("of 2,803,221" in line for line in told[1:])
    assert verification.verify(model, up_to=3, progress=False) is not None
    assert capsys.readouterr().err == ""
