"""Attacks on the library: each runs many cases and counts what came of them.

An attack is a function `attack(cases, seed) -> Counter` whose outcomes are words; the test that calls
it says which outcomes are allowed. The tests run a few hundred cases of each, `make stress` all of
them, and keeps what it found for `docs/trust.md`. The same functions run against deliberately broken
builds, where they must find something.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from count01_lens.common.storage import json_bytes, write_atomically
from count01_lens.common.versions import library_versions


def attack_and_keep(
    name: str, what: str, attack: Callable[[int, int], Counter[str]], cases: int, seed: int
) -> Counter[str]:
    """Run an attack in full, and write down what it found.

    Args:
        name: of the file.
        what: a sentence for readers of `docs/trust.md`.
        attack: called with the number of cases and the seed.
        cases: how many; some attacks add a few.
        seed: of the random choices.
    """
    start = time.perf_counter()
    outcomes = attack(cases, seed)
    record = {
        "name": name,
        "what": what,
        "seed": seed,
        "cases": sum(outcomes.values()),
        "outcomes": dict(sorted(outcomes.items())),
        "seconds": round(time.perf_counter() - start, 1),
        "versions": library_versions(),
    }
    directory = Path(os.environ.get("TRUST_OUT", "runs/trust"))
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / f"{name}.json", json_bytes(record))
    return outcomes
