"""Do the same harm to several runners of many jobs, and compare what is left.

    pip install pebble            # joblib comes with scikit-learn, Dask with the extra `cluster`
    python -m experiments.tools.try_job_runners

Each runner of `job_runners` gets six small jobs and an odd one, on two workers, in a program of its
own; then the odd job, or the program, comes to harm. It takes about half an hour; stopped, it goes
on where it was, unless its report is deleted. The table goes to the terminal, and from there to
`docs/many_jobs.md`.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from count01_lens.common.storage import json_bytes, write_atomically
from count01_lens.jobs.job import Job
from count01_lens.jobs.results import ResultStore
from experiments.tools import odd_jobs
from experiments.tools.job_runners import RUNNERS
from experiments.tools.odd_jobs import FAULTS, GOOD, ODD, Fault

ROOT = Path(__file__).parents[2]
WORKERS = 2
PATIENCE = 150.0  # seconds until a program counts as hanging
TO_END = 8.0  # seconds that processes have to end after their program
FULL = 100_000  # bytes that fit on a full disk
PACKAGES = {"ours": "", "joblib": "joblib", "Pebble": "pebble", "local Dask": "distributed"}
EMPTY_JOBS, BUSY_JOBS = 300, 60


_SCRIPT = "from experiments.tools import try_job_runners as t\nt.{}({!r}, {}, {!r})\n"


def jobs_of(fault: Fault, directory: Path) -> dict[int, Job]:
    """The odd job, first, and the good ones."""
    functions = {ODD: fault.odd} | dict.fromkeys(sorted(GOOD), odd_jobs.good)
    return {
        value: Job(
            function.__name__, function, {"log": str(directory / "log"), "value": value}, "1"
        )
        for value, function in functions.items()
    }


def drive(runner: str, fault: int, directory: str) -> None:
    """Be the program: run the jobs, and write down which failed, and why."""
    if threading.current_thread() is threading.main_thread():
        # What a shell starts in the background ignores it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not (Path(directory) / "roomy").exists():
        resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, FULL))
    jobs = jobs_of(FAULTS[fault], Path(directory))
    store = ResultStore(Path(directory) / "store")
    failed = RUNNERS[runner](list(jobs.values()), store, WORKERS, FAULTS[fault].time_limit)
    values = {job.key: value for value, job in jobs.items()}
    report = {values[key]: reason for key, reason in failed.items()}
    write_atomically(Path(directory) / "failed.json", json_bytes(report))


def drive_inside_dask(runner: str, fault: int, directory: str) -> None:
    """Be the program, on a worker of a cluster."""
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        Client(cluster).submit(drive, runner, fault, directory).result()


class Trial:
    """One fault done to one runner."""

    def __init__(self, runner: str, fault: Fault, directory: Path):
        self.runner, self.fault, self.directory = runner, fault, directory
        self.mark = uuid.uuid4().hex
        self.jobs, self.store = jobs_of(fault, directory), ResultStore(directory / "store")
        (directory / "log").mkdir()
        self.problems: list[str] = []

    def run(self) -> dict[str, Any]:
        """Start the program, do the harm, look what is left, start it again if it was ended."""
        if self.fault.start != "full disk":
            (self.directory / "roomy").touch()
        process, start = self._started(), time.monotonic()
        try:
            if self.fault.harm is not None:
                self._harm(process)
            ended = self._ended(process)
            seconds = time.monotonic() - start
            if self.fault.harm is not None or self.fault.start == "full disk":
                self._check_kept(process)
                for permission in ("go", "roomy"):
                    (self.directory / permission).touch()
                ended = ended and self._ended(self._started())
            if ended:
                self._check_outcome()
        finally:
            for pid in self._processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        words = "; ".join(dict.fromkeys(self.problems)) or "yes"
        return {"good": not self.problems, "words": words, "seconds": round(seconds, 1)}

    def _started(self) -> subprocess.Popen[bytes]:
        name = "drive_inside_dask" if self.fault.start == "inside Dask" else "drive"
        code = _SCRIPT.format(name, self.runner, FAULTS.index(self.fault), str(self.directory))
        (self.directory / "script.py").write_text(code)
        how = ["script.py"] if self.fault.start == "script" else ["-c", code]
        (self.directory / "failed.json").unlink(missing_ok=True)
        with (self.directory / "said").open("wb") as said:
            return subprocess.Popen(
                [sys.executable, *how],
                stdout=said,
                stderr=said,
                env=_environment() | {"JOB_RUNNER_TRIAL": self.mark},
                cwd=self.directory,
                start_new_session=True,
            )

    def _harm(self, process: subprocess.Popen[bytes]) -> None:
        """Signal when the good jobs are kept; as a terminal does, Ctrl-C goes to all in front."""
        _within(PATIENCE, lambda: self._done() >= GOOD and ODD in self._begun())
        if self.fault.harm == signal.SIGINT:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()

    def _ended(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the end of the program, and that of all it has started."""
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            done, tries = len(self._done()), self._begun()[ODD]
            self.problems.append(f"hangs, {done} of {len(self.jobs)} done, odd job begun {tries}×")
            return False
        if not _within(TO_END, lambda: not self._processes()):
            self.problems.append(f"leaves {len(self._processes())} processes behind")
        return True

    def _check_kept(self, process: subprocess.Popen[bytes]) -> None:
        if not self._done() >= GOOD:
            self.problems.append(f"{len(GOOD & self._done())} of {len(GOOD)} results kept")
        if self.fault.start == "full disk":
            said = (self.directory / "said").read_text(errors="replace")
            if process.returncode == 0 or "File too large" not in said:
                self.problems.append("does not say so")

    def _check_outcome(self) -> None:
        expected = GOOD | {ODD} if self.fault.odd_is_done else GOOD
        if missing := expected - self._done():
            self.problems.append(f"{len(missing)} of {len(expected)} without result")
        try:
            failed = json.loads((self.directory / "failed.json").read_text())
        except FileNotFoundError:
            said = (self.directory / "said").read_text(errors="replace").split("\n")
            last = next(
                (line for line in reversed(said) if "Error" in line or "Killed" in line), ""
            )
            self.problems.append(f"ends with {last.strip().split(':')[0] or 'no word'}")
        else:
            reason = failed.get(str(ODD), "")
            if not self.fault.odd_is_done and not reason:
                self.problems.append("the odd job is not named")
            elif self.fault.says not in reason:
                self.problems.append("does not say where")
        if again := sum(times > 1 for value, times in self._begun().items() if value in GOOD):
            self.problems.append(f"{again} of the good jobs run twice")

    def _done(self) -> set[int]:
        return {value for value, job in self.jobs.items() if self.store.path(job).exists()}

    def _begun(self) -> Counter[int]:
        return Counter(int(p.name.split("-")[0]) for p in (self.directory / "log").iterdir())

    def _processes(self) -> list[int]:
        """Whatever bears the mark and has not ended."""
        found, mark = [], f"JOB_RUNNER_TRIAL={self.mark}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found


