"""Text of users in pages and widgets: it is shown as it is, and never becomes markup.

A page made with hostile text is compared with the page of a harmless text of the same length: a
parser must find the same elements, attributes and scripts in both, and the text itself in its place.
"""

import dataclasses
import html
import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup, escape

import count01_lens as cl
from count01_lens import cli
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.tasks.task_file import read_task, write_task
from count01_lens.views import report_figures
from count01_lens.views.attention_view import compare_attention, page_of, show_attention
from count01_lens.views.attribution_view import show_attribution
from count01_lens.views.circuits_page import (
    Drawing,
    Section,
    Table,
    _bundle,
    packed_scripts,
    render_script,
    section_html,
)
from count01_lens.views.document import element, in_frame, in_notebook
from count01_lens.views.explorer_data import Explored
from count01_lens.views.explorer_module import explorer_module, explorer_style
from count01_lens.views.explorer_page import explorer_element, write_explorer
from count01_lens.views.pieces import (
    Image,
    badge,
    bullets,
    download,
    facts,
    figure,
    filters,
    paragraph,
    table,
    tiles,
    unfolding,
)
from count01_lens.views.report_page import Part, report_page
from tests.attacks.hostile_texts import HOSTILE
from tests.attacks.stored_things import Safetensors
from tests.helpers import SVG, TINY
from tests.views.explorer.small_models import SMALL
from tests.views.other_tasks import model_of, most_frequent

MARK = "@the text@"


def twin(text: str) -> str:
    """The same text without the characters that mean something in HTML."""
    return re.sub("""[<>&"'`]""", "x", text)


class Structure(HTMLParser):
    """All that a parser finds in a page, the given text marked."""

    def __init__(self, page: str, text: str):
        super().__init__(convert_charrefs=True)
        self.text = text
        self.found: list[tuple] = []
        self.feed(page.replace(_bundle(), "bundle"))
        self.close()

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), "an attribute twice"
        assert not [name for name, _ in attrs if name.startswith("on")], "a handler"
        self.found.append(("start", tag, [(name, self._marked(value)) for name, value in attrs]))

    def handle_endtag(self, tag):
        self.found.append(("end", tag))

    def handle_data(self, data):
        if self.found and self.found[-1][0] == "text":
            data = self.found.pop()[2] + data
        self.found.append(("text", self._marked(data), data))

    def handle_comment(self, data):
        self.found.append(("comment", data))

    def handle_decl(self, decl):
        self.found.append(("declaration", decl))

    def unknown_decl(self, data):
        self.found.append(("declaration", data))

    def handle_pi(self, data):
        self.found.append(("instruction", data))

    def _marked(self, value):
        if value is None:
            return None
        if value.startswith("data:text/csv"):  # a link to a file; all in it is quoted
            assert re.fullmatch(r"[\w%/,:;+=()*.!~-]*", value, re.ASCII)
            value = unquote(value)
        in_json = re.sub("[<>&']", lambda m: f"\\u{ord(m[0]):04x}", json.dumps(self.text)[1:-1])
        twice = json.dumps(in_json)[1:-1]
        in_csv = self.text.replace('"', '""')
        in_messages = "".join(char if char.isprintable() else "·" for char in self.text)
        for written in (self.text, twice, in_json, in_csv, in_messages):
            value = value.replace(written, MARK)
        return value

    @property
    def structure(self):
        return [entry[:2] if entry[0] == "text" else entry for entry in self.found]


def assert_stays_text(make, text: str) -> None:
    """Whatever `make` makes of a text has the structure that a harmless one gives it."""
    hostile, harmless = make(text), make(twin(text))
    found = Structure(hostile, text)
    assert found.structure == Structure(harmless, twin(text)).structure
    assert MARK in str(found.structure), "the text is not shown"


def test_the_comparison_notices_markup():
    for text in HOSTILE:
        assert_stays_text(lambda text: f"<p>{html.escape(text)}</p>", text)
    noticed = 0
    for make in ("<p>{}</p>", '<p title="{}"></p>', "<script>{}</script>"):
        for text in HOSTILE:
            try:
                assert_stays_text(make.format, text)
            except AssertionError:
                noticed += 1
    assert noticed > 12


