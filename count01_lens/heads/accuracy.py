"""Accuracy of a model, whatever is done to it at the moment."""

from collections.abc import Iterable

from count01_lens.common.types import HookedTransformer
from count01_lens.heads.head_data import AskedHeads
from count01_lens.heads.runners import as_prompts, check_ids, runner_for
from count01_lens.tasks.counting_task import CountPrompts
from count01_lens.tasks.dataset import CountsLike
from count01_lens.tasks.prompts import Prompts, Question, Task
from count01_lens.tasks.tokens import check_choices


def accuracy(
    model: HookedTransformer,
    data: CountsLike | Prompts | CountPrompts | Task,
    choices: Iterable[int] | None = None,
) -> float:
    """Return how often the right answer has the highest logit among the choices.

    Hooks attached to the model run, so this works inside `with` blocks, too.

    Args:
        model: any HookedTransformer.
        data: prompts, or a task, whose test prompts are taken; for models of a counting task a
            split, or counts [sample, symbol].
        choices: the tokens that the model chooses from; of equal logits the later one wins. By
            default the answers that occur; for counts and tasks, those of the task.

    Example:
        >>> model, counts = cl.example_model(), [[3, 5, 2], [5, 3, 0], [2, 9, 4], [4, 4, 1]]
        >>> cl.accuracy(model, counts)
        1.0
        >>> with cl.ablate_heads(model, range(16)):
        ...     print(cl.accuracy(model, counts))  # the bias of the output layer always says '5'
        0.5
    """
    known: tuple[int, ...] | None = None
    if isinstance(data, Task):
        question = data.for_model(model).questions["answer"]
        prompts, known = question.test, question.choices
    else:
        prompts = as_prompts(data, model=model)
        if isinstance(prompts, CountPrompts):
            answers = prompts.language.answer_ids
            known = tuple(range(answers.start, answers.stop))
    if choices is not None or known is None:
        known = check_choices(choices, prompts.answers, model)
    runner = runner_for(model, prompts)
    check_ids("choices", max(known), model.cfg.d_vocab_out)
    right = Question(prompts, prompts, known).answers_of(prompts)
    logits = runner.logits(prompts)[:, list(known)].double().cpu().numpy()
    asked = AskedHeads(heads=logits[:, None], rest=0 * logits, answers=right)
    return float(asked.right_by_logits(logits).mean())
