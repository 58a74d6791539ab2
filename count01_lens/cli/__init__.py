"""The command line, `count01-lens`: train, verify, analyze, compare, view, explore, sweep, ….

Nothing heavy is imported at the top of these modules: `count01-lens --help` must be instant.
"""

import sys

import typer

from count01_lens.cli.comparing import compare
from count01_lens.cli.exploring import explore
from count01_lens.cli.measuring import analyze, sweep, verify, view
from count01_lens.cli.training import sweep_models, train

USER_ERROR = 2

app = typer.Typer(
    name="count01-lens",
    help="Find out what attention heads do when a transformer counts.\n\n"
    "Start with: count01-lens train --out runs/first, "
    "then: count01-lens verify runs/first/seed-0",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (train, verify, analyze, compare, view, explore, sweep, sweep_models):
    app.command()(command)


def main() -> None:
    """Run the command line; a user's mistake ends in one line, not in a traceback."""
    try:
        app()
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        from count01_lens.common.storage import AlreadyInUseError
        from count01_lens.jobs.cluster import ClusterError
        from count01_lens.training.trainer import TrainingDivergedError

        expected = (ValueError, OSError, AlreadyInUseError, ClusterError, TrainingDivergedError)
        if not isinstance(error, expected):
            raise
        typer.echo(f"count01-lens: {error}", err=True)
        sys.exit(USER_ERROR)
