"""What heads do to the right answer: directly, and when they are really taken out.

The lift of a head is what it writes into the logit of the right answer, above the mean of what it
writes into those of the other choices. Of two answers that is its margin.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from count01_lens.common.text import signed
from count01_lens.common.types import Array
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.head_data import AskedHeads
from count01_lens.heads.tables import head_labels
from count01_lens.models.hooks import HeadName
from count01_lens.views.figure_style import points, seen
from count01_lens.views.figures import (
    FOUR,
    MOST_COLOURS,
    MOST_HEADS,
    NEUTRAL,
    answer_colours,
    axes_of,
    drawable,
    legend_below,
    set_title,
)
from count01_lens.views.shown_heads import shown_heads
from count01_lens.views.wording import Words

EFFECTS = ("direct_effect", "total_effect", "self_repair")
_QUANTILES = {"low": 0.05, "median": 0.5, "high": 0.95}
_MOST_LABELS = 8


def lifts(asked: AskedHeads) -> Float[Array, "prompt head"]:
    """The lift of each head on each prompt."""
    n = asked.rest.shape[1]
    right = np.take_along_axis(asked.heads, asked.answers[:, None, None], axis=2)[..., 0]
    return np.asarray(right - (asked.heads.sum(axis=2) - right) / (n - 1))


def lift_table(analysis: HeadAnalysis) -> pd.DataFrame:
    """Quantiles of the lift of each head: on all test prompts and, of few answers, by answer."""
    asked, names = analysis.data.answer, Words.of(analysis).answers
    found, labels = lifts(asked), head_labels(analysis.heads)
    parts = {"all": np.ones(len(asked.answers), dtype=bool)}
    if len(names) <= MOST_COLOURS:
        parts |= {name: asked.answers == number for number, name in enumerate(names)}
    rows = []
    for answer, chosen in parts.items():
        if chosen.any():
            quantiles = np.quantile(found[chosen], list(_QUANTILES.values()), axis=0)
            rows += [
                (labels[head], answer, found[chosen, head].mean(), *quantiles[:, head])
                for head in range(found.shape[1])
            ]
    return pd.DataFrame(rows, columns=["head", "answer", "mean", *_QUANTILES])


def plot_lifts(
    analysis: HeadAnalysis,
    *,
    heads: Iterable[HeadName] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw direct logit attribution of heads to the right answer, above the other choices.

    Few heads stand side by side, with a line for each answer if those are few; many are a map of
    layers and heads. `lift_table` of this module has the numbers.

    Args:
        heads: side by side, in this order; all by default.
        ax: where to draw; by default a figure of its own.
    """
    chosen = shown_heads(analysis, heads)
    if heads is None and len(chosen) > MOST_HEADS:
        return _lift_map(analysis, ax)
    table, words = lift_table(analysis), Words.of(analysis)
    answers = list(table["answer"].unique())[1:] or ["all"]
    colours = dict(zip(words.answers, answer_colours(len(words.answers)), strict=True))
    figure, axes = axes_of(ax, 8.0, 4.2)
    places, names = np.arange(len(chosen)), words.of_heads(chosen)
    for number, answer in enumerate(answers):
        rows = table[table["answer"] == answer].iloc[chosen]
        colour = seen(colours.get(answer, FOUR))
        x = places + 0.7 * ((number + 0.5) / len(answers) - 0.5)
        label = "any answer" if answer == "all" else f"where {drawable(answer)} is right"
        axes.vlines(x, rows["low"], rows["high"], color=colour, lw=3, alpha=0.5)
        axes.plot(x, rows["median"], "_", color=colour, ms=9, mew=2, label=label)
    axes.axhline(0, color=seen(NEUTRAL), lw=0.6)
    axes.set_xticks(places, names, rotation=90 if len(places) > 20 else 0)
    axes.set(xlabel="head", ylabel="logit above the other choices")
    set_title(axes, "what each head writes for the right answer: median, 5 % to 95 %")
    if len(answers) > 1:
        legend_below(axes, 65 if len(places) > 20 else 38, ncols=min(4, len(answers)))
    return figure


