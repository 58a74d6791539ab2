"""Compete or cooperate, in words that stand for stated numbers.

For each task, the Shapley values φ of the heads and the interaction indices I of the pairs:

* **cooperate**: the mean interaction is at least +0.01: pairs are worth more together than apart;
* **redundant**: it is at most −0.01: what one head brings, others have already (an ensemble);
* **neither**: between the two;
* **compete**, in addition: heads with φ ≤ −0.02, which work against the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from count01_lens.common.types import Array

INTERACTION, AGAINST = 0.01, -0.02


@dataclass(frozen=True)
class TaskVerdict:
    """On the "answer" or the "end": the word, the mean over pairs, and heads that compete."""

    task: str
    word: str
    mean_interaction: float
    competing: tuple[int, ...]

    def __str__(self) -> str:
        verb = {"cooperate": "cooperate", "redundant": "are redundant"}.get(
            self.word, "neither cooperate nor repeat each other"
        )
        text = f"they {verb} (mean interaction {self.mean_interaction:+.3f})"
        if self.competing:
            heads = ", ".join(map(str, self.competing))
            text += f", and {len(self.competing)} work against the rest (heads {heads})"
        return text


@dataclass(frozen=True)
class Verdict:
    """The verdicts on all tasks."""

    tasks: tuple[TaskVerdict, ...]

    def __getitem__(self, task: str) -> TaskVerdict:
        return next(verdict for verdict in self.tasks if verdict.task == task)

    def __str__(self) -> str:
        names = {"answer": "On the answer", "end": "On '[EOS]'"}
        return ". ".join(f"{names[verdict.task]} {verdict}" for verdict in self.tasks) + "."


def judge(interactions: Mapping[str, Float[Array, "head head"]]) -> Verdict:
    """Judge each task by its interaction matrix, Shapley values on the diagonal."""
    verdicts = []
    for task, matrix in interactions.items():
        mean = float(matrix[np.triu_indices(len(matrix), 1)].mean())
        competing = np.flatnonzero(np.diag(matrix) <= AGAINST).tolist()
        clear = "cooperate" if mean > 0 else "redundant"
        word = clear if abs(mean) >= INTERACTION else "neither"
        verdicts.append(TaskVerdict(task, word, mean, tuple(competing)))
    return Verdict(tuple(verdicts))
