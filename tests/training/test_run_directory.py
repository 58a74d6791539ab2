"""A run that is stopped at any moment goes on, and ends with the same bits."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from count01_lens.common.bundle import Bundle, read_bundle, write_bundle
from count01_lens.common.storage import AlreadyInUseError, locked
from count01_lens.models.checkpoints import checkpoint_info, load_checkpoint
from count01_lens.models.config import ModelConfig
from count01_lens.training.recipe import TrainConfig
from count01_lens.training.run_directory import RunDirectoryError, TrainingRun
from count01_lens.training.training_run import train
from tests.helpers import QUICK, SPLITS
from tests.processes import started

SCRIPT = textwrap.dedent(
    """
    import sys
    from count01_lens.models.config import ModelConfig
    from count01_lens.training.recipe import TrainConfig
    from count01_lens.training.training_run import train

    config = TrainConfig(model=ModelConfig(d_embed=4, n_heads=2), epochs=40, batch_size=700)
    print("started", flush=True)
    train(config, seeds=[0, 1], directory=sys.argv[1], first_epoch_steps=[2])
    print("done", flush=True)
    """
)


@contextmanager
def training(directory: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SCRIPT, directory]
    with started(*command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        yield process


def finish(directory: Path) -> None:
    with training(directory) as process:
        process.communicate()
    assert process.returncode == 0


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def kill_and_resume(directory: Path, undisturbed: dict[str, bytes], seed: int, kills: int) -> int:
    """Kill a run several times, let it finish, compare; return how often it was really killed."""
    rng = np.random.default_rng(seed)
    killed = 0
    for _ in range(kills):
        with training(directory) as process:
            time.sleep(float(rng.uniform(0, 0.25)))
            process.send_signal(signal.SIGKILL)
            output, _ = process.communicate()
        killed += "done" not in output
    finish(directory)
    assert contents(directory) == undisturbed
    return killed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("run") / "undisturbed"
    finish(directory)
    return contents(directory)


@pytest.mark.slow
def test_a_killed_run_ends_bit_identical(tmp_path, undisturbed):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    assert kill_and_resume(tmp_path / "run", undisturbed, seed, kills=4) >= 1


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(25))
def test_many_killed_runs_end_bit_identical(tmp_path, undisturbed, seed):
    assert kill_and_resume(tmp_path / "run", undisturbed, seed, kills=10) >= 1


def test_every_point_of_an_interrupted_save_is_survived(tmp_path, monkeypatch):
    """Fail at each single file operation in turn; the run must go on and end the same."""
    whole = tmp_path / "whole"
    train(QUICK, seeds=[0], splits=SPLITS, directory=whole)
    expected = contents(whole)
    real = {name: getattr(os, name) for name in ("replace", "fsync")}
    calls = 0

    def failing(name, fail_at):
        def operation(*arguments):
            nonlocal calls
            calls += 1
            if calls == fail_at:
                raise OSError(28, "No space left on device")
            return real[name](*arguments)

        return operation

    failures = 0
    for fail_at in range(1, 60):
        directory, calls = tmp_path / f"run-{fail_at}", 0
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, failing(name, fail_at))
            try:
                train(QUICK, seeds=[0], splits=SPLITS, directory=directory)
            except OSError:
                failures += 1
            else:
                break
        train(QUICK, seeds=[0], splits=SPLITS, directory=directory)
        assert contents(directory) == expected
    assert failures == fail_at - 1 > 20


def test_a_finished_run_is_read_and_not_run_again(tmp_path, monkeypatch):
    first = train(QUICK, seeds=[0, 1], splits=SPLITS, directory=tmp_path / "run")
    monkeypatch.setattr("count01_lens.training.trainer.Trainer.run", None)
    again = train(QUICK, seeds=[0, 1], splits=SPLITS, directory=tmp_path / "run")
    assert again.history.equals(first.history)
    assert list(again.snapshots) == list(first.snapshots)
    assert torch.equal(again.snapshots[15], first.snapshots[15])


def test_a_run_in_a_directory_equals_one_in_memory(tmp_path):
    stored = train(QUICK, seeds=[2], splits=SPLITS, directory=tmp_path / "deep" / "run")
    in_memory = train(QUICK, seeds=[2], splits=SPLITS)
    assert stored.history.equals(in_memory.history)
    for step, rows in in_memory.snapshots.items():
        assert torch.equal(rows, stored.snapshots[step])


def test_checkpoints_of_a_run(tmp_path):
    result = train(QUICK, seeds=[4, 6], splits=SPLITS)
    paths = result.save_models(tmp_path)
    assert [path.name for path in paths] == ["seed-4.safetensors", "seed-6.safetensors"]
    assert torch.equal(load_checkpoint(paths[1]).W_E, result.models[1].W_E)
    info = checkpoint_info(paths[1])["info"]
    assert info["seed"] == 6
    assert TrainConfig.from_dict(info["recipe"]) == QUICK
    assert info["training"]["epoch"] == 3
    two = train(
        [QUICK, TrainConfig(**{**vars(QUICK), "eos_weight": 0.0})], seeds=[1], splits=SPLITS
    )
    names = [path.name for path in two.save_models(tmp_path / "two")]
    assert names == ["recipe-0-seed-1.safetensors", "recipe-1-seed-1.safetensors"]


@pytest.mark.parametrize(
    ("changes", "different"),
    [
        ({"seeds": [1]}, "seeds"),
        ({"config": TrainConfig(**{**vars(QUICK), "learning_rate": 1e-3})}, "configs"),
        ({"snapshot_epochs": [1]}, "snapshot_steps"),
        ({"splits": replace(SPLITS, test=SPLITS.validation)}, "data_sha256"),
    ],
)
def test_another_run_is_not_mixed_in(tmp_path, changes, different):
    arguments = {"config": QUICK, "seeds": [0], "splits": SPLITS, "directory": tmp_path / "run"}
    train(**arguments)
    before = contents(tmp_path / "run")
    with pytest.raises(RunDirectoryError, match=f"holds another run .its {different} differ"):
        train(**{**arguments, **changes})
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_every_optimiser_goes_on_with_the_same_bits(tmp_path, monkeypatch, optimiser):
    config = replace(QUICK, optimiser=optimiser, decay="cosine")
    train(config, seeds=[0], splits=SPLITS, directory=tmp_path / "whole")
    saved, save_state = [], TrainingRun.save_state

    def stop_after_the_first(run, state):
        save_state(run, state)
        saved.append(state.epoch)
        if len(saved) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingRun, "save_state", stop_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        train(config, seeds=[0], splits=SPLITS, directory=tmp_path / "stopped")
    train(config, seeds=[0], splits=SPLITS, directory=tmp_path / "stopped")
    assert saved == [1, 2, 3]
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_a_run_of_an_older_version_is_refused_as_such(tmp_path):
    train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")
    run = tmp_path / "run" / "run.safetensors"
    about = dict(read_bundle(run, "training run").about)
    del about["configs"][0]["optimiser"]
    write_bundle(run, Bundle("training run", about, {}))
    with pytest.raises(RunDirectoryError, match=r"older version, whose recipes had no optimiser"):
        train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")


def test_recipes_of_older_checkpoints_are_read():
    values = QUICK.to_dict()
    del values["optimiser"]
    assert TrainConfig.from_dict(values) == QUICK


def test_a_directory_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunDirectoryError, match=r"expected an empty directory .*thesis\.tex"):
        train(QUICK, splits=SPLITS, directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunDirectoryError, match="expected a directory, got a file"):
        train(QUICK, splits=SPLITS, directory=tmp_path / "thesis.tex")


def test_two_processes_do_not_write_one_run(tmp_path):
    train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")
    with (
        locked(tmp_path / "run"),
        pytest.raises(AlreadyInUseError, match="another process is writing here"),
    ):
        train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")


def test_damage_is_noticed(tmp_path):
    train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")
    state = tmp_path / "run" / "state.safetensors"
    data = bytearray(state.read_bytes())
    data[-5] ^= 1
    state.write_bytes(data)
    with pytest.raises(RunDirectoryError, match=r"state\.safetensors: its content does not fit"):
        train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")
    (tmp_path / "run" / "run.safetensors").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"run\.safetensors: .*; or choose another direct"):
        train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")


def test_other_library_versions_are_mentioned(tmp_path):
    train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")
    run = tmp_path / "run" / "run.safetensors"
    about = dict(read_bundle(run, "training run").about)
    about["versions"] = {**about["versions"], "torch": "1.0"}
    write_bundle(run, Bundle("training run", about, {}))
    with pytest.warns(UserWarning, match="begun with other library versions"):
        train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")


def test_a_run_gives_no_warning(tmp_path):
    config = TrainConfig(model=ModelConfig(d_embed=2, n_heads=1), epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = train(config, splits=SPLITS, directory=tmp_path / "run")
    assert len(result.models) == 1


@pytest.mark.parametrize(
    "names",
    [
        ["run.safetensors", "thesis.tex", ".tmp-mine"],
        ["run.json"],
        ["seed-0.safetensors"],
        [".tmp-mine"],
        [".count01-tmp-mine"],
    ],
)
def test_a_foreign_directory_is_refused_before_anything_in_it_is_touched(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="choose another"):
        train(QUICK, splits=SPLITS, directory=tmp_path)
    assert contents(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_foreign_folder_is_refused_too(tmp_path):
    (tmp_path / ".tmp-x").mkdir()
    with pytest.raises(RunDirectoryError, match="expected an empty directory"):
        train(QUICK, splits=SPLITS, directory=tmp_path)


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")
    leftover = tmp_path / "run" / "snapshots" / ".count01-tmp-0123456789abcdef-step.safetensors"
    leftover.write_text("half")
    train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")
    assert not leftover.exists()


def test_a_missing_snapshot_is_named_with_a_remedy(tmp_path):
    result = train(QUICK, seeds=[0], splits=SPLITS, directory=tmp_path / "run")
    (tmp_path / "run" / "snapshots" / "step-0000015.safetensors").unlink()
    with pytest.raises(RunDirectoryError, match=r"step-0000015.*delete the directory"):
        _ = result.models