def measure(runner: str) -> dict[str, float]:
    """Take the seconds of jobs that do nothing, and of real ones on one worker and on two."""

    def seconds(function: Callable[..., Any], name: str, numbers: range, workers: int) -> float:
        jobs = [Job(name, function, {name: number}, "1") for number in numbers]
        with tempfile.TemporaryDirectory() as directory:
            start = time.perf_counter()
            failed = RUNNERS[runner](jobs, ResultStore(directory), workers, None)
            assert not failed, failed
            return time.perf_counter() - start

    # After the first time joblib has its workers; the others start them again.
    start, few, many = (
        seconds(odd_jobs.nothing, "number", range(n), WORKERS) for n in (4, 4, EMPTY_JOBS + 4)
    )
    busy = range(BUSY_JOBS)
    one, two = (seconds(odd_jobs.counts, "number", busy, workers) for workers in (1, WORKERS))
    return {
        "start": start,
        "few_jobs": few,
        "many_jobs": many,
        "busy_jobs_on_one_worker": one,
        "busy_jobs": two,
    }


def measured_apart(runner: str) -> dict[str, float]:
    """`measure`, in a program of its own, since runners keep processes."""
    code = "import json; from experiments.tools import try_job_runners as t\n"
    command = [sys.executable, "-c", f"{code}print(json.dumps(t.measure({runner!r})))"]
    done = subprocess.run(command, env=_environment(), stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def in_words(seen: dict[str, Any], usual: float) -> str:
    """What happened; and when, if it took much longer than it takes ours."""
    is_late = seen["good"] and seen["seconds"] > 3 * usual
    return f"{seen['words']}, after {seen['seconds']:.0f} s" if is_late else str(seen["words"])


def markdown(report: dict[str, Any]) -> str:
    """Write what happened and what was measured as tables."""
    names = list(RUNNERS)
    head = [f"{name} {report['versions'][name]}".strip() for name in names]
    lines = [f"| what happens | {' | '.join(head)} |", "|---" * (len(names) + 1) + "|"]
    for fault in FAULTS:
        by_runner = report["faults"][fault.what]
        cells = [in_words(by_runner[name], by_runner["ours"]["seconds"]) for name in names]
        lines.append(f"| {fault.what} | {' | '.join(cells)} |")
    if set(report["measured"]) < set(names):  # a trial of the faults alone
        return "\n".join(lines)
    ours = report["measured"]["ours"]
    lines += ["", f"| measured | {' | '.join(head)} |", "|---" * (len(names) + 1) + "|"]
    rows: dict[str, Callable[[dict[str, float]], float]] = {
        "milliseconds per job that does nothing": (
            lambda m: (m["many_jobs"] - m["few_jobs"]) / EMPTY_JOBS * 1000
        ),
        f"{BUSY_JOBS} jobs that keep a core busy, on two workers: time, ours = 1": (
            lambda m: m["busy_jobs"] / ours["busy_jobs"]
        ),
        "the same: speed-up by the second worker": (
            lambda m: m["busy_jobs_on_one_worker"] / m["busy_jobs"]
        ),
        "starting two workers: time, ours = 1": lambda m: m["start"] / ours["start"],
    }
    for what, value in rows.items():
        cells = [f"{value(report['measured'][name]):.2g}" for name in names]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return met


def try_one(runner: str, fault: Fault) -> dict[str, Any]:
    """Do a fault to a runner, in a directory of its own."""
    if (runner, fault.start) == ("local Dask", "inside Dask"):
        return {"good": True, "words": "is one", "seconds": 0.0}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        seen = Trial(runner, fault, Path(directory)).run()
    print(f"{fault.what}: {runner}: {seen['words']} ({seen['seconds']} s)", flush=True)
    return seen


def try_all(report: dict[str, Any], out: Path) -> None:
    """Do every fault to every runner that is not in the report, and write it down.

    Two at a time: those that hang need no core.
    """
    with ThreadPoolExecutor(2) as pool:
        futures = {
            pool.submit(try_one, name, fault): (fault.what, name)
            for fault in FAULTS
            for name in RUNNERS
            if name not in report["faults"].setdefault(fault.what, {})
        }
        for future in as_completed(futures):
            what, name = futures[future]
            report["faults"][what][name] = future.result()
            write_atomically(out, json_bytes(report))


def measure_all(report: dict[str, Any], out: Path) -> None:
    """Measure every runner that is not in the report, one after the other, and write it down."""
    for name in RUNNERS:
        if name not in report["measured"]:
            report["measured"][name] = measured_apart(name)
            write_atomically(out, json_bytes(report))


def main() -> None:
    """Try all runners with all faults, and measure them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/job_runners.json"))
    parser.add_argument("--part", choices=["faults", "measured"], help="both, unless given")
    arguments = parser.parse_args()
    report: dict[str, Any] = {"faults": {}, "measured": {}, "versions": {}}
    if arguments.out.exists():
        report = json.loads(arguments.out.read_text())
    report["versions"] = {name: version(p) if (p := PACKAGES[name]) else "" for name in RUNNERS}
    if arguments.part != "measured":
        try_all(report, arguments.out)
    if arguments.part != "faults":
        measure_all(report, arguments.out)
    write_atomically(arguments.out, json_bytes(report))
    print(markdown(report))


if __name__ == "__main__":
    main()
