"""Tables as text: as many columns as fit the width, and what is left in tables below.

No cell is ever cut: one that is too wide for its line goes on in the next.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from count01_lens.common.text import four_digits, number

if TYPE_CHECKING:
    from rich.table import Table

_GAP, _WIDEST = 2, 46  # between columns; of a cell, before it goes on in the next line


def screen_width() -> int:
    """How many characters fit a line: those of the terminal or of COLUMNS, else 80."""
    return max(40, shutil.get_terminal_size((80, 24)).columns)


@dataclass(frozen=True)
class Column:
    """A column of cells as they are written; numbers are written to the right."""

    name: str
    cells: tuple[str, ...]
    is_number: bool = False

    @property
    def width(self) -> int:
        """How many characters it takes."""
        return min(_WIDEST, max(map(len, (self.name, *self.cells))))


def columns_of(
    table: Mapping[Any, Sequence[Any]], write: Mapping[str, Callable[[float], str]] | None = None
) -> list[Column]:
    """Write the cells of a table, given by columns; `write` has how, for numbers of some columns.

    >>> columns_of({"head": [0, 1], "w01": [4677.2, 0.5], "says": ["yes", "no"]})[1]
    Column(name='w01', cells=('4,677', '0.5000'), is_number=True)
    """
    written = []
    for name, values in table.items():
        is_number = all(isinstance(value, int | float) for value in values)
        digits = number if all(isinstance(value, int) for value in values) else four_digits
        how = (write or {}).get(name, digits) if is_number else str
        written.append(Column(str(name), tuple(map(how, values)), is_number))
    return written


def fitting(columns: Sequence[Column], width: int) -> list[list[Column]]:
    """Break columns into tables that fit a width; each begins with the first column, the key."""
    key, *others = columns
    tables, left = [[key]], width - key.width
    for column in others:
        if column.width + _GAP > left and len(tables[-1]) > 1:
            tables.append([key])
            left = width - key.width
        tables[-1].append(column)
        left -= column.width + _GAP
    return tables


def as_table(columns: Sequence[Column], *, whole: bool = False) -> "Table":
    """Lay out columns, for `rich` to print; cells that are `whole` go on in no other line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    widest = None if whole else _WIDEST
    for column in columns:
        side: Any = "right" if column.is_number else "left"
        table.add_column(Text(column.name), justify=side, overflow="fold", max_width=widest)
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, row))
    return table


def as_text(columns: Sequence[Column], width: int | None = None, *, wide: bool = False) -> str:
    """Write the columns that fit a width, the first ones; or all, if it is to be `wide`."""
    from rich.console import Console

    width = screen_width() if width is None else width
    tables = fitting(columns, width)
    written = []
    for each in tables if wide else tables[:1]:
        console = Console(file=StringIO(), width=width, color_system=None, legacy_windows=False)
        with console.capture() as captured:
            console.print(as_table(each))
        written.append("\n".join(line.rstrip() for line in captured.get().splitlines()))
    return "\n\n".join(written)
