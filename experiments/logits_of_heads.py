"""Shares of each head in the logits of '4', '5' and '[EOS]', at '=' and at the answer."""

import sys
from typing import Any

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.tasks.places import At
from count01_lens.views.plots import logit_table, plot_logits
from experiments.runs import by_seed, main_jobs, models_of, share
from experiments.setup import SHOWN_SEED, Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "F1", "Logits of each head"
CONTRAST = True
PAPER = (
    "Many heads are strongly biased to one of '4' and '5'; within a head the order of the logits "
    "is about fixed, and the balance tips toward '[EOS]' when moving from '=' to the answer"
)
WATCHED = [cl.Token.FOUR, cl.Token.FIVE, cl.Token.EOS]
ASKED: tuple[At, At] = ("=", "answer")
ONE_SIDED = 0.95


def jobs(setup: Setup) -> list[Job]:
    """The main runs."""
    return main_jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Measure the order of the three shares in every head of every run."""
    tables = []
    for job in jobs(setup):
        for seed, model in models_of(job, load(job)).items():
            tables.append(_orders(model).assign(seed=seed))
    table = pd.concat(tables, ignore_index=True)
    first = models_of(jobs(setup)[0], load(jobs(setup)[0]))[SHOWN_SEED]
    biased = by_seed(table, lambda rows: share(rows["one_sided"] >= ONE_SIDED))
    fixed = by_seed(table, lambda rows: rows["fixed_order"].mean())
    tips = by_seed(table, lambda rows: share(rows["tips_to_eos"]))
    return Measured(
        numbers={
            "biased": spread(biased),
            "fixed_order": spread(fixed),
            "tips_to_eos": spread(tips),
        },
        shows=f"{100 * np.mean(biased):.0f} % of heads favour one answer on at least 95 % of test "
        f"sentences; a head keeps its order of '4', '5', '[EOS]' on {100 * np.mean(fixed):.0f} % "
        f"of them; in {100 * np.mean(tips):.0f} % of heads the balance tips toward '[EOS]'.",
        tables={"orders": table, "logits": logit_table(first)},
        figures={
            "logits": Shown(
                plot_logits(first),
                "For each of 16 heads, quantiles of its shares in the logits of 4, 5 and [EOS]",
                f"One model (seed {SHOWN_SEED}): medians, and from 5 % to 95 % of test sentences.",
            )
        },
        seeds=sorted(table["seed"].unique().tolist()),
        recipe=setup.recipe.to_dict(),
    )


def _orders(model: Any) -> pd.DataFrame:
    split = cl.make_splits().test
    shares = {at: cl.head_logits(model, split, at).double().numpy() for at in ASKED}
    at_equals = shares["="][..., WATCHED]
    margin = at_equals[..., 0] - at_equals[..., 1]
    rank = np.argsort(at_equals, axis=-1) @ np.array([9, 3, 1])
    fixed = [np.unique(rank[:, head], return_counts=True)[1].max() for head in range(rank.shape[1])]
    lead = {
        at: values[..., cl.Token.EOS] - values[..., WATCHED[:2]].mean(axis=-1)
        for at, values in shares.items()
    }
    return pd.DataFrame(
        {
            "head": np.arange(rank.shape[1]),
            "one_sided": np.maximum((margin > 0).mean(axis=0), (margin <= 0).mean(axis=0)),
            "mean_margin": margin.mean(axis=0),
            "fixed_order": np.array(fixed) / len(rank),
            "tips_to_eos": lead["answer"].mean(axis=0) > lead["="].mean(axis=0),
        }
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
