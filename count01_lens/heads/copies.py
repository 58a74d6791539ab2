"""Clusters of heads that are copies of each other, in two senses.

**Copies** do the same for the model: in every group, either does what both do (D_ij / G_ij of
`heads.labels`). Heads that **decide alike** hold the same: their linear probes give the same
answers to the same prompts. Neither follows from the other: two heads may know the same, and write
it into the logits in opposite directions.
"""

import numpy as np
from jaxtyping import Float, Shaped
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

from count01_lens.common.types import Array
from count01_lens.heads.games import check_values
from count01_lens.heads.labels import compare, influence
from count01_lens.heads.thresholds import THRESHOLDS

Cluster = tuple[int, ...]

# Copies: what sets two heads apart is at most a tenth of what they change, as for labels of pairs.
APART = THRESHOLDS.copies
# Deciding alike: probes differ on at most a tenth as many prompts as by chance. That is a Cohen's
# kappa of 0.9, well inside what Landis and Koch call almost perfect (above 0.81).
UNLIKE = 0.1


def apartness(values: Float[Array, " mask"]) -> Float[Array, "head head"]:
    """Return D_ij / G_ij of `heads.labels`: 0 for copies, 1 where one of them changes nothing."""
    n = check_values(values)
    result = np.ones((n, n)) - np.eye(n)
    relevant = [head for head in range(n) if influence(values, head) > THRESHOLDS.head]
    for place, i in enumerate(relevant):
        for j in relevant[place + 1 :]:
            different, change, _ = compare(values, i, j)
            # Two heads that undo each other change nothing together, and are no copies.
            result[i, j] = result[j, i] = different / change if change > 0 else 1.0
    return result


def unlikeness(answers: Shaped[Array, "sample head"]) -> Float[Array, "head head"]:
    """Return by how much heads decide differently: 1 − Cohen's kappa of what their probes answer.

    It is the share of prompts on which two probes differ, over the share on which they would if
    each gave its answers to prompts at random: 0 for the same answers, 1 for no more agreement than
    chance gives. Probes that give one answer always agree by chance alone, also with each other.
    """
    of_answer = np.stack([answers == answer for answer in np.unique(answers)]).astype(float)
    agreeing = np.einsum("asi,asj->ij", of_answer, of_answer) / len(answers)
    shares = of_answer.mean(axis=1)
    by_chance = shares.T @ shares
    room = 1 - by_chance
    # No room is left between two probes that give the same one answer: they agree by chance.
    found = np.divide(1 - agreeing, room, out=np.ones_like(room), where=room > 1e-12)
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def clusters(distances: Float[Array, "head head"], bound: float) -> tuple[Cluster, ...]:
    """Put heads together so that in a cluster no two are further apart than the bound.

    Complete linkage; heads that stay alone are left out. The largest cluster comes first, of equal
    ones that with the first head.
    """
    if len(distances) < 2:
        return ()
    names = fcluster(_tree(distances), bound, criterion="distance")
    found = [tuple(np.flatnonzero(names == name).tolist()) for name in np.unique(names)]
    return tuple(sorted((c for c in found if len(c) > 1), key=lambda c: (-len(c), c)))


def side_by_side(distances: Float[Array, "head head"]) -> list[int]:
    """Order heads so that every cluster of `clusters`, whatever the bound, stands together."""
    return [0] if len(distances) < 2 else list(map(int, leaves_list(_tree(distances))))


def _tree(distances: Float[Array, "head head"]) -> Float[Array, "merge 4"]:
    return np.asarray(linkage(squareform(distances), method="complete"))
