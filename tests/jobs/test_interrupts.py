"""A run that is interrupted or killed keeps what is finished, and goes on."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from count01_lens.jobs.outcome import Status
from count01_lens.jobs.running import run_jobs
from tests.helpers import is_gone, within
from tests.job_functions import calls, processes
from tests.jobs.jobs import squares
from tests.processes import started

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


@pytest.mark.slow
def test_a_program_that_is_interrupted_and_then_killed_goes_on(tmp_path, store, log):
    """As `python -m suite`, and as `python -m suite.work`, whose functions are then in __main__."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "work.py").write_text(SUITE)
    run = "import sys\nfrom suite.work import main\nmain(*sys.argv[1:])"
    (tmp_path / "suite" / "__main__.py").write_text(run)

    def start(module: str) -> AbstractContextManager[subprocess.Popen[str]]:
        return started(
            sys.executable, "-m", module, log, store.directory, tmp_path / "go",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip

    for times, (module, blow) in enumerate(
        [("suite", signal.SIGINT), ("suite.work", signal.SIGKILL)], start=1
    ):
        with start(module) as process:
            last_waits = {0: 1, 1: 1, 2: 1, 3: 1, 10: times}
            assert within(120, lambda expected=last_waits: calls(log) == expected)
            process.send_signal(blow)
            output = process.communicate(timeout=120)
            assert process.returncode == (0 if blow == signal.SIGINT else -signal.SIGKILL)
            assert output == ("start it again to continue\n" if blow == signal.SIGINT else "", "")
            # Nobody let the job go on, so only the end of the main process can have ended its.
            assert within(60, lambda: all(is_gone(pid) for pid in processes(log)))
        assert len(list(store.directory.glob("*.safetensors"))) == 4
    (tmp_path / "go").touch()
    with start("suite.work") as process:
        assert process.communicate(timeout=120) == ("4 1 0\n", "")
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
