"""Roles of heads on games whose roles are known by hand, against brute force, and when renamed."""

import itertools

import numpy as np
import pytest

from count01_lens.heads.games import shapley_values
from count01_lens.heads.roles import Roles, Thresholds, find_roles

EXACT = Thresholds(head=1e-12, pair=1e-12, copies=1e-12)


def game(n, value):
    """Values of all groups of n heads, by a function of the set of heads."""
    sets = [{i for i in range(n) if mask >> i & 1} for mask in range(1 << n)]
    return np.array([float(value(heads)) for heads in sets])


def vote(heads):
    """Head 0 knows the answer, head 1 the wrong one but half as loud, head 2 says nothing."""
    return 1.0 if 0 in heads else 0.0 if 1 in heads else 0.5


# Heads, value of a group, roles.
BY_HAND = {
    "one head does it all": (3, lambda s: 0.5 + 0.5 * (1 in s), Roles((1,), (0, 2), (), (), ())),
    "copies": (3, lambda s: 0.5 + 0.5 * bool(s & {0, 2}), Roles((0, 2), (1,), (), ((0, 2),), ())),
    "only together": (3, lambda s: 0.5 + 0.5 * ({0, 1} <= s), Roles((0, 1), (2,), (), (), ((0, 1),))),
    "three together": (
        3, lambda s: {0, 1, 2} <= s, Roles((0, 1, 2), (), (), (), ((0, 1), (0, 2), (1, 2))),
    ),
    "each adds its own": (2, lambda s: 0.25 * len(s), Roles((0, 1), (), (), (), ())),
    # What one brings, the other has in part: neither copies nor cooperating.
    "either, in part": (2, lambda s: [0.5, 0.8, 1.0][len(s)], Roles((0, 1), (), (), (), ())),
    # Swapping them changes nothing, yet they are no substitutes.
    "symmetric, not copies": (
        2, lambda s: [0.5, 0.6, 1.0][len(s)], Roles((0, 1), (), (), (), ((0, 1),)),
    ),
    # The interaction of heads 0 and 1 is positive, because 0 outvotes 1: that is no cooperation.
    "outvoted": (3, vote, Roles((0,), (2,), (1,), (), ())),
    "opposing copies": (2, lambda s: 0.5 - 0.5 * bool(s), Roles((), (), (0, 1), ((0, 1),), ())),
    "as helpful as harmful": (2, lambda s: [0.5, 1, 0.5, 0][sum(1 << i for i in s)],
                              Roles((), (), (1,), (), ())),
    "copies that cooperate with a third": (
        3, lambda s: 0.5 + 0.5 * bool(2 in s and s & {0, 1}),
        Roles((0, 1, 2), (), (), ((0, 1),), ((0, 2), (1, 2))),
    ),
    "nobody does anything": (3, lambda s: 0.7, Roles((), (0, 1, 2), (), (), ())),
}  # fmt: skip


@pytest.mark.parametrize("thresholds", [Thresholds(), EXACT], ids=["default", "exact"])
@pytest.mark.parametrize("name", BY_HAND)
def test_roles_by_hand(name, thresholds):
    n, value, expected = BY_HAND[name]
    assert find_roles(game(n, value), thresholds) == expected


def by_orders(values, n, block, measure):
    """The mean over all orders of arrival of something at the moment when a block arrives."""
    others = [i for i in range(n) if i not in block]
    found = []
    for order in itertools.permutations([*others, "block"]):
        before = sum(1 << i for i in order[: order.index("block")])
        found.append(measure(before))
    return np.mean(found)


