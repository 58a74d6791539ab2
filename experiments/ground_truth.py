"""Does the analysis find what is there? Models whose heads have known roles, and a score.

    python -m experiments.ground_truth

plants 250 random models (`ground_truth_models`), confirms what was planted by brute force
(`ground_truth_checks`), lets `analyze_heads` and `label_heads` look for facilitating, irrelevant,
interfering and cooperating heads and for copies, and counts what is found and what is missed:
without noise, and with noise on every weight. Beside it stands what users do today: ablate one head
after the other, and rank heads by what the whole model loses. Everything that judges was fixed
before the judged models were looked at; others served for development.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import count01_lens as cl
from count01_lens.common.storage import write_atomically
from count01_lens.common.types import Array
from count01_lens.heads.labels import HeadLabels, label_heads
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure, as_bytes
from experiments.ground_truth_checks import (
    SingleAblation,
    ablate_single_heads,
    complaints,
    right_answers,
    run_groups,
)
from experiments.ground_truth_models import Planted, Roles, plant, with_noise

DEVELOPMENT, JUDGED = range(30000, 30050), range(31000, 31250)
NOISE = (0.0, 0.01, 0.05)  # of every weight matrix, relative to its size
ROLES = ("facilitating", "irrelevant", "interfering", "copies", "cooperating")
PAIRS = ("copies", "cooperating")
OURS = "all groups"
# Single-head ablation calls a head facilitating or interfering if it changes accuracy by more than
# this, or the logit difference by more than this share of the whole model's.
ACCURACY_LOSS, LEAD_LOSS = 0.01, 0.05
OUT = Path("runs/ground_truth")  # what was judged is kept in docs/ground_truth


def run(seeds: Iterable[int], noise: Sequence[float] = NOISE) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Plant models and judge what is found: a row per model, and counts per model and method."""
    models, counts = [], []
    seeds, start = list(seeds), time.perf_counter()
    for done, seed in enumerate(seeds, 1):
        planted = plant(seed)
        for level in noise:
            noisy = with_noise(planted, level) if level else planted
            found = find_all(noisy)
            same = {"seed": seed, "noise": level}
            models.append({**same, **_about(noisy, found[OURS], check=not level)})
            counts += [{**same, **row} for row in _counts(found, planted.truth)]
        if done % 10 == 0 or done == len(seeds):
            left = (time.perf_counter() - start) / done * (len(seeds) - done)
            told = f"{done} of {len(seeds)} models, {left / 60:.0f} min left"
            print(told, file=sys.stderr, flush=True)
    return pd.DataFrame(models), pd.DataFrame(counts)


def find_all(planted: Planted) -> dict[str, dict[str, set[Any]]]:
    """What each method says about a model: heads or pairs by role, as far as it tells them."""
    analysis = cl.analyze_heads(planted.model, planted.task).with_groups(progress=False)
    assert analysis.known_groups is not None
    ours = _as_sets(roles_of(label_heads(analysis.known_groups.values("l_acc"))))
    alone = ablate_single_heads(planted)
    return {OURS: ours, **_single_ablation(alone, planted.truth)}


def roles_of(labels: HeadLabels) -> Roles:
    """What labels say, in the words of what was planted; prompts are all there are, so exactly."""
    return Roles(
        facilitating=labels.with_label("facilitating"),
        irrelevant=labels.with_label("irrelevant"),
        interfering=labels.with_label("interfering"),
        copies=labels.copies,
        cooperating=labels.pairs_with_label("cooperating"),
    )


def _single_ablation(alone: SingleAblation, truth: Roles) -> dict[str, dict[str, set[Any]]]:
    """Roles by what the whole model loses: beyond a threshold, or as many as there truly are."""
    losses = {
        "accuracy": (alone.accuracy, ACCURACY_LOSS),
        "logit difference": (alone.lead, LEAD_LOSS * abs(alone.whole_lead)),
    }
    found: dict[str, dict[str, set[Any]]] = {}
    for name, (loss, least) in losses.items():
        found[f"ablation, {name}, threshold"] = {
            "facilitating": set(np.flatnonzero(loss > least).tolist()),
            "interfering": set(np.flatnonzero(loss < -least).tolist()),
            "irrelevant": set(np.flatnonzero(np.abs(loss) <= least).tolist()),
        }
        found[f"ablation, {name}, top k"] = {
            "facilitating": _first(-loss, len(truth.facilitating)),
            "interfering": _first(loss, len(truth.interfering)),
            "irrelevant": _first(np.abs(loss), len(truth.irrelevant)),
        }
    return found


def _first(values: Array, k: int) -> set[int]:
    """The k smallest; of equal ones those that come first."""
    return set(np.argsort(values, kind="stable")[:k].tolist())


def _as_sets(roles: Roles) -> dict[str, set[Any]]:
    return {role: set(getattr(roles, role)) for role in ROLES}


def _about(planted: Planted, found: dict[str, set[Any]], *, check: bool) -> dict[str, Any]:
    """Describe a model and, if asked, what of the planted truth brute force does not confirm."""
    truth = _as_sets(planted.truth)
    everything = np.array([(1 << len(planted.words)) - 1])
    right = run_groups(planted, everything).argmax(axis=2) == right_answers(planted)
    row = {
        "kind": planted.kind,
        "heads": len(planted.words),
        "planted": ", ".join(planted.words),
        "accuracy": float(right.mean()),
        "exact": found == truth,
        "wrong": ", ".join(role for role in ROLES if found[role] != truth[role]),
    }
    return {**row, "unconfirmed": "; ".join(complaints(planted))} if check else row


