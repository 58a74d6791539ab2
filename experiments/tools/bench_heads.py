"""Measure what is asked of heads and of all sentences: part of `make bench`."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

from experiments.tools.timing import best


def verify_one_by_one() -> dict[str, float]:
    """All 8.1 million sentences up to 200 of each token, 16 heads, float64, every one of them run.

    This is what `verify` did before it knew of boxes, on as many threads.
    """
    from concurrent.futures import ThreadPoolExecutor

    import torch

    from count01_lens.common.threads import one_thread
    from count01_lens.counts.exhaustion import Exhaustion, merged
    from count01_lens.tasks.places import COUNT01

    work, sizes = Exhaustion(_model(), 200, torch.float64, 100, COUNT01), torch.arange(201)

    @torch.no_grad()
    def run(n0: int) -> Any:
        sentences = torch.cartesian_prod(sizes[n0 : n0 + 1], sizes, sizes)
        return merged([work._of_sentences(part) for part in torch.split(sentences, 8192)], 100)

    def run_all() -> None:
        workers = torch.get_num_threads()
        with one_thread(), ThreadPoolExecutor(workers) as pool:
            merged(pool.map(run, range(201)), 100)

    return {"seconds": best(run_all, 1)}


def verify_up_to_200() -> dict[str, float]:
    """The same by `verify`, which decides whole boxes of sentences."""
    return _verified(200, 3)


def verify_up_to_1000() -> dict[str, float]:
    """A billion sentences, up to 1,000 of each token."""
    return _verified(1000, 1)


def _verified(up_to: int, repetitions: int) -> dict[str, float]:
    import count01_lens as cl

    model = _model()
    cl.verify(model, up_to=1)  # whether counts apply to the model is asked once
    return {"seconds": best(lambda: cl.verify(model, up_to), repetitions)}


def analyze_heads() -> dict[str, float]:
    """Every head and every pair of the 16-head model, after imports."""
    import count01_lens as cl

    model = _model()
    return {"seconds": best(lambda: cl.analyze_heads(model), 3)}


def all_groups() -> dict[str, float]:
    """The four metrics of all 65,535 groups of 16 heads."""
    import count01_lens as cl

    analysis = cl.analyze_heads(_model())
    seconds = best(lambda: analysis.groups(progress=False), 1)
    return {"seconds": seconds, "worst_gradient": analysis.worst_gradient}


def probes_of_all_groups() -> dict[str, float]:
    """The 65,535 linear SVMs of all groups alone."""
    import numpy as np

    from count01_lens.heads.groups import as_rows, fit_all

    data = _head_data()
    masks = as_rows(np.arange(1, 2**16), 16)
    return {"seconds": best(lambda: fit_all(data, masks), 1)}


def probes_by_scikit_learn() -> dict[str, float]:
    """The same SVMs by LinearSVC(C=1000, dual=False, tol=1e-8) on two cores, scaled."""
    from math import comb

    times = {size: _by_scikit_learn(size, 4) for size in range(1, 17)}
    return {"seconds": sum(comb(16, size) * seconds for size, seconds in times.items())}


def probes_of_some_groups() -> dict[str, float]:
    """Linear SVMs of 512 groups of 8 heads, from nothing."""
    import numpy as np

    from count01_lens.heads.groups import as_rows
    from count01_lens.heads.metrics import Groups

    data, every = _head_data(), as_rows(np.arange(1, 2**16), 16)
    masks = np.random.default_rng(0).permutation(every[every.sum(axis=1) == 8])[:512]
    return {"seconds": best(lambda: Groups(data, masks).fits, 3)}


def some_probes_by_scikit_learn() -> dict[str, float]:
    """The same by LinearSVC, on two cores, scaled."""
    return {"seconds": 512 * _by_scikit_learn(8, 12)}


def _by_scikit_learn(size: int, n_groups: int) -> float:
    """Seconds for one group of so many heads, on average, as if two processes halved them."""
    import warnings

    import numpy as np
    from sklearn.svm import LinearSVC

    data, rng, times = _head_data(), np.random.default_rng(size), []
    probe = LinearSVC(C=1000, dual=False, tol=1e-8, max_iter=100_000)
    for _ in range(n_groups):
        heads = rng.choice(16, size, replace=False)
        features = data.train_outputs[:, heads].reshape(len(data.train_labels), -1)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probe.fit(features, data.train_labels)
        times.append(time.perf_counter() - start)
    return float(np.mean(times)) / 2


@cache
def _head_data() -> Any:
    from count01_lens.heads.head_data import head_data

    return head_data(_model())


def sweep_of_w01() -> dict[str, float]:
    """s-acc of 16 heads over 43 values of w01: 688 linear probes refitted on patched outputs."""
    import count01_lens as cl

    model = _model()
    return {"seconds": best(lambda: cl.sweep_attention(model, "w01"), 2)}


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [
    verify_one_by_one,
    verify_up_to_200,
    verify_up_to_1000,
    analyze_heads,
    all_groups,
    probes_of_all_groups,
    probes_by_scikit_learn,
    probes_of_some_groups,
    some_probes_by_scikit_learn,
    sweep_of_w01,
]

RATIOS = [
    ("verify: boxes over one by one", "verify_one_by_one", "verify_up_to_200"),
    ("probes of all groups: over scikit-learn", "probes_by_scikit_learn", "probes_of_all_groups"),
    (
        "probes of some groups: over scikit-learn",
        "some_probes_by_scikit_learn",
        "probes_of_some_groups",
    ),
]


def _model() -> Any:
    import count01_lens as cl

    return cl.example_model()
