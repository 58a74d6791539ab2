"""A bundle is read as it was written, or not at all."""

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from count01_lens.common import bundle as bundles
from count01_lens.common.bundle import Bundle, bundle_bytes, kind_of, read_bundle, write_bundle
from count01_lens.common.storage import DEEPEST_JSON, DamagedFileError

ABOUT = {"name": 'é \n "quoted"', "numbers": [1, 2.5, None, True], "inner": {"b": {}, "a": []}}
TENSORS = {
    "rows": torch.tensor([[0.5, -0.0], [torch.nan, torch.inf]], dtype=torch.float64),
    "weights é": torch.arange(6.0).reshape(2, 3),
    "scalar": torch.tensor(3),
    "empty": torch.zeros(2, 0),
    "flags": torch.tensor([True, False]),
    "half": torch.ones(3, dtype=torch.bfloat16),
}
SMALL = Bundle("test", {"a": 1}, {"x": torch.tensor([1.0, 2.0]), "y": torch.tensor(7)})


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "file.safetensors"


def parts(data: bytes) -> tuple[dict, bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: dict | str, body: bytes) -> bytes:
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    text += " " * (-len(text.encode()) % 8)
    return len(text.encode()).to_bytes(8, "little") + text.encode() + body


def sealed(header: dict, body: bytes) -> bytes:
    """Make the checksum fit, as somebody who changes a file on purpose would."""
    header["__metadata__"]["sha256"] = ""
    header["__metadata__"]["sha256"] = hashlib.sha256(joined(header, body)).hexdigest()
    return joined(header, body)


def resealed(data: bytes, **metadata: object) -> bytes:
    header, body = parts(data)
    header["__metadata__"].update(metadata)
    return sealed(header, body)


def assert_same(found: Bundle, expected: Bundle) -> None:
    assert (found.kind, found.about) == (expected.kind, expected.about)
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        again = found.tensors[name]
        assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape)
        one, two = (value.reshape(-1).view(torch.uint8) for value in (again, tensor))
        assert torch.equal(one, two)


def test_what_was_written_is_read(path):
    bundle = Bundle("test", ABOUT, TENSORS)
    write_bundle(path, bundle)
    assert_same(read_bundle(path, "test"), bundle)
    write_bundle(path, Bundle("other", {}, {}))  # a second one replaces it
    assert_same(read_bundle(path, "other"), Bundle("other", {}, {}))


def test_safetensors_alone_reads_it(path):
    write_bundle(path, Bundle("test", ABOUT, TENSORS))
    tensors = safetensors.torch.load_file(path)
    assert_same(Bundle("test", {}, tensors), Bundle("test", {}, TENSORS))
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert json.loads(metadata["about"]) == ABOUT
    # Other tools look at the format.
    assert {k: metadata[k] for k in ("format", "bundle", "kind")} == {
        "format": "pt", "bundle": "1", "kind": "test",
    }  # fmt: skip
    assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0


def test_equal_content_gives_equal_bytes_in_any_order():
    def reordered(value):
        if isinstance(value, dict):
            return {name: reordered(inner) for name, inner in reversed(value.items())}
        return value

    one = bundle_bytes(Bundle("test", ABOUT, TENSORS))
    assert bundle_bytes(Bundle("test", reordered(ABOUT), reordered(TENSORS))) == one
    transposed = {**TENSORS, "weights é": TENSORS["weights é"].T.contiguous().T}
    assert bundle_bytes(Bundle("test", ABOUT, transposed)) == one
    assert bundle_bytes(Bundle("test", {**ABOUT, "name": ""}, TENSORS)) != one
    assert bundle_bytes(Bundle("text", ABOUT, TENSORS)) != one


def test_tensors_that_share_memory_or_need_gradients_are_written(path):
    weights = torch.ones(2, 3, requires_grad=True)
    write_bundle(path, Bundle("test", {}, {"one": weights, "two": weights[0]}))
    found = read_bundle(path, "test").tensors
    assert torch.equal(found["one"], torch.ones(2, 3))
    assert torch.equal(found["two"], torch.ones(3))
    assert weights.requires_grad


def test_every_changed_byte_is_noticed(path):
    data = bundle_bytes(SMALL)
    for position in range(len(data)):
        for flip in (1, 0x20, 0x2A):  # the last makes a new line of a space
            changed = bytearray(data)
            changed[position] ^= flip
            path.write_bytes(changed)
            with pytest.raises(DamagedFileError) as caught:
                read_bundle(path, "test")
            assert str(path) in str(caught.value)


