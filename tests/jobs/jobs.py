"""Jobs for tests."""

from pathlib import Path

from count01_lens.jobs.job import Job
from count01_lens.jobs.results import ResultStore
from tests import job_functions


def job(function, log: Path, value: int, **more) -> Job:
    return Job(function.__name__, function, {"log": str(log), "value": value, **more}, "1")


def squares(log: Path, values=range(4)) -> list[Job]:
    return [job(job_functions.square, log, value) for value in values]


def loaded(store: ResultStore, jobs: list[Job]) -> list[int]:
    return [store.load(each)["square"] for each in jobs]
