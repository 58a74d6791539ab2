"""Jobs are done once, whoever dies in between: workers, jobs, or the main process."""

import functools
import hashlib
import importlib.machinery
import io
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from count01_lens.common.storage import AlreadyInUseError
from count01_lens.jobs.job import Job
from count01_lens.jobs.outcome import JobsFailedError
from count01_lens.jobs.performing import Report, perform
from count01_lens.jobs.results import ResultError, ResultStore
from count01_lens.jobs.running import run_jobs
from count01_lens.jobs.status import Status
from count01_lens.jobs.supervision import Processes
from tests import job_functions
from tests.helpers import is_gone, within
from tests.job_functions import calls, processes


@pytest.fixture(scope="module")
def pool():
    """Processes that are started once for many tests, given as an executor."""
    with Processes(2) as executor:
        yield executor


@pytest.fixture
def log(tmp_path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


@pytest.fixture
def store(tmp_path) -> ResultStore:
    return ResultStore(tmp_path / "store")


def job(function, log: Path, value: int, **more) -> Job:
    return Job(function.__name__, function, {"log": str(log), "value": value, **more}, "1")


def squares(log: Path, values=range(4)) -> list[Job]:
    return [job(job_functions.square, log, value) for value in values]


def loaded(store: ResultStore, jobs: list[Job]) -> list[int]:
    return [store.load(each)["square"] for each in jobs]


def test_the_key_is_the_sum_of_what_the_result_depends_on():
    text = (
        '{"code_version":"7","configuration":{"a":[1,null],"b":0.5},"format":1,'
        '"function":"tests.job_functions:square"}'
    )
    made = Job("any", job_functions.square, {"b": 0.5, "a": (1, None)}, "7")
    assert made.identity == text
    assert made.key == hashlib.sha256(text.encode()).hexdigest()


def test_what_changes_the_key_and_what_does_not():
    def key(name="n", function=job_functions.square, configuration=None, code_version="1") -> str:
        configuration = {"a": 1, "b": {"c": 2, "d": 3}} if configuration is None else configuration
        return Job(name, function, configuration, code_version).key

    assert key() == Job("n", job_functions.square, {"b": {"c": 2, "d": 3}, "a": 1}, "1", 9).key
    assert key() == key(name="m") == key(configuration={"b": {"d": 3, "c": 2}, "a": np.int64(1)})
    others = [
        key(function=job_functions.raises),
        key(code_version="2"),
        key(configuration={"a": 1, "b": {"c": 2, "d": 4}}),
        key(configuration={"a": True, "b": {"c": 2, "d": 3}}),
        key(configuration={}),
    ]
    assert len({key(), *others}) == 6


def test_a_configuration_changed_later_does_not_change_the_job():
    configuration = {"values": [1, 2]}
    made = Job("n", job_functions.square, configuration, "1")
    key = made.key
    configuration["values"].append(3)
    assert made.configuration == {"values": [1, 2]}
    assert made.key == key


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"rate": math.nan}, r"configuration\['rate'\]: expected plain values .* got nan"),
        ({"a": [1, {"b": math.inf}]}, r"configuration\['a'\]\[1\]\['b'\]: expected .* got inf"),
        ({"a": {1, 2}}, "of type set; convert it"),
        ({"a": np.arange(2)}, "of type ndarray; convert it"),
        ({"a": Path("x")}, "of type PosixPath; convert it"),
        ({1: 2}, "configuration: expected keys of text, .* got 1"),
        ([1], r"configuration: expected a dict, got \[1\]"),
        (None, "configuration: expected a dict, got None"),
    ],
)
def test_a_configuration_that_is_not_plain_is_refused(configuration, message):
    with pytest.raises(TypeError, match=message):
        Job("n", job_functions.square, configuration, "1")


class Holder:
    def method(self) -> None: ...


def test_a_function_that_others_cannot_find_is_refused():
    def closure() -> None: ...

    def impostor() -> None: ...

    impostor.__qualname__ = "square"
    impostor.__module__ = "tests.job_functions"
    for function in (
        lambda: 1,
        closure,
        impostor,
        functools.partial(job_functions.square, 1),
        Holder().method,
        Holder.method,
        "square",
        None,
    ):
        with pytest.raises(TypeError, match="function: expected one defined at the top of a mod"):
            Job("n", function, {}, "1")


def test_a_function_of_a_script_is_refused_too(monkeypatch):
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "square", job_functions.square, raising=False)
    monkeypatch.setattr(job_functions.square, "__module__", "__main__")
    for spec in (None, importlib.machinery.ModuleSpec("suite.__main__", None)):
        monkeypatch.setattr(main, "__spec__", spec)
        with pytest.raises(TypeError, match="function: expected one defined at the top of a mod"):
            Job("n", job_functions.square, {}, "1")


