"""The panel and the views in a real JupyterLab, in a real browser.

JupyterLab runs a notebook, headless Chromium opens it and moves a slider, and the numbers on the
page are held against the same patch computed in Python. Nothing may ask any host but this machine.
"""

import contextlib
import json
import math
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest

import count01_lens as cl
from count01_lens.views.patching import PatchSession
from count01_lens.views.widgets import RATIOS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
SCREENSHOTS = Path(os.environ.get("COUNT01_SCREENSHOTS", "runs/screenshots"))
LOCAL = {"127.0.0.1", "localhost", "::1", ""}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no Chromium on this machine: install Debian's `chromium` to run this",
    ),
]

# The kernel, too, may speak to this machine only.
GUARD = """\
import socket
outside = []
_connect = socket.socket.connect
def connect(self, address):
    if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "localhost", "::1"):
        outside.append(address)
        raise OSError("no way out")
    return _connect(self, address)
socket.socket.connect = connect
"""
CELLS = [
    GUARD,
    "import count01_lens as cl\nmodel = cl.example_model()",
    'cl.show_attention(model, "0110212=4")',
    "patcher = cl.AttentionPatcher(model)\npatcher",
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """A JupyterLab of its own; gives the address of the notebook."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(CELLS)],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )
    (tmp_path / "files").mkdir()
    nbformat.write(notebook, tmp_path / "files" / "patcher.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(8)
    settings = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": str(port),
        "ServerApp.port_retries": "0",
        "ServerApp.root_dir": str(tmp_path / "files"),
        "ServerApp.open_browser": "False",
        "ServerApp.allow_root": "True",
        "IdentityProvider.token": token,
        "LabApp.extension_manager": "readonly",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.news_url": "None",
    }
    places = [
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
        "IPYTHONDIR",
    ]
    own = {name: str(tmp_path / name.lower()) for name in places}
    kernels = tmp_path / "data" / "kernels" / "python3"
    kernels.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "Python 3", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(spec))
    environment = {**os.environ, **own, "JUPYTER_DATA_DIR": str(tmp_path / "data")}
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    with open(tmp_path / "lab.log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *arguments],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api?token={token}", tmp_path / "lab.log", server)
        yield f"{address}/lab/tree/patcher.ipynb?token={token}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def _wait_for(address: str, log: Path, server: subprocess.Popen) -> None:
    for _ in range(240):
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        assert server.poll() is None, log.read_text()
        time.sleep(0.5)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()}")


@pytest.fixture
def page() -> Iterator[object]:
    """A browser page that notes every request to another host, and every error."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": 1500, "height": 1500})
        page.set_default_timeout(120_000)
        page.outside, page.errors = [], []
        page.on("request", lambda request: _note(page.outside, request.url))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        yield page
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / "last.png")
        browser.close()


def _note(outside: list[str], url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("data", "blob", "about") and (parts.hostname or "") not in LOCAL:
        outside.append(url)


def test_a_slider_in_jupyterlab_shows_what_python_computes(lab, page):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.goto(lab)
    page.locator(".jp-Notebook").wait_for()
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()  # cells run earlier are forgotten
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    number = lambda name: page.locator(f'[data-count01="{name}"]')  # noqa: E731
    number("head-0-s_acc-patched").wait_for()

    session = PatchSession(cl.example_model())
    session.update(w01=1.0, w02=math.inf)
    _assert_shown(page, session)
    page.screenshot(path=SCREENSHOTS / "jupyterlab-start.png")

    # Three steps of the slider to the right: w01 grows by 10^0.1 a step.
    slider = page.get_by_role("slider").first
    slider.focus()
    for _ in range(3):
        slider.press("ArrowRight")
    w01 = RATIOS[RATIOS.index(1.0) + 3]
    session.update(w01=w01)
    page.wait_for_function(
        "expected => document.querySelector('[data-count01=code]')?.textContent === expected",
        arg=session.code,
    )
    _assert_shown(page, session)
    page.locator('[data-count01="code"]').scroll_into_view_if_needed()
    page.screenshot(path=SCREENSHOTS / "jupyterlab-slider.png")

    # One head, and a sentence that is none: a message, no traceback, and the panel goes on.
    page.locator(".widget-dropdown select").select_option(label="head 3: successful")
    session.update(heads=[3])
    page.wait_for_function(
        "expected => document.querySelector('[data-count01=code]')?.textContent === expected",
        arg=session.code,
    )
    _assert_shown(page, session)
    sentence = page.get_by_placeholder("such as 0110212=")
    sentence.fill("01x=")
    sentence.press("Enter")
    number("message").wait_for()
    assert "malformed sentence at position 2" in number("message").inner_text()
    page.screenshot(path=SCREENSHOTS / "jupyterlab-message.png")
    sentence.fill("0" * 120 + "1" * 130 + "2" * 50 + "=")
    sentence.press("Enter")
    number("message").wait_for(state="detached")
    page.get_by_text("0 ×120").first.wait_for()
    page.screenshot(path=SCREENSHOTS / "jupyterlab-one-head.png")
    assert page.get_by_text("Traceback").count() == 0

    frame = page.frame_locator("iframe").first
    frame.get_by_text("head 3", exact=False).first.wait_for()
    page.locator("iframe").first.scroll_into_view_if_needed()
    page.screenshot(path=SCREENSHOTS / "jupyterlab-attention.png")

    assert page.outside == []
    assert page.errors == []


def _assert_shown(page, session: PatchSession) -> None:
    shown = lambda name: page.locator(f'[data-count01="{name}"]').inner_text()  # noqa: E731
    for row in session.table.itertuples():
        assert shown(f"head-{row.head}-s_acc-patched") == f"{row.s_acc_patched:.4f}"
        assert shown(f"head-{row.head}-l_acc-patched") == f"{row.l_acc_patched:.4f}"
    for state in ("original", "patched"):
        for name in ("answer", "ties", "others", "end"):
            assert shown(f"model-{state}-{name}") == f"{session.accuracy.loc[state, name]:.4f}"
    assert shown("code") == session.code
