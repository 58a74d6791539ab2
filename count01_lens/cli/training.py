"""Commands that train: one stack of models, or a sweep over sizes and recipes."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from count01_lens.cli.files import Force
from count01_lens.cli.options import in_options
from count01_lens.cli.screen import (
    AsCsv,
    AsJson,
    for_programs,
    say,
    say_csv,
    say_json,
    say_table,
)
from count01_lens.common.parsing import parse_axis, parse_numbers
from count01_lens.common.validation import check_choice
from count01_lens.models.config import Init
from count01_lens.tasks.task_names import COUNTING_TASKS
from count01_lens.training.recipe import Decay, OptimiserName, TrainConfig

if TYPE_CHECKING:
    from pandas import DataFrame

    from count01_lens.training.model_sweep import ModelSweep

RECIPE = TrainConfig()  # the defaults, said once
SHAPE = RECIPE.model
BY_SIZES = "d_embed // heads"

INTERRUPTED = 130
# Options in groups, as --help shows them.
of_model = partial(typer.Option, rich_help_panel="Model")
of_training = partial(typer.Option, rich_help_panel="Training")
of_grid = partial(typer.Option, rich_help_panel="What is combined")
of_running = partial(typer.Option, rich_help_panel="How it is run")


RecipeName = Literal["accurate", "paper"]
RECIPES = {"accurate": TrainConfig, "paper": TrainConfig.paper}


def train(
    context: typer.Context,
    out: Annotated[
        Path,
        typer.Option(help="Directory of the run. One that was stopped is continued from there."),
    ],
    seeds: Annotated[
        str, typer.Option(help="Seeds, one model each, trained together: '0', '0-9' or '1,5,7'.")
    ] = "0",
    task: Annotated[
        str, typer.Option(metavar="NAME", help=f"What to train on: {', '.join(COUNTING_TASKS)}.")
    ] = "count01",
    recipe: Annotated[
        RecipeName,
        typer.Option(
            help="Where all options below start from: 'paper' comes closest to the paper's "
            "numbers; the defaults shown here are those of 'accurate'."
        ),
    ] = "accurate",
    heads: Annotated[int, of_model(help="Attention heads (the paper's a).")] = SHAPE.n_heads,
    d_embed: Annotated[int, of_model(help="Embedding size (the paper's d).")] = SHAPE.d_embed,
    d_head: Annotated[
        int | None,
        of_model(help="Head size (the paper's d0).", show_default=BY_SIZES),
    ] = None,
    output: Annotated[
        Literal["fused", "residual"],
        of_model(
            help="Logits from the heads directly, or via a projection (P) and a skip connection."
        ),
    ] = SHAPE.output,
    layer_norm: Annotated[
        bool,
        of_model(help="Normalise embeddings before attention reads them."),
    ] = SHAPE.layer_norm,
    qkv_bias: Annotated[
        bool, of_model(help="Give queries, keys and values a bias.")
    ] = SHAPE.qkv_bias,
    init: Annotated[
        Init,
        of_model(metavar="KIND", help=f"How weights are drawn: {', '.join(get_args(Init))}."),
    ] = SHAPE.init,
    epochs: Annotated[int, of_training(help="Passes over the training sentences.")] = RECIPE.epochs,
    batch_size: Annotated[int, of_training(help="Sentences per step.")] = RECIPE.batch_size,
    learning_rate: Annotated[
        float, of_training(help="Of the optimiser, at the start.")
    ] = RECIPE.learning_rate,
    decay: Annotated[
        Decay,
        of_training(metavar="KIND", help="How the learning rate falls: linear, cosine, none."),
    ] = RECIPE.decay,
    optimiser: Annotated[
        OptimiserName,
        of_training(help="As in torch.optim; sgd has a momentum of 0.9."),
    ] = RECIPE.optimiser,
    weight_decay: Annotated[
        float, of_training(help="Of the optimiser, on all parameters.")
    ] = RECIPE.weight_decay,
    eos_weight: Annotated[
        float,
        of_training(help="Weight of the '[EOS]' loss; 0 trains the answer alone."),
    ] = RECIPE.eos_weight,
    dropout: Annotated[
        float,
        of_training(help="Dropout rate on the output of attention during training."),
    ] = RECIPE.dropout,
    data_seed: Annotated[
        int,
        of_training(help="Seed of the data set; other tasks than count01 have their own."),
    ] = RECIPE.data_seed,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Serve a page, to this machine only, that shows loss, accuracies and the s-acc of "
            "heads while training runs; its address is printed.",
        ),
    ] = False,
    open_page: Annotated[
        bool, typer.Option("--open", help="Serve that page and open it in the browser.")
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Train models; leave a checkpoint of each, OUT/seed-N.safetensors.

    The defaults are the paper's 16-head model with our recipe for accurate models. Stop it
    whenever you like: the same command goes on where it was.
    """
    from count01_lens.tasks.counting_tasks import counting_task
    from count01_lens.training.training_run import train as train_models

    for_programs(as_json, as_csv)  # raises if both
    check_choice("task", task, COUNTING_TASKS)
    fields: dict[str, Any] = {
        "heads": heads, "d_embed": d_embed, "d_head": d_head, "output": output,
        "layer_norm": layer_norm, "qkv_bias": qkv_bias, "init": init, "epochs": epochs,
        "batch_size": batch_size, "learning_rate": learning_rate, "decay": decay,
        "optimiser": optimiser, "weight_decay": weight_decay, "eos_weight": eos_weight,
        "dropout": dropout, "data_seed": data_seed,
    }  # fmt: skip
    # What was not said is up to the recipe.
    sources = {name: context.get_parameter_source(name) for name in fields}
    said = {
        name: fields[name]
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    }
    if "heads" in said:
        said["n_heads"] = said.pop("heads")
    config = RECIPES[recipe]().changed(**said)
    numbers = parse_numbers(seeds, "seeds")
    chosen = None if task == "count01" else counting_task(task)
    if chosen is not None and "data_seed" in said:
        raise ValueError(f"data_seed: expected none, as the data of {task} are fixed")
    page = _live_page(open_page) if live or open_page else False
    try:
        result = train_models(
            config, seeds=numbers, task=chosen, directory=out, progress=True, live=page
        )
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command goes on from the last complete epoch", err=True)
        raise typer.Exit(INTERRUPTED) from None
    checkpoints, last = result.save_models(out), result.history.groupby("model").last()
    _show_models(last, checkpoints, as_json=as_json, as_csv=as_csv)


