"""How heads ignore '2': by attention after few small steps, by its value after many large ones.

A head with a linear probe f(z) = w·z + b decides by α + β0·n0 + β1·n1 + β2·n2 > 0, where
β_t = e^{S_t} f(v_t). So '2' is ignored where it is not looked at, or where its value lies on the
separator. In natural logarithms, and at least 0,

    A = (S_0 + S_1) / 2 − S_2                  how much less a '2' is looked at than '0' and '1'
    V = log √|f(v_0) f(v_1)| − log |f(v_2)|    how much less its value says

A + V tells how much weaker a '2' acts, and A / (A + V) is the share of attention in it.
"""

import dataclasses
import sys
from typing import Any

import numpy as np
import pandas as pd

import count01_lens as cl
from count01_lens.common.text import number, plural, rounded_percent
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.mechanism import attention_share, lead_of
from count01_lens.counts.readout import CountReadout, attention_ratios, readout
from count01_lens.heads.head_data import collect
from count01_lens.heads.metrics import Groups
from count01_lens.heads.runners import CountRunner
from count01_lens.heads.thresholds import SUCCESSFUL
from count01_lens.jobs.job import Job
from count01_lens.training.recipe import remaining_rate, training_cost
from count01_lens.views.figures import END, FIVE, FOUR, NEUTRAL, NotebookFigure
from experiments.runs import by_seed, main_jobs, models_of, recipe_of
from experiments.setup import Setup, contrast_setup
from experiments.suite import Load, Measured, Shown, main, spread

ROW, TITLE = "P2", "How heads ignore '2'"
CONTRAST = False
PAPER = "Successful heads have w02 > 10: they do not look at '2'"
VERSION = "1"
FOLLOWED_SEED = 9100  # of no other row
MOMENTS = 20
QUICK = 0.1  # how much of the way a quick run follows
RECIPES = {"paper": "the paper's recipe", "accurate": "the accurate recipe"}
Row = dict[str, Any]


def jobs(setup: Setup) -> list[Job]:
    """The main runs of both recipes, which other rows need, too, and one run followed closely."""
    return [*main_jobs(setup), *main_jobs(contrast_setup(setup.size)), followed_job(setup)]


def followed_job(setup: Setup) -> Job:
    """A run that is looked at before training, and then at moments evenly apart in logarithms."""
    recipe = followed_recipe(setup)
    moments = np.geomspace(1, recipe.epochs, MOMENTS).round().astype(int)
    epochs = sorted({0, *moments.tolist()})
    configuration = {"recipe": recipe.to_dict(), "seed": FOLLOWED_SEED, "epochs": epochs}
    cost = training_cost(recipe, 1) + len(epochs) / 3
    return Job("hand-over", follow, configuration, VERSION, cost)


def followed_recipe(setup: Setup) -> cl.TrainConfig:
    """The paper's recipe, kept up: its first learning rate, for as long as it takes to go as far.

    As far as the accurate recipe goes, that is: until the learning rates of all steps add up to as
    much as there, because Adam's steps are about as long as the learning rate.
    """
    recipe, far = setup.recipe, contrast_setup(setup.size).recipe
    mean_rate = remaining_rate(far.decay, 0.5)  # linear or cosine, half of it on average
    epochs = far.epochs * mean_rate * far.learning_rate / recipe.learning_rate
    epochs *= recipe.batch_size / far.batch_size * (1 if setup.size == "full" else QUICK)
    return dataclasses.replace(recipe, decay="none", epochs=max(3, round(epochs)))


def follow(recipe: Row, seed: int, epochs: list[int]) -> dict[str, pd.DataFrame]:
    """Train one model; look at every head after some epochs."""
    config = cl.TrainConfig.from_dict(recipe)
    splits = cl.make_splits(config.data_seed)
    result = cl.train(config, seeds=[seed], snapshot_epochs=epochs, splits=splits, progress=False)
    tables = {e: heads_of(result.count_form(epoch=e), cl.Count01(splits)) for e in epochs}
    moments = pd.concat(tables, names=["epoch", "row"]).reset_index().drop(columns="row")
    return {"moments": moments}


