"""Run every command that writes files, one after the other in one process.

    python -m tests.attacks.commands SIZE OUT WORKERS SEED

TransformerLens takes seconds to import, so a process for each command would take too long. What is
called is the command line itself, with the arguments of a user.
"""

import hashlib
import random
import sys
from pathlib import Path

import numpy as np
import torch

from count01_lens.common.bundle import read_bundle

TRAIN = [
    "--seeds", "0,3", "--heads", "2", "--d-embed", "4", "--epochs", "2", "--batch-size", "700",
]  # fmt: skip
SMALL, LARGE = "small", "large"


def commands(size: str, out: str, workers: int) -> list[list[str]]:
    """The commands, with models of two heads or with the paper's of sixteen."""
    train = TRAIN if size == SMALL else ["--seeds", "0,3", "--epochs", "20"]
    grid = ["--heads", "1,2", "--d-embed", "2"] if size == SMALL else ["--heads", "4,16"]
    epochs, groups = ("1", "none") if size == SMALL else ("10", "all")
    return [
        ["train", "--out", f"{out}/run", *train],
        [
            "analyze", f"{out}/run/seed-0", "--groups", groups,
            "--out", f"{out}/analysis", "--report", f"{out}/report.html",
        ],
        ["view", f"{out}/run/seed-3", "0110212=", "-o", f"{out}/view.html", "--w01", "2"],
        ["sweep", f"{out}/run/seed-0", "--out", f"{out}/sweep"],
        [
            "sweep-models", "--out", f"{out}/models", "--seeds", "0-2", *grid,
            "--epochs", epochs, "--per-job", "2", "--workers", str(workers),
        ],
    ]  # fmt: skip


def sums_of(directory: Path) -> dict[str, str]:
    """SHA-256 sums of all files by their place.

    The files of jobs tell how many seconds each took; of these, all but that counts.
    """
    return {
        str(path.relative_to(directory)): hashlib.sha256(
            _timeless(path) if path.parent.name == "jobs" else path.read_bytes()
        ).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def _timeless(path: Path) -> bytes:
    bundle = read_bundle(path, "job result")
    arrays = {name: tensor.numpy() for name, tensor in sorted(bundle.tensors.items())}
    numbers = [(name, str(array.dtype), array.tobytes()) for name, array in arrays.items()]
    text = {name: value for name, value in bundle.about.items() if name != "seconds"}
    return repr((numbers, text)).encode()


def main() -> None:
    """Run them all."""
    from count01_lens.cli import app

    size, out, workers, seed = sys.argv[1:]
    # The random states of the process must not matter.
    random.seed(int(seed))
    np.random.seed(int(seed))  # noqa: NPY002
    torch.manual_seed(int(seed))
    for command in commands(size, out, int(workers)):
        app(command, standalone_mode=False)


if __name__ == "__main__":
    main()
