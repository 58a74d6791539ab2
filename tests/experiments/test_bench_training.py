"""Both roads of training that are timed take the same steps."""

import pytest
import torch

from experiments.tools import bench_training


@pytest.mark.parametrize("recipe", ["default", "paper", "minimal"])
def test_both_roads_train_alike(recipe):
    states = []
    for by_hand in (True, False):
        trainer = bench_training.trainer_of(recipe, 2, by_hand=by_hand)
        state = trainer.initial_state()
        with torch.no_grad():
            trainer._run_epoch(state)
        states.append(state)
    one, other = states
    assert one.history[0]["loss"] == pytest.approx(other.history[0]["loss"], rel=1e-2)
    assert one.optimiser.steps == other.optimiser.steps


def test_every_ratio_is_of_two_measurements(monkeypatch):
    asked = []
    monkeypatch.setattr(
        bench_training, "_epoch", lambda *args, **named: asked.append((args, named)) or {}
    )
    for measure in bench_training.MEASUREMENTS:
        measure()
    names = [measure.__name__ for measure in bench_training.MEASUREMENTS]
    settings = dict(zip(names, asked, strict=True))
    for _, slow, fast in bench_training.RATIOS:
        (one, by), (other, by_hand) = settings[slow], settings[fast]
        assert one == other
        assert {**by, "by_hand": True} == by_hand != by
