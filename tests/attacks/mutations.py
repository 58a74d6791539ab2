"""Ways in which disks, mistakes and enemies change files.

Whoever changes a file on purpose also makes its checksum fit again. Each function returns whether
that was done.
"""

import contextlib
import json
import math
import os
import pickle
import shutil
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.attacks.stored_things import NUMPY, Safetensors, job_of

SECRET = b"the canary sings: 7d1f2a9c"

Rng = np.random.Generator
Path_of_JSON = list[Any]


@dataclass
class Place:
    """A stored thing, another one of the same kind, and what is outside."""

    kind: str
    here: Path
    other: Path
    outside: Path
    rng: Rng
    files: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = sorted(p for p in self.here.rglob("*") if p.is_file() and p.name != ".lock")

    def any(self, *values: Any) -> Any:
        """One of these."""
        return values[int(self.rng.integers(len(values)))]

    def file(self) -> Path:
        """One of the files."""
        return self.any(*self.files)


def change_bytes(place: Place) -> bool:
    """Bit flips, losses, growth, noise."""
    path = place.file()
    data, rng = path.read_bytes(), place.rng
    first, last = sorted(int(at) for at in rng.integers(0, len(data) + 1, 2))
    flipped = bytearray(data)
    for at in rng.integers(0, 8 * len(data), place.any(1, 1, 1, 2, 20)):
        flipped[at // 8] ^= 1 << at % 8
    noise = rng.bytes(last - first)
    changed = place.any(
        bytes(flipped),
        bytes(flipped),
        bytes(flipped),
        data[:first],
        data[: place.any(0, 1, 7, 8, 9, len(data) - 1)],
        data + place.any(b"\n", b" ", b"\0", b"}", noise, data),
        data[:first] + data[last:],
        data[:last] + data[first:],
        data[:first] + noise + data[last:],
        data[:first] + place.any(b"\0", b"\xff") * (last - first) + data[last:],
        noise,
        b"",
    )
    path.write_bytes(changed)
    return False


def change_kind_of_file(place: Place) -> bool:
    """Something else under the name of a file: nothing, a pipe, a device, a link, a directory."""
    path = place.file()
    name = str(path.relative_to(place.here))
    data = path.read_bytes()
    path.unlink()

    def listen() -> None:
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
            made.bind(path.name)

    place.any(
        lambda: None,
        lambda: os.mkfifo(path),
        lambda: path.mkdir(),
        listen,
        lambda: path.symlink_to(path.name),
        lambda: path.symlink_to("nowhere"),
        lambda: path.symlink_to(place.outside / "canary"),
        lambda: path.symlink_to(place.outside / "pipe"),
        lambda: path.symlink_to(place.outside),
        # Another analysis under the name of this one is a whole one.
        lambda: path.symlink_to(place.other / name) if len(place.files) > 1 else None,
        lambda: path.symlink_to(place.any("/dev/zero", "/dev/null", "/dev/full", "/dev/random")),
        lambda: path.symlink_to(place.any("/proc/self/mem", "/proc/self/environ", "/")),
        lambda: _twin(place.outside / "twin", path, data),
        lambda: _twin(place.outside / "twin", path, SECRET[:1] * len(data)),
        lambda: _sparse(path, data),
    )()
    return False


def _twin(twin: Path, path: Path, data: bytes) -> None:
    twin.write_bytes(data)
    path.symlink_to(twin)


def _sparse(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.truncate(path, 64 * 2**30)  # takes no room on the disk


def swap_files(place: Place) -> bool:
    """Whole files in the places of others."""
    path = place.file()
    twin = place.other / path.relative_to(place.here)
    if twin.is_file() and len(place.files) > 1 and place.rng.random() < 0.5:
        shutil.copy(twin, path)
        return False
    if place.kind == "result" and place.rng.random() < 0.5:
        shutil.copy(place.other / f"{job_of(5).key}.safetensors", path)
        return False
    others = sorted(place.other.parent.glob("* 5/*.safetensors"))
    whole = [other for other in others if other.parent != place.other]  # but of another kind
    strangers = [place.outside / "stranger", *place.files, *whole]
    shutil.copy(place.any(*(stranger for stranger in strangers if stranger != path)), path)
    return False


def add_files(place: Place) -> bool:
    """Leftovers and traps beside the files."""
    leftover = f".count01-tmp-0123456789abcdef-{place.file().name}"
    names = {
        "run": (".lock", "state.safetensors.new", "snapshots/step-0000001.safetensors", leftover),
        "checkpoint": ("checkpoint", "checkpoint.new", "config.json", leftover),
    }
    path = place.here / place.any(*names.get(place.kind, (".lock", "x.safetensors", leftover)))
    path.unlink(missing_ok=True)
    place.any(
        lambda: path.write_bytes(place.rng.bytes(100)),
        lambda: os.mkfifo(path),
        lambda: path.mkdir(),
        lambda: path.symlink_to(place.outside / "canary"),
        lambda: path.symlink_to(place.outside / "made-by-following-a-link"),
        lambda: shutil.copy(place.file(), path),
        lambda: (place.here / ".count01-tmp-0123456789abcdef-x").write_bytes(b"half"),
    )()
    return False


def replace_by_text(place: Place) -> bool:
    """Text that is no text of ours, or ours in another form."""
    path = place.file()
    data = path.read_bytes()
    deep = int(place.any(50, 500, 900, 990, 1100, 100_000))
    stored = Safetensors.of(data)
    in_words = json.dumps(stored.header, separators=(",", ":"))

    def framed(header: bytes) -> bytes:
        return place.any(header, struct.pack("<Q", len(header)) + header + stored.body)

    path.write_bytes(
        place.any(
            *(b"null", b"0", b'""', b"[]", b"{}", b"[{}]", b"NaN", b"-Infinity", b"1e999", b"\xff"),
            b"9" * 5000,
            b"[" * deep + b"]" * deep,
            b'{"files":' * deep + b"1" + b"}" * deep,
            b"[" * deep,
            framed(in_words.encode("utf-16")),
            framed(in_words.encode("utf-32")),
            framed(in_words.encode("utf-8-sig")),
            framed(in_words.encode()[:-1] + b',"x":\xff}'),
            framed(in_words.replace("{", '{"format": 7,', 1).encode()),
            framed(in_words.encode().replace(b",", b",\r\n")),
            pickled_trap(place.outside),
            b"PK\x03\x04" + data,
        )
    )
    return False


def pickled_trap(outside: Path) -> bytes:
    """A pickle that leaves a file when it is loaded."""

    class Trap:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(outside / "trapped"),))

    return pickle.dumps(Trap())


HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 1.5, -0.0, 1e308, 2**31, 2**53, 2**63, 2**64, 10**30),
    *("", "x", "../x", "/etc/passwd", "a\0b", "\ud800", "<script>", "1", "float32", "x" * 100_000),
    *([], {}, [[]], [None], [1, 2, 3], ["a"], {"a": 1}, {"$array": "text"}, {"$float": "x"}),
    *({"$table": 3}, {"$table": [["a", "U900000000", ["x"] * 9]]}, {"$array": 3}),
    {"$table": [["a", "int64[pyarrow]", [2**70]]]},
    {"$table": [["a", "int64", [2**70]], ["a", "datetime64[ns]", ["x"]]]},
]
# These cannot be written by json.dumps, so they are put into its text.
RAW = ["NaN", "Infinity", "1e999", "-1e999", "9" * 5000, "9" * 4000, "\\ud800", "01", "'x'"]


def hostile_json(place: Place, value: Any) -> str:
    """Change a JSON value in one or a few places; return it as text."""
    value = json.loads(json.dumps(value))
    text: dict[str, str] = {}
    for _ in range(place.any(1, 1, 1, 2, 5)):
        where = place.any(*_places(value))
        if not where:
            value = place.any(*HOSTILE)
            continue
        *way, last = where
        inner = value
        for step in way:
            inner = inner[step]
        action = place.any("set", "set", "set", "set", "raw", "deep", "delete", "twice", "rename")
        if action == "delete":
            del inner[last]
        elif action in ("twice", "rename") and isinstance(inner, dict):
            old = inner[last] if action == "twice" else inner.pop(last)
            mark = f"@{len(text)}@"
            inner[mark] = place.any(old, *HOSTILE)
            named = place.any(last, "x", "../x", "$array", "__proto__")
            text[f'"{mark}"'] = json.dumps(last if action == "twice" else named)
        elif action in ("raw", "deep"):
            depth = int(place.any(20, 98, 120, 700, 985, 5000))
            inner[last] = mark = f"@{len(text)}@"
            nested = place.any("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth)
            text[f'"{mark}"'] = place.any(*RAW) if action == "raw" else nested
        else:
            inner[last] = json.loads(json.dumps(place.any(*HOSTILE)))
    written = json.dumps(value)
    for mark, other in text.items():
        written = written.replace(mark, other)
    return written


def _places(value: Any) -> list[Path_of_JSON]:
    """Ways to all values inside one."""
    found: list[Path_of_JSON] = [[]]
    if not isinstance(value, dict | list):
        return found
    steps = value.items() if isinstance(value, dict) else enumerate(value)
    for step, inner in steps:
        found.append([step])
        found += [[step, *way] for way in _places(inner) if way]
    return found


def change_json(place: Place) -> bool:
    """Wrong values in the JSON of a file, and a checksum that fits."""
    path = place.file()
    stored = Safetensors.of(path.read_bytes())
    stored.tell(hostile_json(place, stored.about()))
    path.write_bytes(stored.sealed())
    return True


def change_tensors(place: Place) -> bool:
    """Headers that lie, and tensors of other kinds, shapes and values."""
    files = {path: Safetensors.of(path.read_bytes()) for path in place.files}
    path = place.any(*(path for path, stored in files.items() if stored.names()))
    stored = files[path]
    name = place.any(*stored.names())
    entry = stored.header[name]
    first, last = entry["data_offsets"]
    rng = place.rng

    def values() -> None:
        data = np.frombuffer(stored.body[first:last], np.uint8).copy()
        if len(data):
            data[rng.integers(len(data))] = rng.integers(256)
        stored.replace(name, data.tobytes())

    def number(bad: float) -> None:
        array = np.array(stored.arrays().get(name, np.zeros(0)))
        if array.dtype.kind == "f" and array.size:
            array.flat[0] = bad
            stored.replace(name, array.tobytes())

    def rename(new: str) -> None:
        stored.header = {(new if old == name else old): e for old, e in stored.header.items()}

    def other_shape() -> None:
        size = math.prod(entry["shape"])
        shapes = ([size], [1, size], [size, 1], entry["shape"][::-1], [*entry["shape"], 1])
        entry["shape"] = list(place.any(*shapes))

    def other_kind() -> None:
        kinds = [*NUMPY, "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64", "XX", "", 3, None]
        kind = entry["dtype"] = place.any(*kinds)
        size = {"BF16": 2, "C64": 8}.get(kind) or np.dtype(NUMPY.get(kind, "u1")).itemsize
        if place.rng.random() < 0.8:  # with as many bytes as it should have
            stored.replace(name, bytes(size * math.prod(entry["shape"])))

    def large() -> None:
        shape = place.any([2**62], [2**32, 2**32], [2**40], [10**9], [-1], [1.5], ["1"], [0, 2**50])
        ends = (last, first + 2**40, 2**63 - 1, 2**64 - 1, -1, "1", last + 1, first)
        entry["shape"], entry["data_offsets"] = shape, [first, place.any(*ends)]

    def many() -> None:
        for number in range(place.any(100, 2_000, 20_000)):
            stored.header[f"x{number}"] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}

    def metadata() -> None:
        stored.header["__metadata__"] = place.any(*HOSTILE, {"sha256": "x"}, {"sha256": 3})

    simple: list[Callable[[], Any]] = [
        values,
        values,
        lambda: number(math.nan),
        lambda: number(math.inf),
        lambda: number(1e30),
        other_shape,
        other_kind,
        other_kind,
        large,
        many,
        lambda: stored.header.pop(name),
        lambda: stored.header.update({name: place.any(*HOSTILE)}),
        lambda: rename(place.any("x", "../x", "/etc/passwd", "a\0b", "", "text", "é" * 1000)),
        lambda: entry.update(data_offsets=place.any([last, first], [first], [], None, [0, 0])),
        lambda: entry.update(extra=1),
    ]
    if place.rng.random() < 0.75:
        place.any(*simple)()
        path.write_bytes(stored.sealed())
        return True
    text = json.dumps(stored.header)
    twice = text[:-1] + f", {json.dumps(name)}: {json.dumps(entry)}}}"
    length = place.any(
        0, 1, 7, 2**31, 2**32, 10**9, 2**62, 2**63 - 1, 2**63, 2**64 - 1, len(text) + 1
    )
    write: list[Callable[[], bytes]] = [
        lambda: stored.written(length=length),
        lambda: stored.written(twice),
        lambda: stored.written(text + " " * place.any(10**3, 10**6, 11 * 10**6)),
        lambda: stored.written("[" * 100_000),
        lambda: stored.written(hostile_json(place, stored.header)),
        lambda: (metadata(), stored.written())[1],
        lambda: pickled_trap(place.outside),
        lambda: stored.written().replace(b"F32", b"F64", 1),
    ]
    path.write_bytes(place.any(*write)())
    return True


