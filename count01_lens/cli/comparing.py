"""The command that puts several models side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from count01_lens.cli.files import Force, Page, TaskFile
from count01_lens.cli.screen import (
    AsCsv,
    AsJson,
    for_programs,
    say,
    say_csv,
    say_json,
    say_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def compare(
    checkpoints: Annotated[
        list[Path], typer.Argument(help="Checkpoints, with or without .safetensors.")
    ],
    out: Page,
    groups: Annotated[
        Literal["ends", "all"],
        typer.Option(
            help="Groups of heads to measure; all: every group, seconds for 16 heads; ends: only "
            "the smallest and the largest."
        ),
    ] = "all",
    probes: Annotated[
        Literal["ends", "all"],
        typer.Option(help="The same for s-acc, which needs a fit for each: minutes for 16 heads."),
    ] = "ends",
    task: TaskFile = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    force: Force = False,
) -> None:
    """Put the heads of several models, such as seeds, side by side.

    Prints whether heads cooperate or are redundant, with an interval over models, and a line per
    model.
    """
    from count01_lens.common.columns import columns_of
    from count01_lens.common.outputs import check_page_to_write
    from count01_lens.common.text import share, written_signed
    from count01_lens.heads.comparison import compare_heads
    from count01_lens.tasks.task_file import read_task

    only_data = for_programs(as_json, as_csv)
    check_page_to_write(out, force=force)
    asked = None if task is None else read_task(task)
    named = dict(zip(names_of(checkpoints), checkpoints, strict=True))
    comparison = compare_heads(named, asked, groups=groups, probes=probes)
    comparison.report(out)
    if as_json:
        say_json(
            {
                "answer": comparison.answer,
                "words": comparison.words,
                "models": comparison.table.to_dict("records"),
                "means": comparison.means.to_dict("records"),
                "notes": list(comparison.notes),
            }
        )
    elif as_csv:
        say_csv(comparison.table)
    else:
        say(comparison.answer, "")
        summary = comparison.summary
        interactions = [str(name) for name in summary if str(name).endswith("interaction")]
        write: dict[str, Any] = {**dict.fromkeys(interactions, written_signed), "accuracy": share}
        say_table(columns_of(summary.to_dict("list"), write))
        say(*(f"note: {note}" for note in comparison.notes))
    typer.echo(f"written to {out}: open it in a browser", err=only_data)


def names_of(paths: "Sequence[Path]") -> list[str]:
    """Call files by their names, with as many directories before as tell them apart."""
    plain = [path.with_suffix("") if path.suffix == ".safetensors" else path for path in paths]
    for parts in range(1, max(len(path.parts) for path in plain) + 1):
        names = ["/".join(path.parts[-parts:]) for path in plain]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"checkpoints: expected each one once, got {', '.join(map(str, paths))}")
