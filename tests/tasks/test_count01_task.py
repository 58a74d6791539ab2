"""Count01 as a task: its prompts against the sentences they stand for."""

import copy
import pickle

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.heads.head_data import AskedHeads
from count01_lens.tasks.count01 import CountPrompts, as_task
from count01_lens.tasks.dataset import Split
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS
from tests.helpers import TINY

COUNTS = torch.tensor([[3, 5, 2], [5, 3, 2], [4, 4, 0], [0, 0, 0], [0, 1, 9], [1, 0, 0]])
# A tie between '4' and '5' is decided for '5', as in the paper; '[EOS]' has to lead all others.
ANSWERS, ENDS = (5, 6), (7, 0, 1, 2, 3, 4, 5, 6)
FOURS = [True, False, False, False, True, False]


@pytest.mark.parametrize("place", [AT_EQUALS, AT_ANSWER], ids=["=", "answer"])
@pytest.mark.parametrize("data", [COUNTS, COUNTS.tolist(), Split("mine", COUNTS, seed=3)])
def test_positions_point_at_the_token_that_asks(place, data):
    prompts = CountPrompts.of(data, place)
    assert len(prompts) == 6
    for row, position, counts, is_four in zip(
        prompts.sequences(), prompts.positions, COUNTS.tolist(), FOURS, strict=True
    ):
        tokens = row.tolist()
        assert [tokens.count(token) for token in (1, 2, 3)] == counts
        answer = Token.FOUR if is_four else Token.FIVE
        assert tokens[position] == (Token.EQUALS if place == AT_EQUALS else answer)


@pytest.mark.parametrize("place", [AT_EQUALS, AT_ANSWER], ids=["=", "answer"])
def test_the_right_answer_is_the_token_that_follows(place):
    prompts = CountPrompts.of(COUNTS, place)
    follows = [
        int(row[position + 1])
        for row, position in zip(prompts.sequences(), prompts.positions, strict=True)
    ]
    assert prompts.answers.tolist() == follows
    if place == AT_EQUALS:
        assert follows == [Token.FOUR if is_four else Token.FIVE for is_four in FOURS]
    else:
        assert follows == [Token.EOS] * 6


def test_ties_are_reported_apart():
    ties = [False, False, True, True, False, False]
    for place in (AT_EQUALS, AT_ANSWER):
        subsets = CountPrompts.of(COUNTS, place).subsets
        assert {name: mask.tolist() for name, mask in subsets.items()} == {
            "ties": ties,
            "others": [not tie for tie in ties],
        }


def test_a_few_are_from_all_parts():
    whole = CountPrompts.of(Split("mine", COUNTS, seed=7), AT_ANSWER)
    few = whole.few(3)
    assert few.counts.tolist() == [COUNTS[i].tolist() for i in (0, 2, 5)]
    assert few.split.seed == 7
    assert len(whole.few(99)) == 6
    assert few.place == AT_ANSWER


def test_the_seed_decides_the_order_of_tokens():
    whole = CountPrompts.of(Split("mine", COUNTS, seed=7), AT_ANSWER)
    other = CountPrompts.of(Split("mine", COUNTS, seed=8), AT_ANSWER).sequences()
    assert any(not torch.equal(a, b) for a, b in zip(other, whole.sequences(), strict=True))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_prompts_that_went_to_another_process_ask_the_same(copied):
    for question in cl.Count01(TINY).questions.values():
        ours = copied(question.test)
        assert ours.answers.tolist() == question.test.answers.tolist()
        assert ours.positions == question.test.positions
        model = cl.minimal_model()
        torch.testing.assert_close(
            cl.head_outputs(model, ours), cl.head_outputs(model, question.test)
        )


def test_bad_counts_are_refused():
    with pytest.raises(ValueError, match=r"counts: expected shape \[sample, 3\]"):
        CountPrompts.of([[1, 2]], AT_EQUALS)
    with pytest.raises(TypeError, match="expected whole numbers"):
        CountPrompts.of([[1.0, 2.0, 3.0]], AT_EQUALS)


def test_the_two_questions():
    task = cl.Count01(TINY)
    assert list(task.questions) == ["answer", "end"]
    answer, end = task.questions.values()
    assert answer.choices == ANSWERS == (Token.FOUR, Token.FIVE)
    assert sorted(end.choices) == sorted(Token)
    for question, place in ((answer, AT_EQUALS), (end, AT_ANSWER)):
        assert question.train.place == question.test.place == place
        assert question.train.split is TINY.train
        assert question.test.split is TINY.test
    assert answer.answers_of(answer.test).tolist() == (~TINY.test.labels).long().tolist()
    assert not end.answers_of(end.test).any()  # '[EOS]' is the first of its choices
    assert repr(task) == (
        "Count01(answer: 300 training and 80 test prompts, 2 choices; "
        "end: 300 training and 80 test prompts, 8 choices)"
    )


def test_the_data_set_is_the_paper_s_by_default():
    default, paper = cl.Count01().splits, cl.make_splits()
    for name in ("train", "test"):
        assert torch.equal(getattr(default, name).counts, getattr(paper, name).counts)


def decided(choices, right, logits):
    """Whether the right token wins, by the rule of a question."""
    row = np.array([[logits.get(token, 0.0) for token in choices]])
    asked = AskedHeads(
        heads=np.zeros((1, 1, len(choices))),
        rest=row,
        answers=np.array([choices.index(right)]),
    )
    return bool(asked.right_by_logits(asked.logits)[0])


def test_equal_logits_are_an_answer_of_5_and_no_end():
    """As in the paper: '4' has to lead '5', and '[EOS]' every other token."""
    four, five, eos = int(Token.FOUR), int(Token.FIVE), int(Token.EOS)
    equal = {four: 1.0, five: 1.0}
    assert decided(ANSWERS, five, equal)
    assert not decided(ANSWERS, four, equal)
    assert decided(ANSWERS, four, {four: 1.5, five: 1.0})
    assert not decided(ANSWERS, five, {four: 1.5, five: 1.0})
    assert decided(ENDS, eos, {eos: 0.5})
    for token in Token:
        if token != Token.EOS:
            assert not decided(ENDS, eos, {eos: 0.5, int(token): 0.5})


def test_a_model_that_gives_all_tokens_the_same_says_5_and_does_not_end():
    model = cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2))
    for parameter in (model.W_U, model.b_U):
        parameter.data.zero_()
    accuracy = cl.analyze_heads(model, TINY).accuracy
    assert accuracy["answer"] == pytest.approx(float((~TINY.test.labels).double().mean()))
    assert accuracy["ties"] == 1.0
    assert accuracy["end"] == 0.0


def test_what_stands_for_a_task():
    task = cl.Count01(TINY)
    assert as_task(task) is task
    assert as_task(TINY).splits is TINY
    assert isinstance(as_task(None), cl.Count01)
    for wrong in (TINY.test, COUNTS, "splits", 0):
        with pytest.raises(TypeError, match="^task: expected a Task, or the result of make_splits"):
            as_task(wrong)
    with pytest.raises(TypeError, match="^splits: expected the result of make_splits, got"):
        cl.Count01(TINY.test)
