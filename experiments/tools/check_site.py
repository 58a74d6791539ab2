"""Open every page of the built documentation from disk, as a reader without a network would.

    python -m experiments.tools.check_site docs/_build/html

A page must not ask another host for anything, nor report an error, and the search must find the
pages that speak of a word. `make docs` runs this; without Chromium it says so and checks nothing.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]
WORD = "ablate"  # pages speak of it, and so must the results of a search
LONGEST_SEARCH = 20_000  # milliseconds
LOCAL = ("file:", "data:", "blob:", "about:")


def problems(site: Path, word: str = WORD) -> list[str]:
    """Return what is wrong with the pages of a site, each with the name of its page."""
    from playwright.sync_api import Error, sync_playwright

    site = site.resolve()  # a relative path has no address
    found: list[str] = []
    seen: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page()
        page.on("request", lambda request: _note_request(request, seen))
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("console", lambda line: _note_error(line, seen))
        for file in sorted(site.rglob("*.html")):
            page.goto(file.as_uri(), wait_until="networkidle")
            found += [f"{file.relative_to(site)}: {what}" for what in seen]
            seen.clear()
        page.goto(f"{(site / 'search.html').as_uri()}?q={word}", wait_until="networkidle")
        try:
            page.wait_for_selector("#search-results li a", timeout=LONGEST_SEARCH)
        except Error:
            seen.append("nothing was found")
        found += [f"search.html?q={word}: {what}" for what in seen]
        browser.close()
    return found


def chromium() -> str | None:
    """Return the path of Chromium, None if there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def _note_request(request: Any, seen: list[str]) -> None:
    if not request.url.startswith(LOCAL):
        seen.append(f"asks for {request.url}")


def _note_error(line: Any, seen: list[str]) -> None:
    if line.type == "error":
        seen.append(f"error: {line.text}")


def main() -> None:
    """Check the site; the exit code is 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="the directory with index.html")
    site = parser.parse_args().site
    if not (site / "index.html").is_file():
        sys.exit(f"{site}: expected the directory of a built site, found no index.html in it")
    if chromium() is None:
        print("The pages were not opened: install Chromium to check them")
        return
    found = problems(site)
    print(*found, sep="\n", end="\n" * bool(found))
    if found:
        sys.exit(1)
    print("Every page opens from disk without a request to another host, and the search works")


if __name__ == "__main__":
    main()
