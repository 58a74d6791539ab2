"""What metrics are computed from: outputs of heads, and logits taken apart, on a task's prompts.

From here on nobody knows what the task is, nor how the model was run.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from count01_lens.common.text import listed
from count01_lens.common.types import Array
from count01_lens.heads.group_runs import GroupLogits, KeptRuns, Told, group_logits
from count01_lens.heads.hook_runner import Attribution, HookRunner, Runner
from count01_lens.heads.made_from import MadeFrom
from count01_lens.heads.replacements import Mode, Replacement
from count01_lens.heads.runners import check_ids, runner_for
from count01_lens.models.direct_path import DirectPath
from count01_lens.models.fingerprint import hooked_modules
from count01_lens.models.stored import Model, hooked
from count01_lens.models.task_of import counting_task_for
from count01_lens.tasks.count01 import as_task
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.prompts import Question, Task

_SAFE_EXPONENT = 960  # sums over any number of heads of what is below 2^960 are numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedHeads:
    """Logits of a question's choices on its test prompts: direct attribution to heads, the rest.

    `answers` are the right choices; `subsets` are prompts that are reported apart; `instead` is
    what is written in the place of a head that is taken out, unless nothing is.
    """

    heads: Float[Array, "prompt head choice"]
    rest: Float[Array, "prompt choice"]
    answers: Int[Array, " prompt"]
    subsets: Mapping[str, Bool[Array, " prompt"]] = field(default_factory=dict)
    instead: Float[Array, "prompt head choice"] | None = None

    @property
    def gains(self) -> "AskedHeads":
        """What each head writes more than what stands in its place; the rest has the latter."""
        if self.instead is None:
            return self
        heads, rest = self.heads - self.instead, self.rest + self.instead.sum(axis=1)
        return replace(self, heads=heads, rest=rest, instead=None)

    def mean_lead(self, logits: Float[Array, "*any prompt choice"]) -> Float[Array, "*any prompt"]:
        """By how much the right choice leads the mean of the others."""
        right = logits[..., np.arange(len(self.answers)), self.answers]
        n = logits.shape[-1]
        return np.asarray((right * n - logits.sum(axis=-1)) / (n - 1))

    @property
    def logits(self) -> Float[Array, "prompt choice"]:
        """Logits of the whole model."""
        return np.asarray(self.heads.sum(axis=1) + self.rest)

    def in_range(self) -> "AskedHeads":
        """The same attributions, in a unit in which no sum over heads overflows.

        The unit is a power of two, and 1 for all but astronomic ones. Raises if some are no
        numbers.
        """
        check_finite("attributions", self.heads)
        if self.instead is not None:
            check_finite("attributions of what replaces them", self.instead)
        if not np.isfinite(self.rest).all():
            raise ValueError(
                "expected finite logits, got NaN or infinite ones from other parts than heads: "
                "biases, the skip connection or MLPs; scale the model's weights down"
            )
        largest = max(np.abs(self.heads).max(), np.abs(self.rest).max())
        exponent = int(np.frexp(largest)[1]) - _SAFE_EXPONENT
        if exponent <= 0:
            return self
        heads, rest = (np.ldexp(part, -exponent) for part in (self.heads, self.rest))
        return replace(self, heads=heads, rest=rest)

    def leads(self) -> tuple[Float[Array, "head other prompt"], Float[Array, "other prompt"]]:
        """By how much the right choice leads each other one: by each head, and by the rest."""
        prompts, others = np.arange(len(self.answers)), self._others()
        lead = self.heads[prompts, :, self.answers][:, :, None]
        behind = np.take_along_axis(self.heads, others[:, None], axis=2)
        rest = self.rest[prompts, self.answers][:, None] - np.take_along_axis(self.rest, others, 1)
        return np.ascontiguousarray((lead - behind).transpose(1, 2, 0)), np.ascontiguousarray(
            rest.T
        )

    def right(self, leads: Float[Array, "*group other prompt"]) -> Bool[Array, "*group prompt"]:
        """Tell where the right choice wins; of equal logits that of the later choice does.

        Prompts come last: over rows of them "all" is several times as fast as over a few others.
        """
        wins_ties = self.answers > self._others().T
        found = leads >= 0
        if not wins_ties.all():
            found &= (leads > 0) | wins_ties
        return np.asarray(found.all(axis=-2))

    def right_by_logits(
        self, logits: Float[Array, "*group prompt choice"]
    ) -> Bool[Array, "*group prompt"]:
        """Tell where the right choice has the highest logit."""
        prompts = np.arange(len(self.answers))
        of_right = logits[..., prompts, self.answers][..., None]
        return self.right(
            (of_right - logits[..., prompts[:, None], self._others()]).swapaxes(-1, -2)
        )

    def _others(self) -> Int[Array, "prompt other"]:
        """The wrong choices of each prompt, in their order."""
        n = self.rest.shape[1]
        every = np.broadcast_to(np.arange(n), (len(self.answers), n))
        return np.asarray(every[every != self.answers[:, None]].reshape(-1, n - 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadData:
    """What a model's heads do on a task.

    Attributes:
        train_outputs: outputs of every head where the answer is asked for, on training prompts.
        train_answers: the right choice.
        test_outputs: the same on test prompts.
        asked: logits taken apart, by question; "answer" is what the task is about.
        group_logits: where attributions do not add up (norms, later layers): runs the model with
            only the heads of each of some groups.
        ablation: what stands in the place of heads that are taken out: "zero", their "mean", or
            their outputs on other prompts ("resample").
        probe: what is fitted to outputs, if not the default linear probe.
        eps: rounding of the numbers that the model was run in.
    """

    train_outputs: Float[Array, "train head d_head"]
    train_answers: Int[Array, " train"]
    test_outputs: Float[Array, "test head d_head"]
    asked: Mapping[str, AskedHeads]
    group_logits: GroupLogits | None = None
    ablation: Mode = "zero"
    probe: Any = None
    eps: float = float(np.finfo(float).eps)

    def __post_init__(self) -> None:
        for name, answers in (("train", self.train_answers), ("test", self.answer.answers)):
            _check_answers(name, answers)

    @property
    def answer(self) -> AskedHeads:
        """What the task is about."""
        return self.asked["answer"]

    @property
    def n_asked(self) -> int:
        """Number of test prompts, of all questions together."""
        return sum(len(asked.answers) for asked in self.asked.values())

    @property
    def n_heads(self) -> int:
        """Number of heads, all layers together."""
        return int(self.train_outputs.shape[1])

    @property
    def d_head(self) -> int:
        """Size of a head's output."""
        return int(self.train_outputs.shape[2])

    @property
    def train_labels(self) -> Array:
        """Labels for probes: of two choices, True for the first; else their numbers."""
        return self._labels(self.train_answers)

    @property
    def test_labels(self) -> Array:
        """The same on test prompts."""
        return self._labels(self.answer.answers)

    def _labels(self, answers: Int[Array, " prompt"]) -> Array:
        return answers == 0 if self.answer.rest.shape[1] == 2 else answers

    def accuracies(self) -> dict[str, float]:
        """Accuracy of the whole model: each question's, and of the answer's subsets."""
        found: dict[str, float] = {}
        for name, asked in self.asked.items():
            right = asked.right_by_logits(asked.in_range().logits)
            found[name] = float(right.mean())
            if name == "answer":
                for subset, mask in asked.subsets.items():
                    found[subset] = float(right[mask].mean()) if mask.any() else float("nan")
        return found


