"""Head outputs, value vectors and separators: how successful heads work and how others fail."""

import sys
from typing import Any

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.views.plots import plot_head_outputs
from experiments.runs import by_seed, last_heads, main_jobs, models_of, share
from experiments.setup import SHOWN_SEED, Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F6", "Outputs of heads"
CONTRAST = True
PAPER = (
    "Successful heads interpolate between v('0') and v('1'); failure 1: everything collapses into "
    "a point (w01 extreme); failure 2: '2' adds noise (w02 small)"
)
NEAR = 0.1  # of the distance between v('0') and v('1')


def jobs(setup: Setup) -> list[Job]:
    """The main runs."""
    return main_jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Measure how far outputs are from the segment between two value vectors."""
    heads = last_heads(jobs(setup), load)
    distances = []
    for job in jobs(setup):
        for seed, model in models_of(job, load(job)).items():
            values = _distances(model)
            distances.append(
                pd.DataFrame({"seed": seed, "head": range(len(values)), "far": values})
            )
    heads = heads.merge(pd.concat(distances, ignore_index=True), on=["seed", "head"])
    good, bad = (heads[heads["category"] == kind] for kind in ("successful", "failed"))
    collapsed = ~bad["w01"].between(0.1, 10)
    noisy = bad["w02"] < 1
    close = by_seed(good, lambda rows: share(rows["far"] <= NEAR))
    explained = share(collapsed | noisy)
    return Measured(
        numbers={
            "interpolate": spread(close),
            "failures_explained": explained,
            "failed_by_w01": share(collapsed),
            "failed_by_w02": share(noisy),
            "failed_heads": len(bad),
        },
        shows=f"In {100 * np.mean(close):.0f} % of successful heads 90 % of the outputs lie "
        "within a tenth of |v('0') - v('1')| of the segment between them. Of "
        f"{len(bad)} failed heads, {100 * share(collapsed):.0f} % have an extreme w01 and "
        f"{100 * share(noisy):.0f} % a w02 below 1.",
        tables={"outputs": heads[["seed", "head", "s_acc", "category", "w01", "w02", "far"]]},
        figures=_figures(load, setup),
        seeds=sorted(heads["seed"].unique().tolist()),
        recipe=setup.recipe.to_dict(),
    )


def _distances(model: Any) -> list[float]:
    """Distance of outputs from the segment v0-v1, 90 % quantile, relative to its length."""
    form = cl.CountForm.from_models([model], dtype=None)
    outputs = cl.head_outputs(model, cl.make_splits().test).double().numpy()
    found = []
    for head in range(outputs.shape[1]):
        v0, v1 = form.values[0, head, [cl.Token.ZERO, cl.Token.ONE]].double().numpy()
        along = v1 - v0
        length = float(np.linalg.norm(along)) or 1e-12
        place = np.clip((outputs[:, head] - v0) @ along / length**2, 0, 1)
        nearest = v0 + place[:, None] * along
        distance = np.linalg.norm(outputs[:, head] - nearest, axis=1) / length
        found.append(float(np.quantile(distance, 0.9)))
    return found


def _figures(load: Load, setup: Setup) -> dict[str, Shown]:
    first = jobs(setup)[0]
    model = models_of(first, load(first))[SHOWN_SEED]
    analysis = cl.analyze_heads(model)
    order = analysis.table["s_acc"].to_numpy().argsort(kind="stable")
    four = [int(head) for head in (*order[-2:], *order[:2])]
    return {
        "four_heads": Shown(
            plot_head_outputs(model, analysis, four, whole=True),
            "Outputs of two successful and two failed heads with value vectors and separators",
            f"Seed {SHOWN_SEED}: value vectors as circles, training outputs pale, test outputs "
            "strong.",
        ),
        "all_heads": Shown(
            plot_head_outputs(model, analysis),
            "Outputs of all 16 heads, close up",
            f"Seed {SHOWN_SEED}, close up: value vectors that lie outside stand at the edge.",
        ),
    }


if __name__ == "__main__":
    main(sys.modules[__name__])
