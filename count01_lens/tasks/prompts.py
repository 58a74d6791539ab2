"""Prompts, questions and tasks: what a model is asked, and what would be right.

A task is one question or several. Each has training and test prompts and the tokens among which
the model chooses. The measurements in `heads` know tasks, and nothing of counting.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from count01_lens.common.fingerprints import hash_of
from count01_lens.common.text import plural
from count01_lens.common.types import Array
from count01_lens.common.validation import check_number, check_seed, is_int
from count01_lens.tasks.tokens import (
    check_choices,
    counted_from_start,
    listed_tokens,
    masks_of,
    one_token,
    rows_of_ids,
    spread,
    texts_or_ids,
    token_ids,
)


class Asked(Protocol):
    """Prompts in any form."""

    @property
    def answers(self) -> Int[Tensor, " prompt"]:
        """The right token of each prompt."""

    @property
    def subsets(self) -> Mapping[str, Bool[Array, " prompt"]]:
        """Prompts that are reported apart, by name."""

    @property
    def positions(self) -> list[int]:
        """Query position of each prompt, counted from its first token."""

    def sequences(self) -> list[Int[Tensor, " _"]]:
        """Every prompt as token ids."""

    def few(self, n: int) -> "Asked":
        """A few of them, from all parts."""

    def fingerprint(self) -> str:
        """A hash of them: equal only if prompts, positions and answers are."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts, given as token ids, or as texts for a model with a tokenizer.

    Args:
        tokens: a matrix [prompt, position], or a list of sequences of different lengths; or a list
            of texts, which become tokens when a model is asked (see `tokenized`).
        answers: the right next token of each prompt, as an id or as a text.
        position: the query position, where the model is asked: one for all prompts, or one for
            each; negative numbers count from the end of each prompt.
        subsets: by name, masks of prompts that are reported separately.

    Example:
        >>> prompts = cl.Prompts([[0, 1, 2, 4], [0, 1, 4]], answers=[6, 6])
        >>> len(prompts), prompts.positions
        (2, [3, 2])
        >>> texts = cl.Prompts(["012=", "11="], answers=["5", "4"])
        >>> texts.tokenized(cl.example_model()).tokens[1].tolist()  # '[BOS]' first
        [0, 2, 2, 4]
    """

    tokens: Any
    answers: Any
    position: Any = -1
    subsets: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        several = isinstance(self.tokens, Sequence | Tensor | Array)
        if not several or isinstance(self.tokens, str) or getattr(self.tokens, "ndim", 1) == 0:
            expected = "a matrix or a list of sequences, or a list of texts"
            raise TypeError(f"tokens: expected {expected}, got {self.tokens!r:.80}")
        texts = [isinstance(row, str) for row in self.tokens]
        if any(texts) and not all(texts):
            raise TypeError("tokens: expected all prompts as texts, or all as token ids")
        rows = list(self.tokens) if any(texts) else rows_of_ids(self.tokens)
        if not rows or any(len(row) == 0 for row in rows):
            raise ValueError("tokens: expected at least one prompt, each of at least one token")
        given = [self.position] * len(rows) if is_int(self.position) else self.position
        places = token_ids("position", given, at_least=None).tolist()
        answers = texts_or_ids("answers", self.answers)
        if not any(texts) and isinstance(answers, list):
            expected = "token ids, as the prompts are; give the prompts as texts, too"
            raise TypeError(f"answers: expected {expected}, got {answers[0]!r}")
        subsets = masks_of(self.subsets)
        lengths = {f"subsets[{name!r}]": len(mask) for name, mask in subsets.items()}
        for name, length in {"answers": len(answers), "position": len(places), **lengths}.items():
            if length != len(rows):
                expected = f"one for each of {len(rows)} prompts"
                raise ValueError(f"{name}: expected {expected}, got {length}")
        if not any(texts):
            places = counted_from_start(rows, places)
        checked = dict(tokens=rows, answers=answers, position=places, subsets=subsets)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def is_text(self) -> bool:
        """Whether prompts are texts, which only a model's tokenizer turns into tokens."""
        return isinstance(self.tokens[0], str)

    def tokenized(self, model: Any) -> "Prompts":
        """Return these prompts as token ids of a model's tokenizer; '[BOS]' as the model has it."""
        if not self.is_text:
            return self
        rows = [model.to_tokens(text)[0].cpu() for text in self.tokens]
        answers = self.answers
        if isinstance(answers, list):
            ids = {text: one_token("answers", text, model) for text in dict.fromkeys(answers)}
            answers = [ids[text] for text in answers]
        return Prompts(rows, answers, self.position, self.subsets)

    @property
    def positions(self) -> list[int]:
        """Query position of each prompt, counted from its first token."""
        self._need_ids()
        return list(self.position)

    def sequences(self) -> list[Int[Tensor, " _"]]:
        """Every prompt as token ids."""
        self._need_ids()
        return list(self.tokens)

    def few(self, n: int) -> "Prompts":
        """A few of them, from all parts."""
        return self[spread(len(self), n)]

    def fingerprint(self) -> str:
        """A hash of them: equal only if prompts, positions and answers are."""
        self._need_ids()
        rows = (row.numpy().tobytes() for row in self.tokens)
        masks = (f"{name} {mask.tolist()}" for name, mask in sorted(self.subsets.items()))
        return hash_of([*rows, f"{self.answers.tolist()} {self.position}", *masks])

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, chosen: Any) -> "Prompts":
        """Take some of the prompts: by their numbers, a mask, or a slice."""
        numbers = np.arange(len(self))[chosen].reshape(-1)
        return Prompts(
            [self.tokens[i] for i in numbers],
            [self.answers[i] for i in numbers],
            [self.position[i] for i in numbers],
            {name: mask[numbers] for name, mask in self.subsets.items()},
        )

    def __repr__(self) -> str:
        subsets = f"; subsets: {', '.join(self.subsets)}" if self.subsets else ""
        longest = plural(max(map(len, self.tokens)), "character" if self.is_text else "token")
        return f"Prompts({plural(len(self), 'prompt')} of up to {longest}{subsets})"

    def _need_ids(self) -> None:
        if self.is_text:
            raise TypeError(
                "prompts: expected token ids, got texts, which a tokenizer turns into ids; use "
                "prompts.tokenized(model)"
            )


