"""Counting tasks: tokens, data and answers against what is written down here by hand."""

import copy
import itertools
import json
import pickle

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting_task import CountPrompts
from count01_lens.tasks.dataset import as_counts
from count01_lens.tasks.language import MalformedSentenceError, Token
from count01_lens.tasks.places import COUNT01
from count01_lens.tasks.sentences import encode_sentence
from count01_lens.tasks.tokenizer import counting_tokenizer
from tests.helpers import as_count01

SMALL = {part: cl.CountSpec(size=40, counts=(0, 5)) for part in ("train", "validation", "test")}
# Each shipped task once more, as plain Python.
BY_HAND = {
    "count01": lambda n: "4" if n[1] > n[0] else "5",
    "majority": lambda n: "ABC"[2 - n[::-1].index(max(n))],
    "twice": lambda n: "4" if n[1] > 2 * n[0] else "5",
    "two_comparisons": lambda n: "4" if n[1] > n[0] and n[3] > n[2] else "5",
    "most_frequent": lambda n: "ABCDE"[4 - n[::-1].index(max(n))],
}


def test_count01_as_any_other_counting_task():
    ours, generic = cl.Count01(), as_count01()
    assert generic.language == ours.language == COUNT01
    assert generic.language.tokens == tuple(token.text for token in Token)
    assert generic.fingerprint == ours.fingerprint
    for name in ("train", "validation", "test"):
        one, other = getattr(ours.splits, name), getattr(generic.splits, name)
        assert torch.equal(one.counts, other.counts)
        assert torch.equal(one.labels, other.labels)
        assert one.labels.dtype == torch.bool
        assert torch.equal(one.ties, other.ties)
        assert torch.equal(one.ties, one.counts[:, 0] == one.counts[:, 1])
        assert repr(one) == repr(other)
    for name, question in ours.questions.items():
        assert generic.questions[name].choices == question.choices
    assert generic.questions["answer"].choices == (5, 6)
    assert generic.questions["end"].choices == (7, 0, 1, 2, 3, 4, 5, 6)
    assert generic.up_to == ours.up_to == 200


@pytest.mark.parametrize("name", cl.COUNTING_TASKS)
def test_the_answers_of_shipped_tasks(name):
    task = cl.counting_task(name)
    language, by_hand = task.language, BY_HAND[name]
    domain = torch.tensor(list(itertools.product(range(5), repeat=len(language.symbols))))
    for counts in (domain, task.splits.train.counts[:2000], task.splits.test.counts):
        found = [language.answers[place] for place in language.answer(counts).tolist()]
        assert found == [by_hand(row) for row in counts.tolist()]
    for row, counts in zip(
        task.splits.test.sequences()[:50], task.splits.test.counts.tolist(), strict=False
    ):
        texts = [language.tokens[token] for token in row]
        assert [texts.count(symbol) for symbol in language.symbols] == counts
        assert texts[0] == "[BOS]"
        assert texts[-3:] == ["=", by_hand(counts), "[EOS]"]
        assert sum(counts) + 4 == len(texts)


@pytest.mark.parametrize("name", cl.COUNTING_TASKS)
def test_shipped_tasks_are_fit_for_training_and_verification(name):
    task = cl.counting_task(name)
    assert task.name == name
    for split in (task.splits.train, task.splits.test):
        share = torch.bincount(task.language.answer(split.counts)) / len(split)
        assert len(share) == len(task.language.answers)
        assert share.min() > 0.4 / len(share)
    assert (task.up_to + 1) ** len(task.language.symbols) < 10_000_000
    assert max(int(split.counts.max()) for split in vars(task.splits).values()) <= task.up_to
    again = cl.counting_task(name)
    assert again.fingerprint == task.fingerprint
    assert len({cl.counting_task(other).fingerprint for other in cl.COUNTING_TASKS}) == 5


def test_an_unknown_name():
    with pytest.raises(ValueError, match="name: expected 'count01' or 'majority'"):
        cl.counting_task("minority")


def test_ranges_and_sizes_are_kept():
    spec = cl.CountSpec(size=500, counts={"a": (3, 4), "b": (0, 9)})
    task = cl.CountingTask("ab", "XY", "na > nb", train=spec, validation=spec, test=spec, seed=3)
    counts = task.splits.train.counts
    assert sorted(set(counts[:, 0].tolist())) == [3, 4]
    assert sorted(set(counts[:, 1].tolist())) == list(range(10))
    assert task.up_to == 9
    assert not torch.equal(counts, task.splits.test.counts)


