"""Training of wide stacks: in parts that fit a processor's cache, on all cores.

Models of a stack do not know of each other, so that a part of them can be trained by itself. In a
stack of a hundred models an operation takes long enough for two threads to work side by side. Small
stacks are not cut: their steps are mostly calls, of which Python makes one at a time.

How a stack is cut depends on its size alone, so that results do not depend on the machine.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import torch

from count01_lens.common.threads import workers
from count01_lens.training.run_directory import TrainingRun, TrainState
from count01_lens.training.trainer import Trainer, TrainingDivergedError

# Numbers that a step of a part works through, at least: fewer are not worth a thread.
_NUMBERS = 500_000


def trainer_of(run: TrainingRun) -> "Trainer | WideTrainer":
    """Return what trains a stack: as a whole, or in parts if it is wide."""
    slices = parts_of(run)
    return Trainer(run) if len(slices) == 1 else WideTrainer(run, slices)


def parts_of(run: TrainingRun) -> list[slice]:
    """Cut a stack into parts of about the same size, an even number of them, or one."""
    config, language = run.configs[0], run.language
    assert run.splits is not None
    n_seen = (len(language.answers) + 1) * (len(language.symbols) + 3)
    width = n_seen + config.model.n_heads * (1 + config.model.d_head)
    numbers = 2 * min(config.batch_size, len(run.splits.train)) * width * len(run.seeds)
    n_parts = max(1, min(numbers // _NUMBERS, len(run.seeds)) // 2 * 2)
    ends = [len(run.seeds) * part // n_parts for part in range(n_parts + 1)]
    return [slice(*pair) for pair in itertools.pairwise(ends)]


class WideTrainer:
    """Trains a stack in parts, epoch by epoch, with the results of a stack."""

    def __init__(self, stored: TrainingRun, slices: Sequence[slice]):
        self.stored, self.slices = stored, slices
        self.parts = [
            Trainer(
                replace(stored, configs=stored.configs[some], seeds=stored.seeds[some], path=None)
            )
            for some in slices
        ]

    def initial_state(self) -> TrainState:
        """Draw every model's initial parameters from its own seed."""
        states = [part.initial_state() for part in self.parts]
        rows = torch.cat([state.rows for state in states])
        optimiser = type(states[0].optimiser).joined([state.optimiser for state in states])
        return TrainState(rows, optimiser, history=[])

    def run(self, state: TrainState, show: Callable[[Mapping[str, Any]], None]) -> None:
        """Train until the last epoch, saving after each and showing its line of history."""
        states = [self._part_of(state, some) for some in self.slices]
        with workers() as pool:
            self._all(pool, Trainer.begin, states)
            self._join(state, states)
            while state.epoch < self.stored.configs[0].epochs:
                self._all(pool, Trainer.train_epoch, states)
                self._join(state, states)
                self.stored.save_state(state)
                show(state.history[-1])

    def _all(
        self,
        pool: Executor,
        do: Callable[[Trainer, TrainState], None],
        states: Sequence[TrainState],
    ) -> None:
        """Do something with all parts; of models that diverge, name those that do so first."""
        done = [pool.submit(do, part, its) for part, its in zip(self.parts, states, strict=True)]
        errors = [error for each in done if (error := each.exception()) is not None]
        diverged = [error for error in errors if isinstance(error, TrainingDivergedError)]
        if diverged:
            first = min(error.step for error in diverged)
            seeds = [seed for error in diverged if error.step == first for seed in error.seeds]
            raise TrainingDivergedError.at(first, seeds)
        if errors:
            raise errors[0]

    def _part_of(self, state: TrainState, some: slice) -> TrainState:
        history = [
            {
                name: value[some] if isinstance(value, list) else value
                for name, value in line.items()
            }
            for line in state.history
        ]
        optimiser = state.optimiser.arranged(lambda moments: moments[some])
        return TrainState(state.rows[some], optimiser, history)

    def _join(self, state: TrainState, states: Sequence[TrainState]) -> None:
        """Make of the states of parts that of the stack, and keep new snapshots."""
        state.rows = torch.cat([each.rows for each in states])
        state.optimiser = type(state.optimiser).joined([each.optimiser for each in states])
        for lines in list(zip(*(each.history for each in states), strict=True))[
            len(state.history) :
        ]:
            state.history.append(_joined(lines))
        for step in sorted(self.parts[0].stored.in_memory):
            parts = [part.stored.in_memory.pop(step) for part in self.parts]
            self.stored.save_snapshot(step, torch.cat(parts))


def _joined(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Put the lines of history of parts side by side."""
    return {
        name: [number for line in lines for number in line[name]]
        if isinstance(value, list)
        else value
        for name, value in lines[0].items()
    }
