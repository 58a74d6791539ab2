"""The headline claims of the paper, measured on a few models at any moment of their training.

Every number has the definition of its row (F1 to F5, E1), but for one: the s-acc of groups of four
heads is the median of a fixed sample of groups, where the row F4 fits all 1,820. Of several models
it is the mean; those without a number, such as w02 where no head is successful, are left out.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from sklearn.isotonic import IsotonicRegression

import count01_lens as cl
from count01_lens.common.types import Array
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.head_data import HeadData, collect
from count01_lens.heads.metrics import Groups
from count01_lens.heads.runners import CountRunner
from count01_lens.tasks.count01 import Count01
from count01_lens.training.evolution import head_metrics, split_stack
from count01_lens.training.recipe import remaining_rate, steps_per_epoch
from count01_lens.training.stack import Rows, places_of
from count01_lens.training.trainer import TrainingDivergedError
from experiments.claims import CLAIMS, HEADLINE, Verdict
from experiments.logits_of_heads import ONE_SIDED
from experiments.paper_targets import LOWEST_ACCURACY, correlation
from experiments.recipe_design import recipe_id
from experiments.runs import share

CLAIM_OF = {claim.id: claim for claim in CLAIMS}
SAMPLED_FOURS, SAMPLE_SEED = 60, 4
# Raw parameters by what they decide: where heads look, what they then say, and what both read.
PARTS = {
    "qk": ("W_Q", "W_K", "b_Q", "b_K"),
    "ov": ("W_V", "b_V", "W_out", "b_out", "W_O", "b_O", "W_U", "b_U"),
    "embedding": ("W_E", "ln_w", "ln_b"),
}
# What might tell all by itself how many claims hold.
ORDERS = ("sum_of_rates", "travelled", *(f"travelled_{part}" for part in PARTS), "steps")
OF_TRAINING = (*ORDERS, "accuracy")


def headline_numbers(form: CountForm, splits: cl.Splits) -> dict[str, float]:
    """Measure the accuracy of one model, given as its token tables, and every headline claim."""
    heads = head_metrics(form, splits)
    data = collect(CountRunner(form), Count01(splits))
    successful = heads[heads["category"] == "successful"]
    accuracy = float(heads["accuracy"].iloc[0])
    return {
        "accuracy": accuracy,
        "F2.sixteen_heads": float(accuracy >= 0.99),
        "F1.biased": share(heads["one_sided"] >= ONE_SIDED),
        "F3.successful": share(heads["category"] == "successful"),
        "F3.failed": share(heads["category"] == "failed"),
        "F3.singles_at_half": share(heads["l_acc"].between(0.45, 0.55)),
        "F3.pairs_above_80": float((_l_acc_of_size(data, 2) > 0.80).sum()),
        "F4.four_heads_separate": _s_acc_of_fours(data),
        "F4.most_heads_needed": _heads_for_strong(data),
        "F5.w02_above_ten": share(successful["w02"] > 10),
        "E1.single": share(heads["eos_l_acc"] == 1),
    }


def _of_size(n_heads: int, size: int) -> Bool[Array, "group head"]:
    groups = list(itertools.combinations(range(n_heads), size))
    masks = np.zeros((len(groups), n_heads), dtype=bool)
    masks[np.arange(len(groups))[:, None], np.array(groups, dtype=int)] = True
    return masks


def _l_acc_of_size(data: HeadData, size: int) -> Float[Array, " group"]:
    # l-acc asks about the answer alone; '[EOS]' among eight tokens would cost seven times as much.
    answer = replace(data, asked={"answer": data.answer})
    return Groups(answer, _of_size(data.n_heads, size)).accuracy["answer"]


def _s_acc_of_fours(data: HeadData) -> float:
    """Median over the sample; over all groups of four where there are fewer."""
    masks = _of_size(data.n_heads, 4)
    rng = np.random.default_rng(SAMPLE_SEED)
    chosen = rng.choice(len(masks), min(SAMPLED_FOURS, len(masks)), replace=False)
    return float(np.median(Groups(data, masks[chosen]).probe_accuracy))


def _heads_for_strong(data: HeadData) -> float:
    """The smallest size of groups with a median l-acc of at least 0.90, or one more than all."""
    # Larger groups need not be looked at once one is found, which is most of the time.
    for size in range(1, data.n_heads + 1):
        if np.median(_l_acc_of_size(data, size)) >= 0.90:
            return float(size)
    return float(data.n_heads + 1)


def verdicts(values: Mapping[str, float]) -> dict[str, Verdict]:
    """Judge every headline claim by its own thresholds."""
    return {name: CLAIM_OF[name].judge(values[name]) for name in HEADLINE}


def held(values: Mapping[str, float]) -> int:
    """Count headline claims that hold: those reproduced. One without a number does not hold."""
    return sum(verdict == "reproduced" for verdict in verdicts(values).values())


def train_and_follow(
    recipes: list[dict[str, Any]], seeds: list[int], epochs: list[int]
) -> dict[str, Any]:
    """Train recipes together; measure every model after some epochs.

    One that diverges takes the others of its stack along, so these are then trained one by one.
    """
    configs = [cl.TrainConfig.from_dict(values) for values in recipes]
    try:
        rows = [*_followed(configs, seeds, epochs)]
    except TrainingDivergedError:
        rows = [row for config in configs for row in _alone(config, seeds, epochs)]
    return {"models": pd.DataFrame(rows)}


def _alone(
    config: cl.TrainConfig, seeds: Sequence[int], epochs: Sequence[int]
) -> list[dict[str, Any]]:
    try:
        return [*_followed([config], seeds, epochs)]
    except TrainingDivergedError:
        nothing = dict.fromkeys([*OF_TRAINING, *HEADLINE], math.nan)
        names = ("recipe", "epoch", "seed")
        places = itertools.product([recipe_id(config)], epochs, seeds)
        return [dict(zip(names, place, strict=True)) | nothing for place in places]


def _followed(
    configs: Sequence[cl.TrainConfig], seeds: Sequence[int], epochs: Sequence[int]
) -> Iterator[dict[str, Any]]:
    splits = cl.make_splits(configs[0].data_seed)
    per_epoch = steps_per_epoch(configs[0], splits)
    result = cl.train(
        configs, seeds=seeds, splits=splits, snapshot_epochs=[0, *epochs], progress=False
    )
    start = result.snapshots[0]
    for epoch in epochs:
        steps = epoch * per_epoch
        moved = travelled(start, result.snapshots[steps], configs[0].model)
        forms = split_stack(result.count_form(epoch=epoch))
        for number, (config, seed) in enumerate(zip(result.configs, result.seeds, strict=True)):
            yield {
                "recipe": recipe_id(config),
                "epoch": epoch,
                "seed": seed,
                "steps": steps,
                "sum_of_rates": sum_of_rates(config, steps, per_epoch),
                **{name: float(distances[number]) for name, distances in moved.items()},
                **headline_numbers(forms[number], splits),
            }


def sum_of_rates(config: cl.TrainConfig, steps: int, per_epoch: int) -> float:
    """Add up the learning rates of the first steps of a training."""
    last = config.epochs * per_epoch
    left = [remaining_rate(config.decay, step / last) for step in range(steps)]
    return config.learning_rate * float(np.sum(left))


def travelled(start: Rows, end: Rows, model: cl.ModelConfig) -> dict[str, torch.Tensor]:
    """How far weights went from their start, over their length there: all of them, and by part."""
    parts = {f"travelled_{part}": places_of(names, model) for part, names in PARTS.items()}
    parts["travelled"] = torch.arange(start.shape[1])
    return {
        name: (end - start)[:, places].norm(dim=1) / start[:, places].norm(dim=1)
        for name, places in parts.items()
    }


def map_table(models: pd.DataFrame) -> pd.DataFrame:
    """Put the seeds of each recipe and moment together: values, verdicts, and how many hold."""
    rows = []
    for (recipe, epoch), of_moment in models.groupby(["recipe", "epoch"], sort=False):
        means = of_moment[[*OF_TRAINING, *HEADLINE]].mean()
        values = {str(name): float(value) for name, value in means.items()}
        found = verdicts(values)
        rows.append(
            {
                "recipe": recipe,
                "epoch": epoch,
                "seeds": len(of_moment),
                **values,
                **{f"{name}.verdict": verdict for name, verdict in found.items()},
                "held": held(values),
                "share_held": held(values) / len(HEADLINE),
                "solves": bool(values["accuracy"] >= LOWEST_ACCURACY),
            }
        )
    table = pd.DataFrame(rows)
    table["at_end"] = table["epoch"] == table.groupby("recipe")["epoch"].transform("max")
    return table


def rank_correlation(first: pd.Series, second: pd.Series) -> float:
    """Spearman's; NaN where one of the two does not vary, or there are fewer than three."""
    return correlation(rankdata(first), rankdata(second))


