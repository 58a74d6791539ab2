"""The explorer and the views in a real JupyterLab, in a real browser.

JupyterLab runs a notebook, headless Chromium opens it and moves a slider, and the numbers on the
page are held against the same patch computed in Python. Nothing may ask any host but this machine.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

import count01_lens as cl
from tests.browsers import chromium_page, needs_chromium
from tests.processes import started

SCREENSHOTS = Path(os.environ.get("COUNT01_SCREENSHOTS", "runs/screenshots"))

pytestmark = [pytest.mark.slow, needs_chromium]

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
    # What the page does is heard in Python, which answers in the page.
    'patcher.observe(lambda change: setattr(patcher, "sentence", "000111=") '
    'if change.new == [3] else None, "heads")\nprint("listening")',
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
    lab = [sys.executable, "-m", "jupyterlab", *arguments]
    address = f"http://127.0.0.1:{port}"
    with (
        open(tmp_path / "lab.log", "w") as log,
        started(*lab, env=environment, stdout=log, stderr=subprocess.STDOUT) as server,
    ):
        _wait_for(f"{address}/api?token={token}", tmp_path / "lab.log", server)
        yield f"{address}/lab/tree/patcher.ipynb?token={token}"
        server.terminate()
        server.wait(timeout=60)


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
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with chromium_page(viewport={"width": 1500, "height": 1500}) as page:
        page.set_default_timeout(120_000)
        yield page
        page.screenshot(path=SCREENSHOTS / "last.png")


def test_a_slider_in_jupyterlab_shows_what_python_computes(lab, page):
    page.goto(lab)
    page.locator(".jp-Notebook").wait_for()
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()  # cells run earlier are forgotten
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.get_by_text("listening", exact=True).wait_for()
    page.locator(".c01x .card").first.wait_for()
    expected = cl.Explorer(cl.example_model())
    _assert_shown(page, expected)
    page.locator(".c01x").scroll_into_view_if_needed()
    page.screenshot(path=SCREENSHOTS / "jupyterlab-start.png")

    slider = page.locator('[data-value="w01"]')
    slider.fill("2")
    slider.press("Enter")
    expected.w01 = 2.0
    _wait_for_text(
        page, "model-answer", f"{100 * expected.accuracy.loc['patched', 'answer']:.1f} %"
    )
    _assert_shown(page, expected)

    # One head: Python hears of it, and sets the sentence in the page.
    page.locator('.card[data-head="3"]').click()
    page.wait_for_function("document.querySelector('[data-value=sentence]').value === '000111='")
    expected.heads = [3]
    _assert_shown(page, expected)
    page.screenshot(path=SCREENSHOTS / "jupyterlab-one-head.png")

    # A sentence that is none: a message, no traceback, and the explorer goes on.
    sentence = page.locator('[data-value="sentence"]')
    sentence.fill("01x=")
    sentence.press("Enter")
    page.locator(".c01x [role=alert]").wait_for()
    assert "position 2, got 'x'" in page.locator(".c01x [role=alert]").inner_text()
    sentence.fill("0112=")
    sentence.press("Enter")
    page.locator(".c01x [role=alert]").wait_for(state="hidden")
    assert page.get_by_text("Traceback").count() == 0

    frame = page.frame_locator("iframe").first
    frame.get_by_text("head 3", exact=False).first.wait_for()
    assert page.outside == []
    assert [error for error in page.errors if "c01x" in error or "explorer" in error] == []


def _wait_for_text(page, name: str, end: str) -> None:
    page.wait_for_function(
        "([name, end]) => document.querySelector(`[data-value='${name}']`).textContent.endsWith(end)",
        arg=[name, end],
    )


def _assert_shown(page, expected: cl.Explorer) -> None:
    for row in expected.table.itertuples():
        shown = page.locator(f'[data-value="head-{row.head}-s_acc"]').inner_text()
        value = row.s_acc_patched
        assert shown.split("→")[-1].strip() == ("1" if value == 1 else f"{value:.4f}")
