"""The explorer as a page, opened from disk in a real browser: mouse, keyboard, nonsense, links."""

import math
import os
from pathlib import Path

import pytest
import torch

import count01_lens as cl
from count01_lens.views.explorer_data import Explored
from count01_lens.views.explorer_page import write_explorer
from tests.browsers import chromium_page, needs_chromium
from tests.views.explorer.small_models import TASKS, model_for

SCREENSHOTS = Path(os.environ.get("COUNT01_SCREENSHOTS", "runs/screenshots"))

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.fixture(scope="module")
def model():
    return cl.example_model().to(torch.float64)


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    """The page of the bundled model, then of a model of each other counting task."""
    others = [
        Explored(model_for(task, 3, 2.0), task, name=name)
        for name, task in TASKS.items()
        if name != "count01"
    ]
    explored = [Explored(model, name="<b>bundled</b>", python="cl.example_model()"), *others]
    return write_explorer(tmp_path_factory.mktemp("explorer") / "explorer.html", explored)


@pytest.fixture(scope="module")
def browser_page():
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with chromium_page(viewport={"width": 1440, "height": 820}) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield page


@pytest.fixture
def page(browser_page, file):
    """The page as it starts; afterwards nothing may have gone wrong, or asked for anything."""
    opened(browser_page, file)
    yield browser_page
    assert browser_page.errors == []
    assert browser_page.outside == []


def opened(page, file, fragment=""):
    page.goto("about:blank")
    page.goto(file.as_uri() + fragment)
    page.locator(".c01x .card").first.wait_for(state="attached")
    settle(page)


def settle(page):
    """Wait until what was asked for is painted."""
    page.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")


def shown(page, name):
    """A number as it stands after the arrow, if there is one."""
    settle(page)
    return page.locator(f'[data-value="{name}"]').inner_text().split("→")[-1].strip()


def assert_as_in_python(page, expected: cl.Explorer):
    for row in expected.table.itertuples():
        for metric in ("s_acc", "l_acc"):
            value = getattr(row, f"{metric}_patched")
            assert shown(page, f"head-{row.head}-{metric}") == (
                "1" if value == 1 else f"{value:.4f}"
            )
    for name, value in expected.accuracy.loc["patched"].items():
        got = float(shown(page, f"model-{name}").removesuffix(" %"))
        assert got == pytest.approx(100 * value, abs=0.051), name


def test_the_page_starts_with_what_python_computes(page, model):
    assert_as_in_python(page, cl.Explorer(model))
    assert page.locator("strong, select option").first.inner_text() == "<b>bundled</b>"
    page.screenshot(path=SCREENSHOTS / "explorer-light.png")


def test_a_dragged_slider_patches_all_heads(page, model):
    slider = page.locator('[data-value="w01-slider"]')
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    for share in (0.52, 0.55, 0.58):
        page.mouse.move(box["x"] + box["width"] * share, middle)
    page.mouse.up()
    settle(page)
    ratios = page.evaluate("explorer.store.state.ratios")
    assert ratios["1"] > 1
    assert ratios["2"] is None
    assert_as_in_python(page, cl.Explorer(model, w01=ratios["1"]))
    page.screenshot(path=SCREENSHOTS / "explorer-dragged.png")
    page.get_by_label("undo").click()  # a drag is one step
    assert shown(page, "model-answer") == "100 %"
    assert page.evaluate("explorer.store.state.ratios['1']") is None
    page.get_by_label("redo").click()
    settle(page)
    assert page.evaluate("explorer.store.state.ratios['1']") == ratios["1"]


def test_heads_are_chosen_by_mouse_and_by_category(page, model):
    page.locator('[data-head="3"].card').click()
    page.locator('[data-head="6"].card').click(modifiers=["Shift"])
    settle(page)
    assert page.evaluate("explorer.store.state.heads") == [3, 4, 5, 6]
    page.locator('[data-head="4"].card').click()
    settle(page)
    assert page.evaluate("explorer.store.state.heads") == [3, 5, 6]
    page.get_by_label("choose the failed heads").click()
    settle(page)
    table = cl.Explorer(model).table
    failed = table.query("category == 'failed'")["head"].tolist()
    assert page.evaluate("explorer.store.state.heads") == failed
    page.get_by_role("button", name="the paper's patch").click()
    assert_as_in_python(page, cl.Explorer(model, w01=1.0, w02=math.inf, heads=failed))
    page.wait_for_function(
        "!document.querySelector('[data-value=group]').textContent.includes('…')"
    )
    page.screenshot(path=SCREENSHOTS / "explorer-failed.png")


