"""Stored things of every kind, and their files taken apart without the library that is attacked."""

import contextlib
import hashlib
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import count01_lens as cl
from count01_lens.common.storage import DamagedFileError
from count01_lens.jobs.results import ResultError, ResultStore, encode
from count01_lens.jobs.running import Job
from count01_lens.models.checkpoints import open_checkpoint
from count01_lens.models.lens import fields_of, parameters_of, state_of
from count01_lens.models.stored import StoredModel
from count01_lens.tasks.dataset import SplitSpec, make_splits
from count01_lens.training.run_directory import RunDirectoryError
from count01_lens.training.training_run import TrainResult

SPLITS = make_splits(
    0,
    train=SplitSpec(size=60, zeros_and_ones=(0, 9), twos=(0, 9)),
    validation=SplitSpec(size=20, zeros_and_ones=(0, 9), twos=(0, 9)),
    test=SplitSpec(size=30, zeros_and_ones=(0, 9), twos=(0, 9)),
)
MODEL = cl.ModelConfig(d_embed=4, n_heads=2, n_ctx=32)
TRAINING = cl.TrainConfig(model=MODEL, epochs=2, batch_size=30)


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
    cl.save_checkpoint(cl.build_model(MODEL, seed=seed), place / "checkpoint", info=info)


def read_checkpoint(place: Path) -> dict[str, Any]:
    """Parameters, cfg, flags, and what is known; without TransformerLens it has to be the same."""
    try:
        model = cl.load_checkpoint(place / "checkpoint")
    except cl.CheckpointError:
        open_checkpoint(place / "checkpoint")  # which raises, too
        raise AssertionError("refused by TransformerLens only") from None
    opened = open_checkpoint(place / "checkpoint")
    if isinstance(opened, StoredModel):
        assert vars(opened.cfg) == fields_of(model)
        for name, weight in state_of(model).items():
            assert torch.equal(opened.state_dict()[name].to(weight.dtype), weight)
    cfg = {name: str(value) for name, value in fields_of(model).items()}
    flags = {f"flag {name}": p.requires_grad for name, p in parameters_of(model).items()}
    tensors = {name: bits(tensor.numpy()) for name, tensor in state_of(model).items()}
    return {
        **tensors,
        **flags,
        "cfg": cfg,
        "info": repr(cl.checkpoint_info(place / "checkpoint")["info"]),
    }


def checkpoint_as_written(place: Path, found: dict[str, Any]) -> bool:
    """Compare the tensors; IGNORE is a constant of a dtype of its own."""
    arrays = Safetensors.of((place / "checkpoint.safetensors").read_bytes()).arrays()
    return all(
        found.get(name) == bits(array)
        for name, array in arrays.items()
        if not name.endswith("IGNORE")
    )


def make_analysis(place: Path, seed: int) -> None:
    """Save an analysis with all groups."""
    place.mkdir()
    analysis = cl.analyze_heads(cl.build_model(MODEL, seed=seed), SPLITS).with_groups()
    replace(analysis, notes=("a note",)).save(place / "analysis.safetensors")


def read_analysis(place: Path) -> dict[str, Any]:
    """All arrays, the words, and what a notebook would show."""
    analysis = cl.HeadAnalysis.load(place / "analysis.safetensors")
    data = analysis.data
    arrays = {f"pairs.{name}": matrix for name, matrix in analysis.pairs.items()}
    outputs = ("train_outputs", "train_answers", "test_outputs")
    arrays |= {f"data.{name}": getattr(data, name) for name in outputs}
    for question, asked in data.asked.items():
        parts = {name: getattr(asked, name) for name in ("heads", "rest", "answers")}
        arrays |= {f"asked.{question}.{name}": array for name, array in parts.items()}
        arrays |= {f"subsets.{question}.{name}": mask for name, mask in asked.subsets.items()}
    arrays |= {f"groups.{name}": column.to_numpy() for name, column in analysis.groups().items()}
    shown = [repr(analysis), analysis._repr_html_(), analysis.pairs_table().to_csv()]
    return {**{name: bits(array) for name, array in arrays.items()}, "shown": shown}


def analysis_as_written(place: Path, found: dict[str, Any]) -> bool:
    """Compare the arrays."""
    arrays = Safetensors.of((place / "analysis.safetensors").read_bytes()).arrays()
    return all(found[name] == bits(arrays[name]) for name in found if name != "shown")


def job_of(seed: int) -> Job:
    """A job that is never run."""
    return Job("a job", make_result, {"seed": seed}, "1")


def make_result(place: Path, seed: int) -> None:
    """Keep a result with something of every kind."""
    place.mkdir()
    table = pd.DataFrame({"n": np.arange(3) + seed, "x": [0.5, math.nan, 1], "w": ["a", None, "c"]})
    value = {"table": table, "array": np.arange(4.0), "inf": math.inf, "list": [1, True, None, "ü"]}
    about = {"name": "a job", "seconds": 0.25, "versions": {"torch": "2"}}
    job = job_of(seed)
    ResultStore(place).save(job, encode(value, identity=json.loads(job.identity), **about))


def read_result(place: Path) -> dict[str, Any]:
    """The value, as it would be written again."""
    found = ResultStore(place).load(job_of(0))
    again = Safetensors.of(encode(found, identity={}, name="", seconds=0.0, versions={}))
    arrays = [bits(array) for array in again.arrays().values()]
    return {"value": json.dumps(again.about()["value"]), "arrays": arrays}


def result_as_written(place: Path, found: dict[str, Any]) -> bool:
    """Whether all arrays come from the file; their names may be others."""
    arrays = Safetensors.of((place / f"{job_of(0).key}.safetensors").read_bytes()).arrays()
    return set(found["arrays"]) <= {bits(array) for array in arrays.values()}


def make_run(place: Path, seed: int) -> None:
    """Train two models."""
    train(place, seed)


def train(place: Path, seed: int) -> TrainResult:
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


NUMPY = {
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
        header = (json.dumps(self.header, separators=(",", ":")) if text is None else text).encode(
            "utf-8", "replace"
        )
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
            if entry["dtype"] in NUMPY:
                first, last = entry["data_offsets"]
                values = np.frombuffer(self.body[first:last], NUMPY[entry["dtype"]])
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

    def about(self) -> Any:
        """All that is no tensor."""
        return json.loads(self.header["__metadata__"]["about"])

    def tell(self, text: str) -> None:
        """Give it another text in the place of its JSON."""
        self.header["__metadata__"]["about"] = text

    def sealed(self) -> bytes:
        """Make the checksum fit again, where there is a place for one."""
        with contextlib.suppress(Exception):
            self.header["__metadata__"]["sha256"] = ""
            checksum = hashlib.sha256(self.written()).hexdigest()
            self.header["__metadata__"]["sha256"] = checksum
        return self.written()
