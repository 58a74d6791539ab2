"""The skip connection: train with it, remove its share, measure."""

import sys

import pandas as pd
import torch

import count01_lens as cl
from count01_lens.heads.runners import model_logits
from count01_lens.jobs.job import Job
from count01_lens.tasks.decisions import eos_margin, four_margin
from experiments.runs import models_of, run_job
from experiments.setup import Setup
from experiments.suite import Load, Measured, main, spread

ROW, TITLE = "S1", "The skip connection"
CONTRAST = True
PAPER = "Its effect is negligible"
SEEDS = {"quick": [range(7500, 7501)], "full": [range(7500, 7505), range(7505, 7510)]}


def jobs(setup: Setup) -> list[Job]:
    """Models with a projection, a skip connection and an unembedding."""
    return [run_job([_recipe(setup)], seeds, [setup.epochs]) for seeds in SEEDS[setup.size]]


def _recipe(setup: Setup) -> cl.TrainConfig:
    return setup.trained(output="residual")


def measure(load: Load, setup: Setup) -> Measured:
    """Take the current token's share out of the logits: without positions it is a constant."""
    test, rows = cl.make_splits().test, []
    for job in jobs(setup):
        for seed, model in models_of(job, load(job)).items():
            skip = (model.W_E @ model.W_U).detach()
            answers = torch.where(test.labels, int(cl.Token.FOUR), int(cl.Token.FIVE))
            row: dict[str, float] = {"seed": seed}
            for at, current in (
                ("=", torch.full_like(answers, cl.Token.EQUALS)),
                ("answer", answers),
            ):
                logits = model_logits(model, test, at)  # type: ignore[arg-type]
                for name, values in (("with", logits), ("without", logits - skip[current])):
                    if at == "=":
                        right = (four_margin(values) > 0) == test.labels
                    else:
                        right = eos_margin(values) > 0
                    row[f"{'answer' if at == '=' else 'eos'}_{name}"] = float(right.double().mean())
            rows.append(row)
    table = pd.DataFrame(rows)
    change = {n: (table[f"{n}_with"] - table[f"{n}_without"]).abs() for n in ("answer", "eos")}
    return Measured(
        numbers={
            "answer": spread(change["answer"]),
            "eos": spread(change["eos"]),
            "answer_with": spread(table["answer_with"]),
            "answer_without": spread(table["answer_without"]),
            "eos_with": spread(table["eos_with"]),
            "eos_without": spread(table["eos_without"]),
        },
        shows=f"Without the skip connection's share accuracy goes from "
        f"{table['answer_with'].mean():.4f} "
        f"to {table['answer_without'].mean():.4f}, '[EOS]' from {table['eos_with'].mean():.4f} to "
        f"{table['eos_without'].mean():.4f} (means over {len(table)} seeds).",
        tables={"skip": table},
        seeds=table["seed"].astype(int).tolist(),
        recipe=_recipe(setup).to_dict(),
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
