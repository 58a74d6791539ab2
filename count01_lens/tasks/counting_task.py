"""Counting tasks: two questions to every sentence, asked as counts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from count01_lens.common.fingerprints import hash_of
from count01_lens.common.types import Array
from count01_lens.common.validation import check_seed
from count01_lens.tasks.counting import CountingLanguage, Place
from count01_lens.tasks.dataset import CountsLike, CountSpec, Split, Splits, as_counts, draw_splits
from count01_lens.tasks.places import COUNT01
from count01_lens.tasks.prompts import Question, Task
from count01_lens.tasks.tokens import spread

# The paper's sizes and, for every symbol, its ranges: longer sentences than those of training.
TRAIN = CountSpec(size=7000, counts=(0, 100))
VALIDATION = CountSpec(size=1500, counts=(101, 150))
TEST = CountSpec(size=1500, counts=(151, 200))
_PARTS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class CountPrompts:
    """Sentences as counts, asked at one place; written out as tokens only where that is needed."""

    split: Split
    place: Place

    @classmethod
    def of(cls, data: CountsLike, place: Place) -> "CountPrompts":
        """Take a split, or counts [sample, symbol]."""
        if isinstance(data, Split):
            return cls(data, place)
        counts = as_counts(data, place.language)
        return cls(Split("given", counts, language=place.language), place)

    @property
    def counts(self) -> Int[Tensor, "prompt symbol"]:
        """Number of each symbol in each sentence: '0's, '1's and '2's in Count01."""
        return self.split.counts

    @property
    def language(self) -> CountingLanguage:
        """Whose sentences they are."""
        return self.split.language

    @property
    def answers(self) -> Int[Tensor, " prompt"]:
        """The right answer after '=', '[EOS]' after the answer."""
        if self.place.name == "answer":
            return torch.full((len(self),), self.language.eos)
        return self.language.answer_token(self.split.labels)

    @cached_property
    def subsets(self) -> Mapping[str, Bool[Array, " prompt"]]:
        """Ties, which are a matter of their own, and all others; neither where nobody knows."""
        found = self.language.ties(self.counts)
        if found is None:
            return {}
        ties = np.asarray(found.numpy())
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
        """A hash of them: equal only if counts, answers, place and the order of tokens are."""
        parts = [self.counts.numpy().tobytes(), self.place.name, f"{self.split.seed}"]
        if self.language != COUNT01:
            parts += [f"{self.language.tokens}", self.answers.numpy().tobytes()]
        return hash_of(parts)

    def __len__(self) -> int:
        return len(self.split)


class CountingTask(Task):
    """Count symbols, compare the counts, and say what the rule calls for.

    A sentence is `[BOS]`, symbols in any order, '=', the answer and '[EOS]'; the tokens have their
    ids in this order: '[BOS]', symbols, '=', answers, '[EOS]'. "answer" is asked after '=', "end"
    after the answer. Count01 is one of these tasks; `counting_task` gives others by name.

    Args:
        symbols: what is counted: single characters, or short strings of letters and digits.
        answers: at least two, written likewise.
        rule: a condition on counts such as "n1 > n0", for which the first answer is right, else
            the second. For more answers, as many conditions but one: the first that holds decides,
            else the last answer is right. A condition may have counts (n and the symbol), whole
            numbers, `+ - *`, max, min, comparisons, and, or, not and brackets. A function from
            counts [sample, symbol] to the places of the right answers works, too, but cannot be
            stored.
        train, validation, test: size and ranges; by default the paper's.
        seed: for drawing sentences.
        name: what the task is called.

    Raises:
        RuleError: a rule is malformed; the message points at the place.

    Example:
        >>> task = cl.CountingTask("ab", "XY", "na > nb", test=cl.CountSpec(size=9, counts=(5, 7)))
        >>> task.language.tokens
        ('[BOS]', 'a', 'b', '=', 'X', 'Y', '[EOS]')
        >>> task
        CountingTask(a b → X Y: na > nb)
    """

    def __init__(
        self,
        symbols: Any,
        answers: Any,
        rule: Any,
        *,
        train: CountSpec = TRAIN,
        validation: CountSpec = VALIDATION,
        test: CountSpec = TEST,
        seed: int = 0,
        name: str | None = None,
    ):
        if not (name is None or (isinstance(name, str) and re.fullmatch(r"\w{1,40}", name))):
            expected = "1 to 40 letters, digits or underscores"
            raise ValueError(f"name: expected {expected}, got {name!r:.80}")
        self.name = name
        self.seed = check_seed(seed)
        specs = {"train": train, "validation": validation, "test": test}
        self.specs: dict[str, CountSpec] | None = specs
        for part, spec in specs.items():
            if not isinstance(spec, CountSpec):
                raise TypeError(f"{part}: expected a CountSpec, got {spec!r:.80}")
        language = CountingLanguage.of(symbols, answers, rule)
        splits = draw_splits(language, specs, self.seed)
        for split in (splits.train, splits.test):
            given = set(language.answer(split.counts).tolist())
            for place, answer in enumerate(language.answers):
                if place not in given:
                    raise ValueError(
                        f"{split.name}: expected sentences with every answer, got none with "
                        f"{answer!r}; choose other ranges, or a CountSpec with balanced=True"
                    )
        self._ask(splits)

    def _ask(self, splits: Splits) -> None:
        self.splits = splits
        self.language = language = splits.train.language
        tokens = range(language.d_vocab)
        # Of equal logits the later choice wins; '[EOS]' has to lead all others.
        answers, ends = tokens[language.answer_ids], (language.eos, *tokens[: language.eos])
        asked = ("answer", language.at_equals, answers), ("end", language.at_answer, ends)
        self.questions = {
            name: Question(
                CountPrompts(splits.train, place), CountPrompts(splits.test, place), tuple(choices)
            )
            for name, place, choices in asked
        }

    @property
    def up_to(self) -> int:
        """The largest number of any symbol in its data: how far models are verified by default."""
        assert self.specs is not None
        ranges = [two for spec in self.specs.values() for two in spec.ranges(self.language.symbols)]
        return max(largest for _, largest in ranges)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; raise if the rule is a function."""
        assert self.specs is not None
        specs = {part: spec.to_dict() for part, spec in self.specs.items()}
        return {**self.language.describe(), **specs, "seed": self.seed, "name": self.name}

    @classmethod
    def from_dict(cls, values: Any) -> "CountingTask":
        """Read what `to_dict` wrote."""
        expected = {"symbols", "answers", "rule", *_PARTS, "seed", "name"}
        if not isinstance(values, Mapping) or set(values) != expected:
            raise ValueError(
                f"task: expected an object with {sorted(expected)}, got {values!r:.80}"
            )
        if not all(isinstance(values[key], list) for key in ("symbols", "answers", "rule")):
            raise ValueError("task: expected lists of symbols, answers and conditions")
        specs = {}
        for part in _PARTS:
            if not isinstance(values[part], Mapping):
                raise ValueError(f"task: expected an object {part!r}, got {values[part]!r:.80}")
            try:
                specs[part] = CountSpec(**values[part])
            except TypeError as error:
                raise ValueError(f"task: {part}: {error}") from error
        return CountingTask(**{**values, **specs})

    def __repr__(self) -> str:
        called = f"{self.name}: " if self.name else ""
        return f"{type(self).__name__}({called}{self.language!r})"
