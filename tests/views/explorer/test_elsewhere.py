"""The explorer where it is a part of something: reports, the docs' front page, the command line."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

import count01_lens as cl
from count01_lens import cli
from count01_lens.views.explorer_data import Explored, explorer_data
from count01_lens.views.explorer_page import explorer_part
from tests.browsers import chromium_page, needs_chromium
from tests.helpers import TINY, two_layers

ROOT = Path(__file__).parents[3]


def test_the_command_writes_one_small_file(tmp_path):
    cl.save_checkpoint(cl.example_model(), tmp_path / "model")
    cli.explore(tmp_path / "model", tmp_path / "explorer.html")
    page = (tmp_path / "explorer.html").read_text("utf-8")
    assert len(page) < 1_000_000
    assert "cl.load_checkpoint(" in page
    assert not re.search(r"https?://|@import|url\(", page)
    assert "default-src 'none'" in page


def test_the_command_refuses_models_to_which_counts_do_not_apply(tmp_path):
    cl.save_checkpoint(two_layers(), tmp_path / "deep")
    with pytest.raises(ValueError, match="2 layers; .*count01-lens analyze and view"):
        cli.explore(tmp_path / "deep", tmp_path / "explorer.html")
    assert not (tmp_path / "explorer.html").exists()


def test_models_that_share_their_data_have_it_once():
    models = [cl.minimal_model(), cl.cooperative_model(), cl.ensemble_model()]
    data = explorer_data([Explored(model) for model in models])
    assert len(data["splits"]) == 1
    assert [entry["nHeads"] for entry in data["models"]] == [1, 2, 4]


def test_all_groups_give_shapley_values_and_neighbours():
    model = cl.cooperative_model()
    analysis = cl.analyze_heads(model, TINY)
    few = explorer_data([Explored(model, TINY, analysis)])["models"][0]["analysis"]
    many = explorer_data([Explored(model, TINY, analysis.with_groups())])["models"][0]["analysis"]
    assert few["shapley"] == few["interactions"] == {}
    assert {"s_acc", "l_acc"} <= set(many["shapley"])
    assert "cooperate" in many["answer"]


def test_reports_of_other_tasks_have_no_explorer():
    model = cl.cooperative_model()
    analysis = cl.analyze_heads(model, TINY)
    assert explorer_part(analysis, None, analysis.task) is None
    assert explorer_part(analysis, model, None) is None
    assert explorer_part(analysis, model, analysis.task) is not None


@pytest.mark.slow
@needs_chromium
def test_a_report_has_the_explorer_with_the_numbers_of_its_tables(tmp_path):
    model = cl.build_model(cl.ModelConfig(d_embed=8, n_heads=4), seed=1)
    analysis = cl.analyze_heads(model, TINY).with_groups()
    path = analysis.report(tmp_path / "report.html")
    for look in ({"color_scheme": "light"}, {"color_scheme": "dark"}):
        with chromium_page(viewport={"width": 1300, "height": 900}, **look) as page:
            page.goto(path.as_uri())
            page.locator(".c01x .card").first.wait_for()
            for head, s_acc in enumerate(analysis.table["s_acc"]):
                shown = page.locator(f'[data-value="head-{head}-s_acc"]').inner_text()
                assert shown == ("1" if s_acc == 1 else f"{s_acc:.4f}")
            page.locator('.card[data-head="1"]').dblclick()
            page.get_by_text("Neighbours by Shapley interaction of s-acc").wait_for()
            page.locator(".c01x").scroll_into_view_if_needed()
            page.screenshot(path=tmp_path / "report.png")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.errors == []
            assert page.outside == []


@pytest.mark.slow
@needs_chromium
def test_the_front_page_of_the_docs_has_the_controls_to_choose_from(tmp_path):
    (block,) = re.findall(
        r"```{raw} html\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL
    )
    (tmp_path / "index.html").write_text(f"<!doctype html><title>docs</title>{block}")
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    app = SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=str(tmp_path))
    conf["write_front_page_explorer"](app)
    expected = {"minimal": 1, "cooperative": 2, "ensemble": 4, "bundled": 16}
    with chromium_page(viewport={"width": 1200, "height": 900}) as page:
        page.goto((tmp_path / "index.html").as_uri())
        frame = page.frame_locator("iframe.explorer")
        frame.locator(".card").first.wait_for()
        choice = frame.get_by_label("model", exact=True)
        names = choice.locator("option").all_inner_texts()
        for name, heads in expected.items():
            (label,) = [each for each in names if each.startswith(name)]
            choice.select_option(label=label)
            frame.locator(f".card:nth-child({heads}):last-child").wait_for()
            assert frame.locator('[data-value="model-answer"]').inner_text().startswith("100")
        assert page.errors == []
        assert page.outside == []
