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
from count01_lens.common.bundle import LARGEST_HEADER, MOST_TENSORS, Bundle, write_bundle
from count01_lens.common.storage import DEEPEST_JSON, DamagedFileError, locked
from count01_lens.jobs.results import ResultStore, encode
from count01_lens.models.checkpoints import checkpoint_info
from tests.attacks import attack_and_keep
from tests.attacks.fork_server import fork_server
from tests.attacks.hostile_files import GOOD, RESEALED, SAME, attack_hostile_files, make_all
from tests.attacks.mutations import Place
from tests.attacks.stored_things import KINDS, Safetensors, job_of

CHECKPOINT, ANALYSIS = "checkpoint.safetensors", "analysis.safetensors"
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
        ("checkpoint", CHECKPOINT),
        ("analysis", ANALYSIS),
        ("result", RESULT),
        *(("run", name) for name in ("run.safetensors", "state.safetensors", ".lock")),
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
    (place.here / CHECKPOINT).unlink()
    (place.here / CHECKPOINT).symlink_to(target)
    assert read(place).startswith("CheckpointError: ")


def test_a_link_is_read_if_it_leads_to_the_very_bytes(place, tmp_path):
    """As in the caches of some package managers and model hubs."""
    place = place("checkpoint")
    for path in place.files:
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    assert read(place) == SAME
    (place.here / CHECKPOINT).unlink()
    (place.here / CHECKPOINT).symlink_to(place.outside / "canary")
    told = read(place)
    assert f"{CHECKPOINT}: expected " in told
    assert "canary sings" not in told


@pytest.mark.parametrize("kind", ["checkpoint", "analysis", "result", "run"])
def test_a_file_larger_than_the_memory_is_refused(place, kind):
    place = place(kind)
    size = 64 * 2**30
    for path in place.files:
        os.truncate(path, size)
    told = read(place)
    if kind == "result":  # why is in a warning; it counts as absent
        assert told.startswith("ResultError: ")
    else:
        assert f"{size} bytes are more than the memory can hold" in told


def change_text(place: Place, name: str, text: str) -> None:
    """Write another JSON text into a file, with a checksum that fits."""
    path = place.here / name
    stored = Safetensors.of(path.read_bytes())
    stored.tell(text)
    path.write_bytes(stored.sealed())


def text_of(place: Place, name: str) -> dict:
    return Safetensors.of((place.here / name).read_bytes()).about()


DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize(
    "text", [DEEP, "[" * 10**5, "{}", "[]", "null", "NaN", "3", '{"a":1,"a":2}']
)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("checkpoint", CHECKPOINT),
        ("analysis", ANALYSIS),
        ("result", RESULT),
        ("run", "run.safetensors"),
        ("run", "state.safetensors"),
        ("run", "snapshots/step-0000004.safetensors"),
    ],
)
def test_other_text_beside_tensors_is_refused(place, kind, name, text):
    place = place(kind)
    change_text(place, name, text)
    with pytest.raises(KINDS[kind].error) as caught, quiet():
        KINDS[kind].read(place.here)
    assert str(place.here) in str(caught.value)


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
        {"heads": {}},
        {"heads": {"columns": {}, "words": {}}},
        {"heads": {"columns": ["layer", "head"], "words": {}}},
        {"heads": {"columns": ["layer", "head"], "words": []}},
        {"counts": {"columns": ["w01"], "words": {"w01": ["a", "b"]}}},
        {"accuracy": ["answer", "ties", "others", "<b>"]},
        {"questions": {"answer": ["ties", "others"], "<b>": []}},
        {"questions": {"answer": [3], "end": []}},
        {"questions": []},
        {"probe": 3},
    ],
)
def test_an_analysis_whose_parts_do_not_fit_is_refused(place, change):
    place = place("analysis")
    text = {**text_of(place, "analysis.safetensors"), **change}
    change_text(place, "analysis.safetensors", json.dumps(text))
    with pytest.raises(DamagedFileError, match=r"analysis\.safetensors: not an analysis"):
        cl.HeadAnalysis.load(place.here / "analysis.safetensors")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("asked.answer.heads", np.zeros((30, 3, 2))),
        ("asked.answer.answers", np.zeros(30)),
        ("asked.end.answers", np.full(30, 99)),
        ("subsets.answer.ties", np.zeros(30)),
        ("data.train_answers", np.full(30, -1)),
        ("fits.starts", np.zeros((3, 1, 4))),
        ("pairs.s_acc", np.zeros((2, 3))),
        ("groups.mask", np.arange(4)),
        ("no_heads.s_acc", np.zeros(1)),
        ("heads.s_acc", np.zeros(4)),
        ("worst_gradient", np.zeros(2)),
    ],
)
def test_an_analysis_whose_arrays_do_not_fit_is_refused(place, name, array):
    path = place("analysis").here / "analysis.safetensors"
    stored = Safetensors.of(path.read_bytes())
    tensors = {n: torch.from_numpy(np.array(a)) for n, a in stored.arrays().items()}
    assert name in tensors
    changed = {**tensors, name: torch.from_numpy(array)}
    write_bundle(path, Bundle("analysis", stored.about(), changed))
    with pytest.raises(DamagedFileError, match="not an analysis of heads"):
        cl.HeadAnalysis.load(path)