def heads_of(form: CountForm, task: cl.Task) -> pd.DataFrame:
    """Fit a probe to every head of one model, and tell how it ignores '2': a row each.

    score0 to score2 are the row of '=' of its QK table, value0 to value2 what the probe reads from
    the values of these tokens; alpha to beta2 are in units of |beta1| (see `CountReadout`).
    """
    data = collect(CountRunner(form), task)
    singles = Groups(data, np.eye(data.n_heads, dtype=bool))
    w01, w02 = attention_ratios(form)
    table = pd.DataFrame({"s_acc": singles.probe_accuracy, "w01": w01, "w02": w02})
    rows, d_head = [], data.d_head
    for head, weights in enumerate(singles.fits.weights):
        own = weights[head * d_head : (head + 1) * d_head]
        rows.append(_row(readout(form, head, own, float(weights[-1]))))
    return table.join(pd.DataFrame(rows)).rename_axis("head").reset_index()


def _row(read: CountReadout) -> Row:
    a, v = leads(read)
    coefficients = zip(("alpha", "beta0", "beta1", "beta2"), read.coefficients, strict=True)
    scores = {f"score{token}": read.scores[1 + token] for token in range(3)}
    values = {f"value{token}": read.values[1 + token] for token in range(3)}
    share = {"A": a, "V": v, "attention_share": attention_share(a, v)}
    return {**share, **scores, **values, **dict(coefficients), "inequality": str(read)}


def leads(read: CountReadout) -> tuple[float, float]:
    """A and V: how far '0' and '1' are ahead of '2' in attention, and in what the probe reads."""
    with np.errstate(divide="ignore"):
        sizes = np.log(np.abs(read.values[1:4]))
    return lead_of(read.scores[1:4], (0, 1), 2), lead_of(sizes, (0, 1), 2)


def measure(load: Load, setup: Setup) -> Measured:
    """Compare the heads of both recipes, and follow those of one run."""
    tables = []
    for name, of_recipe in zip(RECIPES, (setup, contrast_setup(setup.size)), strict=True):
        task = cl.Count01(cl.make_splits(of_recipe.recipe.data_seed))
        for job in main_jobs(of_recipe):
            for seed, model in models_of(job, load(job)).items():
                heads = heads_of(CountForm.from_models([model]), task)
                tables.append(heads.assign(recipe=name, seed=seed))
    heads = pd.concat(tables, ignore_index=True).set_index(["recipe", "seed"]).reset_index()
    good = heads[heads["s_acc"] >= SUCCESSFUL].reset_index(drop=True)
    return assembled(good, moments_of(load(followed_job(setup))["moments"]), setup)


def moments_of(heads: pd.DataFrame) -> pd.DataFrame:
    """Keep the heads that are successful at the last moment, at all moments."""
    last = heads[heads["epoch"] == heads["epoch"].max()]
    kept = heads["head"].isin(last.loc[last["s_acc"] >= SUCCESSFUL, "head"])
    return heads[kept].reset_index(drop=True)


def assembled(heads: pd.DataFrame, moments: pd.DataFrame, setup: Setup) -> Measured:
    """Put numbers, words and figures together; there may be no successful heads at all."""
    of = {name: heads[heads["recipe"] == name] for name in RECIPES}
    shares = {name: spread(by_seed(table, lambda rows: rows["attention_share"].median()))
              for name, table in of.items()}  # fmt: skip
    numbers: Row = {"attention_first": shares["paper"], "value_later": shares["accurate"]}
    numbers |= {f"{name}_heads": len(table) for name, table in of.items()}
    figures = {"heads": _scatter(of)}
    found = [_of_recipe(of[name], shares[name], text) for name, text in RECIPES.items()]
    shows = f"Share of attention in ignoring '2': {'; '.join(found)}. "
    if len(moments):
        chosen = _chosen(moments)
        numbers |= chosen
        shows += _followed(moments, chosen)
        figures |= {"hand_over": _along(moments, chosen), "one_head": _one_head(moments, chosen)}
    else:
        shows += "No head of the followed run is successful at its end."
    recipes = [setup.recipe, contrast_setup(setup.size).recipe, followed_recipe(setup)]
    seeds = [seed for job in main_jobs(setup) for seed in job.configuration["seeds"]]
    tables = {"heads": heads, "moments": moments}
    return Measured(numbers, shows, tables, figures, [*seeds, FOLLOWED_SEED], recipe_of(recipes))