def padded(text: str) -> str:
    """Long enough for a cell to be a long one, however it is escaped."""
    return f"{text} and more words, so that every cell is a long one"


BUILDERS = {
    "title": lambda text: report_page(text, "", []),
    "paragraph": lambda text: paragraph(text, text),
    "bullets": lambda text: bullets([text, text]),
    "unfolding": lambda text: unfolding(text, text),
    "badge": lambda text: badge(text, text, "none"),
    "tiles": lambda text: tiles([(text, text)]),
    "facts": lambda text: facts({text: {text: text, "n": 1}}, text),
    "table": lambda text: table(["head", "x"], [[text, text]], text, kinds=[text], table_id=text),
    "filters": lambda text: filters(text, {text: text}, [text], text),
    "figure": lambda text: figure(Image(b"<svg></svg>", "svg"), f"a {text}", text),
    "download": lambda text: download(text, text.encode()),
    "large download": lambda text: download("x.csv", b"1" * 300_000, instead=text),
    "element": lambda text: element("p", text, title=text, data_x=text),
    "attribute of markup": lambda text: element("p", title=Markup(text)),
    "notebook": lambda text: in_notebook(text, Markup("<b>"), text, Markup("</b>")),
    "frame": lambda text: in_frame(Markup(text), text),
    "columns": lambda text: table([text, "x"], [["0", "1"]], "Numbers", look="values"),
    "part": lambda text: report_page(
        text, text, [Part("id", text, [paragraph(text)], [Part("b", text)], mark=text)]
    ),
    "section": lambda text: section_html(
        Section(
            text,
            [text],
            [Drawing("ColoredTokens", {"tokens": [text]}, text)],
            Table([text, "sum"], {text: [1.0, 1.0], f"{text} sum": [1.0, 1.0]}),
        )
    ),
    "script": lambda text: render_script({"view-0": drawing(text)}),
}


def drawing(text: str) -> Drawing:
    return Drawing("AttentionHeads", {"tokens": [text, "0"], "attentionHeadNames": [text]}, text)


@pytest.mark.parametrize("name", BUILDERS)
def test_text_stays_text_in_every_piece_of_a_page(name):
    for text in HOSTILE:
        assert_stays_text(BUILDERS[name], padded(text))


@given(
    st.text(
        st.sampled_from("<>&\"'`/=!-[]{}\\ \n\u2028abonscript:;#60x")
        | st.characters(codec="utf-8"),
        max_size=40,
    )
)
def test_any_text_stays_text(text):
    for make in BUILDERS.values():
        assert_stays_text(make, padded(f"a{text}"))


@given(st.text(max_size=30), st.text(max_size=30))
def test_scripts_carry_any_text_as_data(key, text):
    props = {key: text, "tokens": [text, "</script>", "\u2028"]}
    script = render_script({"view-0": Drawing("ColoredTokens", props)})
    opening = 'CircuitsVis.render("view-0", CircuitsVis.ColoredTokens, '
    written, _ = json.JSONDecoder().raw_decode(script.partition(opening)[2])
    assert written == props
    assert script.count("<script") == script.count("</script") == 1
    assert not set("\u2028\u2029") & set(script)
    assert "<!--" not in script
    packed = packed_scripts({"view-0": Drawing("ColoredTokens", props)})
    assert packed.count("<script") == packed.count("</script") == 1
    code = packed.partition("text(), ")[2].rpartition("]) {")[0]
    assert f"<script>{json.loads(code)}</script>" == script


MODEL = cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3, n_ctx=64), seed=1)
ANALYSIS = cl.analyze_heads(MODEL, TINY)
ALL = padded(" ".join(text for text in HOSTILE if not set(text) & set("\x00\u2028")))


def changed(analysis: HeadAnalysis, text: str) -> HeadAnalysis:
    """An analysis with a text wherever a file could have brought one."""
    words = analysis.counts.assign(readout=text, learned_readout=text)
    return dataclasses.replace(analysis, counts=words, notes=(text, f"a note {text}"))


