"""What became of many jobs."""

from dataclasses import dataclass, field

from count01_lens.jobs.job import Job
from count01_lens.jobs.results import canonical


@dataclass(frozen=True)
class Failure:
    """A job without a result, and why: a traceback, or how its process ended."""

    job: Job
    reason: str


@dataclass
class Outcome:
    """What became of the jobs; results are in the store.

    Attributes:
        found: had a result before.
        new: have one now.
        failed: raised, took too long, or died again and again.
        left: were not run, or not to their end, because the executor broke: a cluster that lost
            its scheduler. Nothing is known against them.
        broken: how it broke.
    """

    found: list[Job] = field(default_factory=list)
    new: list[Job] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    left: list[Job] = field(default_factory=list)
    broken: str = ""

    def check(self) -> None:
        """Raise if a job has no result."""
        if self.failed or self.left:
            raise JobsFailedError(str(self))

    def __str__(self) -> str:
        lines = [f"{len(self.found) + len(self.new)} jobs done, {len(self.new)} of them now"]
        by_reason: dict[str, list[Job]] = {}
        for failure in self.failed:
            by_reason.setdefault(failure.reason, []).append(failure.job)
        for reason, (job, *others) in by_reason.items():
            more = f" (and {len(others)} more in the same way)" if others else ""
            lines += [f"failed: {job.name} {canonical(job.configuration)}{more}", reason]
        if self.left:
            lines.append(
                f"{len(self.left)} jobs not run, because the executor broke: {self.broken}\n"
                "The same command goes on where it was."
            )
        return "\n".join(lines)


class JobsFailedError(RuntimeError):
    """Some jobs have no result."""
