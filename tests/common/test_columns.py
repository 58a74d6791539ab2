"""Tables fit the width that there is, and no cell is cut."""

import pytest

from count01_lens.common.columns import as_text, columns_of, fitting, screen_width

TABLE = {
    "head": [0, 11],
    "category": ["failed", "successful"],
    "w01": [4677.2, float("inf")],
    "std": [1.311e-5, float("nan")],
    "readout": ["n1 − 31.197·n0 + 14.063·n2 − 42 > 0", "n1 − n0 + 0.001·n2 − 0.545 > 0"],
}


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_all_is_there_in_lines_that_fit(width):
    text = as_text(columns_of(TABLE), width, wide=True)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    for cell in ("successful", "4,677", "∞", "0.00001311", "–", TABLE["readout"][0]):
        assert cell in words


def test_what_does_not_fit_is_left_out_the_last_first():
    narrow = as_text(columns_of(TABLE), 40)
    assert narrow.split()[:4] == ["head", "category", "w01", "std"]
    assert "readout" not in narrow
    assert "readout" in as_text(columns_of(TABLE), 80)


def test_each_table_begins_with_the_key():
    tables = fitting(columns_of({"head": [1]} | {f"column_{n}": ["x" * 30] for n in range(3)}), 40)
    assert [[column.name for column in table] for table in tables] == [
        ["head", f"column_{n}"] for n in range(3)
    ]


def test_a_long_cell_goes_on_in_the_next_line():
    text = as_text(columns_of({"head": [0], "readout": ["n1 > n0 and " * 10 + "so on"]}), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert " ".join(text.split()).count("n1 > n0 and") == 10
    assert "so on" in text


def test_the_width_is_that_of_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "123")
    assert screen_width() == 123
    monkeypatch.setenv("COLUMNS", "3")
    assert screen_width() == 40