def _lift_map(analysis: HeadAnalysis, ax: Axes | None) -> Figure:
    means = lifts(analysis.data.answer).mean(axis=0)
    layers, heads = (analysis.heads[name].to_numpy() for name in ("layer", "head"))
    grid = np.full((layers.max() + 1, heads.max() + 1), np.nan)
    grid[layers, heads] = means
    largest = np.abs(means).max() or 1.0
    figure, axes = axes_of(ax, 8.0, 1.6 + min(6.0, 0.42 * len(grid)))
    image = axes.imshow(grid, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    axes.set(xlabel="head", ylabel="layer", yticks=range(0, len(grid), max(1, len(grid) // 12)))
    set_title(axes, "what each head writes for the right answer, mean over test prompts")
    axes.figure.colorbar(image, ax=axes, label="logit above the other choices")
    return figure


def has_effects(analysis: HeadAnalysis) -> bool:
    """Whether direct and total effects are known and differ by more than rounding."""
    if not set(EFFECTS) <= set(analysis.heads):
        return False
    size = analysis.heads[list(EFFECTS[:2])].abs().to_numpy().max()
    return bool(analysis.heads["self_repair"].abs().max() > 1e-6 * size)


def plot_effects(analysis: HeadAnalysis, *, ax: Axes | None = None) -> Figure:
    """Draw the direct effect of each head against its total effect: what taking it out costs.

    Below the diagonal the rest of the model makes up for a head (self-repair). `analysis.heads` has
    the numbers.

    Args:
        ax: where to draw; by default a figure of its own.
    """
    if not set(EFFECTS) <= set(analysis.heads):
        raise ValueError(
            "effects: expected an analysis with direct and total effects of heads, got one "
            "without; analyse the model again"
        )
    figure, axes = axes_of(ax, 6.4, 5.2)
    direct, total = (analysis.heads[name].to_numpy() for name in EFFECTS[:2])
    low, high = min(direct.min(), total.min(), 0), max(direct.max(), total.max(), 0)
    room = 0.06 * (high - low) or 1.0
    ends = (low - room, high + room)
    grey = seen(NEUTRAL)
    axes.plot(ends, ends, color=grey, lw=0.8, ls=":", label="nothing makes up for it")
    axes.axhline(0, color=grey, lw=0.5)
    axes.axvline(0, color=grey, lw=0.5)
    axes.plot(direct, total, "o", color=FOUR, ms=6, mec=seen("black"), mew=0.5, ls="none")
    for head in outliers(analysis):
        name, place = head_labels(analysis.heads)[head], (direct[head], total[head])
        offset: dict[str, Any] = {"xytext": (5, 4), "textcoords": "offset points"}
        axes.annotate(name, place, **offset, fontsize=points(8))
    axes.set(xlim=ends, ylim=ends, xlabel="direct effect: what it writes for the right answer")
    axes.set_ylabel("total effect: what taking it out costs")
    set_title(axes, "below the dotted line: taking a head out costs less than it writes")
    return figure


def outliers(analysis: HeadAnalysis) -> list[int]:
    """Heads worth a label: farthest from the diagonal or of largest effect, and not too close."""
    heads = analysis.heads
    places = heads[["direct_effect", "total_effect"]].to_numpy()
    apart = 0.05 * np.ptp(places) or 1.0
    by_size = [heads[name].abs().to_numpy().argsort()[::-1] for name in EFFECTS[::-1]]
    chosen: list[int] = []
    for head in np.stack(by_size, axis=1).flatten().tolist():
        far = [np.abs(places[head] - places[other]).max() > apart for other in chosen]
        if all(far) and len(chosen) < _MOST_LABELS:
            chosen.append(head)
    return chosen


def effects_in_words(analysis: HeadAnalysis) -> str:
    """Say in one sentence which head the rest makes up for most, if any."""
    heads, names = analysis.heads, head_labels(analysis.heads)
    # Of a head that hardly writes anything, a share would say nothing.
    counts = heads["direct_effect"] >= 0.1 * heads["direct_effect"].abs().max()
    some = heads[counts & (heads["direct_effect"] > 0)]
    shares = some["self_repair"] / some["direct_effect"]
    if not (shares > 0.01).any():
        return (
            "When a head that writes much for the right answer is taken out, the others do not "
            "make up for it (no self-repair)."
        )
    head = int(some["self_repair"].to_numpy().argmax())
    name, share = names[some.index[head]], float(shares.iloc[head])
    if share > 1:
        direct, total = (float(some[effect].iloc[head]) for effect in EFFECTS[:2])
        return (
            f"Taking head {name} out does not lower the right answer, although it writes "
            f"{signed(direct)} for it directly: its total effect is {signed(total)}, so what it "
            "does through others, or what makes up for it, outweighs that."
        )
    return (
        f"Taking head {name} out costs less than it writes directly: the rest makes up for "
        f"{100 * share:.0f} % (self-repair)."
    )
