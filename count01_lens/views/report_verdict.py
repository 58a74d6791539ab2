"""The part of a report that answers the title's question: words for heads, with their numbers."""

import pandas as pd
from markupsafe import Markup

from count01_lens.common.text import rounded_percent, signed
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.labels import LABELS
from count01_lens.heads.metrics import CATEGORIES, METRICS
from count01_lens.heads.thresholds import THRESHOLDS
from count01_lens.views.pieces import badge, bullets, paragraph, table, unfolding
from count01_lens.views.report_figures import csv_link
from count01_lens.views.report_page import Part
from count01_lens.views.wording import Words

_BADGES = {
    "facilitating": badge("▲", "facilitating", "good"),
    "interfering": badge("▼", "interfering", "bad"),
    "irrelevant": badge("○", "irrelevant", "none"),
    "undecided": badge("?", "undecided", "middling"),
}


def verdict_part(analysis: HeadAnalysis, words: Words) -> Part | None:
    """Compete or cooperate, by each metric that is judged; a single head does neither."""
    if len(analysis.heads) == 1:
        return None
    content = [bullets(str(analysis.verdict).splitlines())]
    if analysis.known_groups is not None:
        judged = [finding.metric for finding in analysis.verdict.findings]
        content += [paragraph(_meaning(analysis)), _agreement(analysis, judged)]
        for metric in judged:
            title = f"Words for each head, by {METRICS[metric].label}"
            content.append(unfolding(title, _labels(analysis, words, metric)))
    return Part("verdict", "Compete or cooperate?", content)


def _meaning(analysis: HeadAnalysis) -> str:
    found = analysis.labels(analysis.verdict.findings[0].metric)
    return (
        "A head facilitates if groups are better with it on average (its Shapley value is above "
        f"{THRESHOLDS.head:g}), interferes if they are worse, and is irrelevant if it changes "
        "nothing. Two heads that facilitate cooperate if they are worth more together than apart, "
        "and are redundant if one brings what the other has already. A label is given only where "
        f"the {rounded_percent(THRESHOLDS.level)} interval over {found.n_prompts:,} test prompts "
        "rules out the others; intervals hold for all heads, and for all pairs, at once."
    )


def _agreement(analysis: HeadAnalysis, judged: list[str]) -> Markup:
    """Count heads by their words and by the paper's categories."""
    rows = []
    for metric in judged:
        counts = analysis.agreement(metric)
        for label in LABELS:
            row = counts.loc[label]
            if row.sum():
                cells = [str(row[category]) for category in CATEGORIES]
                rows.append([METRICS[metric].label, _BADGES[label], *cells])
    caption = "How many heads have each label, by the category of their probe"
    return table(["by", "heads that are", *CATEGORIES], rows, caption)


def _labels(analysis: HeadAnalysis, words: Words, metric: str) -> Markup:
    found = analysis.labels(metric)
    rows = []
    for row in found.heads.to_dict("records"):
        interval = f"{signed(row['low'], '.3f')} to {signed(row['high'], '.3f')}"
        partners = [
            ", ".join(words.of_heads(row[kind])) or "–"
            for kind in ("redundant_with", "cooperating_with")
        ]
        worth = signed(row["shapley"], ".4f")
        label = _BADGES[row["label"]]
        rows.append([words.heads[row["head"]], label, worth, interval, *partners])
    columns = ["head", "is", "Shapley value", "interval", "redundant with", "cooperating with"]
    heads = table(columns, rows, f"Words for each head, by {METRICS[metric].label}")
    links = [csv_link(f"{kind}_{metric}.csv", data) for kind, data in _data(analysis, metric)]
    return heads + paragraph(Markup(" ").join(links), "downloads")


def _data(analysis: HeadAnalysis, metric: str) -> list[tuple[str, pd.DataFrame]]:
    found = analysis.labels(metric)
    return [("labels_of_heads", found.heads), ("labels_of_pairs", found.pairs)]
