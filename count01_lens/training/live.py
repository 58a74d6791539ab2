"""A training as it is seen while it runs: its history, and the s-acc of heads where time allows.

Training hands over the line of history of each epoch; viewers read from here what is new to them.
Whatever that takes is timed, and heads are measured only while the whole stays below a share of the
time that training itself takes. Training computes the same bits whether anybody looks on or not,
and goes on whatever happens to a viewer.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol

from count01_lens.heads.thresholds import FAILED, SUCCESSFUL
from count01_lens.training.live_heads import LiveHeads
from count01_lens.training.run_directory import TrainingRun, TrainState

# What looking on may take of the time of training. What was promised is 5 %: that it disturbs
# caches, and that threads wait for each other, is in no clock here.
SHARE = 0.035
SHOWN = ("loss", "validation_accuracy", "test_accuracy", "test_eos_accuracy")
_DIGITS = 6


class Viewer(Protocol):
    """Shows a training while it runs. What it raises is a warning, after which it is left alone."""

    def follow(self, training: "LiveTraining") -> None:
        """Begin to show it, before its first epoch."""

    def changed(self) -> None:
        """Show what is new: called after each epoch, and once more when training has ended."""


class Budget:
    """The time that looking on may take: a share of training's, and more of it early on.

    Heads change most in the first epochs. After a part p of training √p of the whole may be spent,
    so that the first epochs are close to each other. What the last epoch needs is kept for it.
    """

    def __init__(self, epochs: int, clock: Callable[[], float] = time.perf_counter):
        self.epochs, self.clock = epochs, clock
        self.spent, self._start, self._lock = 0.0, clock(), Lock()

    @property
    def elapsed(self) -> float:
        """Seconds since training began or went on."""
        return self.clock() - self._start

    @property
    def share(self) -> float:
        """What was spent, as a share of the time that training itself took."""
        trained = self.elapsed - self.spent
        return self.spent / trained if trained > 0 else 0.0

    def spend(self, seconds: float) -> None:
        """Count what was spent; other threads do so, too."""
        with self._lock:
            self.spent += seconds

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count how long this takes."""
        start = self.clock()
        try:
            yield
        finally:
            self.spend(self.clock() - start)

    def allows(self, cost: float, done: int) -> bool:
        """Tell whether something may be done after so many of the epochs."""
        if not done:
            return False
        part = min(done / self.epochs, 1.0)
        whole = SHARE * (self.elapsed - self.spent) / part
        kept = cost if part < 1 else 0.0
        return self.spent + cost + kept <= whole * math.sqrt(part)


