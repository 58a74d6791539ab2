"""Measure exact indices of games, ours beside shapiq's, on one table: part of `make bench`.

The table is l-acc of all 65,536 groups of the example model's 16 heads. shapiq's ExactComputer gets
it as a lookup and has asked for all values before the clock starts, so that only what follows from
them is timed. Times are of the processor: on a machine that is shared, one long run would otherwise
be held up more than the best of many short ones. The largest difference of the two results is
measured with them.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from count01_lens.common.types import Array
from experiments.tools import timing

HEADS = 16

best = partial(timing.best, clock=time.process_time)


def shapley_values_by_shapiq() -> dict[str, float]:
    """Shapley values of 16 heads from all groups, by shapiq's ExactComputer."""
    return _shapiq("SV", 1, _ours(1), repetitions=3)


def shapley_values_of_games() -> dict[str, float]:
    """The same by `heads.games`."""
    return {"seconds": best(lambda: _ours(1), 30)}


def pairs_by_shapiq() -> dict[str, float]:
    """Shapley interactions of up to two of the heads, by shapiq."""
    return _shapiq("SII", 2, _ours(2))


def pairs_of_games() -> dict[str, float]:
    """The same by `heads.games`."""
    return {"seconds": best(lambda: _ours(2), 30)}


def triples_by_shapiq() -> dict[str, float]:
    """Shapley interactions of up to three of the heads, by shapiq."""
    return _shapiq("SII", 3, _ours(3))


def triples_of_games() -> dict[str, float]:
    """The same by `heads.games`."""
    return {"seconds": best(lambda: _ours(3), 30)}


def dividends_by_shapiq() -> dict[str, float]:
    """Harsanyi dividends of all groups of the heads, by shapiq."""
    from count01_lens.heads.games import dividends

    return _shapiq("Moebius", HEADS, dividends(table()))


def dividends_of_games() -> dict[str, float]:
    """The same by `heads.games`."""
    from count01_lens.heads.games import dividends

    values = table()
    return {"seconds": best(lambda: dividends(values), 30)}


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [
    shapley_values_by_shapiq,
    shapley_values_of_games,
    pairs_by_shapiq,
    pairs_of_games,
    triples_by_shapiq,
    triples_of_games,
    dividends_by_shapiq,
    dividends_of_games,
]

RATIOS = [
    ("games: Shapley values over shapiq", "shapley_values_by_shapiq", "shapley_values_of_games"),
    ("games: pairs over shapiq", "pairs_by_shapiq", "pairs_of_games"),
    ("games: triples over shapiq", "triples_by_shapiq", "triples_of_games"),
    ("games: dividends over shapiq", "dividends_by_shapiq", "dividends_of_games"),
]


@cache
def table() -> Array:
    """l-acc of all groups of the example model's heads, by mask; no probes are fitted."""
    import count01_lens as cl
    from count01_lens.heads.groups import as_rows
    from count01_lens.heads.head_data import head_data
    from count01_lens.heads.metrics import METRICS, Groups

    data, metric = head_data(cl.example_model()), METRICS["l_acc"]
    some = metric.measure(Groups(data, as_rows(np.arange(1, 2**HEADS), HEADS)))
    return np.append(metric.of_no_heads(data), some)


def _ours(order: int) -> Array:
    from count01_lens.heads.games import interactions_by_group

    return interactions_by_group(table(), order)


def _shapiq(index: Any, order: int, ours: Array, repetitions: int = 1) -> dict[str, float]:
    """Time shapiq, and compare what it finds with ours, by mask."""
    from shapiq.game_theory.exact import ExactComputer

    values, bits = table(), 1 << np.arange(HEADS)

    def game(rows: Array) -> Array:
        return np.asarray(values[np.asarray(rows).astype(int) @ bits])

    # A new one each time: it remembers what it has computed.
    computers = [ExactComputer(game, HEADS, evaluate_game=True) for _ in range(repetitions)]
    found: list[Any] = []
    seconds = best(lambda: found.append(computers[len(found)](index, order)), repetitions)
    groups = {heads: place for heads, place in found[0].interaction_lookup.items() if heads}
    masks = [sum(1 << head for head in heads) for heads in groups]
    off = np.abs(found[0].values[list(groups.values())] - ours[masks]).max()
    return {"seconds": seconds, "largest_difference": float(off)}