def test_the_keyboard_is_enough(page, model):
    page.locator('[data-value="n1"]').focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("40")
    page.keyboard.press("Enter")
    page.locator(".card").first.focus()
    for key in ("ArrowRight", "ArrowRight", " ", "ArrowDown", " ", "o"):
        page.keyboard.press(key)
    settle(page)
    state = page.evaluate("explorer.store.state")
    columns = page.evaluate(
        "getComputedStyle(document.querySelector('.cards')).gridTemplateColumns"
    )
    below = 2 + len(columns.split())
    assert state["heads"] == [2, below]
    assert state["off"] == [below]
    assert state["counts"][1] == 40
    page.locator('[data-value="w02-slider"]').focus()
    page.keyboard.press("End")
    assert shown(page, "model-answer")
    expected = cl.Explorer(model, w02=math.inf, heads=[2, below], off=[below])
    assert_as_in_python(page, expected)
    page.locator(f'.card[data-head="{below}"]').focus()
    page.keyboard.press("Enter")
    page.locator(".page h2").wait_for()
    assert page.locator(".page h2").inner_text() == f"Head {below}"
    assert page.evaluate("document.activeElement.textContent") == f"Head {below}"
    page.keyboard.press("Escape")
    settle(page)
    assert page.locator(".page").is_hidden()
    assert page.evaluate("document.activeElement.dataset.head") == str(below)
    page.keyboard.press("Control+z")
    settle(page)
    assert page.evaluate("explorer.store.state.page") == below


@pytest.mark.parametrize(("box", "text", "part"), [
    ("sentence", "01x=", "position 2, got 'x'"),
    ("sentence", "<script>alert(1)</script>", "position 0, got '<'"),
    ("sentence", "0110", "position 4, got the end"),
    ("sentence", "01" * 4000 + "=", "tokens, but the model reads"),
    ("n0", "-1", "n0: expected a whole number"),
    ("n0", "many", "n0: expected a whole number"),
    ("w01", "-2", "expected a number from 0 on"),
    ("w01", "<b>", "got <b>"),
])  # fmt: skip
def test_nonsense_is_answered_and_changes_nothing(page, box, text, part):
    before = page.evaluate("JSON.stringify(explorer.store.state)")
    field = page.locator(f'[data-value="{box}"]')
    field.fill(text)
    field.press("Enter")
    field.evaluate("element => element.blur()")
    settle(page)
    assert part in page.locator("[role=alert]").inner_text()
    assert page.evaluate("JSON.stringify(explorer.store.state)") == before
    assert page.locator("script:not([type])").count() == 0
    page.locator('[data-value="n1"]').fill("5")
    page.locator('[data-value="n1"]').press("Enter")
    settle(page)
    assert page.locator("[role=alert]").is_hidden()


def test_two_ratios_of_zero_are_refused(page):
    for name in ("w01", "w02"):
        page.locator(f'[data-value="{name}"]').fill("0")
        page.locator(f'[data-value="{name}"]').press("Enter")
    settle(page)
    assert "at most one can be 0" in page.locator("[role=alert]").inner_text()
    assert page.evaluate("explorer.store.state.ratios") == {"1": 0, "2": None}


def test_a_link_gives_the_same_view_and_code_that_runs(page, file, model, capsys):
    page.locator('[data-value="sentence"]').fill("0110212=")
    page.locator('[data-value="sentence"]').press("Enter")
    page.locator('[data-head="7"].card').click()
    page.locator('[data-value="w01"]').fill("2.5")
    page.locator('[data-value="w01"]').press("Enter")
    page.get_by_role("button", name="keep theirs").click()
    page.get_by_label("switch head 3 off or on").click()
    settle(page)
    state = page.evaluate("JSON.stringify(explorer.store.state)")
    page.get_by_label("copy a link").click()
    link = page.evaluate("navigator.clipboard.readText()")
    page.get_by_label("copy as Python").click()
    code = page.evaluate("navigator.clipboard.readText()")
    page.goto("about:blank")
    page.goto(link)
    page.locator(".card").first.wait_for()
    settle(page)
    assert page.evaluate("JSON.stringify(explorer.store.state)") == state
    expected = cl.Explorer(model, w01=2.5, heads=[7], others="keep", off=[3], sentence="0110212=")
    assert_as_in_python(page, expected)
    assert code.replace("model = cl.example_model()\n", "") == expected.code
    exec(code, {})  # it prints the sentence with an answer, and the accuracy
    said, accuracy = capsys.readouterr().out.split()
    assert said[:-1] == "0110212="
    assert float(accuracy) == pytest.approx(expected.accuracy.loc["patched", "answer"], abs=1e-3)


