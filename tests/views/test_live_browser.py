"""The page of a training in a real browser: while it runs, when it ends, and when its server dies."""

import json
import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

import count01_lens as cl
from count01_lens.views.live_module import live_module
from tests.browsers import chromium_page, needs_chromium
from tests.helpers import PROGRAM, QUICK, SPLITS
from tests.processes import started

SCREENSHOTS = Path(os.environ.get("COUNT01_SCREENSHOTS", "runs/screenshots"))
RECIPE = ["--seeds", "0-2", "--heads", "4", "--d-embed", "8"]

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.fixture
def training(tmp_path):
    """Start the command; gives its process and the address of its page."""
    with ExitStack() as running:

        def start(*options):
            command = [PROGRAM, "train", "--out", tmp_path / "run", "--live", *RECIPE, *options]
            pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
            process = running.enter_context(started(*command, **pipes))
            return process, process.stderr.readline().split("live: ")[1].strip()

        yield start


def wait_for(page, state):
    page.locator(f'.c01live[data-state="{state}"]').wait_for(timeout=300_000)


def number(page, column):
    return page.locator(f'[data-value="{column}"]').inner_text()


def test_a_training_from_its_beginning_to_after_its_end(training, tmp_path):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    process, address = training("--epochs", "40")
    with chromium_page(viewport={"width": 1200, "height": 760}) as page:
        page.goto(address)
        wait_for(page, "training")
        page.get_by_text(re.compile(r"^epoch \d+ of 40, \d+ s left$")).wait_for()
        page.screenshot(path=SCREENSHOTS / "live.png", full_page=True)
        wait_for(page, "finished")
        process.communicate(timeout=60)
        assert process.returncode == 0

        history = cl.load_run(tmp_path / "run").history
        last = history[history["epoch"] == 40].set_index("model")
        page.get_by_text(re.compile(r"^training finished: 40 epochs in \d+ s$")).wait_for()
        for column in ("validation_accuracy", "test_accuracy", "test_eos_accuracy"):
            values = last[column]
            mean, lowest = (f"{v:.4f}" if v < 1 else "1" for v in (values.mean(), values.min()))
            several = f"{mean} (lowest {lowest})"
            assert number(page, column) == (mean if values.nunique() == 1 else several)
        # The program is gone; the page goes on to answer.
        page.get_by_label("model").select_option("seed 2")
        assert float(number(page, "loss")) == pytest.approx(last["loss"][2], rel=1e-3)
        title = "s-acc of each head, seed 2"
        page.get_by_text(title).wait_for()
        page.get_by_label("model").select_option("seed 0")
        heads = page.locator(".wide svg path")
        assert heads.count() == 4
        plot = page.locator(".wide .plot").bounding_box()
        page.mouse.move(plot["x"] + plot["width"] - 16, plot["y"] + 60)
        told = page.locator(".wide .told").inner_text()
        found = re.search(r"epoch (\d+)\s+head (\d), weight [\d.]+ %, s-acc ([\d.]+)$", told)
        epoch, head, s_acc = (float(text) for text in found.groups())
        table = cl.head_evolution(cl.load_run(tmp_path / "run"), [int(epoch)])
        row = table[(table["model"] == 0) & (table["head"] == head)]
        assert s_acc == pytest.approx(row["s_acc"].item(), abs=1e-4)
        page.set_viewport_size({"width": 390, "height": 800})
        page.emulate_media(color_scheme="dark")
        page.locator(".c01live.narrow.dark").wait_for()
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        page.screenshot(path=SCREENSHOTS / "live_phone_dark.png", full_page=True)
        page.get_by_label("light or dark").click()
        page.locator(".c01live.narrow:not(.dark)").wait_for()
        assert (page.errors, page.outside) == ([], [])


def test_a_program_that_is_killed_leaves_a_page_that_says_so(training):
    process, address = training("--epochs", "100000")
    with chromium_page() as page:
        page.goto(address)
        wait_for(page, "training")
        process.kill()
        page.get_by_text("No connection: the program that trains has ended").wait_for()
        assert float(number(page, "loss").split()[0]) > 0
        assert page.outside == []


# What a notebook gives to `render`: traits, and messages while a cell runs.
NOTEBOOK = """\
<!doctype html><body data-jp-theme-light="false"><div id="place"></div>
<script type="application/json" id="given">{given}</script>
<script type="module">
{module}
const given = JSON.parse(document.querySelector("#given").textContent);
const heard = {{}};
const traits = {{ about: given.about, data: given.start }};
const model = {{ get: (name) => traits[name], on: (name, f) => {{ heard[name] = f; }}, off: () => {{}} }};
globalThis.close = render({{ model, el: document.querySelector("#place") }});
globalThis.send = () => heard["msg:custom"](given.more);
globalThis.set = () => {{ traits.data = given.end; heard["change:data"](); }};
</script>
"""


def test_the_widget_takes_messages_and_traits(tmp_path):
    class Followed:
        def follow(self, training):
            self.training, self.told = training, [training.news()]

        def changed(self):
            sent = self.told[-1]["from"][0] + len(self.told[-1]["lines"])
            self.told.append(self.training.news(sent))

    viewer = Followed()
    cl.train(QUICK, seeds=[0, 1], splits=SPLITS, progress=False, live=viewer)
    training, told = viewer.training, viewer.told
    given = {"about": training.about, "start": told[0], "more": told[1], "end": training.news()}
    text = NOTEBOOK.format(given=json.dumps(given), module=live_module())
    (tmp_path / "page.html").write_text(text)
    with chromium_page() as page:
        page.goto((tmp_path / "page.html").as_uri())
        page.get_by_text("epoch 0 of 3", exact=True).wait_for()
        assert number(page, "loss") == "–"
        page.locator(".c01live.dark").wait_for()
        page.evaluate("() => send()")
        page.get_by_text(re.compile("^epoch 1 of 3, ")).wait_for()
        page.evaluate("() => set()")
        wait_for(page, "finished")
        mean, highest = map(float, re.findall(r"[\d.]+", number(page, "loss")))
        assert mean == pytest.approx(sum(training.lines[-1]["loss"]) / 2, rel=1e-3)
        assert highest == pytest.approx(max(training.lines[-1]["loss"]), rel=1e-3)
        page.evaluate("() => close()")
        assert page.locator("#place").inner_html() == ""
        assert (page.errors, page.outside) == ([], [])
