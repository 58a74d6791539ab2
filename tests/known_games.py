"""Games whose answer is known by hand, and the definitions of indices, for several tests."""

from typing import NamedTuple

import numpy as np

# Our names of indices, and shapiq's.
INDICES = {
    "shapley": "SII",
    "banzhaf": "BII",
    "shapley_taylor": "STII",
    "faithful": "FSII",
}


class Roles(NamedTuple):
    """Heads and pairs by their words."""

    facilitating: tuple
    irrelevant: tuple
    interfering: tuple
    copies: tuple
    cooperating: tuple


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


def random_game(seed, n=4):
    """Groups are worth what their votes decide, so that all roles occur."""
    rng = np.random.default_rng(seed)
    votes = rng.choice([-1.0, 0.0, 0.0, 1.0, 2.0], size=(n, 8)) * (rng.random((n, 1)) < 0.8)
    if seed % 2:
        votes[1] = votes[0]
    bias = rng.choice([-1.5, -0.5, 0.5], size=8)
    return game(n, lambda s: np.mean(votes[sorted(s)].sum(axis=0) + bias > 0))


def within(mask):
    """All groups within a group, itself and the empty one included."""
    return [part for part in range(mask + 1) if part & ~mask == 0]


def together(values, s, t):
    """What the heads of s add to the group t only together."""
    size = s.bit_count()
    return sum((-1) ** (size - part.bit_count()) * values[t | part] for part in within(s))