@pytest.mark.parametrize(
    "fragment",
    [
        "#explore?heads=99",
        "#explore?w01=-1",
        "#explore?n=1,2,x",
        "#explore?model=77",
        "#explore?sentence=%zz",
        "#explore?heads",
    ],
)
def test_a_broken_link_is_answered(page, file, fragment):
    opened(page, file, fragment)
    if fragment != "#explore?heads":
        assert page.locator("[role=alert]").is_visible()
    assert shown(page, "model-answer") == "100 %"


def test_weights_of_tokens(page, model):
    page.get_by_role("button", name="weights per token").click()
    page.locator('[data-value="weight-2"]').fill("0.25")
    page.locator('[data-value="weight-2"]').press("Enter")
    weights = {"[BOS]": 0.0, "0": 1.0, "1": 1.0, "2": 0.25, "=": 0.0}
    assert_as_in_python(page, cl.Explorer(model, weights=weights))


@pytest.mark.parametrize("number", range(1, len(TASKS)))
def test_every_counting_task_can_be_explored(page, number):
    name = [name for name in TASKS if name != "count01"][number - 1]
    task = TASKS[name]
    page.get_by_label("model", exact=True).select_option(index=number)
    settle(page)
    symbol = task.language.symbols[1]
    ratio = f"w{task.language.symbols[0]}{symbol}"
    page.locator(f'[data-value="{ratio}"]').fill("2")
    page.locator(f'[data-value="{ratio}"]').press("Enter")
    page.locator('[data-head="1"].card').click()
    settle(page)
    expected = cl.Explorer(model_for(task, 3, 2.0), task, ratios={symbol: 2.0}, heads=[1])
    assert_as_in_python(page, expected)
    page.locator('[data-head="1"].card').dblclick()
    page.locator(".page h2").wait_for()
    page.screenshot(path=SCREENSHOTS / f"explorer-{name}.png")


def test_the_page_of_a_head_has_its_numbers(page, file, model):
    opened(page, file, "#explore?page=14&w02=inf")
    table = cl.analyze_heads(model).table
    assert shown(page, "page-readout-before") == table["readout"][14]
    assert shown(page, "page-learned") == table["learned_readout"][14]
    expected = cl.Explorer(model, w02=math.inf).table
    assert shown(page, "page-s_acc") == f"{expected['s_acc_patched'][14]:.4f}"
    cells = page.locator("table.heat").first.locator("tr").nth(1).locator("td")
    score = float(cells.nth(1).inner_text().replace("−", "-"))
    assert score == pytest.approx(cl.qk_table(model, 14).loc["=", "0"], rel=6e-3)
    page.screenshot(path=SCREENSHOTS / "explorer-head.png")


def test_a_place_far_too_small_is_no_trap(file, browser_page):
    """A front end may mount it before there is room for it."""
    page = browser_page.context.browser.new_page(viewport={"width": 90, "height": 60})
    for number in range(len(TASKS)):
        opened(page, file, f"#explore?model={number}")
        page.set_viewport_size({"width": 1200, "height": 800})
        assert shown(page, "model-answer").endswith("%")
        page.set_viewport_size({"width": 90, "height": 60})
    page.close()


LOOKS = {
    "dark": {"viewport": {"width": 1440, "height": 820}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "phone-dark": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"},
    "tablet": {"viewport": {"width": 900, "height": 1100}},
}


@pytest.mark.parametrize("look", LOOKS)
def test_it_fits_every_screen(look, file, browser_page):
    page = browser_page.context.browser.new_page(**LOOKS[look])
    for fragment in ("#explore?heads=3&w01=1", "#explore?page=3"):
        opened(page, file, fragment)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.screenshot(path=SCREENSHOTS / f"explorer-{look}{len(fragment)}.png", full_page=True)
    page.close()