def roles_by_orders(values, n, thresholds):
    """The definitions of the module, written down again with orders of arrival."""
    worth = shapley_values(values)
    changes = [
        by_orders(values, n, [i], lambda s, i=i: abs(values[s | 1 << i] - values[s]))
        for i in range(n)
    ]
    copies, cooperating = [], []
    for i, j in itertools.combinations(range(n), 2):
        a, b = 1 << i, 1 << j

        def apart(s, a=a, b=b):
            three = [values[s | a], values[s | b], values[s | a | b]]
            return max(three) - min(three)

        def change(s, a=a, b=b):
            return abs(values[s | a | b] - values[s])

        def synergy(s, a=a, b=b):
            return values[s | a | b] - values[s | a] - values[s | b] + values[s]

        distance, size, together = (
            by_orders(values, n, [i, j], measure) for measure in (apart, change, synergy)
        )
        if min(changes[i], changes[j]) > thresholds.head and distance <= thresholds.copies * size:
            copies.append((i, j))
        if min(worth[i], worth[j]) > thresholds.head and together > thresholds.pair:
            cooperating.append((i, j))
    return Roles(
        working=tuple(i for i in range(n) if worth[i] > thresholds.head),
        idle=tuple(i for i in range(n) if changes[i] <= thresholds.head),
        opposing=tuple(i for i in range(n) if worth[i] < -thresholds.head),
        copies=tuple(copies),
        cooperating=tuple(cooperating),
    )


def random_game(seed, n=4):
    """Groups are worth what their votes decide, so that all roles occur."""
    rng = np.random.default_rng(seed)
    votes = rng.choice([-1.0, 0.0, 0.0, 1.0, 2.0], size=(n, 8)) * (rng.random((n, 1)) < 0.8)
    if seed % 2:
        votes[1] = votes[0]
    bias = rng.choice([-1.5, -0.5, 0.5], size=8)
    return game(n, lambda s: np.mean(votes[sorted(s)].sum(axis=0) + bias > 0))


def test_random_games_by_orders_of_arrival():
    # No number may fall on a threshold, where rounding would decide.
    thresholds = Thresholds(head=0.0101, pair=0.00503, copies=0.1007)
    seen = set()
    for seed in range(60):
        values = random_game(seed)
        found = find_roles(values, thresholds)
        assert found == roles_by_orders(values, 4, thresholds), seed
        seen |= {role for role in vars(found) if getattr(found, role)}
    assert seen == {"working", "idle", "opposing", "copies", "cooperating"}


@pytest.mark.parametrize("seed", range(12))
def test_renaming_heads_renames_roles(seed):
    values, order = random_game(seed), np.random.default_rng(seed).permutation(4)
    renamed = game(4, lambda s: values[sum(1 << int(order[i]) for i in s)])
    new_name = np.argsort(order)
    before, after = find_roles(values), find_roles(renamed)
    for role in ("working", "idle", "opposing"):
        assert sorted(int(new_name[i]) for i in getattr(before, role)) == list(getattr(after, role))
    for role in ("copies", "cooperating"):
        moved = sorted(tuple(sorted(map(int, new_name[list(p)]))) for p in getattr(before, role))
        assert moved == list(getattr(after, role))


@pytest.mark.parametrize("seed", range(12))
def test_an_idle_head_more_changes_nothing_else(seed):
    values = random_game(seed)
    at = seed % 5
    wider = game(5, lambda s: values[sum(1 << (i - (i > at)) for i in s if i != at)])
    before, after = find_roles(values), find_roles(wider)
    shift = lambda i: i + (i >= at)  # noqa: E731
    assert after.idle == tuple(sorted([*map(shift, before.idle), at]))
    assert after.working == tuple(map(shift, before.working))
    assert after.opposing == tuple(map(shift, before.opposing))
    for role in ("copies", "cooperating"):
        assert getattr(after, role) == tuple((shift(i), shift(j)) for i, j in getattr(before, role))


def test_thresholds_decide_what_is_zero():
    values = game(2, lambda s: 0.5 + 0.3 * (0 in s) + 0.02 * (1 in s))
    assert find_roles(values).working == (0, 1)
    assert find_roles(values, Thresholds(head=0.05)) == Roles((0,), (1,), (), (), ())


def test_a_head_without_others():
    assert find_roles(np.array([0.5, 1.0])) == Roles((0,), (), (), (), ())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([0.5, np.nan, 1.0, 1.0]), "expected finite numbers"),
        (np.array([0.5, 0.5, 1.0]), r"one for each of 2\^a groups, got 3"),
        (np.array([0.5]), r"one for each of 2\^a groups, got 1"),
    ],
)
def test_bad_values(values, message):
    with pytest.raises(ValueError, match=message):
        find_roles(values)
