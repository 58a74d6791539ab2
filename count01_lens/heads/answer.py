"""An analysis in words: the verdict, the answer in a few sentences, the text that is printed."""

from typing import TYPE_CHECKING

from count01_lens.common.text import plural, short
from count01_lens.heads.ends import ends_of_groups
from count01_lens.heads.groups import LARGEST_EXACT
from count01_lens.heads.metrics import CATEGORIES
from count01_lens.heads.tables import head_labels
from count01_lens.heads.thresholds import FAILED, SUCCESSFUL
from count01_lens.heads.verdict import Verdict, finding_of, judged_metrics

if TYPE_CHECKING:
    from count01_lens.heads.analysis import HeadAnalysis


def verdict_of(analysis: "HeadAnalysis") -> Verdict:
    """Put together what every metric that is judged says, as far as it is known."""
    layers, groups = analysis.heads["layer"].tolist(), analysis.known_groups
    findings = (
        finding_of(
            metric,
            question,
            # Probes of all groups start elsewhere, and may decide a close prompt otherwise: where
            # all groups are known, what is said is of these.
            analysis.ends[metric]
            if groups is None
            else ends_of_groups(groups.values(metric), groups.contributions[metric]),
            names=head_labels(analysis.heads),
            layers=layers,
            labels=None if groups is None else analysis.labels(metric),
            values=None if groups is None else groups.values(metric),
            independent=analysis.independent.get(metric),
        )
        for metric, question in judged_metrics(list(analysis.data.asked), len(set(layers))).items()
    )
    return Verdict(tuple(findings))


def answer_of(analysis: "HeadAnalysis") -> str:
    """How heads do alone, and whether they compete or cooperate, in a few sentences."""
    n, counts = len(analysis.heads), analysis.heads["category"].value_counts()
    kinds = ", ".join(f"{counts.get(kind, 0)} {kind}" for kind in CATEGORIES)
    bounds = f"s-acc ≥ {SUCCESSFUL}, between, ≤ {FAILED:.2f}"
    text = f"{plural(n, 'head')}: {kinds} ({bounds})."
    if n == 1:
        return text + " There is no other to compete or cooperate with."
    text = f"{text} {analysis.verdict.summary}"
    if n > LARGEST_EXACT:
        return text + " They are too many for all groups: see .sampled, or .sampled_shapley()."
    return text if analysis.known_groups else text + " See .with_groups() for all groups of heads."


def text_of(analysis: "HeadAnalysis") -> str:
    """The answer, how well the whole model does, and a line for each head."""
    return f"{analysis.answer}\n{heads_in_text(analysis)}"


def heads_in_text(analysis: "HeadAnalysis") -> str:
    """How well the whole model does, and a line for each head; known before any groups are."""
    learned = ["learned_readout", "learned_readout_off"]
    shown = analysis.table.drop(columns=learned, errors="ignore")
    accuracy = ", ".join(f"{name} {value:.4f}" for name, value in analysis.accuracy.items())
    lines = [f"whole model on the test split: {accuracy}"]
    lines += [shown.to_string(index=False, float_format=short)]
    return "\n".join([*lines, *(f"note: {note}" for note in analysis.notes)])
