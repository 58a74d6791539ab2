"""How many threads torch and NumPy use, set deliberately and put back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: on arrays this small, two of them mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def workers() -> Iterator[ThreadPoolExecutor]:
    """Give as many workers as torch would use threads, and each one thread of torch and of BLAS."""
    n_workers = torch.get_num_threads()
    with (
        one_thread(),
        _libraries().limit(limits=1, user_api="blas"),
        ThreadPoolExecutor(n_workers) as pool,
    ):
        yield pool


@cache
def _libraries() -> ThreadpoolController:
    """The libraries that are loaded; looking for them takes longer than a product."""
    return ThreadpoolController()
