"""Where the time of a suite went: seconds of a core by kind of job."""

from collections.abc import Iterable, Mapping
from typing import Any

from count01_lens.common.text import duration
from count01_lens.jobs.job import Job
from count01_lens.jobs.results import ResultStore


def job_times(jobs: Iterable[Job], store: ResultStore) -> dict[str, dict[str, float]]:
    """Add up how long jobs took, by their names: their number, seconds, and those of the longest.

    Each counts once, however many experiments share it; those without a result do not.
    """
    found = [store.find(job) for job in {job.key: job for job in jobs}.values()]
    times: dict[str, list[float]] = {}
    for result in found:
        if result is not None:
            times.setdefault(result.name, []).append(result.seconds)
    return {
        name: {"jobs": len(seconds), "seconds": sum(seconds), "longest": max(seconds)}
        for name, seconds in times.items()
    }


def as_markdown(suite: Mapping[str, Any]) -> str:
    """Write the times of a suite as a table, longest first; `suite` is what `suite.json` has."""
    total = sum(each["seconds"] for each in suite["job_times"].values())
    lines = ["| jobs | number | seconds of a core | share | longest, s |", "|---|---|---|---|---|"]
    for name, each in sorted(suite["job_times"].items(), key=lambda item: -item[1]["seconds"]):
        share = f"{100 * each['seconds'] / total:.0f} %"
        row = [name, f"{each['jobs']}", f"{each['seconds']:.0f}", share, f"{each['longest']:.0f}"]
        lines.append(f"| {' | '.join(row)} |")
    cores = suite["machine"]["cores"]
    told = f"{duration(suite['seconds'])} by the clock on {cores} cores, everything included."
    return "\n".join([told, "", *lines])
