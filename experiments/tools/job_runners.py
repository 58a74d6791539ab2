"""Ways to run many jobs in worker processes: ours, joblib, Pebble and a local Dask cluster.

Each is used as its manual says, with what little of our own makes it better: jobs that raise are
caught in the worker, jobs whose worker died are tried once more, one at a time. All keep results in
the same store. `try_job_runners` compares them.
"""

import json
import multiprocessing
import multiprocessing.connection
import os
import threading
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import as_completed
from importlib import import_module
from typing import Any

from count01_lens.common.versions import library_versions
from count01_lens.jobs.job import Job
from count01_lens.jobs.results import ResultStore, encode
from count01_lens.jobs.running import run_jobs

Failed = dict[str, str]  # by the key of a job: why
Runner = Callable[[list[Job], ResultStore, int, float | None], Failed]


def with_ours(
    jobs: list[Job], store: ResultStore, workers: int, time_limit: float | None
) -> Failed:
    """`run_jobs`, which finds what is done by itself."""
    outcome = run_jobs(jobs, store, workers=workers, time_limit=time_limit)
    return {failure.job.key: failure.reason for failure in outcome.failed}


def with_joblib(
    jobs: list[Job], store: ResultStore, workers: int, time_limit: float | None
) -> Failed:
    """`joblib.Parallel` on loky: what is left when it gives up is tried again, one at a time."""
    joblib = import_module("joblib")
    waiting, failed = _without_result(jobs, store), Failed()

    def attempt(some: list[Job]) -> str:
        parallel = joblib.Parallel(workers, timeout=time_limit, return_as="generator_unordered")
        results = iter(parallel(joblib.delayed(_caught)(job) for job in some))
        while True:
            try:
                key, value, reason = next(results)
            except StopIteration:
                return ""
            except Exception as error:  # a worker died, took too long, or could not send a result
                return repr(error)
            _settle(waiting.pop(key), value, reason, store, failed)

    if attempt(list(waiting.values())):
        for job in list(waiting.values()):
            if reason := attempt([job]):
                failed[job.key] = reason
    return failed


def with_pebble(
    jobs: list[Job], store: ResultStore, workers: int, time_limit: float | None
) -> Failed:
    """`pebble.ProcessPool`, whose processes also look whether their parent is still there."""
    pebble = import_module("pebble")
    failed, died = Failed(), list[Job]()
    context = multiprocessing.get_context("spawn")
    pool = pebble.ProcessPool(workers, initializer=end_with_parent, context=context)

    def attempt(some: Iterable[Job]) -> None:
        futures = {pool.schedule(_called, [job], timeout=time_limit): job for job in some}
        for future in as_completed(futures):
            job = futures[future]
            try:
                value, reason = future.result(), ""
            except pebble.ProcessExpired as error:
                died.append(job)
                failed[job.key] = repr(error)
            except Exception as error:
                _settle(job, None, "".join(traceback.format_exception(error)), store, failed)
            else:
                failed.pop(job.key, None)
                _settle(job, value, reason, store, failed)

    try:
        attempt(_without_result(jobs, store).values())
        for job in list(died):
            attempt([job])
        pool.close()
    except BaseException:
        pool.stop()
        raise
    finally:
        pool.join()
    return failed


def with_dask(
    jobs: list[Job], store: ResultStore, workers: int, time_limit: float | None
) -> Failed:
    """`distributed.LocalCluster`, which tries again by itself and knows no time limits."""
    distributed, failed = import_module("distributed"), Failed()
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address=None,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        waiting = _without_result(jobs, store).values()
        futures = {client.submit(_caught, job, pure=False): job for job in waiting}
        for future in distributed.as_completed(futures):
            job = futures[future]
            try:
                _, value, reason = future.result()
            except Exception as error:  # Dask's own: all workers died that tried it
                value, reason = None, repr(error)
            _settle(job, value, reason, store, failed)
    return failed


RUNNERS: dict[str, Runner] = {
    "ours": with_ours,
    "joblib": with_joblib,
    "Pebble": with_pebble,
    "local Dask": with_dask,
}


def end_with_parent() -> None:
    """Let this process end when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _without_result(jobs: list[Job], store: ResultStore) -> dict[str, Job]:
    store.directory.mkdir(parents=True, exist_ok=True)
    return {job.key: job for job in jobs if store.find(job) is None}


def _called(job: Job) -> Any:
    return job.function(**job.configuration)


def _caught(job: Job) -> tuple[str, Any, str]:
    try:
        return job.key, _called(job), ""
    except Exception:
        return job.key, None, traceback.format_exc()


def _settle(job: Job, value: Any, reason: str, store: ResultStore, failed: Failed) -> None:
    if reason:
        failed[job.key] = reason
        return
    identity, versions = json.loads(job.identity), library_versions()
    try:
        arrays = encode(value, name=job.name, identity=identity, seconds=0.0, versions=versions)
    except TypeError as error:
        failed[job.key] = str(error)
    else:
        store.save(job, arrays)
