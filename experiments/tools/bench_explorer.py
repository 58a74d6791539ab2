"""How fast the explorer is in Chromium: from a key on a slider to the painted frame, and its start.

The browser is headless and has no GPU. A press of a key is a real one; the frame is painted when a
message that was posted in its animation frame comes back.
"""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LISTEN = """() => {
  window.times = [];
  document.addEventListener("input", (event) => {
    const start = event.timeStamp;
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => window.times.push(performance.now() - start);
      port2.postMessage(null);
    });
  }, true);
}"""
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_PRESSES = 40


def explorer_one_head() -> dict[str, float]:
    """A key on the slider of w01 until the explorer has painted it, in Chromium: one head."""
    return _presses("#explore?heads=2&w02=20")


def explorer_sixteen_heads() -> dict[str, float]:
    """The same for all sixteen heads, with probes refitted on 7,000 sentences."""
    return _presses("#explore?w02=20")


def explorer_first_paint() -> dict[str, float]:
    """The explorer opened from disk until it is painted, in Chromium; the median of five."""
    with _opened() as (page, address, size):
        seconds = []
        for _ in range(5):
            page.goto("about:blank")
            page.goto(address)
            page.locator(".c01x .card").first.wait_for()
            while page.evaluate(_FIRST_PAINT) is None:
                page.wait_for_timeout(5)
            seconds.append(page.evaluate(_FIRST_PAINT) / 1e3)
    return {"seconds": statistics.median(seconds), "slowest": max(seconds), "file_bytes": size}


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [
    explorer_one_head,
    explorer_sixteen_heads,
    explorer_first_paint,
]
RATIOS: list[tuple[str, str, str]] = []


def _presses(fragment: str) -> dict[str, float]:
    with _opened() as (page, address, _):
        page.goto(address + fragment)
        slider = page.locator('[data-value="w01-slider"]')
        slider.focus()
        for key in ["ArrowRight", "ArrowLeft"] * 8:  # the browser compiles what runs often
            slider.press(key)
        page.evaluate(_LISTEN)
        for press in range(_PRESSES):
            slider.press("ArrowRight")
            while page.evaluate("window.times.length") <= press:
                page.wait_for_timeout(5)
        seconds = [time / 1e3 for time in page.evaluate("window.times")]
    return {"seconds": statistics.median(seconds), "slowest": max(seconds)}


@contextmanager
def _opened() -> Iterator[tuple[Any, str, int]]:
    """A page of a browser, the address of the explorer of the bundled model, and its size."""
    from playwright.sync_api import sync_playwright

    import count01_lens as cl
    from count01_lens.views.explorer_data import Explored
    from count01_lens.views.explorer_page import write_explorer

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "explorer.html"
        write_explorer(path, [Explored(cl.example_model(), python="cl.example_model()")])
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 820})
        yield page, path.as_uri(), path.stat().st_size
        browser.close()
