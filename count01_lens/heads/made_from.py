"""What was measured, kept with what came of it: which model, doing what, on which prompts.

It is compared wherever two things meet that have to be of the same model: an analysis and a
checkpoint, a report and a model that somebody may have changed, groups of heads that are run long
after the heads alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from count01_lens.common.types import Array
from count01_lens.heads.hook_runner import Runner
from count01_lens.heads.runners import CountRunner
from count01_lens.models.fingerprint import fingerprint
from count01_lens.models.stored import Model
from count01_lens.tasks.prompts import Task

_FEW = 8


class Seen(NamedTuple):
    """What a model did on a few test prompts of each question.

    Attributes:
        values: logits, then head outputs, by question.
        by_counts: whether it was run on counts.
        eps: rounding of the numbers that it was run in.
    """

    values: Mapping[str, Float[Array, "prompt _"]]
    by_counts: bool
    eps: float

    @classmethod
    def by(cls, runner: Runner, task: Task) -> "Seen":
        """Look at what a runner gives."""
        found, eps = {}, 0.0
        for name, question in task.questions.items():
            few = question.test.few(_FEW)
            parts = [runner.logits(few), runner.outputs(few).flatten(start_dim=1)]
            eps = torch.finfo(parts[0].dtype).eps
            found[name] = np.concatenate([part.double().cpu().numpy() for part in parts], axis=1)
        return cls(found, isinstance(runner, CountRunner), eps)

    def check(self, now: "Seen") -> None:
        """Raise if a model does something else now, by more than rounding."""
        same_way = (self.by_counts, self.eps) == (now.by_counts, now.eps)
        # The same computation may be shared out among other threads; another adds up otherwise.
        roundings = 16 if same_way else 1000
        for question, before in self.values.items():
            after = now.values[question]
            allowed = min(roundings * max(self.eps, now.eps), 0.1) * float(np.abs(before).max())
            if after.shape != before.shape or not np.allclose(after, before, rtol=0, atol=allowed):
                raise ValueError(
                    f"model: expected it to do what it did when it was analysed, got other logits "
                    f"or head outputs for {question!r}: hooks were attached to it or taken off "
                    "since; analyse it again, or stay in the `with` block"
                )


@dataclass(frozen=True, eq=False)
class MadeFrom:
    """A model as it was, and a task.

    Attributes:
        model: fingerprint of the model's weights, its config and its modules.
        task: fingerprint of the prompts.
        seen: what the model did on a few of them; hooks have no fingerprint, but an effect.
    """

    model: str
    task: str
    seen: Seen

    @classmethod
    def of(cls, model: Model, runner: Runner, task: Task) -> "MadeFrom":
        """Note what is going to be measured."""
        return cls(fingerprint(model), task.fingerprint, Seen.by(runner, task))

    def check_weights(self, model: Model, name: str = "model") -> None:
        """Raise if this is another model, or if it was changed since."""
        if fingerprint(model) != self.model:
            raise ValueError(
                f"{name}: expected the model that was analysed, got one with other weights or "
                "modules; it was changed since, or it is another: analyse it again"
            )

    def check(self, model: Model, runner: Runner, task: Task) -> None:
        """Raise if model or task are not what was measured, or if hooks make it do other things."""
        if task.fingerprint != self.task:
            raise ValueError(
                "splits: expected the data set of the analysis, got another; give that one, or "
                "analyse the model again"
            )
        self.check_weights(model)
        self.seen.check(Seen.by(runner, task))


def n_models(made_from: Collection[MadeFrom]) -> int:
    """Count how many different models there are."""
    return len({each.model for each in made_from})
