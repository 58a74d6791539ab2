import math

import numpy as np
import pytest

from count01_lens.common.memory import check_memory, gigabytes
from count01_lens.common.parsing import parse_axis, parse_ratio
from count01_lens.common.validation import (
    LARGEST_SEED,
    check_int,
    check_number,
    check_seed,
    check_seeds,
)


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


def test_whole_numbers_may_have_a_largest_one():
    assert check_int("n", 5, at_least=1, at_most=5) == 5
    with pytest.raises(ValueError, match="n: expected a whole number from 1 to 5,000, got 5001"):
        check_int("n", 5001, at_least=1, at_most=5000)


def test_seeds_are_those_that_tables_hold():
    assert check_seed(LARGEST_SEED) == np.array([LARGEST_SEED])[0] == 2**63 - 1
    assert check_seeds(np.array([0, 3])) == [0, 3]
    for refused in (lambda seed: check_seed(seed), lambda seed: check_seeds([0, seed])):
        for seed in (-1, 2**63, 2**100, 1.0):
            with pytest.raises(ValueError, match=r"seeds?: .* 9,223,372,036,854,775,807, got"):
                refused(seed)


def test_what_cannot_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr("count01_lens.common.memory.memory_of_machine", lambda: 16 * 10**9)
    check_memory("models", 16 * 10**9, "take fewer")
    expected = "at most 16 GB, .* machine has, got models, which need at least 24 GB; take fewer"
    with pytest.raises(ValueError, match=expected):
        check_memory("models", 24 * 10**9, "take fewer")
    monkeypatch.setattr("count01_lens.common.memory.memory_of_machine", lambda: None)
    check_memory("models", 10**30, "take fewer")
    assert gigabytes(123) == "1.23e-07 GB"
    assert gigabytes(12 * 10**18) == "12,000,000,000 GB"


def test_words_of_the_command_line():
    assert parse_ratio(None, "w01") is None
    assert parse_ratio("∞", "w01") == math.inf
    with pytest.raises(ValueError, match="w01: expected a number from 0 to infinity"):
        parse_ratio("much", "w01")
    assert parse_axis("init = pytorch,3,true") == ("init", ["pytorch", 3, True])
    with pytest.raises(ValueError, match="vary: expected such as"):
        parse_axis("init")
