"""Draw the pictures of the README anew.

python -m experiments.tools.pictures

The finding comes from the stored results of the full reproduction, the screenshots from the models
that ship with the package, by headless Chromium with the letters of matplotlib.
`tests/project/test_pictures.py` draws them again and fails if the stored ones show something else.
"""

import shutil
import tempfile
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib import get_data_path
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

import count01_lens as cl
from count01_lens.common.storage import write_atomically
from count01_lens.views.explorer_data import Explored
from count01_lens.views.explorer_page import explorer_page
from count01_lens.views.figures import FIVE, FOUR, NEUTRAL, NotebookFigure, as_bytes

DOCS = Path(__file__).parents[2] / "docs"
IMAGES = DOCS / "images"
RESULTS = DOCS / "reproduction"

# What is drawn of each group size: where its table is, and what the recipe does.
_PANELS = {
    "small steps, as the paper seems to have trained": RESULTS / "F4",
    "the same model, trained harder": RESULTS / "contrast" / "F4",
}
_LINES = {
    "s_acc": (FOUR, "what they know:\na linear probe on their outputs"),
    "l_acc": (FIVE, "what they answer together:\nthe model with these heads only"),
}
_PATCHED = "#explore?heads=1,8,10&w01=1&w02=inf&n=60,64,40"
_SETTLED = 1500  # milliseconds until a page has drawn all
_LABELS_AT = {"s_acc": (4.6, 0.90), "l_acc": (8.3, 0.545)}


def finding(panels: dict[str, Path] = _PANELS) -> Figure:
    """Draw how right groups of heads are, by their size, with two recipes side by side."""
    figure = NotebookFigure(figsize=(10, 3.9), layout="constrained")
    both = figure.subplots(1, 2, sharey=True)
    for axes, (title, directory) in zip(both, panels.items(), strict=True):
        _draw_groups(axes, pd.read_csv(directory / "groups_by_size.csv"))
        axes.set_title(title, fontsize=11)
    both[0].set_ylabel("right answers on test sentences")
    both[0].yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    for metric, (colour, words) in _LINES.items():
        both[0].text(*_LABELS_AT[metric], words, color=colour, fontsize=10)
    both[1].text(
        16.3, 0.515, "line: median of all groups\nband: 5 % to 95 % of groups",
        color=NEUTRAL, fontsize=9, ha="right",
    )  # fmt: skip
    return figure


def _draw_groups(axes: Axes, by_size: pd.DataFrame) -> None:
    mean = by_size.groupby(["metric", "size"]).mean(numeric_only=True)
    for metric, (colour, _) in _LINES.items():
        rows = mean.loc[metric]
        axes.fill_between(rows.index, rows["0.05"], rows["0.95"], color=colour, alpha=0.15, lw=0)
        axes.plot(rows.index, rows["0.5"], "o-", color=colour, ms=4)
    axes.set(xlabel="heads in the group", xticks=[1, *range(2, 17, 2)], ylim=(0.47, 1.02))
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def screenshot(page: Path, fragment: str, width: int, height: int) -> bytes:
    """Open a page of ours in headless Chromium and take a picture of its first screen."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        raise FileNotFoundError("expected Chromium on this machine, got none: install it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            shown = browser.new_page(viewport={"width": width, "height": height}, bypass_csp=True)
            shown.goto(page.as_uri() + fragment)
            if page.suffix == ".html":
                shown.add_style_tag(content=_own_letters())
            shown.wait_for_timeout(_SETTLED)
            return shown.screenshot()
        finally:
            browser.close()


def _own_letters() -> str:
    """Style with the letters that come with matplotlib: other machines have other fonts."""
    faces = []
    for weight, name in (("400", "DejaVuSans"), ("700", "DejaVuSans-Bold")):
        letters = Path(get_data_path(), "fonts", "ttf", f"{name}.ttf").read_bytes()
        source = f"data:font/ttf;base64,{b64encode(letters).decode()}"
        faces.append(
            f"@font-face {{ font-family: own; font-weight: {weight}; src: url({source}) }}"
        )
    return "\n".join([*faces, "* { font-family: own !important }"])


def report_screen() -> bytes:
    """The first screen of the report of the bundled model."""
    analysis = cl.analyze_heads(cl.example_model()).with_groups()
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "report.html"
        analysis.report(page)
        return screenshot(page, "", 1280, 960)


def explorer_screen() -> bytes:
    """The explorer of the bundled model, with attention of its failed heads set by hand."""
    model = Explored(cl.example_model(), name="bundled model", python="cl.example_model()")
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "explorer.html"
        page.write_text(explorer_page([model], "explorer"), encoding="utf-8")
        return screenshot(page, _PATCHED, 1440, 810)


PICTURES: dict[str, Callable[[], bytes]] = {
    "finding.svg": lambda: as_bytes(finding(), "svg"),
    "report.png": report_screen,
    "explorer.png": explorer_screen,
}


def main() -> None:
    """Draw all pictures and say where they are."""
    for name, draw in PICTURES.items():
        write_atomically(IMAGES / name, draw())
        print(IMAGES / name)


if __name__ == "__main__":
    main()
