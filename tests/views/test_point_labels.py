"""Labels of a scatter do not pile up, whatever the points."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from count01_lens.views.figures import new_figure
from count01_lens.views.point_labels import in_runs, label_points


def labelled(places, names=None, log=True):
    figure, axes = new_figure(6.0, 4.8)
    axes.scatter(*places.T, s=70)
    if log:
        axes.set(xscale="log", yscale="log")
    axes.set_title("a title")
    label_points(axes, places, names or [str(number) for number in range(len(places))])
    FigureCanvasAgg(figure).draw()
    return axes


def scattered(n, seed, spread=1.0):
    return 10 ** np.random.default_rng(seed).normal(0, spread, (n, 2))


@pytest.mark.parametrize("n", [1, 2, 16, 36, 64])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_label_is_on_another_and_every_head_is_named_once(n, seed):
    axes = labelled(scattered(n, seed))
    # An annotation's own extent would have its line in it.
    boxes = [Text.get_window_extent(text).padded(-1) for text in axes.texts]
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
    named = [int(each) for text in axes.texts for each in numbers(text.get_text())]
    assert sorted(named) == list(range(n))


def numbers(text):
    for part in text.replace("\n", " ").split(", "):
        first, _, last = part.partition("–")
        yield from range(int(first), int(last or first) + 1)


def test_points_that_hide_each_other_share_a_label():
    places = np.array([[1, 1], [1.01, 1], [1, 1.01], [100, 1], [1, 100], [1.01, 100]])
    texts = [text.get_text() for text in labelled(places).texts]
    assert sorted(texts) == ["0–2", "3", "4, 5"]


def test_points_that_stand_apart_have_their_labels_beside_them():
    axes = labelled(np.array([[1, 1], [10, 10], [100, 1], [1, 100], [100, 100]], dtype=float))
    assert len(axes.texts) == 5
    for text in axes.texts:
        assert np.linalg.norm(text.get_position()) < 20  # points
        assert text.arrow_patch is None


def test_a_label_that_stands_off_has_a_line_to_its_point():
    axes = labelled(scattered(64, 0, 0.3))
    lines = [text for text in axes.texts if text.arrow_patch is not None]
    assert lines
    for text in axes.texts:
        far = np.linalg.norm(text.get_position()) > 80
        assert text.arrow_patch is not None or not far


def test_the_same_points_have_the_same_labels():
    one, other = (labelled(scattered(30, 3)) for _ in range(2))
    assert [(t.get_text(), t.get_position()) for t in one.texts] == [
        (t.get_text(), t.get_position()) for t in other.texts
    ]


def test_labels_in_axes_without_a_layout():
    figure = Figure()
    axes = figure.add_axes((0.3, 0.3, 0.4, 0.4))
    places = scattered(5, 1)
    axes.scatter(*places.T)
    label_points(axes, places, list("01234"))
    assert len(axes.texts) >= 1
    assert axes.get_position().x0 == pytest.approx(0.3)


def test_numbers_in_a_row_are_written_as_a_run():
    assert in_runs(["2", "5", "8", "10", "9"]) == "2, 5, 8–10"
    assert in_runs(["3"]) == "3"
    assert in_runs(["3", "4"]) == "3, 4"
    assert in_runs(["0", "1", "2", "3"]) == "0–3"
    assert in_runs(["1.2", "1.3", "1.4"]) == "1.2, 1.3, 1.4"
