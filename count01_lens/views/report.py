"""`analysis.report(path)`: all that an analysis found, as one HTML file for people to read.

The report follows from the analysis alone: the same analysis gives the same bytes. What does not
apply to a model is left out, and the report says why.
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from count01_lens.common.text import anything, number, percent, plural
from count01_lens.common.types import HookedTransformer
from count01_lens.common.versions import library_versions
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.metrics import FAILED, METRICS, SUCCESSFUL
from count01_lens.models.checkpoints import checkpoint_info, load_checkpoint
from count01_lens.tasks.count01 import as_task
from count01_lens.tasks.prompts import Task
from count01_lens.views.attention_view import show_attention
from count01_lens.views.attribution_view import show_attribution
from count01_lens.views.document import element, in_notebook, write_page
from count01_lens.views.pieces import (
    Tone,
    badge,
    bullets,
    facts,
    paragraph,
    table,
    tiles,
    unfolding,
)
from count01_lens.views.report_figures import csv_link, groups_part, looks_part, pairs_part
from count01_lens.views.report_page import Part, report_page

SENTENCE = "0110212=4"


def write_report(
    analysis: HeadAnalysis, path: Path, *, checkpoint: str | PathLike[str] | None = None
) -> Path:
    """Write the report of an analysis; `HeadAnalysis.report` describes it."""
    if "end" not in analysis.data.asked:
        raise ValueError(
            "report: expected an analysis on Count01, whose words it has, got another task; its "
            "table, pairs and groups have the numbers"
        )

    def make() -> str:
        info = None if checkpoint is None else checkpoint_info(checkpoint)
        model = analysis.model
        if model is None and checkpoint is not None:
            model = load_checkpoint(checkpoint)
        return _Report(analysis, model, as_task(analysis.task), info).page()

    return write_page(path, make)


def analysis_html(analysis: HeadAnalysis) -> str:
    """Write the table of an analysis for a notebook."""
    rows = [[anything(cell) for cell in row] for row in analysis.table.to_numpy().tolist()]
    return in_notebook(
        element("p", element("b", analysis.answer)),
        table(list(map(str, analysis.table)), rows, "Metrics of each head alone"),
        *(element("p", element("i", note)) for note in analysis.notes),
    )


@dataclass(frozen=True, eq=False)
class _Report:
    """An analysis, and what else is at hand for its report.

    Attributes:
        model: what was analysed, if it is at hand.
        task: what the model was asked.
        info: what the checkpoint tells of the model's making.
    """

    analysis: HeadAnalysis
    model: HookedTransformer | None
    task: Task
    info: dict[str, Any] | None

    def __post_init__(self) -> None:
        if self.model is not None:
            self.analysis.check_made_from(self.model, self.task)

    def page(self) -> str:
        """Write the whole report."""
        parts = [self.heads(), self.readouts(), pairs_part(self.analysis)]
        parts += [groups_part(self.analysis)]
        parts += [looks_part(self.analysis, self.model, self.task)]
        parts += [None if self.model is None else sentence_part(self.model), self.making()]
        heads = plural(len(self.analysis.table), "head")
        return report_page(
            f"What each head does: a model with {heads} on Count01",
            self.opening(),
            [part for part in parts if part is not None],
        )

    def opening(self) -> Markup:
        """The answer in words, and how well the whole model does."""
        analysis = self.analysis
        names = {
            "answer": "right answers",
            "ties": "on ties (as many 1s as 0s)",
            "others": "on all others",
            "end": "'[EOS]' after the answer",
        }
        accuracies = [(names[key], percent(value, 2)) for key, value in analysis.accuracy.items()]
        n_test = len(analysis.data.test_labels)
        return Markup("\n").join(
            [
                paragraph(analysis.answer, "lead"),
                paragraph(f"The whole model on the {n_test:,} sentences of the test split:"),
                tiles(accuracies),
                *(paragraph(f"Note: {note}.", "note") for note in analysis.notes),
            ]
        )

    def heads(self) -> Part:
        """Every head by itself."""
        known = self.analysis.table
        titles = {name: metric.label for name, metric in METRICS.items()} | _COLUMNS
        columns = {title: name for name, title in titles.items() if name in known}
        if known["layer"].max() == 0:
            columns.pop("layer")
            columns.pop("head in its layer")
        rows = [
            [
                str(n),
                _category(row["category"]),
                *(_cell(name, row[name]) for name in columns.values()),
            ]
            for n, row in enumerate(known.to_dict("records"))
        ]
        return Part(
            "heads",
            "Each head alone",
            [
                paragraph(
                    "A head is successful where a linear probe of its output is right on "
                    f"at least {percent(SUCCESSFUL, 0)} of the test sentences (s-acc), and "
                    f"failed at {percent(FAILED, 0)} or less, which is close to a coin flip. "
                    f"{self._all_but_ties()}"
                ),
                table(["head", "category", *columns], rows, "Metrics of each head alone"),
                paragraph(csv_link("heads.csv", known), "downloads"),
                unfolding("What the columns mean", bullets(_meanings())),
            ],
        )

    def _all_but_ties(self) -> str:
        """A common kind of head, and how to recognise it in the table."""
        ties = self.analysis.data.answer.subsets["ties"]
        return (
            f"Right on all but the ties, {ties.sum()} of {len(ties)} sentences, would be an "
            f"s-acc of {1 - ties.mean():.4f}."
        )

    def readouts(self) -> Part | None:
        """Read-outs as inequalities; models without them have a note that says so."""
        known = self.analysis.table
        if self.analysis.counts is None or "readout" not in self.analysis.counts:
            return None
        rows = [
            [str(row["head"]), _category(row["category"]), row["readout"], row["learned_readout"]]
            for row in known.to_dict("records")
        ]
        columns = ["head", "category", "linear probe of its output", "the model's own use of it"]
        return Part(
            "readouts",
            "What each head counts",
            [
                paragraph(
                    "A linear read-out of a head is an inequality over how often each token "
                    "occurs: where it holds, the answer is '4'. Perfect counting is n1 − n0 > 0. A "
                    "factor of n0 that is off is a bias that grows with the sentence, a factor "
                    "of n2 is noise, and the last number shifts the ties."
                ),
                table(columns, rows, "Count read-outs of each head"),
            ],
        )

    def making(self) -> Part:
        """What the numbers were made of and with."""
        content = []
        if self.info is not None:
            known = dict(self.info.get("info") or {"seed and recipe": "the checkpoint has none"})
            recipe = known.pop("recipe", None)
            content += [paragraph("The checkpoint says of itself:"), facts(known, "Checkpoint")]
            if isinstance(recipe, dict):
                content.append(unfolding("The recipe it was trained by", facts(recipe, "Recipe")))
            versions = self.info.get("versions", {})
            content.append(unfolding("What it was saved with", facts(versions, "Saved with")))
        if self.model is not None:
            cfg = self.model.cfg
            names = ("n_layers", "n_heads", "d_head", "d_model", "n_ctx", "normalization_type")
            shape = {name: getattr(cfg, name) for name in names}
            content.append(unfolding("The HookedTransformer", facts(shape, "Model")))
        probe, gradient = self.analysis.data.probe, self.analysis.worst_gradient
        content += [
            paragraph(
                "Linear probes are SVMs, solved to convergence: the largest relative gradient at "
                f"the end of any fit is {gradient:.1e}."
                if probe is None
                else f"The probe is {probe!r}."
            ),
            paragraph("This report was made with:"),
            facts(library_versions(), "Versions"),
        ]
        return Part("making", "How this was made", content)


def sentence_part(model: HookedTransformer) -> Part:
    """Attention and direct logit attribution on one sentence; for other reports, too."""
    views = [show_attention(model, SENTENCE), show_attribution(model, SENTENCE)]
    text = (
        "Choose a head with the mouse or with Tab and Enter. Other sentences: "
        "cl.show_attention(model, ...), or count01-lens view."
    )
    return Part(
        "sentence",
        f"One sentence, head by head: {SENTENCE}",
        [paragraph(text, "small")],
        sections=[section for view in views for section in view.sections],
    )


def _category(name: str) -> Markup:
    symbol, tone = _BADGES[name]
    return badge(symbol, name, tone)


def _cell(column: str, value: float) -> str:
    if column in ("layer", "head"):
        return str(value)
    if column in ("w01", "w02") or not np.isfinite(value):
        return number(value, 3)
    return f"{value:.4f}"


_BADGES: dict[str, tuple[str, Tone]] = {
    "successful": ("●", "good"),
    "mixed": ("◐", "middling"),
    "failed": ("○", "bad"),
}
# Columns beside the metrics, which have their labels and meanings with them.
_COLUMNS = {
    "layer": "layer",
    "head": "head in its layer",
    "s_acc_ties": "s-acc, ties",
    "s_acc_others": "s-acc, others",
    "w01": "w01",
    "w02": "w02",
    "head_weight": "head weight",
}


def _meanings() -> list[str]:
    return [
        *(f"{metric.label}: {metric.meaning}." for metric in METRICS.values()),
        "s-acc, ties and others: the same on sentences with as many 1s as 0s, and on all others.",
        "w01, w02: attention that one '0' gets at '=', over that of one '1' and of one '2'.",
        "head weight: how strongly the output layer reads the head for the answer; all sum to 1.",
    ]
