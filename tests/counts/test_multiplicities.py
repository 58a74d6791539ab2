import pickle

import pytest
import torch

from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS

COUNTS = torch.tensor([[3, 5, 2], [4, 4, 0], [0, 0, 0], [1, 0, 7], [0, 1, 1], [6, 6, 6]])
QUERIES = range(Token.EQUALS, Token.EOS)


def by_hand(counts, at):
    """How often a sentence, written out, has each token up to the one that asks."""
    n0, n1, n2 = counts
    answer = Token.FOUR if n1 > n0 else Token.FIVE
    seen = [Token.BOS, *[Token.ZERO] * n0, *[Token.ONE] * n1, *[Token.TWO] * n2, Token.EQUALS]
    seen += [answer] if at == "answer" else []
    rows = dict.fromkeys(QUERIES, [0] * 7)
    rows[seen[-1]] = [seen.count(token) for token in range(7)]
    return rows


@pytest.mark.parametrize("place", [AT_EQUALS, AT_ANSWER])
def test_each_token_is_counted_up_to_the_one_that_asks(place):
    found = Multiplicities.of(COUNTS, place, torch.float64)
    for counts, rows in zip(COUNTS.tolist(), found.n.tolist(), strict=True):
        expected = by_hand(counts, place.name)
        assert rows == [expected[query] for query in place.queries]
    assert list(range(*found.rows.indices(8))) == list(place.queries)


def test_both_places_are_first_all_sentences_at_equals_then_all_at_their_answer():
    found = Multiplicities.at_both(COUNTS, torch.float32)
    assert list(range(*found.rows.indices(8))) == list(QUERIES)
    expected = [by_hand(counts, at) for at in ("=", "answer") for counts in COUNTS.tolist()]
    assert found.n.tolist() == [[rows[query] for query in QUERIES] for rows in expected]


def test_the_token_that_asks_is_marked():
    assert Multiplicities.of(COUNTS, AT_EQUALS, torch.float32).asked.tolist() == [[1]] * 6
    fours = (COUNTS[:, 1] > COUNTS[:, 0]).tolist()
    at_answer = [[1, 0] if four else [0, 1] for four in fours]
    assert Multiplicities.of(COUNTS, AT_ANSWER, torch.float32).asked.tolist() == at_answer
    both = Multiplicities.at_both(COUNTS, torch.float32).asked.tolist()
    assert both == [[1, 0, 0]] * 6 + [[0, *row] for row in at_answer]


MAKERS = [
    lambda counts: Multiplicities.of(counts, AT_EQUALS, torch.float32),
    lambda counts: Multiplicities.of(counts, AT_ANSWER, torch.float32),
    lambda counts: Multiplicities.at_both(counts, torch.float32),
]


@pytest.mark.parametrize("make", MAKERS, ids=["=", "answer", "both"])
def test_every_model_of_a_stack_may_have_sentences_of_its_own(make):
    own = torch.stack([COUNTS[:4], COUNTS[2:]])
    found = make(own)
    assert torch.equal(found.n, torch.stack([make(counts).n for counts in own]))
    assert found.n.dtype == torch.float32


@pytest.mark.parametrize("make", MAKERS, ids=["=", "answer", "both"])
def test_some_of_the_sentences(make):
    whole = make(COUNTS)
    chosen = torch.arange(len(whole.n)) % 3 != 1
    assert torch.equal(whole[chosen].n, whole.n[chosen])
    stacked = make(torch.stack([COUNTS, COUNTS.flip(0)]))
    assert torch.equal(stacked[chosen].n, stacked.n[:, chosen])
    sample = torch.tensor([[0, 5, 5], [3, 1, 0]])
    for model, of_model in enumerate(sample):
        assert torch.equal(whole.batch(sample).n[model], whole.n[of_model])
    portions = list(whole.split(4))
    assert [len(portion.n) for portion in portions[:-1]] == [4] * (len(portions) - 1)
    assert torch.equal(torch.cat([portion.n for portion in portions]), whole.n)
    for part in (whole[chosen], whole.batch(sample), *portions):
        assert part.rows == whole.rows


@pytest.mark.parametrize("place", [AT_EQUALS, AT_ANSWER])
def test_a_place_that_came_from_another_process_is_the_same_place(place):
    sent = pickle.loads(pickle.dumps(place))
    expected = Multiplicities.of(COUNTS, place, torch.float32)
    found = Multiplicities.of(COUNTS, sent, torch.float32)
    assert torch.equal(found.n, expected.n)