def _show_models(
    last: "DataFrame", checkpoints: list[Path], *, as_json: bool, as_csv: bool
) -> None:
    """Print what became of each model, and where it is."""
    from count01_lens.common.columns import columns_of
    from count01_lens.common.text import share

    names = {
        "seed": "seed",
        "loss": "loss",
        "validation_accuracy": "validation",
        "test_accuracy": "test",
        "test_eos_accuracy": "[EOS]",
    }
    table = last[list(names)].assign(checkpoint=list(map(str, checkpoints)))
    if as_json:
        say_json(table.to_dict("records"))
    elif as_csv:
        say_csv(table)
    else:
        shares = dict.fromkeys(["validation", "test", "[EOS]"], share)
        columns = columns_of(table.rename(columns=names).to_dict("list"), shares)
        say_table(columns, whole=True)


def _live_page(open_page: bool) -> Any:
    from count01_lens.views.live_page import LivePage

    return LivePage(open_browser=open_page)


def sweep_models(
    out: Annotated[
        Path, typer.Option(help="Directory for the tables. A sweep that was stopped goes on there.")
    ],
    seeds: Annotated[str, typer.Option(help="Seeds of every recipe: '0-99'.")] = "0-9",
    heads: Annotated[str, of_grid(help="Numbers of heads: '1,2,4'.")] = str(SHAPE.n_heads),
    d_embed: Annotated[str, of_grid(help="Embedding sizes: '4,32'.")] = str(SHAPE.d_embed),
    d_head: Annotated[str | None, of_grid(help="Head sizes.", show_default=BY_SIZES)] = None,
    epochs: Annotated[int, of_grid(help="Passes over the training sentences.")] = RECIPE.epochs,
    vary: Annotated[
        list[str] | None,
        of_grid(
            metavar="NAME=VALUES",
            help="Values of another part of the recipe, such as "
            "'learning_rate=0.001,0.005' or 'layer_norm=false'. May be repeated.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        of_running(help="Processes.", show_default="one for each core"),
    ] = None,
    dask: Annotated[
        str | None,
        of_running(help="Scheduler of a Dask cluster, such as tcp://host:8786."),
    ] = None,
    per_job: Annotated[
        int | None,
        of_running(help="Models trained together.", show_default="up to 50"),
    ] = None,
    time_limit: Annotated[
        float | None,
        of_running(help="Seconds that models trained together may take."),
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    force: Force = False,
) -> None:
    """Train every combination of sizes and recipes with every seed; measure every head.

    Writes OUT/heads.csv with a line per head and OUT/models.csv with a line per model. Stop it
    whenever you like: the same command goes on where it was.
    """
    from count01_lens.jobs.cluster import workplace
    from count01_lens.training.model_sweep import model_grid
    from count01_lens.training.model_sweep import sweep_models as sweep

    only_data = for_programs(as_json, as_csv)
    sizes = {"n_heads": heads, "d_embed": d_embed} | ({} if d_head is None else {"d_head": d_head})
    axes: dict[str, Any] = {name: parse_numbers(text, name) for name, text in sizes.items()}
    for name, values in map(parse_axis, vary or []):
        if name in axes:
            raise ValueError(f"vary: expected a field that is given once, got {name} again")
        axes[name] = values
    configs, impossible = model_grid(TrainConfig(epochs=epochs), **axes)
    if not configs:
        raise ValueError(f"no combination is possible, for example {impossible[0]}")
    for reason in impossible:
        say(f"left out: {reason}", err=True)
    options: dict[str, Any] = {"per_job": per_job, "time_limit": time_limit, "progress": True}
    options["force"] = force
    try:
        with workplace(workers, dask) as place:
            result = sweep(configs, parse_numbers(seeds, "seeds"), out, **options, **place)
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command goes on where it was", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _show_recipes(result, as_json=as_json, as_csv=as_csv)
    typer.echo(f"written to {out}: heads.csv, models.csv", err=only_data)
    if result.outcome.failed or result.outcome.left:
        typer.echo(in_options(str(result.outcome)), err=True)
        raise typer.Exit(1)


def _show_recipes(result: "ModelSweep", *, as_json: bool, as_csv: bool) -> None:
    """Print what became of the models of each recipe."""
    from count01_lens.common.columns import columns_of
    from count01_lens.common.text import share

    done = {"models": len(result.models), "heads": len(result.heads)}
    table = result.summary.reset_index() if done["models"] else None
    if as_json:
        say_json({**done, "recipes": [] if table is None else table.to_dict("records")})
    elif as_csv and table is not None:
        say_csv(table)
    elif not as_csv:
        say(f"{done['models']:,} models, {done['heads']:,} heads")
        if table is not None:
            shares = dict.fromkeys(["accuracy", "lowest", "eos", "successful heads"], share)
            say_table(columns_of(table.to_dict("list"), shares))
