"""Runs read from their directory alone: the same as the one that was trained, or a clear error."""

import shutil
import threading
from pathlib import Path

import pytest
import torch

import count01_lens as cl
from count01_lens.common.bundle import Bundle, read_bundle, write_bundle
from count01_lens.common.storage import locked
from count01_lens.training.run_directory import RUN, RunDirectoryError
from count01_lens.training.trainer import Trainer
from tests.helpers import TINY

CONFIG = cl.TrainConfig(model=cl.ModelConfig(d_embed=4, n_heads=2), epochs=4, batch_size=1000)
TASK = cl.CountingTask(
    "ab", "XY", "na > nb",
    train=cl.CountSpec(size=300, counts=(0, 9)), validation=cl.CountSpec(size=50, counts=(5, 12)),
    test=cl.CountSpec(size=50, counts=(5, 12)), seed=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "run"
    return cl.train(
        [CONFIG, CONFIG.changed(learning_rate=1e-3)],
        seeds=[5, 6],
        directory=directory,
        snapshot_epochs=[0, 2],
        first_epoch_steps=[1, 3],
    )


@pytest.fixture
def directory(trained, tmp_path):
    return Path(shutil.copytree(trained.directory, tmp_path / "run"))


def files(directory):
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*")}


class StoppedError(Exception):
    pass


def train_until(epoch, monkeypatch, **options):
    """Train until a run is stopped after an epoch."""
    whole = Trainer._run_epoch

    def stopped(self, state):
        if state.epoch == epoch:
            raise StoppedError
        whole(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_run_epoch", stopped)
        with pytest.raises(StoppedError):
            cl.train(CONFIG, **options)


def same_models(one, other):
    assert one.snapshots.keys() == other.snapshots.keys()
    assert all(torch.equal(one.snapshots[step], other.snapshots[step]) for step in one.snapshots)


def test_a_finished_run_is_the_one_that_was_trained(trained):
    again = cl.load_run(str(trained.directory))
    assert (again.configs, again.seeds) == (trained.configs, trained.seeds)
    assert again.history.equals(trained.history)
    assert again.snapshot_epochs == trained.snapshot_epochs == [0, 2, 4]
    assert repr(again) == repr(trained)
    same_models(again, trained)
    for name in ("train", "validation", "test"):
        counts = [getattr(result.splits, name).counts for result in (again, trained)]
        assert torch.equal(*counts)
    for name, value in again.models[3].state_dict().items():
        assert torch.equal(value, trained.models[3].state_dict()[name])
    assert cl.head_evolution(again, [2]).equals(cl.head_evolution(trained, [2]))


def test_nothing_is_written_and_no_lock_is_needed(directory):
    before = files(directory)
    with locked(directory):
        lock = files(directory)
        cl.load_run(directory).at(0, epoch=2)
        assert files(directory) == lock
    assert before.items() <= lock.items()
    (directory / ".lock").unlink()
    cl.load_run(directory)
    assert not (directory / ".lock").exists()


def test_an_unfinished_run_gives_what_is_there_and_says_so(tmp_path, monkeypatch):
    whole = cl.train(CONFIG, seeds=[5, 6])
    train_until(3, monkeypatch, seeds=[5, 6], directory=tmp_path / "run", snapshot_epochs=[0, 2])
    found = cl.load_run(tmp_path / "run")
    assert "unfinished, 3 of 4 epochs; seeds 5, 6\naccuracy after epoch 3: test" in repr(found)
    assert found.history["epoch"].max() == 3
    # The last complete epoch is there although no snapshot of it was asked for.
    assert found.snapshot_epochs == [0, 2, 3]
    for epoch in (2, 3):
        for name, value in found.at(1, epoch=epoch).state_dict().items():
            assert torch.equal(value, whole.at(1, epoch=epoch).state_dict()[name])
    assert torch.equal(found.models[1].W_E, whole.at(1, epoch=3).W_E)
    # The run goes on as if nobody had looked.
    finished = cl.train(CONFIG, seeds=[5, 6], directory=tmp_path / "run", snapshot_epochs=[0, 2])
    assert torch.equal(finished.models[0].W_E, whole.models[0].W_E)
    assert cl.load_run(tmp_path / "run").snapshot_epochs == [0, 2, 4]


def test_snapshots_after_the_last_complete_epoch_do_not_count(tmp_path, monkeypatch):
    train_until(2, monkeypatch, seeds=[5], directory=tmp_path / "run")
    snapshots = tmp_path / "run" / "snapshots"
    shutil.copy(snapshots / "step-0000014.safetensors", snapshots / "step-0000021.safetensors")
    assert cl.load_run(tmp_path / "run").snapshot_epochs == [0, 1, 2]


def test_a_run_may_be_read_while_it_is_trained(tmp_path):
    config = CONFIG.changed(epochs=30)
    options = {"seeds": [1], "directory": tmp_path / "run", "progress": False}
    training = threading.Thread(target=lambda: cl.train(config, **options))
    training.start()
    seen = []
    while training.is_alive():
        try:
            found = cl.load_run(tmp_path / "run")
        except RunDirectoryError as error:
            assert any(word in str(error) for word in ("only begun", "got nothing", "got one with"))
            continue
        assert set(found.snapshot_epochs) == set(range(found.snapshot_epochs[-1] + 1))
        found.at(0)
        seen.append(found.snapshot_epochs[-1])
    training.join()
    assert seen == sorted(seen)
    assert cl.load_run(tmp_path / "run").history.equals(cl.train(config, **options).history)


def test_a_directory_that_a_training_has_just_made_is_not_called_a_file(tmp_path, monkeypatch):
    """The training may make it at any moment: here between the first question and the second."""

    def ask_then_make(path, ask):
        found = ask(path)
        path.mkdir(exist_ok=True)
        return found

    for name in ("exists", "is_dir"):
        ask = getattr(Path, name)
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, lambda path, ask=ask: ask_then_make(path, ask))
            with pytest.raises(RunDirectoryError, match="got nothing"):
                cl.load_run(tmp_path / f"made_after_{name}")


def test_another_task_comes_with_its_data(tmp_path):
    trained = cl.train(CONFIG, seeds=[5], task=TASK, directory=tmp_path / "run")
    found = cl.load_run(tmp_path / "run")
    assert found.task.to_dict() == TASK.to_dict()
    assert torch.equal(found.splits.test.counts, TASK.splits.test.counts)
    same_models(found, trained)
    assert cl.head_evolution(found, [4]).equals(cl.head_evolution(trained, [4]))


def test_without_its_own_splits_a_run_still_loads(tmp_path):
    trained = cl.train(CONFIG, seeds=[5], splits=TINY, directory=tmp_path / "run")
    found = cl.load_run(tmp_path / "run")
    assert found.splits is None
    assert found.history.equals(trained.history)
    same_models(found, trained)
    with pytest.raises(ValueError, match=r"splits of its own, which are not stored; give them"):
        cl.head_evolution(found, [4])
    expected = cl.head_evolution(trained, [4], TINY)
    assert cl.head_evolution(found, [4], TINY).equals(expected)
    # Those of the run are the default where they are known.
    assert cl.head_evolution(trained, [4]).equals(expected)


def rewrite(directory, change):
    path = directory / "run.safetensors"
    about = dict(read_bundle(path, RUN).about)
    change(about)
    write_bundle(path, Bundle(RUN, about, {}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about["configs"][0].pop("decay"), "older version, whose recipes had no dec"),
        (lambda about: about["configs"][0].update(x=1), "newer version, whose recipes have x; use"),
        (lambda about: about.pop("seeds"), "expected the description of a training run"),
        (lambda about: about["seeds"].append(7), "4 recipes, 5 seeds"),
        (lambda about: about.update(configs=[]), "expected the description of a training run"),
        (lambda about: about.update(configs=3), "expected the description of a training run"),
        (lambda about: about["snapshot_steps"].append(10**6), "expected 4 epochs, got 1000000 st"),
        (lambda about: about["seeds"].reverse(), "it belongs to another run"),
    ],
)
def test_descriptions_that_make_no_sense(directory, change, message):
    rewrite(directory, change)
    with pytest.raises(RunDirectoryError, match=message):
        cl.load_run(directory)


