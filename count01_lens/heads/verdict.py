"""Compete or cooperate, in words that stand for stated numbers.

For each question, the Shapley values φ of the heads and the interaction indices I of the pairs:

* **cooperate**: the mean interaction is at least +0.01: pairs are worth more together than apart;
* **redundant**: it is at most −0.01: what one head brings, others have already (an ensemble);
* **neither**: between the two;
* **compete**, in addition: heads with φ ≤ −0.02, which work against the rest.

The metric is s-acc, what heads know, for models of one layer. Heads of several layers work through
each other, which no probe sees: there it is l-acc, and the mean is told apart, of pairs within a
layer and of pairs between two.
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

    `names` are what all heads are called; their numbers if there are none. `within` and `between`
    are the means over pairs of one layer and of two, for models of several layers.
    """

    task: str
    word: str
    mean_interaction: float
    competing: tuple[int, ...]
    names: tuple[str, ...] = ()
    within: float | None = None
    between: float | None = None

    def __str__(self) -> str:
        verb = {"cooperate": "cooperate", "redundant": "are redundant"}.get(
            self.word, "neither cooperate nor repeat each other"
        )
        apart = ""
        if self.between is not None:
            inside = "" if self.within is None else f"{self.within:+.3f} within layers, "
            apart = f"; {inside}{self.between:+.3f} between layers"
        text = f"they {verb} (mean interaction {self.mean_interaction:+.3f}{apart})"
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
    interactions: Mapping[str, Float[Array, "head head"]],
    names: Sequence[str] = (),
    layers: Sequence[int] = (),
) -> Verdict:
    """Judge each task by its interaction matrix, Shapley values on the diagonal.

    `names` are what heads are called in words; by default their numbers. `layers` are those of the
    heads, if they are of several.
    """
    verdicts = []
    for task, matrix in interactions.items():
        first, second = np.triu_indices(len(matrix), 1)
        pairs = matrix[first, second]
        mean = float(pairs.mean())
        competing = np.flatnonzero(np.diag(matrix) <= AGAINST).tolist()
        clear = "cooperate" if mean > 0 else "redundant"
        word = clear if abs(mean) >= INTERACTION else "neither"
        parts: dict[str, float] = {}
        if len(set(layers)) > 1:
            same = np.asarray(layers)[first] == np.asarray(layers)[second]
            chosen = {"within": same, "between": ~same}
            parts = {name: float(pairs[some].mean()) for name, some in chosen.items() if some.any()}
        verdicts.append(TaskVerdict(task, word, mean, tuple(competing), tuple(names), **parts))
    return Verdict(tuple(verdicts))
