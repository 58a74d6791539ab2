"""Pages of reports: words stay words, and everybody can read them."""

import base64
import gzip
import html
import io
import re
from urllib.parse import unquote

import pytest
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from count01_lens.views.circuits_page import Drawing, Section, Table, _bundle
from count01_lens.views.document import element, in_frame, in_notebook
from count01_lens.views.pieces import (
    LARGEST_DOWNLOAD,
    LARGEST_SVG,
    Cells,
    Image,
    Shaded,
    badge,
    bullets,
    choose_image,
    download,
    facts,
    figure,
    figures,
    filters,
    paragraph,
    shaded_table,
    table,
    tiles,
    unfolding,
)
from count01_lens.views.report_page import Part, report_page
from tests.helpers import EVIL, Outline

DRAWING = Drawing("ColoredTokens", {"tokens": ["0", EVIL], "values": [0.5, -1.0]}, EVIL)
SHARES = Table(["0", "sum"], {"head 0": [-0.25, -0.25], "all": [-0.25, -0.25]})


def a_page(**changes):
    inner = Part("inner", "Inner & part", [paragraph(EVIL)], mark=badge("✓", "1", "good"))
    drawn = Part("drawn", "Drawn", sections=[Section("First", ["How."], [DRAWING], SHARES)])
    given = {"title": "A & title", "opening": paragraph("Read this."), "parts": [
        Part("outer", "Outer", [paragraph("text")], [inner]), drawn]}  # fmt: skip
    return report_page(**{**given, **changes})


def test_a_page_is_complete_and_always_the_same():
    page = a_page()
    assert page == a_page()
    outline = Outline(page)
    outline.assert_good()
    assert [tag for tag, _ in outline.elements if re.fullmatch(r"h\d", tag)] == [
        "h1", "h2", "h3", "h2", "h3",
    ]  # fmt: skip
    assert page.count("<title>A &amp; title</title>") == 1
    assert page.count(_bundle()) == 1
    assert 'CircuitsVis.render("view-0"' in page
    assert re.findall(r'<a href="#(\w+)">', page) == ["outer", "inner", "drawn"]


def test_a_page_without_drawings_carries_no_code_for_them():
    page = a_page(parts=[Part("only", "Only")])
    assert "CircuitsVis" not in page
    assert len(page) < 20_000


def test_whatever_is_given_as_text_stays_text():
    harmless = str(escape(EVIL))
    written = [
        paragraph(EVIL, EVIL),
        bullets([EVIL]),
        unfolding(EVIL, EVIL),
        badge(EVIL, EVIL, "none"),
        tiles([(EVIL, EVIL)]),
        facts({EVIL: {EVIL: [EVIL]}}, EVIL),
        table([EVIL, EVIL], [[EVIL, EVIL]], EVIL, kinds=[EVIL], table_id=EVIL),
        filters(EVIL, {EVIL: EVIL}, [EVIL], EVIL),
        figure(Image(b"", "svg"), EVIL, EVIL, [download(EVIL, EVIL.encode())]),
        download("x.csv", b"1" * (LARGEST_DOWNLOAD + 1), instead=EVIL),
        element("p", EVIL, title=EVIL),
        element("p", title=Markup(EVIL)),
        in_notebook(EVIL, Markup("<b>"), EVIL),
        in_frame(Markup(EVIL), EVIL),
        a_page(title=EVIL, opening=EVIL, parts=[Part("id", EVIL, mark=EVIL)]),
    ]
    for piece in written:
        assert "<img src=x" not in piece
        assert EVIL not in piece
        assert harmless in piece or harmless.replace("&#34;", "\\&#34;") in piece


def test_tables_say_what_their_cells_are():
    made = table(
        ["head", "s-acc", "of", "text"],
        [["0", "0.98", "50\u00a0%", "x"], ["1", "–", "−3e−05", "y" * 60]],
        "Two heads",
        kinds=["good", "bad"],
    )
    assert '<caption class="unseen">Two heads</caption>' in made
    assert made.count('scope="col"') == 4
    assert made.count('scope="row"') == 2
    assert '<td class="number">0.98</td>' in made
    assert '<td class="number">−3e−05</td>' in made
    assert '<td class="long">x</td>' in made
    assert '<th scope="col" class="number"><span class="whole">s-acc</span></th>' in made
    assert '<tr data-kind="bad">' in made
    assert made.startswith('<div class="scroll" tabindex="0" role="group" aria-label="Two heads">')
    assert "<tbody></tbody>" in table(["head", "text"], [], "Nothing")


