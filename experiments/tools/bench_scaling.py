"""Measure how cost grows: with heads, groups, sentences, models in a stack, and workers.

    python -m experiments.tools.bench_scaling

Each point has a process of its own, so that its peak memory is its own. Writes docs/scaling: a
table, a figure, and the slopes in double logarithmic scales beside what they should be. Machines
are noisy: read the slopes, not the seconds. A few minutes on two cores.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from count01_lens.common.storage import write_atomically
from count01_lens.views.figures import FIVE, FOUR, NEUTRAL, NotebookFigure, as_bytes
from experiments.generated_part import write_parts
from experiments.tools.bench_tables import PAGE
from experiments.tools.timing import best

OUT = Path("docs/scaling")
CORES = 2  # of the machine of record


@dataclass(frozen=True)
class Curve:
    """What is measured against what.

    Attributes:
        run: returns seconds for a value of x.
        x: what it counts.
        values: of x; the slope is that over the last half of them.
        slope: what it should be there, in double logarithmic scales.
        why: in words.
    """

    run: Callable[[int], float]
    title: str
    x: str
    values: tuple[int, ...]
    slope: float
    why: str


def epoch_by_heads(n_heads: int) -> float:
    """An epoch of ten models."""
    return _epoch(10, n_heads)


def epoch_by_models(n_models: int) -> float:
    """An epoch of a stack of 16-head models."""
    return _epoch(n_models, 16)


def pairs_by_heads(n_heads: int) -> float:
    """Every head and every pair, probes included."""
    import count01_lens as cl

    model = _model(n_heads)
    return best(lambda: cl.analyze_heads(model), 2)


def groups_by_heads(n_heads: int) -> float:
    """All groups of heads, by every metric."""
    from count01_lens.heads.groups import all_groups
    from count01_lens.heads.head_data import head_data

    data = head_data(_model(n_heads))
    return best(lambda: all_groups(data), 1)


def logits_by_sentences(n_sentences: int) -> float:
    """Logits at '=' of a 16-head model, in portions that fit the cache."""
    import torch

    import count01_lens as cl
    from count01_lens.common.threads import one_thread
    from count01_lens.counts.multiplicities import Multiplicities
    from count01_lens.tasks.places import AT_EQUALS

    form = cl.CountForm.from_models([cl.example_model()])
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 201, (n_sentences, 3), generator=generator)

    def run() -> None:
        for part in torch.split(counts, 8192):
            form.logits(Multiplicities.of(part, AT_EQUALS, torch.float32))

    with torch.no_grad(), one_thread():
        return best(run, 3)


def verify_by_size(up_to: int) -> float:
    """Every sentence up to a size; their number grows with the third power."""
    import count01_lens as cl

    model = cl.example_model()
    cl.verify(model, up_to=1)
    return best(lambda: cl.verify(model, up_to), 1 if up_to > 500 else 2)


def jobs_by_workers(workers: int) -> float:
    """Sixteen trainings of a few epochs, handed out to processes that have been started."""
    import tempfile

    from count01_lens.jobs.job import Job
    from count01_lens.jobs.results import ResultStore
    from count01_lens.jobs.running import run_jobs

    def run(seeds: range) -> None:
        jobs = [Job("train", _trained, {"seed": seed}, "1") for seed in seeds]
        with tempfile.TemporaryDirectory() as directory:
            outcome = run_jobs(jobs, ResultStore(directory), workers=workers, progress=False)
            assert not outcome.failed

    start = best(lambda: run(range(workers)), 1)  # of the processes, and a job each
    return max(best(lambda: run(range(16 + workers)), 1) - start, 1e-3)


CURVES = {
    "epoch_by_heads": Curve(
        epoch_by_heads, "an epoch of ten models", "heads", (1, 2, 4, 8, 16, 32, 64), 1.0,
        "a step works through each head; with few, dispatching operations is all it costs",
    ),
    "epoch_by_models": Curve(
        epoch_by_models, "an epoch of a stack", "models", (1, 3, 10, 30, 100, 300, 1000), 1.0,
        "the same; a stack of ten costs little more than one model",
    ),
    "pairs_by_heads": Curve(
        pairs_by_heads, "every head and pair", "heads", (1, 2, 4, 8, 16, 32, 64), 2.0,
        "a probe for each pair",
    ),
    "groups_by_heads": Curve(
        groups_by_heads, "all groups of heads", "groups",
        tuple(2**n for n in (4, 6, 8, 10, 12, 14, 16, 18)), 1.0,
        "a probe for each group, of more features in larger ones",
    ),
    "logits_by_sentences": Curve(
        logits_by_sentences, "logits in closed form", "sentences",
        (10**3, 10**4, 10**5, 10**6, 10**7), 1.0, "each sentence is computed",
    ),
    "verify_by_size": Curve(
        verify_by_size, "verify every sentence", "of each token", (50, 100, 200, 400, 700, 1000),
        2.0, "what is run is a surface, the boundary; all boxes are looked at once",
    ),
    "jobs_by_workers": Curve(
        jobs_by_workers, "sixteen trainings as jobs", "workers", (1, 2, 4), -1.0,
        "up to the number of cores, two here; more workers gain nothing",
    ),
}  # fmt: skip


def measured(names: Sequence[str]) -> pd.DataFrame:
    """Measure curves, every point in its own process: a row for each."""
    rows = []
    for name in names:
        for value in CURVES[name].values:
            print(f"measuring {name} {value:,} ...", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "experiments.tools.bench_scaling"]
            command += ["--one", name, str(value)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append({"curve": name, "x": value, **json.loads(done.stdout.splitlines()[-1])})
    return pd.DataFrame(rows)


def slope(x: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope in double logarithmic scales over the last half of the points, at least two.

    >>> slope([1, 10, 100, 1000], [5, 5, 7, 700])
    2.0
    """
    half = max(2, len(x) // 2)
    found = np.polyfit(np.log(x[-half:]), np.log(seconds[-half:]), 1)[0]
    return round(float(found), 2)


def table_of(points: pd.DataFrame) -> str:
    """Write slopes, times and memory of the ends of each curve as a table of Markdown."""
    lines = ["| what | from | to | slope | should be | why | peak memory, MB |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, rows in points.groupby("curve", sort=False):
        curve, first, last = CURVES[str(name)], rows.iloc[0], rows.iloc[-1]
        ends = [f"{row.x:,} {curve.x}: {row.seconds:.3g} s" for row in (first, last)]
        x, seconds = _until_cores(str(name), rows)
        memory = f"{first.peak_mb:,.0f} to {last.peak_mb:,.0f}"
        cells = [curve.title, *ends, f"{slope(x, seconds):.2f}", f"{curve.slope:g}", curve.why]
        lines.append("| " + " | ".join([*cells, memory]) + " |")
    return "\n".join(lines)


def figure_of(points: pd.DataFrame) -> Figure:
    """Draw each curve in double logarithmic scales, with the slope that it should have."""
    figure = NotebookFigure(figsize=(13, 6), layout="constrained")
    panels = figure.subplots(2, 4).flatten()
    for axes in panels[len(CURVES) :]:
        axes.axis("off")
    for axes, (name, rows) in zip(panels, points.groupby("curve", sort=False), strict=False):
        curve = CURVES[str(name)]
        x, seconds = rows["x"].to_numpy(), rows["seconds"].to_numpy()
        axes.loglog(x, seconds, "o-", color=FOUR, ms=4, label="measured")
        middle = len(x) // 2
        should = seconds[middle] * (x / x[middle]) ** curve.slope
        axes.loglog(x, should, "--", color=NEUTRAL, lw=1, label=f"slope {curve.slope:g}")
        memory = axes.twinx()
        memory.plot(x, rows["peak_mb"] / 1000, ":", color=FIVE, lw=1)
        memory.set_ylim(0, max(2.0, 1.2 * rows["peak_mb"].max() / 1000))
        memory.set_ylabel("peak memory, GB", color=FIVE, fontsize=8)
        memory.tick_params(labelsize=7, colors=FIVE)
        axes.set(xlabel=curve.x, ylabel="seconds", title=curve.title)
        axes.legend(frameon=False, fontsize=7)
        if len(x) <= 3:  # too few for powers of ten
            axes.set_xticks(x, [str(value) for value in x])
            axes.minorticks_off()
    return figure


def _until_cores(name: str, rows: pd.DataFrame) -> tuple[list[float], list[float]]:
    """More workers than cores are on the figure, and no part of the slope."""
    known = rows[rows["x"] <= CORES] if name == "jobs_by_workers" else rows
    return known["x"].tolist(), known["seconds"].tolist()


def _model(n_heads: int) -> Any:
    import count01_lens as cl

    return cl.build_model(cl.ModelConfig(d_embed=32, n_heads=n_heads, d_head=2))


def _epoch(n_models: int, n_heads: int) -> float:
    import count01_lens as cl

    config = cl.TrainConfig(epochs=1).changed(n_heads=n_heads, d_head=2)
    return best(lambda: cl.train(config, seeds=range(n_models), snapshot_epochs=[]), 2)


def _trained(seed: int) -> float:
    import count01_lens as cl

    result = cl.train(cl.TrainConfig(epochs=10), seeds=[seed], snapshot_epochs=[], progress=False)
    return float(result.history["loss"].iloc[-1])


def main() -> None:
    """Measure all curves, or some; write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(CURVES), help="curves to measure")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, value = arguments.one
        # Groups are on their own axis; what is run is a number of heads.
        given = int(value).bit_length() - 1 if name == "groups_by_heads" else int(value)
        seconds = CURVES[name].run(given)
        unit = 1e6 if sys.platform == "darwin" else 1e3
        who = resource.RUSAGE_CHILDREN if name == "jobs_by_workers" else resource.RUSAGE_SELF
        peak = resource.getrusage(who).ru_maxrss / unit
        print(json.dumps({"seconds": seconds, "peak_mb": peak}))
        return
    points = measured(arguments.only or list(CURVES))
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = points.to_csv(index=False, float_format="%.5g")
    write_atomically(arguments.out / "scaling.csv", text.encode())
    write_atomically(arguments.out / "scaling.svg", as_bytes(figure_of(points), "svg"))
    print(table_of(points))
    if arguments.out == OUT and not arguments.only:
        write_parts(PAGE, {"scaling": table_of(points)})


if __name__ == "__main__":
    main()
