"""How long something takes."""

import time
from collections.abc import Callable
from typing import Any


def best(
    run: Callable[[], Any], repetitions: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Shortest of several times, in seconds: the least disturbed one."""
    run_times = []
    for _ in range(repetitions):
        start = clock()
        run()
        run_times.append(clock() - start)
    return min(run_times)
