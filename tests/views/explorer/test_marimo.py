"""The explorer in a real marimo, in a real browser: the page tells Python, and Python the page."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.browsers import chromium_page, needs_chromium
from tests.processes import started

ROOT = Path(__file__).parents[3]
SCREENSHOTS = Path(os.environ.get("COUNT01_SCREENSHOTS", "runs/screenshots"))

pytestmark = [pytest.mark.slow, needs_chromium]

APP = """\
import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
    import count01_lens as cl

    explorer = mo.ui.anywidget(cl.Explorer(cl.example_model(), heads=[3]))
    explorer
    return explorer, mo


@app.cell
def _(explorer, mo):
    explorer.value
    mo.md(f"w01 in Python: {explorer.widget.w01}")
    return


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture
def address(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "marimo", "run", "app.py", "--headless", "--no-token"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    own = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    url = f"http://127.0.0.1:{port}"
    with (
        open(tmp_path / "log", "w") as log,
        started(
            *command, cwd=tmp_path, env={**os.environ, **own}, stdout=log, stderr=subprocess.STDOUT
        ) as server,
    ):
        for _ in range(120):
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except (OSError, urllib.error.URLError):
                assert server.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.5)
        yield url
        server.terminate()
        server.wait(timeout=60)


def test_a_ratio_in_marimo_reaches_python(address):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with chromium_page(viewport={"width": 1400, "height": 1100}) as page:
        page.goto(address)
        page.locator(".c01x .card").first.wait_for()
        page.get_by_text("w01 in Python: None").wait_for()
        assert page.locator('[data-value="chosen"]').inner_text() == "head 3"
        page.locator('[data-value="w01"]').fill("2")
        page.locator('[data-value="w01"]').press("Enter")
        page.get_by_text("w01 in Python: 2").wait_for()
        page.screenshot(path=SCREENSHOTS / "marimo.png")
        assert page.outside == []
