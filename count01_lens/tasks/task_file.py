"""A task as a JSON file, for the command line and for handing a task on.

    {
      "format": 1,
      "train": {
        "tokens": [[0, 3, 1, 8], [0, 2, 8]],
        "answers": [3, 2],
        "position": -1,
        "subsets": {"short": [false, true]}
      },
      "test": {"tokens": [[0, 5, 2, 8], [0, 4, 8]], "answers": [5, 4]},
      "choices": [1, 2, 3, 4, 5]
    }

`train` and `test` are prompts, as in `Prompts`: `position` is -1 (the last token) where it is left
out, `subsets` are none. `choices` are the answers that occur where they are left out. A prompt, an
answer or a choice may be a text instead of token ids, for a model that has a tokenizer. Nothing
else may be in the file, and reading it runs nothing: it may come from anybody.
"""

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from count01_lens.common.storage import check_file_to_write, json_bytes, parse_json, read_file
from count01_lens.common.storage import write_atomically as write_file
from count01_lens.common.suggestions import did_you_mean
from count01_lens.common.validation import is_int
from count01_lens.tasks.prompts import Asked, Prompts, Task

FORMAT = 1
# More than any model of ours is asked, and little enough for the memory of a laptop.
LARGEST_FILE = 200_000_000  # bytes
MOST_TOKENS = 20_000_000
LARGEST_TEXT = 1_000_000  # characters
LARGEST_ID = 2**31 - 1
_PARTS = ("train", "test")
_OF_PROMPTS = {"tokens": True, "answers": True, "position": False, "subsets": False}


def read_task(path: str | PathLike[str]) -> Task:
    """Read a task from a JSON file; the head of this module describes it.

    Raises:
        ValueError: names the file, the place in it, and what was expected there.
    """
    path = Path(path)
    value = _json_of(path)
    try:
        given = _object("the file", value, {"format": True, "train": True, "test": True}, "choices")
        if given["format"] != FORMAT or not is_int(given["format"]):
            raise ValueError(f"format: expected {FORMAT}, got {shortened(given['format'])}")
        train, test = (_prompts(name, given[name]) for name in _PARTS)
        choices = given.get("choices")
        if choices is not None:
            _check_answers("choices", choices)
        return Task(train, test, choices)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def write_task(task: Task, path: str | PathLike[str]) -> Path:
    """Write a task of one question as a JSON file, which `read_task` reads; whole or not at all."""
    path = Path(path)
    if not isinstance(task, Task):
        raise TypeError(f"task: expected a Task, got {type(task).__name__}")
    if list(task.questions) != ["answer"]:
        raise ValueError(
            f"task: expected one question, got {', '.join(task.questions)}; write the prompts of "
            "one of them as a Task of their own"
        )
    question = task.questions["answer"]
    value = {"format": FORMAT, "choices": _plain(question.choices)}
    value |= {name: _written(getattr(question, name)) for name in _PARTS}
    data = json_bytes(value, indent=None)
    check_file_to_write(path)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"task: expected at most {LARGEST_FILE:,} bytes, got {len(data):,}")
    write_file(path, data)
    return path


def _json_of(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise ValueError(f"expected a task of at most {LARGEST_FILE:,} bytes, got {size:,}")
        return parse_json(read_file(path))
    except FileNotFoundError as error:
        meant = did_you_mean(path, ".json", Path.is_file)
        raise ValueError(f"{path}: no such file{meant}") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a task in JSON ({error})") from error


def _prompts(name: str, value: Any) -> Prompts:
    given = _object(name, value, _OF_PROMPTS)
    rows = _list(f"{name}.tokens", given["tokens"])
    n_tokens = 0
    for place, row in enumerate(rows):
        where = f"{name}.tokens[{place}]"
        if isinstance(row, str):
            _check_text(where, row)
            n_tokens += len(row)
        else:
            n_tokens += len(_list(where, row))
            _check_ids(where, row)
    if n_tokens > MOST_TOKENS:
        raise ValueError(f"{name}.tokens: expected at most {MOST_TOKENS:,}, got {n_tokens:,}")
    _check_answers(f"{name}.answers", given["answers"])
    position = given.get("position", -1)
    for where, place in _places(f"{name}.position", position):
        if not is_int(place) or abs(place) > LARGEST_ID:
            raise ValueError(f"{where}: expected a whole number, got {shortened(place)}")
    subsets = given.get("subsets", {})
    if not isinstance(subsets, dict):
        expected = "an object of lists by name"
        raise ValueError(f"{name}.subsets: expected {expected}, got {shortened(subsets)}")
    for subset, mask in subsets.items():
        where = f"{name}.subsets[{shortened(subset)}]"
        for place, part in enumerate(_list(where, mask)):
            if not isinstance(part, bool):
                expected = "true or false"
                raise ValueError(f"{where}[{place}]: expected {expected}, got {shortened(part)}")
    try:
        return Prompts(rows, given["answers"], position, subsets)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}.{error}") from error


def _places(where: str, position: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(position, list):
        yield from ((f"{where}[{number}]", place) for number, place in enumerate(position))
    else:
        yield where, position


def _object(where: str, value: Any, known: Mapping[str, bool], *more: str) -> dict[str, Any]:
    """Check the names in an object: those that must be there, and those that may."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object in braces, got {shortened(value)}")
    missing = [name for name, needed in known.items() if needed and name not in value]
    unknown = [name for name in value if name not in known and name not in more]
    if missing or unknown:
        names = ", ".join((*known, *more))
        got = [f"no {name!r}" for name in missing] + [f"{shortened(name)}" for name in unknown]
        raise ValueError(f"{where}: expected {names}, got {', '.join(got[:5])}")
    return value


def _list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: expected a list, got {shortened(value)}")
    return value


def _check_answers(where: str, value: Any) -> None:
    """Token ids, or texts throughout."""
    given = _list(where, value)
    if given and isinstance(given[0], str):
        for place, text in enumerate(given):
            _check_text(f"{where}[{place}]", text)
    else:
        _check_ids(where, given)


def _check_text(where: str, value: Any) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= LARGEST_TEXT:
        expected = f"a text of 1 to {LARGEST_TEXT:,} characters"
        raise ValueError(f"{where}: expected {expected}, got {shortened(value)}")


def _check_ids(where: str, row: list[Any]) -> None:
    for place, token in enumerate(row):
        if type(token) is not int or not 0 <= token <= LARGEST_ID:
            expected = f"a token id from 0 to {LARGEST_ID}"
            raise ValueError(f"{where}[{place}]: expected {expected}, got {shortened(token)}")


def _written(prompts: Asked) -> dict[str, Any]:
    rows = prompts.tokens if isinstance(prompts, Prompts) else prompts.sequences()
    positions = prompts.position if isinstance(prompts, Prompts) else prompts.positions
    return {
        "tokens": [_plain(row) for row in rows],
        "answers": _plain(prompts.answers),
        "position": _plain(positions),
        "subsets": {name: _plain(mask) for name, mask in prompts.subsets.items()},
    }


def _plain(values: Any) -> Any:
    """Texts and numbers as they are, arrays and tensors as lists."""
    if isinstance(values, str) or is_int(values):
        return values
    return values.tolist() if hasattr(values, "tolist") else [_plain(value) for value in values]
