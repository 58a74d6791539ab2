"""Which counting task a model is for: its tokenizer knows."""

from typing import Any

from count01_lens.common.validation import check_default_device
from count01_lens.models.build import language_of
from count01_lens.models.stored import Model, StoredModel
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.places import COUNT01

_UNKNOWN = object()


def task_of(model: Model) -> CountingTask:
    """Return the counting task that a model was built for, trained on, or stored with.

    Raises:
        ValueError: its tokenizer is not that of a counting task.

    Example:
        >>> cl.task_of(cl.build_model(task=cl.counting_task("majority")))
        CountingTask(majority: a b c → A B C: na > max(nb, nc); nb > nc)
    """
    task = _told_by(model)
    if task is _UNKNOWN:
        got = type(getattr(model, "tokenizer", None)).__name__
        raise ValueError(
            f"model: expected the tokenizer of a counting task, got {got}; say which task it is "
            "for where you use it"
        )
    return Count01() if task is None else task


def known_task(model: Any) -> CountingTask | None:
    """Return the counting task that a model's tokenizer is of; None for Count01, or if it is none.

    The model may be anything.
    """
    task = _told_by(model)
    return task if isinstance(task, CountingTask) else None


def reads_a_counting_task(model: Any) -> bool:
    """Whether the tokenizer of a model is that of a counting task."""
    return _told_by(model) is not _UNKNOWN


def _told_by(model: Any) -> Any:
    """What a model's tokenizer says: a task, None for Count01 with the paper's data, or nothing."""
    tells = model if isinstance(model, StoredModel) else getattr(model, "tokenizer", None)
    return getattr(tells, "counting_task", _UNKNOWN)


def counting_task_for(model: Any, task: CountingTask | Splits | None = None) -> CountingTask:
    """Return a counting task, by default that of a model's tokenizer, or Count01.

    A data set stands for Count01 on it.
    """
    check_default_device()
    if isinstance(task, Splits):
        return Count01(task)
    if isinstance(task, CountingTask):
        return task
    if task is not None:
        expected = "a CountingTask, or the result of make_splits"
        raise TypeError(f"task: expected {expected}, got {task!r:.80}")
    return known_task(model) or Count01()


def language_for(
    model: Any, task: CountingTask | CountingLanguage | None = None
) -> CountingLanguage:
    """Return the language of a task, by default that of a model's tokenizer, or of Count01."""
    check_default_device()
    if isinstance(task, CountingLanguage):
        return task
    if task is not None:
        return language_of(task)
    known = known_task(model)
    return COUNT01 if known is None else known.language
