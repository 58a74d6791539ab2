"""Prompts and tasks of any kind: what they take, what they refuse, how they are split."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import count01_lens as cl
from tests.helpers import deep_model, two_layers

ROWS = [[0, 1, 4], [0, 2, 2, 4], [0, 4], [0, 1, 1, 1, 4]]
ANSWERS = [6, 5, 6, 5]


def of_different_lengths(**options):
    return cl.Prompts(ROWS, ANSWERS, **options)


@pytest.mark.parametrize(
    "tokens",
    [
        [[0, 1, 4], [0, 2, 4]],
        ((0, 1, 4), (0, 2, 4)),
        torch.tensor([[0, 1, 4], [0, 2, 4]]),
        torch.tensor([[0, 1, 4], [0, 2, 4]], dtype=torch.int32),
        np.array([[0, 1, 4], [0, 2, 4]]),
        [torch.tensor([0, 1, 4]), np.array([0, 2, 4])],
    ],
)
def test_tokens_may_be_a_matrix_or_sequences(tokens):
    prompts = cl.Prompts(tokens, answers=np.array([6, 5]))
    assert [row.tolist() for row in prompts.sequences()] == [[0, 1, 4], [0, 2, 4]]
    assert {row.dtype for row in (*prompts.sequences(), prompts.answers)} == {torch.long}
    assert prompts.answers.tolist() == [6, 5]
    assert len(prompts) == 2


def test_the_last_token_asks_by_default():
    assert of_different_lengths().positions == [2, 3, 1, 4]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (0, [0, 0, 0, 0]),
        (1, [1, 1, 1, 1]),
        (-2, [1, 2, 0, 3]),
        (np.int64(-1), [2, 3, 1, 4]),
        ([2, 0, -1, -5], [2, 0, 1, 0]),
        (np.array([-3, 3, 0, 2]), [0, 3, 0, 2]),
        (torch.tensor([1, 1, 1, 1]), [1, 1, 1, 1]),
    ],
)
def test_positions_for_all_or_for_each(position, expected):
    assert of_different_lengths(position=position).positions == expected


def test_the_model_is_asked_at_these_positions():
    """What follows a position does not matter, nor does what other prompts are in the batch."""
    model = two_layers(normalization=None)
    prompts = of_different_lengths(position=[1, -2, -1, 2])
    found = cl.head_outputs(model, prompts)
    for row, position, ours in zip(ROWS, prompts.positions, found, strict=True):
        _, cache = model.run_with_cache(torch.tensor([row[: position + 1]]))
        layers = [cache[f"blocks.{layer}.attn.hook_z"][0, -1] for layer in (0, 1)]
        torch.testing.assert_close(ours, torch.cat(layers))


def test_subsets_are_masks_by_name():
    prompts = of_different_lengths(
        subsets={"long": [False, True, False, True], "odd": torch.tensor([1, 0, 1, 0]).bool()}
    )
    assert prompts.subsets["long"].dtype == bool
    assert prompts.subsets["odd"].tolist() == [True, False, True, False]
    assert repr(prompts) == "Prompts(4 prompts of up to 5 tokens; subsets: long, odd)"
    assert repr(of_different_lengths()) == "Prompts(4 prompts of up to 5 tokens)"


def test_what_the_user_changes_later_changes_nothing():
    tokens, answers = torch.tensor([[0, 1, 4], [0, 2, 4]]), np.array([6, 5])
    mask = np.array([True, False])
    prompts = cl.Prompts(tokens, answers, subsets={"some": mask})
    tokens[:], answers[:], mask[:] = 7, 7, False
    assert [row.tolist() for row in prompts.sequences()] == [[0, 1, 4], [0, 2, 4]]
    assert prompts.answers.tolist() == [6, 5]
    assert prompts.subsets["some"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (np.array([2, 0]), [2, 0]),
        ([2, 0], [2, 0]),
        (torch.tensor([2, 0]), [2, 0]),
        (np.array([True, False, True, False]), [0, 2]),
        ([True, True, True, True], [0, 1, 2, 3]),
        (slice(0, 3, 2), [0, 2]),
        (-1, [3]),
    ],
)
def test_some_of_them(chosen, expected):
    whole = of_different_lengths(
        position=[1, 2, 0, 3], subsets={"one": [True, False, False, False]}
    )
    some = whole[chosen]
    assert [row.tolist() for row in some.sequences()] == [ROWS[i] for i in expected]
    assert some.answers.tolist() == [ANSWERS[i] for i in expected]
    assert some.positions == [[1, 2, 0, 3][i] for i in expected]
    assert some.subsets["one"].tolist() == [i == 0 for i in expected]


def test_a_few_are_from_all_parts():
    whole = of_different_lengths()
    assert whole.few(2).answers.tolist() == [ANSWERS[0], ANSWERS[3]]
    assert whole.few(1).answers.tolist() == ANSWERS[:1]
    assert len(whole.few(99)) == 4


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            ("01=", [1]),
            TypeError,
            "tokens: expected a matrix or a list of sequences, or .*, got '01='",
        ),
        ((5, [1]), TypeError, "tokens: expected a matrix or a list of sequences, or .*, got 5"),
        (({0: [1]}, [1]), TypeError, "tokens: expected a matrix or a list of sequences"),
        ((torch.tensor(3), [1]), TypeError, "tokens: expected a matrix or a list of sequences"),
        (([], []), ValueError, "tokens: expected at least one prompt, each of at least one token"),
        (([[0], []], [1, 1]), ValueError, "tokens: expected at least one prompt, each of at least"),
        (([0, 1, 4], [1]), TypeError, r"tokens\[0\]: expected whole numbers in a row"),
        (([["0", "1"]], [1]), TypeError, r"tokens\[0\]: expected whole numbers, got \['0', '1'\]"),
        (
            ([[0, 1.5]], [1]),
            TypeError,
            r"tokens\[0\]: expected whole numbers in a row, got torch.f",
        ),
        (([[True]], [1]), TypeError, r"tokens\[0\]: expected whole numbers in a row, got torch.bo"),
        (([[0], [0, -1]], [1, 1]), ValueError, r"tokens\[1\]: expected .* at least 0, got -1"),
        (
            (torch.zeros(1, 2, 2).long(), [1]),
            TypeError,
            r"tokens\[0\]: .* in a row, got .*\[2, 2\]",
        ),
        ((ROWS, 5), TypeError, "answers: expected whole numbers in a row"),
        ((ROWS, [1, 1]), ValueError, "answers: expected one for each of 4 prompts, got 2"),
        ((ROWS, []), ValueError, "answers: expected one for each of 4 prompts, got 0"),
        ((ROWS, [1, 1, 1, -1]), ValueError, "answers: expected token ids of at least 0, got -1"),
        (
            (ROWS, ["4"] * 4),
            TypeError,
            "answers: expected token ids, as the prompts are; .* got '4'",
        ),
        ((ROWS, ["4", 5, 5, 5]), TypeError, "answers: expected whole numbers, got"),
        ((["01=", [0, 4]], [5, 6]), TypeError, "tokens: expected all prompts as texts, or all as"),
        ((["01=", ""], [5, 6]), ValueError, "tokens: expected at least one prompt, each of at"),
        ((ROWS, ANSWERS, 2), ValueError, "position: .* the 2 tokens of prompt 2, got 2"),
        ((ROWS, ANSWERS, -3), ValueError, "position: .* the 2 tokens of prompt 2, got -3"),
        ((ROWS, ANSWERS, [0, 0, 0, 5]), ValueError, "position: .* 5 tokens of prompt 3, got 5"),
        (
            (ROWS, ANSWERS, [0, 0]),
            ValueError,
            "position: expected one for each of 4 prompts, got 2",
        ),
        ((ROWS, ANSWERS, True), TypeError, "position: expected whole numbers in a row"),
        ((ROWS, ANSWERS, 0.5), TypeError, "position: expected whole numbers in a row"),
        ((ROWS, ANSWERS, None), TypeError, "position: expected whole numbers, got None"),
        ((ROWS, ANSWERS, -1, [True] * 4), TypeError, "subsets: expected masks by name, got"),
        ((ROWS, ANSWERS, -1, {"a": [True]}), ValueError, r"subsets\['a'\]: expected one for each"),
        ((ROWS, ANSWERS, -1, {"a": [0, 1, 0, 1]}), TypeError, r"subsets\['a'\]: expected booleans"),
        (
            (ROWS, ANSWERS, -1, {"a": True}),
            TypeError,
            r"subsets\['a'\]: .* in a row.* got bool \[\]",
        ),
    ],
)
def test_what_prompts_refuse(arguments, error, message):
    with pytest.raises(error, match=f"^{message}"):
        cl.Prompts(*arguments)


def test_a_task_chooses_among_the_answers_that_occur():
    train, test = cl.Prompts([[0], [1]], [3, 9]), cl.Prompts([[0], [1], [2]], [9, 4, 3])
    question = cl.Task(train, test).questions["answer"]
    assert question.choices == (3, 4, 9)
    assert question.answers_of(train).tolist() == [0, 2]
    assert question.answers_of(test).tolist() == [2, 1, 0]
    assert (question.train, question.test) == (train, test)


@pytest.mark.parametrize("choices", [(9, 7, 3, 4), [9, 7, 3, 4], torch.tensor([9, 7, 3, 4])])
def test_choices_may_be_more_and_keep_their_order(choices):
    prompts = cl.Prompts([[0], [1], [2]], [9, 4, 3])
    question = cl.Task(prompts, prompts, choices=choices).questions["answer"]
    assert question.choices == (9, 7, 3, 4)
    assert question.answers_of(prompts).tolist() == [0, 3, 2]


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ([3, 4], ValueError, r"all answers \(\[3, 4, 9\]\) among them, got \[3, 4\]"),
        ([3, 4, 9, 9], ValueError, r"at least two different tokens, .* got \[3, 4, 9, 9\]"),
        ([], ValueError, r"at least two different tokens, .* got \[\]"),
        ([3, 4, 9, -1], ValueError, "expected token ids of at least 0, got -1"),
        ([3.0, 4.0, 9.0], TypeError, "expected whole numbers in a row"),
        (9, TypeError, "expected whole numbers in a row"),
    ],
)
def test_bad_choices(choices, error, message):
    prompts = cl.Prompts([[0], [1], [2]], [9, 4, 3])
    with pytest.raises(error, match=f"^choices: .*{message}"):
        cl.Task(prompts, prompts, choices=choices)


def test_tasks_that_cannot_be_measured_are_refused():
    prompts, same = of_different_lengths(), cl.Prompts([[0], [1]], [6, 6])
    with pytest.raises(ValueError, match=r"^choices: expected at least two .* got \[6\]"):
        cl.Task(same, same)
    with pytest.raises(TypeError, match="^train: expected Prompts, got list"):
        cl.Task(ROWS, prompts)
    with pytest.raises(TypeError, match="^test: expected Prompts, got Split"):
        cl.Task(prompts, cl.make_splits().test)
    whole = of_different_lengths(subsets={"answer": [True] * 4})
    with pytest.raises(ValueError, match="^test: expected no subset of the name 'answer'"):
        cl.Task(prompts, whole)


@given(
    st.integers(4, 40), st.floats(0.01, 0.99, allow_nan=False), st.integers(0, 2**32)
)  # fmt: skip
def test_a_split_is_disjoint_and_covers_all(n, share, seed):
    # Each prompt is told by its first token, and carries its answer, position and subset along.
    numbers = np.arange(n)
    prompts = cl.Prompts(
        [[i, *[99] * (i % 3)] for i in range(n)],
        answers=100 + numbers % 4,
        position=-1 - (numbers % 3 > 0),
        subsets={"even": numbers % 2 == 0},
    )
    n_test = round(share * n)
    if not 0 < n_test < n:
        with pytest.raises(ValueError, match=f"^test: .* leaves prompts for both parts of {n}"):
            cl.Task.split(prompts, test=share, seed=seed)
        return
    question = cl.Task.split(prompts, test=share, seed=seed).questions["answer"]
    parts = question.train, question.test
    assert [len(part) for part in parts] == [n - n_test, n_test]
    found = [[int(row[0]) for row in part.sequences()] for part in parts]
    assert sorted(found[0] + found[1]) == list(range(n))
    assert question.choices == (100, 101, 102, 103)
    for part, ids in zip(parts, found, strict=True):
        assert ids == sorted(ids)
        assert part.answers.tolist() == [100 + i % 4 for i in ids]
        assert part.positions == [prompts.positions[i] for i in ids]
        assert part.subsets["even"].tolist() == [i % 2 == 0 for i in ids]


def test_a_split_follows_from_its_seed_alone():
    prompts = cl.Prompts([[i] for i in range(40)], np.arange(40) % 2)
    other_answers = cl.Prompts([[i] for i in range(40)], 7 + np.arange(40) // 20)

    def tested(prompts, **options):
        question = cl.Task.split(prompts, **options).questions["answer"]
        return [int(row[0]) for row in question.test.sequences()]

    assert len(tested(prompts)) == 10
    assert tested(prompts) == tested(prompts, test=0.25, seed=0)
    assert tested(prompts) != tested(prompts, seed=1)
    assert tested(prompts) == tested(other_answers)


def test_a_split_takes_choices():
    prompts = cl.Prompts([[i] for i in range(8)], [5, 6] * 4)
    task = cl.Task.split(prompts, choices=[6, 5, 7])
    assert task.questions["answer"].choices == (6, 5, 7)
    assert repr(task) == "Task(answer: 6 training and 2 test prompts, 3 choices)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 0}, "test: expected a finite number above 0, got 0"),
        ({"test": -0.5}, "test: expected a finite number above 0"),
        ({"test": 1.0}, "test: expected a share that leaves prompts for both parts of 8, got 1.0"),
        ({"test": 3}, "test: expected a share that leaves prompts for both parts of 8, got 3"),
        ({"test": 0.01}, "test: expected a share that leaves prompts for both parts of 8"),
        ({"test": "half"}, "test: expected a finite number above 0, got 'half'"),
        ({"test": True}, "test: expected a finite number"),
        ({"seed": -1}, "seed: expected a whole number from 0 to [0-9,]+, got -1"),
        ({"seed": 0.5}, "seed: expected a whole number"),
    ],
)
def test_bad_splits(options, message):
    prompts = cl.Prompts([[i] for i in range(8)], [5, 6] * 4)
    with pytest.raises(ValueError, match=f"^{message}"):
        cl.Task.split(prompts, **options)


def test_only_prompts_can_be_split():
    with pytest.raises(TypeError, match="^prompts: expected Prompts, got list"):
        cl.Task.split(ROWS)


@pytest.mark.parametrize(
    ("tokens", "answers", "choices", "message"),
    [
        ([[0, 8], [0, 1]], [5, 6], None, "tokens: expected token ids of the model, 0 to 7, got 8"),
        ([[0, 1], [0, 2]], [5, 8], None, "answers: expected token ids of the model, 0 to 7, got 8"),
        ([[0, 1], [0, 2]], [5, 6], [5, 6, 9], "choices: expected token ids of the model, .* got 9"),
    ],
)
def test_tokens_that_a_model_does_not_have_are_said_so_before_it_runs(
    tokens, answers, choices, message
):
    wrong, good = cl.Prompts(tokens, answers), cl.Prompts([[0, 1], [0, 2]], [5, 6])
    parts = (wrong, good), (good, wrong)
    model = two_layers()
    model.add_hook("hook_embed", lambda value, hook: 1 / 0)
    for train, test in parts:
        with pytest.raises(ValueError, match=f"^{message}"):
            cl.analyze_heads(model, cl.Task(train, test, choices))


def test_texts_become_tokens_of_a_model():
    model = cl.example_model()
    texts = cl.Prompts(
        ["0110=", "[BOS]1=", "011="],
        ["5", "4", "4"],
        position=[-1, 2, -2],
        subsets={"a": [True] * 3},
    )
    assert repr(texts) == "Prompts(3 prompts of up to 7 characters; subsets: a)"
    for use in (texts.sequences, texts.fingerprint, lambda: texts.positions):
        with pytest.raises(TypeError, match=r"got texts.* use prompts.tokenized\(model\)"):
            use()
    prompts = texts.tokenized(model)
    assert prompts.tokenized(model) is prompts
    assert [row.tolist() for row in prompts.sequences()] == [
        model.to_tokens(text)[0].tolist() for text in texts.tokens
    ]
    assert prompts.answers.tolist() == [6, 5, 5]
    assert prompts.positions == [5, 2, 3]
    assert prompts.subsets["a"].all()
    assert cl.accuracy(model, texts[[0]], choices=["4", "5"]) in (0, 1)
    torch.testing.assert_close(cl.head_outputs(model, texts), cl.head_outputs(model, prompts))


def test_a_task_of_texts():
    model = cl.example_model()
    rng = np.random.default_rng(0)
    bodies = ["".join(rng.choice(list("012"), size=9)) for _ in range(60)]
    right = ["4" if body.count("1") > body.count("0") else "5" for body in bodies]
    texts = cl.Prompts([f"{body}=" for body in bodies], right)
    task = cl.Task.split(texts, test=0.5)
    assert task.questions["answer"].choices == ("4", "5")
    ids = cl.Task.split(texts.tokenized(model), test=0.5)
    assert task.for_model(model).fingerprint == ids.fingerprint
    assert ids.for_model(model) is ids
    by_text, by_ids = cl.analyze_heads(model, task), cl.analyze_heads(model, ids)
    assert by_text.table.equals(by_ids.table)
    assert cl.accuracy(model, task) == by_ids.accuracy["answer"]
    with pytest.raises(ValueError, match="model: expected one with a tokenizer"):
        cl.analyze_heads(two_layers(), task)


@pytest.mark.parametrize(
    ("answers", "choices", "message"),
    [
        (["45", "5"], None, r"choices: expected texts of one token each, got '45', which is \['4'"),
        (["4", "5"], ["4", "5", "[EOS]", "01"], "choices: .* of one token each, got '01'"),
        (["4", "5"], ["4"], r"choices: .* all answers \(\['4', '5'\]\) among them, got \['4'\]"),
        (["4", "5"], "45", "choices: expected several tokens, got the text '45'"),
        (["45", "5"], ["4", "5"], r"choices: .* all answers \(\['45', '5'\]\) among them"),
    ],
)
def test_texts_that_are_no_tokens(answers, choices, message):
    train, test = cl.Prompts(["01=", "1="], answers), cl.Prompts(["001=", "11="], answers)
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        cl.analyze_heads(cl.example_model(), cl.Task(train, test, choices))


def test_texts_and_ids_do_not_mix():
    ids, texts = cl.Prompts([[0, 4], [2, 4]], [5, 6]), cl.Prompts(["0=", "1="], ["4", "5"])
    with pytest.raises(TypeError, match="expected training and test prompts both as texts"):
        cl.Task(ids, texts)


def test_test_prompts_that_probes_have_seen_are_said_so():
    rows = torch.randint(1, 4, (40, 6), generator=torch.Generator().manual_seed(0)).tolist()
    prompts = cl.Prompts(rows, [5 + (row.count(2) > row.count(1)) for row in rows])
    with pytest.warns(UserWarning, match="^10 of 20 test prompts are among the training prompts"):
        cl.analyze_heads(two_layers(), cl.Task(prompts[:30], prompts[20:]))


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_prompts_longer_than_the_context_are_said_so_before_a_model_runs(direction):
    model = deep_model(attention_dir=direction, n_ctx=6)
    model.add_hook("hook_embed", lambda value, hook: 1 / 0)
    long = cl.Prompts([[1] * 4, [2] * 9, [3] * 4], [5, 6, 5], position=[3, 3, 3])
    good = cl.Prompts([[1] * 3, [2] * 3], [5, 6])
    message = "prompts: expected at most 6 tokens, .* got 9 in prompt 1"
    if direction == "bidirectional":
        with pytest.raises(ValueError, match=message):
            cl.analyze_heads(model, cl.Task(good, long))
    else:  # nobody reads what follows the question
        with pytest.raises(ZeroDivisionError):
            cl.analyze_heads(model, cl.Task(good, long))
        with pytest.raises(ValueError, match=message):
            cl.analyze_heads(model, cl.Task(cl.Prompts(long.tokens, long.answers), good))


def test_one_answer_only_is_said_so_before_a_model_runs():
    model = two_layers()
    model.add_hook("hook_embed", lambda value, hook: 1 / 0)
    one, two = cl.Prompts([[1], [2]], [5, 5]), cl.Prompts([[1, 2], [2, 2]], [5, 6])
    for train, test, name in ((one, two, "train"), (two, one, "test")):
        with pytest.raises(ValueError, match=f"^{name} prompts: expected at least two different"):
            cl.analyze_heads(model, cl.Task(train, test))
