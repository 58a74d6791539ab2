"""Tasks as JSON files: what is read is what was written, and strangers' files do no harm."""

import json
import os

import numpy as np
import pytest

import count01_lens.tasks.task_file as module
from count01_lens.models.checkpoints import example_model
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.prompts import Prompts, Task
from count01_lens.tasks.task_file import read_task, write_task
from tests.helpers import TINY

GOOD = {
    "format": 1,
    "train": {
        "tokens": [[0, 3, 1, 8], [0, 2, 8], [0, 1, 1, 8]],
        "answers": [3, 2, 1],
        "position": -1,
        "subsets": {"short": [False, True, False]},
    },
    "test": {"tokens": [[0, 5, 2, 8], [0, 4, 8]], "answers": [5, 4], "position": [2, 1]},
    "choices": [1, 2, 3, 4, 5],
}


def changed(where, value):
    """The good task with one value replaced; a value of ... takes it out."""
    task = json.loads(json.dumps(GOOD))
    *parents, last = where.split(".")
    inner = task
    for name in parents:
        inner = inner[name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return task


def written(directory, task):
    path = directory / "task.json"
    path.write_text(task if isinstance(task, str) else json.dumps(task))
    return path


def test_a_file_is_the_task_that_it_describes(tmp_path):
    task = read_task(written(tmp_path, GOOD))
    question = task.questions["answer"]
    assert question.choices == (1, 2, 3, 4, 5)
    assert [row.tolist() for row in question.train.sequences()] == GOOD["train"]["tokens"]
    assert question.train.answers.tolist() == [3, 2, 1]
    assert question.train.positions == [3, 2, 3]
    assert question.train.subsets["short"].tolist() == [False, True, False]
    assert question.test.positions == [2, 1]
    assert not question.test.subsets


def test_what_may_be_left_out(tmp_path):
    small = {"format": 1} | {
        name: {key: GOOD["train"][key] for key in ("tokens", "answers")}
        for name in ("train", "test")
    }
    question = read_task(written(tmp_path, small)).questions["answer"]
    assert question.choices == (1, 2, 3)
    assert question.test.positions == [3, 2, 3]


def test_what_is_written_is_read_again(tmp_path):
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 50, rng.integers(2, 9)).tolist() for _ in range(40)]
    prompts = Prompts(rows, [row[0] for row in rows], 0, {"odd <&>": np.arange(40) % 2 == 1})
    task = Task.split(prompts, seed=3, choices=range(50))
    assert write_task(task, tmp_path / "task.json") == tmp_path / "task.json"
    again = read_task(tmp_path / "task.json")
    assert again.fingerprint == task.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["task.json"]
    before = (tmp_path / "task.json").read_bytes()
    Task.load(tmp_path / "task.json").save(tmp_path / "task.json")
    assert (tmp_path / "task.json").read_bytes() == before


