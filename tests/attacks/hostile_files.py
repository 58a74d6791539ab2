"""Files that are not what the library wrote: each is refused in our own words, or changes nothing.

Checkpoints, saved analyses, results of jobs and directories of runs are changed in all the ways that
disks, mistakes and enemies know. Whoever changes a file on purpose also makes the checksums fit
again; such a file may be read, if it is whole, and then as it is written.

Cases run in copies of a process that has a limit of memory. It writes down every file that is opened
and all code that is run; one that hangs is killed.
"""

import contextlib
import json
import math
import os
import pickle
import resource
import shutil
import socket
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

import count01_lens as cl
from count01_lens.common.storage import DamagedFileError, _digest, sha256
from count01_lens.jobs.job import Job
from count01_lens.jobs.results import ResultError, ResultStore, encode
from count01_lens.models.checkpoints import checkpoint_info
from count01_lens.tasks.dataset import SplitSpec, make_splits
from count01_lens.training.run_directory import RunDirectoryError
from tests.attacks.fork_server import fork_server, task

SAME, RESEALED = "same bits", "resealed, and read as written"
ERRORS = (cl.CheckpointError, DamagedFileError, ResultError, RunDirectoryError)
GOOD = {SAME, RESEALED, *(error.__name__ for error in ERRORS)}
SECONDS, MEMORY = 2.0, 600_000_000
SECRET = b"the canary sings: 7d1f2a9c"
SPLITS = make_splits(
    0,
    train=SplitSpec(size=60, zeros_and_ones=(0, 9), twos=(0, 9)),
    validation=SplitSpec(size=20, zeros_and_ones=(0, 9), twos=(0, 9)),
    test=SplitSpec(size=30, zeros_and_ones=(0, 9), twos=(0, 9)),
)
MODEL = cl.ModelConfig(d_embed=4, n_heads=2, n_ctx=32)
TRAINING = cl.TrainConfig(model=MODEL, epochs=2, batch_size=30)

Rng = np.random.Generator
Path_of_JSON = list[Any]


# What is attacked


@dataclass(frozen=True)
class Kind:
    """A kind of stored thing.

    Attributes:
        make: writes one; the seed makes it another.
        read: reads it; returns all that a user gets, in a form that can be compared.
        as_written: whether that is what the files hold, read without the library.
        error: what reading raises.
        writes: whether reading it may write inside its directory.
    """

    make: Callable[[Path, int], None]
    read: Callable[[Path], dict[str, Any]]
    as_written: Callable[[Path, dict[str, Any]], bool]
    error: tuple[type[Exception], ...]
    writes: bool = False


def make_checkpoint(place: Path, seed: int) -> None:
    """Save a model with what is known of it."""
    info = {"seed": seed, "recipe": {"epochs": 3, "names": ["a", "b"]}, "training": {"loss": 0.5}}
    cl.save_checkpoint(cl.build_model(MODEL, seed=seed), place, info=info)


def read_checkpoint(place: Path) -> dict[str, Any]:
    """Parameters, cfg, flags, and what is known."""
    model = cl.load_checkpoint(place)
    cfg = {name: str(value) for name, value in model.cfg.to_dict().items()}
    flags = {f"flag {name}": p.requires_grad for name, p in model.named_parameters()}
    tensors = {name: bits(tensor.numpy()) for name, tensor in model.state_dict().items()}
    return {**tensors, **flags, "cfg": cfg, "info": repr(checkpoint_info(place)["info"])}


def checkpoint_as_written(place: Path, found: dict[str, Any]) -> bool:
    """Compare the tensors; IGNORE is a constant of a dtype of its own."""
    arrays = Safetensors.of((place / "model.safetensors").read_bytes()).arrays()
    return all(
        found.get(name) == bits(array)
        for name, array in arrays.items()
        if not name.endswith("IGNORE")
    )


def make_analysis(place: Path, seed: int) -> None:
    """Save an analysis with all groups."""
    place.mkdir()
    analysis = cl.analyze_heads(cl.build_model(MODEL, seed=seed), SPLITS)
    analysis.groups()
    analysis.notes.append("a note")
    analysis.save(place / "analysis.safetensors")


