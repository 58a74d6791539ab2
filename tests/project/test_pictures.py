"""The pictures of the README show what the code of today draws."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from count01_lens.views.figures import as_bytes
from experiments.tools.pictures import IMAGES, PICTURES, RESULTS, finding, screenshot
from tests.browsers import needs_chromium

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCK = 16  # pixels; letters of another font look alike in blocks of this size
ALIKE = 4.0  # mean difference of grey levels, of 255


def pixels(data: bytes, path: Path) -> np.ndarray:
    """Grey levels of a picture in blocks; an SVG is drawn by the browser first."""
    if data.lstrip().startswith(b"<?xml"):
        drawing = path / "drawing.svg"
        drawing.write_bytes(data)
        data = screenshot(drawing, "", 960, 400)
    picture = Image.open(io.BytesIO(data)).convert("L")
    return np.asarray(picture.resize([side // BLOCK for side in picture.size]), dtype=float)


def difference(one: bytes, other: bytes, path: Path) -> float:
    first, second = pixels(one, path), pixels(other, path)
    return 255.0 if first.shape != second.shape else float(np.abs(first - second).mean())


def test_the_readme_shows_every_picture_that_is_drawn():
    shown = {name for name in PICTURES if f"(docs/images/{name})" in README}
    assert shown == set(PICTURES) == {path.name for path in IMAGES.iterdir()}


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("name", PICTURES)
def test_a_stored_picture_is_what_would_be_drawn_today(name, tmp_path):
    assert difference((IMAGES / name).read_bytes(), PICTURES[name](), tmp_path) < ALIKE


@pytest.mark.slow
@needs_chromium
def test_a_picture_of_other_results_is_noticed(tmp_path):
    stored = (IMAGES / "finding.svg").read_bytes()
    other = finding({"one": RESULTS / "contrast" / "F4", "other": RESULTS / "F4"})
    assert difference(stored, as_bytes(other, "svg"), tmp_path) > 2 * ALIKE
    first, second = ((IMAGES / name).read_bytes() for name in ("report.png", "explorer.png"))
    assert difference(first, second, tmp_path) > 2 * ALIKE
