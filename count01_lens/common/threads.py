"""How many threads torch and BLAS use, set deliberately and put back.

These numbers belong to the whole process, and several threads of a program may want one thread at
the same time: whoever comes first sets them, and whoever leaves last puts them back.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from threadpoolctl import ThreadpoolController


@dataclass
class _Users:
    """Those who want one thread now.

    Attributes:
        lock: for the numbers here and those of torch and BLAS.
        now: how many there are, in all threads.
        before: how many threads torch used before the first of them.
        of_blas: how many of them want one thread of BLAS, too.
        limit: what puts BLAS back.
        here: whether the thread that asks is one of them already.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    now: int = 0
    before: int = 1
    of_blas: int = 0
    limit: Any = None
    here: threading.local = field(default_factory=threading.local)


_users = _Users()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: on arrays this small, two of them mostly wait for each other."""
    with _one_thread_of_torch():
        yield


@contextmanager
def workers() -> Iterator[Executor]:
    """Give as many workers as torch would use threads, and each one thread of torch and of BLAS.

    A single one is the thread that asks: on a busy machine, another would be waited for.
    """
    with (
        _one_thread_of_torch() as n_workers,
        _one_thread_of_blas(),
        _pool(n_workers) as pool,
    ):
        yield pool


class _ThisThread(Executor):
    """Does at once what it is asked to do."""

    def submit(self, do: Any, /, *args: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(do(*args, **options))
        except Exception as error:
            done.set_exception(error)
        return done


def _pool(n_workers: int) -> Executor:
    """So many threads, each with one thread of torch."""
    if n_workers == 1:
        return _ThisThread()
    return ThreadPoolExecutor(n_workers, initializer=lambda: torch.set_num_threads(1))


@contextmanager
def _one_thread_of_torch() -> Iterator[int]:
    """Set torch to one thread; give how many it used here before."""
    inside = getattr(_users.here, "inside", False)
    with _users.lock:
        before = torch.get_num_threads()
        # A thread that is new to torch has begun with the one that others set.
        if _users.now and not inside and before == 1:
            before = _users.before
        if not _users.now:
            _users.before = before
        _users.now += 1
        torch.set_num_threads(1)
    _users.here.inside = True
    try:
        yield before
    finally:
        _users.here.inside = inside
        with _users.lock:
            _users.now -= 1
            torch.set_num_threads(before)  # of this thread, and of those to come
            to_come = 1 if _users.now else _users.before
            if to_come != before:
                _elsewhere(lambda: torch.set_num_threads(to_come))


@contextmanager
def _one_thread_of_blas() -> Iterator[None]:
    """Set BLAS to one thread.

    From threads that end at once: threadpoolctl lets another one change it only when that has ended
    which did so before.
    """

    def limit() -> None:
        _users.limit = _libraries().limit(limits=1, user_api="blas")

    with _users.lock:
        if not _users.of_blas:
            _elsewhere(limit)
        _users.of_blas += 1
    try:
        yield
    finally:
        with _users.lock:
            _users.of_blas -= 1
            if not _users.of_blas:
                _elsewhere(_users.limit.restore_original_limits)


def _elsewhere(function: Callable[[], None]) -> None:
    """Call a function in a thread of its own, and wait for it."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@cache
def _libraries() -> ThreadpoolController:
    """The libraries that are loaded; looking for them takes longer than a product."""
    return ThreadpoolController()
