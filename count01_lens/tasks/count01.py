"""Count01 as a task: two questions to every sentence, asked as counts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from count01_lens.common.fingerprints import hash_of
from count01_lens.common.types import Array
from count01_lens.tasks.dataset import CountsLike, Split, Splits, as_counts, labels_of, make_splits
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS, Place
from count01_lens.tasks.prompts import Question, Task, spread

# A tie between '4' and '5' is decided for '5', as in the paper; '[EOS]' has to lead all others.
ANSWERS = (int(Token.FOUR), int(Token.FIVE))
ENDS = (int(Token.EOS), *(int(token) for token in Token if token is not Token.EOS))


@dataclass(frozen=True, eq=False)
class CountPrompts:
    """Sentences as counts, asked at one place; written out as tokens only where that is needed."""

    split: Split
    place: Place

    @classmethod
    def of(cls, data: CountsLike, place: Place) -> "CountPrompts":
        """Take a split, or counts [sample, 3]."""
        return cls(data if isinstance(data, Split) else Split("given", as_counts(data)), place)

    @property
    def counts(self) -> Int[Tensor, "prompt 3"]:
        """Number of '0's, '1's and '2's of each sentence."""
        return self.split.counts

    @property
    def answers(self) -> Int[Tensor, " prompt"]:
        """'4' or '5' after '=', '[EOS]' after the answer."""
        if self.place == AT_ANSWER:
            return torch.full((len(self),), Token.EOS)
        return torch.where(labels_of(self.counts), Token.FOUR, Token.FIVE)

    @cached_property
    def subsets(self) -> Mapping[str, Bool[Array, " prompt"]]:
        """Ties (as many 1s as 0s), which are a matter of their own, and all others."""
        ties = np.asarray(self.split.ties.numpy())
        return {"ties": ties, "others": ~ties}

    @property
    def positions(self) -> list[int]:
        """Where each sentence is asked."""
        return (self.counts.sum(dim=1) + 4 - self.place.from_end).tolist()

    def sequences(self) -> list[Int[Tensor, " _"]]:
        """Write every sentence out as `[BOS] ... = answer [EOS]`."""
        return self.split.sequences()

    def few(self, n: int) -> "CountPrompts":
        """A few of them, from all parts."""
        chosen = self.counts[spread(len(self), n)]
        return CountPrompts(replace(self.split, counts=chosen), self.place)

    def fingerprint(self) -> str:
        """A hash of them: equal only if counts, place and the order of tokens are."""
        return hash_of([self.counts.numpy().tobytes(), self.place.name, f"{self.split.seed}"])

    def __len__(self) -> int:
        return len(self.split)


class Count01(Task):
    """The task and data of the paper: "answer" after '=', "end" ('[EOS]') after the answer.

    Example:
        >>> list(cl.Count01().questions)
        ['answer', 'end']
    """

    def __init__(self, splits: Splits | None = None):
        self.splits = make_splits() if splits is None else splits
        if not isinstance(self.splits, Splits):
            raise TypeError(f"splits: expected the result of make_splits, got {splits!r}")
        self.questions = {}
        parts = self.splits.train, self.splits.test
        for name, place, choices in (("answer", AT_EQUALS, ANSWERS), ("end", AT_ANSWER, ENDS)):
            train, test = (CountPrompts(part, place) for part in parts)
            self.questions[name] = Question(train, test, choices)


def as_task(task: Task | Splits | None) -> Task:
    """Return a task; a data set stands for Count01 on it, None for the paper's."""
    if isinstance(task, Task):
        return task
    if task is None or isinstance(task, Splits):
        return Count01(task)
    raise TypeError(f"task: expected a Task, or the result of make_splits, got {task!r}")
