"""Both kinds of report in a real browser, opened from disk."""

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from count01_lens.heads.analyze import analyze_heads
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import save_checkpoint
from count01_lens.models.config import ModelConfig
from count01_lens.views.figures import as_bytes
from tests.helpers import TINY, fake_results, written

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
SCREENSHOTS = Path(os.environ.get("COUNT01_SCREENSHOTS", "runs/screenshots"))
LOOKS = {
    "desktop": {"viewport": {"width": 1280, "height": 1000}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True},
    "dark": {"viewport": {"width": 1280, "height": 1000}, "color_scheme": "dark"},
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no Chromium on this machine: install Debian's `chromium` to run this",
    ),
]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """A report of an analysis with all its parts, and one of a reproduction with a model."""
    directory = tmp_path_factory.mktemp("reports")
    model = build_model(ModelConfig(d_embed=8, n_heads=4), seed=1)
    analysis = analyze_heads(model, TINY)
    analysis.groups()
    drawn = Figure(figsize=(9, 3), layout="constrained")
    drawn.add_subplot().plot([0, 1], [0, 1])
    image = (as_bytes(drawn, "svg"), as_bytes(drawn, "png"))
    results = fake_results(directory / "results", image=image)
    save_checkpoint(model, results / "model")
    written(results, directory / "reproduction.html")
    return {
        "analysis": analysis.report(directory / "analysis.html"),
        "reproduction": directory / "reproduction.html",
    }


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, reports):
    """Open a report; afterwards, nothing may have gone wrong and nothing may have been asked."""
    seen = []

    def open_report(name, look="desktop"):
        page = browser.new_page(**LOOKS[look])
        page.set_default_timeout(60_000)
        notes = {"requests": [], "errors": [], "page": page}
        page.on("request", lambda request: notes["requests"].append(request.url))
        page.on("pageerror", lambda error: notes["errors"].append(str(error)))
        page.on(
            "console",
            lambda line: notes["errors"].append(line.text) if line.type == "error" else None,
        )
        seen.append((reports[name].as_uri(), notes))
        page.goto(reports[name].as_uri())
        page.get_by_text("head 3", exact=False).first.wait_for(state="attached")
        return page

    yield open_report
    for address, notes in seen:
        asked = [url.partition("#")[0] for url in notes["requests"] if not url.startswith("data:")]
        notes["page"].close()
        assert asked == [address]
        assert notes["errors"] == []


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", ["analysis", "reproduction"])
def test_a_report_opens_and_fits(opened, name, look):
    page = opened(name, look)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= LOOKS[look]["viewport"]["width"], "only tables and wide figures scroll sideways"
    broken = "[...document.images].filter(image => !image.complete || !image.naturalWidth).length"
    assert page.evaluate(broken) == 0
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (look != "dark")
    assert page.locator("nav details").evaluate("element => element.open") == (look != "phone")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"report-{name}-{look}.png")


def test_claims_are_filtered_with_the_keyboard(opened):
    page = opened("reproduction")
    shown = page.locator("#claims-table tbody tr:visible")
    assert shown.count() == 20
    buttons = page.get_by_role("group", name="Show claims").get_by_role("button")
    assert [label.strip() for label in buttons.all_inner_texts()] == [
        "all 20", "✓ reproduced 5", "≈ partly 5", "✗ not reproduced 5", "– not measured 5",
    ]  # fmt: skip
    buttons.first.focus()
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    kinds = shown.evaluate_all("rows => rows.map(row => row.dataset.kind)")
    assert kinds == ["not reproduced"] * 5
    pressed = buttons.evaluate_all("all => all.map(one => one.getAttribute('aria-pressed'))")
    assert pressed == ["false", "false", "false", "true", "false"]
    assert page.get_by_role("status").inner_text() == "5 of 20 claims shown"
    page.screenshot(path=SCREENSHOTS / "report-reproduction-filtered.png")
    buttons.first.press("Space")
    assert shown.count() == 20


def test_values_of_a_heat_map_are_read_with_mouse_and_keyboard(opened):
    page = opened("analysis")
    figure = page.locator("figure", has=page.locator(".cells[data-pair='s-acc']"))
    cells, value = figure.locator(".cells"), figure.locator(".value")
    cells.scroll_into_view_if_needed()
    with page.expect_download() as saving:
        figure.locator("a").click()
    pairs = pd.read_csv(saving.value.path()).to_numpy()[:, 1:]
    box, n = cells.bounding_box(), len(pairs)
    page.mouse.move(box["x"] + 1.5 * box["width"] / n, box["y"] + 0.5 * box["height"] / n)
    assert said(value) == ("heads 0 and 1", pytest.approx(pairs[0, 1], abs=6e-4))
    cells.focus()
    page.keyboard.press("ArrowLeft")
    assert said(value) == ("head 0", pytest.approx(pairs[0, 0], abs=6e-4))
    page.keyboard.press("ArrowUp")  # there is nothing above
    page.keyboard.press("ArrowDown")
    assert said(value) == ("heads 1 and 0", pytest.approx(pairs[1, 0], abs=6e-4))
    # The cell that is marked is the one that is named.
    cell = figure.locator(".cell").bounding_box()
    assert cell["y"] == pytest.approx(box["y"] + box["height"] / n, abs=1.5)
    assert cell["x"] == pytest.approx(box["x"], abs=1.5)


def said(value):
    """The heads that a read-out names, and their value."""
    heads, _, number = value.inner_text().partition(": ")
    return heads, float(number)


def test_figures_are_dark_in_the_dark_and_light_on_paper(opened):
    page = opened("analysis", "dark")
    page.wait_for_function("!document.querySelector('[data-dark]')")
    pictures = page.locator(".picture:visible").count()
    page.wait_for_function(f"document.querySelectorAll('.of-both').length === {pictures}")
    assert page.locator(".on-dark:visible").count() == pictures
    assert page.locator(".on-light:visible").count() == 0
    page.emulate_media(media="print")
    assert page.locator(".on-dark:visible").count() == 0
    assert page.locator(".on-light:visible").count() == pictures
    assert opened("analysis").locator(".on-dark").count() == 0


def test_columns_that_a_phone_leaves_out_can_be_asked_for(opened):
    page = opened("analysis", "phone")
    shown = page.locator("#heads thead th:visible")
    few = shown.count()
    page.locator("#heads .all-columns input").first.check()
    assert shown.count() > few
    assert opened("analysis").locator("#heads .all-columns").first.is_hidden()


def test_data_are_saved_from_the_page(opened):
    page = opened("analysis")
    with page.expect_download() as saving:
        page.get_by_role("link", name="heads.csv").click()
    assert saving.value.suggested_filename == "heads.csv"
    assert Path(saving.value.path()).read_text().startswith("layer,head,l_acc,")
    page = opened("reproduction")
    with page.expect_download() as saving:
        page.get_by_role("link", name="C1_numbers.json").first.click()
    assert json.loads(Path(saving.value.path()).read_text())["count"] == 65535


def test_the_first_tab_leads_past_the_contents(opened):
    page = opened("reproduction")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_head_is_chosen_with_the_keyboard(opened):
    page = opened("analysis")
    card = page.locator(".AttentionHeads").first
    tile = card.get_by_role("button").nth(2)
    tile.focus()
    tile.press("Enter")
    card.get_by_text("head 2 Zoomed").wait_for()
    assert card.get_by_text("head 0 Zoomed").count() == 0


def test_paper_shows_what_is_folded(opened):
    page = opened("reproduction")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("main details:not([open])").count() == 0
    assert not page.locator("nav").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("main details:not([open])").count() > 0