def read_analysis(place: Path) -> dict[str, Any]:
    """All arrays, the words, and what a notebook would show."""
    analysis = cl.HeadAnalysis.load(place / "analysis.safetensors")
    data = analysis.data
    arrays = {f"pairs.{name}": matrix for name, matrix in analysis.pairs.items()}
    arrays |= {f"data.{name}": getattr(data, name) for name in ("shares", "bias", "test_outputs")}
    arrays |= {f"data.{name}": getattr(data, name) for name in ("train_labels", "end_shares")}
    arrays |= {f"groups.{name}": column.to_numpy() for name, column in analysis.groups().items()}
    shown = [repr(analysis), analysis._repr_html_(), analysis.pairs_table().to_csv()]
    return {**{name: bits(array) for name, array in arrays.items()}, "shown": shown}


def analysis_as_written(place: Path, found: dict[str, Any]) -> bool:
    """Compare the arrays."""
    arrays = Safetensors.of((place / "analysis.safetensors").read_bytes()).arrays()
    names = [name for name in found if name.startswith(("pairs.", "data."))]
    return all(found[name] == bits(arrays[name]) for name in names)


def job_of(seed: int) -> Job:
    """A job that is never run."""
    return Job("a job", make_result, {"seed": seed}, "1")


def make_result(place: Path, seed: int) -> None:
    """Keep a result with something of every kind."""
    import pandas as pd

    place.mkdir()
    table = pd.DataFrame({"n": np.arange(3) + seed, "x": [0.5, math.nan, 1], "w": ["a", None, "c"]})
    value = {"table": table, "array": np.arange(4.0), "inf": math.inf, "list": [1, True, None, "ü"]}
    about = {"name": "a job", "seconds": 0.25, "versions": {"torch": "2"}}
    job = job_of(seed)
    ResultStore(place).save(job, encode(value, identity=json.loads(job.identity), **about))


def read_result(place: Path) -> dict[str, Any]:
    """The value, as it would be written again."""
    found = ResultStore(place).load(job_of(0))
    arrays = encode(found, identity={}, name="", seconds=0.0, versions={})
    text = json.loads(arrays.pop("text").tobytes())["value"]
    return {"value": json.dumps(text), "arrays": [bits(array) for array in arrays.values()]}


def result_as_written(place: Path, found: dict[str, Any]) -> bool:
    """Whether all arrays come from the file; their names may be others."""
    arrays = Safetensors.of((place / f"{job_of(0).key}.safetensors").read_bytes()).arrays()
    return set(found["arrays"]) <= {bits(array) for array in arrays.values()}


def make_run(place: Path, seed: int) -> None:
    """Train two models."""
    train(place, seed)


def train(place: Path, seed: int) -> cl.TrainResult:
    """Train, or go on, or read what was trained."""
    return cl.train(TRAINING, seeds=[seed, seed + 5], splits=SPLITS, directory=place)


def read_run(place: Path) -> dict[str, Any]:
    """Parameters of all epochs, the history, and a model."""
    result = train(place, 0)
    rows = {f"rows {step}": bits(result.snapshots[step].numpy()) for step in result.snapshots}
    model = {"W_E": bits(result.models[1].W_E.detach().numpy())}
    return {**rows, **model, "history": result.history.to_csv()}


def run_as_written(place: Path, found: dict[str, Any]) -> bool:
    """Compare the parameters of all epochs."""
    files = sorted((place / "snapshots").glob("step-???????.safetensors"))
    rows = [Safetensors.of(file.read_bytes()).arrays()["rows"] for file in files]
    steps = [int(file.name[5:12]) for file in files]
    return all(
        found[f"rows {step}"] == bits(array) for step, array in zip(steps, rows, strict=True)
    )


KINDS = {
    "checkpoint": Kind(
        make_checkpoint, read_checkpoint, checkpoint_as_written, (cl.CheckpointError,)
    ),
    "analysis": Kind(make_analysis, read_analysis, analysis_as_written, (DamagedFileError,)),
    "result": Kind(make_result, read_result, result_as_written, (ResultError,)),
    "run": Kind(
        make_run, read_run, run_as_written, (RunDirectoryError, DamagedFileError), writes=True
    ),
}


def bits(array: np.ndarray) -> str:
    """An array as text: kind, shape and every bit."""
    return f"{array.dtype} {array.shape} {array.tobytes().hex()}"


