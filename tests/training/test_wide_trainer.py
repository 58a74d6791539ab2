"""A stack trained in parts is the stack trained as a whole."""

import dataclasses

import pytest
import torch

from count01_lens.models.config import ModelConfig
from count01_lens.tasks.dataset import make_splits
from count01_lens.training import wide_trainer
from count01_lens.training.recipe import TrainConfig
from count01_lens.training.run_directory import TrainingRun
from count01_lens.training.trainer import Trainer, TrainingDivergedError
from count01_lens.training.training_run import train
from count01_lens.training.wide_trainer import WideTrainer, parts_of, trainer_of

SMALL = TrainConfig(model=ModelConfig(d_embed=8, n_heads=4), epochs=3, batch_size=500)
ASKED = dict(snapshot_epochs=[1, 3], first_epoch_steps=[2, 5], progress=False)


@pytest.fixture
def narrow(monkeypatch):
    """Cut stacks that are not wide at all: about two models to a part."""
    per_model = 2 * SMALL.batch_size * (18 + 4 * 3)
    monkeypatch.setattr(wide_trainer, "_NUMBERS", per_model)


def run_of(n_models, config=SMALL):
    return TrainingRun([config] * n_models, range(n_models), make_splits(), [])


def trained(monkeypatch, *, in_parts, seeds=range(7), config=SMALL, **options):
    with monkeypatch.context() as patch:
        if not in_parts:
            patch.setattr(wide_trainer, "_NUMBERS", 10**12)
        return train(config, seeds=seeds, **{**ASKED, **options})


def assert_same(one, other, tolerance):
    assert one.history.columns.tolist() == other.history.columns.tolist()
    for name in one.history:
        given, expected = one.history[name].tolist(), other.history[name].tolist()
        assert given == pytest.approx(expected, nan_ok=True, abs=tolerance), name
    assert list(one.snapshots) == list(other.snapshots)
    for step in one.snapshots:
        torch.testing.assert_close(
            one.snapshots[step], other.snapshots[step], rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("changes", [
    dict(precision="float64"),
    dict(precision="float64", output="residual", qkv_bias=True, layer_norm=False),
    dict(precision="float64", dropout=0.2),
    dict(precision="float64", optimiser="sgd", learning_rate=0.1),
])  # fmt: skip
def test_parts_are_trained_as_the_whole(narrow, monkeypatch, changes):
    config = SMALL.changed(**changes)
    assert len(parts_of(run_of(7, config))) == 6
    together = trained(monkeypatch, in_parts=False, config=config)
    assert_same(trained(monkeypatch, in_parts=True, config=config), together, 1e-10)


def test_models_of_different_recipes_keep_their_own(narrow, monkeypatch):
    configs = [SMALL.changed(learning_rate=rate, eos_weight=eos, precision="float64")
               for rate, eos in ((1e-3, 0.5), (5e-3, 1.0), (1e-2, 2.0))]  # fmt: skip
    found = [
        trained(monkeypatch, in_parts=parts, config=configs, seeds=[3, 4])
        for parts in (True, False)
    ]
    assert_same(*found, 1e-10)


def test_a_part_has_its_models_and_all_have_one():
    wide = parts_of(run_of(1000, TrainConfig()))
    assert len(wide) % 2 == 0
    assert [some.start for some in wide] == [0, *(some.stop for some in wide[:-1])]
    assert wide[-1].stop == 1000
    sizes = [some.stop - some.start for some in wide]
    assert max(sizes) - min(sizes) <= 1
    assert isinstance(trainer_of(run_of(1000, TrainConfig())), WideTrainer)
    for few, config in ((1, TrainConfig()), (10, TrainConfig()), (20, TrainConfig.paper())):
        assert type(trainer_of(run_of(few, config))) is Trainer
    heavy = TrainConfig(model=ModelConfig(d_embed=64, n_heads=64, d_head=8), batch_size=7000)
    assert [len(parts_of(run_of(n, heavy))) for n in (1, 2, 3)] == [1, 2, 2]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_bits_do_not_depend_on_the_number_of_threads(narrow, threads):
    expected = train(SMALL, seeds=range(5), **ASKED)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = train(SMALL, seeds=range(5), **ASKED)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert_same(found, expected, 0.0)


class StoppedError(Exception):
    pass


def test_a_run_in_parts_goes_on_where_it_was_stopped(narrow, monkeypatch, tmp_path):
    whole = train(SMALL, seeds=range(5), **ASKED)
    epoch = Trainer.train_epoch

    def stopped(self, state):
        if state.epoch == 2 and 3 in self.seeds:
            raise StoppedError
        epoch(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_epoch", stopped)
        with pytest.raises(StoppedError):
            train(SMALL, seeds=range(5), directory=tmp_path / "run", **ASKED)
    assert_same(train(SMALL, seeds=range(5), directory=tmp_path / "run", **ASKED), whole, 0.0)


def test_a_run_stored_in_parts_is_that_of_a_stack(narrow, monkeypatch, tmp_path):
    """Whoever goes on with it on another machine, or with another version, may cut otherwise."""
    config = dataclasses.replace(SMALL, precision="float64")
    for number, in_parts in enumerate((True, False)):
        path = tmp_path / str(number)
        trained(monkeypatch, in_parts=in_parts, config=config, directory=path)
    files = [sorted(p.relative_to(tmp_path / n).as_posix() for p in (tmp_path / n).rglob("*"))
             for n in ("0", "1")]  # fmt: skip
    assert files[0] == files[1]
    again = trained(monkeypatch, in_parts=False, config=config, directory=tmp_path / "0")
    assert_same(again, trained(monkeypatch, in_parts=False, config=config), 1e-10)


def test_of_models_that_diverge_those_that_do_so_first_are_named(narrow, monkeypatch):
    epoch = Trainer.train_epoch
    steps = {1: 9, 3: 4, 4: 4}

    def diverging(self, state):
        epoch(self, state)
        for seed in self.seeds:
            if seed in steps:
                raise TrainingDivergedError.at(steps[seed], [seed])

    monkeypatch.setattr(Trainer, "train_epoch", diverging)
    monkeypatch.setattr(wide_trainer, "_NUMBERS", 1)  # a part for each
    with pytest.raises(TrainingDivergedError, match=r"at step 4 for seed\(s\) \[3, 4\]"):
        train(SMALL, seeds=range(6), **ASKED)
