"""Words for heads on games known by hand, against brute force, when renamed, and with intervals."""

import itertools

import numpy as np
import pytest

from count01_lens.common.intervals import Intervals
from count01_lens.heads.contributions import ContributionsInWork
from count01_lens.heads.games import shapley_values
from count01_lens.heads.labels import label_heads, words_of_heads
from count01_lens.heads.thresholds import Thresholds
from tests.known_games import BY_HAND, Roles, game, random_game


def roles_of(values, thresholds=Thresholds(), contributions=None):  # noqa: B008
    labels = label_heads(values, contributions, thresholds)
    alone = (labels.with_label(word) for word in Roles._fields[:3])
    return Roles(*alone, labels.copies, labels.pairs_with_label("cooperating"))


EXACT = Thresholds(head=1e-12, pair=1e-12, copies=1e-12)


@pytest.mark.parametrize("thresholds", [Thresholds(), EXACT], ids=["default", "exact"])
@pytest.mark.parametrize("name", BY_HAND)
def test_words_by_hand(name, thresholds):
    n, value, expected = BY_HAND[name]
    assert roles_of(game(n, value), thresholds) == expected


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
        facilitating=tuple(i for i in range(n) if worth[i] > thresholds.head),
        irrelevant=tuple(i for i in range(n) if changes[i] <= thresholds.head),
        interfering=tuple(i for i in range(n) if worth[i] < -thresholds.head),
        copies=tuple(copies),
        cooperating=tuple(cooperating),
    )


def test_random_games_by_orders_of_arrival():
    # No number may fall on a threshold, where rounding would decide.
    thresholds = Thresholds(head=0.0101, pair=0.00503, copies=0.1007)
    seen = set()
    for seed in range(60):
        values = random_game(seed)
        found = roles_of(values, thresholds)
        assert found == roles_by_orders(values, 4, thresholds), seed
        seen |= {role for role in Roles._fields if getattr(found, role)}
    assert seen == {"facilitating", "irrelevant", "interfering", "copies", "cooperating"}


@pytest.mark.parametrize("seed", range(12))
def test_renaming_heads_renames_roles(seed):
    values, order = random_game(seed), np.random.default_rng(seed).permutation(4)
    renamed = game(4, lambda s: values[sum(1 << int(order[i]) for i in s)])
    new_name = np.argsort(order)
    before, after = roles_of(values), roles_of(renamed)
    for role in ("facilitating", "irrelevant", "interfering"):
        assert sorted(int(new_name[i]) for i in getattr(before, role)) == list(getattr(after, role))
    for role in ("copies", "cooperating"):
        moved = sorted(tuple(sorted(map(int, new_name[list(p)]))) for p in getattr(before, role))
        assert moved == list(getattr(after, role))


@pytest.mark.parametrize("seed", range(12))
def test_an_irrelevant_head_more_changes_nothing_else(seed):
    values = random_game(seed)
    at = seed % 5
    wider = game(5, lambda s: values[sum(1 << (i - (i > at)) for i in s if i != at)])
    before, after = roles_of(values), roles_of(wider)
    shift = lambda i: i + (i >= at)  # noqa: E731
    assert after.irrelevant == tuple(sorted([*map(shift, before.irrelevant), at]))
    assert after.facilitating == tuple(map(shift, before.facilitating))
    assert after.interfering == tuple(map(shift, before.interfering))
    for role in ("copies", "cooperating"):
        assert getattr(after, role) == tuple((shift(i), shift(j)) for i, j in getattr(before, role))


def test_thresholds_decide_what_is_zero():
    values = game(2, lambda s: 0.5 + 0.3 * (0 in s) + 0.02 * (1 in s))
    assert roles_of(values).facilitating == (0, 1)
    assert roles_of(values, Thresholds(head=0.05)) == Roles((0,), (1,), (), (), ())


def test_a_head_without_others():
    assert roles_of(np.array([0.5, 1.0])) == Roles((0,), (), (), (), ())


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
        roles_of(values)


