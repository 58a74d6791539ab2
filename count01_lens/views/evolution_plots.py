"""Figures of heads during training: alone (figure 9 of the paper), and together.

Each `draw_…` puts one panel into axes of a figure of your own; `plot_evolution` stacks them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from count01_lens.common.text import plural
from count01_lens.common.types import Array
from count01_lens.common.validation import check_choice, check_int
from count01_lens.heads.labels import LABELS
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.thresholds import THRESHOLDS
from count01_lens.training.group_evolution import GroupEvolution
from count01_lens.views.figure_style import points, seen
from count01_lens.views.figures import (
    END,
    FIVE,
    FOUR,
    NEUTRAL,
    pale,
    panels_of,
    set_title,
)

_CATEGORIES = {"successful": FOUR, "failed": FIVE, "mixed": NEUTRAL}
_OF_METRIC = {"l_acc": FIVE, "roc_auc": NEUTRAL, "s_acc": FOUR, "eos_l_acc": END}
_OF_LABEL = dict(zip(LABELS, (FOUR, FIVE, "#BBBBBB", "#EEEEEE"), strict=True))
_HEIGHTS = {"heads": 3.4, "accuracy": 2.2, "interactions": 3.2, "labels": 2.4}
Panel = Literal["heads", "accuracy", "interactions", "labels"]
Scale = Literal["linear", "log"]


def plot_evolution(
    found: GroupEvolution | pd.DataFrame,
    *,
    panels: Sequence[Panel] | None = None,
    model: int = 0,
    metric: str = "l_acc",
    scale: Scale = "linear",
    ax: Iterable[Axes] | Axes | None = None,
) -> Figure:
    """Draw heads during training, panel under panel over the epochs.

    Args:
        found: of `group_evolution`, or the table of `head_evolution`, which has no groups.
        panels: "heads" (s-acc of each head of one model, line width by head weight: figure 9 of the
            paper), "accuracy" of all models, "interactions" (mean over pairs by each metric, with a
            circle where the mean over models falls below zero for good: cooperation turns into
            redundancy), "labels" (how many heads facilitate, interfere and are irrelevant, in the
            mean over models). By default all that were measured. Thin lines are models, thick ones
            their mean; in the grey band heads neither cooperate nor repeat each other.
        model: whose heads are shown.
        metric: of the labels.
        scale: of the epochs; "log" gives more room to the first ones.
        ax: where to draw, one Axes for each panel; by default a figure of its own.

    Example:
        >>> config = cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=4), epochs=2)
        >>> result = cl.train(config, seeds=[0, 1], progress=False)
        >>> figure = cl.plot_evolution(cl.group_evolution(result))
        >>> len(figure.axes)
        4
    """
    table, heads = _tables(found)
    known = [*_HEIGHTS] if table is not None else ["heads", "accuracy"]
    if table is not None and f"label_{metric}" not in heads:
        known.remove("labels")
    chosen = known if panels is None else list(panels)
    for panel in chosen:
        check_choice("panels", panel, known)
    if not chosen:
        raise ValueError(f"panels: expected some of {known}, got none")
    check_choice("scale", scale, ("linear", "log"))
    check_int("model", model, at_least=0)
    if model not in set(heads["model"]):
        raise ValueError(f"model: expected one of {sorted(set(heads['model']))}, got {model}")
    ratios = [_HEIGHTS[panel] for panel in chosen]
    rows: dict[str, Any] = {"sharex": True, "height_ratios": ratios}
    figure, grid = panels_of(ax, len(chosen), 9.4, sum(ratios) + 0.4, **rows)
    for axes, panel in zip(grid, chosen, strict=True):
        if panel == "heads":
            draw_heads(axes, heads[heads["model"] == model])
        elif panel == "accuracy":
            draw_accuracy(axes, heads)
        elif panel == "interactions" and table is not None:
            draw_interactions(axes, table)
        else:
            draw_labels(axes, heads, metric)
        if ax is None:
            beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.03)}
            axes.legend(**beside, fontsize=points(9), frameon=False)
            axes.set_xlabel("epoch" if axes is grid[-1] else "")
        _set_scale(axes, heads["epoch"].to_numpy(dtype=float), scale)
    return figure


def draw_heads(axes: Axes, heads: pd.DataFrame) -> None:
    """Draw s-acc of each head of one model; width by head weight, colour by what it is at the end.

    Of a table with several models give the rows of one.
    """
    for _, line in heads.groupby("head"):
        last = line.iloc[-1]
        width = 0.4 + 25 * last["head_weight"]
        colour = seen(_CATEGORIES[last["category"]])
        axes.plot(line["epoch"], line["s_acc"], color=colour, lw=width, alpha=0.6)
    whole = heads.groupby("epoch")["accuracy"].first()
    axes.plot(whole.index, whole, color=seen("black"), lw=1, ls="--", label="whole model")
    for kind, colour in _CATEGORIES.items():
        axes.plot([], [], color=seen(colour), label=f"{kind} at the end")
    axes.set(xlabel="epoch", ylabel="s-acc on the test split")
    seed, n_heads = heads["seed"].iloc[0], heads["head"].nunique()
    set_title(axes, f"{n_heads} heads during training (seed {seed}), line width by head weight")
    axes.legend(loc="center right", fontsize=points(8))


def draw_accuracy(axes: Axes, heads: pd.DataFrame) -> None:
    """Draw the accuracy of every model on both questions, and the mean over models."""
    styles = {"accuracy": ("answer", FIVE), "eos_accuracy": ("'[EOS]'", END)}
    for column, (label, colour) in styles.items():
        lines = heads.pivot_table(index="epoch", columns="model", values=column, aggfunc="first")
        _draw_lines(axes, lines, label, colour)
    axes.set(xlabel="epoch", ylabel="accuracy")
    set_title(axes, f"accuracy of {_models(heads)}")
    axes.legend(loc="lower right", fontsize=points(8))


def draw_interactions(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the mean interaction over pairs of every model by every metric, and its mean."""
    axes.axhspan(-THRESHOLDS.mean, THRESHOLDS.mean, color=seen(NEUTRAL), alpha=0.12, lw=0)
    axes.axhline(0, color=seen("black"), lw=0.8)
    for metric, rows in table.groupby("metric", sort=False):
        colour = _OF_METRIC.get(str(metric), NEUTRAL)
        lines = rows.pivot(index="epoch", columns="model", values="mean_interaction")
        _draw_lines(axes, lines, METRICS[str(metric)].label, colour)
        turn = falls_below_zero(lines.mean(axis=1).to_numpy(), lines.index.to_numpy(dtype=float))
        if turn is not None:
            axes.plot(turn, 0, "o", ms=7, mfc=seen("white"), mec=seen(colour), mew=1.6, zorder=5)
    axes.set(xlabel="epoch", ylabel="mean interaction")
    set_title(axes, f"↑ cooperate, ↓ redundant: mean over pairs of heads, {_models(table)}")
    axes.legend(loc="center right", fontsize=points(8))


