"""A job is known by what its result depends on, and by nothing else."""

import functools
import hashlib
import importlib.machinery
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from count01_lens.jobs.job import Job
from tests import job_functions


def test_the_key_is_the_sum_of_what_the_result_depends_on():
    text = (
        '{"code_version":"7","configuration":{"a":[1,null],"b":0.5},"format":1,'
        '"function":"tests.job_functions:square"}'
    )
    made = Job("any", job_functions.square, {"b": 0.5, "a": (1, None)}, "7")
    assert made.identity == text
    assert made.key == hashlib.sha256(text.encode()).hexdigest()


def test_what_changes_the_key_and_what_does_not():
    def key(name="n", function=job_functions.square, configuration=None, code_version="1") -> str:
        configuration = {"a": 1, "b": {"c": 2, "d": 3}} if configuration is None else configuration
        return Job(name, function, configuration, code_version).key

    assert key() == Job("n", job_functions.square, {"b": {"c": 2, "d": 3}, "a": 1}, "1", 9).key
    assert key() == key(name="m") == key(configuration={"b": {"d": 3, "c": 2}, "a": np.int64(1)})
    others = [
        key(function=job_functions.raises),
        key(code_version="2"),
        key(configuration={"a": 1, "b": {"c": 2, "d": 4}}),
        key(configuration={"a": True, "b": {"c": 2, "d": 3}}),
        key(configuration={}),
    ]
    assert len({key(), *others}) == 6


def test_a_configuration_changed_later_does_not_change_the_job():
    configuration = {"values": [1, 2]}
    made = Job("n", job_functions.square, configuration, "1")
    key = made.key
    configuration["values"].append(3)
    assert made.configuration == {"values": [1, 2]}
    assert made.key == key


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"rate": math.nan}, r"configuration\['rate'\]: expected plain values .* got nan"),
        ({"a": [1, {"b": math.inf}]}, r"configuration\['a'\]\[1\]\['b'\]: expected .* got inf"),
        ({"a": {1, 2}}, "of type set; convert it"),
        ({"a": np.arange(2)}, "of type ndarray; convert it"),
        ({"a": Path("x")}, "of type PosixPath; convert it"),
        ({1: 2}, "configuration: expected keys of text, .* got 1"),
        ([1], r"configuration: expected a dict, got \[1\]"),
        (None, "configuration: expected a dict, got None"),
    ],
)
def test_a_configuration_that_is_not_plain_is_refused(configuration, message):
    with pytest.raises(TypeError, match=message):
        Job("n", job_functions.square, configuration, "1")


class Holder:
    def method(self) -> None: ...


def test_a_function_that_others_cannot_find_is_refused():
    def closure() -> None: ...

    def impostor() -> None: ...

    impostor.__qualname__ = "square"
    impostor.__module__ = "tests.job_functions"
    for function in (
        lambda: 1,
        closure,
        impostor,
        functools.partial(job_functions.square, 1),
        Holder().method,
        Holder.method,
        "square",
        None,
    ):
        with pytest.raises(TypeError, match="function: expected one defined at the top of a mod"):
            Job("n", function, {}, "1")


def test_a_function_of_a_script_is_refused_too(monkeypatch):
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "square", job_functions.square, raising=False)
    monkeypatch.setattr(job_functions.square, "__module__", "__main__")
    for spec in (None, importlib.machinery.ModuleSpec("suite.__main__", None)):
        monkeypatch.setattr(main, "__spec__", spec)
        with pytest.raises(TypeError, match="function: expected one defined at the top of a mod"):
            Job("n", job_functions.square, {}, "1")


@pytest.mark.parametrize("field", ["name", "code_version"])
def test_names_are_text(field):
    arguments = {"name": "n", "code_version": "1", field: 1}
    with pytest.raises(TypeError, match=f"{field}: expected text, got 1"):
        Job(function=job_functions.square, configuration={}, **arguments)