def test_a_category_that_nobody_gave_is_refused(place):
    """Pages show it as it is."""
    place = place("analysis")
    text = text_of(place, "analysis.safetensors")
    text["heads"]["words"]["category"][0] = "<script>alert(1)</script>"
    change_text(place, "analysis.safetensors", json.dumps(text))
    with pytest.raises(DamagedFileError, match="expected categories of"):
        cl.HeadAnalysis.load(place.here / "analysis.safetensors")


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "F8_E5M2", "C64", "F4"])
@pytest.mark.parametrize(
    ("of", "name", "tensor"),
    [
        ("checkpoint", CHECKPOINT, "embed.W_E"),
        ("checkpoint", CHECKPOINT, "blocks.0.attn.IGNORE"),
        ("analysis", "analysis.safetensors", "asked.end.heads"),
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
    if (tensor, kind) == ("blocks.0.attn.IGNORE", "BF16"):
        return assert_ignore_may_be_of_any_default_dtype(place)
    with pytest.raises(KINDS[of].error), quiet():
        KINDS[of].read(place.here)
    return None


def assert_ignore_may_be_of_any_default_dtype(place: Place) -> None:
    """torch.set_default_dtype decides it when a model is made."""
    assert cl.load_checkpoint(place.here / CHECKPOINT).cfg.n_heads == 2


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


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 1},
        {"epoch": 0},
        {"epoch": 3},
        {"epoch": "2"},
        {"epoch": True},
        {"columns": ["loss"]},
        {"columns": ["loss", "loss"]},
        {"columns": "loss"},
        {"run": "0" * 64},
    ],
)
def test_a_state_that_says_something_else_is_refused(place, change):
    place = place("run")
    text = text_of(place, "state.safetensors")
    assert set(change) < set(text)
    change_text(place, "state.safetensors", json.dumps({**text, **change}))
    with pytest.raises(KINDS["run"].error, match=r"state\.safetensors: not of this run"):
        KINDS["run"].read(place.here)


@pytest.mark.parametrize("clash", ["epoch", "step"])
def test_a_history_whose_columns_clash_is_refused(place, clash):
    place = place("run")
    text = text_of(place, "state.safetensors")
    text["columns"][0] = clash
    change_text(place, "state.safetensors", json.dumps(text))
    with pytest.raises(KINDS["run"].error, match="the names of different columns"):
        KINDS["run"].read(place.here)


@pytest.mark.parametrize("change", ["a line less", "another kind", "a model more"])
def test_a_history_of_other_sizes_is_refused(place, change):
    path = place("run").here / "state.safetensors"
    stored = Safetensors.of(path.read_bytes())
    tensors = {n: torch.from_numpy(np.array(a)) for n, a in stored.arrays().items()}
    history = tensors["history"]
    tensors["history"] = {
        "a line less": history[1:],
        "another kind": history.float(),
        "a model more": torch.cat([history, history[:, :, :1]], dim=2),
    }[change]
    write_bundle(path, Bundle("training state", stored.about(), tensors))
    with pytest.raises(KINDS["run"].error, match=r"state\.safetensors: not of this run .history"):
        KINDS["run"].read(path.parent)


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
    text = text_of(place, CHECKPOINT)
    change_text(place, CHECKPOINT, json.dumps({**text, name: value}))
    for call in (cl.load_checkpoint, checkpoint_info):
        with pytest.raises(cl.CheckpointError, match=rf"tensors: expected an object '{name}'"):
            call(place.here / CHECKPOINT)


def test_what_could_not_be_read_is_not_written(tmp_path):
    model = cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2))
    deep = inner = {}
    for _ in range(DEEPEST_JSON):
        inner["a"] = inner = {}
    for info in ({"text": "x" * LARGEST_HEADER}, deep):
        with pytest.raises(ValueError, match="info and cfg: expected"):
            cl.save_checkpoint(model, tmp_path / "checkpoint", info=info)
    with pytest.raises(ValueError, match="nested at most"):
        encode(deep, name="", identity={}, seconds=0.0, versions={})
    many = {f"x{n}": torch.zeros(0) for n in range(MOST_TENSORS + 1)}
    long = {f"{'x' * 2000}{n}": torch.zeros(0) for n in range(LARGEST_HEADER // 2000)}
    for tensors in (many, long):
        with pytest.raises(ValueError, match="keep fewer in one file"):
            write_bundle(tmp_path / "many", Bundle("test", {}, tensors))
    assert list(tmp_path.iterdir()) == []


def test_the_attack_would_notice(place):
    """A thing that is read as another one has other words in it."""
    checkpoint = place("checkpoint")
    whole = KINDS["checkpoint"].read(checkpoint.here)
    assert KINDS["checkpoint"].read(checkpoint.other) != whole
    assert KINDS["checkpoint"].as_written(checkpoint.here, whole)
    assert not KINDS["checkpoint"].as_written(checkpoint.other, whole)
    assert {SAME, RESEALED} < GOOD
