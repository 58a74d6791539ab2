"""The command that says what each head of a model does."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from count01_lens.cli.files import Checkpoint, Force, TaskFile, remove_older, write_results
from count01_lens.cli.options import in_options
from count01_lens.cli.screen import (
    AsCsv,
    AsJson,
    Wide,
    for_programs,
    say,
    say_csv,
    say_json,
    say_table,
)

if TYPE_CHECKING:
    from count01_lens.heads.analysis import HeadAnalysis

# What `--out` may write; figures of all heads have more in their names.
_ANALYSIS = "analysis.safetensors"
_FILES = [
    "heads",
    "pairs",
    "groups",
    "pairs_*",
    "gains",
    "head_outputs",
    "attention_ratios",
    "tables_head_*",
    "logits",
    "lifts",
    "effects",
    "cooperation",
    "interactions_*",
    "shapley",
]


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
        typer.Option(help="What replaces the outputs of ablated heads."),
    ] = "zero",
    budget: Annotated[
        int, typer.Option(help="Groups to run if there are too many heads for all of them.")
    ] = 2000,
    wide: Wide = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    force: Force = False,
) -> None:
    """Tell what each head of a model does, alone, in pairs, and in all groups.

    Prints a table with a line per head as soon as it is known, and, when groups are measured,
    whether heads cooperate, are redundant or compete.
    """
    from count01_lens.common.outputs import Outputs, check_page_to_write
    from count01_lens.heads.analyze import analyze_heads
    from count01_lens.heads.groups import LARGEST_EXACT, check_exact
    from count01_lens.models.checkpoints import open_checkpoint
    from count01_lens.tasks.task_file import read_task

    only_data = for_programs(as_json, as_csv)
    outputs = None if out is None else Outputs(out, "analyze", force=force)
    if outputs is not None:
        outputs.check(*(f"{name}.{kind}" for name in _FILES for kind in ("csv", "png", "svg")))
        outputs.check(_ANALYSIS)
    if report is not None:
        check_page_to_write(report, force=force)
    asked = None if task is None else read_task(task)
    model = open_checkpoint(checkpoint)
    if groups == "all":
        check_exact(model.cfg.n_layers * model.cfg.n_heads)
    with nullcontext() if outputs is None else outputs.opened():
        analysis = analyze_heads(model, asked, ablation=ablation, budget=budget)
        if not only_data:
            _say_heads(analysis, wide)
        analysis = _with_groups(analysis, groups)
        written = [] if outputs is None else _write(outputs, model, analysis)
    if report is not None:
        analysis.report(report, checkpoint=checkpoint)
        written.append(f"written to {report}: open it in a browser")
    if as_json:
        say_json(_plain_values(analysis))
    elif as_csv:
        say_csv(analysis.table)
    else:
        _say_answer(analysis)
        if groups == "none" and 1 < len(analysis.heads) <= LARGEST_EXACT:
            say("", "--groups all also tells who works against the rest.")
    for line in written:
        typer.echo(line, err=only_data)


def _with_groups(analysis: "HeadAnalysis", groups: str) -> "HeadAnalysis":
    """Measure all groups of heads if that is asked for or takes no time; say what is done."""
    from count01_lens.heads.groups import LARGEST_EXACT, why_groups_take_long

    assert analysis.task is not None
    too_long = why_groups_take_long(analysis.data, analysis.task)
    n_heads = len(analysis.heads)
    if groups == "all" or (groups == "auto" and too_long is None and n_heads > 1):
        say(
            f"measuring all {2**n_heads - 1:,} groups of heads (--groups none leaves them out)",
            err=True,
        )
        return analysis.with_groups()
    if groups == "auto" and too_long is not None and n_heads <= LARGEST_EXACT:
        say(f"groups of heads are left out: {too_long} (--groups all measures them)", err=True)
    return analysis


def _say_heads(analysis: "HeadAnalysis", wide: bool) -> None:
    """How well the whole model does, and a line for each head."""
    from count01_lens.common.text import share
    from count01_lens.heads.shown_heads import head_columns

    accuracy = ", ".join(f"{name} {share(value)}" for name, value in analysis.accuracy.items())
    say(f"whole model on the test split: {accuracy}")
    typer.echo()
    say_table(head_columns(analysis), wide=wide)
    say(*(f"note: {note}" for note in analysis.notes))


def _say_answer(analysis: "HeadAnalysis") -> None:
    say("", analysis.answer)
    if len(analysis.heads) > 1:
        say("", "Compete or cooperate?", *str(analysis.verdict).splitlines())


def _write(outputs: Any, model: Any, analysis: "HeadAnalysis") -> list[str]:
    """Write all that `--out` has; return what there is to say of it."""
    from count01_lens.heads.analysis_file import analysis_bytes
    from count01_lens.models.stored import hooked
    from count01_lens.views.plots import draw_all

    tables = {"heads": analysis.table, "pairs": analysis.pairs_table()}
    if analysis.known_groups is not None:
        tables["groups"] = analysis.groups()
    figures = draw_all(hooked(model), analysis)
    told = write_results(outputs, tables, figures, {_ANALYSIS: analysis_bytes(analysis)})
    return [told, *remove_older(outputs)]


def _plain_values(analysis: "HeadAnalysis") -> dict[str, Any]:
    """What is known of a model's heads, for JSON."""
    several = len(analysis.heads) > 1
    findings = analysis.verdict.findings if several else ()
    known = [
        "question",
        "metric",
        "word",
        "mean_interaction",
        "low",
        "high",
        "copies",
        "against_independent",
        "interfering",
        "enough",
    ]
    return {
        "answer": in_options(analysis.answer),
        "accuracy": dict(analysis.accuracy),
        "findings": [{name: getattr(each, name) for name in known} for each in findings],
        "notes": list(analysis.notes),
        "heads": analysis.table.to_dict("records"),
        "pairs": analysis.pairs_table().to_dict("records"),
    }
