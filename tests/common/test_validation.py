import math

import numpy as np
import pytest

from count01_lens.common.parsing import parse_axis, parse_ratio
from count01_lens.common.validation import check_int, check_number


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_come_back_as_plain_ones(value):
    assert type(check_int("n", value, at_least=3)) is int
    assert check_int("n", value, at_least=3) == 3


@pytest.mark.parametrize("value", [2, 3.0, np.float64(3), True, np.True_, "3", None, np.array([3])])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ValueError, match="n: expected a whole number of at least 3, got"):
        check_int("n", value, at_least=3)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.float64(2), np.int8(2)])
def test_numbers_come_back_as_plain_ones(value):
    assert type(check_number("n", value)) is float
    assert check_number("n", value, above=1) == 2.0


@pytest.mark.parametrize(
    "value",
    [-1, math.nan, math.inf, np.float32("inf"), np.float32("nan"), 10**400, True, "2", None, 2j],
)
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="n: expected a finite number at least 0, got"):
        check_number("n", value)


def test_a_bound_is_not_reached():
    with pytest.raises(ValueError, match="n: expected a finite number above 1, got 1"):
        check_number("n", 1, above=1)


def test_words_of_the_command_line():
    assert parse_ratio(None, "w01") is None
    assert parse_ratio("∞", "w01") == math.inf
    with pytest.raises(ValueError, match="w01: expected a number from 0 to infinity"):
        parse_ratio("much", "w01")
    assert parse_axis("init = pytorch,3,true") == ("init", ["pytorch", 3, True])
    with pytest.raises(ValueError, match="vary: expected such as"):
        parse_axis("init")