# Safetensors files, taken apart without the library that is attacked


_NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


@dataclass
class Safetensors:
    """Header and bytes of a file."""

    header: dict[str, Any]
    body: bytes

    @classmethod
    def of(cls, data: bytes) -> "Safetensors":
        """Take a file apart."""
        length = struct.unpack("<Q", data[:8])[0]
        return cls(json.loads(data[8 : 8 + length]), data[8 + length :])

    def written(self, text: str | None = None, length: int | None = None) -> bytes:
        """Put it together; the header may be given as text, its length may be a lie."""
        header = (json.dumps(self.header) if text is None else text).encode("utf-8", "replace")
        header += b" " * (-len(header) % 8)
        return struct.pack("<Q", len(header) if length is None else length) + header + self.body

    def names(self) -> list[str]:
        """Names of the tensors."""
        return [name for name in self.header if name != "__metadata__"]

    def arrays(self) -> dict[str, np.ndarray]:
        """The tensors of kinds that NumPy has."""
        arrays = {}
        for name in self.names():
            entry = self.header[name]
            if entry["dtype"] in _NUMPY:
                first, last = entry["data_offsets"]
                values = np.frombuffer(self.body[first:last], _NUMPY[entry["dtype"]])
                arrays[name] = values.reshape(entry["shape"])
        return arrays

    def replace(self, name: str, data: bytes, **entry: Any) -> None:
        """Give a tensor other bytes."""
        first, last = self.header[name]["data_offsets"]
        self.body = self.body[:first] + data + self.body[last:]
        grown = len(data) - (last - first)
        for other in self.names():
            start, end = self.header[other]["data_offsets"]
            if start >= last and other != name:
                self.header[other]["data_offsets"] = [start + grown, end + grown]
        self.header[name] |= {"data_offsets": [first, first + len(data)], **entry}

    def sealed(self) -> bytes:
        """Make the checksum inside fit again, where the rest can be read at all."""
        with contextlib.suppress(Exception):
            tensors = safetensors.torch.load(self.written())
            self.header["__metadata__"] = {"sha256": _digest(tensors)}
        return self.written()


# Ways to change things. Each returns whether checksums were made to fit again.


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

    def file(self, ending: str = "") -> Path:
        """One of the files."""
        return self.any(*(path for path in self.files if path.name.endswith(ending)))


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
    strangers = [place.outside / "stranger", *place.files]
    shutil.copy(place.any(*(stranger for stranger in strangers if stranger != path)), path)
    return False


