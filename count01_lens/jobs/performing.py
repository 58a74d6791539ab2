"""Do one job where it was sent to, and report what came of it."""

import importlib
import json
import time
import traceback
from dataclasses import dataclass
from typing import Literal

from count01_lens.common.versions import library_versions
from count01_lens.jobs.results import encode
from count01_lens.jobs.supervision import ProcessDiedError, TimeLimitError, supervised

ATTEMPTS = 2  # for a job whose process died: the second is alone, with all the memory


@dataclass(frozen=True)
class Report:
    """What comes back from a job."""

    state: Literal["done", "failed", "died", "lost"]
    reason: str = ""
    encoded: bytes = b""


def perform(name: str, identity: str, versions: dict[str, str]) -> Report:
    """Run a job in this process, if its libraries are those of the process that handed it out."""
    if library_versions() != versions:
        return Report(
            "failed",
            f"expected a worker with {versions}, got one with {library_versions()}: results of "
            "different versions are not mixed; install the same there",
        )
    try:
        described = json.loads(identity)
        module, _, function = described["function"].partition(":")
        function = getattr(importlib.import_module(module), function)
        start = time.perf_counter()
        value = function(**json.loads(identity)["configuration"])
        seconds = time.perf_counter() - start
        about = dict(name=name, identity=described, seconds=seconds, versions=versions)
        return Report("done", encoded=encode(value, **about))
    except (Exception, SystemExit):
        return Report("failed", traceback.format_exc())


def perform_apart(
    name: str, identity: str, versions: dict[str, str], time_limit: float | None, attempt: int
) -> Report:
    """Run a job in the process of this thread."""
    try:
        return supervised(perform, name, identity, versions, time_limit=time_limit)
    except TimeLimitError as error:
        return Report("failed", str(error))
    except ProcessDiedError as error:
        return Report("died", f"{error}\n(attempt {attempt + 1} of {ATTEMPTS})")