def test_a_balanced_draw_gives_every_answer_its_share():
    spec = cl.CountSpec(size=301, counts=(0, 9), balanced=True)
    task = cl.CountingTask(
        "ab", "XYZ", ["na > nb + 6", "nb > na + 6"], train=spec, validation=spec, test=spec
    )
    for split in vars(task.splits).values():
        assert torch.bincount(split.labels).tolist() == [101, 100, 100]
    chosen = task.splits.train.counts[task.splits.train.labels == 0]
    # Among those of one answer, counts are as likely as before.
    assert len({tuple(row) for row in chosen.tolist()}) == 6
    rare = cl.CountSpec(size=20, counts=(0, 9), balanced=True)
    with pytest.raises(ValueError, match="in which 'X' hardly does"):
        cl.CountingTask("ab", "XY", "na > nb + 50", train=rare, validation=rare, test=rare)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(symbols="aa"), "'a' twice"),
        (dict(answers="XX"), "'X' twice"),
        (dict(answers="Xa"), "'a' twice"),
        (dict(symbols=["a", "ab"]), "none of them the beginning of another, got 'a' and 'ab'"),
        (dict(answers=["X", "XY"]), "got 'X' and 'XY'"),
        (dict(symbols="a="), "without spaces, '=' and brackets, got '='"),
        (dict(answers=["[EOS]", "X"]), "without spaces, '=' and brackets, got '\\[EOS\\]'"),
        (dict(symbols=["a", "b c"]), "without spaces"),
        (dict(symbols=["a", ""]), "1 to 8 printable"),
        (dict(symbols=["a", "b" * 9]), "1 to 8 printable"),
        (dict(symbols="a+"), "letters, digits or underscores"),
        (dict(symbols="aé"), "letters, digits or underscores"),
        (dict(symbols=["a", "ot"]), "letters, digits or underscores"),
        (dict(symbols=["a", 3]), "1 to 8 printable"),
        (dict(symbols=5), "symbols: expected single characters"),
        (dict(symbols=""), "symbols: expected 1 to 200"),
        (dict(answers="X"), "answers: expected 2 to 200"),
        (dict(answers="X=", rule=[]), "brackets, got '='"),
        (dict(rule="na > nc"), "a count \\(na, nb\\)"),
        (dict(rule="na > 10"), "train: expected sentences with every answer, got none with 'X'"),
        (dict(test=cl.CountSpec(size=9, counts=(3, 3))), "test: expected sentences with every"),
        (dict(train=(10, (0, 5))), "train: expected a CountSpec"),
        (dict(train=cl.CountSpec(size=9, counts={"a": (0, 1)})), "a range for each of the symbols"),
        (dict(seed=-1), "seed"),
        (dict(name="a b"), "name: expected 1 to 40 letters"),
        (dict(name=3), "name: expected 1 to 40 letters"),
    ],
)
def test_bad_tasks_are_refused(given, message):
    task = dict(symbols="ab", answers="XY", rule="na > nb", **SMALL) | given
    with pytest.raises((ValueError, TypeError), match=message):
        cl.CountingTask(**task)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(size=0), "size"),
        (dict(size=10**7), "size: expected at most 1,000,000"),
        (dict(counts=(3, 2)), "counts: expected 0 <= smallest <= largest"),
        (dict(counts=(0, 2.5)), "two whole numbers"),
        (dict(counts={"a": (0, 10**9)}), "counts\\['a'\\]: expected 0 <="),
        (dict(counts=7), "two whole numbers"),
        (dict(balanced=1), "balanced"),
    ],
)
def test_bad_specs_are_refused(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cl.CountSpec(**dict(size=5, counts=(0, 3)) | given)


def test_a_task_goes_through_json_and_back():
    for task in (*map(cl.counting_task, cl.COUNTING_TASKS[1:]), as_count01()):
        stored = json.loads(json.dumps(task.to_dict()))
        again = cl.CountingTask.from_dict(stored)
        assert again.fingerprint == task.fingerprint
        assert again.to_dict() == task.to_dict()
        assert repr(again) == repr(task)
        for other in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
            assert other.language == task.language
            assert other.fingerprint == task.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"rule": ["__import__('os').system('true') > 0"]}, {"rule": "na > nb"}, {"rule": [3]},
        {"symbols": "ab"}, {"symbols": [["a"], "b"]}, {"answers": {}}, {"train": None},
        {"train": {"size": 10**12, "counts": [0, 3], "balanced": False}}, {"seed": "0"},
        {"train": {"size": 9, "counts": [0, 3], "balanced": False, "more": 1}}, {"name": "<b>"},
        {"test": {"size": 9, "counts": {"a": [0, 3]}, "balanced": False}}, {"more": 1},
    ],
)  # fmt: skip
def test_hostile_descriptions_are_refused(change):
    good = cl.CountingTask("ab", "XY", "na > nb", **SMALL).to_dict()
    with pytest.raises((ValueError, TypeError), match="expected|unexpected"):
        cl.CountingTask.from_dict(good | change)
    for lacking in good:
        with pytest.raises(ValueError, match="task: expected an object"):
            cl.CountingTask.from_dict({key: good[key] for key in good if key != lacking})
    with pytest.raises(ValueError, match="task: expected an object"):
        cl.CountingTask.from_dict([good])


