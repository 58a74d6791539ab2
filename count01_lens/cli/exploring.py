"""The command that writes the explorer."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from count01_lens.cli.files import Checkpoint, Force, Page

if TYPE_CHECKING:
    from count01_lens.heads.analysis import HeadAnalysis


def explore(
    checkpoint: Checkpoint,
    out: Page,
    analysis: Annotated[
        Path | None,
        typer.Option(
            help="What `analyze --out` has saved of this model: for Shapley values and neighbours.",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Write a page on which a model can be patched by hand, live in any browser.

    Set counts, choose heads, move attention ratios, switch heads off: the page computes the model,
    all test sentences and refitted linear probes. One file, which needs no internet.
    """
    from count01_lens.common.outputs import check_page_to_write
    from count01_lens.models.checkpoints import open_checkpoint
    from count01_lens.views.document import write_page
    from count01_lens.views.explorer_data import Explored
    from count01_lens.views.explorer_page import explorer_page

    check_page_to_write(out, force=force)

    def make() -> str:
        model = open_checkpoint(checkpoint)
        known = None if analysis is None else _read(analysis)
        name = checkpoint.name.removesuffix(".safetensors")
        path = json.dumps(str(checkpoint))
        python = f"cl.load_checkpoint({path})"
        explored = Explored(model, analysis=known, name=name, python=python)
        return explorer_page([explored], f"{name}: explorer")

    write_page(out, make)
    typer.echo(f"written to {out}: open it in a browser")


def _read(analysis: Path) -> "HeadAnalysis":
    from count01_lens.heads.analysis import HeadAnalysis

    return HeadAnalysis.load(analysis)
