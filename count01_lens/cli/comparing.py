"""The command that puts several models side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from count01_lens.cli.measuring import TaskFile

if TYPE_CHECKING:
    from collections.abc import Sequence


def compare(
    checkpoints: Annotated[
        list[Path], typer.Argument(help="Checkpoints, with or without .safetensors.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")],
    groups: Annotated[
        Literal["ends", "all"],
        typer.Option(help="All groups: seconds for 16 heads; or the smallest and the largest."),
    ] = "all",
    probes: Annotated[
        Literal["ends", "all"],
        typer.Option(help="The same for s-acc, which needs a fit for each: minutes for 16 heads."),
    ] = "ends",
    task: TaskFile = None,
) -> None:
    """Put the heads of several models, such as seeds, side by side.

    Prints whether heads cooperate or are redundant, with an interval over models, and a line per
    model.
    """
    from count01_lens.common.storage import check_file_to_write
    from count01_lens.heads.comparison import compare_heads
    from count01_lens.tasks.task_file import read_task

    check_file_to_write(out)
    asked = None if task is None else read_task(task)
    named = dict(zip(names_of(checkpoints), checkpoints, strict=True))
    comparison = compare_heads(named, asked, groups=groups, probes=probes)
    typer.echo(repr(comparison))
    comparison.report(out)
    typer.echo(f"written to {out}: open it in a browser")


def names_of(paths: "Sequence[Path]") -> list[str]:
    """Call files by their names, with as many directories before as tell them apart."""
    plain = [path.with_suffix("") if path.suffix == ".safetensors" else path for path in paths]
    for parts in range(1, max(len(path.parts) for path in plain) + 1):
        names = ["/".join(path.parts[-parts:]) for path in plain]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"checkpoints: expected each one once, got {', '.join(map(str, paths))}")