def test_copy_shares_by_hand():
    """What one head has already of what the other brings: all of copies, none of what adds up."""
    either = label_heads(game(3, lambda s: 0.5 + 0.5 * bool(s & {0, 1}))).pairs
    assert either.loc[0, ["label", "copy_share"]].tolist() == ["redundant", 1.0]
    assert np.isnan(either["copy_share"][1:]).all()  # head 2 is irrelevant
    part = label_heads(game(2, lambda s: [0.5, 0.8, 1.0][len(s)])).pairs
    assert part["copy_share"][0] == pytest.approx(1 / 3)  # 0.1 of the 0.3 that either adds
    apart = label_heads(game(2, lambda s: 0.25 * len(s))).pairs
    assert apart["label"][0] == ""
    together = label_heads(game(2, lambda s: [0.5, 0.6, 1.0][len(s)])).pairs
    assert together["label"][0] == "cooperating"
    assert np.isnan(together["copy_share"][0])


def test_partners_are_named_on_both_sides():
    labels = label_heads(game(3, lambda s: 0.5 + 0.5 * bool(2 in s and s & {0, 1}))).heads
    assert labels["cooperating_with"].tolist() == [(2,), (2,), (0, 1)]
    assert labels["redundant_with"].tolist() == [(1,), (0,), ()]


def prompt_games(right):
    """Values of all groups, and contributions of prompts, from which groups get which right."""
    n_groups, n_prompts = right.shape
    in_work = ContributionsInWork(n_groups.bit_length() - 1, n_prompts)
    in_work.add(np.arange(n_groups), right)
    return right.mean(axis=1), in_work.finished()


def test_a_word_needs_an_interval_beyond_the_bound():
    """One head answers 3 prompts of n more: worth 3/n, which few prompts cannot tell from nothing."""
    for n, expected in ((60, "undecided"), (6000, "irrelevant")):
        right = np.zeros((2, n), dtype=bool)
        right[:, : n // 2] = True
        right[1, n // 2 : n // 2 + 3] = True
        values, contributions = prompt_games(right)
        found = label_heads(values, contributions)
        assert found.heads["label"].tolist() == [expected]
        assert found.n_prompts == n
        low, worth, high = found.heads.loc[0, ["low", "shapley", "high"]]
        assert worth == pytest.approx(3 / n)
        assert low < worth < high
    right[1, n // 2 :] = True
    assert roles_of(*prompt_games(right)[:1], contributions=prompt_games(right)[1]).facilitating


def test_an_interval_up_to_the_bounds_is_within_them():
    bound, changes = 0.01, np.array([0.0, 0.01, 0.0, 0.02])
    low, high = np.array([-0.01, -0.01, -0.0101, -0.01]), np.array([0.01, 0.01, 0.0, 0.01])
    words = words_of_heads(Intervals((low + high) / 2, low, high), changes, bound)
    assert words.tolist() == ["irrelevant", "irrelevant", "undecided", "undecided"]


def test_pairs_without_enough_prompts_get_no_word():
    right = np.zeros((4, 40), dtype=bool)
    right[3] = True  # only together
    values, contributions = prompt_games(right)
    assert label_heads(values, contributions).pairs["label"].tolist() == ["cooperating"]
    right[3, 4:] = False  # in 4 of 40 prompts
    values, contributions = prompt_games(right)
    assert label_heads(values).pairs["label"].tolist() == ["cooperating"]  # if these were all
    assert label_heads(values, contributions).pairs["label"].tolist() == [""]


def test_heads_that_do_nothing_are_no_copies_however_few_prompts():
    right = np.zeros((8, 100), dtype=bool)
    right[[1, 3, 5, 7]] = True  # head 0 does it all
    values, contributions = prompt_games(right)
    found = label_heads(values, contributions)
    assert found.heads["label"].tolist() == ["facilitating", "undecided", "undecided"]
    assert found.copies == ()
