"""Compete or cooperate, in words that stand for stated numbers.

For each question, the Shapley values φ of the heads and the interaction indices I of the pairs:

* **cooperate**: the mean interaction is at least +0.01: pairs are worth more together than apart;
* **redundant**: it is at most −0.01: what one head brings, others have already (an ensemble);
* **neither**: between the two;
* **compete**, in addition: heads with φ ≤ −0.02, which work against the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from count01_lens.common.types import Array

INTERACTION, AGAINST = 0.01, -0.02


@dataclass(frozen=True)
class TaskVerdict:
    """On a question of the task: the word, the mean over pairs, and heads that compete.

    `names` are what all heads are called; their numbers if there are none.
    """

    task: str
    word: str
    mean_interaction: float
    competing: tuple[int, ...]
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = {"cooperate": "cooperate", "redundant": "are redundant"}.get(
            self.word, "neither cooperate nor repeat each other"
        )
        text = f"they {verb} (mean interaction {self.mean_interaction:+.3f})"
        if self.competing:
            heads = ", ".join(self.names[h] if self.names else str(h) for h in self.competing)
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
        said = (
            f"{names.get(each.task, f'On the question {each.task!r}')} {each}"
            for each in self.tasks
        )
        return ". ".join(said) + "."


def judge(
    interactions: Mapping[str, Float[Array, "head head"]], names: Sequence[str] = ()
) -> Verdict:
    """Judge each task by its interaction matrix, Shapley values on the diagonal.

    `names` are what heads are called in words; by default their numbers.
    """
    verdicts = []
    for task, matrix in interactions.items():
        mean = float(matrix[np.triu_indices(len(matrix), 1)].mean())
        competing = np.flatnonzero(np.diag(matrix) <= AGAINST).tolist()
        clear = "cooperate" if mean > 0 else "redundant"
        word = clear if abs(mean) >= INTERACTION else "neither"
        verdicts.append(TaskVerdict(task, word, mean, tuple(competing), tuple(names)))
    return Verdict(tuple(verdicts))
