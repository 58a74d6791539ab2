"""Measure many jobs: what a second worker brings, what a job costs, what a sweep leaves on disk.

Run `python -m experiments.tools.bench_jobs` on a machine that does nothing else, for some minutes.
The numbers go to `bench_jobs.json` and, as a table, to the terminal; `docs/many_jobs.md` is worked
out from them.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import count01_lens as cl
from count01_lens.common.storage import json_bytes, write_atomically
from count01_lens.common.text import number
from count01_lens.common.versions import library_versions
from count01_lens.jobs.supervision import Processes
from experiments import minimal_heads
from experiments.generated_part import write_generated
from experiments.suite import run_suite

OUTPUT = Path("bench_jobs.json")
TRAININGS, PER_JOB, EPOCHS = 200, 25, 20
EMPTY_JOBS = 300
PAPER_MODEL_EPOCHS = 100


def nothing(number: int) -> int:
    """Do nothing: what is left is what a job costs."""
    return number


def sweep_of_200(directory: Path) -> dict[str, float]:
    """200 trainings of the paper's model for 20 epochs, in 8 jobs: one worker, then two."""
    config = cl.TrainConfig(epochs=EPOCHS)
    seconds = {}
    for workers in (1, 2):
        start = time.perf_counter()
        result = cl.sweep_models(
            [config],
            range(TRAININGS),
            directory / f"workers-{workers}",
            per_job=PER_JOB,
            workers=workers,
        )
        result.outcome.check()
        seconds[workers] = time.perf_counter() - start
    tables = [(directory / f"workers-{w}" / "heads.csv").read_bytes() for w in (1, 2)]
    jobs = list((directory / "workers-2" / "jobs").glob("*.safetensors"))
    return {
        "one_worker_seconds": seconds[1],
        "two_workers_seconds": seconds[2],
        "speed_up": seconds[1] / seconds[2],
        "same_table": float(tables[0] == tables[1]),
        "files_per_training": len(jobs) / TRAININGS,
        "bytes_per_training": sum(path.stat().st_size for path in jobs) / TRAININGS,
        "csv_bytes_per_head": len(tables[0]) / len(result.heads),
        "core_seconds_per_training_and_epoch": seconds[1] / TRAININGS / EPOCHS,
    }


def overhead_on_processes(directory: Path) -> dict[str, float]:
    """Jobs that do nothing, on two processes that have started already."""
    with Processes(2) as executor:
        return _overhead(executor, directory)


def overhead_on_dask(directory: Path) -> dict[str, float]:
    """The same on a Dask cluster of two workers on this machine, over TCP."""
    with _cluster() as cluster, cl.dask_executor(cluster.scheduler_address) as executor:
        return _overhead(executor, directory)


def minimal_heads_through_dask(directory: Path) -> dict[str, float]:
    """Table T1 in its quick size, on two processes and through Dask."""
    with _cluster() as cluster, cl.dask_executor(cluster.scheduler_address) as executor:
        seconds = {}
        places: dict[str, dict[str, Any]] = {"dask": {"executor": executor}, "pool": {"workers": 2}}
        for name, place in places.items():
            start = time.perf_counter()
            run_suite([minimal_heads], directory / name, "quick", progress=False, **place)
            seconds[name] = time.perf_counter() - start
    files = [directory / name / "T1" / "minimal_heads.csv" for name in places]
    return {
        "same_table": float(files[0].read_bytes() == files[1].read_bytes()),
        "dask_seconds": seconds["dask"],
        "pool_seconds": seconds["pool"],
    }


MEASUREMENTS: list[Callable[[Path], dict[str, float]]] = [
    sweep_of_200,
    overhead_on_processes,
    overhead_on_dask,
    minimal_heads_through_dask,
]


def forecast(measured: dict[str, dict[str, float]], trainings: int, cores: int) -> dict[str, float]:
    """Work out what many trainings of the paper's model (16 heads, 100 epochs) need."""
    sweep = measured["sweep_of_200"]
    each = sweep["core_seconds_per_training_and_epoch"] * PAPER_MODEL_EPOCHS
    return {
        "hours": trainings * each / cores / 3600,
        "files": trainings * sweep["files_per_training"],
        "gigabytes": trainings * sweep["bytes_per_training"] / 1e9,
        "csv_gigabytes": trainings * 16 * sweep["csv_bytes_per_head"] / 1e9,
    }


def markdown(report: dict[str, Any]) -> str:
    """Write what was measured, and what follows from it, as tables."""
    lines = ["| measurement | | value |", "|---|---|---|"]
    for function in MEASUREMENTS:
        what = function.__name__.replace("_", " ")
        for name, value in sorted(report["measurements"][function.__name__].items()):
            told = (
                ("no", "yes")[int(value)]
                if name == "same_table"
                else number(round(value) if value >= 1000 else value)
            )
            lines.append(f"| {what} | {name.replace('_', ' ')} | {told} |")
    lines += ["", "| trainings | cores | hours | files | results, GB | heads.csv, GB |"]
    lines += ["|---|---|---|---|---|---|"]
    for trainings in (10_000, 100_000):
        for cores in (2, 64, 512):
            need = forecast(report["measurements"], trainings, cores)
            lines.append(
                f"| {trainings:,} | {cores} | {need['hours']:.2g} | {need['files']:,.0f} | "
                f"{need['gigabytes']:.2g} | {need['csv_gigabytes']:.2g} |"
            )
    return "\n".join(lines)


def _overhead(executor: Executor, directory: Path) -> dict[str, float]:
    store = cl.ResultStore(directory)
    first = [cl.Job("nothing", nothing, {"number": -n}, "1") for n in (1, 2, 3, 4)]
    cl.run_jobs(first, store, executor=executor).check()  # imports, in both processes
    jobs = [cl.Job("nothing", nothing, {"number": n}, "1") for n in range(EMPTY_JOBS)]
    start = time.perf_counter()
    cl.run_jobs(jobs, store, executor=executor).check()
    return {"milliseconds_per_job": (time.perf_counter() - start) / EMPTY_JOBS * 1000}


def _cluster() -> Any:
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    )


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUTPUT)
    parser.add_argument("--page", type=Path, help="page whose generated part to write")
    arguments = parser.parse_args()
    measured = {}
    for function in MEASUREMENTS:
        print(f"measuring {function.__name__} ...", flush=True)
        with tempfile.TemporaryDirectory() as directory:
            measured[function.__name__] = function(Path(directory))
    report = {"measurements": measured, "versions": library_versions()}
    write_atomically(arguments.out, json_bytes(report))
    if arguments.page is not None:
        write_generated(arguments.page, markdown(report))
    print(markdown(report))
    print(f"\nwritten to {arguments.out}")


if __name__ == "__main__":
    main()
