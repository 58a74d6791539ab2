"""Numbers and lists as people write and read them."""

import pytest

from count01_lens.common.parsing import parse_numbers
from count01_lens.common.text import (
    anything,
    duration,
    file_size,
    listed,
    number,
    percent,
    plural,
    ranges,
    rewritten,
    rounded,
    short,
    signed,
)


@pytest.mark.parametrize(
    ("value", "written"),
    [(None, "–"), (float("nan"), "–"), (float("inf"), "∞"), (-float("inf"), "−∞"), (1500, "1,500"),
     (-2.0, "−2"), (0.123456, "0.1235"), (-1.5e-7, "−1.5·10⁻⁷"), (123456.7, "123,500"),
     (2.5e30, "2.5·10³⁰"), (True, "1")],
)  # fmt: skip
def test_numbers(value, written):
    assert number(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [(None, "–"), (1.0, "100 %"), (0, "0 %"), (0.5, "50.0 %"), (0.99996, "99.996 %"),
     (0.0004, "0.04 %"), (-0.25, "−25.0 %"), (1.2, "120.0 %"), (1 - 1e-12, "100.000000 %")],
)  # fmt: skip
def test_only_all_is_100_percent(value, written):
    assert percent(value) == written.replace(" ", "\u00a0")


@pytest.mark.parametrize(
    ("value", "written"),
    [(1.23456, "+1.23"), (-0.5, "−0.5"), (0.0, "+0"), (1e-9, "+1·10⁻⁹"), (-12345, "−12,300")],
)
def test_numbers_in_text_have_a_sign(value, written):
    assert signed(value) == written


def test_numbers_in_drawings_have_four_digits():
    assert rounded([[1 / 3, 2.0], [[123456.0]]]) == [[0.3333, 2.0], [[123500.0]]]


def test_lists_of_numbers_are_short():
    assert ranges([]) == ""
    assert ranges([5, 4, 3]) == "5, 4, 3"
    assert parse_numbers(ranges([0, 1, 2, 7, 9, 10]), "seeds") == [0, 1, 2, 7, 9, 10]
    assert listed(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert listed(range(9)) == "0, 1, 2, 3, ..., 6, 7, 8"
    assert [plural(count, "head") for count in (0, 1, 1500)] == ["0 heads", "1 head", "1,500 heads"]


def test_any_value_of_json_can_be_written():
    values = [True, False, None, 65535, 0.123456, "−x", [1, "é"]]
    written = ["yes", "no", "–", "65,535", "0.1235", "−x", '[1, "é"]']
    assert [anything(value) for value in values] == written
    assert anything(1 / 3, 6) == "0.333333"


def test_cells_of_files_keep_their_words():
    assert rewritten("0.740000001", number) == "0.74"
    assert rewritten("-0.740000001", short) == "-0.74"
    assert rewritten("w01", number) == "w01"


def test_times_and_sizes_have_units():
    times = [None, 59.6, 119.9, 5400, 9000]
    written = ["an unknown time", "60 seconds", "120 seconds", "90 minutes", "2.5 hours"]
    assert [duration(seconds) for seconds in times] == written
    assert [file_size(n) for n in (999, 1500, 2_500_000)] == ["999 bytes", "1.5 kB", "2.5 MB"]
