"""Where a training run lives: in memory, or in a directory from which it can go on.

    run.json            what the run is: recipes, seeds, data, snapshots, versions
    state.safetensors   everything needed to go on after the last complete epoch
    snapshots/          parameters of the whole stack, by step

`state.safetensors` is replaced atomically after an epoch's snapshots are on disk, so a run killed
at any moment goes on from the last epoch that it names. What comes after is computed again, and
comes out the same, because nothing depends on when the run was stopped.
"""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch

from count01_lens.dataset import Splits
from count01_lens.recipe import TrainConfig
from count01_lens.stack import AdamW, Rows
from count01_lens.storage import (
    DamagedFileError,
    is_temporary,
    json_bytes,
    load_tensors,
    locked,
    remove_temporary_files,
    save_tensors,
    sha256,
    write_atomically,
)
from count01_lens.versions import library_versions

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
        try:
            tensors = load_tensors(self._state_file)
        except DamagedFileError as error:
            raise RunDirectoryError(f"{error}; delete the directory to train again") from error
        history = json.loads(bytes(tensors["history"].tolist()))
        optimiser = AdamW(tensors["first_moment"], tensors["second_moment"], int(tensors["steps"]))
        return TrainState(int(tensors["epoch"]), tensors["rows"], optimiser, history)

    def save_state(self, state: TrainState) -> None:
        """Replace the stored state."""
        history = json.dumps(state.history).encode()
        save_tensors(
            self._state_file,
            {
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
        save_tensors(self._snapshot_file(step), {"rows": rows})

    def snapshots(self, steps: Sequence[int]) -> Mapping[int, Rows]:
        """Return a mapping that reads a snapshot when it is asked for."""
        return _StoredSnapshots({step: self._snapshot_file(step) for step in steps})

    @cached_property
    def _expected(self) -> dict[str, Any]:
        description: dict[str, Any] = json.loads(json_bytes(self.identity.description))
        return {"format": FORMAT, **description}

    def _check_identity(self) -> None:
        expected = self._expected
        try:
            found = json.loads(self._run_file.read_bytes())
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
                f"{self.path}: was begun with other library versions ({versions}); the rest of "
                "the run may differ in rounding",
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
    def __init__(self, files: dict[int, Path]):
        self._files = files

    def __getitem__(self, step: int) -> Rows:
        try:
            return load_tensors(self._files[step])["rows"]
        except DamagedFileError as error:
            raise RunDirectoryError(f"{error}; delete the directory to train again") from error

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
