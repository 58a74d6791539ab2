"""The figures of a report, each with its data, a caption, and words for those who cannot see it."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from count01_lens.common.text import percent, plural, signed
from count01_lens.common.types import Array
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.groups import LARGEST_EXACT
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.structure import Structure
from count01_lens.views import plots
from count01_lens.views.figure_style import axes_in_place
from count01_lens.views.figures import as_bytes
from count01_lens.views.group_curve import curve_in_words
from count01_lens.views.heat_maps import lowest_shown, with_pairs
from count01_lens.views.network_plot import network_in_words
from count01_lens.views.pieces import (
    Cells,
    Image,
    bullets,
    choose_image,
    download,
    figure,
    figures,
    paragraph,
    table,
    unfolding,
)
from count01_lens.views.report_page import Part
from count01_lens.views.wording import Words, others_replaced

LARGEST_TABLE = 1_000_000
MOST_TILES = 16  # pictures of outputs, where there are too many heads to show them all
_GROUPS = "All groups: cooperate, repeat or compete"


def pairs_part(analysis: HeadAnalysis, words: Words) -> Part | None:
    """Pairs of heads; there are none of a single one, and of many heads only some are known."""
    if len(analysis.table) == 1:
        return None
    gains = _off_diagonal(analysis.gains)
    if np.isnan(gains).all():
        return Part("pairs", "Pairs of heads", [paragraph("No pair was measured.")])
    drawn = [_pairs_figure(analysis, words, metric) for metric in analysis.pairs]
    first, second, best = _largest(analysis.gains, words)
    known = gains[~np.isnan(gains)]
    share = percent(float((known > 0.01).mean()))
    drawn.append(
        drawn_with_data(
            plots.plot_gains(analysis),
            "gains.csv",
            _matrix(analysis.gains, words),
            f"Heat map of the gain in s-acc of each pair over its better head: {share} of "
            f"pairs gain more than 0.01; heads {first} and {second} gain most, {best:.3f}.",
            "Blue pairs have a higher s-acc than the better of their heads, red ones a lower one.",
            matrix=("gain in s-acc", "s-acc alone"),
            signed=True,
        )
    )
    some = len(known) < len(gains)
    text = f"Of {len(gains):,} pairs {len(known):,} were measured. " * some
    which = "them" if some else "the pairs"
    text += f"{share} of {which} have an s-acc more than 0.01 above that of their better head."
    return Part("pairs", "Pairs of heads", [paragraph(text), figures(drawn)])


def _pairs_figure(analysis: HeadAnalysis, words: Words, metric: str) -> Markup:
    matrix, label = analysis.pairs[metric], METRICS[metric].label
    single, pairs, lowest = np.diag(matrix), _off_diagonal(matrix), lowest_shown(analysis, metric)
    first, second, _ = _largest(matrix, words)
    return drawn_with_data(
        plots.plot_pairs(analysis, metric),
        f"pairs_{metric}.csv",
        _matrix(matrix, words),
        f"Heat map of {label}: single heads from {np.nanmin(single):.3f} to "
        f"{np.nanmax(single):.3f}, pairs from {np.nanmin(pairs):.3f} to {np.nanmax(pairs):.3f}, "
        f"the best of heads {first} and {second}.",
        f"{label} of a pair where its row meets its column; single heads on the diagonal."
        + f" Everything up to {lowest:g} is dark." * (lowest > 0),
        matrix=(label, label),
    )


def groups_part(analysis: HeadAnalysis, words: Words) -> Part | None:
    """All groups of heads, if they were computed; else estimates, or how to get them."""
    n_heads = len(analysis.table)
    if n_heads == 1:
        return None
    if analysis.known_groups is not None:
        return _all_groups_part(analysis, words)
    if plots.sampled(analysis) and n_heads > LARGEST_EXACT:
        return _sampled_part(analysis, words)
    minute = ": it takes about a minute for 16 heads" if analysis.counts is not None else ""
    how = (
        "Not computed here. Call analysis.with_groups().report(...), or give "
        f"--groups all to count01-lens analyze{minute}."
        if n_heads <= LARGEST_EXACT
        else f"{n_heads} heads have too many groups to compute them all; "
        "analysis.sampled_shapley(metric) estimates what each head is worth."
    )
    return Part("groups", _GROUPS, [paragraph(how)])


def _all_groups_part(analysis: HeadAnalysis, words: Words) -> Part:
    worth = plots.shapley_table(analysis)
    text = (
        f"All {2 ** len(analysis.table) - 1:,} groups of heads were measured. The Shapley value of "
        "a head is what it adds to a group, averaged over all groups; together the values give the "
        "whole model's metric above that of no heads. The interaction of a pair is what two heads "
        "are worth together beyond what they are worth apart."
    )
    if not others_replaced(analysis).endswith("zero"):
        text += f" In a group, all other heads are {others_replaced(analysis)}."
    structure = analysis.structure()
    content = [
        paragraph(text),
        figures([_cooperation_figure(analysis, structure)]),
        paragraph(f"How heads stand to each other, by {METRICS[structure.metric].label}:"),
        bullets(structure.sentences),
        figures(_group_figures(analysis, words, worth)),
    ]
    values = _worth_table(worth, words)
    return Part("groups", _GROUPS, [*content, unfolding("Shapley values as a table", values)])


def _sampled_part(analysis: HeadAnalysis, words: Words) -> Part:
    """What each head is worth, estimated, where there are too many heads for all groups."""
    worth, estimates = plots.shapley_table(analysis), plots.sampled(analysis)
    orders = ", ".join(
        f"{METRICS[name].label}: {estimate.n_samples}" for name, estimate in estimates.items()
    )
    text = (
        f"{len(words.heads)} heads have too many groups to measure them all. The Shapley value of "
        "a head, what it adds to a group on average, is estimated from heads that come in a random "
        f"order (number of orders by metric: {orders}); in a group, all other heads are "
        f"{others_replaced(analysis)}. Each value has its standard error; a head whose value is "
        "less than twice that may be worth nothing."
    )
    drawn = _shapley_figure(analysis, words, worth)
    values = unfolding("Shapley values as a table", _worth_table(worth, words))
    return Part("groups", "What each head is worth", [paragraph(text), figures([drawn]), values])


def _worth_table(worth: pd.DataFrame, words: Words) -> Markup:
    """Shapley values by head; standard errors where they are estimates."""
    metrics = [str(name) for name in worth if name in METRICS]
    errors = {name: f"{name}_error" for name in metrics if f"{name}_error" in worth}
    rows = [
        [
            name,
            *(
                signed(row[metric], ".4f")
                + (f" ± {row[errors[metric]]:.4f}" if metric in errors else "")
                for metric in metrics
            ),
        ]
        for name, row in zip(words.heads, worth.to_dict("records"), strict=True)
    ]
    columns = ["head", *(METRICS[metric].label for metric in metrics)]
    return table(columns, rows, "Shapley values by head")


def _cooperation_figure(analysis: HeadAnalysis, structure: Structure) -> Markup:
    """The network of heads and the metric by size of group, by the metric of the verdict."""
    metric = structure.metric
    label, network = METRICS[metric].label, plots.network_of(analysis, metric)
    curve = plots.curve_table(analysis, metric)
    pairs, heads = network_in_words(network, label)
    strongest = "".join(
        f"; the strongest {kind} one is of heads {edge['first']} and {edge['second']} "
        f"({signed(edge['interaction'])})"
        for kind, edge in network.edges.groupby("label").last().iterrows()
    )
    return drawn_with_data(
        plots.plot_cooperation(analysis, metric),
        "network_heads.csv",
        network.nodes,
        f"Network of heads, and {label} by number of heads. {heads}; {pairs}{strongest}. "
        f"All groups: {curve_in_words(curve)}.",
        "Left: heads, the larger the more they are worth, and the pairs that cooperate or are "
        "redundant. Right: all groups; exact copies would have the same from one head on.",
        {
            "network_pairs.csv": network.edges,
            "group_curve.csv": curve.reset_index(),
            "takeover.csv": structure.takeover_table(),
        },
    )


def _group_figures(analysis: HeadAnalysis, words: Words, worth: pd.DataFrame) -> Iterable[Markup]:
    by_size = plots.groups_by_size(analysis)
    medians = by_size[0.5].unstack("metric")["s_acc"]
    doubling = [n for n in medians.index if n & (n - 1) == 0 or n == medians.index[-1]]
    told = ", ".join(f"{medians[size]:.3f} of {plural(size, 'head')}" for size in doubling)
    yield drawn_with_data(
        plots.plot_groups(analysis),
        "groups_by_size.csv",
        by_size.reset_index(),
        f"Metrics of all groups by their size; median s-acc: {told}.",
        "Marks are medians, thick lines quartiles, thin ones 5 % to 95 % of all groups.",
    )
    yield _shapley_figure(analysis, words, worth)
    for metric in analysis.pairs:
        matrix = analysis.interactions(metric)
        one, two, most = _largest(matrix, words)
        three, four, least = _largest(-matrix, words)
        yield drawn_with_data(
            plots.plot_interactions(analysis, metric),
            f"interactions_{metric}.csv",
            _matrix(matrix, words),
            f"Heat map of Shapley interactions on {METRICS[metric].label}: mean "
            f"{signed(float(_off_diagonal(matrix).mean()))}, most between heads {one} and "
            f"{two} ({signed(most)}), least between {three} and {four} ({signed(-least)}).",
            "Blue pairs cooperate: together they are worth more than apart. Red ones repeat "
            "each other. The data have Shapley values on the diagonal.",
            matrix=("interaction", "Shapley value"),
            signed=True,
        )


def _shapley_figure(analysis: HeadAnalysis, words: Words, worth: pd.DataFrame) -> Markup:
    metrics = [str(name) for name in worth if name in METRICS]
    told = "; ".join(
        f"{METRICS[name].label}: most for head {words.heads[values.argmax()]} "
        f"({signed(values.max())}), least for head {words.heads[values.argmin()]} "
        f"({signed(values.min())})"
        for name, values in ((name, worth[name].to_numpy()) for name in metrics)
    )
    data = worth.copy()
    data.insert(0, "head", words.heads)
    errors = " Black lines are standard errors." if len(metrics) < len(worth.columns) else ""
    return drawn_with_data(
        plots.plot_shapley(analysis),
        "shapley.csv",
        data,
        f"Bars of Shapley values. {told}.",
        f"A head with a bar below zero makes groups worse on average: it competes.{errors}",
    )


def drawn_with_data(
    drawn: Figure,
    name: str,
    data: pd.DataFrame,
    alt: str,
    caption: str,
    more: Mapping[str, pd.DataFrame] = MappingProxyType({}),
    *,
    matrix: tuple[str, str] | None = None,
    signed: bool = False,
) -> Markup:
    """Write a figure with a link to its numbers, and to more of them by the names of files.

    Args:
        matrix: of a heat map of heads, what the values of its data are: of pairs, and on the
            diagonal. Those who point at the figure then read them.
        signed: whether these are written with their sign.
    """
    image = choose_image(lambda: as_bytes(drawn, "svg"), lambda: as_bytes(drawn, "png"))
    dark = Image(as_bytes(drawn, image.kind, dark=True), image.kind)
    cells = None if matrix is None else Cells(_box(drawn), *matrix, signed=signed)
    links = [csv_link(*each) for each in [(name, data), *more.items()]]
    return figure(image, alt, caption, links, dark=dark, cells=cells)


def _box(drawn: Figure) -> tuple[float, float, float, float]:
    """Where a figure has its first axes, from its left and its top; it is laid out to see."""
    with axes_in_place(drawn):
        drawn.draw_without_rendering()
        box = drawn.axes[0].get_position()
        return box.x0, 1 - box.y1, box.width, box.height


def csv_link(name: str, data: pd.DataFrame) -> Markup:
    """Link to a table that the page carries, or say where it is if it is too large."""
    text = data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    instead = "count01-lens analyze --out and analysis.data have the numbers"
    return download(name, text.encode(), largest=LARGEST_TABLE, instead=instead)


def _matrix(values: Array, words: Words) -> pd.DataFrame:
    """A matrix with the names of heads; of many heads those of which some pair is known."""
    heads = with_pairs(values)
    names = words.of_heads(heads.tolist())
    shown = pd.DataFrame(values[np.ix_(heads, heads)], columns=names)
    shown.insert(0, "head", names)
    return shown


def _off_diagonal(matrix: Array) -> Array:
    return np.asarray(matrix[np.triu_indices(len(matrix), 1)])


def _largest(matrix: Array, words: Words) -> tuple[str, str, float]:
    """The pair with the largest value, the first of equal ones, of those that are known."""
    first, second = np.triu_indices(len(matrix), 1)
    place = int(np.nanargmax(matrix[first, second]))
    one, two = int(first[place]), int(second[place])
    return words.heads[one], words.heads[two], float(matrix[one, two])
