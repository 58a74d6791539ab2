"""Decisions on logits, against loops over them."""

import itertools

import pytest
import torch

import count01_lens as cl
from count01_lens.tasks.decisions import (
    answer_margin,
    eos_margin,
    four_margin,
    is_right,
    says_answer,
)

LANGUAGES = {
    "two answers": cl.CountingTask("012", "45", "n1 > n0").language,
    "three answers": cl.CountingTask("abc", "ABC", ["na > max(nb, nc)", "nb > nc"]).language,
}


@pytest.fixture(params=LANGUAGES)
def language(request):
    return LANGUAGES[request.param]


@pytest.fixture
def logits(language):
    """Few different values, so that many are equal; -inf, as of an answer that is ruled out."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(-1, 3, (40, 25, language.d_vocab), generator=generator).double()
    return drawn.where(drawn >= 0, -torch.inf)


def places_of(language):
    return range(language.answer_ids.start, language.answer_ids.stop)


def each(logits, language):
    """Every row with every right answer, as plain numbers."""
    for row, right in itertools.product(logits.flatten(0, 1), range(len(language.answers))):
        answers = [float(row[place]) for place in places_of(language)]
        label = torch.tensor(right == 0 if len(answers) == 2 else right)
        yield row, label, right, answers


def test_the_right_answer_wins_and_of_equal_ones_the_later(logits, language):
    for row, label, right, answers in each(logits[:4], language):
        best = max(answers)
        last = max(place for place, value in enumerate(answers) if value == best)
        if best > -torch.inf:
            assert bool(is_right(row, label, language)) == (last == right)


def test_the_margin_is_to_the_best_of_the_others(logits, language):
    for row, label, right, answers in each(logits[:4], language):
        others = [value for place, value in enumerate(answers) if place != right]
        if answers[right] > -torch.inf:
            assert float(answer_margin(row, label, language)) == answers[right] - max(others)


def test_an_answer_leads_all_other_tokens(logits, language):
    places = set(places_of(language))
    for row in logits.flatten(0, 1):
        others = [float(value) for token, value in enumerate(row) if token not in places]
        leads = max(float(row[place]) for place in places) > max(others)
        assert bool(says_answer(row, language)) == leads


def test_many_at_once_are_as_one_by_one(logits, language):
    n = len(language.answers)
    labels = torch.arange(40 * 25).view(40, 25) % n
    labels = labels == 0 if n == 2 else labels
    for decide in (is_right, answer_margin):
        together = decide(logits, labels, language)
        assert together.shape == (40, 25)
        single = [
            decide(row, label, language)
            for row, label in zip(logits.flatten(0, 1), labels.flatten(), strict=True)
        ]
        assert torch.equal(together.flatten().nan_to_num(), torch.stack(single).nan_to_num())


def test_margins_of_count01_and_of_its_end():
    row = torch.tensor([0.0, 1, 2, 3, 4, 7.5, 5.0, 9.0])
    assert four_margin(row) == 2.5
    assert eos_margin(row) == 1.5
    assert eos_margin(row.flip(0)) == -9
