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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Protocol

import torch

from count01_lens.common.bundle import Bundle, read_bundle, write_bundle
from count01_lens.common.storage import (
    DamagedFileError,
    is_temporary,
    json_bytes,
    locked,
    parse_json,
    remove_temporary_files,
    sha256,
)
from count01_lens.common.validation import check_int
from count01_lens.common.versions import library_versions
from count01_lens.models.parameters import raw_shapes
from count01_lens.tasks.dataset import Splits
from count01_lens.training.recipe import TrainConfig, steps_per_epoch
from count01_lens.training.stack import AdamW, Rows

RUN, STATE, SNAPSHOT = "training run", "training state", "training snapshot"


class RunDirectoryError(ValueError):
    """A directory does not hold the run that it was expected to hold."""


@dataclass
class TrainState:
    """Everything that training needs to go on."""

    epoch: int
    rows: Rows
    optimiser: AdamW
    history: list[dict[str, Any]]


@dataclass(frozen=True)
class RunIdentity:
    """What makes a run the same run."""

    configs: Sequence[TrainConfig]
    seeds: Sequence[int]
    splits: Splits
    snapshot_steps: Sequence[int]

    @cached_property
    def description(self) -> dict[str, Any]:
        """The identity as JSON values."""
        counts = (self.splits.train, self.splits.validation, self.splits.test)
        values = {
            "configs": [config.to_dict() for config in self.configs],
            "seeds": list(self.seeds),
            "snapshot_steps": list(self.snapshot_steps),
            "data_sha256": [sha256(split.counts.numpy().tobytes()) for split in counts],
        }
        return dict(parse_json(json_bytes(values)))

    @cached_property
    def mark(self) -> str:
        """What tells the files of this run from those of another of the same shape."""
        return sha256(json_bytes(self.description))

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Models and parameters of the stack."""
        shapes = raw_shapes(self.configs[0].model).values()
        return len(self.seeds), sum(map(math.prod, shapes))

    def recorded(self, epoch: int) -> list[tuple[int, int]]:
        """Epoch and step of each line of history, up to the end of an epoch."""
        per_epoch = steps_per_epoch(self.configs[0], self.splits)
        ends = range(0, epoch * per_epoch + 1, per_epoch)
        steps = {*ends, *(step for step in self.snapshot_steps if step < ends[-1])}
        return [(step // per_epoch, step) for step in sorted(steps)]


class Store(Protocol):
    """Where states and snapshots are kept."""

    def opened(self) -> AbstractContextManager[None]:
        """Prepare for writing; raise if the place holds something else."""

    def load_state(self) -> TrainState | None:
        """Return the state after the last complete epoch, if there is one."""

    def save_state(self, state: TrainState) -> None:
        """Keep the state after an epoch."""

    def save_snapshot(self, step: int, rows: Rows) -> None:
        """Keep the parameters after a step."""

    def snapshots(self, steps: Sequence[int]) -> Mapping[int, Rows]:
        """Give access to the snapshots of these steps."""


class MemoryStore:
    """Keeps snapshots in memory, and no states."""

    def __init__(self) -> None:
        self._snapshots: dict[int, Rows] = {}

    def opened(self) -> AbstractContextManager[None]:
        """Nothing to prepare."""
        return nullcontext()

    def load_state(self) -> TrainState | None:
        """Memory holds no earlier run."""
        return None

    def save_state(self, state: TrainState) -> None:
        """A run in memory cannot be resumed."""

    def save_snapshot(self, step: int, rows: Rows) -> None:
        """Keep the parameters after a step."""
        self._snapshots[step] = rows

    def snapshots(self, steps: Sequence[int]) -> Mapping[int, Rows]:
        """Return the snapshots of these steps."""
        return {step: self._snapshots[step] for step in steps}


class RunDirectory:
    """Keeps a run in a directory."""

    def __init__(self, path: Path, identity: RunIdentity):
        self.path, self.identity = path, identity
        self._warned = False

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make or check the directory, and keep other processes out of it."""
        self._check()  # before anything is touched
        self._snapshot_directory.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            self._check()  # once more, now that nobody else can write it
            remove_temporary_files(self.path)
            remove_temporary_files(self._snapshot_directory)
            if not self._run_file.exists():
                about = {**self.identity.description, "versions": library_versions()}
                write_bundle(self._run_file, Bundle(RUN, about, {}))
            yield

    def _check(self) -> None:
        """Raise if the directory holds anything but this run; touch nothing."""
        if self.path.exists() and not self.path.is_dir():
            raise RunDirectoryError(f"{self.path}: expected a directory, got a file")
        if self._snapshot_directory.exists() and not self._snapshot_directory.is_dir():
            raise RunDirectoryError(
                f"{self._snapshot_directory}: expected a directory, got a file; "
                "choose another directory"
            )
        if self._run_file.exists():
            self._check_identity()
        elif self.path.is_dir():
            foreign = sorted(
                entry.name
                for entry in self.path.iterdir()
                if entry.name not in (".lock", "snapshots") and not is_temporary(entry)
            )
            if foreign:
                raise RunDirectoryError(
                    f"{self.path}: expected an empty directory or a training run, got "
                    f"{', '.join(foreign[:5])}; choose another directory"
                )

    def load_state(self) -> TrainState | None:
        """Read the state after the last complete epoch."""
        if not self._state_file.exists():
            return None
        with _explained(self._state_file):
            rows = ("rows", "first_moment", "second_moment")
            bundle = self._read(self._state_file, STATE, rows, others=("history",))
            epoch = check_int("epoch", bundle.about["epoch"], at_least=1)
            if epoch > self.identity.configs[0].epochs:
                raise ValueError(f"expected an epoch of the run, got {epoch}")
            history = self._history_of(bundle, epoch)
        tensors = bundle.tensors
        optimiser = AdamW(tensors["first_moment"], tensors["second_moment"], history[-1]["step"])
        return TrainState(epoch, tensors["rows"], optimiser, history)

    def save_state(self, state: TrainState) -> None:
        """Replace the stored state."""
        columns = [name for name in state.history[0] if name not in ("epoch", "step")]
        lines = [[line[name] for name in columns] for line in state.history]
        tensors = {
            "rows": state.rows,
            "first_moment": state.optimiser.first_moment,
            "second_moment": state.optimiser.second_moment,
            "history": torch.tensor(lines, dtype=torch.float64),
        }
        about = {"run": self.identity.mark, "epoch": state.epoch, "columns": columns}
        write_bundle(self._state_file, Bundle(STATE, about, tensors))

    def save_snapshot(self, step: int, rows: Rows) -> None:
        """Write the parameters after a step."""
        about = {"run": self.identity.mark, "step": step}
        write_bundle(self._snapshot_file(step), Bundle(SNAPSHOT, about, {"rows": rows}))

    def snapshots(self, steps: Sequence[int]) -> Mapping[int, Rows]:
        """Return a mapping that reads a snapshot when it is asked for."""
        return _StoredSnapshots(steps, self._load_snapshot)

    def _load_snapshot(self, step: int) -> Rows:
        path = self._snapshot_file(step)
        with _explained(path):
            bundle = self._read(path, SNAPSHOT, ("rows",))
            if bundle.about["step"] != step:
                raise ValueError(f"expected the snapshot of step {step}, got another")
        return bundle.tensors["rows"]

    def _read(
        self, path: Path, kind: str, rows: Sequence[str], others: Sequence[str] = ()
    ) -> Bundle:
        """Read a file of this run: tensors with a row for each model, and others."""
        bundle = read_bundle(path, kind)
        if bundle.about["run"] != self.identity.mark:
            raise ValueError("it belongs to another run")
        if bundle.tensors.keys() != {*rows, *others}:
            raise ValueError(f"expected {[*rows, *others]}, got {shortened([*bundle.tensors])}")
        shape, dtype = self.identity.shape, self.identity.configs[0].dtype
        for name in rows:
            tensor = bundle.tensors[name]
            if tensor.shape != shape or tensor.dtype != dtype or not tensor.isfinite().all():
                raise ValueError(f"{name}: expected finite numbers {dtype} {list(shape)}")
        return bundle

    def _history_of(self, bundle: Bundle, epoch: int) -> list[dict[str, Any]]:
        """Turn a tensor into lines; when they were written follows from the run."""
        recorded, columns = self.identity.recorded(epoch), bundle.about["columns"]
        history = bundle.tensors["history"]
        if not isinstance(columns, list) or len({*columns, "epoch", "step"}) != len(columns) + 2:
            raise ValueError(f"expected the names of different columns, got {shortened(columns)}")
        expected = (len(recorded), len(columns), len(self.identity.seeds))
        if history.shape != expected or history.dtype != torch.float64:
            raise ValueError(f"history: expected float64 {expected}, got {list(history.shape)}")
        return [
            {"epoch": epoch, "step": step, **dict(zip(columns, line, strict=True))}
            for (epoch, step), line in zip(recorded, history.tolist(), strict=True)
        ]

    def _check_identity(self) -> None:
        expected = self.identity.description
        try:
            found = read_bundle(self._run_file, RUN).about
        except DamagedFileError as error:
            raise RunDirectoryError(f"{error}; or choose another directory") from error
        different = [key for key in expected if found.get(key) != expected[key]]
        if different:
            raise RunDirectoryError(
                f"{self.path}: holds another run (its {', '.join(different)} differ); "
                "choose another directory, or delete this one"
            )
        if found.get("versions") != library_versions() and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.path}: was begun with other library versions "
                f"({shortened(found.get('versions'))}); the rest of the run may differ in rounding",
                stacklevel=2,
            )

    @property
    def _run_file(self) -> Path:
        return self.path / "run.safetensors"

    @property
    def _state_file(self) -> Path:
        return self.path / "state.safetensors"

    @property
    def _snapshot_directory(self) -> Path:
        return self.path / "snapshots"

    def _snapshot_file(self, step: int) -> Path:
        return self._snapshot_directory / f"step-{step:07d}.safetensors"


class _StoredSnapshots(Mapping[int, Rows]):
    def __init__(self, steps: Sequence[int], load: Callable[[int], Rows]):
        self._steps, self._load = steps, load

    def __getitem__(self, step: int) -> Rows:
        if step not in self:
            raise KeyError(step)
        return self._load(step)

    def __contains__(self, step: object) -> bool:
        return step in self._steps  # without reading it

    def __iter__(self) -> Iterator[int]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say which file is not what it should be, and what can be done."""
    try:
        yield
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        problem = str(error) if str(path) in str(error) else f"{path}: not of this run ({error})"
        raise RunDirectoryError(f"{problem}; delete the directory to train again") from error
