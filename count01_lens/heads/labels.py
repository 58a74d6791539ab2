"""Words for heads and pairs, each with the number that decides it.

Let v(S) be the value of a group S of heads, and w weights over the groups without a head (or a
pair), under which every size is equally likely and, given its size, every group. Write

    Δ_i(S) = v(S+i) − v(S)                      what head i adds to a group,
    φ_i    = Σ w Δ_i(S)                         its Shapley value,
    A_i    = Σ w |Δ_i(S)|                       how much it changes anything, either way,
    I_ij   = Σ w [ v(S+i+j) − v(S+i) − v(S+j) + v(S) ]    the interaction of a pair,
    a_ij   = Σ w Δ_i(S), over S without i and j           what i adds where j is not,
    G_ij   = Σ w |v(S+i+j) − v(S)|              how much a pair changes anything,
    D_ij   = Σ w max( |v(S+i) − v(S+j)|, |v(S+i+j) − v(S+i)|, |v(S+i+j) − v(S+j)| ).

Every word has a null that the interval of its number must exclude:

* **facilitating**: φ_i > 0. On average over groups, and thus in some, the model is better with the
  head. A copy facilitates although the whole model does not need it: single-head ablation overlooks
  it. Null: the head changes nothing.
* **interfering**: φ_i < 0.
* **irrelevant**: φ_i = 0 and A_i = 0. The head changes no group's value, in the mean over groups: a
  null player.
* **undecided**: the interval leaves more than one of these open, or the head helps as much as it
  harms.
* **cooperating** pairs: both facilitate and I_ij > 0: they are worth more together than apart.
  Null: heads whose gains add up, for which I_ij = 0. Both must facilitate, because a head that
  outvotes an interfering one has a positive interaction with it, too.
* **redundant** pairs: both facilitate and I_ij < 0: part of what one brings, the other has already.
  Exact copies have I_ij = −a_ij, so −I_ij / min(a_ij, a_ji), the *copy share*, is 0 for heads that
  add up and 1 for copies.
* **copies**: D_ij = 0, and A_i and A_j are not. Either one does in every group what the other
  does, and both together do no more: they are symmetric players and perfect substitutes.

A_i, D_ij and G_ij are taken as they are, without intervals: with few prompts, copies may be so by
chance. Zero is what `Thresholds` says it is: exact zeros are found in models without noise only.
None of the numbers changes if irrelevant heads are added, and all move with the heads if those are
renamed.

A mean logit difference of the right answer and others is a sum over heads in a model of one layer
without norm and MLP: all interactions are zero there, copies add up, and neither copies nor
cooperation can be told from it. The price of accuracy: a head that writes into the logits but flips
no decision in any group is irrelevant.
"""

from dataclasses import dataclass
from math import factorial

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from count01_lens.common.intervals import Intervals, simultaneous_intervals
from count01_lens.common.types import Array
from count01_lens.heads.games import shapley_interactions, subset_sizes
from count01_lens.heads.thresholds import THRESHOLDS, Thresholds

LABELS = ("facilitating", "interfering", "irrelevant", "undecided")
PAIR_LABELS = ("cooperating", "redundant")


@dataclass(frozen=True, eq=False)
class HeadLabels:
    """Words for heads and for pairs of heads.

    Attributes:
        heads: a row per head: head, label, shapley with its interval (low, high), influence (A_i),
            and the heads that it is redundant_with and cooperating_with.
        pairs: a row per pair: first, second, label (empty if there is none), interaction with its
            interval (low, high), copy_share (NaN unless both facilitate and the interaction is
            negative), and whether the two are copies.
        n_prompts: how many test prompts intervals are over; None where values are taken as exact.
    """

    heads: pd.DataFrame
    pairs: pd.DataFrame
    n_prompts: int | None = None

    def with_label(self, label: str) -> tuple[int, ...]:
        """Heads with a label."""
        return tuple(self.heads.loc[self.heads["label"] == label, "head"].tolist())

    def pairs_with_label(self, label: str) -> tuple[tuple[int, int], ...]:
        """Pairs with a label; the smaller number comes first."""
        return self._as_pairs(self.pairs["label"] == label)

    @property
    def copies(self) -> tuple[tuple[int, int], ...]:
        """Pairs of which either head does what both do."""
        return self._as_pairs(self.pairs["copies"])

    def _as_pairs(self, chosen: "pd.Series[bool]") -> tuple[tuple[int, int], ...]:
        rows = self.pairs.loc[chosen, ["first", "second"]].to_numpy().tolist()
        return tuple((first, second) for first, second in rows)