def order_table(models: pd.DataFrame, moments: pd.DataFrame) -> pd.DataFrame:
    """Say how well each single number orders trainings that solve the task, at all moments.

    Returns:
        a row per number: its rank correlation with the share of claims that hold, over recipes and
        moments; and R² of the best falling curve for the share that hold in each model by itself:
        fitted to all models, and to those of the other recipes. The last row is the ceiling: a
        value of its own for each recipe and moment.
    """
    solving = moments[moments["solves"]]
    places = pd.MultiIndex.from_frame(solving[["recipe", "epoch"]])
    singles = models[pd.MultiIndex.from_frame(models[["recipe", "epoch"]]).isin(places)]
    shares = singles[list(HEADLINE)].apply(held, axis=1).astype(float) / len(HEADLINE)
    singles = singles.assign(share_held=shares)
    rows = [
        {
            "order": name,
            "spearman": rank_correlation(solving[name], solving["share_held"]),
            **_falling_fits(singles, name),
        }
        for name in ORDERS
    ]
    by_cell = singles.groupby(["recipe", "epoch"])["share_held"].transform("mean")
    rows.append({"order": "recipe and epoch", "r2": _r2(singles["share_held"], by_cell)})
    return pd.DataFrame(rows, columns=["order", "spearman", "r2", "r2_of_other_recipes"])


