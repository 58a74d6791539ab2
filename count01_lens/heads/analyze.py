"""`analyze_heads(model, task)`: what is run and measured, in its order."""

import warnings
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pandas as pd

from count01_lens.common.validation import check_choice, check_int, check_seed
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.ends import Ends, measure_ends
from count01_lens.heads.groups import LARGEST_EXACT
from count01_lens.heads.head_data import HeadData, collect, runner_for_task, task_for
from count01_lens.heads.made_from import MadeFrom
from count01_lens.heads.metrics import METRICS, Groups
from count01_lens.heads.probe_fits import check_probe
from count01_lens.heads.replacements import Mode
from count01_lens.heads.runners import CountRunner
from count01_lens.heads.tables import count_table, head_table, pair_matrices, strongest
from count01_lens.heads.verdict import judged_metrics
from count01_lens.models.hooks import head_names
from count01_lens.models.stored import Model
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.prompts import Task

BUDGET = 2000


def analyze_heads(
    model: Model,
    task: Task | Splits | None = None,
    *,
    probe: Any = None,
    ablation: Mode = "zero",
    seed: int = 0,
    budget: int = BUDGET,
    progress: bool | None = None,
) -> HeadAnalysis:
    """Analyse every head and every pair of heads of a model.

    Args:
        model: any HookedTransformer over the task's tokens. One with positions, MLPs or several
            layers is run on sequences through hooks; what does not apply to it is noted.
        task: what the model is asked; a data set stands for Count01 with these data. By default the
            counting task that the model was built for; the paper's if that is unknown.
        probe: any scikit-learn classifier; by default a linear SVM, as in the paper.
        ablation: what replaces the outputs of heads that are taken out of the model: "zero", as in
            the paper; "mean", their mean at the query position over training prompts; "resample",
            their output on another training prompt.
        seed: for resampling and random groups.
        budget: with more than 18 heads, which have too many groups, how many groups to measure
            besides single heads: a quarter are pairs of the strongest heads, the others serve to
            estimate Shapley values of l-acc.
        progress: whether to show progress; None shows it in a terminal or notebook only.

    Example:
        >>> analysis = cl.analyze_heads(cl.example_model())
        >>> analysis.table["category"].value_counts().sort_index().to_dict()
        {'failed': 3, 'mixed': 2, 'successful': 11}
        >>> print(analysis.table["readout"][3])
        n1 − n0 + 0.001·n2 − 0.496 > 0
    """
    task = task_for(model, task)
    if probe is not None:
        check_probe(probe)
    check_choice("ablation", ablation, get_args(Mode))
    check_seed(seed)
    check_int("budget", budget, at_least=0)
    runner = runner_for_task(model, task)
    if shared := task.n_shared():
        warnings.warn(
            f"{shared} of {len(task.questions['answer'].test)} test prompts are among the training "
            "prompts: probes have seen them, and s-acc is not that of new prompts",
            stacklevel=2,
        )
    data = collect(runner, task, probe, ablation=ablation, seed=seed, progress=progress)
    singles = Groups(data, np.eye(data.n_heads, dtype=bool), progress=progress)
    heads = head_table(singles, head_names(model))
    many = data.n_heads > LARGEST_EXACT
    among = strongest(heads, budget // 4) if many else None
    pairs = pair_matrices(singles, heads, among, progress=progress)
    counts, notes = None, []
    if isinstance(runner, CountRunner):
        counts = count_table(runner.form, singles.fits, task)
        if runner.form.scores.dtype != model.W_E.dtype:
            own, used = model.W_E.dtype, runner.form.scores.dtype
            notes = [f"its weights are {own}; what they compute is computed in {used}"]
    elif isinstance(task, CountingTask):
        notes = [f"no attention ratios, head weights or count read-outs: {runner.why_not_counts}"]
    if among is not None:
        notes.append(
            f"{data.n_heads} heads: too many for all groups; pairs of the {len(among)} strongest, "
            f"and Shapley values from random orders of heads, as a budget of {budget} groups allows"
        )
    if pairs.n_missing:
        notes.append(f"interrupted: {pairs.n_missing} pairs were not measured")
    analysis = HeadAnalysis(
        heads=heads,
        counts=counts,
        pairs=pairs.matrices,
        accuracy=data.accuracies(),
        notes=tuple(notes),
        data=data,
        fits=singles.fits,
        worst_gradient=float(np.fmax(pairs.worst_gradient, singles.fits.worst_gradient)),
        made_from=MadeFrom.of(model, runner, task),
        ends=_ends(data, heads, progress),
        model=model,
        task=task,
    )
    orders = (budget - budget // 4) // data.n_heads
    if not many or orders < 2:
        return analysis
    estimate = analysis.sampled_shapley(
        "l_acc", n_permutations=orders, seed=seed, progress=progress
    )
    return replace(analysis, sampled={"l_acc": estimate})


def _ends(data: HeadData, heads: pd.DataFrame, progress: bool | None) -> dict[str, Ends]:
    """The mean interaction by each metric that is judged; a single head has none."""
    if data.n_heads == 1:
        return {}
    judged = judged_metrics(list(data.asked), heads["layer"].nunique())
    return measure_ends(data, [METRICS[name] for name in judged], progress=progress)
