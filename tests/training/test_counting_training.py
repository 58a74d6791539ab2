"""Training on any counting task: Count01 as one of them, runs on disk, checkpoints, commands."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import count01_lens as cl
from count01_lens.training.run_directory import RunDirectoryError
from tests.helpers import as_count01, run

TINY = {part: cl.CountSpec(size=200, counts=(0, 6)) for part in ("train", "validation", "test")}
SHAPE = cl.ModelConfig(d_embed=8, n_heads=2)
SHORT = cl.TrainConfig(model=SHAPE, epochs=2)


def tiny(**changed) -> cl.CountingTask:
    given = dict(symbols="abc", answers="XYZ", rule=["na > max(nb, nc)", "nb > nc"], **TINY)
    return cl.CountingTask(**given | changed)


def assert_same_weights(one, other) -> None:
    found = other.state_dict()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, found[name]), name


def test_count01_written_as_any_other_task_trains_to_the_same_bits():
    ours = cl.train(SHORT, seeds=[0], progress=False)
    generic = cl.train(SHORT, seeds=[0], task=as_count01(), progress=False)
    pd.testing.assert_frame_equal(ours.history, generic.history)
    assert_same_weights(ours.models[0], generic.models[0])
    one, other = (
        cl.analyze_heads(result.models[0], task).table
        for result, task in ((ours, cl.Count01()), (generic, as_count01()))
    )
    pd.testing.assert_frame_equal(one, other)
    assert repr(cl.verify(ours.models[0], 20)) == repr(cl.verify(generic.models[0], 20))
    given = cl.train(SHORT, seeds=[0], task=cl.Count01(), progress=False)
    assert_same_weights(ours.models[0], given.models[0])
    assert cl.task_of(generic.models[0]).specs is not None


def test_accuracies_of_the_history_are_those_of_the_models():
    task = tiny()
    result = cl.train(SHORT, seeds=[3, 4], task=task, progress=False)
    last = result.history.groupby("model").last()
    for model, (_, row) in zip(result.models, last.iterrows(), strict=True):
        found = {}
        for name, split in (("validation", task.splits.validation), ("test", task.splits.test)):
            right, ended, says = [], [], []
            for tokens in split.sequences():
                logits = model(tokens[None])[0]
                answers = logits[-3, task.language.answer_ids]
                right.append(task.language.equals + 1 + int(answers.argmax()) == int(tokens[-2]))
                ended.append(int(logits[-2].argmax()) == task.language.eos)
                says.append(5 <= int(logits[-3].argmax()) <= 7)
            found |= {f"{name}_accuracy": right, f"{name}_eos_accuracy": ended}
            found[f"{name}_says_answer"] = says
        for name, values in found.items():
            assert row[name] == pytest.approx(np.mean(values), abs=0.006), name


def test_a_run_on_disk_is_of_one_task(tmp_path):
    whole = cl.train(SHORT, seeds=[0], task=tiny(), progress=False)
    first = cl.train(SHORT, seeds=[0], task=tiny(), directory=tmp_path / "run", progress=False)
    again = cl.train(SHORT, seeds=[0], task=tiny(), directory=tmp_path / "run", progress=False)
    for other in (first, again):
        assert_same_weights(whole.models[0], other.models[0])
        pd.testing.assert_frame_equal(whole.history, other.history)
    for another in (tiny(rule=["na >= max(nb, nc)", "nb > nc"]), tiny(seed=1), None):
        with pytest.raises(RunDirectoryError, match="holds another run"):
            cl.train(SHORT, seeds=[0], task=another, directory=tmp_path / "run", progress=False)
    evolution = cl.head_evolution(again, [0, 2])
    assert {"wab", "wac", "s_acc", "one_sided"} <= set(evolution)
    analysis = cl.analyze_heads(again.models[0], tiny())
    end = evolution[evolution["epoch"] == 2].reset_index(drop=True)
    np.testing.assert_allclose(end["s_acc"], analysis.table["s_acc"], atol=0.011)
    np.testing.assert_allclose(end["wab"], analysis.table["wab"], rtol=1e-5)
    with pytest.raises(ValueError, match="splits: expected none"):
        cl.head_evolution(again, [2], splits=cl.make_splits())


def test_a_run_goes_on_after_its_state(tmp_path):
    task = tiny()
    whole = cl.train(SHORT, seeds=[5], task=task, directory=tmp_path / "whole", progress=False)

    class Stop(Exception): ...

    from count01_lens.training import trainer

    kept = trainer.Trainer._run_epoch

    def stop_after_one(self, state):
        if state.epoch == 1:
            raise Stop
        kept(self, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Trainer, "_run_epoch", stop_after_one)
        with pytest.raises(Stop):
            cl.train(SHORT, seeds=[5], task=task, directory=tmp_path / "cut", progress=False)
    resumed = cl.train(SHORT, seeds=[5], task=task, directory=tmp_path / "cut", progress=False)
    assert_same_weights(whole.models[0], resumed.models[0])


def test_a_function_as_rule_is_trained_in_memory_only(tmp_path):
    task = tiny(rule=lambda counts: counts.argmax(dim=1))
    result = cl.train(SHORT, seeds=[0], task=task, progress=False)
    assert cl.verify(result.models[0], 4).n_ties == 0
    assert "ties" not in repr(cl.verify(result.models[0], 4))
    analysis = cl.analyze_heads(result.models[0], task)
    assert set(analysis.accuracy) == {"answer", "end"}
    with pytest.raises(ValueError, match="which can be stored"):
        cl.train(SHORT, seeds=[0], task=task, directory=tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match="which can be stored"):
        cl.save_checkpoint(result.models[0], tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("task", [tiny(), as_count01()], ids=["three answers", "count01"])
def test_a_checkpoint_knows_its_task(task, tmp_path):
    model = cl.build_model(SHAPE, seed=1, task=task)
    path = cl.save_checkpoint(model, tmp_path / "model")
    loaded = cl.load_checkpoint(path)
    assert_same_weights(model, loaded)
    again = cl.task_of(loaded)
    assert again.fingerprint == task.fingerprint
    assert again.to_dict() == task.to_dict() == cl.checkpoint_info(path)["counting_task"]
    text = f"{task.language.symbols[1]}{task.language.symbols[0]}="
    assert torch.equal(loaded.to_tokens(text), model.to_tokens(text))
    assert repr(cl.verify(loaded, 5)) == repr(cl.verify(model, 5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": ["exit() > 0", "na > 0"]}, "counting_task: rule: expected max"),
        ({"symbols": ["a", "b", "c", "d"]}, "counting_task: expected 9 tokens, as the model has"),
        ({"train": 3}, "counting_task: task: expected an object 'train'"),
        (None, "counting_task: task: expected an object"),
    ],
)
def test_a_checkpoint_with_a_bad_task(change, message, tmp_path):
    from count01_lens.common.bundle import Bundle, read_bundle, write_bundle

    path = cl.save_checkpoint(cl.build_model(SHAPE, task=tiny()), tmp_path / "model")
    good = read_bundle(path, "checkpoint")
    task = None if change is None else good.about["counting_task"] | change
    write_bundle(path, Bundle("checkpoint", {**good.about, "counting_task": task}, good.tensors))
    with pytest.raises(cl.CheckpointError, match=message):
        cl.load_checkpoint(path)


def test_bad_arguments():
    with pytest.raises(TypeError, match="task: expected a CountingTask, got 'majority'"):
        cl.train(SHORT, task="majority")
    with pytest.raises(ValueError, match="expected a task, or splits of Count01, got both"):
        cl.train(SHORT, task=tiny(), splits=cl.make_splits())
    with pytest.raises(ValueError, match="splits: expected sentences of Count01"):
        cl.train(SHORT, splits=tiny().splits)
    with pytest.raises(TypeError, match="task: expected a CountingTask"):
        cl.build_model(task=cl.make_splits())


def test_a_sweep_over_models_of_any_task(tmp_path):
    task = tiny()
    configs, _ = cl.model_grid(SHORT, n_heads=[1, 2])
    sweep = cl.sweep_models(configs, [0, 1], tmp_path, task=task, workers=1, progress=False)
    assert len(sweep.models) == 4
    assert len(sweep.heads) == 6
    assert {"wab", "wac"} <= set(sweep.heads)
    alone = cl.train(configs[1], seeds=[0, 1], task=task, progress=False)
    assert_same_weights(sweep.model(1, 1), alone.models[1])
    assert cl.task_of(sweep.model(0, 0)).fingerprint == task.fingerprint
    again = cl.sweep_models(configs, [0, 1], tmp_path, task=task, workers=1, progress=False)
    assert not again.outcome.new
    assert json.loads((tmp_path / "sweep.json").read_text())["task"] == task.to_dict()
    with pytest.raises(TypeError, match="task: expected a CountingTask"):
        cl.sweep_models(configs, [0], tmp_path, task="majority")


@pytest.mark.slow
def test_commands_need_no_task_once_a_model_is_stored(tmp_path):
    out = tmp_path / "run"
    shape = ["--heads", "2", "--d-embed", "8", "--epochs", "1"]
    done = run("train", "--out", out, "--task", "most_frequent", *shape)
    assert done.returncode == 0, done.stderr
    checkpoint = Path(out / "seed-0")
    done = run("verify", checkpoint, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["up_to"], found["n_sentences"]) == (20, 21**5)
    done = run("analyze", checkpoint, "--wide")
    assert done.returncode == 0, done.stderr
    assert "wab" in done.stdout
    for wrong in (["--task", "minority"], ["--task", "majority", "--data-seed", "3"]):
        refused = run("train", "--out", tmp_path / "other", *wrong, *shape)
        assert refused.returncode == 2
        assert "expected" in refused.stderr


# What a few epochs with eight heads reach at least on the whole domain, up to a smaller size.
REACHED = {
    "majority": (10, 60, 0.985),
    "twice": (10, 60, 0.985),
    "two_comparisons": (10, 10, 0.93),
    "most_frequent": (20, 8, 0.96),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REACHED)
def test_shipped_tasks_are_learned(name):
    epochs, up_to, expected = REACHED[name]
    task = cl.counting_task(name)
    config = cl.TrainConfig(model=cl.ModelConfig(d_embed=32, n_heads=8), epochs=epochs)
    result = cl.train(config, seeds=[20000], task=task, snapshot_epochs=[], progress=False)
    verified = cl.verify(result.models[0], up_to)
    assert verified.accuracy > expected
    assert verified.eos_accuracy > 0.99
