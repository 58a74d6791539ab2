"""Every figure is public, is drawn where the user says, and has heads in the order asked for."""

import inspect
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import style as styles
from matplotlib.figure import Figure

import count01_lens as cl
from tests.helpers import TINY
from tests.views import other_tasks

MODEL = cl.build_model(cl.ModelConfig(d_embed=8, n_heads=4), seed=1)
ANALYSIS = cl.analyze_heads(MODEL, TINY).with_groups()
NAMES = sorted(name for name in cl.__all__ if name.startswith("plot_"))
DEEP = other_tasks.model_of(n_heads=2)


@pytest.fixture(scope="module")
def drawn():
    """A way to draw every figure, and how many panels it has."""
    deep = cl.analyze_heads(DEEP, other_tasks.most_frequent(40))
    compared = cl.compare_heads({"one": MODEL, "other": MODEL}, TINY)
    config = cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=4), epochs=1)
    trained = cl.head_evolution(cl.train(config, splits=TINY, progress=False))
    sweep = cl.sweep_attention(MODEL, "w01", [0, 0.1, 1, np.inf], TINY)
    several = {
        "plot_compared_curves": (compared, len(compared.metrics)),
        "plot_compared_interactions": ((compared, "l_acc"), 2),
        "plot_cooperation": (ANALYSIS, 2),
        "plot_evolution": (trained, 2),
        "plot_logits": ((MODEL, TINY), 4),
        "plot_tables": ((MODEL, 2), 2),
    }
    single = {
        "plot_compared_means": compared,
        "plot_effects": deep,
        "plot_head_outputs": (MODEL, ANALYSIS),
        "plot_sweep": sweep,
    }
    return {name: several.get(name, (single.get(name, ANALYSIS), 1)) for name in NAMES}


def draw(drawn, name, **options):
    given, _ = drawn[name]
    return getattr(cl, name)(*(given if isinstance(given, tuple) else (given,)), **options)


def marks(axes):
    """How much is drawn in axes, without what they have when they are empty."""
    return len(axes.get_children()) - len(Figure().add_subplot().get_children())


def test_all_figures_are_public():
    from count01_lens.views import comparison_plots, plots

    there = {
        name for module in (plots, comparison_plots) for name in dir(module) if name[:5] == "plot_"
    }
    assert there - set(NAMES) == set()
    assert len(NAMES) == 19
    for name in NAMES:
        assert "ax" in inspect.signature(getattr(cl, name)).parameters, name
        assert "    ax: where to draw" in (inspect.getdoc(getattr(cl, name)) or ""), name


def test_the_gallery_has_the_code_of_every_figure():
    page = (Path(__file__).parents[2] / "docs" / "gallery.md").read_text("utf-8")
    cells = "".join(re.findall(r"```{code-cell} ipython3\n(.*?)```", page, re.DOTALL))
    # A small model of one layer has no self-repair to show.
    assert set(re.findall(r"cl\.(plot_\w+)\(", cells)) == set(NAMES) - {"plot_effects"}
    assert "cl.plot_effects(" in page


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_drawn_into_axes_that_are_given(name, drawn):
    n, before = drawn[name][1], dict(matplotlib.rcParams)
    own = Figure(figsize=(4 * n, 4))
    upper, _ = own.subfigures(2, 1)
    grid = upper.subplots(1, n + 1)
    ax = grid[0] if n == 1 else grid[:n]
    assert draw(drawn, name, ax=ax) is own
    assert all(marks(axes) for axes in grid[:n])
    assert not marks(grid[n])
    own.draw_without_rendering()
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", NAMES)
def test_axes_that_do_not_fit_are_refused(name, drawn):
    own, n = Figure(), drawn[name][1]
    grid = own.subplots(1, n + 1)
    for wrong in (grid, [grid[0]] * (n + 1), []):
        with pytest.raises(ValueError, match=rf"ax: expected as many Axes .*, {n}, each once, got"):
            draw(drawn, name, ax=wrong)
    for wrong in (own, "axes", 3, [None] * n):
        with pytest.raises(TypeError, match="ax: expected matplotlib Axes"):
            draw(drawn, name, ax=wrong)
    assert not any(marks(axes) for axes in grid)


@pytest.mark.parametrize("name", NAMES)
def test_without_axes_a_figure_has_the_width_of_the_style(name, drawn):
    usual = draw(drawn, name)
    with styles.context("count01_lens.data.paper"):
        paper = draw(drawn, name)
    assert paper.get_figwidth() == pytest.approx(usual.get_figwidth() * 3.3 / 6.4)
    sizes = [text.get_fontsize() for axes in paper.axes for text in axes.texts]
    assert all(size <= 8.1 for size in sizes)


