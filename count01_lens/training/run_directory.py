"""Where a training run lives: in memory, or in a directory from which it can go on.

    run.safetensors     what the run is: recipes, seeds, data, snapshots, versions
    state.safetensors   everything needed to go on after the last complete epoch
    snapshots/          parameters of the whole stack, by step

All are bundles. `state.safetensors` is replaced after an epoch's snapshots are on disk, so a run
killed at any moment goes on from the last epoch that it names. What comes after is computed again,
and comes out the same, because nothing depends on when the run was stopped.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import torch

from count01_lens.common import storage
from count01_lens.common.bundle import Bundle, read_bundle, write_bundle
from count01_lens.common.validation import check_int
from count01_lens.common.versions import library_versions
from count01_lens.models.parameters import raw_shapes
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.places import COUNT01
from count01_lens.training.optimisers import OPTIMISERS, Optimiser
from count01_lens.training.recipe import TrainConfig, steps_per_epoch
from count01_lens.training.stack import Rows

RUN, STATE, SNAPSHOT = "training run", "training state", "training snapshot"


class RunDirectoryError(ValueError):
    """A directory does not hold the run that it was expected to hold."""


@dataclass
class TrainState:
    """Everything that training needs to go on."""

    rows: Rows
    optimiser: Optimiser
    history: list[dict[str, Any]]

    @property
    def epoch(self) -> int:
        """How many epochs are complete."""
        return int(self.history[-1]["epoch"]) if self.history else 0


@dataclass(frozen=True, eq=False)
class TrainingRun(Mapping[int, Rows]):
    """What makes a run this run, and what is kept of it: the parameters by step.

    Where there is no path, snapshots are kept in memory, and states not at all. Where there is no
    task, it is Count01. A run that is read from its directory alone has what is `stored` of it, and
    may be without its data.
    """

    configs: Sequence[TrainConfig]
    seeds: Sequence[int]
    splits: Splits | None
    snapshot_steps: Sequence[int]
    path: Path | None = None
    task: CountingTask | None = None
    stored: Mapping[str, Any] | None = None

    @cached_property
    def steps_per_epoch(self) -> int:
        """Number of batches in the training split."""
        if self.splits is not None:
            return steps_per_epoch(self.configs[0], self.splits)
        assert self.stored is not None
        # The parameters at the end are always among those to keep.
        return int(max(self.stored["snapshot_steps"]) // self.configs[0].epochs)

    @property
    def language(self) -> CountingLanguage:
        """What the models are trained on."""
        return COUNT01 if self.task is None else self.task.language

    @cached_property
    def _description(self) -> dict[str, Any]:
        if self.stored is not None:
            return dict(self.stored)
        assert self.splits is not None
        task = {} if self.task is None else {"task": self.task.to_dict()}
        return task | {
            "configs": [config.to_dict() for config in self.configs],
            "seeds": list(self.seeds),
            "snapshot_steps": list(self.snapshot_steps),
            "data_sha256": data_checksums(self.splits),
        }

    @cached_property
    def _mark(self) -> str:
        """What tells the files of this run from those of another of the same shape."""
        return storage.sha256(storage.json_bytes(self._description))

    @cached_property
    def in_memory(self) -> dict[int, Rows]:
        """Snapshots that are in no file."""
        return {}

    def _file(self, name: str) -> Path:
        return (self.path or Path()) / f"{name}.safetensors"

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make or check the directory, if there is one, and keep other processes out of it."""
        if self.path is None:
            yield
            return
        self._found()  # before anything is touched
        (self.path / "snapshots").mkdir(parents=True, exist_ok=True)
        with storage.locked(self.path):
            found = self._found()  # once more, now that nobody else can write it
            storage.remove_temporary_files(self.path)
            storage.remove_temporary_files(self.path / "snapshots")
            versions = library_versions()
            if found is None:
                about = {**self._description, "versions": versions}
                write_bundle(self._file("run"), Bundle(RUN, about, {}))
            elif found.get("versions") != versions:
                warnings.warn(
                    f"{self.path}: was begun with other library versions "
                    f"({shortened(found.get('versions'))}); the rest of the run may differ in "
                    "rounding",
                    stacklevel=2,
                )
            yield

    def _found(self) -> Mapping[str, Any] | None:
        """Return what was stored of the run; raise if there is anything else, touch nothing."""
        run = self._file("run")
        for path in (run.parent, run.parent / "snapshots"):
            if path.exists() and not path.is_dir():
                raise RunDirectoryError(
                    f"{path}: expected a directory, got a file; choose another directory"
                )
        if not run.exists():
            # A run that was killed at its very beginning has left a lock and no snapshots.
            left = [run.parent / ".lock", run.parent / "snapshots"]
            entries = [entry for place in (run.parent, left[1]) if place.exists()
                       for entry in sorted(place.iterdir()) if entry not in left]  # fmt: skip
            foreign = [
                entry.relative_to(run.parent).as_posix()
                for entry in entries
                if not storage.is_temporary(entry)
            ]
            if foreign:
                raise RunDirectoryError(
                    f"{run.parent}: expected an empty directory or a training run, got "
                    f"{', '.join(foreign[:5])}; choose another directory"
                )
            return None
        try:
            found = read_bundle(run, RUN).about
        except storage.DamagedFileError as error:
            raise RunDirectoryError(f"{error}; or choose another directory") from error
        different = [key for key, value in self._description.items() if found.get(key) != value]
        if different == ["configs"]:
            check_version(run.parent, found["configs"], "choose another directory")
        if different:
            raise RunDirectoryError(
                f"{run.parent}: holds another run (its {', '.join(different)} differ); "
                "choose another directory, or delete this one"
            )
        return found

    def load_state(self) -> TrainState | None:
        """Read the state after the last complete epoch, if there is one."""
        path = self._file("state")
        if self.path is None or not path.exists():
            return None
        with _explained(path):
            optimiser = OPTIMISERS[self.configs[0].optimiser]
            names = ("rows", *optimiser.MOMENTS)
            bundle = self._read(path, STATE, names, others=("history",))
            epoch = check_int("epoch", bundle.about["epoch"], at_least=1)
            if epoch > self.configs[0].epochs:
                raise ValueError(f"expected an epoch of the run, got {epoch}")
            history = self._history_of(bundle, epoch)
        moments = {name: bundle.tensors[name] for name in optimiser.MOMENTS}
        restored = optimiser(moments, history[-1]["step"])
        return TrainState(bundle.tensors["rows"], restored, history)

    def save_state(self, state: TrainState) -> None:
        """Replace the stored state after an epoch."""
        if self.path is None:
            return
        columns = [name for name in state.history[0] if name not in ("epoch", "step")]
        lines = [[line[name] for name in columns] for line in state.history]
        tensors = {
            "rows": state.rows,
            **state.optimiser.moments,
            "history": torch.tensor(lines, dtype=torch.float64),
        }
        about = {"run": self._mark, "epoch": state.epoch, "columns": columns}
        write_bundle(self._file("state"), Bundle(STATE, about, tensors))

    def save_snapshot(self, step: int, rows: Rows) -> None:
        """Keep the parameters after a step."""
        if self.path is None:
            self.in_memory[step] = rows.detach().clone()
            return
        bundle = Bundle(SNAPSHOT, {"run": self._mark, "step": step}, {"rows": rows})
        write_bundle(self._snapshot_file(step), bundle)

    def __getitem__(self, step: int) -> Rows:
        """Read a snapshot when it is asked for."""
        if step not in self:
            raise KeyError(step)
        if self.path is None or step in self.in_memory:
            return self.in_memory[step]
        path = self._snapshot_file(step)
        with _explained(path):
            bundle = self._read(path, SNAPSHOT, ("rows",))
            if bundle.about["step"] != step:
                raise ValueError(f"expected the snapshot of step {step}, got another")
        return bundle.tensors["rows"]

    def __contains__(self, step: object) -> bool:
        return step in self.snapshot_steps  # without reading it

    def __iter__(self) -> Iterator[int]:
        return iter(self.snapshot_steps)

    def __len__(self) -> int:
        return len(self.snapshot_steps)

    def _snapshot_file(self, step: int) -> Path:
        return self._file(f"snapshots/step-{step:07d}")

    def _read(
        self, path: Path, kind: str, rows: Sequence[str], others: Sequence[str] = ()
    ) -> Bundle:
        """Read a file of this run: tensors with a row for each model, and others."""
        bundle = read_bundle(path, kind)
        if bundle.about["run"] != self._mark:
            raise ValueError("it belongs to another run")
        if bundle.tensors.keys() != {*rows, *others}:
            raise ValueError(f"expected {[*rows, *others]}, got {shortened([*bundle.tensors])}")
        dtype, shapes = (
            self.configs[0].dtype,
            raw_shapes(self.configs[0].model, self.language.d_vocab).values(),
        )
        shape = (len(self.seeds), sum(map(math.prod, shapes)))
        for name in rows:
            tensor = bundle.tensors[name]
            if tensor.shape != shape or tensor.dtype != dtype or not tensor.isfinite().all():
                raise ValueError(f"{name}: expected finite numbers {dtype} {list(shape)}")
        return bundle

    def _history_of(self, bundle: Bundle, epochs: int) -> list[dict[str, Any]]:
        """Turn a tensor into lines; when they were written follows from the run."""
        last, history = epochs * self.steps_per_epoch, bundle.tensors["history"]
        ends = range(0, last + 1, self.steps_per_epoch)
        steps = sorted({*ends, *(step for step in self.snapshot_steps if step < last)})
        columns = bundle.about["columns"]
        if not isinstance(columns, list) or len({*columns, "epoch", "step"}) != len(columns) + 2:
            raise ValueError(f"expected the names of different columns, got {shortened(columns)}")
        expected = (len(steps), len(columns), len(self.seeds))
        if history.shape != expected or history.dtype != torch.float64:
            raise ValueError(f"history: expected float64 {expected}, got {list(history.shape)}")
        return [
            {"epoch": step // self.steps_per_epoch, "step": step}
            | dict(zip(columns, line, strict=True))
            for step, line in zip(steps, history.tolist(), strict=True)
        ]


def data_checksums(splits: Splits) -> list[str]:
    """Checksums of the sentences of each split."""
    parts = (splits.train, splits.validation, splits.test)
    return [storage.sha256(split.counts.numpy().tobytes()) for split in parts]


def check_version(directory: Path, configs: Any, remedy: str) -> None:
    """Raise if stored recipes have other fields than those of this version."""
    if not isinstance(configs, list) or not all(isinstance(one, dict) for one in configs):
        return
    known = TrainConfig().to_dict().keys()
    for age, fields in (
        ("an older version, whose recipes had no", {x for one in configs for x in known - one}),
        ("a newer version, whose recipes have", {x for one in configs for x in one.keys() - known}),
    ):
        if fields:
            raise RunDirectoryError(
                f"{directory}: expected a run of this version of the library, got one of {age} "
                f"{', '.join(sorted(fields))}; {remedy}"
            )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say which file is not what it should be, and what can be done."""
    try:
        yield
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        problem = str(error) if str(path) in str(error) else f"{path}: not of this run ({error})"
        raise RunDirectoryError(f"{problem}; delete the directory to train again") from error