def _of_recipe(heads: pd.DataFrame, found: Row, text: str) -> str:
    if not len(heads):
        return f"no head of {text} is successful"
    middle = heads[["A", "V", "w02"]].median()
    share = "–" if found["mean"] is None else rounded_percent(found["mean"])
    return (
        f"{share} with {text} ({plural(len(heads), 'successful head')}; medians: A "
        f"{number(middle['A'], 2)}, V {number(middle['V'], 2)}, w02 {number(middle['w02'], 3)})"
    )


def _chosen(moments: pd.DataFrame) -> Row:
    """Choose two moments and a head by a rule: none is picked by eye.

    The earlier moment is that of the largest median share of attention; the head is, of those that
    were successful by then, the one in the middle by how much its share changes until the end.
    """
    late = int(moments["epoch"].max())
    medians = moments.groupby("epoch")["attention_share"].median()
    early: Any = medians.drop([0, late]).fillna(0).idxmax()
    at = {epoch: moments[moments["epoch"] == epoch].set_index("head") for epoch in (early, late)}
    already = at[early]["s_acc"] >= SUCCESSFUL
    change = (at[late]["attention_share"] - at[early]["attention_share"]).fillna(0)
    order = (change[already] if already.any() else change).sort_values(kind="stable").index
    shares = {name: spread([medians[epoch]])["mean"]
              for name, epoch in (("early_share", early), ("late_share", late))}  # fmt: skip
    epochs = {"early_epoch": int(early), "late_epoch": late}
    heads = {"followed_heads": len(at[late]), "shown_head": int(order[len(order) // 2])}
    return {**epochs, **shares, **heads}


def _followed(moments: pd.DataFrame, chosen: Row) -> str:
    """Say how the followed run went, whichever way that was."""
    early, late = chosen["early_epoch"], chosen["late_epoch"]
    medians = moments.groupby("epoch")[["A", "V"]].median()
    steps = [
        f"A {number(medians.loc[epoch, 'A'], 2)} and V {number(medians.loc[epoch, 'V'], 2)} "
        + (f"after epoch {epoch:,}" if epoch else "before training")
        for epoch in sorted({0, early, late})
    ]
    head = moments[moments["head"] == chosen["shown_head"]].set_index("epoch")
    read = [f"{head.loc[epoch, 'inequality']} (w02 = {number(head.loc[epoch, 'w02'], 3)})"
            for epoch in (early, late)]  # fmt: skip
    return (
        f"The paper's recipe kept up for {late:,} epochs (seed {FOLLOWED_SEED}; medians of the "
        f"{plural(chosen['followed_heads'], 'head')} successful at the end): "
        f"{', '.join(steps)}. The probe of head {chosen['shown_head']} decides by {read[0]} after "
        f"epoch {early:,}, and by {read[1]} at the end."
    )


def _scatter(of: dict[str, pd.DataFrame]) -> Shown:
    figure = NotebookFigure(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.add_subplot()
    known = pd.concat([table[["A", "V"]] for table in of.values()]).to_numpy()
    edge = 1.05 * float(np.max(known[np.isfinite(known)], initial=1))
    inside = (-0.02 * edge, 1.02 * edge)
    axes.plot([0, edge], [0, edge], color=NEUTRAL, lw=0.8, ls=":")
    for (name, table), colour, marker in zip(of.items(), (FOUR, FIVE), "o^", strict=True):
        label = f"{RECIPES[name]} ({plural(len(table), 'head')})"
        a, v = table["A"].clip(upper=edge), table["V"].clip(upper=edge)
        axes.scatter(a, v, c=colour, marker=marker, s=28, alpha=0.6, lw=0, label=label)
    axes.set(xlabel="A: how much less '2' is looked at", ylabel="V: how much less its value says")
    axes.set(title="How successful heads ignore '2' (natural logs)", xlim=inside, ylim=inside)
    axes.legend()
    below = [rounded_percent(float((table["A"] > table["V"]).mean())) if len(table) else "none"
             for table in of.values()]  # fmt: skip
    caption = (
        "Below the dotted line attention does more, above it the value: below are "
        f"{below[0]} of the heads of {RECIPES['paper']}, {below[1]} of {RECIPES['accurate']}."
    )
    if beyond := int(np.isinf(known).any(axis=1).sum()):
        caption += f" Of {plural(beyond, 'head')} one of the two is infinite, drawn at the edge."
    return Shown(figure, "Scatter plot of A and V of the successful heads of two recipes", caption)


def _along(moments: pd.DataFrame, chosen: Row) -> Shown:
    figure = NotebookFigure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    trained = moments[moments["epoch"] > 0].groupby("epoch")
    labels = ("A: how much less '2' is looked at", "V: how much less its value says")
    for name, text, colour, style in zip("AV", labels, (FOUR, FIVE), ("o-", "^--"), strict=True):
        # Nothing is interpolated between quartiles that may be infinite; those are not drawn.
        low, high = (trained[name].quantile(q, "nearest") for q in (0.25, 0.75))
        middle = trained[name].median()
        axes.fill_between(middle.index, low, high, color=colour, alpha=0.18, lw=0)
        axes.plot(middle.index, middle, style, color=colour, ms=5, label=text)
    axes.axvline(chosen["early_epoch"], color=NEUTRAL, lw=0.8, ls=":")
    axes.set(xscale="log", xlabel="epoch", ylabel="natural logarithm", ylim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(f"{plural(chosen['followed_heads'], 'head')} of one run (seed {FOLLOWED_SEED})")
    axes.legend()
    caption = (
        "Medians and quartiles over the heads that are successful at the end; the learning rate "
        f"stays. Dotted: epoch {chosen['early_epoch']:,}, where the median share of attention was "
        f"largest before the end: {number(chosen['early_share'], 2)}; at the end it is "
        f"{number(chosen['late_share'], 2)}."
    )
    return Shown(figure, "Medians of A and V over the epochs of one run", caption)


def _one_head(moments: pd.DataFrame, chosen: Row) -> Shown:
    figure = NotebookFigure(figsize=(7, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    head = moments[moments["head"] == chosen["shown_head"]].set_index("epoch")
    rows = [head.loc[chosen[name]] for name in ("early_epoch", "late_epoch")]
    for row, offset, colour in zip(rows, (-0.2, 0.2), (NEUTRAL, END), strict=True):
        scores, values = (row[[f"{kind}{token}" for token in range(3)]].to_numpy(float)
                          for kind in ("score", "value"))  # fmt: skip
        looked, read = np.exp(scores - scores.max()), values / np.abs(values).max()
        for axes, bars in ((left, looked), (right, read)):
            x, label = np.arange(3) + offset, f"epoch {row.name:,}"
            drawn = axes.bar(x, bars, 0.38, color=colour, label=label)
            axes.bar_label(drawn, fmt="%.2f", fontsize=9)
    for axes, title in ((left, "attention to one token"), (right, "what the probe reads from it")):
        axes.set_xticks(range(3), ["'0'", "'1'", "'2'"])
        axes.axhline(0, color="black", lw=0.6)
        axes.set(title=title, ylabel="relative to the largest", ymargin=0.15)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    probes = [f"{row['inequality']} after epoch {row.name:,}" for row in rows]
    caption = f"Head {chosen['shown_head']}. Its probe decides by {', and by '.join(probes)}."
    alt = "Attention to '0', '1' and '2' and the probe's reading of their values, at two moments"
    return Shown(figure, alt, caption)


if __name__ == "__main__":
    main(sys.modules[__name__])
