"""A real browser for tests: headless Chromium, which notes all requests and errors of its pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
LOCAL = {"127.0.0.1", "localhost", "::1", ""}
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium on this machine: install Debian's `chromium` to run this",
)


@contextmanager
def chromium_page(**look: Any) -> Iterator[Any]:
    """A page of a browser of its own; `page.outside` and `page.errors` are what went wrong.

    A look is what `new_page` takes, such as `viewport` and `color_scheme`.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(**look)
        page.set_default_timeout(60_000)
        watch(page)
        try:
            yield page
        finally:
            browser.close()


def watch(page: Any) -> None:
    """Note requests to other hosts in `page.outside`, and errors in `page.errors`."""
    page.outside, page.errors = [], []

    def note(request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and (parts.hostname or "") not in LOCAL:
            page.outside.append(request.url)

    page.on("request", note)
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda line: page.errors.append(line.text) if line.type == "error" else None)