@pytest.mark.parametrize("field", ["name", "code_version"])
def test_names_are_text(field):
    arguments = {"name": "n", "code_version": "1", field: 1}
    with pytest.raises(TypeError, match=f"{field}: expected text, got 1"):
        Job(function=job_functions.square, configuration={}, **arguments)


def test_a_second_run_finds_everything_and_runs_nothing(store, log, pool):
    jobs = squares(log)
    first = run_jobs(jobs, store, executor=pool)
    assert sorted(each.key for each in first.new) == sorted(each.key for each in jobs)
    files = {path: path.read_bytes() for path in store.directory.glob("*.safetensors")}
    assert len(files) == 4
    more = [*squares(log), *squares(log, [2, 9])]
    again = run_jobs(more, store, executor=pool)
    assert len(again.found) == 4
    assert [each.configuration["value"] for each in again.new] == [9]
    assert not again.failed
    assert calls(log) == {0: 1, 1: 1, 2: 1, 3: 1, 9: 1}
    assert all(path.read_bytes() == data for path, data in files.items())
    assert loaded(store, jobs) == [0, 1, 4, 9]
    again.check()
    assert "5 jobs done, 1 of them now" in str(again)


def test_nothing_to_do_is_done_at_once(store):
    assert run_jobs([], store) == run_jobs([], store, workers=0)


def test_in_this_process_and_in_others_the_same_happens(tmp_path, log, pool):
    """Also: what a function prints is no reply, nor does it see the requests."""
    seen = []
    for workers in ({"workers": 0}, {"executor": pool}):
        store = ResultStore(tmp_path / str(len(seen)))
        around = Job("around", job_functions.surroundings, {}, "1")
        jobs = [*squares(log), Job("c", job_functions.changes_its_arguments, {"values": [1]}, "1")]
        jobs += [around] if "executor" in workers else []
        run_jobs([*jobs, job(job_functions.raises, log, 7)], store, **workers)
        seen.append([store.load(each) for each in jobs])
        assert store.find(jobs[4]).identity["configuration"] == {"values": [1]}
        assert seen[-1][4] == {"values": [1, 3]}
    assert seen[0] == seen[1][:5]
    assert seen[1][5]["threads"] == 1
    assert seen[1][5]["stdin"] == ""
    np.testing.assert_array_equal(seen[1][5]["large"], np.arange(1_000_000))


def test_a_result_tells_how_it_came_about(store, log):
    [made] = squares(log, [3])
    run_jobs([made], store, workers=0)
    result = store.find(made)
    assert result.name == "square"
    assert result.identity == json.loads(made.identity)
    assert 0 <= result.seconds < 60
    assert "torch" in result.versions
    assert store.path(made).name == f"{made.key}.safetensors"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_that_raises_does_not_stop_the_others(store, log, pool, workers):
    place = {"executor": pool} if workers else {"workers": 0}
    bad = [
        job(job_functions.raises, log, 10),
        job(job_functions.leaves, log, 11),
        job(job_functions.returns_a_set, log, 12),
        Job("wrong arguments", job_functions.square, {"colour": "red"}, "1"),
    ]
    outcome = run_jobs([*bad, *squares(log)], store, **place)
    assert len(outcome.new) == 4
    reasons = {failure.job.name: failure.reason for failure in outcome.failed}
    assert "in raises\n" in reasons["raises"]
    assert "ArithmeticError: no luck with 10" in reasons["raises"]
    assert "SystemExit: leaving" in reasons["leaves"]
    assert "result['numbers']: expected plain values" in reasons["returns_a_set"]
    assert "unexpected keyword argument 'colour'" in reasons["wrong arguments"]
    with pytest.raises(JobsFailedError, match='failed: raises {.*"value":10}\nTraceback'):
        outcome.check()
    run_jobs([*bad, *squares(log)], store, **place)  # what failed is tried again, once each time
    assert calls(log) == {0: 1, 1: 1, 2: 1, 3: 1, 10: 2, 11: 2, 12: 2}


def test_a_killed_process_costs_time_and_one_killed_again_a_job_but_never_others(store, log, pool):
    once = job(job_functions.killed, log, 10, times=1)
    always = job(job_functions.killed, log, 11, times=99)
    outcome = run_jobs([once, always, *squares(log, range(6))], store, executor=pool)
    assert len(outcome.new) == 7
    assert store.load(once) == {"square": 100}
    assert [failure.job for failure in outcome.failed] == [always]
    expected = "its process died (killed by SIGKILL)\n(attempt 2 of 2)"
    assert outcome.failed[0].reason == expected
    assert calls(log) == {**dict.fromkeys(range(6), 1), 10: 2, 11: 2}


