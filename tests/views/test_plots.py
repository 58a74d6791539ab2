"""Figures draw the numbers they should."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from count01_lens.attention.sweeps import sweep_attention
from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.runners import head_logits
from count01_lens.models.build import build_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import minimal_model
from count01_lens.views import plots
from count01_lens.views.figures import FIVE, FOUR, as_bytes
from tests.helpers import TINY, two_layers

MODEL = build_model(ModelConfig(d_embed=8, n_heads=4), seed=1)
ANALYSIS = analyze_heads(MODEL, TINY)
FIGURES = {
    "pairs": lambda: plots.plot_pairs(ANALYSIS, "l_acc"),
    "gains": lambda: plots.plot_gains(ANALYSIS),
    "groups": lambda: plots.plot_groups(ANALYSIS),
    "ratios": lambda: plots.plot_attention_ratios(ANALYSIS),
    "outputs": lambda: plots.plot_head_outputs(MODEL, ANALYSIS, [1, 3]),
    "outputs, whole": lambda: plots.plot_head_outputs(MODEL, ANALYSIS, [1, 3], whole=True),
    "sweep": lambda: plots.plot_sweep(sweep_attention(MODEL, "w01", [0, 0.1, 1, np.inf], TINY)),
    "logits": lambda: plots.plot_logits(MODEL, TINY),
    "tables": lambda: plots.plot_tables(MODEL, 2),
    "shapley": lambda: plots.plot_shapley(ANALYSIS),
    "interactions": lambda: plots.plot_interactions(ANALYSIS, "s_acc"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_and_leaves_matplotlib_alone(name, tmp_path):
    before = dict(matplotlib.rcParams)
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "figure.png")
    figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 5000
    assert dict(matplotlib.rcParams) == before


def test_figures_show_themselves_in_a_notebook_without_pyplot():
    """IPython knows plain Figures only once pyplot was imported; in a new process it was not."""
    code = (
        "import sys; from IPython.core.formatters import DisplayFormatter;"
        "from count01_lens.views.output_tiles import *; from count01_lens.views.figures import NotebookFigure;"
        "data, _ = DisplayFormatter().format(NotebookFigure());"
        "assert 'matplotlib.pyplot' not in sys.modules; assert data['image/png'][:4] == b'\\x89PNG'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_same_figure_gives_the_same_bytes():
    for kind in ("png", "svg"):
        one, two = (as_bytes(plots.plot_pairs(ANALYSIS), kind) for _ in range(2))
        assert one == two


def test_all_figures_that_apply_are_drawn():
    few = plots.draw_all(MODEL, ANALYSIS)
    many = plots.draw_all(MODEL, ANALYSIS.with_groups())
    assert {"pairs_s_acc", "gains", "head_outputs", "logits", "tables_head_3"} <= set(few)
    assert set(many) - set(few) >= {"groups", "shapley", "interactions_eos_l_acc"}
    assert as_bytes(few["logits"], "svg") == as_bytes(plots.plot_logits(MODEL, TINY), "svg")
    deep = two_layers(None)
    assert "attention_ratios" not in plots.draw_all(deep, analyze_heads(deep, TINY))


def test_heat_maps_show_the_matrices():
    image = plots.plot_pairs(ANALYSIS, "roc_auc").axes[0].images[0]
    np.testing.assert_array_equal(image.get_array(), ANALYSIS.pairs["roc_auc"])
    shown = plots.plot_interactions(ANALYSIS, "l_acc").axes[0].images[0].get_array()
    expected = ANALYSIS.interactions("l_acc")
    off_diagonal = ~np.eye(4, dtype=bool)
    np.testing.assert_array_equal(np.asarray(shown)[off_diagonal], expected[off_diagonal])


def test_the_scatter_shows_the_ratios():
    points = plots.plot_attention_ratios(ANALYSIS).axes[0].collections[0]
    np.testing.assert_allclose(points.get_offsets(), ANALYSIS.table[["w01", "w02"]])
    np.testing.assert_allclose(points.get_array(), ANALYSIS.table["s_acc"])


def test_quantiles_of_groups():
    table = plots.groups_by_size(ANALYSIS)
    groups = ANALYSIS.groups()
    pairs = groups[groups["size"] == 2]["s_acc"]
    assert table.loc[(2, "s_acc"), 0.5] == pytest.approx(pairs.median())
    assert table.loc[(2, "s_acc"), 0.05] == pytest.approx(pairs.quantile(0.05))


def test_quantiles_of_logits():
    table = plots.logit_table(MODEL, TINY)
    assert len(table) == 4 * 4 * 3
    row = table.query("head == 2 and current == '=' and next == '4' and token == '5'")
    shares = head_logits(MODEL, TINY.test)[TINY.test.labels, 2, 6].double().numpy()
    assert row["median"].item() == pytest.approx(np.median(shares))


@pytest.mark.parametrize("d_head", [1, 2, 5])
def test_the_separator_lies_between_the_classes_for_any_head_size(d_head):
    """The drawn line is where the probe changes its mind: it has the probe's score."""
    model = build_model(ModelConfig(d_embed=6, n_heads=2, d_head=d_head), seed=3)
    analysis = analyze_heads(model, TINY)
    axes = plots.plot_head_outputs(model, analysis, [0]).axes[0]
    clouds = {line.get_color(): np.asarray(line.get_xydata()) for line in axes.lines}
    four, five = clouds[FOUR], clouds[FIVE]
    (line,) = axes.collections[0].get_segments()
    (x, y), (x2, y2) = line
    normal = np.array([-(y2 - y), x2 - x])
    sides = [np.sign((points - [x, y]) @ normal) for points in (four, five)]
    right = max(
        (sides[0] > 0).sum() + (sides[1] < 0).sum(), (sides[0] < 0).sum() + (sides[1] > 0).sum()
    )
    if d_head <= 2:
        assert right / 80 == pytest.approx(analysis.table["s_acc"][0], abs=0.02)


def test_value_vectors_are_shown_only_where_they_are_the_same_everywhere():
    def shown(model):
        figure = plots.plot_head_outputs(model, analyze_heads(model, TINY), [0])
        return [text.get_text() for text in figure.axes[0].texts if text.get_text() in "012"]

    placed = build_model(ModelConfig(d_embed=8, n_heads=4), seed=1)
    assert shown(placed) == ["0", "1", "2"]
    placed.pos_embed.W_pos.data[3] = 1.0
    assert shown(placed) == shown(two_layers(None)) == []


def test_what_cannot_be_drawn_says_why():
    deep = analyze_heads(two_layers(None), TINY)
    with pytest.raises(ValueError, match="no attention ratios"):
        plots.plot_attention_ratios(deep)
    with pytest.raises(ValueError, match="metric: expected one of"):
        plots.plot_pairs(ANALYSIS, "speed")
    with pytest.raises(ValueError, match="there is no head 9"):
        plots.plot_head_outputs(MODEL, ANALYSIS, [9])


def test_one_head_is_enough_for_most_figures():
    model = minimal_model()
    analysis = analyze_heads(model, TINY)
    for figure in (
        plots.plot_pairs(analysis),
        plots.plot_gains(analysis),
        plots.plot_head_outputs(model, analysis),
        plots.plot_interactions(analysis),
    ):
        assert isinstance(figure, Figure)