@dataclass(frozen=True, eq=False)
class Question:
    """Training and test prompts, and the choices: of equal highest logits the later one wins.

    Choices are token ids, or texts until a model is asked.
    """

    train: Asked
    test: Asked
    choices: tuple[Any, ...]

    def answers_of(self, prompts: Asked) -> Int[Array, " prompt"]:
        """The place among the choices of each prompt's right answer."""
        place = {token: i for i, token in enumerate(self.choices)}
        return np.array([place[token] for token in prompts.answers.tolist()])


class Task:
    """Questions to a model, on which its heads are measured.

    Args:
        train: prompts that probes are fitted to.
        test: prompts that everything is measured on.
        choices: the tokens that the model chooses from; by default the answers that occur.

    Example:
        >>> train = cl.Prompts([[0, 1, 4], [0, 2, 4], [0, 1, 2, 4]], answers=[6, 5, 6])
        >>> test = cl.Prompts([[0, 1, 3, 4], [0, 2, 3, 4]], answers=[6, 5])
        >>> cl.Task(train, test).questions["answer"].choices
        (5, 6)
    """

    questions: dict[str, Question]  # by name; "answer" is what the task is about

    def __init__(self, train: Prompts, test: Prompts, choices: Iterable[int] | None = None):
        for name, prompts in (("train", train), ("test", test)):
            if not isinstance(prompts, Prompts):
                raise TypeError(f"{name}: expected Prompts, got {type(prompts).__name__}")
            if "answer" in prompts.subsets:
                expected = "no subset of the name 'answer', which is the whole question"
                raise ValueError(f"{name}: expected {expected}")
        if train.is_text != test.is_text:
            raise TypeError("expected training and test prompts both as texts, or both as ids")
        occurring = [*listed_tokens(train.answers), *listed_tokens(test.answers)]
        chosen = check_choices(choices, occurring)
        self.questions = {"answer": Question(train, test, chosen)}

    @classmethod
    def split(
        cls,
        prompts: Prompts,
        *,
        test: float = 0.25,
        seed: int = 0,
        choices: Iterable[int] | None = None,
    ) -> "Task":
        """Split prompts into training and test prompts at random, whatever their answers."""
        if not isinstance(prompts, Prompts):
            raise TypeError(f"prompts: expected Prompts, got {type(prompts).__name__}")
        n_test = round(check_number("test", test, above=0) * len(prompts))
        if not 0 < n_test < len(prompts):
            expected = f"a share that leaves prompts for both parts of {len(prompts)}"
            raise ValueError(f"test: expected {expected}, got {test!r}")
        order = np.random.default_rng(check_seed(seed)).permutation(len(prompts))
        return cls(prompts[np.sort(order[n_test:])], prompts[np.sort(order[:n_test])], choices)

    def for_model(self, model: Any) -> "Task":
        """Return this task in a model's tokens; it needs a tokenizer if prompts are texts."""
        question = self.questions["answer"]
        train, test, choices = question.train, question.test, question.choices
        if not (isinstance(train, Prompts) and isinstance(test, Prompts) and train.is_text):
            return self
        if getattr(model, "tokenizer", None) is None:
            raise ValueError(
                "model: expected one with a tokenizer, because prompts are texts, got one without; "
                "give token ids, or set it with model.set_tokenizer"
            )
        ids = [
            one_token("choices", choice, model) if isinstance(choice, str) else choice
            for choice in choices
        ]
        for i, (token, text) in enumerate(zip(ids, choices, strict=True)):
            if token in ids[:i]:
                same = choices[ids.index(token)]
                raise ValueError(
                    f"choices: expected different tokens, got one for {same!r}, {text!r}"
                )
        return Task(train.tokenized(model), test.tokenized(model), ids)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the task as a JSON file, which `load` and the command line read."""
        from count01_lens.tasks.task_file import write_task

        write_task(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Task":
        """Read what `save` wrote, or a file written by hand; nothing in it is run as code."""
        from count01_lens.tasks.task_file import read_task

        return read_task(path)

    def n_shared(self) -> int:
        """How many test prompts are among those that probes are fitted to."""

        def known(prompts: Prompts) -> list[tuple[bytes, int]]:
            rows = [row.numpy().tobytes() for row in prompts.sequences()]
            return list(zip(rows, prompts.positions, strict=True))

        question = self.questions["answer"]
        if not (isinstance(question.train, Prompts) and isinstance(question.test, Prompts)):
            return 0
        seen = set(known(question.train))
        return sum(prompt in seen for prompt in known(question.test))

    @property
    def fingerprint(self) -> str:
        """A hash of its questions: equal only if all prompts and choices are."""
        return hash_of(
            f"{name} {asked.choices} {asked.train.fingerprint()} {asked.test.fingerprint()}"
            for name, asked in self.questions.items()
        )

    def __repr__(self) -> str:
        parts = [
            f"{name}: {len(question.train):,} training and "
            f"{plural(len(question.test), 'test prompt')}, "
            f"{plural(len(question.choices), 'choice')}"
            for name, question in self.questions.items()
        ]
        return f"{type(self).__name__}({'; '.join(parts)})"
