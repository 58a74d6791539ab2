"""Files from anywhere: refused with our own errors, soon, and without harm."""

import json
import math
import os
import shutil
import warnings
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.common.storage import (
    DEEPEST_JSON,
    LARGEST_HEADER,
    LARGEST_JSON,
    DamagedFileError,
    locked,
    parse_json,
    read_file,
    save_tensors,
)
from count01_lens.jobs.results import ResultStore, encode
from count01_lens.models.checkpoints import checkpoint_info
from tests.attacks import attack_and_keep
from tests.attacks.fork_server import fork_server
from tests.attacks.hostile_files import (
    GOOD,
    KINDS,
    RESEALED,
    SAME,
    Place,
    Safetensors,
    attack_hostile_files,
    job_of,
    make_all,
    reseal,
)

RESULT = f"{job_of(0).key}.safetensors"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stored") / "all"
    directory.mkdir()
    assert make_all(str(directory)) == 4
    return directory


@pytest.fixture
def place(stored, tmp_path):
    """Give a copy of a stored thing by its kind."""

    def copy(kind):
        shutil.copytree(stored / f"{kind} 0", tmp_path / kind)
        return Place(
            kind,
            tmp_path / kind,
            stored / f"{kind} 5",
            stored / "outside",
            np.random.default_rng(0),
        )

    return copy


def read(place: Place) -> str:
    """Read it in another process, which may hang or take too much memory."""
    return (
        fork_server("tests.attacks.hostile_files")
        .run("read_one", kind=place.kind, place=str(place.here))
        .value
    )


def assert_good(outcomes: Counter[str], cases: int) -> None:
    assert set(outcomes) <= GOOD, {word: n for word, n in outcomes.items() if word not in GOOD}
    assert sum(outcomes.values()) == cases
    assert all(outcomes[word] for word in GOOD)


@pytest.mark.slow
def test_changed_files_are_refused_or_the_same():
    assert_good(attack_hostile_files(300, seed=0), 300)


@pytest.mark.stress
def test_many_changed_files_are_refused_or_the_same():
    what = (
        "checkpoints, analyses, results and runs with changed bytes, headers, JSON, links, pipes, "
        "devices, pickles and swapped files, half of them with checksums made to fit again"
    )
    cases = 10_000
    assert_good(attack_and_keep("hostile_files", what, attack_hostile_files, cases, seed=1), cases)


# Each of these was read in another way once, or not at all.


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("checkpoint", name) for name in ("manifest.json", "config.json", "model.safetensors")),
        ("analysis", "analysis.safetensors"),
        ("result", RESULT),
        *(("run", name) for name in ("run.json", "state.safetensors", ".lock")),
        ("run", "snapshots/step-0000004.safetensors"),
    ],
)
def test_nobody_waits_for_a_pipe(place, kind, name):
    place = place(kind)
    (place.here / name).unlink()
    os.mkfifo(place.here / name)
    told = read(place)
    assert told.split(":")[0] in {error.__name__ for error in KINDS[kind].error}
    assert str(place.here) in told


@pytest.mark.parametrize("target", ["/dev/zero", "/proc/self/environ", "/dev/tty"])
def test_devices_are_not_read(place, target):
    place = place("checkpoint")
    (place.here / "manifest.json").unlink()
    (place.here / "manifest.json").symlink_to(target)
    assert read(place).startswith("CheckpointError: ")


def test_a_link_is_read_if_it_leads_to_the_very_bytes(place, tmp_path):
    """As in the caches of some package managers and model hubs."""
    place = place("checkpoint")
    for path in place.files:
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    assert read(place) == SAME
    (place.here / "config.json").unlink()
    (place.here / "config.json").symlink_to(place.outside / "canary")
    told = read(place)
    assert "config.json: expected " in told
    assert "canary sings" not in told


@pytest.mark.parametrize("kind", ["checkpoint", "analysis", "result", "run"])
def test_a_file_larger_than_the_memory_is_refused(place, kind):
    place = place(kind)
    size = 64 * 2**30
    for path in place.files:
        if path.suffix == ".safetensors":
            os.truncate(path, size)
    manifest = place.here / "manifest.json"
    if manifest.exists():
        content = json.loads(manifest.read_text())
        content["files"]["model.safetensors"]["bytes"] = size
        manifest.write_text(json.dumps(content))
    told = read(place)
    if kind == "result":  # why is in a warning; it counts as absent
        assert told.startswith("ResultError: ")
    else:
        assert f"{size} bytes are more than the memory can hold" in told


def change_text(place: Place, name: str, text: str) -> None:
    """Write another JSON text into a file of tensors, with a checksum that fits."""
    path = place.here / name
    stored = Safetensors.of(path.read_bytes())
    inside = "history" if "history" in stored.header else "text"
    stored.replace(inside, text.encode(), shape=[len(text.encode())])
    path.write_bytes(stored.sealed())


def text_of(place: Place, name: str) -> dict:
    stored = Safetensors.of((place.here / name).read_bytes())
    inside = "history" if "history" in stored.header else "text"
    return json.loads(stored.arrays()[inside].tobytes())


DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize(
    "text", [DEEP, "[" * 10**5, "{}", "[]", "null", "NaN", "3", '{"a":1,"a":2}']
)
@pytest.mark.parametrize(
    ("kind", "name"),
    [("analysis", "analysis.safetensors"), ("result", RESULT), ("run", "state.safetensors")],
)
def test_other_text_inside_tensors_is_refused(place, kind, name, text):
    place = place(kind)
    change_text(place, name, text)
    with pytest.raises(KINDS[kind].error, match=name.replace(".", r"\.")), quiet():
        KINDS[kind].read(place.here)


@contextmanager
def quiet():
    """A damaged result is a warning before it is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize(
    "change",
    [
        {"notes": 3},
        {"notes": [3]},
        {"columns": {}},
        {"columns": ["layer", "head"]},
        {"words": []},
        {"accuracy": ["answer", "ties", "others", "<b>"]},
        {"end_token": 99},
        {"end_token": "7"},
        {"format": DEEP},
    ],
)
def test_an_analysis_whose_parts_do_not_fit_is_refused(place, change):
    place = place("analysis")
    text = {**text_of(place, "analysis.safetensors"), **change}
    change_text(place, "analysis.safetensors", json.dumps(text))
    with pytest.raises(DamagedFileError, match=r"analysis\.safetensors: (not an|written)"):
        cl.HeadAnalysis.load(place.here / "analysis.safetensors")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("data.shares", np.zeros((30, 3, 2))),
        ("data.test_labels", np.zeros(30)),
        ("pairs.s_acc", np.zeros((2, 3))),
        ("groups.mask", np.arange(4)),
        ("groups_empty", np.zeros((4, 1))),
        ("table.s_acc", np.zeros(3)),
        ("worst_gradient", np.zeros(2)),
    ],
)
def test_an_analysis_whose_arrays_do_not_fit_is_refused(place, name, array):
    path = place("analysis").here / "analysis.safetensors"
    tensors = {n: torch.from_numpy(np.array(a)) for n, a in Safetensors.of(path.read_bytes()).arrays().items()}  # fmt: skip
    assert name in tensors
    save_tensors(path, {**tensors, name: torch.from_numpy(array)})
    with pytest.raises(DamagedFileError, match="not an analysis of heads"):
        cl.HeadAnalysis.load(path)


def test_a_category_that_nobody_gave_is_refused(place):
    """Pages show it as it is."""
    place = place("analysis")
    text = text_of(place, "analysis.safetensors")
    text["words"]["category"][0] = "<script>alert(1)</script>"
    change_text(place, "analysis.safetensors", json.dumps(text))
    with pytest.raises(DamagedFileError, match="expected categories of"):
        cl.HeadAnalysis.load(place.here / "analysis.safetensors")


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "F8_E5M2", "C64", "F4"])
@pytest.mark.parametrize(
    ("of", "name", "tensor"),
    [
        ("checkpoint", "model.safetensors", "embed.W_E"),
        ("checkpoint", "model.safetensors", "blocks.0.attn.IGNORE"),
        ("analysis", "analysis.safetensors", "data.shares"),
        ("result", RESULT, "result['array']"),
        ("run", "state.safetensors", "rows"),
    ],
)
def test_tensors_of_other_kinds_are_refused(place, of, name, tensor, kind):
    place = place(of)
    path = place.here / name
    stored = Safetensors.of(path.read_bytes())
    count = math.prod(stored.header[tensor]["shape"])
    size = {"BF16": 2, "C64": 8}.get(kind, 1)
    stored.replace(tensor, bytes(size * count), dtype=kind)
    path.write_bytes(stored.sealed())
    reseal(place)
    if (tensor, kind) == ("blocks.0.attn.IGNORE", "BF16"):
        return assert_ignore_may_be_of_any_default_dtype(place)
    with pytest.raises(KINDS[of].error), quiet():
        KINDS[of].read(place.here)
    return None


def assert_ignore_may_be_of_any_default_dtype(place: Place) -> None:
    """torch.set_default_dtype decides it when a model is made."""
    assert cl.load_checkpoint(place.here).cfg.n_heads == 2


@pytest.mark.parametrize(
    "table",
    [
        [["a", "U900000000", ["x"] * 9]],
        [["a", "int64[pyarrow]", [1]]],
        [["a", "int8", [2**70]]],
        [["a", "str", [3]]],
        [[3, "str", ["x"]]],
        [["a", "category", ["x"]]],
        [["a", ["str"], ["x"]]],
        5,
    ],
)
def test_columns_that_were_never_written_are_refused(place, table):
    place = place("result")
    text = {**text_of(place, RESULT), "value": {"$table": table}}
    change_text(place, RESULT, json.dumps(text))
    with pytest.warns(UserWarning, match="damaged"):
        assert ResultStore(place.here).find(job_of(0)) is None


@pytest.mark.parametrize(
    "change", [{"name": 3}, {"identity": []}, {"seconds": "1"}, {"versions": 1}]
)
def test_a_result_with_other_fields_is_refused(place, change):
    place = place("result")
    change_text(place, RESULT, json.dumps({**text_of(place, RESULT), **change}))
    with pytest.warns(UserWarning, match="damaged"):
        assert ResultStore(place.here).find(job_of(0)) is None


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("state.safetensors", "../run 5/state.safetensors"),
        ("state.safetensors", "snapshots/step-0000002.safetensors"),
        ("snapshots/step-0000004.safetensors", "snapshots/step-0000002.safetensors"),
        ("snapshots/step-0000004.safetensors", "../run 5/snapshots/step-0000004.safetensors"),
        ("snapshots/step-0000002.safetensors", "state.safetensors"),
        ("snapshots/step-0000004.safetensors", "../outside/stranger"),
    ],
)
def test_files_of_other_runs_and_steps_are_refused(stored, place, name, source):
    place = place("run")
    shutil.copy(stored / "run 0" / source, place.here / name)
    with pytest.raises(KINDS["run"].error, match=r"delete the directory to train again") as caught:
        KINDS["run"].read(place.here)
    assert str(place.here / name) in str(caught.value)


def test_runs_from_before_their_files_bore_a_mark_are_read(stored, place):
    place = place("run")
    for path in place.files:
        if path.suffix == ".safetensors":
            arrays = Safetensors.of(path.read_bytes()).arrays()
            marks = {"run"} if path.name == "state.safetensors" else {"run", "step"}
            assert marks <= set(arrays)
            kept = {name: np.array(arrays[name]) for name in set(arrays) - marks}
            save_tensors(path, {name: torch.from_numpy(array) for name, array in kept.items()})
    assert KINDS["run"].read(place.here) == KINDS["run"].read(stored / "run 0")


def test_a_history_of_other_steps_is_refused(place):
    for change in ("epoch", "step", "loss", "extra"):
        copy = place("run")
        history = text_of(copy, "state.safetensors")
        history[1][change] = 77
        change_text(copy, "state.safetensors", json.dumps(history))
        with pytest.raises(KINDS["run"].error, match=r"state\.safetensors: not of this run"):
            KINDS["run"].read(copy.here)
        shutil.rmtree(copy.here)


def test_a_file_named_snapshots_is_refused(place):
    place = place("run")
    shutil.rmtree(place.here / "snapshots")
    (place.here / "snapshots").write_text("mine")
    with pytest.raises(KINDS["run"].error, match="snapshots: expected a directory, got a file"):
        KINDS["run"].read(place.here)


def test_a_lock_that_leads_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / ".lock").symlink_to(tmp_path / "made")
    with (
        pytest.raises(DamagedFileError, match=r"\.lock: expected a plain file"),
        locked(tmp_path / "here"),
    ):
        pass
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["info", "versions"])
@pytest.mark.parametrize("value", [[1, 2], "x", 3])
def test_what_is_known_of_a_checkpoint_is_an_object(place, name, value):
    place = place("checkpoint")
    config = json.loads((place.here / "config.json").read_text())
    (place.here / "config.json").write_text(json.dumps({**config, name: value}))
    reseal(place)
    for call in (cl.load_checkpoint, checkpoint_info):
        with pytest.raises(cl.CheckpointError, match=rf"config\.json: expected an object '{name}'"):
            call(place.here)


def test_what_could_not_be_read_is_not_written(tmp_path):
    model = cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2))
    deep = inner = {}
    for _ in range(DEEPEST_JSON):
        inner["a"] = inner = {}
    for info in ({"text": "x" * LARGEST_JSON}, deep):
        with pytest.raises(ValueError, match="info and cfg: expected"):
            cl.save_checkpoint(model, tmp_path / "checkpoint", info=info)
    with pytest.raises(ValueError, match="nested at most"):
        encode(deep, name="", identity={}, seconds=0.0, versions={})
    many = {f"{'x' * 50}{n}": torch.zeros(0) for n in range(LARGEST_HEADER // 100)}
    with pytest.raises(ValueError, match="keep fewer in one file"):
        save_tensors(tmp_path / "many", many)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "1e999", '{"a":1,"a":1}', "[" * 200 + "]" * 200, "\xff"]
)
def test_only_json_as_we_write_it_is_read(text):
    with pytest.raises(ValueError, match=".+"):
        parse_json(text.encode("latin-1"))
    assert parse_json(b'{"a": [1.5, -2, "x", null]}') == {"a": [1.5, -2, "x", None]}
    assert parse_json(b"[1e999]", finite=False) == [math.inf]


def test_plain_files_are_read_up_to_a_size(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file", at_most=5) == b"12345"
    with pytest.raises(OSError, match="expected at most 4 bytes, got 5"):
        read_file(tmp_path / "file", at_most=4)
    with pytest.raises(OSError, match="irectory"):
        read_file(tmp_path)


def test_the_attack_would_notice(place):
    """A thing that is read as another one has other words in it."""
    checkpoint = place("checkpoint")
    whole = KINDS["checkpoint"].read(checkpoint.here)
    assert KINDS["checkpoint"].read(checkpoint.other) != whole
    assert KINDS["checkpoint"].as_written(checkpoint.here, whole)
    assert not KINDS["checkpoint"].as_written(checkpoint.other, whole)
    assert {SAME, RESEALED} < GOOD