def test_filters_count_and_wait_for_javascript():
    made = filters("mine", {"good": "✓ good", "bad": "✗ bad"}, ["good", "good", "odd"], "claims")
    assert re.findall(r'data-show="(\w*)" aria-pressed="(\w+)"', made) == [
        ("", "true"), ("good", "false"), ("bad", "false"),
    ]  # fmt: skip
    assert re.findall(r'class="count">(\d)<', made) == ["3", "2", "0"]
    assert made.startswith('<div class="filters" data-table="mine" hidden>')
    assert 'role="status"' in made


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_figures_keep_their_size_and_their_words(kind):
    buffer = io.BytesIO()
    Figure(figsize=(4, 3)).savefig(buffer, format=kind, dpi=150)
    image = Image(buffer.getvalue(), kind)
    assert image.size == (384, 288)
    made = figure(image, "A figure", "How to read it.", [download("a.csv", b"x\n1\n")])
    assert 'alt="A figure"' in made
    assert 'width="384" height="288"' in made
    assert base64.b64decode(re.search(r"base64,([^\"]+)", made)[1]) == image.data
    assert "wide" not in made
    assert 'class="wide"' in figure(wide_image(), "A wide figure", "")
    assert figures([made]).count("<figure") == 1
    with pytest.raises(ValueError, match="alt: expected words that stand for the figure"):
        figure(image, " ", "How to read it.")


def test_figures_may_have_a_dark_form_and_values():
    light, dark = Image(b"<svg>light</svg>", "svg"), Image(b"<svg>dark</svg>", "svg")
    cells = Cells((0.1, 0.05, 0.7, 0.85), "gain", "s-acc alone", signed=True)
    made = figure(light, "A map", "", dark=dark, cells=cells)
    assert made.count("<img") == 1
    packed = re.search(r'data-dark="([^"]+)" data-media="image/svg\+xml"', made)[1]
    assert gzip.decompress(base64.b64decode(packed)) == dark.data
    assert figure(light, "A map", "", dark=dark, cells=cells) == made
    place = "left: 10.00%; top: 5.00%; width: 70.00%; height: 85.00%"
    assert f'class="cells" style="{place}" data-pair="gain" data-single="s-acc alone"' in made
    assert 'data-signed="1"' in made
    plain = figure(light, "A map", "")
    assert plain.count("<img") == 1
    assert "cells" not in plain
    assert "data-dark" not in plain


def test_shaded_cells_tell_their_level():
    made = shaded_table(["0", "<1>"], [("QK", [Shaded("2", 5), Shaded("−1", -2)])], "Tables")
    assert '<td class="p5">2</td><td class="n2">−1</td>' in made
    assert '<th scope="col">&lt;1&gt;</th>' in made
    assert 'aria-label="Tables"' in made
    assert "class" not in shaded_table(["0"], [("QK", [Shaded("0")])], "T").split("<tbody>")[1]


def test_columns_may_come_later():
    made = table(["head", "s-acc", "w01"], [["0", "1", "2"]], "Heads", later=["w01"])
    assert "Show 1 more column</label>" in made
    assert '<td class="number later">2</td>' in made
    assert '<td class="number">1</td>' in made
    assert "checkbox" not in table(["head"], [["0"]], "Heads")


def wide_image():
    buffer = io.BytesIO()
    Figure(figsize=(12, 2)).savefig(buffer, format="png", dpi=150)
    return Image(buffer.getvalue(), "png")


def test_a_large_svg_gives_way_to_a_png():
    small, large = b"<svg>", b"<svg>" + b" " * LARGEST_SVG
    assert choose_image(lambda: small, lambda: pytest.fail("drawn in vain")) == Image(small, "svg")
    assert choose_image(lambda: large, lambda: b"png") == Image(b"png", "png")
    assert Image(small, "svg").size is None
    assert "width" not in figure(Image(small, "svg"), "Some figure", "")


def test_a_download_carries_every_byte_or_says_where_they_are():
    text = 'a,b\n"x, ""y""",−1.5 % & <é>\n'
    link = download("data.csv", text.encode())
    address = re.search(r'href="data:text/csv;charset=utf-8,([^"]*)"', link)[1]
    assert unquote(html.unescape(address)) == text
    assert 'download="data.csv"' in link
    assert "application/json" in download("data.json", b"{}")
    large = download("data.csv", b"1" * 1_500_000, instead="see data.csv there")
    assert large == ("<span>data.csv: 1.5 MB, too large to carry here; see data.csv there</span>")
