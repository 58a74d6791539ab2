"""A disk that is really full: a small tmpfs where mounting is allowed, else a limit on file sizes."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from count01_lens.jobs.results import ResultStore
from tests.helpers import LIMIT, small_disk

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from count01_lens.jobs.job import Job
from count01_lens.jobs.running import run_jobs
from count01_lens.jobs.results import ResultStore
from tests.job_functions import large

jobs = [Job("large", large, {"value": value}, "1") for value in range(8)]
outcome = run_jobs(jobs, ResultStore(sys.argv[1]), workers=2)
print(len(outcome.found), len(outcome.new), len(outcome.failed))
print([float(ResultStore(sys.argv[1]).load(job)["numbers"].sum()) for job in jobs])
"""
# A result of `large` has 80,000 bytes; the last ones are larger than the limit.


def run(store: Path, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(store)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=None if limit is None else limit_files,
    )


@pytest.mark.slow
def test_a_full_disk_ends_the_run_loses_nothing_and_the_same_command_goes_on(tmp_path):
    undisturbed = run(tmp_path / "undisturbed")
    assert undisturbed.returncode == 0, undisturbed.stderr
    with small_disk(tmp_path / "disk") as enlarge:
        store = tmp_path / "disk" / "store"
        full = run(store, limit=LIMIT if enlarge is None else None)
        assert full.returncode == 1
        assert ("File too large" if enlarge is None else "No space left") in full.stderr
        kept = list(store.glob("*.safetensors"))
        assert 1 <= len(kept) < 8
        assert not list(store.glob(".count01-tmp-*"))
        if enlarge is not None:
            enlarge()
        again = run(store)
        assert again.returncode == 0, again.stderr
        counts, sums = again.stdout.splitlines()
        assert counts == f"{len(kept)} {8 - len(kept)} 0"
        assert sums == undisturbed.stdout.splitlines()[1]
        assert len(list(ResultStore(store).directory.glob("*.safetensors"))) == 8
