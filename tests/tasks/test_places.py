"""Where a model is asked, held against a sentence written out."""

import copy
import pickle

import pytest

from count01_lens.counts.compact import compact_tokens
from count01_lens.tasks.language import Token, encode
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS, PLACES, place_at

SENTENCES = ["01=5", "=5", "0112=4", "2=5"]


def test_users_name_them():
    assert list(PLACES) == ["=", "answer"]
    assert place_at("=") is AT_EQUALS
    assert place_at("answer") is AT_ANSWER


@pytest.mark.parametrize("at", ["end", "4", "", None, 4, AT_EQUALS])
def test_other_names_are_refused(at):
    with pytest.raises(ValueError, match="^at: expected '=' or 'answer', got "):
        place_at(at)


@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
def test_a_place_is_where_one_of_its_tokens_stands(place):
    for sentence in SENTENCES:
        tokens = [*encode(sentence), Token.EOS]
        assert tokens[len(tokens) - place.from_end] in place.queries
        assert sum(token in place.queries for token in tokens) == 1
    n0_n1_n2 = [[3, 5, 2], [5, 3, 2], [4, 4, 0]]
    for tokens in compact_tokens(n0_n1_n2).tolist():
        assert tokens[place.column] in place.queries


@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
def test_rows_of_a_table_are_its_tokens(place):
    assert list(Token)[place.rows] == list(place.queries)


def test_the_answer_is_asked_for_after_equals_and_the_end_after_the_answer():
    assert AT_EQUALS.queries == (Token.EQUALS,)
    assert AT_ANSWER.queries == (Token.FOUR, Token.FIVE)


@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
def test_copies_are_the_same_place(place):
    for other in (copy.deepcopy(place), pickle.loads(pickle.dumps(place))):
        assert other == place
        assert hash(other) == hash(place)
    assert AT_EQUALS != AT_ANSWER
