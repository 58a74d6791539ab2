"""Commands that measure a model and show what it does."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from count01_lens.cli.files import Checkpoint, Force, Page, remove_older, write_results
from count01_lens.cli.screen import AsJson, Wide, say, say_json, say_table
from count01_lens.common.parsing import parse_numbers, parse_ratio

if TYPE_CHECKING:
    from count01_lens.common.types import HookedTransformer
    from count01_lens.tasks.prompts import Task

_LONG_UP_TO = 400


def verify(
    checkpoint: Checkpoint,
    up_to: Annotated[
        int | None,
        typer.Option(
            help="Run all sentences with 0 to UP_TO of each token.",
            show_default="200, or what the model's task has",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="File for what is done; the same command goes on from there."),
    ] = None,
    as_json: AsJson = False,
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
    from count01_lens.models.checkpoints import open_checkpoint

    if fail_under is not None and not 0 <= fail_under <= 1:  # so written, NaN is refused too
        raise ValueError(f"fail_under: expected a share from 0 to 1, got {fail_under}")
    # Up to 400 or so nobody has to be told how long it takes.
    progress = True if up_to is not None and up_to > _LONG_UP_TO else None
    result = verify_model(open_checkpoint(checkpoint), up_to, resume=resume, progress=progress)
    if as_json:
        say_json(result.to_dict())
    else:
        typer.echo(repr(result))
    if fail_under is not None and min(result.accuracy, result.eos_accuracy) < fail_under:
        raise typer.Exit(1)


def sweep(
    checkpoint: Checkpoint,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for figures and tables.")],
    wide: Wide = False,
    force: Force = False,
) -> None:
    """Set the attention of every head by hand, over a grid of ratios, and refit its linear probe.

    Figures 7 and 8 of the paper: w01 with '2' at zero, and w02 with '0' and '1' alike.
    """
    from count01_lens.attention.sweeps import sweep_attention
    from count01_lens.common.columns import columns_of
    from count01_lens.common.outputs import Outputs
    from count01_lens.common.text import share
    from count01_lens.counts.readout import ratio_names
    from count01_lens.models.checkpoints import open_checkpoint
    from count01_lens.models.task_of import language_for
    from count01_lens.views.count_plots import plot_sweep
    from count01_lens.views.figure_style import own_style

    model = open_checkpoint(checkpoint)
    ratios = ratio_names(language_for(model))
    outputs = Outputs(out, "sweep", force=force)
    outputs.check(*(f"sweep_{ratio}*.*" for ratio in ratios))
    with outputs.opened():
        for ratio in ratios:
            result = sweep_attention(model, ratio, progress=None)
            name = f"sweep_{ratio}"
            tables = {name: result.table, f"{name}_heads": result.heads}
            with own_style():
                figures = {name: plot_sweep(result)}
            written = write_results(outputs, tables, figures)
            say(f"{result.s_acc.shape[1]} heads over {len(result.values)} values of {ratio}")
            shares = dict.fromkeys(result.table.columns.drop(ratio), share)
            say_table(columns_of(result.table.to_dict("list"), shares), wide=wide)
            typer.echo(written)
        for line in remove_older(outputs):
            typer.echo(line)


def view(
    checkpoint: Checkpoint,
    # Not a default of Python's, so that `out`, which has none, can come after it.
    sentence: Annotated[
        str | None,
        typer.Argument(
            default_factory=lambda: None,
            show_default=False,
            help="Such as '0110=' or '0110=4'; for other models a text, or token ids: '0 3 1 8'.",
        ),
    ],
    out: Page,
    heads: Annotated[
        str | None, typer.Option(help="Heads to show: '3', '0-7' or '1,5,7'.", show_default="all")
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="Show heads of this layer only; they count from 0.", show_default="all"),
    ] = None,
    task: Annotated[
        Path | None,
        typer.Option("--task", help="JSON file with a task, of which a test prompt is shown."),
    ] = None,
    prompt: Annotated[int, typer.Option(help="Which test prompt of the task, from 0.")] = 0,
    w01: Annotated[
        str | None,
        typer.Option(
            help="Patch: attention to one '0' divided by that to one '1'; may be 0 or inf."
        ),
    ] = None,
    w02: Annotated[
        str | None,
        typer.Option(
            help="Patch: attention to one '0' divided by that to one '2'; may be 0 or inf."
        ),
    ] = None,
    others: Annotated[
        Literal["zero", "keep"],
        typer.Option(help="Patch: whether '[BOS]' and '=' get nothing or keep their weights."),
    ] = "zero",
    force: Force = False,
) -> None:
    """Draw the attention of a sentence, and each head's direct logit attribution, as one page.

    Any other prompt will do: give its tokens, or --task and --prompt. With --w01 or --w02 also the
    attention before and after the patch. The file needs no internet.
    """
    from count01_lens.common.outputs import check_page_to_write
    from count01_lens.models.checkpoints import load_checkpoint
    from count01_lens.tasks.task_file import read_task
    from count01_lens.views.attention_view import compare_attention, page_of, show_attention
    from count01_lens.views.attribution_view import show_attribution
    from count01_lens.views.document import write_page

    check_page_to_write(out, force=force)
    ratios = {name: parse_ratio(text, name) for name, text in (("w01", w01), ("w02", w02))}
    chosen = None if heads is None else parse_numbers(heads, "heads")

    if (sentence is None) == (task is None):
        raise ValueError("view: expected a sentence, or --task and --prompt, got both or neither")
    asked = None if task is None else read_task(task)

    def make() -> str:
        model = load_checkpoint(checkpoint)
        shown, place, answers = _given(model, sentence, asked, prompt)
        which: dict[str, Any] = {"heads": chosen, "layer": layer, **place}
        views = [show_attention(model, shown, **which)]
        if w01 is not None or w02 is not None:
            views.append(compare_attention(model, shown, **ratios, heads=chosen, others=others))
        views.append(show_attribution(model, shown, **which, **answers))
        return page_of(views[0].title, views)

    write_page(out, make)
    typer.echo(f"written to {out}: open it in a browser")


def _given(
    model: "HookedTransformer", text: str | None, task: "Task | None", number: int
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """What is shown: a prompt, where it is asked, and the answers.

    Numbers are token ids where a model has no words for them.
    """
    from count01_lens.views.prompt_view import reads_count01

    if task is not None:
        question = task.for_model(model).questions["answer"]
        if not 0 <= number < len(question.test):
            expected = f"0 to {len(question.test) - 1}, the test prompts of the task"
            raise ValueError(f"prompt: expected {expected}, got {number}")
        tokens = question.test.sequences()[number].tolist()
        answers = {"answer": int(question.test.answers[number]), "choices": question.choices}
        return tokens, {"position": question.test.positions[number]}, answers
    parts = (text or "").replace(",", " ").split()
    has_words = model.tokenizer is not None or reads_count01(model)
    if has_words or not all(part.isdecimal() for part in parts):
        return text, {}, {}
    return [int(part) for part in parts], {}, {}