def test_who_died_is_tried_again_alone(store, log):
    """Many die at first, as if memory were short; in the second round one at a time is running."""
    at_once: list[int] = []

    class Dying(Executor):
        def __init__(self) -> None:
            self.futures: list[Future[Report]] = []

        def submit(self, function, name, identity, versions, time_limit, attempt):
            self.futures.append(Future())
            if attempt == 0:
                self.futures[-1].set_result(Report("died", "no memory"))
            else:
                at_once.append(sum(not future.done() for future in self.futures))
                threading.Timer(
                    0.05, self.futures[-1].set_result, [perform(name, identity, versions)]
                ).start()
            return self.futures[-1]

    outcome = run_jobs(squares(log), store, executor=Dying())
    assert len(outcome.new) == 4
    assert at_once == [1, 1, 1, 1]


def test_a_job_that_hangs_ends_in_time(store, log, pool):
    jobs = [job(job_functions.hangs_in_c, log, 10), *squares(log)]
    start = time.monotonic()
    outcome = run_jobs(jobs, store, executor=pool, time_limit=2)
    assert time.monotonic() - start < 60
    assert len(outcome.new) == 4
    assert [failure.job for failure in outcome.failed] == jobs[:1]
    assert "took longer than 2 s; it was here:\nTimeout" in outcome.failed[0].reason
    assert "in hangs_in_c" in outcome.failed[0].reason
    assert calls(log) == {0: 1, 1: 1, 2: 1, 3: 1, 10: 1}


def test_a_damaged_result_is_computed_again(store, log):
    jobs = squares(log)
    run_jobs(jobs, store, workers=0)
    whole = store.path(jobs[1]).read_bytes()
    store.path(jobs[1]).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    store.path(jobs[2]).write_bytes(whole[:100])
    with pytest.warns(UserWarning, match="a damaged result is not used"):
        outcome = run_jobs(jobs, store, workers=0)
    assert outcome.new == [jobs[1], jobs[2]]
    assert loaded(store, jobs) == [0, 1, 4, 9]
    assert calls(log) == {0: 1, 1: 2, 2: 2, 3: 1}


def test_results_are_never_mixed_up(store, log):
    jobs = squares(log)
    run_jobs(jobs[:1], store, workers=0)
    shutil.copy(store.path(jobs[0]), store.path(jobs[3]))
    with pytest.raises(ResultError, match=r'expected the result of .*"value":3.*that of .*:0'):
        run_jobs(jobs, store, workers=0)
    assert calls(log) == {0: 1}


def test_other_library_versions_are_mentioned(store, log, monkeypatch):
    run_jobs(squares(log), store, workers=0)
    monkeypatch.setattr("count01_lens.jobs.running.library_versions", lambda: {"torch": "1.0"})
    with pytest.warns(UserWarning, match="4 results were made with other library versions"):
        run_jobs(squares(log), store, workers=0)


def test_only_one_process_writes_a_store(store, log):
    with store.opened(), pytest.raises(AlreadyInUseError, match="another process is writing here"):
        run_jobs(squares(log), store, workers=0)
    assert calls(log) == {}


SUITE = textwrap.dedent(
    """
    import sys
    from count01_lens.jobs.job import Job
    from count01_lens.jobs.running import run_jobs
    from count01_lens.jobs.results import ResultStore
    from tests import job_functions

    def square(log, value):
        return job_functions.square(log, value)

    def main(log, store, file):
        jobs = [Job("s", square, {"log": log, "value": value}, "1") for value in range(4)]
        waits = {"log": log, "value": 10, "file": file}
        jobs += [Job("w", job_functions.wait_for, waits, "1")]
        try:
            outcome = run_jobs(jobs, ResultStore(store), workers=1)
        except KeyboardInterrupt:
            print("start it again to continue")
        else:
            print(len(outcome.found), len(outcome.new), len(outcome.failed))

    if __name__ == "__main__":
        main(*sys.argv[1:])
    """
)


def test_a_program_that_is_interrupted_and_then_killed_goes_on(tmp_path, store, log):
    """As `python -m suite`, and as `python -m suite.work`, whose functions are then in __main__."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "work.py").write_text(SUITE)
    run = "import sys\nfrom suite.work import main\nmain(*sys.argv[1:])"
    (tmp_path / "suite" / "__main__.py").write_text(run)

    def start(module: str) -> subprocess.Popen[str]:
        arguments = [str(log), str(store.directory), str(tmp_path / "go")]
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    for times, (module, blow) in enumerate(
        [("suite", signal.SIGINT), ("suite.work", signal.SIGKILL)], start=1
    ):
        process = start(module)
        last_waits = {0: 1, 1: 1, 2: 1, 3: 1, 10: times}
        assert within(60, lambda expected=last_waits: calls(log) == expected)
        process.send_signal(blow)
        output = process.communicate(timeout=60)
        assert process.returncode == (0 if blow == signal.SIGINT else -signal.SIGKILL)
        assert output == ("start it again to continue\n" if blow == signal.SIGINT else "", "")
        # Nobody let the job go on, so only the end of the main process can have ended its.
        assert within(60, lambda: all(is_gone(pid) for pid in processes(log)))
        assert len(list(store.directory.glob("*.safetensors"))) == 4
    (tmp_path / "go").touch()
    assert start("suite.work").communicate(timeout=120) == ("4 1 0\n", "")
    assert calls(log) == {0: 1, 1: 1, 2: 1, 3: 1, 10: 3}


@pytest.mark.parametrize("place", ["here", "executor"])
def test_an_interrupt_keeps_what_is_finished(store, log, pool, place):
    """Interrupted when the first job is done, before the others are looked at."""

    def interrupt(status: Status) -> None:
        if status.done:
            raise KeyboardInterrupt

    places = {"here": {"workers": 0}, "executor": {"executor": pool}}
    with pytest.raises(KeyboardInterrupt):
        run_jobs(squares(log, range(10)), store, **places[place], progress=interrupt)
    outcome = run_jobs(squares(log, range(10)), store, executor=pool)
    assert len(outcome.found) >= 1
    assert len(outcome.new) + len(outcome.found) == 10
    if place != "executor":  # which has started more than it was waited for
        assert set(calls(log).values()) == {1}


def test_an_interrupt_in_the_middle_of_writing_loses_nothing(store, log, monkeypatch):
    save, interrupted = store.save, []

    def save_or_not(job, arrays):
        if not interrupted:
            interrupted.append(job)
            raise KeyboardInterrupt
        save(job, arrays)

    monkeypatch.setattr(store, "save", save_or_not)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(squares(log), store, workers=0)
    assert store.find(interrupted[0]) is not None
    assert calls(log) == {0: 1}


def test_a_full_disk_ends_the_run(store, log, monkeypatch):
    def full(job, arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "save", full)
    with pytest.raises(OSError, match="No space left"):
        run_jobs(squares(log), store, workers=0)
    assert calls(log) == {0: 1}


class BrokenExecutor(Executor):
    """Breaks with the second job."""

    def __init__(self) -> None:
        self.future: Future[object] | None = None

    def submit(self, function, /, *arguments, **more):
        if self.future is not None:
            if not self.future.done():
                self.future.set_exception(BrokenProcessPool("a worker died"))
            raise BrokenProcessPool("a worker died before")
        self.future = Future()
        return self.future


def test_an_executor_that_breaks_leaves_jobs_and_blames_none(store, log):
    jobs = squares(log)
    outcome = run_jobs(jobs, store, executor=BrokenExecutor())
    assert not outcome.failed
    assert {job.key for job in outcome.left} == {job.key for job in jobs}
    assert len(outcome.left) == 4
    assert "a worker died" in outcome.broken
    assert "4 jobs not run, because the executor broke: Broken" in str(outcome)
    with pytest.raises(JobsFailedError, match="4 jobs not run"):
        outcome.check()
    assert len(run_jobs(jobs, store, workers=0).new) == 4


class LosingExecutor(Executor):
    """Loses every job, as Dask does with one whose workers die."""

    def submit(self, function, /, *arguments, **more):
        future: Future[object] = Future()
        future.set_exception(ConnectionError("three workers died"))
        return future


def test_jobs_that_an_executor_loses_are_tried_again_and_named_together(store, log):
    outcome = run_jobs(squares(log), store, executor=LosingExecutor())
    assert len(outcome.failed) == 4
    assert not outcome.left
    text = str(outcome)
    assert text.count("the executor lost it") == 1
    assert "(and 3 more in the same way)" in text
    assert "three workers died" in text


def test_a_worker_with_other_libraries_is_refused(store, log, monkeypatch):
    identity = squares(log, [0])[0].identity
    report = perform("square", identity, {"torch": "0.1"})
    assert report.state == "failed"
    assert "expected a worker with {'torch': '0.1'}, got one with" in report.reason
    assert calls(log) == {}


def test_a_process_pool_may_be_given_and_may_break(store, log):
    jobs = [*squares(log, [0]), job(job_functions.kills_its_parent, log, 10)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        outcome = run_jobs(jobs, store, executor=executor)
    assert outcome.new == jobs[:1]
    assert outcome.left == jobs[1:]
    assert "BrokenProcessPool" in outcome.broken
    assert within(60, lambda: all(is_gone(pid) for pid in processes(log)))


def test_progress_goes_to_a_function(store, log):
    run_jobs(squares(log, [0]), store, workers=0)
    seen: list[Status] = []
    jobs = [*squares(log, range(3)), job(job_functions.raises, log, 9)]
    run_jobs(jobs, store, workers=0, progress=seen.append)
    assert (seen[0].total, seen[0].done, seen[0].failed) == (4, 1, 0)
    assert seen[0].seconds_left is None
    assert (seen[-1].done, seen[-1].failed, seen[-1].running) == (3, 1, 0)
    assert seen[-1].seconds_left == 0
    assert max(status.running for status in seen) == 1
    assert [status.done for status in seen] == sorted(status.done for status in seen)


def test_long_jobs_start_first_and_the_time_left_follows_their_costs(store, log, monkeypatch):
    def monotonic() -> float:
        return 60.0 * len(list(log.iterdir()))  # every job takes a minute

    times = SimpleNamespace(monotonic=monotonic, perf_counter=time.perf_counter)
    monkeypatch.setattr("count01_lens.jobs.running.time", times)
    jobs = [
        Job("square", job_functions.square, {"log": str(log), "value": value}, "1", cost)
        for value, cost in enumerate([1, 6, 2, 3])
    ]
    seen: list[Status] = []
    outcome = run_jobs(jobs, store, workers=0, progress=seen.append)
    assert [job.cost for job in outcome.new] == [6, 3, 2, 1]
    # Costs of 6, 9, 11 and 12 are behind us, out of 12.
    left = {status.done: status.seconds_left for status in seen}
    assert left.pop(0) is None
    # A status is shown when the next job has been started: here, when it has been run.
    assert left == pytest.approx({1: 120 * 6 / 6, 2: 180 * 3 / 9, 3: 240 * 1 / 11, 4: 0})


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (99.4, "99 s"), (99.5, "2 min"), (5940, "99 min"), (11_400, "3 h 10 min")],
)
def test_times_left_are_readable(seconds, words):
    assert (
        str(Status(3, 1, 0, 2, seconds))
        == f"1/3 jobs done, 2 running, 0 failed, about {words} left"
    )


@pytest.mark.parametrize(
    ("progress", "terminal", "expected"),
    [
        (False, True, ""),
        (False, False, ""),
        (None, False, ""),
        (None, True, "  0%|"),
        (True, True, "3/4 jobs done, 1 failed, about 0 s left ["),
        (True, False, "3/4 jobs done, 1 failed, about 0 s left\n"),
    ],
)
def test_progress_is_shown_where_somebody_looks(
    store, log, monkeypatch, progress, terminal, expected
):
    shown = io.StringIO()
    shown.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", shown)
    jobs = [*squares(log, range(3)), job(job_functions.raises, log, 9)]
    run_jobs(jobs, store, workers=0, progress=progress)
    assert expected in shown.getvalue()
    assert bool(expected) == bool(shown.getvalue())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": -1}, "workers: expected a whole number of at least 0, got -1"),
        ({"workers": 1.5}, "workers: expected a whole number"),
        ({"time_limit": 0}, "time_limit: expected a finite number above 0, got 0"),
        ({"time_limit": math.inf}, "time_limit: expected a finite number above 0, got inf"),
        ({"time_limit": 1, "workers": 0}, "time_limit: .* use workers=1 instead of 0"),
        ({"executor": "dask"}, "expected an executor or a number of workers, got dask"),
        ({"executor": ThreadPoolExecutor(1), "workers": 2}, "expected an executor or a number"),
    ],
)
def test_wrong_arguments(store, arguments, message):
    with pytest.raises(ValueError, match=message):
        run_jobs([], store, **arguments)
    assert not store.directory.exists()


def test_wrong_jobs_and_stores(store, tmp_path):
    with pytest.raises(TypeError, match="jobs: expected several Job, got 'a'"):
        run_jobs(["a"], store)
    with pytest.raises(TypeError, match="store: expected a ResultStore, got"):
        run_jobs([], tmp_path)
