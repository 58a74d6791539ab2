"""The library against independent oracles: a few hundred cases here, all of them by `make stress`."""

import math

import numpy as np
import pytest

from tests.attacks import attack_and_keep
from tests.attacks.oracle_cases import ATTACKS
from tests.attacks.oracles import by_orders, interaction_by_orders

RARE = {
    "agrees (float64, a decision is too close to call)",
    "agrees (float64, some too close to call)",
    "lower than scikit-learn",
}


def check(outcomes, allowed, cases):
    assert set(outcomes) <= allowed, dict(outcomes)
    assert sum(outcomes.values()) == cases
    return outcomes


@pytest.mark.parametrize("name", ATTACKS)
def test_a_few_hundred_cases(name):
    attack, allowed, cases, _, _ = ATTACKS[name]
    check(attack(cases, 0), allowed, cases)


@pytest.mark.stress
@pytest.mark.parametrize("name", ATTACKS)
def test_all_cases(name):
    attack, allowed, _, cases, what = ATTACKS[name]
    outcomes = attack_and_keep(f"oracle-{name}", what, attack, cases, seed=1)
    check(outcomes, allowed, cases)
    # With so many cases whatever may happen does happen: the attack reaches all of it.
    assert allowed - set(outcomes) <= RARE


def test_the_oracles_of_shapley_on_games_solved_by_hand():
    """A glove game: player 0 has a left glove, players 1 and 2 a right one each."""
    gloves = np.array([0, 0, 0, 1, 0, 1, 0, 1.0])
    values = by_orders(lambda members: gloves[sum(1 << player for player in members)], range(3))
    assert values == pytest.approx({0: 2 / 3, 1: 1 / 6, 2: 1 / 6})
    # Alone 0 and 1 are worth 0 and together 1; with 2 there, 1 adds nothing.
    assert interaction_by_orders(gloves, 3, 0, 1) == pytest.approx(1 / 2)
    assert interaction_by_orders(gloves, 3, 1, 2) == pytest.approx(-1 / 2)


def test_the_forward_oracle_on_a_sentence_solved_by_hand():
    """The minimal model without skip, at '=' of `1=`: scores 0, N + 1, 1 and values likewise."""
    from count01_lens.models.handcrafted import minimal_model
    from tests.attacks.numpy_model import NumpyModel

    n, epsilon = 10, 5e-4
    oracle = NumpyModel.of_hooked_transformer(minimal_model(skip=False))
    z, logits = oracle.run([0, 2, 4, 5], [2])
    weights = [1.0, math.exp(n + 1), math.e]
    expected = (weights[1] * (n + 1) + weights[2]) / sum(weights)
    assert z.item() == pytest.approx(expected, rel=1e-6)
    boundary = (math.e * (n + 1) + n) / (1 + math.e)
    lead = 2 * (expected - boundary) - epsilon
    assert logits[0, 5] - logits[0, 6] == pytest.approx(lead, rel=1e-4)