@given(st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_anywhere_is_noticed(path, data):
    whole = bundle_bytes(Bundle("test", ABOUT, TENSORS))
    first, last = sorted(data.draw(st.integers(0, len(whole))) for _ in range(2))
    other = data.draw(st.binary(max_size=20))
    changed = whole[:first] + other + whole[last:]
    path.write_bytes(changed)
    if changed == whole:
        read_bundle(path, "test")
    else:
        with pytest.raises(DamagedFileError):
            read_bundle(path, "test")


def test_truncation_at_every_length_is_noticed(path):
    data = bundle_bytes(SMALL)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DamagedFileError, match=r"file\.safetensors: .*(cut off|expected)"):
            read_bundle(path, "test")
    for more in (b"\0", b" ", data):
        path.write_bytes(data + more)
        with pytest.raises(DamagedFileError, match="does not fit its checksum"):
            read_bundle(path, "test")


@pytest.mark.parametrize("left", [1, 16])
def test_a_file_that_was_cut_off_says_so(path, left):
    write_bundle(path, SMALL)
    os.truncate(path, path.stat().st_size - left)
    with pytest.raises(DamagedFileError, match=rf"cut off: {left} bytes are missing; take another"):
        read_bundle(path, "test")


def test_tensors_of_one_file_with_the_json_of_another_are_refused(path):
    one, two = bundle_bytes(SMALL), bundle_bytes(Bundle("test", {"a": 2}, SMALL.tensors))
    (header_of_one, body), (header_of_two, _) = parts(one), parts(two)
    about = header_of_two["__metadata__"]["about"]
    header_of_one["__metadata__"]["about"] = about
    for changed in (joined(header_of_one, body), one[:-8] + bytes(8)):
        path.write_bytes(changed)
        with pytest.raises(DamagedFileError, match="its content does not fit its checksum"):
            read_bundle(path, "test")
    header_of_one["x"]["dtype"] = "I32"  # of the same size
    path.write_bytes(joined(header_of_one, body))
    with pytest.raises(DamagedFileError, match="its content does not fit its checksum"):
        read_bundle(path, "test")
    path.write_bytes(sealed(header_of_one, body))
    assert read_bundle(path, "test").about == {"a": 2}
    assert read_bundle(path, "test").tensors["x"].dtype == torch.int32


def test_another_kind_is_refused(path):
    write_bundle(path, SMALL)
    with pytest.raises(DamagedFileError) as caught:
        read_bundle(path, "checkpoint")
    assert str(caught.value) == (
        f"{path}: expected a file of kind 'checkpoint', got one of kind 'test'; give another file"
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"bundle": "2"}, "written in format '2', this version reads 1; install"),
        ({"bundle": "0"}, "written in format '0', this version reads 1; install"),
        ({"bundle": 1}, "written in format 1, this version reads 1"),
        ({"kind": None}, "got one of kind None"),
        ({"about": "[]"}, r"about: expected an object, got \[\]"),
        ({"about": "{"}, "which this is not"),
        ({"about": 3}, "which this is not"),
        ({"about": '{"a":1,"a":2}'}, "two values of one name"),
        ({"about": '{"a":NaN}'}, "no finite number"),
        ({"about": '{"a":"\\ud800"}'}, "surrogates"),
        ({"about": '{"a":' * 200 + "1" + "}" * 200}, "nested at most 100 deep"),
        ({"about": '{"a":' * 10**5}, "nested too deeply"),
        ({"extra": {}}, "which this is not"),
    ],
)
def test_other_metadata_are_refused_also_with_a_checksum_that_fits(path, metadata, message):
    path.write_bytes(resealed(bundle_bytes(SMALL), **metadata))
    with pytest.raises(DamagedFileError, match=message) as caught:
        read_bundle(path, "test")
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_of_safetensors_that_is_no_bundle_is_refused(path):
    for metadata in (None, {"format": "pt"}):
        safetensors.torch.save_file({"x": torch.zeros(2)}, path, metadata)
        with pytest.raises(DamagedFileError, match=r"\(its metadata are not those of a bundle\)"):
            read_bundle(path, "test")


