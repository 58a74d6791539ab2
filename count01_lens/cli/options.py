"""How commands look in `--help`, and what they call things: options, not names of Python.

Messages of the library name its own arguments, `n_heads` or `analysis.with_groups()`. Before a
command shows one, `in_options` writes what somebody can type instead.
"""

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

# What has another name in Python than its option, and what is called there.
_PYTHON = {
    r"(analysis)?\.with_groups\(\)(\.report\(\.\.\.\))?": "--groups all",
    r"(analysis)?\.sampled_(shapley|interactions)\([a-z]*\)": "--budget",
    r"(analysis)?\.sampled\b": "--report",
    r"analysis\.report\(path, checkpoint=\.\.\.\)": "--report",
    r"(?<![\w.\-'\"\[/])n_heads(?![\w.'\"/(])": "--heads",
    r"use precision='float64'": "train from Python with precision='float64'",
    r"force=True": "--force",
    r"cl\.load_checkpoint\(([^()]*)\)": r"\1",
}
# Versions of typer write types in one of two ways.
_TYPES = {
    r"<int>|\bINTEGER\b": "N",
    r"<float>|\bFLOAT\b": "X",
    r"<path>": "PATH",
    r"<list\[Path\]>": "PATH...",
    r"<str>": "TEXT",
    r"[<[](\w+(\|\w+)+)[>\]]": r"\1",
    r"--([\w-]+) / --no-\1": r"--[no-]\1",
}


class Command(TyperCommand):
    """A command whose help has its options in groups, in two columns that fit 80 characters."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options: what to type on the left, what it does on the right."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is None:
                continue
            typed, does = record
            for written, short in _TYPES.items():
                typed = re.sub(written, short, typed)
            kind = "Options" if param.param_type_name == "option" else "Arguments"
            title = getattr(param, "rich_help_panel", None) or kind
            groups.setdefault(title, []).append((typed, does))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows, col_max=26)


class Commands(TyperGroup):
    """All commands, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write what there is, and what it is for."""
        rows = [
            (name, (one.help or "").partition("\n\n")[0]) for name, one in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join(does.split())) for name, does in rows])


@cache
def _option_names() -> "Mapping[str, str]":
    """By the name of an argument of any command, the option that gives it."""
    from typer.main import get_command

    from count01_lens.cli import app

    commands = get_command(app).commands.values()  # type: ignore[attr-defined]
    options = [param for one in commands for param in one.params if param.opts[0][:2] == "--"]
    return {option.name: max(option.opts, key=len) for option in options}


def in_options(text: str) -> str:
    """Write a message of the library in the words of the command line.

    An argument is taken for one where a message begins with it, and anywhere if no word of English
    looks like it.
    """
    for python, instead in _PYTHON.items():
        text = re.sub(python, instead, text)
    names = _option_names()
    first = re.match(r"(\w+)[:\[]", text)
    if first is not None and not os.path.lexists(first[1]):  # a path of that name is the user's
        text = names.get(first[1], first[1]) + text[first.end(1) :]
    compound = "|".join(sorted((name for name in names if "_" in name), key=len, reverse=True))
    return re.sub(
        rf"(?<![\w.\-'\"\[/])({compound})(?![\w.'\"/(])", lambda found: names[found[1]], text
    )
