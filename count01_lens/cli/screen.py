"""What commands print: text that fits the screen, and tables for people or for programs.

Results go to stdout, all else to stderr. With `--json` or `--csv` stdout has nothing but that. A
character that the output cannot have is written in others: '≥' as '>='.
"""

import codecs
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from count01_lens.cli.options import in_options
from count01_lens.common.columns import Column, as_table, fitting, screen_width

if TYPE_CHECKING:
    from pandas import DataFrame

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else, for programs.")]
AsCsv = Annotated[
    bool, typer.Option("--csv", help="Print the table as CSV and nothing else, for programs.")
]
Wide = Annotated[
    bool, typer.Option("--wide", help="Show all columns; those that do not fit stand below.")
]

_PLAIN = {
    "≥": ">=", "≤": "<=", "−": "-", "–": "-", "—": "-", "·": "*", "×": "x", "∞": "inf", "→": "->",
    "…": "...", "•": "*", "±": "+-", "α": "alpha", "β": "beta", "σ": "sigma", "\u00a0": " ",
    "‘": "'", "’": "'", "“": '"', "”": '"', "²": "2", "³": "3",
}  # fmt: skip
_IN_PLAIN = "count01-plain"
_STAYS = "\0"  # a space at which no line ends


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Write what an encoding does not have in characters that every one has."""
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter, "?") for letter in letters), error.end


codecs.register_error(_IN_PLAIN, _plain)


def print_what_can_be() -> None:
    """Never let a character that stdout or stderr does not have end a command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_IN_PLAIN)


def say(*paragraphs: str, err: bool = False) -> None:
    """Print paragraphs in lines that fit the screen; of each, all lines but the first indented.

    What they call things in Python, they say as options.
    """
    for paragraph in paragraphs:
        text = _possible(in_options(paragraph), sys.stderr if err else sys.stdout)
        lines = textwrap.wrap(
            re.sub(r"(?<=\d) %", f"{_STAYS}%", text),
            screen_width(),
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        typer.echo("\n".join(lines).replace(_STAYS, " "), err=err)


def say_table(columns: Iterable[Column], *, wide: bool = True, whole: bool = False) -> None:
    """Print the columns that fit the screen, the first ones; or all of them, if it is `wide`.

    A `whole` line holds a path, which nobody could copy from several: such lines are not broken.
    """
    from rich.console import Console

    possible = [
        replace(column, name=_possible(column.name), cells=tuple(map(_possible, column.cells)))
        for column in columns
    ]
    width = 10_000 if whole else screen_width()
    tables = fitting(possible, width)
    console = Console(file=sys.stdout, width=width, legacy_windows=False)
    for number, table in enumerate(tables if wide else tables[:1]):
        if number:
            typer.echo()
        console.print(as_table(table, whole=whole), soft_wrap=whole)
    left = [column.name for table in tables[1:] for column in table[1:]]
    if left and not wide:
        say(f"(--wide also shows {', '.join(left)})", err=True)


def say_json(value: Any) -> None:
    """Print JSON; what is no number is null there, and infinity "inf"."""
    typer.echo(json.dumps(_for_json(value), indent=2, allow_nan=False))


def say_csv(table: "DataFrame") -> None:
    """Print a table as CSV."""
    typer.echo(table.to_csv(index=False), nl=False)


def for_programs(as_json: bool, as_csv: bool) -> bool:
    """Whether programs are to read what is printed; raise if it is asked for in two forms."""
    if as_json and as_csv:
        raise ValueError("--json, --csv: expected one of them, got both")
    return as_json or as_csv


def _possible(text: str, stream: TextIO | None = None) -> str:
    """Write a text in the characters that a stream has, before it is laid out."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, _IN_PLAIN).decode(encoding)


def _for_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _for_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value
