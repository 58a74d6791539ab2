"""The library against independent oracles: a few hundred cases here, all of them by `make stress`."""

import math

import numpy as np
import pytest

from tests.attacks import attack_and_keep
from tests.attacks.oracles import (
    attack_dataset,
    attack_forward,
    attack_groups,
    attack_handcrafted,
    attack_language,
    attack_probes,
    attack_readouts,
    attack_roc_auc,
    attack_shapley,
    by_orders,
    interaction_by_orders,
)

KINDS = ("minimal", "minimal, no skip", "ensemble", "cooperative")
# By name: the attack, what is allowed to come of it, cases in `make test` and in `make stress`, and
# what it does, in words for readers.
ATTACKS = {
    "forward": (
        attack_forward,
        {
            f"agrees ({dtype}{note})"
            for dtype in ("float32", "float64")
            for note in ("", ", fallback to softmax", ", a decision is too close to call")
        },
        60,
        3000,
        "Random models, run on sequences, compact and in closed form, against a forward pass written "
        "from scratch in NumPy: head outputs, logits and decisions at '=' and at the answer",
    ),
    "probes": (
        attack_probes,
        {"the minimum of scikit-learn", "lower than scikit-learn"},
        60,
        2000,
        "Linear SVMs, alone and many at once, against scikit-learn's LinearSVC at the same objective",
    ),
    "roc-auc": (
        attack_roc_auc,
        {"agrees", "agrees (equal scores with both labels)"},
        100,
        5000,
        "ROC AUC of scores with many kinds of ties against scikit-learn's roc_auc_score",
    ),
    "groups": (
        attack_groups,
        {
            "agrees (two layers)",
            "agrees (float64)",
            "agrees (float64, some too close to call)",
            "agrees (float32)",
            "agrees (float32, some too close to call)",
        },
        30,
        2000,
        "l-acc, '[EOS]' l-acc and ROC AUC of random groups of heads against really running the "
        "model with the other heads' outputs set to zero",
    ),
    "shapley": (
        attack_shapley,
        {f"agrees on a random game of {n}" for n in range(2, 7)}
        | {"agrees on a model of 1 head"}
        | {f"agrees on a model of {n} heads" for n in range(2, 7)},
        40,
        1500,
        "Shapley values and interactions of random games and real models against all orders of arrival",
    ),
    "handcrafted": (
        attack_handcrafted,
        {f"{kind}: right" for kind in KINDS},
        30,
        1500,
        "Handcrafted models of random parameters on 250 random sentences each against whole-number "
        "arithmetic",
    ),
    "readouts": (
        attack_readouts,
        {"agrees (both answers)", "agrees (one answer)", "agrees (some too close to call)"},
        60,
        3000,
        "Inequalities over counts against the sign of the probe on head outputs computed by NumPy",
    ),
    "language": (
        attack_language,
        {
            "read, answer right",
            "read, answer wrong",
            "read, without an answer",
            "refused, at the right position",
        },
        400,
        20_000,
        "Texts, sentences or not, against a regular expression and str.count",
    ),
    "dataset": (
        attack_dataset,
        {"agrees"},
        20,
        1000,
        "Random splits, written out as text, against str.count and a regular expression",
    ),
}

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
