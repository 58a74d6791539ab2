"""What the values of all groups of heads come to, as a few numbers for a model and a metric."""

import numpy as np
from jaxtyping import Float, Shaped

from count01_lens.common.intervals import Intervals
from count01_lens.common.types import Array
from count01_lens.heads.ends import EndValues
from count01_lens.heads.games import explained_by_order, shapley_interactions, smallest_groups
from count01_lens.heads.labels import LABELS, influence, words_of_heads
from count01_lens.heads.thresholds import THRESHOLDS

NEARLY = 0.99  # of what all heads gain over none
ORDERS = (1, 2, 3)
# Columns, in their order, of which those of the ends need no more than 2a + 2 groups.
OF_ENDS = ("none", "whole", "first_gain", "last_gain", "mean_interaction")
OF_ALL = (
    "cooperating_pairs",
    "redundant_pairs",
    *(f"explained_{order}" for order in ORDERS),
    "heads_for_99",
    *LABELS,
)


def ends_numbers(ends: EndValues) -> dict[str, float]:
    """Return the numbers that follow from the smallest and the largest groups."""
    return {name: float(getattr(ends, name)) for name in OF_ENDS}


def group_numbers(values: Float[Array, " mask"]) -> dict[str, float]:
    """Return all numbers of a model and a metric.

    Args:
        values: of all groups, by mask.

    Returns:
        none, whole: value of no heads and of all. first_gain, last_gain: what a head adds to none,
        and to all others, in the mean. mean_interaction: over all pairs. cooperating_pairs,
        redundant_pairs: shares of pairs with an interaction of at least +0.01, at most −0.01.
        explained_1, _2, _3: share of the variance over groups that single heads, pairs and triples
        explain. heads_for_99: size of the smallest group with 99 % of what all heads gain over
        none. facilitating, interfering, irrelevant, undecided: numbers of heads (`point_labels`).
    """
    n = len(values).bit_length() - 1
    matrix = shapley_interactions(values)
    pairs = matrix[np.triu_indices(n, 1)]
    some = len(pairs) > 0
    explained = explained_by_order(values)
    labels = point_labels(values, np.diag(matrix))
    return {
        **ends_numbers(EndValues.of_values(values)),
        "cooperating_pairs": float((pairs >= THRESHOLDS.mean).mean()) if some else np.nan,
        "redundant_pairs": float((pairs <= -THRESHOLDS.mean).mean()) if some else np.nan,
        **{f"explained_{order}": float(explained[order - 1 : order].sum()) for order in ORDERS},
        "heads_for_99": float(np.bitwise_count(smallest_groups(values, NEARLY)[0])),
        **{label: float((labels == label).sum()) for label in LABELS},
    }


def point_labels(
    values: Float[Array, " mask"], worth: Float[Array, " head"]
) -> Shaped[Array, " head"]:
    """Words for heads by Shapley values taken as exact, without intervals over prompts.

    These are the words of `heads.labels`, which also has the intervals that a word for one model
    should have; over many moments and models, their numbers say how much words change.
    """
    changes = np.array([influence(values, head) for head in range(len(worth))])
    return words_of_heads(Intervals(worth, worth, worth), changes, THRESHOLDS.head)
