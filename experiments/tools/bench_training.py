"""Measure an epoch of training with gradients by hand beside autograd's: part of `make bench`.

Both take the same steps with the same optimiser and are evaluated alike at the end of the epoch;
only the loss and its gradient are found in another way. Times are of the processor, which on a
shared machine are disturbed less.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from experiments.tools import timing

best = partial(timing.best, clock=time.process_time)


def epoch_by_autograd() -> dict[str, float]:
    """One epoch of one 16-head model, gradients by autograd on the closed form."""
    return _epoch("default", models=1, by_hand=False)


def epoch_by_hand() -> dict[str, float]:
    """The same with gradients by hand."""
    return _epoch("default", models=1, by_hand=True)


def epoch_of_ten_by_autograd() -> dict[str, float]:
    """One epoch of ten 16-head models together, gradients by autograd on the closed form."""
    return _epoch("default", models=10, by_hand=False)


def epoch_of_ten_by_hand() -> dict[str, float]:
    """The same with gradients by hand."""
    return _epoch("default", models=10, by_hand=True)


def epoch_of_paper_by_autograd() -> dict[str, float]:
    """One epoch of ten models of `TrainConfig.paper()`, gradients by autograd."""
    return _epoch("paper", models=10, by_hand=False)


def epoch_of_paper_by_hand() -> dict[str, float]:
    """The same with gradients by hand."""
    return _epoch("paper", models=10, by_hand=True)


def epoch_of_minimal_by_autograd() -> dict[str, float]:
    """One epoch of 165 models with one head of one dimension, gradients by autograd."""
    return _epoch("minimal", models=165, by_hand=False)


def epoch_of_minimal_by_hand() -> dict[str, float]:
    """The same with gradients by hand."""
    return _epoch("minimal", models=165, by_hand=True)


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [
    epoch_by_autograd,
    epoch_by_hand,
    epoch_of_ten_by_autograd,
    epoch_of_ten_by_hand,
    epoch_of_paper_by_autograd,
    epoch_of_paper_by_hand,
    epoch_of_minimal_by_autograd,
    epoch_of_minimal_by_hand,
]

RATIOS = [
    ("epoch: by hand over autograd", "epoch_by_autograd", "epoch_by_hand"),
    ("epoch of ten: by hand over autograd", "epoch_of_ten_by_autograd", "epoch_of_ten_by_hand"),
    (
        "epoch of ten, the paper's recipe: by hand over autograd",
        "epoch_of_paper_by_autograd",
        "epoch_of_paper_by_hand",
    ),
    (
        "epoch of 165 minimal heads: by hand over autograd",
        "epoch_of_minimal_by_autograd",
        "epoch_of_minimal_by_hand",
    ),
]


def _epoch(recipe: str, models: int, *, by_hand: bool, repetitions: int = 5) -> dict[str, float]:
    import torch

    from count01_lens.common.threads import one_thread

    trainer = trainer_of(recipe, models, by_hand=by_hand)
    state = trainer.initial_state()
    with one_thread(), torch.no_grad():
        return {"seconds": best(lambda: trainer._run_epoch(state), repetitions)}


def trainer_of(recipe: str, models: int, *, by_hand: bool) -> Any:
    """Make a trainer of a stack whose gradients are found by hand, or by autograd."""
    import count01_lens as cl
    from count01_lens.training.run_directory import TrainingRun
    from count01_lens.training.step import ByAutograd
    from count01_lens.training.trainer import Trainer

    minimal = {"d_embed": 8, "n_heads": 1, "d_head": 1, "layer_norm": False}
    config = {
        "default": cl.TrainConfig(),
        "paper": cl.TrainConfig.paper(),
        "minimal": cl.TrainConfig().changed(**minimal),
    }[recipe]

    class Autograd(Trainer):
        def _gradient_of(self, epoch: int) -> ByAutograd:
            return ByAutograd(self.blocks, self._flat, self._loss)

    run = TrainingRun([config] * models, range(models), cl.make_splits(), [])
    return Trainer(run) if by_hand else Autograd(run)
