"""Commands that measure a model and show what it does."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from count01_lens.common.parsing import parse_numbers, parse_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure
    from pandas import DataFrame

    from count01_lens.common.types import HookedTransformer
    from count01_lens.tasks.prompts import Task

Checkpoint = Annotated[Path, typer.Argument(help="A checkpoint, with or without .safetensors.")]
_LONG_UP_TO = 400
TaskFile = Annotated[
    Path | None,
    typer.Option("--task", help="JSON file with a task of your own.", show_default="Count01"),
]


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
    from count01_lens.models.checkpoints import open_checkpoint

    if fail_under is not None and not 0 <= fail_under <= 1:  # so written, NaN is refused too
        raise ValueError(f"fail_under: expected a share from 0 to 1, got {fail_under}")
    # Up to 400 or so nobody has to be told how long it takes.
    progress = True if up_to is not None and up_to > _LONG_UP_TO else None
    result = verify_model(open_checkpoint(checkpoint), up_to, resume=resume, progress=progress)
    as_text = json.dumps(result.to_dict(), indent=2, allow_nan=False) if as_json else repr(result)
    typer.echo(as_text)
    if fail_under is not None and min(result.accuracy, result.eos_accuracy) < fail_under:
        raise typer.Exit(1)


def analyze(
    checkpoint: Checkpoint,
    groups: Annotated[
        Literal["auto", "all", "none"],
        typer.Option(
            help="All groups of heads, for Shapley values and the full answer; none: single heads "
            "and pairs only; auto: all, where that takes less than about a minute."
        ),
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Directory for tables, figures and the analysis itself.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="HTML file for all of it, which opens from disk.")
    ] = None,
    task: TaskFile = None,
    ablation: Annotated[
        Literal["zero", "mean", "resample"],
        typer.Option(help="What stands in the place of heads that are taken out."),
    ] = "zero",
    budget: Annotated[
        int, typer.Option(help="Groups to run if there are too many heads for all of them.")
    ] = 2000,
) -> None:
    """Tell what each head of a model does, alone, in pairs, and in all groups.

    Prints a table with a line per head as soon as it is known, and, when groups are measured,
    whether heads cooperate, are redundant or compete.
    """
    from count01_lens.common.storage import check_file_to_write
    from count01_lens.heads.analyze import analyze_heads
    from count01_lens.heads.answer import heads_in_text
    from count01_lens.heads.groups import LARGEST_EXACT, check_exact, why_groups_take_long
    from count01_lens.models.checkpoints import open_checkpoint
    from count01_lens.tasks.task_file import read_task

    if out is not None:
        _check_directory(out)
    if report is not None:
        check_file_to_write(report)
    asked = None if task is None else read_task(task)
    model = open_checkpoint(checkpoint)
    if groups == "all":
        check_exact(model.cfg.n_layers * model.cfg.n_heads)
    analysis = analyze_heads(model, asked, ablation=ablation, budget=budget)
    assert analysis.task is not None
    typer.echo(heads_in_text(analysis))
    too_long = why_groups_take_long(analysis.data, analysis.task)
    n_heads = len(analysis.heads)
    if groups == "all" or (groups == "auto" and too_long is None and n_heads > 1):
        typer.echo(
            f"measuring all {2**n_heads - 1:,} groups of heads (--groups none leaves them out)",
            err=True,
        )
        analysis = analysis.with_groups()
    elif groups == "auto" and too_long is not None and n_heads <= LARGEST_EXACT:
        typer.echo(
            f"groups of heads are left out: {too_long} (--groups all measures them)", err=True
        )
    typer.echo(f"\n{analysis.answer}")
    if n_heads > 1:
        typer.echo(f"\nCompete or cooperate?\n{analysis.verdict}")
    if report is not None:
        analysis.report(report, checkpoint=checkpoint)
        typer.echo(f"written to {report}: open it in a browser")
    if out is None:
        return
    from count01_lens.models.stored import hooked
    from count01_lens.views.plots import draw_all

    tables = {"heads": analysis.table, "pairs": analysis.pairs_table()}
    if analysis.known_groups is not None:
        tables["groups"] = analysis.groups()
    _write_results(out, tables, draw_all(hooked(model), analysis))
    analysis.save(out / "analysis.safetensors")


def sweep(
    checkpoint: Checkpoint,
    out: Annotated[Path, typer.Option(help="Directory for figures and tables.")],
) -> None:
    """Set the attention of every head by hand, over a grid of ratios, and refit its linear probe.

    Figures 7 and 8 of the paper: w01 with '2' at zero, and w02 with '0' and '1' alike.
    """
    from count01_lens.attention.sweeps import sweep_attention
    from count01_lens.counts.readout import ratio_names
    from count01_lens.models.checkpoints import open_checkpoint
    from count01_lens.models.task_of import language_for
    from count01_lens.views.count_plots import plot_sweep

    _check_directory(out)
    model = open_checkpoint(checkpoint)
    for ratio in ratio_names(language_for(model)):
        result = sweep_attention(model, ratio, progress=None)
        typer.echo(repr(result))
        name = f"sweep_{ratio}"
        tables = {name: result.table, f"{name}_heads": result.heads}
        _write_results(out, tables, {name: plot_sweep(result)})


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
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")],
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
    """Draw the attention of a sentence, and each head's direct logit attribution, as one page.

    Any other prompt will do: give its tokens, or --task and --prompt. With --w01 or --w02 also the
    attention before and after the patch. The file needs no internet.
    """
    from count01_lens.models.checkpoints import load_checkpoint
    from count01_lens.tasks.task_file import read_task
    from count01_lens.views.attention_view import compare_attention, page_of, show_attention
    from count01_lens.views.attribution_view import show_attribution
    from count01_lens.views.document import write_page

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


def _check_directory(out: Path) -> None:
    """Raise unless files can go to a directory of this name, there or not."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: expected a directory, got a file")


def _write_results(
    out: Path, tables: "Mapping[str, DataFrame]", figures: "Mapping[str, Figure]"
) -> None:
    """Write tables as CSV, figures as PNG and SVG, and say so."""
    from count01_lens.common.storage import write_atomically
    from count01_lens.views.figures import as_bytes

    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_atomically(out / f"{name}.csv", table.to_csv(index=False).encode())
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            write_atomically(out / f"{name}.{kind}", as_bytes(figure, kind))
    files = [*(f"{name}.csv" for name in tables), *(f"{name}.png" for name in figures)]
    typer.echo(f"written to {out}: {', '.join(files)}")
