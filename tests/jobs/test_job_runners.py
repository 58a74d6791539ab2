"""The page tells what the trial of runners of jobs showed, and the trial can tell good from bad."""

import json
from pathlib import Path

import pytest

from experiments.tools.job_runners import RUNNERS
from experiments.tools.odd_jobs import FAULTS
from experiments.tools.try_job_runners import markdown, try_one

DOCS = Path(__file__).parents[2] / "docs"
REPORT = json.loads((DOCS / "job_runners.json").read_text())


def test_the_page_shows_the_last_trial_in_which_ours_withstood_everything():
    assert markdown(REPORT) in (DOCS / "many_jobs.md").read_text()
    assert set(REPORT["faults"]) == {fault.what for fault in FAULTS}
    for by_runner in REPORT["faults"].values():
        assert set(by_runner) == set(RUNNERS)
        assert by_runner["ours"]["good"]
    for runner in set(RUNNERS) - {"ours"}:
        assert not all(by_runner[runner]["good"] for by_runner in REPORT["faults"].values())


@pytest.mark.slow
@pytest.mark.parametrize(("runner", "words"), [("ours", "yes"), ("joblib", "does not say where")])
def test_a_crash_is_tried_on_ours_and_on_another(runner, words):
    [fault] = [fault for fault in FAULTS if fault.what == "a worker crashes (SIGSEGV)"]
    seen = try_one(runner, fault)
    assert seen["good"] == (runner == "ours")
    assert words in seen["words"]  # joblib may also have run others twice
