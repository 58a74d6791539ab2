"""Drawings in pages: one that `page` makes, and one that somebody else does."""

import base64
import gzip
import html
import json
import re

import pytest

from count01_lens.views.circuits_page import (
    CIRCUITS_STYLE,
    PAGE_STYLE,
    Drawing,
    Section,
    Table,
    _bundle,
    bundle_script,
    page,
    render_script,
    rounded,
    section_html,
    signed,
    with_ids,
)
from count01_lens.views.document import NO_REQUESTS

EVIL = "</style></script><img src=x>&\"'"
TOKENS = Drawing("ColoredTokens", {"tokens": ["0", EVIL], "values": [0.5, -1.0]}, "Two tokens")
PLAIN = Drawing("ColoredTokens", {"tokens": ["1"], "values": [1.0]})
TABLE = Table(["0", "sum"], {"head 0": [-0.25, -0.25], "all": [-0.25, -0.25]})
SECTIONS = [
    Section("First", ["How to read it."], [TOKENS, PLAIN], TABLE),
    Section("Second", [], [PLAIN]),
]


def test_a_page_is_made_of_the_parts_that_another_page_can_use():
    made = page("A title", SECTIONS)
    drawings = with_ids([TOKENS, PLAIN, PLAIN])
    assert list(drawings) == ["view-0", "view-1", "view-2"]
    parts = [
        NO_REQUESTS,
        PAGE_STYLE,
        CIRCUITS_STYLE,
        section_html(SECTIONS[0]),
        section_html(SECTIONS[1], first=2),
        bundle_script(),
        render_script(drawings),
    ]
    assert all(made.count(part) == 1 for part in parts)
    places = [made.index(part) for part in parts]
    assert places == sorted(places), "policy before all, code after what it fills"
    assert re.findall(r'id="(.+?)"', made.replace(_bundle(), "")) == list(drawings)
    assert re.findall(r'CircuitsVis\.render\("(.+?)"', made) == list(drawings)
    assert page("A title", iter(SECTIONS)) == made


def test_a_drawing_has_a_place_that_its_script_fills():
    written = section_html(Section("Two", [], [TOKENS, PLAIN]), first=3)
    assert (
        '<div class="card ColoredTokens"><p>Two tokens</p><div class="view" id="view-3"></div></div>'
    ) in written
    assert written.count("<p>") == 1
    assert 'CircuitsVis.render("mine", CircuitsVis.ColoredTokens, {' in render_script(
        {"mine": TOKENS}
    )


def test_text_stays_text():
    table = Table([EVIL, "sum"], {EVIL: [1.0, 1.0], f"{EVIL} sum": [1.0, 1.0]})
    written = section_html(Section(EVIL, [EVIL], [Drawing("ColoredTokens", {}, EVIL)], table))
    assert "<img" not in written
    assert written.count(html.escape(EVIL)) == 6
    assert render_script({"mine": TOKENS}).count("</script>") == 1
    assert bundle_script().count("</script") == 1
    assert "<" not in PAGE_STYLE + CIRCUITS_STYLE


def test_a_table_is_coloured_by_its_numbers():
    written = section_html(SECTIONS[0])
    assert '<td style="background: rgb(255 0 0 / 0.50)">−0.2500</td>' in written
    assert "<table" not in section_html(SECTIONS[1])


@pytest.mark.parametrize(
    ("value", "written"), [(1.23456, "+1.23"), (-0.5, "−0.5"), (0.0, "+0"), (1e-9, "+1e−09")]
)
def test_numbers_in_text_have_a_sign(value, written):
    assert signed(value) == written


def test_numbers_in_drawings_have_four_digits():
    assert rounded([[1 / 3, 2.0], [[123456.0]]]) == [[0.3333, 2.0], [[123500.0]]]


def test_a_packed_page_carries_the_same_code_in_a_third_of_the_size():
    plain, packed = (page("title", SECTIONS[:1], packed=packed) for packed in (False, True))
    assert len(packed) < 0.45 * len(plain)
    assert page("title", SECTIONS[:1], packed=True) == packed
    (data,) = re.findall(r'atob\("([^"]+)"\)', packed)
    code = gzip.decompress(base64.b64decode(data)).decode()
    assert f"<script>{code}</script>" == bundle_script()
    (text,) = re.findall(r"text\(\), (\".*\")\]\)", packed)
    assert "<script>\n" + json.loads(text) + "\n</script>" == render_script(
        with_ids(SECTIONS[0].drawings)
    )
