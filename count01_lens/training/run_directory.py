"""Where a training run lives: in memory, or in a directory from which it can go on.

    run.json            what the run is: recipes, seeds, data, snapshots, versions
    state.safetensors   everything needed to go on after the last complete epoch
    snapshots/          parameters of the whole stack, by step

`state.safetensors` is replaced atomically after an epoch's snapshots are on disk, so a run killed
at any moment goes on from the last epoch that it names. What comes after is computed again, and
comes out the same, because nothing depends on when the run was stopped.
"""

import json
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
from torch import Tensor

from count01_lens.common.storage import (
    LARGEST_JSON,
    is_temporary,
    json_bytes,
    load_tensors,
    locked,
    parse_json,
    read_file,
    remove_temporary_files,
    save_tensors,
    sha256,
    write_atomically,
)
from count01_lens.common.versions import library_versions
from count01_lens.models.parameters import raw_shapes
from count01_lens.tasks.dataset import Splits
from count01_lens.training.recipe import TrainConfig, steps_per_epoch
from count01_lens.training.stack import AdamW, Rows

FORMAT = 1


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
        """The identity as plain values."""
        counts = (self.splits.train, self.splits.validation, self.splits.test)
        return {
            "configs": [config.to_dict() for config in self.configs],
            "seeds": list(self.seeds),
            "snapshot_steps": list(self.snapshot_steps),
            "data_sha256": [sha256(split.counts.numpy().tobytes()) for split in counts],
        }

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
                content = {**self._expected, "versions": library_versions()}
                write_atomically(self._run_file, json_bytes(content))
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
            tensors = self._load(self._state_file, rows, others=("epoch", "steps", "history"))
            epoch, steps = int(tensors["epoch"]), int(tensors["steps"])
            history = parse_json(tensors["history"].numpy().tobytes(), finite=False)
            if not 0 < epoch <= self.identity.configs[0].epochs:
                raise ValueError(f"expected an epoch of the run, got {epoch}")
            self._check_history(history, epoch, steps)
        optimiser = AdamW(tensors["first_moment"], tensors["second_moment"], steps)
        return TrainState(epoch, tensors["rows"], optimiser, history)

    def save_state(self, state: TrainState) -> None:
        """Replace the stored state."""
        history = json.dumps(state.history).encode()
        save_tensors(
            self._state_file,
            {
                "run": self._mark,
                "epoch": torch.tensor(state.epoch),
                "steps": torch.tensor(state.optimiser.steps),
                "rows": state.rows,
                "first_moment": state.optimiser.first_moment,
                "second_moment": state.optimiser.second_moment,
                "history": torch.frombuffer(bytearray(history), dtype=torch.uint8),
            },
        )

    def save_snapshot(self, step: int, rows: Rows) -> None:
        """Write the parameters after a step."""
        tensors = {"run": self._mark, "step": torch.tensor(step), "rows": rows}
        save_tensors(self._snapshot_file(step), tensors)

    def snapshots(self, steps: Sequence[int]) -> Mapping[int, Rows]:
        """Return a mapping that reads a snapshot when it is asked for."""
        return _StoredSnapshots(steps, self._load_snapshot)

    def _load_snapshot(self, step: int) -> Rows:
        path = self._snapshot_file(step)
        with _explained(path):
            tensors = self._load(path, ("rows",))
            if int(tensors.get("step", step)) != step:  # older ones have none
                raise ValueError(f"expected the snapshot of step {step}, got another")
        return tensors["rows"]

    def _load(
        self, path: Path, rows: Sequence[str], others: Sequence[str] = ()
    ) -> dict[str, Tensor]:
        """Read a file of this run: tensors with a row for each model, and others."""
        tensors = load_tensors(path)
        if tensors.keys() - {"run", "step"} != {*rows, *others}:
            raise ValueError(f"expected {[*rows, *others]}, got {shortened(sorted(tensors))}")
        if not torch.equal(tensors.get("run", self._mark), self._mark):  # older ones have none
            raise ValueError("it belongs to another run")
        shape, dtype = self.identity.shape, self.identity.configs[0].dtype
        for name in rows:
            tensor = tensors[name]
            if tensor.shape != shape or tensor.dtype != dtype or not tensor.isfinite().all():
                raise ValueError(f"{name}: expected finite numbers {dtype} {list(shape)}")
        return tensors

    @cached_property
    def _mark(self) -> Tensor:
        """What tells the files of this run from those of another of the same shape."""
        identity = bytes.fromhex(sha256(json_bytes(self._expected)))
        return torch.frombuffer(bytearray(identity), dtype=torch.uint8)

    def _check_history(self, history: Any, epoch: int, steps: int) -> None:
        expected = self.identity.recorded(epoch)
        found = [(row["epoch"], row["step"]) for row in history]
        if found != expected or steps != expected[-1][1]:
            raise ValueError(f"expected a history up to step {expected[-1][1]}, got another")
        one_each = [float] * len(self.identity.seeds)
        for row in history:
            columns = [row[name] for name in row if name not in ("epoch", "step")]
            if row.keys() != history[0].keys() or not all(
                isinstance(column, list) and [type(value) for value in column] == one_each
                for column in columns
            ):
                raise ValueError(f"expected a number for each model, got {shortened(row)}")

    @cached_property
    def _expected(self) -> dict[str, Any]:
        description: dict[str, Any] = json.loads(json_bytes(self.identity.description))
        return {"format": FORMAT, **description}

    def _check_identity(self) -> None:
        expected = self._expected
        try:
            found = parse_json(read_file(self._run_file, LARGEST_JSON))
            versions = found["versions"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise RunDirectoryError(
                f"{self._run_file}: expected the file of a training run, which this is not "
                f"({error}); choose another directory"
            ) from error
        different = [key for key in expected if found.get(key) != expected[key]]
        if different:
            raise RunDirectoryError(
                f"{self.path}: holds another run (its {', '.join(different)} differ); "
                "choose another directory, or delete this one"
            )
        if versions != library_versions() and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.path}: was begun with other library versions ({shortened(versions)}); the "
                "rest of the run may differ in rounding",
                stacklevel=2,
            )

    @property
    def _run_file(self) -> Path:
        return self.path / "run.json"

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