def _check_answers(name: str, answers: Iterable[int]) -> None:
    """Raise if there is nothing to tell apart."""
    if len(set(answers)) < 2:
        raise ValueError(f"{name} prompts: expected at least two different answers, got only one")


def check_finite(what: str, values: Float[Array, "prompt head part"]) -> None:
    """Raise if some heads gave no numbers."""
    bad = np.flatnonzero(~np.isfinite(values).all(axis=(0, 2)))
    if len(bad):
        raise ValueError(
            f"heads {listed(bad.tolist())}: expected finite {what}, got NaN or infinite ones; "
            "these heads overflow: scale their weights down, or run the model in float64"
        )


def collect(
    runner: Runner,
    task: Task,
    probe: Any = None,
    *,
    ablation: Mode = "zero",
    seed: int = 0,
    progress: bool | None = False,
) -> HeadData:
    """Run a model on a task's prompts."""
    quiet, main = runner, task.questions["answer"]
    if isinstance(runner, HookRunner):
        runner = replace(runner, progress=progress)
    replaced = {
        name: Replacement.by(runner, ablation, question.train, seed)
        for name, question in task.questions.items()
    }
    found = {
        name: runner.attribute(
            question.test, question.choices, replaced[name].at_query(question.test)
        )
        for name, question in task.questions.items()
    }
    test = found["answer"].outputs
    return HeadData(
        train_outputs=runner.outputs(main.train).double().cpu().numpy(),
        train_answers=main.answers_of(main.train),
        test_outputs=test.double().cpu().numpy(),
        asked={name: _asked(found[name], question) for name, question in task.questions.items()},
        group_logits=_group_logits(quiet, task, replaced),
        ablation=ablation,
        probe=probe,
        eps=torch.finfo(test.dtype).eps,
    )


