"""How long something takes."""

import time
from collections.abc import Callable
from typing import Any


def best(run: Callable[[], Any], repetitions: int) -> float:
    """Shortest of several times, in seconds: the least disturbed one."""
    run_times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        run()
        run_times.append(time.perf_counter() - start)
    return min(run_times)