@pytest.mark.slow
def test_text_stays_text_in_a_report(tmp_path):
    """Notes, read-outs, and all that a checkpoint says of itself: names, values, versions."""

    def make(text: str) -> str:
        path = tmp_path / f"checkpoint {len(list(tmp_path.iterdir()))}.safetensors"
        listed = text.translate({ord(char): "-" for char in '"\\'})  # lists are shown as JSON
        name = f"a{text}"  # names are sorted
        known = {name: {name: text}, "seed": text, "listed": [listed], "more": {"b": [{"c": 1}]}}
        cl.save_checkpoint(
            MODEL, path, info={**known, "recipe": {"name": text, name: {text: None}}}
        )
        change_versions(path, {name: text, "torch": text})
        made = changed(ANALYSIS, text).report(tmp_path / "report.html", checkpoint=path)
        page = made.read_text("utf-8")
        assert escape(listed) in page
        # CSV writes a quotation mark as two.
        return re.sub(r"\([\d.]+ kB\)", "", page.replace(str(escape(listed)), "listed"))

    assert_stays_text(make, ALL)


def test_half_a_character_comes_into_no_page(tmp_path):
    """No page could be written with it."""
    with pytest.raises(ValueError, match=r"info and cfg: expected JSON values only .*surrogates"):
        cl.save_checkpoint(MODEL, tmp_path / "checkpoint", info={"name": "\ud800"})
    path = cl.save_checkpoint(MODEL, tmp_path / "checkpoint", info={"name": "😀"})
    stored = Safetensors.of(path.read_bytes())
    stored.tell(json.dumps(stored.about()).replace("\\ude00", ""))
    path.write_bytes(stored.sealed())
    with pytest.raises(cl.CheckpointError, match=r"checkpoint\.safetensors: .*surrogates"):
        cl.load_checkpoint(path)


def change_versions(path, versions) -> None:
    stored = Safetensors.of(path.read_bytes())
    stored.tell(json.dumps({**stored.about(), "versions": versions}))
    path.write_bytes(stored.sealed())


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\x00" not in text])
def test_text_stays_text_in_a_notebook(text):
    def make(text: str) -> str:
        analysis = changed(ANALYSIS, text)
        counts = analysis.counts.rename(columns={"readout": text})
        return dataclasses.replace(analysis, counts=counts)._repr_html_()

    assert_stays_text(make, text)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text_in_views_of_attention(text):
    view = show_attention(MODEL, "0112=4")
    [section] = view.sections

    def changed_view(text: str):
        drawn = [
            dataclasses.replace(
                d, caption=text, props={**d.props, "tokens": [text] * 7, text: text}
            )
            for d in section.drawings
        ]
        there = Table([text, "sum"], {text: [1.0, 1.0], "all": [1.0, 1.0]})
        new = dataclasses.replace(
            section, heading=text, text=[text, text], drawings=drawn, table=there
        )
        return dataclasses.replace(view, title=text, sections=(new,), heads=[text], tokens=[text])

    assert_stays_text(lambda text: changed_view(text).page, text)
    assert_stays_text(lambda text: page_of(text, [view, changed_view(text)]), text)
    outer = changed_view(text)._repr_html_()
    assert_stays_text(lambda text: hide_frame(changed_view(text)._repr_html_()), text)
    [frame] = [dict(e[2]) for e in Structure(outer, text).found if e[0] == "start"]
    assert set(frame) == {"data-count01", "srcdoc", "title", "style"}
    assert_stays_text(lambda text: inner_page(changed_view(text)._repr_html_()), text)


def hide_frame(outer: str) -> str:
    return re.sub(r'srcdoc=".*?"', 'srcdoc=""', outer, flags=re.DOTALL)


def inner_page(outer: str) -> str:
    return html.unescape(re.search(r'srcdoc="(.*?)"', outer, re.DOTALL)[1])


@pytest.mark.parametrize("show", [show_attention, show_attribution, compare_attention])
def test_a_sentence_that_is_none_draws_nothing(show):
    for text in HOSTILE:
        with pytest.raises(ValueError, match="malformed sentence"):
            show(MODEL, text)


