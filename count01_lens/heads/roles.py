"""Roles of heads, told from the value of every group: who works, idles, repeats, helps, opposes.

Let v(S) be the value of a group S of heads, and w weights over the groups without a head (or a
pair), under which every size is equally likely and, given its size, every group. Write

    Δ_i(S) = v(S+i) − v(S)                      what head i adds to a group,
    φ_i    = Σ w Δ_i(S)                         its Shapley value,
    A_i    = Σ w |Δ_i(S)|                       how much it changes anything, either way,
    I_ij   = Σ w [ v(S+i+j) − v(S+i) − v(S+j) + v(S) ]    the interaction of a pair,
    G_ij   = Σ w |v(S+i+j) − v(S)|              how much a pair changes anything,
    D_ij   = Σ w max( |v(S+i) − v(S+j)|, |v(S+i+j) − v(S+i)|, |v(S+i+j) − v(S+j)| ).

* **idle**: A_i = 0. The head changes no group's value: a null player.
* **working**: φ_i > 0. On average over groups, and thus in some, the model is better with it. A
  copy works although the whole model does not need it: single-head ablation overlooks it.
* **opposing**: φ_i < 0.
* **copies**: D_ij = 0 and neither is idle. Either one does in every group what the other does, and
  both together do no more: they are symmetric players and perfect substitutes.
* **cooperating**: both work and I_ij > 0: they are worth more together than apart. Both must work,
  because a working head that outvotes an opposing one has a positive interaction with it, too.

A head with φ_i = 0 that is not idle helps as much as it harms, and has none of these roles. Zero
is exact for models without noise; `Thresholds` says what counts as zero. None of the numbers
changes if idle heads are added, and all of them move with the heads if those are renamed.

Use accuracy (l_acc) as the value. A mean logit difference of the right answer and others is a sum
over heads in a model of one layer without norm and MLP: all interactions are zero there, copies
add up, and neither copies nor cooperation can be told from it. The price of accuracy: a head that
writes into the logits but flips no decision in any group is idle.
"""

from dataclasses import dataclass
from math import factorial

import numpy as np
from jaxtyping import Float

from count01_lens.common.types import Array
from count01_lens.heads.games import check_values, shapley_interactions, subset_sizes

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What counts as zero, in units of the value; copies in units of what the pair changes.

    Attributes:
        head: of φ_i and A_i.
        pair: of I_ij.
        copies: of D_ij / G_ij.
    """

    head: float = 0.01
    pair: float = 0.005
    copies: float = 0.1


@dataclass(frozen=True)
class Roles:
    """Heads by what they do; pairs have the smaller number first.

    Attributes:
        working: heads that the model is better with.
        idle: heads that change nothing.
        opposing: heads that the model is better without.
        copies: pairs of which either does what both do.
        cooperating: pairs of working heads that are worth more together than apart.
    """

    working: tuple[int, ...]
    idle: tuple[int, ...]
    opposing: tuple[int, ...]
    copies: tuple[Pair, ...]
    cooperating: tuple[Pair, ...]


def find_roles(values: Float[Array, " mask"], thresholds: Thresholds = Thresholds()) -> Roles:  # noqa: B008
    """Tell the roles of heads from the value of every group.

    Args:
        values: by mask (bit i stands for head i), the empty group first.
        thresholds: what counts as zero.

    Raises:
        ValueError: if they are not the finite values of 2^a groups.

    Example:
        Heads 0 and 1 are copies, and solve the task together with head 2; head 3 is idle.

        >>> values = [0.5 + 0.5 * bool(mask & 0b011 and mask & 0b100) for mask in range(16)]
        >>> find_roles(np.array(values))
        Roles(working=(0, 1, 2), idle=(3,), opposing=(), copies=((0, 1),),
              cooperating=((0, 2), (1, 2)))
    """
    n = check_values(values)
    interactions = shapley_interactions(values)
    worth = np.diag(interactions)
    idle = [head for head in range(n) if influence(values, head) <= thresholds.head]
    working = [head for head in range(n) if worth[head] > thresholds.head]
    copies, cooperating = [], []
    for i in range(n):
        for j in range(i + 1, n):
            different, change = _differences(values, i, j)
            if {i, j}.isdisjoint(idle) and different <= thresholds.copies * change:
                copies.append((i, j))
            if {i, j} <= {*working} and interactions[i, j] > thresholds.pair:
                cooperating.append((i, j))
    return Roles(
        working=tuple(working),
        idle=tuple(idle),
        opposing=tuple(head for head in range(n) if worth[head] < -thresholds.head),
        copies=tuple(copies),
        cooperating=tuple(cooperating),
    )


def influence(values: Float[Array, " mask"], head: int) -> float:
    """How much a head changes the value of a group, in the mean: A_i of the equations above."""
    without, weights = _groups_without(len(values), 1 << head)
    return float(weights @ np.abs(values[without | 1 << head] - values[without]))


def _differences(values: Float[Array, " mask"], i: int, j: int) -> tuple[float, float]:
    """D_ij and G_ij of the module's equations."""
    without, weights = _groups_without(len(values), 1 << i | 1 << j)
    one, other = values[without | 1 << i], values[without | 1 << j]
    both = values[without | 1 << i | 1 << j]
    apart = np.max([np.abs(one - other), np.abs(both - one), np.abs(both - other)], axis=0)
    return float(weights @ apart), float(weights @ np.abs(both - values[without]))


def _groups_without(n_groups: int, heads: int) -> tuple[Array, Float[Array, " group"]]:
    """Groups that have none of some heads, given as a mask, and weights that sum to one."""
    masks = np.arange(n_groups)
    without = masks[masks & heads == 0]
    n = len(without).bit_length() - 1
    by_size = np.array([factorial(s) * factorial(n - s) / factorial(n + 1) for s in range(n + 1)])
    return without, by_size[subset_sizes(without)]
