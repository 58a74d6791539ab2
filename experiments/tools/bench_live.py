"""Measure what looking on costs a training: part of `make bench`.

A page of the command line is open meanwhile: a process of its own reads its events. Both trainings
take turns in one process, and times are of the processor, all threads together, which on a shared
machine are disturbed less.
"""

import subprocess
import sys
import time
from collections.abc import Callable

READER = """\
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as page:
    page.read()
with urllib.request.urlopen(sys.argv[1] + "events") as events:
    events.read()
"""
_EPOCHS, _REPETITIONS = 60, 6


def live_training() -> dict[str, float]:
    """60 epochs of the default recipe with a page on which they are watched."""
    import count01_lens as cl
    from count01_lens.training.live import LiveTraining

    class Read(cl.LivePage):
        """Has a reader from the beginning."""

        reader: subprocess.Popen[bytes]

        def follow(self, training: LiveTraining) -> None:
            super().follow(training)
            assert self.address is not None
            self.reader = subprocess.Popen([sys.executable, "-c", READER, self.address])

    def run(page: Read | None) -> float:
        config, start = cl.TrainConfig(epochs=_EPOCHS), time.process_time()
        cl.train(config, progress=False, live=page or False)
        return time.process_time() - start

    run(None)  # whatever is done once
    alone, live, moments = [], [], 0
    for _ in range(_REPETITIONS):
        alone.append(run(None))
        page = Read()
        live.append(run(page))
        page.reader.wait(timeout=60)
        page.close()
        assert page.training is not None
        moments = len(page.training.heads)
    seconds, without = min(live), min(alone)
    return {
        "seconds": seconds,
        "seconds_alone": without,
        "live_over_alone": seconds / without,
        "moments_of_heads": moments,
    }


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [live_training]
RATIOS: list[tuple[str, str, str]] = []
