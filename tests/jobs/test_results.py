"""What is read is what was written; everything else is noticed."""

import json
import math
import shutil
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from count01_lens.common.bundle import Bundle, bundle_bytes, read_bundle
from count01_lens.common.storage import AlreadyInUseError
from count01_lens.jobs.results import ResultError, ResultStore, canonical, encode, plain

ABOUT = {"name": "test", "seconds": 0.5, "versions": {"torch": "2"}}


@dataclass
class Description:
    key: str = "a" * 64
    identity: str = '{"n":1}'


def round_trip(store: ResultStore, value):
    store.directory.mkdir(exist_ok=True)
    job = Description()
    store.save(job, encode(value, identity=json.loads(job.identity), **ABOUT))
    return store.load(job)


@pytest.fixture
def store(tmp_path) -> ResultStore:
    return ResultStore(tmp_path / "results")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text().filter(lambda t: not t.startswith("$")), inner)
    ),
    max_leaves=10,
)


@given(VALUES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_plain_values_come_back(store, value):
    again = round_trip(store, value)
    assert again == value
    assert repr(again) == repr(value)  # -0.0, 1 and 1.0, True and 1, the order of keys


@pytest.mark.parametrize(
    "array",
    [
        np.array(1.5),
        np.zeros((2, 0)),
        np.arange(6).reshape(2, 3).T,
        np.arange(10)[::-2],
        np.array([True, False]),
        np.array([np.nan, np.inf], dtype=np.float16),
        np.array([1, 2], dtype=np.uint64),
        np.array([1, 2], dtype=">i4"),
    ],
)
def test_arrays_come_back(store, array):
    again = round_trip(store, {"a": {"b": [array, 7]}})["a"]["b"][0]
    np.testing.assert_array_equal(again, array, strict=array.dtype.isnative)
    assert again.dtype == array.dtype.newbyteorder("=")


def test_tensors_come_back_as_arrays(store):
    weights = torch.ones(2, 3, requires_grad=True)
    again = round_trip(store, {"weights": weights, "alias": weights})
    np.testing.assert_array_equal(again["weights"], np.ones((2, 3), dtype=np.float32), strict=True)
    np.testing.assert_array_equal(again["alias"], again["weights"])


@pytest.mark.parametrize("rows", [0, 3])
def test_tables_come_back(store, rows):
    table = pd.DataFrame(
        {
            "z": np.arange(3),
            "loss": [0.5, np.nan, np.inf],
            "half": np.ones(3, dtype=np.float32),
            "ok": [True, False, True],
            "category": ["mixed", None, "é"],
            "object": pd.Series(["a", None, "b"], dtype=object),
        }
    ).head(rows)
    again = round_trip(store, [table, {"again": table}])
    pd.testing.assert_frame_equal(again[0], table)
    pd.testing.assert_frame_equal(again[1]["again"], table)


def test_numbers_that_json_lacks_come_back(store):
    again = round_trip(store, {"a": math.nan, "b": [math.inf, -math.inf], "c": np.float32(0.5)})
    assert math.isnan(again["a"])
    assert again["b"] == [math.inf, -math.inf]
    assert again["c"] == 0.5


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"x": {1, 2}}, r"result\['x'\]: expected plain values .* got \{1, 2\} of type set"),
        ([object()], r"result\[0\]: expected plain values"),
        ({"x": {3: "a"}}, r"result\['x'\]: expected keys of text, .* got 3"),
        ({"$array": "x"}, r"without \$ in front, got '\$array'"),
        (np.array(["a"]), "of type ndarray"),
        (np.array([1j]), "of type ndarray"),
        (np.array([None]), "of type ndarray"),
        (b"bytes", "of type bytes"),
        (torch.ones(1, dtype=torch.bfloat16), "BFloat16"),
        (pd.DataFrame({"a": [1, 2]})[1:], r"numbered from 0; call \.reset_index\(\)"),
        (pd.DataFrame({"a": [1]}, index=["x"]), "numbered from 0"),
        (pd.DataFrame({1: [1]}), "columns with different names"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "columns with different names"),
        (pd.DataFrame({"t": pd.to_datetime(["2020-01-01"])}), r"result\['t'\]: expected plain"),
        (pd.DataFrame({"c": pd.Series(["a"], dtype="category")}), r"result\['c'\]: expected plain"),
        (pd.DataFrame({"n": pd.Series([1, None], dtype="Int64")}), r"result\['n'\]: expected"),
        (pd.DataFrame({"m": ["a", 1]}), r"result\['m'\]: expected plain"),
    ],
)
def test_what_could_not_come_back_is_refused(value, message):
    with pytest.raises(TypeError, match=message):
        encode(value, identity={}, **ABOUT)


def test_a_file_explains_itself(store):
    round_trip(store, {"accuracy": np.array([0.5])})
    found = read_bundle(store.path(Description()), "job result")
    assert set(found.tensors) == {"result['accuracy']"}
    assert found.about["identity"] == {"n": 1}
    assert found.about["versions"] == {"torch": "2"}
    assert found.about["seconds"] == 0.5
    assert found.about["value"] == {"accuracy": {"$array": "result['accuracy']"}}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        lambda data: b"nonsense",
    ],
)
def test_a_damaged_result_is_no_result(store, damage):
    round_trip(store, {"accuracy": np.arange(5)})
    path = store.path(Description())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(UserWarning, match=f"a damaged result is not used: {path}"):
        assert store.find(Description()) is None
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(ResultError, match="run the job first"),
    ):
        store.load(Description())


def test_a_whole_file_of_another_kind_is_no_result(store):
    round_trip(store, 1)
    tensors = {"accuracy": torch.arange(5)}
    for bundle in (Bundle("job result", {}, tensors), Bundle("analysis", {}, tensors)):
        store.save(Description(), bundle_bytes(bundle))
        with pytest.warns(UserWarning, match="damaged"):
            assert store.find(Description()) is None


def test_the_result_of_another_job_is_an_error(store):
    round_trip(store, 1)
    for identity in ('{"n":2}', '{"n":1.0}', '{"n":true}'):
        other = Description("b" * 64, identity)
        shutil.copy(store.path(Description()), store.path(other))
        with pytest.raises(ResultError, match=r"expected the result of .*, got that of {\"n\":1};"):
            store.find(other)


def test_a_missing_result_is_named_with_a_remedy(store):
    with pytest.raises(ResultError, match=r"a\.safetensors: expected a result, got none; run"):
        store.load(Description())
    assert not store.directory.exists()


def test_one_writer_at_a_time_and_any_reader(store):
    with store.opened():
        round_trip(store, 5)
        with pytest.raises(AlreadyInUseError, match="another process"), store.opened():
            pass
        assert ResultStore(store.directory).load(Description()) == 5


def test_leftovers_of_a_killed_writer_are_removed_and_other_files_are_not(store):
    store.directory.mkdir()
    leftover = store.directory / ".count01-tmp-0123456789abcdef-x.safetensors"
    for path in (leftover, store.directory / "notes.txt"):
        path.write_text("half")
    with store.opened():
        assert not leftover.exists()
    assert (store.directory / "notes.txt").read_text() == "half"


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(ResultError, match="expected a directory"),
        ResultStore(tmp_path / "file").opened(),
    ):
        pass


def test_plain_copies():
    value = {"a": (1, [np.int64(2), np.float64(0.5), np.bool_(True)])}
    copy = plain(value, "value")
    assert copy == {"a": [1, [2, 0.5, True]]}
    assert canonical(copy) == '{"a":[1,[2,0.5,true]]}'
    value["a"][1].append(3)
    assert copy == {"a": [1, [2, 0.5, True]]}