def test_the_view_command_writes_no_page_of_a_hostile_sentence(tmp_path):
    path = tmp_path / "checkpoint"
    cl.save_checkpoint(MODEL, path, info={"name": ALL, ALL: 1})
    for text in HOSTILE:
        with pytest.raises(ValueError, match="malformed sentence"):
            cli.view(path, text, tmp_path / "view.html")
        assert not (tmp_path / "view.html").exists()
    cli.view(path, "0112=", tmp_path / "view.html", w01="2")
    page = (tmp_path / "view.html").read_text("utf-8")
    kinds = [entry[1] for entry in Structure(page, ALL).found if entry[0] == "start"]
    assert kinds.count("script") == 2
    assert "alert(" not in page.replace(_bundle(), "")


@pytest.mark.parametrize("text", HOSTILE)
def test_names_of_models_stay_text_in_the_explorer(text):
    """A checkpoint may have any name; inside the script of data it must not end the script."""
    given = {"models": [{"name": text, "python": f"cl.load_checkpoint({text!r})"}]}
    page = str(explorer_element(given))
    bare = page.replace(explorer_module(), "").replace(explorer_style(), "")
    harmless = str(explorer_element({"models": [{"name": "x", "python": "y"}]}))
    kinds = [
        [entry[1] for entry in Structure(each, text).found if entry[0] == "start"]
        for each in (bare, harmless.replace(explorer_module(), "").replace(explorer_style(), ""))
    ]
    assert kinds[0] == kinds[1]
    stored = re.search(r'class="explorer-data">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(stored) == given


@pytest.fixture
def no_pictures(monkeypatch):
    """Their drawing takes long, and texts in them are letters, not markup."""
    monkeypatch.setattr(report_figures, "as_bytes", lambda figure, kind, **options: SVG)


def tags_of(page: str, text: str) -> list[tuple]:
    """The elements of a page with the names of their attributes, in order."""
    return [
        (entry[1], [name for name, _ in entry[2]])
        for entry in Structure(page, text).found
        if entry[0] == "start"
    ]


def test_names_of_subsets_stay_text_in_a_report(tmp_path, no_pictures):
    """A task in a file may call them anything."""
    text = ALL.replace("\ufeff", "")

    def make(text: str) -> str:
        task = most_frequent(subsets=False)
        rows = {"train": task.questions["answer"].train, "test": task.questions["answer"].test}
        named = {
            part: dataclasses.replace(prompts, subsets={text: np.arange(len(prompts)) % 3 == 0})
            for part, prompts in rows.items()
        }
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        write_task(cl.Task(**named), path)
        analysis = cl.analyze_heads(model_of(n_layers=1), read_task(path))
        assert text in analysis.task.questions["answer"].test.subsets
        return analysis.report(path.with_suffix(".html")).read_text("utf-8")

    assert tags_of(make(text), text) == tags_of(make(twin(text)), twin(text))


def test_names_of_models_stay_text_side_by_side(tmp_path, no_pictures):
    def make(text: str) -> str:
        models = {text: MODEL, "other": cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3))}
        found = cl.compare_heads(models, TINY, groups="ends")
        return found.report(tmp_path / "compare.html").read_text("utf-8")

    assert tags_of(make(ALL), ALL) == tags_of(make(twin(ALL)), twin(ALL))
    assert str(escape(ALL)) in make(ALL)


@pytest.mark.parametrize("answers", [("</script", "<!--\"'&$"), ("<b>&amp;", "'><img/x")])
def test_answers_of_a_task_stay_text(answers, tmp_path, no_pictures):
    """They may be any eight characters; they are in the tables, the explorer and the sentence."""

    def make(answers: tuple[str, str]) -> dict[str, str]:
        task = cl.CountingTask("012", answers, "n1 > n0", **SMALL)
        model = cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3), seed=1, task=task)
        pages = {"report": cl.analyze_heads(model, task).report(tmp_path / "report.html")}
        pages["explorer"] = write_explorer(tmp_path / "explorer.html", [Explored(model, name="a")])
        cl.save_checkpoint(model, tmp_path / "model")
        cli.view(tmp_path / "model", f"0112={answers[0]}", tmp_path / "view.html")
        pages["view"] = tmp_path / "view.html"
        return {
            name: page.read_text("utf-8")
            .replace(explorer_module(), "")
            .replace(explorer_style(), "")
            for name, page in pages.items()
        }

    hostile, harmless = make(answers), make(("A" * 8, "B" * 8))
    for name, page in hostile.items():
        assert tags_of(page, "no text") == tags_of(harmless[name], "no text"), name