def head_data(model: Model, task: Task | Splits | None = None) -> HeadData:
    """Collect what the metrics need of a model, run in whatever way is right for it."""
    task = task_for(model, task)
    return collect(runner_for_task(model, task), task)


def task_for(model: Model, task: Task | Splits | None) -> Task:
    """Return a task in the tokens of a model, by default the one that it was built for."""
    if task is None:
        return counting_task_for(model)
    asked = as_task(task)
    # Others may have texts, for which the model's tokenizer is asked.
    return asked if isinstance(asked, CountingTask) else asked.for_model(hooked(model))


def runner_for_task(model: Model, task: Task) -> Runner:
    """Choose how a model is run on a task; raise if it is not over the task's tokens."""
    questions = task.questions.values()
    runner = runner_for(model, *(part for asked in questions for part in (asked.train, asked.test)))
    for asked in questions:
        check_ids("choices", max(asked.choices), model.cfg.d_vocab_out)
    main = task.questions["answer"]
    for name, prompts in (("train", main.train), ("test", main.test)):
        _check_answers(name, prompts.answers.tolist())
    return runner


def _asked(found: Attribution, question: Question) -> AskedHeads:
    return AskedHeads(
        heads=found.heads.numpy(),
        rest=found.rest.numpy(),
        answers=question.answers_of(question.test),
        subsets=question.test.subsets,
        instead=None if found.instead is None else found.instead.numpy(),
    )


def _group_logits(
    runner: Runner, task: Task, replaced: Mapping[str, Replacement]
) -> GroupLogits | None:
    """Make the function that runs a model with only the heads of each of some groups.

    None where what heads write adds up. Under hooks and interventions nobody knows whether it does.
    """
    if not isinstance(runner, HookRunner):
        return None
    bare = not runner.interventions and not hooked_modules(runner.model)
    if bare and DirectPath(runner.model).adds_up:
        return None
    made_from, then = MadeFrom.of(runner.model, runner, task), _logits(runner, task)
    run_groups = KeptRuns(group_logits(runner, task.questions, replaced), list(task.questions))

    def run(masks: Bool[Array, "group head"], told: Told) -> Iterator[Any]:
        # Groups may be asked for much later, when a patch is gone or weights were changed. Next to
        # that many runs, one more of the whole model costs little, and no patch hides from it.
        made_from.check(runner.model, runner, task)
        made_from.seen._replace(values=then).check(
            made_from.seen._replace(values=_logits(runner, task))
        )
        yield from run_groups(masks, told)

    return run


def _logits(runner: Runner, task: Task) -> dict[str, Float[Array, "prompt choice"]]:
    """Logits of the choices of every question on all test prompts."""
    return {
        name: runner.logits(asked.test)[:, asked.choices].double().cpu().numpy()
        for name, asked in task.questions.items()
    }