def test_a_function_as_rule_stays_in_memory():
    task = cl.CountingTask("abc", "XYZ", lambda counts: counts.argmax(dim=1), **SMALL)
    counts = task.splits.test.counts
    assert torch.equal(task.splits.test.labels, counts.argmax(dim=1))
    assert task.questions["answer"].test.subsets == {}
    assert "ties" not in repr(task.splits.test)
    with pytest.raises(ValueError, match="ties: expected a rule as text"):
        task.splits.test.ties  # noqa: B018
    with pytest.raises(ValueError, match="expected conditions as text, which can be stored"):
        task.to_dict()
    same = cl.CountingTask("abc", "XYZ", ["na >= max(nb, nc)", "nb >= nc"], **SMALL)
    assert same.fingerprint == task.fingerprint  # whose answers are the same


def test_prompts_of_any_task():
    task = cl.counting_task("majority")
    for name, question in task.questions.items():
        prompts = question.test.few(40)
        for row, position, answer in zip(
            prompts.sequences(), prompts.positions, prompts.answers.tolist(), strict=True
        ):
            assert task.language.tokens[row[position]] in ("=" if name == "answer" else "ABC")
            assert row[position + 1] == answer
        ties = np.array([_has_tie(row) for row in prompts.counts.tolist()])
        assert (prompts.subsets["ties"] == ties).all()
        assert (prompts.subsets["others"] == ~ties).all()


def _has_tie(counts: list[int]) -> bool:
    a, b, c = counts
    return a == max(b, c) or b == c


def test_counts_are_checked_against_the_language():
    majority, most = cl.counting_task("majority"), cl.counting_task("most_frequent")
    with pytest.raises(ValueError, match=r"shape \[sample, 5\] \(numbers of 'a's, .* and 'e's\)"):
        as_counts([[1, 2, 3]], most.language)
    with pytest.raises(ValueError, match="expected counts of a b c, got a split of a b c d e"):
        as_counts(most.splits.test, majority.language)
    with pytest.raises(ValueError, match=r"shape \[sample, 3\]"):
        CountPrompts.of([[1, 2]], majority.language.at_equals)


def test_the_tokenizer_of_a_task():
    language = CountingLanguage.of(["up", "down", "x"], ["yes", "no"], "nup > ndown")
    task = cl.CountingTask(["up", "down", "x"], ["yes", "no"], "nup > ndown", **SMALL)
    assert task.language == language
    tokenizer = counting_tokenizer(task)
    assert tokenizer("upxdown=no[EOS]")["input_ids"] == [1, 3, 2, 4, 6, 7]
    assert tokenizer.decode([1, 3, 2, 4, 6]) == "upxdown=no"
    with pytest.raises(MalformedSentenceError, match="position 2: expected one of \\[BOS\\] up"):
        tokenizer("upsdown=")
    model = cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2), task=task)
    assert model.to_tokens("upx=").tolist() == [[0, 1, 3, 4]]
    assert model.to_tokens("[BOS]upx=").tolist() == [[0, 1, 3, 4]]
    assert cl.task_of(model) is task
    assert cl.task_of(cl.example_model()).fingerprint == cl.Count01().fingerprint
    model.tokenizer = None
    with pytest.raises(ValueError, match="model: expected the tokenizer of a counting task"):
        cl.task_of(model)


def test_sentences_of_any_task():
    language = cl.counting_task("majority").language
    assert encode_sentence("abca=", language) == [0, 1, 2, 3, 1, 4]
    assert encode_sentence("[BOS]=B[EOS]", language) == [0, 4, 6, 8]
    for text, position, expected in (
        ("ab", 2, "'a', 'b', 'c' or '='"),
        ("abA", 2, "'a', 'b', 'c' or '='"),
        ("a=b", 2, "'A', 'B', 'C' or the end"),
        ("a=AB", 3, "'[EOS]' or the end"),
        ("a=A[EOS]A", 8, "the end"),
        ("a[BOS]=", 1, "'a', 'b', 'c' or '='"),
        ("ax=", 1, "one of"),
    ):
        with pytest.raises(MalformedSentenceError) as error:
            encode_sentence(text, language)
        assert (error.value.position, expected in error.value.expected) == (position, True), text
    for text in ("0110=", "=5", "[BOS]2=4[EOS]"):
        assert encode_sentence(text, COUNT01) == cl.encode(text)
