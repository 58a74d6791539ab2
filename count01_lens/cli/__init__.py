"""The command line, `count01-lens`: train, verify, analyze, compare, view, explore, sweep, ….

Nothing heavy is imported at the top of these modules: `count01-lens --help` must be instant.
"""

import sys
from _thread import interrupt_main
from threading import Timer
from typing import TYPE_CHECKING, Annotated

import typer

from count01_lens.cli.analyzing import analyze
from count01_lens.cli.comparing import compare
from count01_lens.cli.doctor import doctor
from count01_lens.cli.exploring import explore
from count01_lens.cli.measuring import sweep, verify, view
from count01_lens.cli.options import Command, Commands, in_options
from count01_lens.cli.screen import print_what_can_be
from count01_lens.cli.training import INTERRUPTED, sweep_models, train

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

USER_ERROR = 2

app = typer.Typer(
    name="count01-lens",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (train, verify, analyze, compare, view, explore, sweep, sweep_models, doctor):
    app.command(cls=Command)(command)


def _version(asked: bool) -> None:
    if asked:
        from count01_lens.common.versions import own_version

        typer.echo(f"count01-lens {own_version()}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Find out what attention heads do when a transformer counts.

    Start with: count01-lens train --out runs/first, then: count01-lens verify runs/first/seed-0
    """


def main() -> None:
    """Run the command line; a user's mistake ends in one line, and Ctrl-C in silence."""
    sys.unraisablehook = _hear_ctrl_c
    try:
        print_what_can_be()
        app()
    except KeyboardInterrupt:  # before typer listens, which ends with the same code
        sys.exit(INTERRUPTED)
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        from count01_lens.common.storage import AlreadyInUseError
        from count01_lens.jobs.cluster import ClusterError
        from count01_lens.training.trainer import TrainingDivergedError

        expected = (ValueError, OSError, AlreadyInUseError, ClusterError, TrainingDivergedError)
        if not isinstance(error, expected):
            raise
        typer.echo(f"count01-lens: {in_options(str(error))}", err=True)
        sys.exit(USER_ERROR)


def _hear_ctrl_c(ignored: "UnraisableHookArgs") -> None:
    """Press Ctrl-C again a moment later if Python ignores it, as it does while it tidies up."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        Timer(0.01, interrupt_main).start()
    else:
        sys.__unraisablehook__(ignored)
