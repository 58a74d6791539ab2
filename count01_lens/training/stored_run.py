"""`load_run(directory)`: a stored run as a result, finished or not, without training.

Nothing is locked and nothing is written, so a run may be looked at while another process trains it:
`state.safetensors` is replaced as a whole, after the snapshots that it speaks of.
"""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from count01_lens.common.bundle import read_bundle
from count01_lens.common.storage import DamagedFileError
from count01_lens.common.validation import check_ints
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import Splits, make_splits
from count01_lens.training.recipe import TrainConfig, check_stackable, steps_per_epoch
from count01_lens.training.run_directory import (
    RUN,
    RunDirectoryError,
    TrainingRun,
    check_version,
    data_checksums,
)
from count01_lens.training.training_run import TrainResult, history_frame


def load_run(directory: str | PathLike[str]) -> TrainResult:
    """Read a run that `train(..., directory=...)` stores, from its directory alone.

    An unfinished run is read up to its last complete epoch, and says that it is unfinished; it may
    still be training. The data set is drawn anew from the recipe or the task, and compared with the
    checksum of the one that models were trained on. If it is not the same, as with splits of your
    own, the run is read without data (`result.splits` is None), and what needs data asks for them.

    Raises:
        RunDirectoryError: the directory does not exist or holds no run, a file is damaged, the run
            is of another version of the library, or has no complete epoch yet.

    Example:
        >>> config = cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=2), epochs=1)
        >>> result = cl.train(config, seeds=[0, 1], directory="runs/small", progress=False)
        >>> again = cl.load_run("runs/small")
        >>> again.seeds, again.history.equals(result.history)
        ((0, 1), True)
    """
    path = Path(directory)
    stored = _stored(path)
    check_version(path, stored.get("configs"), "use the version that wrote it")
    try:
        run = _run(path, stored)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunDirectoryError(
            f"{path}: expected the description of a training run, got another ({error}); take "
            "another copy, or train again"
        ) from error
    state = run.load_state()
    if state is None:
        raise RunDirectoryError(
            f"{path}: expected a run with a complete epoch, got one that has only begun; wait for "
            "its first epoch, or train it with train(..., directory=...)"
        )
    last = int(state.history[-1]["step"])
    run = replace(run, snapshot_steps=sorted({*(s for s in run.snapshot_steps if s < last), last}))
    run.in_memory[last] = state.rows  # an unfinished run may not keep this one
    history = history_frame(state.history, run.seeds)
    return TrainResult(
        tuple(run.configs), tuple(run.seeds), history, run, path, run.task, run.splits
    )


def _stored(path: Path) -> dict[str, Any]:
    """Read what a directory says of its run, but for the versions it was begun with."""
    # The other way round, a directory made between the two questions would be called a file.
    got = "a file" if path.exists() else "nothing there"
    if got == "nothing there" or not path.is_dir():
        raise RunDirectoryError(
            f"{path}: expected the directory of a training run, got {got}; check the path"
        )
    file = path / "run.safetensors"
    if not file.exists():
        raise RunDirectoryError(
            f"{path}: expected the directory of a training run, got one without {file.name}; give "
            "the directory that train(..., directory=...) wrote"
        )
    try:
        about = read_bundle(file, RUN).about
    except DamagedFileError as error:
        raise RunDirectoryError(str(error)) from error
    return {name: value for name, value in about.items() if name != "versions"}


def _run(path: Path, stored: Mapping[str, Any]) -> TrainingRun:
    """Make a run of what is stored; raise if something is missing or makes no sense."""
    configs = tuple(TrainConfig.from_dict(values) for values in stored["configs"])
    check_stackable(list(dict.fromkeys(configs)))
    seeds = check_ints("seeds", stored["seeds"], at_least=0)
    steps = check_ints("snapshot_steps", stored["snapshot_steps"], at_least=0)
    if not configs or len(configs) != len(seeds) or not steps:
        raise ValueError(f"{len(configs)} recipes, {len(seeds)} seeds, {len(steps)} snapshots")
    task = CountingTask.from_dict(stored["task"]) if "task" in stored else None
    drawn = make_splits(configs[0].data_seed) if task is None else task.splits
    splits: Splits | None = drawn if data_checksums(drawn) == stored["data_sha256"] else None
    if splits is not None and max(steps) != configs[0].epochs * steps_per_epoch(configs[0], splits):
        raise ValueError(f"expected {configs[0].epochs} epochs, got {max(steps)} steps")
    return TrainingRun(configs, tuple(seeds), splits, steps, path, task, stored)