def test_the_style_for_papers_has_colours_that_all_tell_apart():
    from count01_lens.views.figures import answer_colours

    with styles.context("count01_lens.data.paper"):
        cycle = matplotlib.rcParams["axes.prop_cycle"].by_key()["color"]
        assert matplotlib.rcParams["pdf.fonttype"] == 42
    assert [colour.lower() for colour in cycle] == [c.lower() for c in answer_colours(7)]


def ticks(axes):
    return [text.get_text() for text in axes.get_xticklabels()]


@pytest.mark.parametrize("name", ["plot_pairs", "plot_gains", "plot_interactions"])
def test_maps_have_rows_in_the_order_asked_for(name):
    axes = getattr(cl, name)(ANALYSIS, heads=[3, 0, 2]).axes[0]
    assert ticks(axes) == [text.get_text() for text in axes.get_yticklabels()] == ["3", "0", "2"]
    whole = getattr(cl, name)(ANALYSIS).axes[0].images[0].get_array()
    np.testing.assert_array_equal(
        axes.images[0].get_array().filled(7), whole[np.ix_([3, 0, 2], [3, 0, 2])].filled(7)
    )
    if name == "plot_gains":
        alone = [f"{100 * ANALYSIS.gains[head, head]:.0f}" for head in (3, 0, 2)]
        assert [text.get_text() for text in axes.texts] == alone


def test_bars_and_tiles_are_in_the_order_asked_for():
    axes = cl.plot_shapley(ANALYSIS, heads=[3, 0]).axes[0]
    assert ticks(axes) == ["3", "0"]
    worth = ANALYSIS.shapley("l_acc")
    assert [bar.get_height() for bar in axes.patches[:2]] == [worth[3], worth[0]]

    axes = cl.plot_lifts(ANALYSIS, heads=[2, 1]).axes[0]
    assert ticks(axes) == ["2", "1"]
    first, second = (
        cl.plot_lifts(ANALYSIS, heads=[head]).axes[0].lines[0].get_ydata()[0] for head in (2, 1)
    )
    assert axes.lines[0].get_ydata().tolist() == [first, second]

    panels = cl.plot_logits(MODEL, TINY, heads=[3, 1]).axes
    assert [axes.get_title() for axes in panels] == ["head 3", "head 1"]
    texts = [
        text.get_text() for text in cl.plot_head_outputs(MODEL, ANALYSIS, [2, 0]).axes[0].texts
    ]
    assert [text[:6] for text in texts if text.startswith("head")] == ["head 2", "head 0"]


def test_the_scatter_shows_the_heads_asked_for():
    axes = cl.plot_attention_ratios(ANALYSIS, heads=[3, 1]).axes[0]
    expected = ANALYSIS.table.loc[[3, 1], ["w01", "w02"]]
    np.testing.assert_allclose(axes.collections[0].get_offsets(), expected)
    labels = ", ".join(text.get_text() for text in axes.texts)
    assert sorted(labels.split(", ")) == ["1", "3"]


def test_heads_of_deep_models_have_names():
    deep = cl.analyze_heads(DEEP, other_tasks.most_frequent(40))
    axes = cl.plot_pairs(deep, heads=[(1, 1), (0, 0), 2]).axes[0]
    assert ticks(axes) == ["1.1", "0.0", "1.0"]


@pytest.mark.parametrize(
    ("heads", "error", "words"),
    [
        ([4], ValueError, "heads: there is no head 4; the model has 1 layer"),
        ([-1], ValueError, "heads: there is no head -1"),
        ([1, 2, 1], ValueError, r"heads: expected each head once, got more than once: \[1\]"),
        ([(0, 1), 1], ValueError, r"heads: expected each head once, got more than once: \[1\]"),
        ([], ValueError, "heads: expected at least one head, got none"),
        (2, TypeError, r"heads: expected several such as \[0, 3\]"),
        ("12", TypeError, "heads: expected several"),
        ([1.5], TypeError, "heads: expected numbers"),
        ([None], TypeError, "heads: expected numbers"),
    ],
)
def test_heads_that_are_not_there_are_refused(heads, error, words):
    for name in NAMES:
        if "heads" in inspect.signature(getattr(cl, name)).parameters:
            given = {"plot_logits": (MODEL, TINY), "plot_head_outputs": (MODEL, ANALYSIS)}
            with pytest.raises(error, match=words):
                getattr(cl, name)(*given.get(name, (ANALYSIS,)), heads=heads)
