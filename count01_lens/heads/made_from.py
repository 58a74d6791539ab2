"""What was measured, kept with what came of it: which model, doing what, on which prompts.

It is compared wherever two things meet that have to be of the same model: an analysis and a
checkpoint, a report and a model that somebody may have changed, groups of heads that are run long
after the heads alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from count01_lens.common.types import Array, HookedTransformer
from count01_lens.heads.runners import Runner
from count01_lens.models.fingerprint import fingerprint
from count01_lens.tasks.prompts import Task

_FEW = 8

# Logits, then head outputs, on a few test prompts of each question.
Seen = Mapping[str, Float[Array, "prompt _"]]


@dataclass(frozen=True, eq=False)
class MadeFrom:
    """A model as it was, and a task.

    Attributes:
        model: fingerprint of its weights, its config and its modules.
        task: fingerprint of the prompts.
        seen: what the model did on a few of them; hooks have no fingerprint, but an effect.
    """

    model: str
    task: str
    seen: Seen

    @classmethod
    def of(cls, model: HookedTransformer, runner: Runner, task: Task) -> "MadeFrom":
        """Note what is going to be measured."""
        return cls(fingerprint(model), task.fingerprint, seen_by(runner, task))

    def check_weights(self, model: HookedTransformer, name: str = "model") -> None:
        """Raise if this is another model, or if it was changed since."""
        if fingerprint(model) != self.model:
            raise ValueError(
                f"{name}: expected the model that was analysed, got one with other weights or "
                "modules; it was changed since, or it is another: analyse it again"
            )

    def check(self, model: HookedTransformer, runner: Runner, task: Task) -> None:
        """Raise if model or task are not what was measured, or if hooks make it do other things."""
        if task.fingerprint != self.task:
            raise ValueError(
                "splits: expected the data set of the analysis, got another; give that one, or "
                "analyse the model again"
            )
        self.check_weights(model)
        check_seen(self.seen, seen_by(runner, task))


def seen_by(runner: Runner, task: Task) -> Seen:
    """What a model does on a few test prompts of each question."""
    found = {}
    for name, question in task.questions.items():
        few = question.test.few(_FEW)
        parts = runner.logits(few), runner.outputs(few).flatten(start_dim=1)
        found[name] = np.concatenate([part.double().cpu().numpy() for part in parts], axis=1)
    return found


def check_seen(then: Seen, now: Seen) -> None:
    """Raise if a model does something else now than it did when it was measured."""
    for question, before in then.items():
        after = now[question]
        rounding = 1e-3 * max(1e-3, float(np.abs(before).max()))
        if after.shape != before.shape or not np.allclose(after, before, rtol=0, atol=rounding):
            raise ValueError(
                f"model: expected it to do what it did when it was analysed, got other logits or "
                f"head outputs for {question!r}: hooks were attached to it or taken off since; "
                "analyse it again, or stay in the `with` block"
            )
