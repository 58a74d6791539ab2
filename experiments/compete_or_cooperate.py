"""The title's question, as a number: Shapley values and interactions of all groups of heads."""

import sys
from typing import Any

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.common.text import rounded_percent
from count01_lens.heads.metrics import METRICS
from count01_lens.heads.verdict import word_of
from count01_lens.jobs.job import Job
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure
from experiments import groups_of_heads
from experiments.cooperation_bounds import AGAINST, INTERACTION
from experiments.runs import close_looks, last_heads, main_jobs, models_of, share
from experiments.setup import Setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "C1", "Do heads compete or cooperate?"
CONTRAST = True
PAPER = (
    "Heads that count behave like a pseudo-ensemble: trained models do not do what a cooperative "
    "model could, one head counting '0's and one '1's; for '[EOS]' they work together"
)


def jobs(setup: Setup) -> list[Job]:
    """The main runs; the groups of some were all measured."""
    return main_jobs(setup)


def measure(load: Load, setup: Setup) -> Measured:
    """Hold trained models against controls whose answer is known."""
    trained = {
        f"seed {seed}": {metric: np.asarray(look["interactions"][metric]) for metric in METRICS}
        for seed, look in close_looks(groups_of_heads.jobs(setup), load).items()
    }
    models = {**trained, **_controls()}
    rows = [_row(name, matrices, name in trained) for name, matrices in models.items()]
    table = pd.DataFrame(rows)
    ours = table[table["trained"]]
    alone = _alone(load, setup)
    controls = table[~table["trained"]].set_index("model")["s_acc_interaction"].to_dict()
    cooperative = float(controls["cooperative control"])
    numbers: dict[str, Any] = {
        "trained_do_not": spread(ours["s_acc_interaction"]),
        "control_stands_out": cooperative - float(ours["s_acc_interaction"].max()),
        "l_acc_cooperates": spread(ours["l_acc_interaction"]),
        "end_cooperates": spread(ours["eos_l_acc_interaction"]),
        "not_exploited": spread(alone["not_exploited"]),
        "end_non_uniform": spread(alone["against_the_end"]),
        "negative_shapley_answer": spread(ours["s_acc_negative_shapley"]),
        "negative_shapley_eos": spread(ours["eos_l_acc_negative_shapley"]),
        "cooperative_control": cooperative,
        "ensemble_control": float(controls["ensemble control"]),
    }
    for task in ("answer", "eos"):
        numbers[f"words_{task}"] = ", ".join(sorted(set(ours[f"words_{task}"])))
    return Measured(
        numbers=numbers,
        shows=f"On the answer the mean Shapley interaction of two heads (s-acc) is "
        f"{ours['s_acc_interaction'].mean():+.3f} in trained models: {numbers['words_answer']}. On "
        f"'[EOS]' it is {ours['eos_l_acc_interaction'].mean():+.3f}: {numbers['words_eos']}. The "
        f"cooperative control has {cooperative:+.3f}, an ensemble of copies "
        f"{numbers['ensemble_control']:+.3f}. Yet the answer is given together: the interaction "
        f"of l-acc is {ours['l_acc_interaction'].mean():+.4f}, and "
        f"{rounded_percent(alone['not_exploited'].mean())} of the heads that separate alone are "
        "at 50 % l-acc alone. "
        f"{rounded_percent(alone['against_the_end'].mean())} of heads work against '[EOS]'.",
        tables={"interactions": table, "alone": alone},
        figures={"interactions": _figure(table)},
        seeds=[int(name.split()[1]) for name in trained],
        recipe=setup.recipe.to_dict(),
    )


def _alone(load: Load, setup: Setup) -> pd.DataFrame:
    """What single heads do on their own, by seed: of all main runs."""
    rows = []
    for job in main_jobs(setup):
        heads = last_heads([job], load)
        for seed, model in models_of(job, load(job)).items():
            good = heads[(heads["seed"] == seed) & (heads["category"] == "successful")]
            shares = cl.head_logits(model, cl.make_splits().test, "answer").double().mean(dim=0)
            answers = shares[:, [cl.Token.FOUR, cl.Token.FIVE]].max(dim=1).values
            against = (shares[:, cl.Token.EOS] < answers).numpy()
            at_half = share(good["l_acc"].between(0.45, 0.55))
            rows.append({"seed": seed, "not_exploited": at_half, "against_the_end": share(against)})
    return pd.DataFrame(rows)


def _controls() -> dict[str, dict[str, Any]]:
    controls = {
        "cooperative control": cl.cooperative_model(),
        "ensemble control": cl.ensemble_model(),
    }
    found = {}
    for name, model in controls.items():
        analysis = cl.analyze_heads(model)
        found[name] = {metric: analysis.interactions(metric) for metric in METRICS}
    return found


def _row(name: str, matrices: dict[str, Any], trained: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "trained": trained}
    for metric, matrix in matrices.items():
        off_diagonal = matrix[~np.eye(len(matrix), dtype=bool)]
        row[f"{metric}_interaction"] = float(off_diagonal.mean())
        row[f"{metric}_cooperating_pairs"] = float((off_diagonal >= INTERACTION).mean())
        row[f"{metric}_redundant_pairs"] = float((off_diagonal <= -INTERACTION).mean())
        row[f"{metric}_negative_shapley"] = int((np.diag(matrix) <= AGAINST).sum())
    for task, metric in (("answer", "s_acc"), ("eos", "eos_l_acc")):
        mean = row[f"{metric}_interaction"]
        row[f"words_{task}"] = word_of(mean, mean)
    return row


def _figure(table: pd.DataFrame) -> Shown:
    figure = NotebookFigure(figsize=(8.5, 4), layout="constrained")
    axes = figure.add_subplot()
    x = np.arange(len(table))
    names = {"s_acc": ("answer, s-acc", FOUR), "l_acc": ("answer, l-acc", FIVE)}
    names["eos_l_acc"] = ("[EOS], l-acc", END)
    for offset, (metric, (label, colour)) in zip((-0.27, 0, 0.27), names.items(), strict=True):
        axes.bar(x + offset, table[f"{metric}_interaction"], 0.25, color=colour, label=label)
    axes.axhline(0, color=NEUTRAL, lw=0.8)
    axes.set_xticks(x, [name.replace(" control", "\ncontrol") for name in table["model"]])
    axes.set(ylabel="mean Shapley interaction of two heads")
    axes.set_yscale("symlog", linthresh=0.05)
    axes.set_title("above zero heads cooperate, below they are redundant")
    axes.legend(frameon=False)
    alt = "Mean Shapley interaction of trained models and two controls, for answer and [EOS]"
    return Shown(
        figure, alt, "Trained models beside a cooperative model and an ensemble of copies."
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