def _counts(found: dict[str, dict[str, set[Any]]], truth: Roles) -> list[dict[str, Any]]:
    """Count hits, false alarms and misses."""
    there = _as_sets(truth)
    return [
        {
            "method": method,
            "role": role,
            "hits": len(said & there[role]),
            "false_alarms": len(said - there[role]),
            "misses": len(there[role] - said),
        }
        for method, by_role in found.items()
        for role, said in by_role.items()
    ]


def scores(counts: pd.DataFrame) -> pd.DataFrame:
    """Precision and recall over all models, by noise, method and role."""
    sums = counts.groupby(["noise", "method", "role"], sort=False)[
        ["hits", "false_alarms", "misses"]
    ].sum()
    sums["precision"] = sums["hits"] / (sums["hits"] + sums["false_alarms"])
    sums["recall"] = sums["hits"] / (sums["hits"] + sums["misses"])
    return sums.reset_index()


def numbers(models: pd.DataFrame, table: pd.DataFrame) -> dict[str, float]:
    """What a benchmark keeps: precision and recall of our roles, and of the best ablation's."""
    kept: dict[str, float] = {"models": float(models["seed"].nunique())}
    for level, some in models.groupby("noise"):
        kept[f"exact_noise_{level:g}"] = float(some["exact"].mean())
    for row in table[table["method"] == OURS].to_dict("records"):
        for kind in ("precision", "recall"):
            kept[f"{row['role']}_{kind}_noise_{row['noise']:g}"] = float(row[kind])
    return kept


def markdown(table: pd.DataFrame) -> str:
    """Write precision and recall as a table, a row per noise and role."""
    methods = list(table["method"].unique())
    lines = [f"| noise | role | {' | '.join(methods)} |", "|---" * (2 + len(methods)) + "|"]
    for (noise, role), rows in table.groupby(["noise", "role"], sort=False):
        by_method = {row["method"]: row for row in rows.to_dict("records")}
        cells = [
            f"{_three(row['precision'])} / {_three(row['recall'])}" if row else ""
            for row in map(by_method.get, methods)
        ]
        lines.append(f"| {noise:.0%} | {role} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _three(share: float) -> str:
    """Three decimals, rounded down: only what is 1 is written as 1."""
    return "–" if np.isnan(share) else f"{np.floor(share * 1000 + 1e-9) / 1000:.3f}"


def figure(table: pd.DataFrame) -> Figure:
    """Draw precision and recall of every method, by noise and role."""
    drawn = NotebookFigure(figsize=(11, 5.4), layout="constrained")
    levels, methods = table["noise"].unique(), table["method"].unique()
    axes = drawn.subplots(2, len(levels), sharex=True, sharey=True, squeeze=False)
    colours = dict(zip(methods, (FOUR, FIVE, "#F0B48A", END, "#8FD0BC"), strict=True))
    for row, kind in zip(axes, ("precision", "recall"), strict=True):
        for axis, level in zip(row, levels, strict=True):
            for at, method in enumerate(methods):
                some = table[(table["noise"] == level) & (table["method"] == method)]
                # Ablation says nothing about pairs: there one bar stands alone.
                offset = np.where(some["role"].isin(PAIRS), 0.0, 0.16 * (at - 2))
                x = np.array([ROLES.index(role) for role in some["role"]]) + offset
                axis.bar(x, some[kind], 0.15, color=colours[method], label=method)
            axis.set(ylim=(0, 1.04), xlim=(-0.5, len(ROLES) - 0.5), xticks=range(len(ROLES)))
            axis.set_xticklabels(ROLES, rotation=25, ha="right")
            axis.axhline(1, color=NEUTRAL, lw=0.6, zorder=0)
        row[0].set_ylabel(kind)
    for axis, level in zip(axes[0], levels, strict=True):
        axis.set_title("no noise" if level == 0 else f"weights with {level:.0%} noise")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return drawn


def judge(seeds: Iterable[int], out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Run models, and write a table of them, the scores, and a figure."""
    models, counts = run(seeds)
    table = scores(counts)
    out.mkdir(parents=True, exist_ok=True)
    for name, frame in (("models", models), ("scores", table)):
        text = frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
        write_atomically(out / f"{name}.csv", text.encode())
    write_atomically(out / "scores.svg", as_bytes(figure(table), "svg"))
    return models, table


def main() -> None:
    """Run the judged models, or those of development, and write tables and figure."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.ground_truth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--development", action="store_true", help="50 models for development")
    parser.add_argument("--models", type=int, help="only the first so many")
    arguments = parser.parse_args()
    seeds = DEVELOPMENT if arguments.development else JUDGED
    models, table = judge(seeds[: arguments.models], arguments.out)
    unconfirmed = models["unconfirmed"].fillna("").ne("").sum()
    print(table.to_string(index=False, float_format="{:.3f}".format))
    print(f"\n{unconfirmed} of {len(seeds[: arguments.models])} planted truths were not confirmed")
    print(models.groupby("noise")[["accuracy", "exact"]].mean().to_string())
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