def label_heads(
    values: Float[Array, " mask"],
    contributions: Float[Array, "prompt pair"] | None = None,
    thresholds: Thresholds = THRESHOLDS,
) -> HeadLabels:
    """Find the words for heads and pairs from the value of every group.

    Args:
        values: by mask (bit i stands for head i), the empty group first.
        contributions: what each prompt contributes (`heads.contributions`), for intervals over
            prompts. Without them values are taken as exact, as for prompts that are all there are.
        thresholds: what counts as zero.

    Example:
        Heads 0 and 1 are copies, and solve the task together with head 2; head 3 is idle.

        >>> values = [0.5 + 0.5 * bool(mask & 0b011 and mask & 0b100) for mask in range(16)]
        >>> labels = label_heads(np.array(values))
        >>> labels.heads["label"].tolist()
        ['facilitating', 'facilitating', 'facilitating', 'irrelevant']
        >>> labels.pairs_with_label("cooperating"), labels.copies
        (((0, 2), (1, 2)), ((0, 1),))
    """
    matrix = shapley_interactions(values)
    n = len(matrix)
    of_heads, of_pairs = _intervals(matrix, contributions, thresholds.level)
    changes = np.array([influence(values, head) for head in range(n)])
    label = words_of_heads(of_heads, changes, thresholds.head)
    pairs = _pair_table(values, of_pairs, label, changes > thresholds.head, thresholds)
    partners = {
        kind: [_partners(pairs[pairs["label"] == kind], head) for head in range(n)]
        for kind in PAIR_LABELS
    }
    heads = pd.DataFrame(
        {
            "head": range(n),
            "label": label,
            "shapley": of_heads.mean,
            "low": of_heads.low,
            "high": of_heads.high,
            "influence": changes,
            "redundant_with": partners["redundant"],
            "cooperating_with": partners["cooperating"],
        }
    )
    return HeadLabels(heads, pairs, None if contributions is None else len(contributions))


def _intervals(
    matrix: Float[Array, "head head"],
    contributions: Float[Array, "prompt pair"] | None,
    level: float,
) -> tuple[Intervals, Intervals]:
    """Intervals of all heads' values, which hold together, and of all pairs' interactions."""
    first, second = np.triu_indices(len(matrix))
    alone = first == second
    if contributions is None:
        exact = matrix[first, second]
        return Intervals(*(exact[alone],) * 3), Intervals(*(exact[~alone],) * 3)
    of_heads, of_pairs = (
        simultaneous_intervals(contributions[:, chosen], level=level) for chosen in (alone, ~alone)
    )
    return of_heads, of_pairs


def words_of_heads(of_heads: Intervals, changes: Float[Array, " head"], bound: float) -> Array:
    """Words by the intervals of Shapley values, and by how much heads change anything."""
    inside = (of_heads.low >= -bound) & (of_heads.high <= bound) & (changes <= bound)
    cases = [of_heads.low > bound, of_heads.high < -bound, inside]
    return np.select(cases, list(LABELS[:3]), LABELS[3])


def _pair_table(
    values: Float[Array, " mask"],
    of_pairs: Intervals,
    label: Array,
    changes: Bool[Array, " head"],
    thresholds: Thresholds,
) -> pd.DataFrame:
    first, second = np.triu_indices(len(label), 1)
    found = [compare(values, i, j) for i, j in zip(first.tolist(), second.tolist(), strict=True)]
    unlike, change, less = np.array(found).reshape(-1, 3).T
    facilitate = (label[first] == "facilitating") & (label[second] == "facilitating")
    cases = [
        facilitate & (of_pairs.low > thresholds.pair),
        facilitate & (of_pairs.high < -thresholds.pair),
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        shared = facilitate & (of_pairs.mean < 0) & (less > 0)
        share = np.where(shared, -of_pairs.mean / less, np.nan)
    both_change = changes[first] & changes[second] & (change > 0)
    return pd.DataFrame(
        {
            "first": first,
            "second": second,
            "label": np.select(cases, list(PAIR_LABELS), ""),
            "interaction": of_pairs.mean,
            "low": of_pairs.low,
            "high": of_pairs.high,
            "copy_share": share,
            "copies": both_change & (unlike <= thresholds.copies * change),
        }
    )


def _partners(pairs: pd.DataFrame, head: int) -> tuple[int, ...]:
    ends = pairs[["first", "second"]].to_numpy()
    of_head = ends[(ends == head).any(axis=1)]
    return tuple(sorted(of_head[of_head != head].tolist()))


def influence(values: Float[Array, " mask"], head: int) -> float:
    """Return A_i of the module's equations: how much a head changes anything, either way."""
    without, weights = _groups_without(len(values), 1 << head)
    return float(weights @ np.abs(values[without | 1 << head] - values[without]))


def compare(values: Float[Array, " mask"], i: int, j: int) -> tuple[float, float, float]:
    """Return D_ij, G_ij and min(a_ij, a_ji) of the module's equations; of copies D_ij is zero."""
    without, weights = _groups_without(len(values), 1 << i | 1 << j)
    none, one, other = values[without], values[without | 1 << i], values[without | 1 << j]
    both = values[without | 1 << i | 1 << j]
    apart = np.max([np.abs(one - other), np.abs(both - one), np.abs(both - other)], axis=0)
    less = min(weights @ (one - none), weights @ (other - none))
    return float(weights @ apart), float(weights @ np.abs(both - none)), float(less)


def _groups_without(n_groups: int, heads: int) -> tuple[Array, Float[Array, " group"]]:
    """Groups that have none of some heads, given as a mask, and weights that sum to one."""
    masks = np.arange(n_groups)
    without = masks[masks & heads == 0]
    n = len(without).bit_length() - 1
    by_size = np.array([factorial(s) * factorial(n - s) / factorial(n + 1) for s in range(n + 1)])
    return without, by_size[subset_sizes(without)]
