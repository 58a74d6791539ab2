"""Options that several commands share for files, and how results get into a directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure
    from pandas import DataFrame

    from count01_lens.common.outputs import Outputs

Checkpoint = Annotated[Path, typer.Argument(help="A checkpoint, with or without .safetensors.")]
Page = Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite files that this command did not write.")
]
TaskFile = Annotated[
    Path | None,
    typer.Option("--task", help="JSON file with a task of your own.", show_default="Count01"),
]

_NAMED = 3  # more figures than this are counted


def write_results(
    outputs: "Outputs",
    tables: "Mapping[str, DataFrame]",
    figures: "Mapping[str, Figure]",
    others: "Mapping[str, bytes] | None" = None,
) -> str:
    """Write tables as CSV, figures as PNG and SVG, and others; return what to say of it."""
    from count01_lens.views.figures import as_bytes

    files = {f"{name}.csv": table.to_csv(index=False).encode() for name, table in tables.items()}
    for name, figure in figures.items():
        files |= {f"{name}.{kind}": as_bytes(figure, kind) for kind in ("png", "svg")}
    outputs.write(files | dict(others or {}))
    shown = [f"{name}.csv" for name in tables]
    if len(figures) <= _NAMED:
        shown += [f"{name}.png" for name in figures]
    else:
        shown += [f"{len(figures)} figures as PNG and SVG"]
    return f"written to {outputs.directory}: {', '.join([*shown, *(others or {})])}"


def remove_older(outputs: "Outputs") -> list[str]:
    """Take away what the same command left there of an earlier run; return what to say of it."""
    removed = outputs.remove_older()
    some = [*removed[:_NAMED], *(["..."] if len(removed) > _NAMED else [])]
    return [f"removed, of an earlier run: {', '.join(some)}"] if removed else []
