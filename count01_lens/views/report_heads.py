"""The parts of a report about each head alone: its metrics and its effects."""

from typing import Any

import numpy as np
from markupsafe import Markup

from count01_lens.common.text import number, percent, written_signed
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.metrics import METRICS, metrics_of, right_by_majority
from count01_lens.heads.thresholds import FAILED, SUCCESSFUL
from count01_lens.views import plots
from count01_lens.views.effect_plots import EFFECTS, effects_in_words, has_effects
from count01_lens.views.pieces import badge, bullets, figures, paragraph, table, unfolding
from count01_lens.views.report_figures import csv_link, drawn_with_data
from count01_lens.views.report_page import Part
from count01_lens.views.wording import Words, said_with

BADGES = {
    "successful": badge("●", "successful", "good"),
    "mixed": badge("◐", "mixed", "middling"),
    "failed": badge("○", "failed", "bad"),
}
# Columns beside the metrics, which have their labels and meanings with them.
# Where there is little room, as on a phone, the others wait to be asked for.
_FIRST = ("l_acc", "s_acc", "eos_l_acc", "total_effect")
_COUNT_COLUMNS = {"w01": "w01", "w02": "w02", "head_weight": "head weight"}
_EFFECT_COLUMNS = dict(zip(EFFECTS, ("direct effect", "total effect", "self-repair"), strict=True))


def heads_part(analysis: HeadAnalysis, words: Words) -> Part:
    """Every head by itself; of many the best, and all for those who want to see them."""
    heads = plots.strongest(analysis)
    content = [paragraph(_bounds(analysis, words))]
    if len(heads) == len(analysis.heads):
        content.append(heads_table(analysis, words, heads, "Metrics of each head alone"))
    else:
        best = f"The {len(heads)} heads of best s-acc"
        every = heads_table(analysis, words, range(len(analysis.heads)), "Metrics of all heads")
        content += [
            paragraph(f"{best}, of {len(analysis.heads)}:"),
            heads_table(analysis, words, heads, best),
            unfolding("All heads", every),
        ]
    content += [
        paragraph(csv_link("heads.csv", analysis.table), "downloads"),
        unfolding("What the columns mean", bullets(_meanings(analysis, words))),
    ]
    return Part("heads", "Each head alone", content)


def heads_table(analysis: HeadAnalysis, words: Words, heads: Any, caption: str) -> Markup:
    """Metrics of some heads."""
    columns = {name: title for name, title in _titles(analysis).items() if name in analysis.table}
    records = analysis.table.to_dict("records")
    rows = [
        [
            words.heads[head],
            BADGES[records[head]["category"]],
            *(_cell(name, records[head][name]) for name in columns),
        ]
        for head in heads
    ]
    later = [title for name, title in columns.items() if name not in _FIRST]
    return table(["head", "category", *columns.values()], rows, caption, later=later)


def _bounds(analysis: HeadAnalysis, words: Words) -> str:
    two = len(words.answers) == 2
    text = (
        "A head is successful where a linear probe of its output is right on at least "
        f"{percent(SUCCESSFUL, 0)} of the test {words.prompts} (s-acc), and failed at "
        f"{percent(FAILED, 0)} or less" + ", which is close to a coin flip" * two + ". "
    )
    if words.is_count01:
        ties = analysis.data.answer.subsets["ties"]
        return text + (
            f"Right on all but the ties, {ties.sum()} of {len(ties):,} sentences, would be an "
            f"s-acc of {1 - ties.mean():.4f}."
        )
    majority = float(right_by_majority(analysis.data).mean())
    return text + f"Always giving the most frequent answer would be an s-acc of {majority:.4f}."


def _titles(analysis: HeadAnalysis) -> dict[str, str]:
    """Columns of the table, in order, by name."""
    titles = {name: metric.label for name, metric in METRICS.items()}
    titles |= {f"s_acc_{name}": f"s-acc, {name}" for name in analysis.data.answer.subsets}
    return titles | _COUNT_COLUMNS | _EFFECT_COLUMNS


def _cell(column: str, value: float) -> str:
    if column in ("w01", "w02") or not np.isfinite(value):
        return number(float(f"{value:.3g}"))
    return written_signed(value, ".3f") if column in EFFECTS else f"{value:.4f}"


def _meanings(analysis: HeadAnalysis, words: Words) -> list[str]:
    shown = METRICS.values() if words.is_count01 else metrics_of(analysis.data)
    found = [f"{each.label}: {said_with(analysis, each.meaning)}." for each in shown]
    subsets = list(analysis.data.answer.subsets)
    if words.is_count01:
        found.append(
            "s-acc, ties and others: the same on sentences with as many 1s as 0s, and on all "
            "others."
        )
    elif subsets:
        found.append(f"s-acc, {' and '.join(subsets)}: the same on these test prompts alone.")
    if analysis.counts is not None and {"w01", "w02"} <= set(analysis.counts):
        found.append(
            "w01, w02: attention that one '0' gets at '=', over that of one '1' and of one '2'."
        )
    if analysis.counts is not None:
        found.append(
            "head weight: how strongly the output layer reads the head for the answer; all sum to "
            "1."
        )
    if set(EFFECTS) <= set(analysis.heads):
        found.append(
            "direct effect, total effect: by how much the head lifts the right answer's logit "
            "above the mean of the other choices, directly, and by really running the model "
            "without it; self-repair is the difference."
        )
    return found


def effects_part(analysis: HeadAnalysis, words: Words) -> Part | None:
    """Direct against total effects, where they differ."""
    if not has_effects(analysis):
        return None
    sentence = effects_in_words(analysis)
    columns = ["layer", "head", *EFFECTS]
    repaired = analysis.heads["self_repair"]
    drawn = drawn_with_data(
        plots.plot_effects(analysis),
        "effects.csv",
        analysis.heads[columns],
        f"Direct effect of each head against its total effect: {(repaired > 0).sum()} of "
        f"{len(repaired)} heads cost less than they write directly. {sentence}",
        "A point is a head. To the right: how much it writes into the right answer's logit, above "
        "the mean of the other choices. Upwards: how much of that is lost when the model is run "
        "without it. On the dotted line nothing makes up for the head; what is below is "
        "self-repair, and a head above it also acts through others.",
    )
    return Part("effects", "Direct and total effect", [paragraph(sentence), figures([drawn])])