def add_files(place: Place) -> bool:
    """Leftovers and traps beside the files."""
    name = place.any("config.json.new", "model.safetensors.new", "manifest.json.new", ".lock")
    names = {"run": (".lock", "state.safetensors.new", "snapshots/step-0000001.safetensors")}
    name = place.any(*names.get(place.kind, (name,)))
    path = place.here / name
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
    try:
        in_words = data.decode()
    except UnicodeDecodeError:
        in_words = "{}"
    path.write_bytes(
        place.any(
            *(b"null", b"0", b'""', b"[]", b"{}", b"[{}]", b"NaN", b"-Infinity", b"1e999", b"\xff"),
            b"9" * 5000,
            b"[" * deep + b"]" * deep,
            b'{"files":' * deep + b"1" + b"}" * deep,
            b"[" * deep,
            in_words.encode("utf-16"),
            in_words.encode("utf-32"),
            in_words.encode("utf-8-sig"),
            in_words.encode()[:-1] + b',"x":\xff}',
            in_words.replace("{", '{"format": 7,', 1).encode(),
            in_words.encode().replace(b"\n", b"\r\n"),
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
    """Wrong values in JSON files, or in the JSON inside a file of tensors, and checksums that fit."""
    plain = [path for path in place.files if path.suffix == ".json"]
    if plain and (place.kind == "checkpoint" or place.rng.random() < 0.5):
        path = place.any(*plain)
        path.write_text(hostile_json(place, json.loads(path.read_text())), "utf-8", "replace")
        return reseal(place)
    path = place.file(".safetensors")
    stored = Safetensors.of(path.read_bytes())
    name = next((name for name in ("text", "history") if name in stored.header), "")
    if not name:
        return change_tensors(place)
    value = json.loads(stored.arrays()[name].tobytes())
    data = hostile_json(place, value).encode("utf-8", "replace")
    stored.replace(name, data, shape=[len(data)])
    path.write_bytes(stored.sealed())
    return reseal(place)


def change_tensors(place: Place) -> bool:
    """Headers that lie, and tensors of other kinds, shapes and values."""
    path = place.file(".safetensors")
    stored = Safetensors.of(path.read_bytes())
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
        kinds = [*_NUMPY, "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64", "XX", "", 3, None]
        kind = entry["dtype"] = place.any(*kinds)
        size = {"BF16": 2, "C64": 8}.get(kind) or np.dtype(_NUMPY.get(kind, "u1")).itemsize
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
        return reseal(place)
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
    return reseal(place)


def change_manifest(place: Place) -> bool:
    """Entries of the manifest that lead elsewhere; for other kinds, any file."""
    path = place.here / "manifest.json"
    if not path.exists():
        return change_json(place)
    manifest = json.loads(path.read_text())
    name = place.any(*manifest["files"])
    entry = manifest["files"][name]
    tricks = ("../x", "../../outside/canary", str(place.outside / "canary"), "a\0b", ".", "", "..")
    place.any(
        lambda: manifest["files"].update({place.any(*tricks): manifest["files"].pop(name)}),
        lambda: manifest["files"].update({place.any(*tricks): entry}),
        lambda: entry.update(path=place.any(*tricks)),
        lambda: entry.update(bytes=place.any(0, -1, 2**40, 1e3, True, None, "1", float(10**9))),
        lambda: entry.update(sha256=place.any("", "0" * 64, entry["sha256"].upper(), None, 5)),
        lambda: manifest.update(format=place.any(0, -1, 2, 1.0, True, "1", None, 10**30)),
        lambda: manifest.update(files=place.any([], list(manifest["files"]), None, "config.json")),
        lambda: manifest.update(extra=place.any(*HOSTILE)),
    )()
    path.write_text(json.dumps(manifest))
    return False


def reseal(place: Place) -> bool:
    """Make a manifest fit, where there is one that can be read."""
    path = place.here / "manifest.json"
    with contextlib.suppress(Exception):
        manifest = json.loads(path.read_text())
        for name, entry in manifest["files"].items():
            data = (place.here / name).read_bytes()
            entry.update(sha256=sha256(data), bytes=len(data))
        path.write_text(json.dumps(manifest))
    return True


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
    change_manifest,
]


# What a copy of the process does


class Guard:
    """Notes what this process opens, writes and runs, for ever: an audit hook cannot be taken back."""

    def __init__(self, outside: Path):
        self.outside = os.path.realpath(outside)
        self.here: str | None = None  # only while something is read
        self.may_write = False
        self.seen: set[str] = set()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.here is None:
            return
        if event in _CODE:
            self.seen.add(f"runs code: {event}")
        elif event == "exec" and getattr(arguments[0], "co_filename", "<").startswith("<string"):
            self.seen.add("runs code: exec")
        elif event in _CHANGES or event == "open":
            self._look_at(event, arguments)

    def _look_at(self, event: str, arguments: tuple[Any, ...]) -> None:
        here, self.here = self.here, None  # what follows is our own
        try:
            if isinstance(arguments[0], int):
                return
            path = os.path.realpath(os.fsdecode(arguments[0]))
            writes = event != "open" or arguments[2] & _WRITING
            if os.path.commonpath([path, str(here)]) == here:
                if writes and not self.may_write:
                    self.seen.add(f"writes: {event}")
            elif writes:
                self.seen.add(f"writes elsewhere: {event}")
            elif os.path.commonpath([path, self.outside]) == self.outside:
                self.seen.add("opens a file outside")
        finally:
            self.here = here


_CODE = {
    "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen",
    "ctypes.dlopen", "socket.connect", "socket.getaddrinfo", "webbrowser.open",
}  # fmt: skip
_CHANGES = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod", "os.chown", "shutil.rmtree", "shutil.copyfile",
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def make_all(directory: str) -> int:
    """Write two things of each kind, and what is outside."""
    place = Path(directory)
    for name, kind in KINDS.items():
        for seed in (0, 5):
            kind.make(place / f"{name} {seed}", seed)
    (place / "outside").mkdir()
    (place / "outside" / "canary").write_bytes(SECRET)
    os.mkfifo(place / "outside" / "pipe")
    safetensors.torch.save_file({"rows": torch.zeros(2, 3)}, place / "outside" / "stranger")
    return len(KINDS)


def mutants(directory: str, seed: int, first: int, last: int) -> Iterator[str]:
    """Change and read things; yield what came of each case."""
    warnings.simplefilter("ignore")  # a damaged result is a warning and then an error
    place = Path(directory)
    whole = {name: kind.read(place / f"{name} 0") for name, kind in KINDS.items()}
    guard = Guard(place / "outside")
    limit_memory()
    for number in range(first, last):
        yield one_mutant(place, guard, whole, seed, number)


def read_one(kind: str, place: str) -> str:
    """Read a thing of a kind; return what came of it."""
    warnings.simplefilter("ignore")
    limit_memory()
    try:
        KINDS[kind].read(Path(place))
    except ERRORS as error:
        return f"{type(error).__name__}: {error}"
    return SAME


def limit_memory() -> None:
    """Leave this process so much memory more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def one_mutant(
    directory: Path, guard: Guard, whole: dict[str, dict[str, Any]], seed: int, number: int
) -> str:
    """Make a mutant and read it; return a word for the outcome, or a sentence if it is bad."""
    rng = np.random.default_rng([seed, number])
    name = list(KINDS)[number % len(KINDS)]
    kind, outside = KINDS[name], directory / "outside"
    here = directory / "here"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(directory / f"{name} 0", here)
    (outside / "twin").unlink(missing_ok=True)
    place = Place(name, here, directory / f"{name} 5", outside, rng)
    mutation = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
    with contextlib.suppress(IndexError, UnicodeEncodeError):
        resealed = mutation(place)
    before = sorted(path.name for path in outside.iterdir())
    guard.seen, guard.may_write, guard.here = set(), kind.writes, os.path.realpath(here)
    start, problem, found = time.process_time(), "", None
    try:
        found = kind.read(here)
    except ERRORS as error:
        guard.here = None
        outcome = type(error).__name__
        if not isinstance(error, kind.error):
            problem = f"{outcome} is not what {name} documents"
        elif SECRET.decode() in str(error):
            problem = "the error tells what is in a file outside"
        elif str(here) not in str(error):
            problem = f"the error does not name the file: {error}"
    except BaseException as error:
        guard.here = None
        outcome = problem = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        guard.here = None
    seconds = time.process_time() - start
    if found is not None:
        outcome = SAME
        if found != whole[name]:
            outcome = RESEALED
            if not resealed:
                problem = "something else is read without a word"
            elif not kind.as_written(here, found):
                problem = "what is read is not what is written"
    links = mutation in (change_kind_of_file, add_files)
    guard.seen -= {"opens a file outside"} if links else set()
    if guard.seen:
        problem = f"{sorted(guard.seen)}"
    elif seconds > SECONDS:
        problem = f"takes {seconds:.1f} s"
    elif sorted(path.name for path in outside.iterdir()) != before:
        problem = "leaves something outside"
    elif (outside / "canary").read_bytes() != SECRET:
        problem = "changes a file outside"
    return f"{name} {number}, {mutation.__name__}: {problem}" if problem else outcome


def attack_hostile_files(cases: int, seed: int) -> Counter[str]:
    """Change stored things in every way, and read them."""
    outcomes: Counter[str] = Counter()
    server = fork_server(__name__)
    with tempfile.TemporaryDirectory() as directory:
        assert server.run("make_all", directory=directory).value
        done = 0
        while done < cases:
            last = min(cases, done + 250)
            batch = task("mutants", directory=directory, seed=seed, first=done, last=last)
            [end] = server.together(batch, patience=20.0)
            outcomes.update(end.values)
            done += len(end.values)
            if done < last:  # its death is an outcome, too
                how = "hangs" if end.hung else f"dies: signal {end.signal} {end.error}"
                outcomes[f"{list(KINDS)[done % len(KINDS)]} {done}: the process {how}"] += 1
                done += 1
    return outcomes


TASKS = {"make_all": make_all, "mutants": mutants, "read_one": read_one}
