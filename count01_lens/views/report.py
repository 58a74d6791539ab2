"""`analysis.report(path)`: all that an analysis found, as one HTML file for people to read.

The report follows from the analysis alone: the same analysis gives the same bytes. What does not
apply to a model is left out, and the report says why.
"""

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
from count01_lens.views.attention_view import show_attention
from count01_lens.views.attribution_view import show_attribution
from count01_lens.views.document import element, in_notebook, write_page
from count01_lens.views.pieces import badge, bullets, facts, paragraph, table, tiles, unfolding
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
        info, model, task = None, analysis.model, as_task(analysis.task)
        if checkpoint is not None:
            info, saved = checkpoint_info(checkpoint), load_checkpoint(checkpoint)
            analysis.made_from.check_weights(saved, f"checkpoint {checkpoint}")
            model = saved if model is None else model
        if model is not None:
            analysis.check_made_from(model, task)
        parts = [
            _heads_part(analysis),
            _readouts_part(analysis),
            pairs_part(analysis),
            groups_part(analysis),
            looks_part(analysis, model, task),
            None if model is None else sentence_part(model),
            _making_part(analysis, model, info),
        ]
        heads = plural(len(analysis.table), "head")
        title = f"What each head does: a model with {heads} on Count01"
        return report_page(title, _opening(analysis), [part for part in parts if part is not None])

    return write_page(path, make)


def analysis_html(analysis: HeadAnalysis) -> str:
    """Write the table of an analysis for a notebook."""
    rows = [[anything(cell) for cell in row] for row in analysis.table.to_numpy().tolist()]
    return in_notebook(
        element("p", element("b", analysis.answer)),
        table(list(map(str, analysis.table)), rows, "Metrics of each head alone"),
        *(element("p", element("i", note)) for note in analysis.notes),
    )


def _opening(analysis: HeadAnalysis) -> Markup:
    """The answer in words, and how well the whole model does."""
    names = {
        "answer": "right answers",
        "ties": "on ties (as many 1s as 0s)",
        "others": "on all others",
        "end": "'[EOS]' after the answer",
    }
    n_test = len(analysis.data.test_labels)
    return Markup("\n").join(
        [
            paragraph(analysis.answer, "lead"),
            paragraph(f"The whole model on the {n_test:,} sentences of the test split:"),
            tiles((names[key], percent(value, 2)) for key, value in analysis.accuracy.items()),
            *(paragraph(f"Note: {note}.", "note") for note in analysis.notes),
        ]
    )


def _heads_part(analysis: HeadAnalysis) -> Part:
    """Every head by itself."""
    known, ties = analysis.table, analysis.data.answer.subsets["ties"]
    titles = {name: metric.label for name, metric in METRICS.items()} | _COLUMNS
    columns = {name: title for name, title in titles.items() if name in known}
    if known["layer"].max() == 0:
        del columns["layer"], columns["head"]
    rows = [
        [str(n), _BADGES[row["category"]], *(_cell(name, row[name]) for name in columns)]
        for n, row in enumerate(known.to_dict("records"))
    ]
    text = (
        "A head is successful where a linear probe of its output is right on at least "
        f"{percent(SUCCESSFUL, 0)} of the test sentences (s-acc), and failed at "
        f"{percent(FAILED, 0)} or less, which is close to a coin flip. Right on all but the ties, "
        f"{ties.sum()} of {len(ties)} sentences, would be an s-acc of {1 - ties.mean():.4f}."
    )
    content = [
        paragraph(text),
        table(["head", "category", *columns.values()], rows, "Metrics of each head alone"),
        paragraph(csv_link("heads.csv", known), "downloads"),
        unfolding("What the columns mean", bullets(_meanings())),
    ]
    return Part("heads", "Each head alone", content)


def _readouts_part(analysis: HeadAnalysis) -> Part | None:
    """Read-outs as inequalities; models without them have a note that says so."""
    if "readout" not in analysis.table:
        return None
    rows = [
        [str(row["head"]), _BADGES[row["category"]], row["readout"], row["learned_readout"]]
        for row in analysis.table.to_dict("records")
    ]
    columns = ["head", "category", "linear probe of its output", "the model's own use of it"]
    text = (
        "A linear read-out of a head is an inequality over how often each token occurs: where it "
        "holds, the answer is '4'. Perfect counting is n1 − n0 > 0. A factor of n0 that is off is "
        "a bias that grows with the sentence, a factor of n2 is noise, and the last number shifts "
        "the ties."
    )
    off = analysis.table.filter(like="readout_off").to_numpy()
    if off.size:  # older files do not say
        text += (
            " Numbers are rounded to three decimals: as it is written here, an inequality decides "
            f"up to {percent(float(off.max()), 2)} of the test sentences otherwise than it really "
            "does."
        )
    content = [paragraph(text), table(columns, rows, "Count read-outs of each head")]
    return Part("readouts", "What each head counts", content)


def _making_part(
    analysis: HeadAnalysis, model: HookedTransformer | None, info: dict[str, Any] | None
) -> Part:
    """What the numbers were made of and with; `info` is what the checkpoint tells."""
    content = []
    if info is not None:
        known = dict(info.get("info") or {"seed and recipe": "the checkpoint has none"})
        recipe = known.pop("recipe", None)
        content += [paragraph("The checkpoint says of itself:"), facts(known, "Checkpoint")]
        if isinstance(recipe, dict):
            content.append(unfolding("The recipe it was trained by", facts(recipe, "Recipe")))
        versions = info.get("versions", {})
        content.append(unfolding("What it was saved with", facts(versions, "Saved with")))
    if model is not None:
        names = ("n_layers", "n_heads", "d_head", "d_model", "n_ctx", "normalization_type")
        shape = {name: getattr(model.cfg, name) for name in names}
        content.append(unfolding("The HookedTransformer", facts(shape, "Model")))
    probes = (
        "Linear probes are SVMs, solved to convergence: the largest relative gradient at the end "
        f"of any fit is {analysis.worst_gradient:.1e}."
        if analysis.data.probe is None
        else f"The probe is {analysis.data.probe!r}."
    )
    content += [paragraph(probes), paragraph("This report was made with:")]
    content.append(facts(library_versions(), "Versions"))
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


def _cell(column: str, value: float) -> str:
    if column in ("layer", "head"):
        return str(value)
    if column in ("w01", "w02") or not np.isfinite(value):
        return number(value, 3)
    return f"{value:.4f}"


_BADGES = {
    "successful": badge("●", "successful", "good"),
    "mixed": badge("◐", "mixed", "middling"),
    "failed": badge("○", "failed", "bad"),
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