def order_by_claim(moments: pd.DataFrame) -> pd.DataFrame:
    """Say how well each single number orders the *value* of each claim, over the same moments.

    Returns:
        a row per claim and number: rank correlation, and R² of the best curve that only falls or
        only rises; NaN where a claim has fewer than three values, or always the same.
    """
    rows = []
    for claim, order in itertools.product(HEADLINE, ORDERS):
        known = moments[moments["solves"] & moments[claim].notna()]
        rank = rank_correlation(known[order], known[claim])
        r2 = math.nan if math.isnan(rank) else _r2_of_curve(known, order, claim, rank > 0)
        rows.append({"claim": claim, "order": order, "spearman": rank, "r2": r2})
    return pd.DataFrame(rows)


def _r2_of_curve(known: pd.DataFrame, order: str, claim: str, rising: bool) -> float:
    curve = IsotonicRegression(increasing=rising)
    return _r2(known[claim], curve.fit_transform(known[order], known[claim]))


def _falling_fits(singles: pd.DataFrame, name: str) -> dict[str, float]:
    if singles["recipe"].nunique() < 2:
        return {}
    fitted = _falling(singles, singles, name)
    by_others = pd.Series(0.0, index=singles.index)
    for recipe in singles["recipe"].unique():
        own = singles["recipe"] == recipe
        by_others[own] = _falling(singles[~own], singles[own], name)
    y = singles["share_held"]
    return {"r2": _r2(y, fitted), "r2_of_other_recipes": _r2(y, by_others)}


def _falling(known: pd.DataFrame, asked: pd.DataFrame, name: str) -> Any:
    curve = IsotonicRegression(increasing=False, out_of_bounds="clip")
    return curve.fit(known[name], known["share_held"]).predict(asked[name])


def _r2(y: pd.Series, fitted: Any) -> float:
    spread = float(((y - y.mean()) ** 2).sum())
    return 1 - float(((y - fitted) ** 2).sum()) / spread if spread > 0 else math.nan