class LiveTraining:
    """What is known of a training so far, for those who look on.

    Attributes:
        about: what is trained: names of models, epochs, number of heads, task; never changes.
        lines: history, also that of a run before it was stopped; numbers are lists of models.
        heads: s-acc and head weight of each head of a model after an epoch.
        state: "training", "finished", "stopped" or "failed".
        message: why it failed, or what could not be measured.
    """

    def __init__(self, run: TrainingRun, state: TrainState):
        self.run, self._train_state, self._lock = run, state, Lock()
        self.about = _about(run)
        self.epochs, self.first = run.configs[0].epochs, state.epoch
        self.lines: list[Mapping[str, Any]] = list(state.history)
        self.heads: list[Mapping[str, Any]] = []
        self.state, self.message = "training", ""
        self.budget = Budget(self.epochs - self.first)
        self._probes: LiveHeads | None = None
        self._measuring, self._turn, self._cost = True, 0, 0.0

    @property
    def epoch(self) -> int:
        """How many epochs are complete."""
        return int(self.lines[-1]["epoch"]) if self.lines else 0

    @property
    def ended(self) -> bool:
        """Whether training has, be it before its last epoch."""
        return self.state != "training"

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes if it goes on like this; None before the first epoch."""
        done = self.epoch - self.first
        return self.budget.elapsed / done * (self.epochs - self.epoch) if done > 0 else None

    def after_epoch(self) -> None:
        """Take over what is new, and measure heads if time allows."""
        with self.budget.spending():
            self._take_over()
        done = self.epoch - self.first
        # Nobody knows what the first measurement takes: about as much as an epoch of one model.
        models = len(self.run.seeds)
        cost = self._cost or self.budget.elapsed / max(done, 1) / models
        if self._measuring and self.budget.allows(cost, done):
            start = self.budget.clock()
            with self.budget.spending():
                self._measure(_in_turn(self._turn, models) if self.epoch < self.epochs else 0)
            took = self.budget.clock() - start
            # The first one also had to get ready.
            self._turn, self._cost = self._turn + 1, min(took, self._cost or took)

    def end(self, state: str, message: str = "") -> None:
        """Say how training has ended."""
        self._take_over()
        self.state, self.message = state, message or self.message

    def news(self, lines: int = 0, heads: int = 0) -> dict[str, Any]:
        """Return what came after so many lines and measurements, as JSON can hold it."""
        with self._lock:
            new_lines, new_heads = self.lines[lines:], self.heads[heads:]
        return {
            "from": [lines, heads],
            "lines": [_as_json(line, ("epoch", "step", *SHOWN)) for line in new_lines],
            "heads": [_as_json(moment, moment) for moment in new_heads],
            "status": {
                "state": self.state,
                "message": self.message,
                "epoch": self.epoch,
                "elapsed": _plain(self.budget.elapsed),
                "left": _plain(self.seconds_left),
                "share": _plain(self.budget.share),
            },
        }

    def _take_over(self) -> None:
        """Take over lines of history: one per epoch, and of steps that were asked for."""
        self._add(self.lines, self._train_state.history[len(self.lines) :])

    def _measure(self, model: int) -> None:
        try:
            self._probes = self._probes or LiveHeads(self.run)
            s_acc, weights = self._probes.measure(self._train_state.rows, model)
        except Exception as error:  # whatever it is, training has nothing to do with it
            self._measuring, self.message = False, f"heads could not be measured: {error}"
            return
        moment = {"epoch": self.epoch, "model": model, "s_acc": s_acc, "weight": weights}
        self._add(self.heads, [moment])

    def _add(self, where: list[Mapping[str, Any]], what: Sequence[Mapping[str, Any]]) -> None:
        with self._lock:
            where.extend(what)


@contextmanager
def watched(
    viewer: Viewer | None, run: TrainingRun, state: TrainState
) -> Iterator[Callable[[], None]]:
    """Let a viewer follow a training; call what this gives after each epoch."""
    if viewer is None:
        yield lambda: None
        return
    training = LiveTraining(run, state)
    guarded = _Guarded(viewer)
    guarded.call(lambda: viewer.follow(training))
    training.budget = Budget(training.epochs - training.first)  # starting it is no training

    def after_epoch() -> None:
        training.after_epoch()
        with training.budget.spending():
            guarded.call(viewer.changed)

    def end(how: str, message: str = "") -> None:
        training.end(how, message)
        guarded.call(viewer.changed)

    try:
        yield after_epoch
    except KeyboardInterrupt:
        end("stopped")
        raise
    except BaseException as error:
        end("failed", str(error))
        raise
    end("finished")


class _Guarded:
    """Calls a viewer until that fails."""

    def __init__(self, viewer: Viewer):
        self.viewer, self.failed = viewer, False

    def call(self, do: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            do()
        except Exception as error:  # whatever it is, training goes on
            self.failed = True
            name, kind = type(self.viewer).__name__, type(error).__name__
            warnings.warn(
                f"{name} failed ({kind}: {error}); training goes on without it", stacklevel=2
            )


def _in_turn(turn: int, models: int) -> int:
    """Which model is measured: the first one every other time, the others one after the other."""
    return 0 if models == 1 or turn % 2 == 0 else 1 + turn // 2 % (models - 1)


def _about(run: TrainingRun) -> dict[str, Any]:
    config, recipes = run.configs[0], list(dict.fromkeys(run.configs))
    names = [
        f"seed {seed}" + (f", recipe {recipes.index(recipe)}" if len(recipes) > 1 else "")
        for recipe, seed in zip(run.configs, run.seeds, strict=True)
    ]
    task = "count01" if run.task is None else run.task.name
    return {
        "models": names,
        "epochs": config.epochs,
        "n_heads": config.model.n_heads,
        "task": task or "a task without a name",
        "steps_per_epoch": run.steps_per_epoch,
        "bounds": [SUCCESSFUL, FAILED],
    }


def _as_json(row: Mapping[str, Any], names: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [_plain(number) for number in row[name]] if isinstance(row[name], list) else row[name]
        for name in names
    }


def _plain(number: float | None) -> float | None:
    """Round a number; JSON has no NaN and no infinity."""
    if number is None or not math.isfinite(number):
        return None
    return float(f"{number:.{_DIGITS}g}")
