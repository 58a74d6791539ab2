"""The report of several models: the numbers of the comparison, and figures that draw them."""

import re

import numpy as np
import pytest

import count01_lens as cl
from count01_lens.views.comparison_plots import (
    by_worth,
    plot_compared_curves,
    plot_compared_interactions,
    plot_compared_means,
)
from tests.helpers import TINY

MODELS = {name: cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3), seed=seed)
          for seed, name in enumerate(("<b>one</b>", "$two$", "three"))}  # fmt: skip
FOUND = cl.compare_heads(MODELS, TINY)


def test_the_answer_comes_first_and_all_numbers_are_there(tmp_path):
    page = FOUND.report(tmp_path / "compare.html").read_text("utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    lead = page.index('class="lead"')
    assert lead < page.index('id="together"') < page.index('id="models"')
    assert f"{FOUND.interaction('s_acc').mean:.3f}".lstrip("-") in text
    for metric in FOUND.metrics:
        assert FOUND.words[metric] in text
    assert "&lt;b&gt;one&lt;/b&gt;" in page
    assert "<b>one</b>" not in page
    assert page.count("<img") == 5  # means, three metrics with all groups, curves
    for name in ("means.csv", "models.csv", "curves.csv", "interactions_l_acc.csv"):
        assert f'download="{name}"' in page
    assert FOUND.report(tmp_path / "again.html").read_text("utf-8") == page


def test_without_all_groups_there_are_no_maps(tmp_path):
    found = cl.compare_heads(MODELS, TINY, groups="ends")
    page = found.report(tmp_path / "compare.html").read_text("utf-8")
    assert "Pairs of heads, side by side" not in page
    assert page.count("<img") == 2
    with pytest.raises(ValueError, match="metric: expected one with all groups measured"):
        plot_compared_interactions(found, "l_acc")


def test_one_model_with_one_head(tmp_path):
    found = cl.compare_heads({"minimal": cl.minimal_model()}, TINY)
    assert np.isnan(found.interaction("s_acc").mean)
    page = found.report(tmp_path / "one.html").read_text("utf-8")
    assert "Heads of 1 model side by side" in page


def test_maps_have_heads_in_the_order_of_their_worth():
    figure = plot_compared_interactions(FOUND, "l_acc")
    for axes, matrix in zip(figure.axes, FOUND.interactions("l_acc").values(), strict=False):
        drawn = axes.images[0].get_array()
        order = np.argsort(-np.diag(matrix), kind="stable")
        assert drawn[0, 2] == matrix[order[0], order[2]]
        assert np.ma.is_masked(drawn[1, 1])
        assert axes.images[0].get_clim() == figure.axes[0].images[0].get_clim()
    worth = np.diag(by_worth(np.diag([1.0, 3.0, 2.0])))
    assert worth.tolist() == [3, 2, 1]


def test_a_line_for_each_model_and_points_where_only_ends_are_known():
    figure = plot_compared_curves(FOUND)
    curves = FOUND.curves
    for axes, metric in zip(figure.axes, FOUND.metrics, strict=True):
        assert len(axes.lines) == 3
        for drawn, name in zip(axes.lines, MODELS, strict=True):
            rows = curves[(curves["metric"] == metric) & (curves["model"] == name)]
            assert drawn.get_ydata().tolist() == rows["mean"].tolist()
    many = cl.compare_heads(
        {"many": cl.build_model(cl.ModelConfig(d_embed=20, n_heads=20), seed=0)}, TINY
    )
    (drawn,) = plot_compared_curves(many).axes[0].lines
    assert drawn.get_xdata().tolist() == [0, 1, 19, 20]
    assert drawn.get_linestyle() == "None"


def test_points_are_models_and_lines_their_interval():
    axes = plot_compared_means(FOUND).axes[0]
    points = axes.collections[FOUND.metrics.index("roc_auc")].get_offsets()[:, 0]
    expected = FOUND.table["roc_auc_mean_interaction"]
    assert points.tolist() == pytest.approx(expected.tolist())
    interval = FOUND.interaction("roc_auc")
    assert any(
        line.get_xdata() == pytest.approx([interval.low, interval.high])
        for line in axes.lines
        if len(line.get_xdata()) == 2
    )


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a file in a directory that exists"):
        FOUND.report(tmp_path / "nowhere" / "compare.html")