def test_names_that_stand_twice_are_refused(path):
    header, body = parts(bundle_bytes(SMALL))
    text = json.dumps(header, separators=(",", ":"))
    for twice in ('"x":' + json.dumps(header["x"]), '"__metadata__":{}'):
        path.write_bytes(joined(f"{text[:-1]},{twice}}}", body))
        with pytest.raises(DamagedFileError, match="two values of one name"):
            read_bundle(path, "test")


def test_headers_that_are_none_are_refused(path):
    for header in ("[]", "3", '"x"', "null", "{}", "[" * 10**5):
        path.write_bytes(joined(header, b""))
        with pytest.raises(DamagedFileError, match="which this is not") as caught:
            read_bundle(path, "test")
        assert kind_of(path) is None
        assert header != "3" or "expected an object as its header, got 3)" in str(caught.value)


def test_the_kind_of_a_file_is_told_without_reading_it_whole(path):
    write_bundle(path, SMALL)
    assert kind_of(path) == "test"
    assert kind_of(path.with_name("missing")) is kind_of(path.parent) is None
    data = path.read_bytes()
    path.write_bytes(data[:-8])  # tensors cut off
    assert kind_of(path) == "test"
    safetensors.torch.save_file({"x": torch.zeros(2)}, path)
    assert kind_of(path) is None
    header = json.dumps({"__metadata__": {"kind": "test"}}).encode()
    for length, kind in ((10**7, "test"), (10**7 + 1, None)):
        path.write_bytes(length.to_bytes(8, "little") + header + b" " * (length - len(header)))
        assert kind_of(path) == kind


@pytest.mark.parametrize("length", [10**7, 2**32, 2**63, 2**64 - 1])
def test_a_header_that_is_too_large_is_not_read(path, length):
    path.write_bytes(length.to_bytes(8, "little") + b"{" * 100)
    with pytest.raises(DamagedFileError, match=rf"in 10000000 bytes, got {length + 8}; keep fewer"):
        read_bundle(path, "test")


def test_what_is_written_at_a_limit_is_read(path, monkeypatch):
    monkeypatch.setattr(bundles, "MOST_TENSORS", 2)
    length = len(bundle_bytes(SMALL)) - 16
    monkeypatch.setattr(bundles, "LARGEST_HEADER", length)
    write_bundle(path, SMALL)
    assert_same(read_bundle(path, "test"), SMALL)
    with pytest.raises(ValueError, match="at most 2 tensors; keep fewer in one file"):
        bundle_bytes(Bundle("test", {}, {**SMALL.tensors, "z": torch.zeros(0)}))
    with pytest.raises(ValueError, match=f"in {length} bytes, got {length + 8}; .*as tensors"):
        bundle_bytes(Bundle("test", {"a": 10**8}, SMALL.tensors))


def test_what_could_not_be_read_is_not_written(path):
    deep = inner = {}
    for _ in range(DEEPEST_JSON):
        inner["a"] = inner = {}
    for about in (deep, {"a": float("nan")}, {"a": object()}, {"a": "\ud800"}):
        with pytest.raises((TypeError, ValueError), match=".+"):
            write_bundle(path, Bundle("test", about, {}))
    assert not path.exists()


def test_what_is_no_plain_file_is_named(path):
    with pytest.raises(DamagedFileError, match="no such file; expected a file of kind 'test'"):
        read_bundle(path, "test")
    os.mkfifo(path)
    with pytest.raises(DamagedFileError, match=r"cannot be read .*got a pipe or a device"):
        read_bundle(path, "test")
    path.unlink()
    path.mkdir()
    with pytest.raises(DamagedFileError, match=r"cannot be read .*irectory"):
        read_bundle(path, "test")
    with pytest.raises(DamagedFileError, match=r"cannot be read .*expected a file of kind 'test'"):
        read_bundle(Path("a\0b"), "test")


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0o022, 0o644)])
def test_files_get_the_modes_of_the_umask(path, umask, mode):
    """Safetensors itself writes files that nobody else can read."""
    old = os.umask(umask)
    try:
        write_bundle(path, SMALL)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_bundle_is_flushed_before_it_is_renamed(path, monkeypatch):
    done, replace, fsync = [], os.replace, os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("fsync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("replace"), replace(*names)))
    write_bundle(path, SMALL)
    assert done == ["fsync", "replace", "fsync"]
    assert_same(read_bundle(path, "test"), SMALL)