def draw_labels(axes: Axes, heads: pd.DataFrame, metric: str = "l_acc") -> None:
    """Draw how many heads have each label, in the mean over models, as stacked areas."""
    column = f"label_{metric}"
    if column not in heads:
        names = [metric for metric in METRICS if f"label_{metric}" in heads]
        raise ValueError(
            f"metric: expected one with all groups measured ({', '.join(names) or 'none is'}), got "
            f"{metric!r}; see groups and probes of group_evolution"
        )
    counts = heads.groupby(["epoch", "model"])[column].value_counts().unstack(fill_value=0)
    means = counts.groupby("epoch").mean().reindex(columns=list(LABELS), fill_value=0.0)
    shown = [label for label in LABELS if means[label].any()]
    colours = [seen(_OF_LABEL[label]) for label in shown]
    areas = [means[label] for label in shown]
    axes.stackplot(means.index.to_numpy(dtype=float), areas, labels=shown, colors=colours, lw=0)
    axes.set(xlabel="epoch", ylabel="heads", ylim=(0, heads["head"].nunique()))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    models = plural(heads["model"].nunique(), "model")
    set_title(axes, f"heads by what they are worth, {METRICS[metric].label}, mean of {models}")
    axes.legend(loc="center right", fontsize=points(8), framealpha=0.9)


def falls_below_zero(
    values: Float[Array, " moment"], epochs: Float[Array, " moment"]
) -> float | None:
    """When a curve falls below zero to stay there, by a straight line between moments."""
    above = np.flatnonzero(values >= 0)
    positive = (values > 0).any()
    if not positive or len(above) == 0 or above[-1] == len(values) - 1:
        return None
    last = above[-1]
    share = values[last] / (values[last] - values[last + 1])
    return float(epochs[last] + share * (epochs[last + 1] - epochs[last]))


def _tables(found: GroupEvolution | pd.DataFrame) -> tuple[pd.DataFrame | None, pd.DataFrame]:
    if isinstance(found, GroupEvolution):
        return found.table, found.heads
    needed = {"model", "seed", "epoch", "head", "s_acc", "head_weight", "category", "accuracy"}
    columns = set(found) if isinstance(found, pd.DataFrame) else set()
    if not needed <= columns:
        got = f"columns {sorted(map(str, columns))}" if columns else f"{found!r:.80}"
        raise TypeError(f"found: expected what head_evolution or group_evolution gives, got {got}")
    assert isinstance(found, pd.DataFrame)
    return None, found


def _draw_lines(axes: Axes, lines: pd.DataFrame, label: str, colour: str) -> None:
    """Draw a thin line for each model, and a thick one for their mean."""
    if lines.shape[1] > 1:
        axes.plot(lines.index, lines, color=seen(pale(colour)), lw=0.7)
    axes.plot(lines.index, lines.mean(axis=1), color=seen(colour), lw=2.2, label=label, zorder=4)


def _models(table: pd.DataFrame) -> str:
    n = table["model"].nunique()
    return "1 model" if n == 1 else f"{n} models and their mean"


def _set_scale(axes: Axes, epochs: Float[Array, " row"], scale: Scale) -> None:
    """Count epochs evenly, or so that the first ones have room; 0 is there in both."""
    if scale == "log" and (epochs > 0).any():
        least = float(epochs[epochs > 0].min())
        axes.set_xscale("symlog", linthresh=least, linscale=0.5)
        marks: Mapping[float, str] = {
            mark: f"{mark:g}" for mark in (0, 0.1, 1, 10, 100, 1000) if mark <= epochs.max()
        }
        axes.set_xticks([*marks], labels=[*marks.values()])
    axes.set_xlim(float(epochs.min()), float(epochs.max()) if len(set(epochs)) > 1 else None)
