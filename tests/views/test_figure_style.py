"""Figures have one style from their making to their file, and read on light and on dark ground."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib import style as styles
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.comparison import compare_heads
from count01_lens.models.build import build_model
from count01_lens.models.config import ModelConfig
from count01_lens.views import plots
from count01_lens.views.figure_style import DARK_PAPER, seen
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, answer_colours, as_bytes
from tests.helpers import TINY

MODEL = build_model(ModelConfig(d_embed=8, n_heads=4), seed=1)
ANALYSIS = analyze_heads(MODEL, TINY).with_groups()
KINDS = ("png", "svg", "pdf")
# What users do to matplotlib, for all figures to come.
CHANGES = {
    "a dark style": lambda: styles.use("dark_background"),
    "fonts and TeX": lambda: matplotlib.rcParams.update(
        {"font.family": "serif", "font.size": 17, "text.usetex": True}
    ),
    "all sorts": lambda: matplotlib.rcParams.update(
        {
            "figure.figsize": (3, 3), "font.family": "Nothing Sans", "lines.linewidth": 9,
            "path.simplify": False, "path.sketch": (1, 100, 2), "pdf.fonttype": 3,
            "savefig.bbox": "tight", "savefig.dpi": 30, "savefig.facecolor": "red",
            "svg.fonttype": "none", "svg.hashsalt": None,
        }
    ),
}  # fmt: skip
SHOWN = ("cooperation", "pairs_s_acc", "head_outputs", "attention_ratios", "tables_head_0")


@pytest.fixture(scope="module")
def drawn():
    return plots.draw_all(MODEL, ANALYSIS)


@pytest.fixture(scope="module")
def expected(drawn):
    kinds = {name: KINDS if name == "cooperation" else ["svg"] for name in SHOWN}
    return {(name, kind): as_bytes(drawn[name], kind) for name in SHOWN for kind in kinds[name]}


@pytest.mark.parametrize("change", CHANGES)
def test_what_we_make_by_ourselves_is_the_same_in_any_style(change, expected):
    with rc_context():
        CHANGES[change]()
        before = dict(matplotlib.rcParams)
        drawn = plots.draw_all(MODEL, ANALYSIS)
        made = {(name, kind): as_bytes(drawn[name], kind) for name, kind in expected}
        assert dict(matplotlib.rcParams) == before
    assert [key for key in expected if made[key] != expected[key]] == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_figure_is_saved_in_the_style_it_was_made_in(change):
    figure = plots.plot_pairs(ANALYSIS)
    was = as_bytes(figure, "svg")
    with rc_context():
        CHANGES[change]()
        assert as_bytes(figure, "svg") == was


@pytest.mark.slow
def test_reports_are_the_same_in_any_style(tmp_path):
    other = build_model(ModelConfig(d_embed=8, n_heads=4), seed=2)
    comparison = compare_heads({"one": MODEL, "other": other}, TINY)
    reports = {"report": ANALYSIS.report, "comparison": comparison.report}
    usual = {name: report(tmp_path / f"{name}.html") for name, report in reports.items()}
    with rc_context():
        for change in CHANGES.values():
            change()
        changed = {name: report(tmp_path / f"{name}_2.html") for name, report in reports.items()}
    for name in reports:
        assert changed[name].read_bytes() == usual[name].read_bytes(), name


def test_a_figure_that_the_user_asks_for_has_the_style_of_the_user():
    with styles.context("dark_background"):
        figure = plots.plot_shapley(ANALYSIS)
    picture = Image.open(io.BytesIO(as_bytes(figure, "png"))).convert("RGB")
    assert picture.getpixel((1, 1)) == (0, 0, 0)
    # The line at zero is drawn in black, as ink: on black it is white.
    assert to_hex(figure.axes[0].lines[-1].get_color()) == "#ffffff"


def test_what_a_figure_remembers_is_no_setting_for_saving():
    figure = plots.plot_gains(ANALYSIS)
    sizes = []
    for dpi in (50, 100):
        with rc_context({"savefig.dpi": dpi}):
            file = io.BytesIO()
            figure.savefig(file, format="png")
            sizes.append(Image.open(file).width)
    assert sizes[1] == 2 * sizes[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dark", [False, True])
def test_a_figure_gives_the_same_bytes_again_and_again(kind, dark):
    one, other = (plots.plot_cooperation(ANALYSIS) for _ in range(2))
    first = as_bytes(one, kind, dark=dark)
    as_bytes(one, kind, dark=not dark)
    assert as_bytes(one, kind, dark=dark) == first == as_bytes(other, kind, dark=dark)


def test_text_in_a_pdf_is_truetype_and_nothing_says_when(tmp_path):
    figure = plots.plot_pairs(ANALYSIS)
    figure.savefig(tmp_path / "saved.pdf")
    figure.savefig(tmp_path / "saved.eps")
    for data in (as_bytes(figure, "pdf"), (tmp_path / "saved.pdf").read_bytes()):
        assert b"/FontFile2" in data
        assert b"/Type3" not in data
        assert b"/CreationDate" not in data
    assert b"/FontType 42" in (tmp_path / "saved.eps").read_bytes()


def test_only_known_kinds_of_files():
    with pytest.raises(ValueError, match="kind: expected 'png' or 'svg' or 'pdf', got 'gif'"):
        as_bytes(plots.plot_gains(ANALYSIS), "gif")


def on_dark(figure):
    """The pixels of a dark picture before the ground it is meant for."""
    picture = Image.open(io.BytesIO(as_bytes(figure, "png", dark=True))).convert("RGBA")
    ground = Image.new("RGBA", picture.size, DARK_PAPER)
    ground.alpha_composite(picture)
    return np.asarray(ground.convert("RGB"), dtype=float), np.asarray(picture)[..., 3]


def test_a_dark_figure_is_ink_turned_light_on_no_ground(drawn):
    pixels, opacity = on_dark(plots.plot_group_curve(ANALYSIS))
    assert opacity[2, 2] == 0
    assert (pixels.sum(axis=2) < 0.5 * 3 * 255).mean() > 0.9
    assert pixels.max() > 200
    for name in ("cooperation", "groups", "shapley", "logits", "head_outputs"):
        svg = as_bytes(drawn[name], "svg", dark=True)
        assert b"stroke: #000000" not in svg
        assert b"fill: #ffffff" not in svg
        # Not even a tick that came into being as it was drawn is darker than the ground.
        darkest = on_dark(drawn[name])[0].sum(axis=2).min()
        assert darkest > 0.9 * 255 * sum(to_rgb(DARK_PAPER))


def test_numbers_on_coloured_cells_are_no_ink():
    figure = plots.plot_tables(MODEL, 2)
    svg = as_bytes(figure, "svg", dark=True).decode()
    white = sum(text.get_color() == "white" for text in figure.axes[0].texts)
    assert white > 0
    shown = svg[svg.index('id="axes_1"') : svg.index('id="axes_2"')]
    assert shown.count("fill: #ffffff") == white


def test_colours_turn_with_the_paper_and_data_keep_theirs():
    for colour in ("#000000", "#ffffff", NEUTRAL, "#bbbbbb", FOUR, FIVE, END, "#a6cde3"):
        assert seen(colour).lower() == colour.lower()
    with styles.context("dark_background"):
        assert (seen("black"), seen("white"), seen(NEUTRAL)) == ("#ffffff", "#000000", "#aaaaaa")
        assert seen("#a6cde3") == "#00273d"
        for colour in (FOUR, FIVE, END):
            assert np.abs(np.subtract(to_rgb(seen(colour)), to_rgb(colour))).max() < 0.15


# Vienot, Brettel and Mollon (1999), on linear RGB; of tritanopia a common approximation.
BLIND = {
    "deuteranopia": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    "protanopia": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "tritanopia": [[1, 0.1446, -0.1446], [0, 0.8592, 0.1408], [0, 0.8592, 0.1408]],
}


def lab(rgb):
    """CIE L*a*b* of linear RGB under D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    ratio = np.clip(rgb, 0, 1) @ np.transpose(to_xyz) / [0.9505, 1, 1.089]
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    x, y, z = np.moveaxis(f, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def as_seen(colours, eye):
    rgb = np.array([to_rgb(colour) for colour in colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return lab(linear @ np.transpose(BLIND[eye]))


@pytest.mark.parametrize("eye", BLIND)
@pytest.mark.parametrize("dark", [False, True])
def test_colours_of_data_differ_for_colour_blind_eyes(eye, dark):
    colours = answer_colours(7)
    if dark:
        with rc_context({"text.color": "#e4e4e4", "axes.facecolor": DARK_PAPER}):
            colours = [seen(colour) for colour in colours]
    places = as_seen(colours, eye)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)[np.triu_indices(7, 1)]
    assert apart.min() > 10  # just noticed is about 2
    # Red and green alone would not do: the least distance of the two is small.
    red_green = as_seen(["#d62728", "#7f7f00"], "deuteranopia")
    assert np.linalg.norm(red_green[0] - red_green[1]) < 12


@pytest.mark.parametrize("eye", BLIND)
def test_scales_of_colours_rise_evenly_in_lightness(eye):
    steps = np.linspace(0, 1, 33)
    lightness = as_seen(matplotlib.colormaps["viridis"](steps)[:, :3], eye)[:, 0]
    rise = np.diff(lightness)
    assert (rise > 0).all()
    assert rise.max() < 4 * rise.min()
    places = as_seen(matplotlib.colormaps["RdBu"](steps)[:, :3], eye)
    assert (np.diff(places[:17, 0]) > 0).all()
    assert (np.diff(places[16:, 0]) < 0).all()
    # The same strength on both sides: about as light, and of another colour.
    ends, hues = places[[4, -5]], places[[4, -5], 1:]
    assert abs(ends[0, 0] - ends[1, 0]) < 20
    assert np.linalg.norm(hues[0] - hues[1]) > 40
