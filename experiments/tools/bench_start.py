"""Measure how long commands take from Enter to their answer: part of `make bench`.

Each is run as a whole, in a process of its own, as users run it: by the light road, on which the
tables of a model over counts are read from its checkpoint, and by the heavy one, on which
TransformerLens is imported and makes the model. Both print the same and write the same bytes.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from experiments.tools.timing import best

REPETITIONS = 3
_HEAVY = (
    "import transformer_lens; from count01_lens.models import checkpoints; "
    "checkpoints.open_checkpoint = checkpoints.load_checkpoint; "
)
_COMMAND = "from count01_lens.cli import main; main()"


def start_verify() -> dict[str, float]:
    """`count01-lens verify --up-to 20` of the example model, from its checkpoint's tables."""
    return {"seconds": _seconds("verify", "--up-to", "20")}


def start_verify_heavy() -> dict[str, float]:
    """The same, with a HookedTransformer."""
    return {"seconds": _seconds("verify", "--up-to", "20", before=_HEAVY)}


def start_analyze() -> dict[str, float]:
    """`count01-lens analyze --groups none` of the example model, from its checkpoint's tables."""
    return {"seconds": _seconds("analyze", "--groups", "none")}


def start_analyze_heavy() -> dict[str, float]:
    """The same, with a HookedTransformer."""
    return {"seconds": _seconds("analyze", "--groups", "none", before=_HEAVY)}


def start_explore() -> dict[str, float]:
    """`count01-lens explore` of the example model, from its checkpoint's tables."""
    return _explore()


def start_explore_heavy() -> dict[str, float]:
    """The same, with a HookedTransformer."""
    return _explore(before=_HEAVY)


def start_import() -> dict[str, float]:
    """`import count01_lens`, Python's own start included."""
    return {"seconds": best(lambda: _run("import count01_lens"), REPETITIONS)}


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [
    start_verify,
    start_verify_heavy,
    start_analyze,
    start_analyze_heavy,
    start_explore,
    start_explore_heavy,
    start_import,
]

RATIOS = [
    ("start: verify, with TransformerLens over without", "start_verify_heavy", "start_verify"),
    ("start: analyze, with TransformerLens over without", "start_analyze_heavy", "start_analyze"),
    ("start: explore, with TransformerLens over without", "start_explore_heavy", "start_explore"),
]


def _explore(before: str = "") -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        page = str(Path(directory) / "page.html")
        return {"seconds": _seconds("explore", "--out", page, before=before)}


def _seconds(command: str, *options: str, before: str = "") -> float:
    """Time a command on the example model."""
    from count01_lens.models.checkpoints import example_file

    arguments = [command, str(example_file("accurate")), *options]
    return best(lambda: _run(before + _COMMAND, *arguments), REPETITIONS)


def _run(code: str, *arguments: str) -> str:
    """Run Python; return what it prints."""
    program = [sys.executable, "-c", code, *arguments]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout
