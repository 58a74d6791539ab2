"""Jobs are done once, and their results are found again, whole."""

import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from count01_lens.common.storage import AlreadyInUseError
from count01_lens.jobs.job import Job
from count01_lens.jobs.results import ResultError, ResultStore
from count01_lens.jobs.running import run_jobs
from tests import job_functions
from tests.job_functions import calls
from tests.jobs.jobs import job, loaded, squares


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


def test_a_full_disk_ends_the_run(store, log, monkeypatch):
    def full(job, arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "save", full)
    with pytest.raises(OSError, match="No space left"):
        run_jobs(squares(log), store, workers=0)
    assert calls(log) == {0: 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": -1}, "workers: expected a whole number of at least 0, got -1"),
        ({"workers": 1.5}, "workers: expected a whole number"),
        ({"time_limit": 0}, "time_limit: expected a finite number above 0 and at most"),
        ({"time_limit": 1e13}, "time_limit: .* at most 31,622,400, got 10000000000000"),
        ({"time_limit": math.inf}, "time_limit: expected a finite number .*, got inf"),
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
