"""Where jobs of tests run, leave their marks and have their results."""

from pathlib import Path

import pytest

from count01_lens.jobs.results import ResultStore
from count01_lens.jobs.supervision import Processes


@pytest.fixture(scope="session")
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