def test_other_versions_of_libraries_do_not_matter(directory):
    rewrite(directory, lambda about: about.update(versions={"torch": "1.0"}))
    assert len(cl.load_run(directory).models) == 4


def test_what_is_no_run(tmp_path, directory):
    with pytest.raises(RunDirectoryError, match="got nothing there; check the path"):
        cl.load_run(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match="got a file; check the path"):
        cl.load_run(tmp_path / "file")
    with pytest.raises(RunDirectoryError, match=r"without run\.safetensors; give the directory"):
        cl.load_run(tmp_path)
    (directory / "state.safetensors").unlink()
    with pytest.raises(RunDirectoryError, match="got one that has only begun; wait"):
        cl.load_run(directory)


@pytest.mark.parametrize("name", ["run", "state", "snapshots/step-0000014"])
def test_damaged_files(directory, name):
    path = directory / f"{name}.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunDirectoryError, match=f"{name}.safetensors: .*checksum"):
        cl.load_run(directory).at(0, epoch=2)


def test_changed_data_are_noticed(directory, monkeypatch):
    """As if another version drew other sentences from the same seed."""
    other = cl.make_splits(1)
    monkeypatch.setattr("count01_lens.training.stored_run.make_splits", lambda seed: other)
    assert cl.load_run(directory).splits is None
