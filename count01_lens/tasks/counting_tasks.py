"""Counting tasks that ship with the library, by name: Count01, and others to compare it with.

Ranges are such that every sentence up to the longest of the test split can be verified in less than
a minute. Ties go to the later answer everywhere.
"""

from collections.abc import Callable

from count01_lens.common.validation import check_choice
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import CountSpec
from count01_lens.tasks.task_names import COUNTING_TASKS


def _majority() -> CountingTask:
    """Which of three symbols is most frequent."""
    return CountingTask(
        symbols="abc", answers="ABC", rule=["na > max(nb, nc)", "nb > nc"],
        train=CountSpec(size=7000, counts=(0, 100)),
        validation=CountSpec(size=1500, counts=(101, 150)),
        test=CountSpec(size=1500, counts=(151, 200)),
        name="majority",
    )  # fmt: skip


def _twice() -> CountingTask:
    """Whether there are more than twice as many 1s as 0s; with more 1s drawn, in about half."""

    def part(size: int, zeros: tuple[int, int], twos: tuple[int, int]) -> CountSpec:
        ones = (2 * zeros[0], 2 * zeros[1])
        return CountSpec(size=size, counts={"0": zeros, "1": ones, "2": twos})

    return CountingTask(
        symbols="012", answers="45", rule="n1 > 2*n0",
        train=part(7000, (0, 50), (0, 100)),
        validation=part(1500, (51, 75), (0, 150)),
        test=part(1500, (76, 100), (0, 200)),
        name="twice",
    )  # fmt: skip


def _two_comparisons() -> CountingTask:
    """Two comparisons at once, which no sum of heads decides exactly.

    It takes three times the sentences of the others, and short ones: the longer they are, the
    closer a sum has to come to the rule. Test sentences are up to a third longer, and not all of
    them: close calls among long sentences alone are a matter of luck. '4' is right in a fifth.
    """
    return CountingTask(
        symbols="0123", answers="45", rule="n1 > n0 and n3 > n2",
        train=CountSpec(size=21000, counts=(0, 15)),
        validation=CountSpec(size=1500, counts=(0, 20)),
        test=CountSpec(size=1500, counts=(0, 20)),
        name="two_comparisons",
    )  # fmt: skip


def _most_frequent() -> CountingTask:
    """Which of five symbols is most frequent."""
    return CountingTask(
        symbols="abcde", answers="ABCDE",
        rule=["na > max(nb, nc, nd, ne)", "nb > max(nc, nd, ne)", "nc > max(nd, ne)", "nd > ne"],
        train=CountSpec(size=7000, counts=(0, 10)),
        validation=CountSpec(size=1500, counts=(11, 15)),
        test=CountSpec(size=1500, counts=(16, 20)),
        name="most_frequent",
    )  # fmt: skip


_MAKERS: dict[str, Callable[[], CountingTask]] = {
    "count01": Count01,
    "majority": _majority,
    "twice": _twice,
    "two_comparisons": _two_comparisons,
    "most_frequent": _most_frequent,
}


def counting_task(name: str) -> CountingTask:
    """Return a counting task by its name.

    "count01" is the paper's. "majority": which of three symbols is most frequent. "twice": more 1s
    than twice the 0s. "two_comparisons": more 1s than 0s, and more 3s than 2s. "most_frequent":
    which of five symbols is most frequent.

    Example:
        >>> cl.counting_task("twice")
        CountingTask(twice: 0 1 2 → 4 5: n1 > 2*n0)
    """
    check_choice("name", name, COUNTING_TASKS)
    return _MAKERS[name]()
