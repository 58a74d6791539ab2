"""Drawings in pages: one that `page` makes, and one that somebody else does."""

import base64
import gzip
import json
import re

from markupsafe import escape

from count01_lens.views.circuits_page import (
    Drawing,
    Section,
    Table,
    _bundle,
    bundle_script,
    page,
    render_script,
    section_html,
    with_ids,
)
from count01_lens.views.document import page_file
from tests.helpers import NO_REQUESTS

EVIL = "</style></script><img src=x>&\"'"
STYLES = ["page.css", "circuits.css", "report.css", "notebook.css"]
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
        page_file("page.css"),
        page_file("circuits.css"),
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
    assert written.count(str(escape(EVIL))) == 8
    assert render_script({"mine": TOKENS}).count("</script>") == 1
    assert bundle_script().count("</script") == 1
    assert not [name for name in STYLES if "<" in page_file(name)]


def test_a_table_is_coloured_by_its_numbers():
    written = section_html(SECTIONS[0])
    assert (
        '<td class="number"><span style="background: rgb(255 0 0 / 0.50)">−0.2500</span></td>'
    ) in written
    assert "<table" not in section_html(SECTIONS[1])


def test_a_packed_page_carries_the_same_code_in_a_third_of_the_size():
    plain, packed = (page("title", SECTIONS[:1], packed=packed) for packed in (False, True))
    assert len(packed) < 0.45 * len(plain)
    assert page("title", SECTIONS[:1], packed=True) == packed
    (data,) = re.findall(r'atob\("([^"]+)"\)', packed)
    code = gzip.decompress(base64.b64decode(data)).decode()
    assert f"<script>{code}</script>" == bundle_script()
    (text,) = re.findall(r"text\(\), (\".*\")\]\)", packed)
    assert f"<script>{json.loads(text)}</script>" == render_script(with_ids(SECTIONS[0].drawings))
