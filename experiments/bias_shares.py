"""Where the biases of heads come from: initialisation, the second task, or both, in which shares.

The *bias* of a head is the answer that its direct logit attribution favours on at least 95 % of the
test sentences: 4 or 5, or 0 if there is none. A seed fixes the initial parameters of a model, so
head i of a seed is the same head at the start and after every training from it. A head that is
biased after training with the second task belongs to one of four origins, by its bias at the start
and after training without that task:

    bias to the same answer    also without the task     not without the task
    at the start               `initialisation`          `both`
    not at the start           `answer_task`             `only_with_second_task`

`initialisation` was there and needs no second task to stay; `both` was there and stays only with
it; `answer_task` grows where the answer alone is trained; the last is there only with the second
task. The four add up to 1. A bias to the other answer is not the same bias.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

import count01_lens as cl
from count01_lens.common.types import Array
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.runners import CountRunner
from count01_lens.jobs.job import Job
from count01_lens.models.parameters import initial_raw
from count01_lens.tasks.count01 import CountPrompts
from count01_lens.tasks.dataset import Split
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS
from count01_lens.training.evolution import split_stack
from count01_lens.training.recipe import SecondTask
from count01_lens.training.stack import count_form_of, to_rows

ONE_SIDED = 0.95
# With the beginning of what is said of each.
ORIGINS = {
    "initialisation": "initialisation alone (at the start, and without the second task",
    "both": "initialisation and the second task (at the start, but not without that task",
    "answer_task": "the answer task (not at the start, but without the second task",
    "only_with_second_task": "the second task alone (not at the start, and not without it",
}


def bias_of(one_sided: Any, favours_four: Any) -> Int[Array, " head"]:
    """Name the answer that a head is biased to: 4, 5, or 0 for none.

    The sign of a mean margin would not do: a few sentences with large margins can turn it.

    Args:
        one_sided: how often it favours the answer that it favours more often.
        favours_four: how often it favours '4'.
    """
    answer = np.where(np.asarray(favours_four) > 0.5, 4, 5)
    return np.asarray(np.where(np.asarray(one_sided) >= ONE_SIDED, answer, 0))


def origins(start: Any, trained: Any, without: Any) -> dict[str, float]:
    """Share out the biased heads of one trained model among their origins.

    `kept_from_start` (biased to the same answer at the start) is `initialisation` and `both`;
    `without_it_too` (the same after training without the task) is `initialisation` and
    `answer_task`. What ends in `_by_chance` is the mean of the same share if the heads of the model
    were paired at random, each time with as many heads biased to each answer as there are.

    Args:
        start, trained, without: biases (4, 5 or 0) of the same heads at the start, after training
            with the second task, and without it.

    Returns:
        shares of the heads that are biased in `trained`; NaN if there are none.
    """
    start, trained, without = (np.asarray(each) for each in (start, trained, without))
    biased = trained[trained != 0]
    shares = _shares((start == trained)[trained != 0], (without == trained)[trained != 0])
    chance = _shares(_rate_of(biased, start), _rate_of(biased, without))
    return shares | {f"{name}_by_chance": value for name, value in chance.items()}


def shared_biases(trained: Any, other: Any) -> tuple[float, float]:
    """Share of the biased heads whose bias is the same in another training, and that by chance."""
    trained, other = np.asarray(trained), np.asarray(other)
    biased = trained[trained != 0]
    return _mean((other == trained)[trained != 0]), _mean(_rate_of(biased, other))


def origins_by_seed(biases: pd.DataFrame, start: str) -> pd.DataFrame:
    """Share out the biased heads of each model trained with '[EOS]'; a row per seed.

    `copy_too` and its like: which of their biases are the same under another condition. That of
    another token says how alike two trainings are whose tasks are of one kind: only what is less
    alike than that can be put down to the second task.

    Args:
        biases: a row per seed and head, a column for the start and each condition.
        start: the name of the first.
    """
    found = {}
    for seed, table in biases.groupby(level="seed"):
        row = origins(table[start], table["with"], table["without"])
        for name in ("copy", "other_token", "frozen"):
            same = shared_biases(table["with"], table[name])
            row[f"{name}_too"], row[f"{name}_too_by_chance"] = same
        found[seed] = row
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("seed")


def compared(difference: Mapping[str, Any]) -> str:
    """Put a difference into words, by its 95 % interval over seeds."""
    if difference["low"] is None:
        return "against"
    if difference["low"] > 0:
        return "more than the"
    return "fewer than the" if difference["high"] < 0 else "not clearly different from the"


def _rate_of(
    answers: Int[Array, " biased"], biases: Int[Array, " head"]
) -> Float[Array, " biased"]:
    """How many of all heads are biased to each of these answers."""
    return np.asarray([np.mean(biases == answer) for answer in answers], dtype=float)


def _shares(start: Array, without: Array) -> dict[str, float]:
    """Mean of every cell, for heads that are in its row and column or are with a probability."""
    start, without = start.astype(float), without.astype(float)
    named = {
        "initialisation": start * without,
        "both": start * (1 - without),
        "answer_task": (1 - start) * without,
        "only_with_second_task": (1 - start) * (1 - without),
        "kept_from_start": start,
        "without_it_too": without,
    }
    return {name: _mean(values) for name, values in named.items()}


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")


def measured_again(job: Job, value: dict[str, Any]) -> pd.DataFrame:
    """Measure what a job's table of heads lacks, from the parameters at the start and at the end.

    Returns:
        a row per model, epoch and head: `favours_four`, how often it favours '4' on the test split;
        `second_accuracy`, of the whole model in the second task of its recipe.
    """
    recipes = [cl.TrainConfig.from_dict(recipe) for recipe in job.configuration["recipes"]]
    shared = recipes[0]
    pairs = [(recipe, seed) for recipe in recipes for seed in job.configuration["seeds"]]
    start = to_rows([initial_raw(recipe.model, seed, recipe.dtype) for recipe, seed in pairs])
    test = cl.make_splits(shared.data_seed).test
    tables = []
    for epoch, rows in ((0, start), (shared.epochs, torch.from_numpy(value["rows"]))):
        for model, form in enumerate(split_stack(count_form_of(rows, shared.model))):
            columns = {
                "favours_four": favours_four(form, test),
                "second_accuracy": second_accuracy(form, test, shared.second_task),
            }
            tables.append(pd.DataFrame({"model": model, "epoch": epoch, **columns}))
    return pd.concat([table.rename_axis("head").reset_index() for table in tables])


def favours_four(form: CountForm, split: Split) -> Float[Array, " head"]:
    """How often the direct logit attribution of each head of a model is larger for '4'."""
    heads = CountRunner(form).attribute(CountPrompts(split, AT_EQUALS)).heads
    four = heads[:, :, Token.FOUR] > heads[:, :, Token.FIVE]
    return np.asarray(four.double().mean(dim=0).numpy())


def second_accuracy(form: CountForm, split: Split, task: SecondTask) -> float:
    """How often the largest logit after the answer is that of the token that a recipe asks for."""
    said = CountRunner(form).logits(CountPrompts(split, AT_ANSWER)).argmax(dim=-1)
    wanted = {
        "end": torch.full_like(said, Token.EOS),
        "other_token": torch.full_like(said, Token.TWO),
        "copy": torch.where(split.labels, Token.FOUR, Token.FIVE),
    }
    return float((said == wanted[task]).double().mean())
