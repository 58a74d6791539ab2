"""What independent heads would give: the null model of "they repeat each other" and "they help".

Accuracy is bounded, so the second good head adds less than the first even if the two know nothing
of each other: a negative mean interaction alone does not show that heads repeat each other. Heads
as good as these, but independent given the right answer, are made by shuffling: each head's outputs
and attributions change places, by a permutation of its own, among prompts with the same answer.
Each head alone does what it did; what it shares with others beyond the answer, such as which
prompts are hard, is gone.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from count01_lens.common.intervals import simultaneous_intervals
from count01_lens.common.types import Array
from count01_lens.heads.head_data import AskedHeads, HeadData
from count01_lens.heads.metrics import PROBE, Groups, Metric, RightKept
from count01_lens.heads.probe_fits import LostProbe

N_SHUFFLES = 2
# Random orders in which heads come; probes of shuffled heads are slow to fit.
N_ORDERS, N_ORDERS_OF_PROBES = 32, 6


@dataclass(frozen=True, eq=False)
class IndependentHeads:
    """What groups of independent heads would reach, against groups of the heads there are.

    Attributes:
        by_size: how much more than groups of the same 0, 1, ... heads they reach; the mean.
        beyond: the mean over sizes of what the model's own groups reach more: above zero heads
            complement each other, below they share their mistakes.
        low, high: interval of that, over test prompts and over the orders in which heads came.
    """

    by_size: Float[Array, " size"]
    beyond: float
    low: float
    high: float


def why_not_independent(data: HeadData) -> str | None:
    """Tell why heads cannot be made independent by shuffling what they write; None if they can."""
    if data.group_logits is not None:
        return "heads reach the logits through each other, a norm or later layers"
    if isinstance(data.probe, LostProbe):
        return "the probe is not in the file"
    return None


def independent_heads(
    data: HeadData,
    metric: Metric,
    *,
    n_shuffles: int = N_SHUFFLES,
    n_orders: int | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> IndependentHeads:
    """Measure what heads of the same quality would reach if they were independent.

    Heads come one by one, in random orders (32, or 6 for probes): these groups are measured of the
    model, and of each of `n_shuffles` shuffled ones. The metric must be a mean over prompts.
    """
    rng = np.random.default_rng(seed)
    n = n_orders or (N_ORDERS_OF_PROBES if metric.right_by == PROBE else N_ORDERS)
    orders = rng.random((n, data.n_heads)).argsort(axis=1)
    own = _right_by_size(data, metric, orders)
    others = [_right_by_size(shuffled(data, rng), metric, orders) for _ in range(n_shuffles)]
    by_prompt, by_order = (
        mine - np.mean(theirs, axis=0)
        for mine, theirs in zip(own, zip(*others, strict=True), strict=True)
    )
    (beyond,), (low,), (high,) = simultaneous_intervals(
        by_prompt.mean(axis=0)[:, None], level=level
    )
    # Prompts are a sample, and so are the orders: what both leave open adds up.
    spread = by_order.mean(axis=0).std(ddof=1) / np.sqrt(n) if n > 1 else 0.0
    reach = float(stats.t.ppf((1 + level) / 2, max(n - 1, 1)) * spread)
    half = float(np.hypot((high - low) / 2, reach))
    by_size = np.append(0.0, -by_prompt.mean(axis=1))
    return IndependentHeads(by_size, float(beyond), float(beyond) - half, float(beyond) + half)


def _right_by_size(
    data: HeadData, metric: Metric, orders: Int[Array, "order head"]
) -> tuple[Float[Array, "size prompt"], Float[Array, "size order"]]:
    """Share of right answers with the first 1, 2, ... heads of orders: by prompt, and by order."""
    by_prompt, by_order = [], []
    start = None
    for size in range(1, data.n_heads + 1):
        kept = RightKept(len(orders))
        groups = Groups(data, orders < size, start=start, noted=kept)
        metric.measure(groups)
        right = kept.by[metric.right_by or ""]
        by_prompt.append(right.mean(axis=0))
        by_order.append(right.mean(axis=1))
        # A probe starts from that of the group with one head less: most of it stays.
        start = groups.fits.starts if metric.right_by == PROBE else None
    return np.stack(by_prompt), np.stack(by_order)


def shuffled(data: HeadData, rng: np.random.Generator) -> HeadData:
    """Let outputs and attributions of each head change places among prompts with one answer."""
    train_outputs, test_outputs = data.train_outputs.copy(), data.test_outputs.copy()
    # What stands in the place of a head that is taken out stays where it is.
    asked = data.asked
    heads = {name: each.heads.copy() for name, each in asked.items()}
    alike = {name: _alike(each, data.answer) for name, each in asked.items()}
    for head in range(data.n_heads):
        places = _permuted(data.train_answers, rng)
        train_outputs[:, head] = data.train_outputs[places, head]
        # A probe reads the outputs, the model their attributions: both of the same prompt.
        of_answer = _permuted(alike["answer"], rng)
        test_outputs[:, head] = data.test_outputs[of_answer, head]
        for name, each in asked.items():
            places = of_answer if name == "answer" else _permuted(alike[name], rng)
            heads[name][:, head] = each.heads[places, head]
    return replace(
        data,
        train_outputs=train_outputs,
        test_outputs=test_outputs,
        asked={name: replace(each, heads=heads[name]) for name, each in asked.items()},
    )


def _alike(asked: AskedHeads, main: AskedHeads) -> Int[Array, " prompt"]:
    """Number prompts by their right answer, also to the main question if they are its prompts.

    What is asked after an answer depends on it: heads that see '4' are not to change places with
    heads that see '5'.
    """
    if len(asked.answers) != len(main.answers):
        return asked.answers
    return np.asarray(asked.answers * (main.answers.max() + 1) + main.answers)


def _permuted(alike: Int[Array, " prompt"], rng: np.random.Generator) -> Int[Array, " prompt"]:
    places = np.arange(len(alike))
    for value in np.unique(alike):
        some = np.flatnonzero(alike == value)
        places[some] = rng.permutation(some)
    return places
