"""What the explorer shows, computed in Python: for scripts, and to hold the page against it."""

import numpy as np
import pandas as pd

from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.head_data import HeadData, collect
from count01_lens.heads.metrics import Groups, category_of
from count01_lens.heads.runners import CountRunner
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.views.explorer_code import Choices


def chosen_form(form: CountForm, choices: Choices) -> CountForm:
    """Apply what is chosen to the tables of a model."""
    for patch in choices.patches:
        form = patch.on_counts(form)
    return form.with_outputs_of(choices.off, 0.0) if choices.off else form


def head_changes(form: CountForm, task: CountingTask, choices: Choices) -> pd.DataFrame:
    """A row per head: category, s-acc and l-acc as the model has them, and as chosen."""
    before, after = (_singles(each, task) for each in (form, chosen_form(form, choices)))
    return pd.DataFrame(
        {
            "head": np.arange(form.scores.shape[1]),
            "category": category_of(before.probe_accuracy),
            "s_acc": before.probe_accuracy,
            "s_acc_patched": after.probe_accuracy,
            "l_acc": before.accuracy["answer"],
            "l_acc_patched": after.accuracy["answer"],
        }
    )


def model_changes(form: CountForm, task: CountingTask, choices: Choices) -> pd.DataFrame:
    """The whole model on the test split, original and patched: answer, ties, others, end."""
    forms = {"original": form, "patched": chosen_form(form, choices)}
    return pd.DataFrame({name: _data(each, task).accuracies() for name, each in forms.items()}).T


def _data(form: CountForm, task: CountingTask) -> HeadData:
    return collect(CountRunner(form), task)


def _singles(form: CountForm, task: CountingTask) -> Groups:
    return Groups(_data(form, task), np.eye(form.scores.shape[1], dtype=bool))
