"""What commands read and write."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure
    from pandas import DataFrame

Checkpoint = Annotated[Path, typer.Argument(help="A checkpoint, with or without .safetensors.")]


def check_directory(out: Path) -> None:
    """Raise unless files can go to a directory of this name, there or not."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: expected a directory, got a file")


def write_results(
    out: Path, tables: "Mapping[str, DataFrame]", figures: "Mapping[str, Figure]"
) -> None:
    """Write tables as CSV, figures as PNG and SVG, and say so."""
    from count01_lens.common.storage import write_atomically
    from count01_lens.views.figures import as_bytes

    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_atomically(out / f"{name}.csv", table.to_csv(index=False).encode())
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            write_atomically(out / f"{name}.{kind}", as_bytes(figure, kind))
    files = [*(f"{name}.csv" for name in tables), *(f"{name}.png" for name in figures)]
    typer.echo(f"written to {out}: {', '.join(files)}")