def test_texts_are_read_and_written(tmp_path):
    texts = {
        "format": 1,
        "train": {"tokens": ["011=", "001="], "answers": ["4", "5"]},
        "test": {"tokens": ["11=", "00="], "answers": ["4", "5"]},
        "choices": ["4", "5"],
    }
    task = read_task(written(tmp_path, texts))
    write_task(task, tmp_path / "again.json")
    again = read_task(tmp_path / "again.json")
    model = example_model()
    assert again.for_model(model).fingerprint == task.for_model(model).fingerprint
    assert task.for_model(model).questions["answer"].choices == (5, 6)
    assert task.for_model(model).questions["answer"].test.positions == [3, 3]
    mixed = texts | {"test": {"tokens": ["11=", [0, 1, 4]], "answers": ["4", "5"]}}
    with pytest.raises(ValueError, match="test.tokens: expected all prompts as texts, or all as"):
        read_task(written(tmp_path, mixed))


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="expected one question, got answer, end"):
        write_task(Count01(TINY), tmp_path / "task.json")
    with pytest.raises(TypeError, match="expected a Task, got dict"):
        write_task(GOOD, tmp_path / "task.json")
    task = read_task(written(tmp_path, GOOD))
    with pytest.raises(ValueError, match="in a directory that exists"):
        write_task(task, tmp_path / "nowhere" / "task.json")
    monkeypatch.setattr(module, "LARGEST_FILE", 20)
    with pytest.raises(ValueError, match="expected at most 20 bytes"):
        write_task(task, tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("format", 2, "format: expected 1, got 2"),
        ("format", True, "format: expected 1, got True"),
        ("format", ..., "the file: expected format, train, test, choices, got no 'format'"),
        ("train", ..., "got no 'train'"),
        ("extra", 1, "choices, got 'extra'"),
        ("train", [1, 2], r"train: expected an object in braces, got \[1, 2\]"),
        ("test.tokens", ..., "test: expected tokens, answers, position, subsets, got no 'tokens'"),
        ("test.token", [], "test: expected .*, got 'token'"),
        ("test.tokens", 7, "test.tokens: expected a list, got 7"),
        ("test.tokens", [[0, 1], 5], r"test.tokens\[1\]: expected a list, got 5"),
        ("test.tokens", [[0, 1], [0, 1.5]], r"test.tokens\[1\]\[1\]: expected a token id"),
        ("test.tokens", [[0, True], [0, 1]], r"test.tokens\[0\]\[1\]: expected a token id"),
        ("test.tokens", [[0, "4"], [0, 1]], r"test.tokens\[0\]\[1\]: .*got '4'"),
        ("test.tokens", [[0, -1], [0, 1]], r"test.tokens\[0\]\[1\]: .*got -1"),
        ("test.tokens", [[0, 10**30], [0, 1]], r"test.tokens\[0\]\[1\]: expected a token id"),
        ("test.tokens", [[[0]], [0, 1]], r"test.tokens\[0\]\[0\]: .*got \[0\]"),
        ("test.tokens", [[], [0, 1]], "test.tokens: expected at least one prompt, each"),
        ("test.tokens", [], "test.tokens: expected at least one prompt"),
        ("test.answers", {"a": 1}, "test.answers: expected a list"),
        ("test.answers", [5], "test.answers: expected one for each of 2 prompts, got 1"),
        ("test.answers", [5, None], r"test.answers\[1\]: expected a token id .*got None"),
        ("test.answers", ["5", 4], r"test.answers\[1\]: expected a text"),
        ("test.answers", [5, 9], "choices: expected .* all answers"),
        ("test.position", 1.5, "test.position: expected a whole number, got 1.5"),
        ("test.position", [1, "x"], r"test.position\[1\]: expected a whole number, got 'x'"),
        ("test.position", [1], "test.position: expected one for each of 2 prompts, got 1"),
        ("test.position", 9, "test.position: expected one of the 4 tokens of prompt 0, got 9"),
        ("train.subsets", [1], "train.subsets: expected an object of lists by name"),
        ("train.subsets", {"a": [1, 0, 1]}, r"train.subsets\['a'\]\[0\]: expected true or false"),
        ("train.subsets", {"a": [True]}, "expected one for each of 3 prompts, got 1"),
        ("train.subsets", {"answer": [True] * 3}, "no subset of the name 'answer'"),
        ("choices", 5, "choices: expected a list, got 5"),
        ("choices", [1, 2], "choices: expected at least two different tokens, all answers"),
        ("choices", [1, 2, 3, 4, 5, 5], "choices: expected at least two different"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path, where, value, message):
    path = written(tmp_path, changed(where, value))
    with pytest.raises(ValueError, match=message) as caught:
        read_task(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "content",
    ["", "no JSON", "[" * 100_000, '{"format": 1, "format": 1}', "NaN", "1" * 10_000, "{", "[]"],
)
def test_what_is_no_task_says_so(tmp_path, content):
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match="not a task in JSON|expected an object") as caught:
        read_task(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_bytes_and_places_that_are_no_files(tmp_path):
    path = tmp_path / "task.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a task in JSON"):
        read_task(path)
    with pytest.raises(ValueError, match="no such file"):
        read_task(tmp_path / "missing.json")
    with pytest.raises(ValueError, match="not a task in JSON"):
        read_task(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="expected a plain file, got a pipe"):
        read_task(tmp_path / "pipe")


def test_sizes_have_a_limit(tmp_path, monkeypatch):
    path = written(tmp_path, GOOD)
    monkeypatch.setattr(module, "MOST_TOKENS", 10)
    assert read_task(written(tmp_path, changed("train.tokens", [[1], [2], [3]])))
    with pytest.raises(ValueError, match="train.tokens: expected at most 10, got 11"):
        read_task(written(tmp_path, GOOD))
    monkeypatch.setattr(module, "LARGEST_FILE", 30)
    with pytest.raises(ValueError, match="expected a task of at most 30 bytes"):
        read_task(path)
