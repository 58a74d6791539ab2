"""s-acc of heads while they are trained: the probes of `head_evolution`, and nothing else.

A model's heads take about as long as half an epoch. Nothing here needs scikit-learn, whose import
takes longer than many trainings of small models.
"""

import numpy as np
import torch
from jaxtyping import Float

from count01_lens.common.precision import without_autocast
from count01_lens.common.threads import workers
from count01_lens.common.types import Array
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.readout import head_weights
from count01_lens.heads.many_fits import fit_together
from count01_lens.heads.runners import CountRunner
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.prompts import Asked
from count01_lens.training.run_directory import TrainingRun
from count01_lens.training.stack import Rows, count_form_of


class LiveHeads:
    """Measures the heads of one model of a stack at a time."""

    def __init__(self, run: TrainingRun):
        assert run.splits is not None
        task = Count01(run.splits) if run.task is None else run.task
        question = task.questions["answer"]
        self.config, self.language = run.configs[0].model, run.language
        self.train, self.test = question.train, question.test
        answers = [question.answers_of(prompts) for prompts in (question.train, question.test)]
        # As in `HeadData`: of two answers, the first is the positive class.
        two = len(question.choices) == 2
        self.labels, self.right = (each == 0 if two else each for each in answers)
        heads = np.eye(self.config.n_heads, dtype=bool)
        self.supports = np.repeat(heads, self.config.d_head, axis=1)

    @without_autocast
    @torch.no_grad()
    def measure(self, rows: Rows, model: int) -> tuple[list[float], list[float]]:
        """Return s-acc and head weight of each head, with the parameters as they are now."""
        with workers():  # one thread for everything: several would wait for each other
            form = count_form_of(rows[model : model + 1], self.config, self.language)
            train, test = (_outputs(form, prompts) for prompts in (self.train, self.test))
            s_acc = fit_together(train, self.labels, self.supports).scores(test, self.right)
        return s_acc.tolist(), head_weights(form).tolist()


def _outputs(form: CountForm, prompts: Asked) -> Float[Array, "prompt head_and_d_head"]:
    return CountRunner(form).outputs(prompts).double().flatten(1).numpy()
