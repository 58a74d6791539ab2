"""Looking on: the same bits, the numbers of `head_evolution`, within its share of the time."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.training import live
from count01_lens.training.live import Budget
from count01_lens.training.trainer import TrainingDivergedError
from tests.helpers import QUICK, SPLITS


class Watcher:
    """A viewer that notes when it is called, and may fail."""

    def __init__(self, *, error=None, at=0):
        self.epochs, self.error, self.at, self.training = [], error, at, None

    def follow(self, training):
        self.training = training
        if self.error and self.at == 0:
            raise self.error

    def changed(self):
        self.epochs.append((self.training.epoch, self.training.state))
        if self.error and self.training.epoch == self.at:
            raise self.error


@pytest.fixture
def much_time(monkeypatch):
    """Let heads be measured after every epoch."""
    monkeypatch.setattr(live, "SHARE", 1e9)


def trained(config=QUICK, *, viewer=False, seeds=(0, 1), **options):
    return cl.train(config, seeds=seeds, splits=SPLITS, progress=False, live=viewer, **options)


def assert_same(one, other):
    assert one.history.equals(other.history)
    assert list(one.snapshots) == list(other.snapshots)
    for step in one.snapshots:
        assert torch.equal(one.snapshots[step], other.snapshots[step])


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.1, "optimiser": "sgd"}])
def test_the_same_bits_with_and_without(changes, much_time, tmp_path):
    config, viewer = QUICK.changed(**changes), Watcher()
    assert_same(trained(config, viewer=viewer), trained(config))
    assert len(viewer.training.heads) == 3
    for name, watcher in (("alone", False), ("live", Watcher())):
        trained(config, viewer=watcher, directory=tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*"))
    assert len(files) >= 6
    for file in files:
        one, other = tmp_path / "alone" / file, tmp_path / "live" / file
        assert one.is_dir() or one.read_bytes() == other.read_bytes(), file


def test_parts_of_wide_stacks_train_the_same_bits(much_time, monkeypatch):
    monkeypatch.setattr("count01_lens.training.wide_trainer._NUMBERS", 1)
    viewer = Watcher()
    assert_same(trained(viewer=viewer, seeds=range(4)), trained(seeds=range(4)))
    assert [moment["model"] for moment in viewer.training.heads] == [0, 1, 0]


def test_the_last_epoch_is_the_first_model_s(much_time):
    viewer = Watcher()
    trained(QUICK.changed(epochs=4), viewer=viewer, seeds=range(4))
    assert [moment["model"] for moment in viewer.training.heads] == [0, 1, 0, 0]


@pytest.mark.parametrize("task", [None, "most_frequent"])
def test_heads_are_those_of_head_evolution(task, much_time):
    options = {"splits": SPLITS} if task is None else {"task": cl.counting_task(task)}
    viewer = Watcher()
    result = cl.train(QUICK.changed(epochs=2), seeds=[3], progress=False, live=viewer, **options)
    expected = cl.head_evolution(result, [1, 2])
    assert [moment["epoch"] for moment in viewer.training.heads] == [1, 2]
    for moment in viewer.training.heads:
        rows = expected[expected["epoch"] == moment["epoch"]]
        np.testing.assert_allclose(moment["s_acc"], rows["s_acc"], atol=1e-12)
        np.testing.assert_allclose(moment["weight"], rows["head_weight"], atol=1e-12)


def test_lines_are_those_of_the_history(much_time):
    viewer = Watcher()
    result = trained(viewer=viewer, first_epoch_steps=[1, 2])
    told = viewer.training.news()
    table = result.history[result.history["model"] == 1]
    assert [line["step"] for line in told["lines"]] == table["step"].tolist()
    assert told["lines"][0]["loss"] == [None, None]  # none before the first step; JSON has no NaN
    found = [line["test_accuracy"][1] for line in told["lines"]]
    np.testing.assert_allclose(found, table["test_accuracy"], rtol=1e-5)
    assert viewer.epochs == [(1, "training"), (2, "training"), (3, "training"), (3, "finished")]
    assert viewer.training.news(len(told["lines"]), len(told["heads"]))["lines"] == []


def test_a_run_that_goes_on_tells_of_what_was_before(tmp_path, much_time):
    stopped = Watcher(error=KeyboardInterrupt(), at=2)
    with pytest.raises(KeyboardInterrupt):
        trained(viewer=stopped, directory=tmp_path / "run")
    assert stopped.training.state == "stopped"
    viewer = Watcher()
    again = trained(viewer=viewer, directory=tmp_path / "run")
    assert_same(again, trained())
    assert [line["epoch"] for line in viewer.training.lines] == [0, 1, 2, 3]
    assert viewer.epochs == [(3, "training"), (3, "finished")]


def test_ctrl_c_while_heads_are_measured_stops_cleanly(tmp_path, much_time, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    measure = live.LiveHeads.measure
    monkeypatch.setattr(live.LiveHeads, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(viewer=Watcher(), directory=tmp_path / "run")
    monkeypatch.setattr(live.LiveHeads, "measure", measure)
    assert_same(trained(directory=tmp_path / "run"), trained())


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_viewer_that_fails_is_left_alone(at):
    viewer = Watcher(error=BrokenPipeError("no reader"), at=at)
    with pytest.warns(UserWarning, match="Watcher failed .BrokenPipeError: no reader.; training"):
        result = trained(viewer=viewer)
    assert len(viewer.epochs) == at
    assert_same(result, trained())


def test_heads_that_cannot_be_measured_stop_nothing(much_time, monkeypatch):
    def impossible(*_):
        raise ValueError("these heads overflow")

    monkeypatch.setattr(live.LiveHeads, "measure", impossible)
    viewer = Watcher()
    assert_same(trained(viewer=viewer), trained())
    assert viewer.training.message == "heads could not be measured: these heads overflow"
    assert viewer.training.state == "finished"


def test_a_training_that_diverges_says_so():
    viewer = Watcher()
    with pytest.raises(TrainingDivergedError), warnings.catch_warnings():
        trained(QUICK.changed(learning_rate=1e300), viewer=viewer)
    assert viewer.training.state == "failed"
    assert "training diverged at step" in viewer.training.message


def test_what_cannot_show_anything_is_refused_before_any_work(tmp_path):
    with pytest.raises(ValueError, match=r"live: expected a notebook.*use live=cl\.LivePage\(\)"):
        trained(viewer=True, directory=tmp_path / "run")
    for wrong in (None, 1, "page", cl.LivePage):
        with pytest.raises(TypeError, match="live: expected True, False or a viewer"):
            trained(viewer=wrong, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def simulated(*, epochs, epoch, cost):
    """After which epochs something of a constant cost is done, and the share of time it takes."""
    clock = Clock()
    budget, done = Budget(epochs, clock), []
    for number in range(1, epochs + 1):
        clock.now += epoch
        if budget.allows(cost, number):
            with budget.spending():
                clock.now += cost
            done.append(number)
    return done, budget.share


@pytest.mark.parametrize("cost", [0.001, 0.02, 0.05, 0.3, 5.0])
@pytest.mark.parametrize("epochs", [1, 10, 100, 1000])
def test_looking_on_takes_its_share_and_no_more(epochs, cost):
    done, share = simulated(epochs=epochs, epoch=0.1, cost=cost)
    assert share <= live.SHARE < 0.05
    affordable = min(live.SHARE * epochs * 0.1 / cost, epochs)
    assert int(affordable) - 2 <= len(done) <= affordable
    if done:
        assert done[-1] == epochs  # kept for the last one


def test_heads_are_measured_more_often_early():
    done, _ = simulated(epochs=1000, epoch=0.1, cost=0.05)
    gaps = np.diff(done)
    assert done[0] <= 2
    assert gaps[:20].mean() < gaps[-20:].mean() / 4


def test_the_first_model_is_measured_every_other_time():
    assert [live._in_turn(turn, 1) for turn in range(3)] == [0, 0, 0]
    assert [live._in_turn(turn, 4) for turn in range(8)] == [0, 1, 0, 2, 0, 3, 0, 1]


def test_scikit_learn_is_not_imported_for_it():
    code = (
        "import sys, count01_lens as cl\n"
        "from count01_lens.training import live\n"
        "live.SHARE = 1e9\n"
        "page = cl.LivePage()\n"
        "config = cl.TrainConfig(model=cl.ModelConfig(d_embed=4, n_heads=2), epochs=1)\n"
        "cl.train(config, progress=False, live=page)\n"
        "assert len(page.training.heads) == 1\n"
        "assert 'sklearn' not in sys.modules and 'IPython' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
