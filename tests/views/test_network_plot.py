"""The network of heads and the curve of groups show what the analysis has."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.metrics import CATEGORIES
from count01_lens.models.build import build_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.views import plots
from count01_lens.views.figures import FIVE, FOUR, as_bytes
from count01_lens.views.group_curve import curve_in_words
from count01_lens.views.network_plot import NODES, network_in_words
from tests.helpers import TINY
from tests.views import other_tasks

ANALYSIS = analyze_heads(build_model(ModelConfig(d_embed=8, n_heads=4), seed=1), TINY).with_groups()


@dataclass
class Made:
    """An analysis of any number of heads, with labels and an order as we like them."""

    heads: pd.DataFrame
    found: SimpleNamespace
    main_metric = "s_acc"
    order: tuple[int, ...]

    def labels(self, metric):
        return self.found

    def structure(self, metric):
        return SimpleNamespace(order=self.order)


def made(n, *, seed=0, labelled=0.5, n_layers=1):
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(n, 1)
    kinds = np.where(rng.random(len(first)) < 0.5, "redundant", "cooperating")
    some = rng.random(len(first)) < labelled
    worth = rng.normal(0.02, 0.02, n)
    heads = pd.DataFrame({"layer": np.arange(n) % n_layers, "head": np.arange(n) // n_layers,
                          "category": rng.choice(CATEGORIES, n)})  # fmt: skip
    labels = pd.DataFrame({"head": range(n), "label": rng.choice(list(NODES), n), "shapley": worth,
                           "low": worth - 0.01, "high": worth + 0.01})  # fmt: skip
    strength = rng.exponential(0.01, len(first)) * np.where(kinds == "redundant", -1, 1)
    pairs = pd.DataFrame({"first": first, "second": second, "label": np.where(some, kinds, ""),
                          "interaction": strength, "low": strength - 0.01,
                          "high": strength + 0.01, "copy_share": 0.5})  # fmt: skip
    order = tuple(rng.permutation(n).tolist())
    return Made(heads, SimpleNamespace(heads=labels, pairs=pairs), order)


def drawn(figure):
    """The two circles of each head and the lines between them."""
    nodes, rings = figure.axes[0].collections[-2:]
    lines = figure.axes[0].collections[0] if len(figure.axes[0].collections) == 3 else None
    return nodes, rings, lines


@pytest.mark.parametrize("n", [2, 3, 7, 16, 18])
def test_the_network_shows_labels_worth_and_pairs(n):
    analysis = made(n, seed=n)
    found = analysis.found
    nodes, rings, lines = drawn(plots.plot_network(analysis, "s_acc"))
    order = list(analysis.order)
    places = np.asarray(nodes.get_offsets())
    np.testing.assert_allclose(np.hypot(*places.T), 1)
    neighbours = np.linalg.norm(places - np.roll(places, 1, axis=0), axis=1)
    np.testing.assert_allclose(neighbours, 2 * np.sin(np.pi / n))
    np.testing.assert_array_equal(rings.get_offsets(), places)

    labels = found.heads["label"].to_numpy()[order]
    np.testing.assert_allclose(nodes.get_facecolors(), [to_rgba(NODES[label]) for label in labels])
    worth = np.abs(found.heads["shapley"].to_numpy()[order])
    areas = nodes.get_sizes()
    assert (np.argsort(areas) == np.argsort(worth)).all()
    # The area is worth in proportion, above what can just be seen.
    slopes = np.diff(areas[np.argsort(worth)]) / np.diff(np.sort(worth))
    np.testing.assert_allclose(slopes, slopes[0])
    assert (rings.get_sizes() > areas).all()

    pairs = found.pairs[found.pairs["label"] != ""]
    assert (lines is None) == pairs.empty
    if lines is not None:
        by_strength = pairs.sort_values("interaction", key=abs)
        ends = {head: tuple(place) for head, place in zip(order, places.round(9), strict=True)}
        shown = [tuple(map(tuple, np.round(line, 9))) for line in lines.get_segments()]
        assert shown == [(ends[p.first], ends[p.second]) for p in by_strength.itertuples()]
        colours = {"cooperating": FOUR, "redundant": FIVE}
        expected = [to_rgba(colours[label])[:3] for label in by_strength["label"]]
        np.testing.assert_allclose(np.asarray(lines.get_colors())[:, :3], expected)
        widths = lines.get_linewidths()
        assert (np.diff(widths) >= 0).all()
        dashed = [style[1] is not None for style in lines.get_linestyles()]
        assert dashed == [label == "redundant" for label in by_strength["label"]]


def test_rings_tell_the_category_and_texts_the_name():
    analysis = made(8, n_layers=2, seed=1)
    figure = plots.plot_network(analysis)
    _, rings, _ = drawn(figure)
    by_category = {}
    for head, style in zip(analysis.order, rings.get_linestyles(), strict=True):
        category = analysis.heads["category"][head]
        assert by_category.setdefault(category, str(style)) == str(style)
    assert len(set(by_category.values())) == len(by_category) == 3
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == [f"{head % 2}.{head // 2}" for head in analysis.order]


@pytest.mark.parametrize("n", [2, 5, 18])
def test_the_legend_covers_nothing(n):
    figure = plots.plot_network(made(n, labelled=1.0))
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    legend = axes.get_legend().get_window_extent()
    for text in axes.texts:
        assert not legend.overlaps(text.get_window_extent())
    lowest = axes.transData.transform([(0, -1)])[0, 1] - 20  # half a node in pixels, and more
    assert legend.y1 < lowest
    assert legend.p0.min() >= 0
    assert legend.x1 <= figure.bbox.x1


def test_names_of_heads_stand_beside_the_rings():
    figure = plots.plot_network(made(18, seed=3))
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    _, rings, _ = drawn(figure)
    centres = axes.transData.transform(rings.get_offsets())
    radii = np.sqrt(rings.get_sizes()) / 2 * figure.dpi / 72
    for text in axes.texts:
        box = text.get_window_extent()
        nearest = np.clip(centres, box.p0, box.p1)
        assert (np.linalg.norm(nearest - centres, axis=1) >= radii).all(), text.get_text()


def test_the_finding_in_words():
    network = plots.network_of(made(16, seed=2), "s_acc")
    counts = network.edges["label"].value_counts()
    pairs, heads = network_in_words(network, "s-acc")
    assert pairs == f"{counts['redundant']} redundant pairs, {counts['cooperating']} cooperating"
    assert heads.startswith("16 heads by s-acc: ")
    assert sum(int(word) for word in heads.split(":")[1].split() if word.isdigit()) == 16
    one = plots.network_of(analyze_heads(cooperative_model()))
    assert network_in_words(one, "s-acc") == (
        "1 cooperating pair", "2 heads by s-acc: 2 facilitating",
    )  # fmt: skip
    six = plots.network_of(analyze_heads(ensemble_model(4)))
    assert network_in_words(six, "s-acc")[0] == "6 redundant pairs"


def test_a_long_title_is_broken_between_kinds_of_heads():
    analysis = made(18, seed=5)
    lines = plots.plot_network(analysis).axes[0].get_title().split("\n")
    assert max(map(len, lines)) <= 52
    assert " ".join(lines[1:]) == network_in_words(plots.network_of(analysis), "s-acc")[1]
    assert len(lines) == 3
    assert not lines[1][-1].isdigit()


def test_where_no_pair_has_a_label_the_picture_says_so():
    figure = plots.plot_network(made(6, labelled=0.0))
    assert drawn(figure)[2] is None
    assert "no pair is significantly" in figure.axes[0].texts[0].get_text()
    assert figure.axes[0].get_title().startswith("no pair is redundant or cooperating")
    alone = plots.plot_network(analyze_heads(minimal_model(), TINY))
    assert "1 head by s-acc" in alone.axes[0].get_title()


def test_the_network_of_an_analysis():
    network = plots.network_of(ANALYSIS, "l_acc")
    order = network.nodes["head"].tolist()
    assert order == list(ANALYSIS.structure("l_acc").order)
    worth = ANALYSIS.shapley("l_acc")[order]
    np.testing.assert_allclose(network.nodes["shapley"], worth, atol=1e-12)
    assert network.nodes["category"].tolist() == ANALYSIS.heads["category"][order].tolist()
    interactions = ANALYSIS.interactions("l_acc")
    for edge in network.edges.itertuples():
        expected = interactions[int(edge.first), int(edge.second)]
        assert edge.interaction == pytest.approx(expected)


def test_the_curve_shows_all_groups():
    values = ANALYSIS.known_groups.values("l_acc")
    sizes = np.bitwise_count(np.arange(16))
    figure = plots.plot_group_curve(ANALYSIS, "l_acc")
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    for size in range(5):
        group = values[sizes == size]
        assert lines["median"][size] == pytest.approx(np.median(group))
        assert lines["mean"][size] == pytest.approx(group.mean())
    assert lines["exact copies"].tolist() == [values[0], *[values[-1]] * 4]
    mean = [values[sizes == size].mean() for size in range(5)]
    independent = mean + ANALYSIS.independent["l_acc"].by_size
    np.testing.assert_allclose(lines["independent heads of the same quality"], independent)
    outer, inner = figure.axes[0].collections
    pairs = values[sizes == 2]
    for band, shares in ((outer, (0.05, 0.95)), (inner, (0.25, 0.75))):
        corners = band.get_paths()[0].vertices
        at_two = corners[corners[:, 0] == 2, 1]
        assert [at_two.min(), at_two.max()] == pytest.approx(np.quantile(pairs, shares))


def test_the_curve_of_a_metric_without_independent_heads():
    table = plots.curve_table(ANALYSIS, "roc_auc")
    assert "independent" not in table
    assert table.index.tolist() == [0, 1, 2, 3, 4]
    median = table[0.5]
    assert curve_in_words(table) == (
        f"median {median[1]:.3f} with one head, {median[2]:.3f} with 2, {median[4]:.3f} with all 4"
    )
    drawn = plots.plot_group_curve(ANALYSIS, "roc_auc").axes[0]
    labels = [line.get_label() for line in drawn.lines]
    assert labels == ["median", "mean", "exact copies"]
    with pytest.raises(ValueError, match="metric: expected"):
        plots.curve_table(ANALYSIS, "luck")


def test_both_in_one_figure_and_in_axes_of_ones_own():
    figure = plots.plot_cooperation(ANALYSIS, "l_acc")
    assert [bool(axes.get_title()) for axes in figure.axes] == [True, True]
    assert "l-acc of all groups" in figure.axes[1].get_title()
    for kind in ("png", "svg"):
        one, two = (as_bytes(plots.plot_cooperation(ANALYSIS, "l_acc"), kind) for _ in range(2))
        assert one == two
    own = Figure()
    axes = own.subplots(1, 2)
    assert plots.plot_network(ANALYSIS, ax=axes[0]) is own
    assert plots.plot_group_curve(ANALYSIS, ax=axes[1]) is own
    assert axes[0].collections
    assert axes[1].lines


def test_a_deep_model_is_judged_by_l_acc():
    model, task = other_tasks.model_of(n_heads=2), other_tasks.most_frequent(40)
    analysis = analyze_heads(model, task).with_groups()
    figure = plots.plot_cooperation(analysis)
    assert "4 heads by l-acc" in figure.axes[0].get_title()
    assert "l-acc of all groups" in figure.axes[1].get_title()