def change_metadata(place: Place) -> bool:
    """Metadata that say something else, with a checksum that fits or not."""
    path = place.file()
    stored = Safetensors.of(path.read_bytes())
    metadata = stored.header["__metadata__"]
    tricks = ("../x", "../../outside/canary", str(place.outside / "canary"), "a\0b", ".", "", "..")
    kinds = ("checkpoint", "analysis", "job result", "training run", "training snapshot", "x", None)
    place.any(
        lambda: metadata.update(kind=place.any(*kinds, *tricks)),
        lambda: metadata.update(bundle=place.any("0", "-1", "2", "1.0", 1, True, None, "9" * 30)),
        lambda: metadata.update(format=place.any("np", "tf", "", None, 3)),
        lambda: metadata.update(about=place.any("", "{}", "[]", "null", None, {}, 3, *tricks)),
        lambda: metadata.update({place.any("extra", *tricks): place.any(*HOSTILE)}),
        lambda: metadata.pop(place.any(*metadata)),
        lambda: stored.header.update(__metadata__=place.any(*HOSTILE)),
        lambda: stored.header.update(__metadata__=dict(reversed(metadata.items()))),
    )()
    if place.rng.random() < 0.5:
        path.write_bytes(stored.sealed())
        return True
    checksum = metadata.get("sha256") or ""
    metadata["sha256"] = place.any("", "0" * 64, checksum.upper(), None, 5, checksum)
    path.write_bytes(stored.written())
    return False


MUTATIONS: list[Callable[[Place], bool]] = [
    change_bytes,
    change_bytes,
    change_kind_of_file,
    swap_files,
    add_files,
    replace_by_text,
    change_json,
    change_json,
    change_json,
    change_tensors,
    change_tensors,
    change_tensors,
    change_metadata,
]
