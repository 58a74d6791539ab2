"""Threads of torch and BLAS: one while somebody computes on one, and as before when all are done."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np  # noqa: F401  (its BLAS is one of the libraries)
import pytest
import torch
from threadpoolctl import threadpool_info

import count01_lens as cl
from count01_lens.common.threads import one_thread, workers

FEW, MANY = 1, 3


@pytest.fixture(autouse=True)
def many_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(MANY)
    yield
    torch.set_num_threads(before)


def in_other_threads(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call functions at once, in threads of their own; return what they return."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result() for future in [pool.submit(each) for each in functions]]


def of_new_threads() -> int:
    """How many threads torch uses in a thread that has not used it yet."""
    return in_other_threads([torch.get_num_threads])[0]


def of_blas() -> list[int]:
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


@pytest.mark.parametrize("context", [one_thread, workers])
def test_torch_is_as_before_whoever_is_done_first(context):
    """Two threads come and go by turns; each entry is a pair of who and whether it comes."""
    before = of_blas()
    for order in ["AaBb", "ABab", "ABba", "AABaba"]:
        seen: dict[str, list[int]] = {"A": [], "B": []}
        turns = [threading.Event() for _ in range(len(order) + 1)]
        turns[0].set()

        def come_and_go(name: str, order: str = order, seen=seen, turns=turns) -> None:
            torch.ones(1)
            inside = []
            for number, letter in enumerate(order):
                if letter.upper() != name:
                    continue
                assert turns[number].wait(timeout=60)
                if letter.isupper():
                    inside.append(context())
                    inside[-1].__enter__()
                else:
                    inside.pop().__exit__(None, None, None)
                seen[name].append(torch.get_num_threads())
                expected = FEW if inside else MANY
                assert torch.get_num_threads() == expected, (order, number)
                turns[number + 1].set()
            for turn in turns:  # so that a failure in one thread does not hold the other up
                turn.set()

        in_other_threads([lambda: come_and_go("A"), lambda: come_and_go("B")])
        assert len(seen["A"]) + len(seen["B"]) == len(order)
        assert torch.get_num_threads() == of_new_threads() == MANY
        assert of_blas() == before


def test_a_thread_that_is_new_to_torch_is_not_left_with_one():
    """It may first use torch while another computes on one thread."""
    with one_thread():

        def new() -> list[int]:
            seen = [torch.get_num_threads()]
            with one_thread():
                seen.append(torch.get_num_threads())
            return [*seen, torch.get_num_threads()]

        assert in_other_threads([new]) == [[FEW, FEW, MANY]]
        assert torch.get_num_threads() == of_new_threads() == FEW
    assert torch.get_num_threads() == of_new_threads() == MANY


def test_workers_have_one_thread_each_and_are_as_many_as_there_were():
    def count() -> tuple[int, list[int], set[int]]:
        with workers() as pool:
            together = threading.Barrier(MANY)

            def work(_: int) -> int:
                together.wait(timeout=60)
                return torch.get_num_threads()

            return torch.get_num_threads(), list(pool.map(work, range(MANY))), set(of_blas())

    with workers():
        assert in_other_threads([count]) == [(FEW, [FEW] * MANY, {1})]
    assert in_other_threads([count, count]) == [(FEW, [FEW] * MANY, {1})] * 2


def test_models_verified_at_once_leave_threads_as_they_were():
    model, before = cl.example_model(), of_blas()
    together = threading.Barrier(3)

    def verify(up_to: int) -> float:
        together.wait(timeout=60)
        return cl.verify(model, up_to).accuracy

    found = in_other_threads([lambda n=n: verify(n) for n in (5, 20, 40)])
    assert found == [cl.verify(model, up_to).accuracy for up_to in (5, 20, 40)]
    assert torch.get_num_threads() == of_new_threads() == MANY
    assert of_blas() == before
