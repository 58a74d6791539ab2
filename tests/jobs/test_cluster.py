"""Jobs on a real Dask cluster, over TCP: workers die, the scheduler dies, and nothing is lost."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pandas as pd
import pytest
from distributed import Client, LocalCluster

from count01_lens.jobs.cluster import ClusterError, dask_executor, workplace
from count01_lens.jobs.job import Job
from count01_lens.jobs.outcome import JobsFailedError
from count01_lens.jobs.running import run_jobs
from experiments import minimal_heads, suite
from tests import job_functions
from tests.helpers import is_gone, within
from tests.job_functions import calls, processes
from tests.jobs.jobs import job, loaded, squares
from tests.processes import started

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # any port that is free
    ) as made:
        yield made


@pytest.fixture
def executor(cluster):
    with dask_executor(cluster.scheduler_address) as made:
        yield made


def waiting(log: Path, values, file: Path) -> list[Job]:
    return [job(job_functions.wait_for, log, value, file=str(file)) for value in values]


@pytest.mark.slow
def test_jobs_that_run_raise_hang_and_die(store, log, executor):
    good = squares(log, range(20))
    bad = [
        job(job_functions.raises, log, 100),
        job(job_functions.sleeps, log, 101),
        job(job_functions.crashes, log, 102),
    ]
    outcome = run_jobs([*bad, *good], store, executor=executor, time_limit=15)
    assert len(outcome.new) == 20
    assert loaded(store, good) == [value**2 for value in range(20)]
    reasons = {failure.job.name: failure.reason for failure in outcome.failed}
    assert "no luck with 100" in reasons["raises"]
    assert "took longer than 15 s" in reasons["sleeps"]
    assert "killed by SIGSEGV" in reasons["crashes"]
    assert calls(log) == dict.fromkeys(range(20), 1) | {100: 1, 101: 1, 102: 2}
    again = run_jobs(good, store, executor=executor)
    assert (len(again.found), len(again.new)) == (20, 0)


@pytest.mark.slow
def test_a_killed_worker_costs_time_only(store, log, cluster, executor, tmp_path):
    jobs = [*waiting(log, range(2), tmp_path / "go"), *squares(log, range(2, 8))]
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        workers = list(client.run(os.getpid).values())

    def kill_one_of_two() -> None:
        within(120, lambda: calls(log).keys() >= {0, 1})
        os.kill(workers[0], signal.SIGKILL)
        # What it ran begins again elsewhere, and what it had started ends with it.
        within(120, lambda: sum(calls(log)[value] for value in (0, 1)) > 2)
        (tmp_path / "go").touch()

    killer = threading.Thread(target=kill_one_of_two)
    killer.start()
    outcome = run_jobs(jobs, store, executor=executor)
    killer.join()
    outcome.check()
    assert len(outcome.new) == len({job.key for job in outcome.new}) == 8
    assert loaded(store, jobs) == [value**2 for value in range(8)]
    assert len(list(store.directory.glob("*.safetensors"))) == 8
    assert calls(log)[0] + calls(log)[1] >= 3
    assert is_gone(workers[0])


def dask(program, *arguments) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return started(
        sys.executable, "-m", f"distributed.cli.{program}", *arguments,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
    )  # fmt: skip


@pytest.mark.slow
def test_without_its_scheduler_a_run_ends_with_a_clear_account(store, log, tmp_path):
    """Started as users start a cluster; the scheduler is killed while two jobs are running."""
    contact = tmp_path / "scheduler.json"
    at_home = ("--host", "127.0.0.1", "--port", "0")
    jobs = [*squares(log, range(3)), *waiting(log, range(10, 14), tmp_path / "go")]
    with ExitStack() as cluster:
        scheduler = cluster.enter_context(
            dask("dask_scheduler", *at_home, "--no-dashboard", "--scheduler-file", contact)
        )
        # It is there before it is written.
        assert within(120, lambda: contact.exists() and contact.read_text().endswith("}"))
        address = json.loads(contact.read_text())["address"]
        for _ in range(2):
            worker = dask(
                "dask_worker", address, "--nthreads", "1", "--no-dashboard",
                "--local-directory", tmp_path, "--death-timeout", "120",
            )  # fmt: skip
            cluster.enter_context(worker)

        def kill_the_scheduler() -> None:
            within(120, lambda: len(calls(log).keys() & set(range(10, 14))) == 2)
            within(120, lambda: len(list(store.directory.glob("*.safetensors"))) == 3)
            os.killpg(scheduler.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_the_scheduler)
        killer.start()
        with dask_executor(address) as executor:
            outcome = run_jobs(jobs, store, executor=executor)
        killer.join()
    assert {job.key for job in outcome.new} == {job.key for job in jobs[:3]}
    assert {job.key for job in outcome.left} == {job.key for job in jobs[3:]}
    assert not outcome.failed
    with pytest.raises(JobsFailedError, match="4 jobs not run, because the executor broke: "):
        outcome.check()
    assert within(60, lambda: all(is_gone(pid) for pid in processes(log)))
    (tmp_path / "go").touch()
    again = run_jobs(jobs, store, workers=2)
    assert (len(again.found), len(again.new)) == (3, 4)
    assert loaded(store, jobs) == [value**2 for value in (0, 1, 2, 10, 11, 12, 13)]


def lies(times: int) -> None:
    """Let a worker of the cluster give wrong reports, so many times: cut off, mixed up, or none."""
    from count01_lens.jobs import job as module

    honest, earlier = module.perform_apart, []

    def perform_apart(*arguments):
        report = honest(*arguments)
        earlier.append(report)
        if len(earlier) > times:
            module.perform_apart = honest
            return report
        wrong = [module.Report("done", encoded=report.encoded[:-3]), earlier[0], None]
        return wrong[len(earlier) % 3] if len(earlier) > 1 else wrong[0]

    perform_apart.__module__, perform_apart.__qualname__ = module.__name__, "perform_apart"
    module.perform_apart = perform_apart


@pytest.mark.slow
def test_workers_that_lie_cost_time_and_no_wrong_result_is_kept(store, log, cluster, executor):
    jobs = squares(log, range(12))
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        client.run(lies, 3)
        outcome = run_jobs(jobs, store, executor=executor)
        if outcome.failed:  # lied to twice; the same command tries them again
            outcome = run_jobs(jobs, store, executor=executor)
    outcome.check()
    assert loaded(store, jobs) == [value**2 for value in range(12)]
    assert sum(calls(log).values()) >= 12 + 3


@pytest.mark.slow
def test_the_table_of_minimal_heads_is_the_same_through_dask(tmp_path, executor, monkeypatch):
    monkeypatch.setattr(minimal_heads, "QUICK_EPOCHS", 1)
    monkeypatch.setattr(minimal_heads, "QUICK_TRAININGS", {1: 4, 64: 1})
    places = {"dask": {"executor": executor}, "here": {"workers": 0}}
    for name, place in places.items():
        suite.run_suite([minimal_heads], tmp_path / name, "quick", progress=False, **place)
    for table in ("minimal_heads.csv", "readings.csv"):
        files = [tmp_path / name / "T1" / table for name in places]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert len(pd.read_csv(files[0])) > 0


@pytest.mark.slow
def test_the_number_of_slots_follows_the_cluster(cluster, executor):
    assert within(60, lambda: executor.slots == 2)


def test_wrong_addresses_are_refused_before_any_work(monkeypatch):
    with pytest.raises(ValueError, match="expected an address such as tcp://host:8786, got 'host'"):
        dask_executor("host").__enter__()
    with pytest.raises(ClusterError, match=r"no answer in 0.5 s .* start one with: dask scheduler"):
        dask_executor("tcp://127.0.0.1:9", timeout=0.5).__enter__()
    with pytest.raises(ValueError, match="expected --workers or --dask, got both"):
        workplace(2, "tcp://127.0.0.1:9").__enter__()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match=r"pip install 'count01-lens\[cluster\]'"):
        dask_executor("tcp://127.0.0.1:9").__enter__()
