"""Count01 as a task: a counting task with the paper's data."""

from typing import Any

from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.counting_task import CountPrompts as CountPrompts
from count01_lens.tasks.dataset import Splits, make_splits
from count01_lens.tasks.places import COUNT01
from count01_lens.tasks.prompts import Task


class Count01(CountingTask):
    """The task and data of the paper: "answer" after '=', "end" ('[EOS]') after the answer.

    Example:
        >>> list(cl.Count01().questions)
        ['answer', 'end']
    """

    up_to = 200  # the paper's longest sentences, whatever the data

    def __init__(self, splits: Splits | None = None):
        self.name, self.seed, self.specs = "count01", 0, None
        splits = make_splits() if splits is None else splits
        if not isinstance(splits, Splits):
            raise TypeError(f"splits: expected the result of make_splits, got {splits!r}")
        if splits.train.language != COUNT01:
            raise ValueError(
                f"splits: expected sentences of Count01, got those of {splits.train.language!r}; "
                "give the CountingTask itself"
            )
        self._ask(splits)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; the data are not among them."""
        return {"name": self.name}

    __repr__ = Task.__repr__


def as_task(task: Task | Splits | None) -> Task:
    """Return a task; a data set stands for Count01 on it, None for the paper's."""
    if isinstance(task, Task):
        return task
    if task is None or isinstance(task, Splits):
        return Count01(task)
    raise TypeError(f"task: expected a Task, or the result of make_splits, got {task!r}")
