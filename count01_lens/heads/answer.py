"""An analysis in words: the verdict, the answer in a few sentences, the text that is printed."""

from typing import TYPE_CHECKING

from count01_lens.common.columns import as_text
from count01_lens.common.text import share
from count01_lens.heads.ends import ends_of_groups
from count01_lens.heads.groups import LARGEST_EXACT
from count01_lens.heads.metrics import CATEGORIES
from count01_lens.heads.sentences import heads_alone
from count01_lens.heads.shown_heads import head_columns
from count01_lens.heads.tables import head_labels
from count01_lens.heads.thresholds import FAILED, SUCCESSFUL
from count01_lens.heads.verdict import Verdict, finding_of, judged_metrics

if TYPE_CHECKING:
    from count01_lens.heads.analysis import HeadAnalysis

_BOUNDS = {
    "successful": f"s-acc at least {SUCCESSFUL}",
    "mixed": "in between",
    "failed": f"s-acc at most {FAILED:.2f}",
}
_TOO_MANY = "With {} heads, there are too many groups to measure all of them."


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
    """Whether heads compete or cooperate, and how they do alone, in a few sentences."""
    n, counts = len(analysis.heads), analysis.heads["category"].value_counts()
    by_category = {kind: int(counts.get(kind, 0)) for kind in CATEGORIES}
    alone = heads_alone(by_category, _BOUNDS)
    if n == 1:
        return f"With one head, there is no other to compete or cooperate with. {alone}"
    text = f"{analysis.verdict.summary} {alone}"
    return f"{text} {_TOO_MANY.format(n)}" if n > LARGEST_EXACT else text


def text_of(analysis: "HeadAnalysis") -> str:
    """The answer, how well the whole model does, and a line for each head."""
    lines = [analysis.answer, heads_in_text(analysis)]
    n = len(analysis.heads)
    if n > LARGEST_EXACT:
        lines.append(
            "hint: .sampled has estimated Shapley values; .sampled_shapley() estimates others"
        )
    elif n > 1 and analysis.known_groups is None:
        lines.append("hint: .with_groups() measures all groups: who works against the rest?")
    return "\n".join(lines)


def heads_in_text(analysis: "HeadAnalysis", width: int | None = None, *, wide: bool = False) -> str:
    """How well the whole model does, and a line for each head; known before any groups are.

    What fits the width of the screen is shown, of what is known of each head; or all, if `wide`.
    """
    accuracy = ", ".join(f"{name} {share(value)}" for name, value in analysis.accuracy.items())
    lines = [f"whole model on the test split: {accuracy}"]
    lines += [as_text(head_columns(analysis), width, wide=wide)]
    return "\n".join([*lines, *(f"note: {note}" for note in analysis.notes)])
