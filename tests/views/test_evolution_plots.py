"""Figures of heads during training draw the numbers of their tables."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

import count01_lens as cl
from count01_lens.heads.labels import LABELS
from count01_lens.views.evolution_plots import draw_labels, falls_below_zero
from count01_lens.views.figures import FIVE, as_bytes, new_figure
from tests.helpers import TINY

RESULT = cl.train(
    cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=4), epochs=3),
    seeds=[3, 4],
    splits=TINY,
)
FOUND = cl.group_evolution(RESULT)


def panel(name, **options):
    return cl.plot_evolution(FOUND, panels=[name], **options).axes[0]


def line(axes, label):
    (found,) = (each for each in axes.lines if each.get_label() == label)
    return found


def test_lines_of_heads_are_as_wide_as_their_weights():
    axes, rows = panel("heads", model=1), FOUND.heads[FOUND.heads["model"] == 1]
    for head, drawn in enumerate(axes.lines[:4]):
        expected = rows[rows["head"] == head]
        assert drawn.get_xdata().tolist() == [0, 1, 2, 3]
        assert drawn.get_ydata().tolist() == expected["s_acc"].tolist()
        weight = expected["head_weight"].iloc[-1]
        assert drawn.get_linewidth() == pytest.approx(0.4 + 25 * weight)
    assert line(axes, "whole model").get_ydata().tolist() == [
        rows[rows["epoch"] == epoch]["accuracy"].iloc[0] for epoch in range(4)
    ]
    assert "seed 4" in axes.get_title()


def test_a_thin_line_for_each_model_and_a_thick_one_for_their_mean():
    axes = panel("interactions")
    rows = FOUND.table[FOUND.table["metric"] == "l_acc"]
    lines = [rows[rows["model"] == model]["mean_interaction"].to_numpy() for model in (0, 1)]
    mean = line(axes, "l-acc")
    np.testing.assert_allclose(mean.get_ydata(), np.mean(lines, axis=0))
    thin = [each for each in axes.lines if each.get_linewidth() < 0.75]
    assert len(thin) == 8  # two models, four metrics
    np.testing.assert_allclose([each.get_ydata() for each in thin[:2]], lines)
    assert to_hex(mean.get_color()).upper() == FIVE


def test_areas_are_numbers_of_heads():
    axes = panel("labels", metric="roc_auc")
    labels = FOUND.heads["label_roc_auc"]
    shown = [each.get_label() for each in axes.collections]
    assert shown == [label for label in LABELS if (labels == label).any()]
    # Stacked, they reach the number of heads at every epoch.
    assert axes.collections[-1].get_paths()[0].vertices[:, 1].max() == 4
    first = axes.collections[0].get_paths()[0].vertices
    at_end = FOUND.heads[(FOUND.heads["epoch"] == 3) & (labels == shown[0])]
    assert first[first[:, 0] == 3, 1].max() == len(at_end) / 2


def test_where_a_curve_falls_below_zero_for_good():
    epochs = np.array([0.0, 1.0, 2.0, 4.0])
    assert falls_below_zero(np.array([0.1, 0.1, 0.1, -0.1]), epochs) == pytest.approx(3)
    assert falls_below_zero(np.array([0.1, -0.1, 0.3, -0.1]), epochs) == pytest.approx(3.5)
    for stays in ([-1, -2, -3, -4], [1, 2, 3, 4], [-1, 1, -1, 1], [0, 0, -1, -1], [0, 0, 0, 0]):
        assert falls_below_zero(np.array(stays, dtype=float), epochs) is None
    # Of zero at first nobody knows; having been above counts.
    assert falls_below_zero(np.array([0, 0.1, -0.1, -0.1]), epochs) == pytest.approx(1.5)


def test_a_circle_marks_the_turn():
    table = FOUND.table.copy()
    table["mean_interaction"] = np.where(table["epoch"] <= 1, 0.02, -0.02)
    turned = cl.GroupEvolution(table, FOUND.heads)
    axes = cl.plot_evolution(turned, panels=["interactions"]).axes[0]
    circles = [each for each in axes.lines if each.get_marker() == "o"]
    assert [each.get_xdata()[0] for each in circles] == [1.5] * 4


def test_panels_are_those_that_were_measured():
    assert len(cl.plot_evolution(FOUND).axes) == 4
    assert len(cl.plot_evolution(FOUND.heads[RESULT_COLUMNS]).axes) == 2
    ends = cl.group_evolution(RESULT, [0, 3], groups="ends")
    assert len(cl.plot_evolution(ends).axes) == 3
    with pytest.raises(ValueError, match="panels: expected"):
        cl.plot_evolution(ends, panels=["labels"])
    with pytest.raises(ValueError, match="metric: expected one with all groups measured .none is."):
        draw_labels(new_figure(3, 3)[1], ends.heads)
    with pytest.raises(ValueError, match=r"panels: expected some of .*, got none"):
        cl.plot_evolution(FOUND, panels=[])
    with pytest.raises(ValueError, match=r"model: expected one of \[0, 1\], got 2"):
        cl.plot_evolution(FOUND, model=2)
    with pytest.raises(TypeError, match="found: expected what head_evolution"):
        cl.plot_evolution(RESULT.history)


RESULT_COLUMNS = [name for name in FOUND.heads if not name.startswith(("shapley_", "label_"))]


def test_the_log_scale_has_zero_and_the_same_bytes_each_time():
    one, other = (as_bytes(cl.plot_evolution(FOUND, scale="log"), "svg") for _ in range(2))
    assert one == other
    assert panel("accuracy", scale="log").get_xlim() == (0, 3)
