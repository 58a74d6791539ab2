"""The command line: `count01-lens train`, `verify`, `analyze`, `view`, `sweep`, `sweep-models`.

Nothing heavy is imported here at the top: `count01-lens --help` must be instant.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from count01_lens.common.text import parse_numbers

if TYPE_CHECKING:
    from count01_lens.training.training_run import TrainResult

app = typer.Typer(
    name="count01-lens",
    help="Find out what attention heads do when a transformer counts.\n\n"
    "Start with: count01-lens train --out runs/first, "
    "then: count01-lens verify runs/first/seed-0",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

USER_ERROR = 2
INTERRUPTED = 130


@app.command()
def train(
    out: Annotated[
        Path,
        typer.Option(help="Directory of the run. One that was stopped is continued from there."),
    ],
    seeds: Annotated[
        str, typer.Option(help="Seeds, one model each, trained together: '0', '0-9' or '1,5,7'.")
    ] = "0",
    heads: Annotated[int, typer.Option(help="Attention heads (the paper's a).")] = 16,
    d_embed: Annotated[int, typer.Option(help="Embedding size (the paper's d).")] = 32,
    d_head: Annotated[
        int | None, typer.Option(help="Head size (the paper's d0). [default: d_embed // heads]")
    ] = None,
    output: Annotated[
        Literal["fused", "residual"],
        typer.Option(help="Logits from the heads directly, or through P and a skip connection."),
    ] = "fused",
    layer_norm: Annotated[
        bool, typer.Option(help="Normalise embeddings before attention reads them.")
    ] = True,
    epochs: Annotated[int, typer.Option(help="Passes over the 7000 training sentences.")] = 100,
    batch_size: Annotated[int, typer.Option(help="Sentences per step.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW, at the start.")] = 5e-3,
    eos_weight: Annotated[
        float, typer.Option(help="Weight of the '[EOS]' loss; 0 trains the answer alone.")
    ] = 1.0,
    data_seed: Annotated[int, typer.Option(help="Seed of the data set.")] = 0,
) -> None:
    """Train models; leave a checkpoint of each in OUT/seed-N.

    The defaults are the paper's 16-head model with our recipe. Stop it whenever you like: the
    same command goes on where it was.
    """
    from count01_lens.models.model import ModelConfig
    from count01_lens.training.recipe import TrainConfig
    from count01_lens.training.training_run import train as train_models

    model_config = ModelConfig(
        d_embed=d_embed,
        n_heads=heads,
        d_head=d_head,  # type: ignore[arg-type]  # None stands for d_embed // heads
        output=output,
        layer_norm=layer_norm,
    )
    config = TrainConfig(
        model=model_config,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        eos_weight=eos_weight,
        data_seed=data_seed,
    )
    numbers = parse_numbers(seeds, "seeds")
    try:
        result = train_models(config, seeds=numbers, directory=out, progress=True)
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command goes on from the last complete epoch", err=True)
        raise typer.Exit(INTERRUPTED) from None
    checkpoints = result.save_models(out)
    _print_training_summary(result, checkpoints)


@app.command()
def verify(
    checkpoint: Annotated[Path, typer.Argument(help="Directory of a checkpoint.")],
    up_to: Annotated[
        int, typer.Option(help="Run all sentences with 0 to UP_TO of each token.")
    ] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    fail_under: Annotated[
        float | None,
        typer.Option(
            help="Exit with 1 if the answer or '[EOS]' accuracy is below this share, from 0 to 1."
        ),
    ] = None,
) -> None:
    """Run a model on every sentence up to a size: 8.1 million of them up to 200.

    Prints exact accuracies, ties apart, and the smallest sentences that the model gets wrong.
    """
    from count01_lens.counts.verification import verify as verify_model
    from count01_lens.models.checkpoints import load_checkpoint

    if fail_under is not None and not 0 <= fail_under <= 1:  # so written, NaN is refused too
        raise ValueError(f"fail_under: expected a share from 0 to 1, got {fail_under}")
    result = verify_model(load_checkpoint(checkpoint), up_to, progress=None)
    as_text = json.dumps(result.to_dict(), indent=2, allow_nan=False) if as_json else repr(result)
    typer.echo(as_text)
    if fail_under is not None and min(result.accuracy, result.eos_accuracy) < fail_under:
        raise typer.Exit(1)


@app.command()
def analyze(
    checkpoint: Annotated[Path, typer.Argument(help="Directory of a checkpoint.")],
    groups: Annotated[
        Literal["pairs", "all"],
        typer.Option(help="Single heads and pairs only, or all groups: a minute for 16 heads."),
    ] = "pairs",
    out: Annotated[
        Path | None, typer.Option(help="Directory for tables, figures and the analysis itself.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="HTML file for all of it, which opens from disk.")
    ] = None,
) -> None:
    """Tell what each head of a model does, alone, in pairs, and in all groups.

    Prints a table with a line per head and, with --groups all, whether heads cooperate, are
    redundant or compete.
    """
    from count01_lens.common.storage import check_file_to_write, write_atomically
    from count01_lens.heads.analysis import analyze_heads
    from count01_lens.heads.groups import check_exact
    from count01_lens.models.checkpoints import load_checkpoint
    from count01_lens.views.figures import as_bytes
    from count01_lens.views.plots import draw_all

    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"{out}: expected a directory, got a file")
    if report is not None:
        check_file_to_write(report)
    model = load_checkpoint(checkpoint)
    if groups == "all":
        check_exact(model.cfg.n_layers * model.cfg.n_heads)
    analysis = analyze_heads(model)
    if groups == "all":
        analysis.groups()
    typer.echo(repr(analysis))
    if report is not None:
        analysis.report(report, checkpoint=checkpoint)
        typer.echo(f"written to {report}: open it in a browser")
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    tables = {"heads": analysis.table, "pairs": analysis.pairs_table()}
    if groups == "all":
        tables["groups"] = analysis.groups()
    for name, table in tables.items():
        write_atomically(out / f"{name}.csv", table.to_csv(index=False).encode())
    analysis.save(out / "analysis.safetensors")
    figures = draw_all(model, analysis, with_groups=groups == "all")
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            write_atomically(out / f"{name}.{kind}", as_bytes(figure, kind))
    files = [*(f"{name}.csv" for name in tables), *(f"{name}.png" for name in figures)]
    typer.echo(f"written to {out}: {', '.join(files)}")


@app.command()
def view(
    checkpoint: Annotated[Path, typer.Argument(help="Directory of a checkpoint.")],
    sentence: Annotated[str, typer.Argument(help="Such as '0110=' or '0110=4'.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")],
    heads: Annotated[
        str | None, typer.Option(help="Heads to show: '3', '0-7' or '1,5,7'. [default: all]")
    ] = None,
    w01: Annotated[
        str | None, typer.Option(help="Patch: attention of one '0' over one '1'; 0 and inf too.")
    ] = None,
    w02: Annotated[
        str | None, typer.Option(help="Patch: attention of one '0' over one '2'; 0 and inf too.")
    ] = None,
    others: Annotated[
        Literal["zero", "keep"],
        typer.Option(help="Patch: whether '[BOS]' and '=' get nothing or keep their weights."),
    ] = "zero",
) -> None:
    """Draw the attention of a sentence, and direct logit attribution by head, as one HTML file.

    With --w01 or --w02 also the attention before and after the patch. The file needs no internet.
    """
    from count01_lens.models.checkpoints import load_checkpoint
    from count01_lens.views.attention_view import compare_attention, page_of, show_attention
    from count01_lens.views.attribution_view import show_attribution
    from count01_lens.views.document import write_page

    ratios = {name: _ratio(name, text) for name, text in (("w01", w01), ("w02", w02))}
    chosen = None if heads is None else parse_numbers(heads, "heads")

    def make() -> str:
        model = load_checkpoint(checkpoint)
        views = [show_attention(model, sentence, heads=chosen)]
        if w01 is not None or w02 is not None:
            views.append(compare_attention(model, sentence, **ratios, heads=chosen, others=others))
        views.append(show_attribution(model, sentence, heads=chosen))
        return page_of(views[0].title, views)

    write_page(out, make)
    typer.echo(f"written to {out}: open it in a browser")


@app.command()
def sweep(
    checkpoint: Annotated[Path, typer.Argument(help="Directory of a checkpoint.")],
    out: Annotated[Path, typer.Option(help="Directory for figures and tables.")],
) -> None:
    """Set the attention of every head by hand, over a grid of ratios, and refit its linear probe.

    Figures 7 and 8 of the paper: w01 with '2' at zero, and w02 with '0' and '1' alike.
    """
    from count01_lens.attention.sweeps import RATIOS, sweep_attention
    from count01_lens.common.storage import write_atomically
    from count01_lens.models.checkpoints import load_checkpoint
    from count01_lens.views.figures import as_bytes
    from count01_lens.views.plots import plot_sweep

    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: expected a directory, got a file")
    model = load_checkpoint(checkpoint)
    out.mkdir(parents=True, exist_ok=True)
    for ratio in RATIOS:
        result = sweep_attention(model, ratio, progress=None)
        typer.echo(repr(result))
        for name, table in (("", result.table), ("_heads", result.heads)):
            path = out / f"sweep_{ratio}{name}.csv"
            write_atomically(path, table.to_csv(index=False).encode())
        for kind in ("png", "svg"):
            write_atomically(out / f"sweep_{ratio}.{kind}", as_bytes(plot_sweep(result), kind))
    files = [f"sweep_{ratio}{end}" for ratio in RATIOS for end in (".csv", "_heads.csv", ".png")]
    typer.echo(f"written to {out}: {', '.join(files)}")


@app.command("sweep-models")
def sweep_models(
    out: Annotated[
        Path, typer.Option(help="Directory for the tables. A sweep that was stopped goes on there.")
    ],
    seeds: Annotated[str, typer.Option(help="Seeds of every recipe: '0-99'.")] = "0-9",
    heads: Annotated[str, typer.Option(help="Numbers of heads: '1,2,4'.")] = "16",
    d_embed: Annotated[str, typer.Option(help="Embedding sizes: '4,32'.")] = "32",
    d_head: Annotated[
        str | None, typer.Option(help="Head sizes. [default: d_embed // heads]")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the training sentences.")] = 100,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="Values of another field of ModelConfig or TrainConfig, such as "
            "'learning_rate=0.001,0.005' or 'layer_norm=false'. May be repeated."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes. [default: one for each core]")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(help="Scheduler of a Dask cluster, such as tcp://host:8786.")
    ] = None,
    per_job: Annotated[
        int | None, typer.Option(help="Models trained together. [default: up to 50]")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds that models trained together may take.")
    ] = None,
) -> None:
    """Train every combination of sizes and recipes with every seed; measure every head.

    Writes OUT/heads.csv with a line per head and OUT/models.csv with a line per model. Stop it
    whenever you like: the same command goes on where it was.
    """
    from count01_lens.jobs.cluster import workplace
    from count01_lens.training.model_sweep import model_grid
    from count01_lens.training.model_sweep import sweep_models as sweep
    from count01_lens.training.recipe import TrainConfig

    sizes = {"n_heads": heads, "d_embed": d_embed} | ({} if d_head is None else {"d_head": d_head})
    axes: dict[str, Any] = {name: parse_numbers(text, name) for name, text in sizes.items()}
    for name, values in map(_axis, vary or []):
        if name in axes:
            raise ValueError(f"vary: expected a field that is given once, got {name} again")
        axes[name] = values
    configs, impossible = model_grid(TrainConfig(epochs=epochs), **axes)
    if not configs:
        raise ValueError(f"no combination is possible, for example {impossible[0]}")
    for reason in impossible:
        typer.echo(f"left out: {reason}", err=True)
    options: dict[str, Any] = {"per_job": per_job, "time_limit": time_limit, "progress": True}
    try:
        with workplace(workers, dask) as place:
            result = sweep(configs, parse_numbers(seeds, "seeds"), out, **options, **place)
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command goes on where it was", err=True)
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(repr(result))
    typer.echo(f"written to {out}: heads.csv, models.csv")
    if result.outcome.failed or result.outcome.left:
        typer.echo(str(result.outcome), err=True)
        raise typer.Exit(1)


def _axis(text: str) -> tuple[str, list[Any]]:
    """Read 'name=value,value' as people write it; values are numbers, true, false or words."""
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise ValueError(f"vary: expected such as 'learning_rate=0.001,0.005', got {text!r}")
    return name.strip().replace("-", "_"), [_value(part.strip()) for part in values.split(",")]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _ratio(name: str, text: str | None) -> float | None:
    """Read a ratio as people write it: 0.5, 0, inf, ∞."""
    if text is None:
        return None
    try:
        return float(text.replace("∞", "inf"))
    except ValueError:
        message = f"{name}: expected a number from 0 to infinity ('inf'), got {text!r}"
        raise ValueError(message) from None


def main() -> None:
    """Run the command line; a user's mistake ends in one line, not in a traceback."""
    try:
        app()
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    from count01_lens.common.storage import AlreadyInUseError
    from count01_lens.jobs.cluster import ClusterError
    from count01_lens.training.trainer import TrainingDivergedError

    expected = (ValueError, OSError, AlreadyInUseError, ClusterError, TrainingDivergedError)
    if not isinstance(error, expected):
        raise error
    typer.echo(f"count01-lens: {error}", err=True)
    sys.exit(USER_ERROR)


def _print_training_summary(result: "TrainResult", checkpoints: list[Path]) -> None:
    last = result.history.groupby("model").last()
    typer.echo("seed   loss      validation  test     [EOS]    checkpoint")
    for row, checkpoint in zip(last.itertuples(), checkpoints, strict=True):
        typer.echo(
            f"{row.seed:<5}  {row.loss:<8.4f}  {row.validation_accuracy:<10.4f}  "
            f"{row.test_accuracy:<7.4f}  {row.test_eos_accuracy:<7.4f}  {checkpoint}"
        )
