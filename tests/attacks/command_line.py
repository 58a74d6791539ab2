"""The command line in copies of a process that has imported everything: no start takes seconds.

What is run is `main`, with the arguments of a user, on models of two heads. Every command writes what
it always writes; only pictures are not drawn, because all of them would take minutes.
"""

import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from matplotlib.text import Text

import count01_lens as cl
from count01_lens.cli import main
from count01_lens.common.bundle import read_bundle
from count01_lens.common.storage import is_temporary, parse_json
from count01_lens.views import figures
from tests.attacks.commands import sums_of

TINY = ["--heads", "2", "--d-embed", "4"]
# What a command is given: {model} and {seeds} differ between two that run at once.
COMMANDS = {
    "train": ["train", "--out", "{out}/run", "--seeds", "{seeds}", *TINY, "--epochs", "3"],
    "analyze": ["analyze", "{model}", "--out", "{out}/analysis", "--report", "{out}/report.html"],
    "verify": ["verify", "{model}", "--up-to", "60", "--resume", "{out}/kept"],
    "view": ["view", "{model}", "0110212=", "-o", "{out}/view.html", "--w01", "2"],
    "explore": ["explore", "{model}", "-o", "{out}/explorer.html"],
    "sweep": ["sweep", "{model}", "--out", "{out}/sweep"],
    "compare": ["compare", "{model}", "{third}", "-o", "{out}/compare.html"],
    "sweep-models": [
        "sweep-models", "--out", "{out}/models", "--seeds", "{seeds}", *TINY, "--epochs", "1",
        "--per-job", "1", "--workers", "0",
    ],
    "doctor": ["doctor"],
}  # fmt: skip
SEEDS = {"a": "0,1,2", "b": "2,3"}
LIST_OF_OUTPUTS = ".count01-lens.json"


def make_models(directory: Path) -> None:
    """Save what the commands are given."""
    for seed, name in enumerate(("a", "b", "c")):
        model = cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2, n_ctx=600), seed=seed)
        cl.save_checkpoint(model, directory / name)


def arguments_of(command: str, models: Path, out: Path, variant: str = "a") -> list[str]:
    """The words of a command, as a user gives them."""
    places = {"model": models / variant, "third": models / "c", "out": out}
    return [word.format(**places, seeds=SEEDS[variant]) for word in COMMANDS[command]]


def command(
    arguments: list[str], wait: float = 0.0, ctrl_c_after: float | None = None
) -> dict[str, Any]:
    """Do what `count01-lens` does; return its exit code, what it said, and how long it took.

    Args:
        arguments: all that is behind the name of the program.
        wait: seconds before it begins.
        ctrl_c_after: seconds from its beginning to Ctrl-C.
    """
    figures.Figure.savefig = _no_picture  # type: ignore[method-assign]
    time.sleep(wait)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        for file, stream in ((out, 1), (errors, 2)):
            os.dup2(file.fileno(), stream)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", closefd=False) for n in (1, 2))
        sys.argv = ["count01-lens", *arguments]
        start = time.monotonic()
        code = _code_of_main(ctrl_c_after)
        seconds = time.monotonic() - start
        sys.stdout.flush()
        sys.stderr.flush()
        said = []
        for file in (out, errors):
            file.seek(0)
            said.append(file.read())
    return {"code": code, "out": said[0], "errors": said[1], "seconds": seconds}


def _code_of_main(ctrl_c_after: float | None) -> Any:
    """Run `main`; while it runs, and not after, Ctrl-C may come."""
    runs = True

    def press(*_: object) -> None:
        if runs:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, press)
    if ctrl_c_after is not None:
        signal.setitimer(signal.ITIMER_REAL, max(ctrl_c_after, 1e-6))
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()  # as the interpreter would
        return "none"
    finally:
        runs = False
    return 0


def _no_picture(figure: Any, file: Any, *_: Any, format: str = "png", **__: Any) -> None:
    """Write what stands for a picture: the words in it, so that other figures are other bytes."""
    words = sorted(text.get_text() for text in figure.findobj(Text))
    picture = f"<svg>{len(words)}</svg>" if format == "svg" else repr(words)
    file.write(picture.encode())


def what_is_wrong_with(directory: Path, expected: dict[str, str]) -> str:
    """Say what a user would find in a directory that is neither old nor new, or nothing."""
    for path in sorted(directory.rglob("*")):
        if is_temporary(path):
            return "temporary files are left"
        if not path.is_file() or path.name == ".lock":
            continue
        try:
            data = path.read_bytes()
            if path.name == LIST_OF_OUTPUTS:
                parse_json(data)
            elif path.suffix == ".safetensors" or path.name == "kept":
                read_bundle(path, _kind_of(data))
            elif sums_of(directory).get(str(path.relative_to(directory))) not in expected.values():
                return f"{path.name} is half-written"
        except ValueError as error:
            return f"{path.name} does not load: {error}"
    return ""


def _kind_of(data: bytes) -> str:
    """What a bundle says it is; whether it is whole, reading it tells."""
    length = int.from_bytes(data[:8], "little")
    header = parse_json(data[8 : 8 + length])
    return str(header["__metadata__"]["kind"])


TASKS = {"command": command}
