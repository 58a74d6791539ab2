"""Data sets: sentences drawn as counts, written out as tokens only on demand.

That of the paper (section 3): the numbers of '0's, '1's and '2's are drawn independently and
uniformly; validation and test sentences have more '0's and more '1's than any training sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from count01_lens.common.text import in_words, plural
from count01_lens.common.types import Array
from count01_lens.common.validation import (
    check_bool,
    check_default_device,
    check_int,
    check_seed,
    is_int,
)
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.places import COUNT01
from count01_lens.tasks.rules import MAX_COUNT

# Random streams are independent: a larger training split leaves the test split as it is.
_STREAMS = {"train": 0, "validation": 1, "test": 2, "order": 3}
_LARGEST_SPLIT = 1_000_000  # of a task, which may come from a file
_MOST_DRAWS = 100  # times the size of a split, until every answer has its share


@dataclass(frozen=True, kw_only=True)
class SplitSpec:
    """How many sentences, and the smallest and largest number of '0's (and '1's) and of '2's."""

    size: int
    zeros_and_ones: tuple[int, int]
    twos: tuple[int, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_int("size", self.size, at_least=1))
        for name in ("zeros_and_ones", "twos"):
            _check_range(name, getattr(self, name))

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Smallest and largest number of each symbol."""
        return [self.zeros_and_ones, self.zeros_and_ones, self.twos]


@dataclass(frozen=True, kw_only=True)
class CountSpec:
    """How many sentences of a counting task to draw, and how many of each symbol they have.

    Attributes:
        size: number of sentences.
        counts: (smallest, largest) of every symbol, or of each by name: `{"0": (0, 9), …}`.
            Counts are drawn independently and uniformly.
        balanced: draw until all answers are equally frequent (give or take one sentence), and throw
            away sentences of answers that have enough. For rules by which some answers are rare.
    """

    size: int
    counts: tuple[int, int] | Mapping[str, tuple[int, int]]
    balanced: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_int("size", self.size, at_least=1))
        if self.size > _LARGEST_SPLIT:
            raise ValueError(f"size: expected at most {_LARGEST_SPLIT:,}, got {self.size:,}")
        check_bool("balanced", self.balanced)
        if not isinstance(self.counts, Mapping):
            object.__setattr__(self, "counts", _check_range("counts", self.counts))
            return
        each = {name: _check_range(f"counts[{name!r}]", two) for name, two in self.counts.items()}
        object.__setattr__(self, "counts", each)

    def ranges(self, symbols: Sequence[str]) -> list[tuple[int, int]]:
        """Smallest and largest number of each symbol; raise unless these are its symbols."""
        if not isinstance(self.counts, Mapping):
            return [self.counts] * len(symbols)
        if set(self.counts) != set(symbols):
            expected = f"a range for each of the symbols {list(symbols)}"
            raise ValueError(f"counts: expected {expected}, got {list(self.counts)}")
        return [self.counts[symbol] for symbol in symbols]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        several = isinstance(self.counts, Mapping)
        counts = {k: list(v) for k, v in self.counts.items()} if several else list(self.counts)  # type: ignore[union-attr]
        return {"size": self.size, "counts": counts, "balanced": self.balanced}


def _check_range(name: str, interval: Any) -> tuple[int, int]:
    is_row = isinstance(interval, Sequence) and len(interval) == 2
    expected = "(smallest, largest) as two whole numbers"
    if is_row and all(map(is_int, interval)):
        if 0 <= interval[0] <= interval[1] <= MAX_COUNT:
            return int(interval[0]), int(interval[1])
        expected = f"0 <= smallest <= largest <= {MAX_COUNT}"
    raise ValueError(f"{name}: expected {expected}, got {interval!r}")


TRAIN = SplitSpec(size=7000, zeros_and_ones=(0, 100), twos=(0, 100))
VALIDATION = SplitSpec(size=1500, zeros_and_ones=(101, 150), twos=(0, 150))
TEST = SplitSpec(size=1500, zeros_and_ones=(151, 200), twos=(0, 200))


@dataclass(frozen=True, eq=False)
class Split:
    """Sentences, given by how many of each symbol they have ('0's, '1's and '2's in Count01).

    `seed` orders the tokens of `sequences()`.
    """

    name: str
    counts: Int[Tensor, "sample symbol"]
    seed: int = 0
    language: CountingLanguage = COUNT01

    def __post_init__(self) -> None:
        # A copy: a tensor that the user changes later must not change the split.
        object.__setattr__(self, "counts", as_counts(self.counts, self.language).clone())
        object.__setattr__(self, "seed", check_seed(self.seed))

    @property
    def labels(self) -> Bool[Tensor, " sample"] | Int[Tensor, " sample"]:
        """True where the right answer is the first of two; of more, its place among them."""
        return self.language.labels(self.counts)

    @property
    def ties(self) -> Bool[Tensor, " sample"]:
        """True where a comparison of the rule has equal sides: as many 1s as 0s, in Count01."""
        ties = self.language.ties(self.counts)
        if ties is None:
            raise ValueError(f"ties: expected a rule as text, got a {self.language.rule!r}")
        return ties

    def sequences(self) -> list[Int[Tensor, " _"]]:
        """Write every sentence out as `[BOS] ... = answer [EOS]`, its tokens in random order."""
        return sequences_of(self.counts, seed=self.seed, language=self.language)

    def __len__(self) -> int:
        return len(self.counts)

    def __repr__(self) -> str:
        answers, ties = self.language.answers, self.language.ties(self.counts)
        given = torch.bincount(self.language.answer(self.counts), minlength=len(answers)).tolist()
        shown = given[:1] if len(answers) == 2 else given
        parts = [
            f"{n} with answer {text!r}" for n, text in zip(shown, answers, strict=len(answers) != 2)
        ]
        parts += [] if ties is None else [plural(int(ties.sum()), "tie")]
        return f"Split({self.name!r}: {plural(len(self), 'sentence')}, {', '.join(parts)})"


# What functions over sentences take: a split, or anything like an int tensor [sample, symbol].
CountsLike = Split | Tensor | Array | Sequence[Sequence[int]]


@dataclass(frozen=True)
class Splits:
    """The three parts of a data set."""

    train: Split
    validation: Split
    test: Split

    def __post_init__(self) -> None:
        for name, split in vars(self).items():
            if not isinstance(split, Split):
                raise TypeError(f"{name}: expected a Split, got {split!r}")


def make_splits(
    seed: int = 0,
    *,
    train: SplitSpec = TRAIN,
    validation: SplitSpec = VALIDATION,
    test: SplitSpec = TEST,
) -> Splits:
    """Draw the data set, by default the paper's; the same seed gives the same sentences.

    Example:
        >>> splits = cl.make_splits(seed=0)
        >>> len(splits.train), len(splits.validation), len(splits.test)
        (7000, 1500, 1500)
        >>> splits.test.counts.shape, splits.test.labels.dtype
        (torch.Size([1500, 3]), torch.bool)
    """
    seed = check_seed(seed)
    drawn = {}
    for name, spec in {"train": train, "validation": validation, "test": test}.items():
        if not isinstance(spec, SplitSpec):
            raise TypeError(f"{name}: expected a SplitSpec, got {spec!r}")
        rng = np.random.default_rng([seed, _STREAMS[name]])
        drawn[name] = Split(name, _drawn(rng, spec.ranges, spec.size), seed)
    return Splits(**drawn)


def draw_splits(language: CountingLanguage, specs: Mapping[str, CountSpec], seed: int) -> Splits:
    """Draw the data set of a counting task; the same seed gives the same sentences."""
    drawn = {}
    for name, spec in specs.items():
        rng = np.random.default_rng([seed, _STREAMS[name]])
        ranges = spec.ranges(language.symbols)
        if spec.balanced:
            counts = _balanced(rng, ranges, spec.size, language)
        else:
            counts = _drawn(rng, ranges, spec.size)
        drawn[name] = Split(name, counts, seed, language)
    return Splits(**drawn)


def _drawn(
    rng: np.random.Generator, ranges: Sequence[tuple[int, int]], size: int
) -> Int[Tensor, "sample symbol"]:
    columns = [rng.integers(low, high, size=size, endpoint=True) for low, high in ranges]
    return torch.from_numpy(np.stack(columns, axis=1))


def _balanced(
    rng: np.random.Generator,
    ranges: Sequence[tuple[int, int]],
    size: int,
    language: CountingLanguage,
) -> Int[Tensor, "sample symbol"]:
    """Draw until every answer has its share; those left over are thrown away."""
    n = len(language.answers)
    missing = [size // n + (place < size % n) for place in range(n)]
    parts: list[Tensor] = []
    for _ in range(_MOST_DRAWS):
        counts = _drawn(rng, ranges, size)
        right, keep = language.answer(counts), torch.zeros(size, dtype=torch.bool)
        for place in range(n):
            found = (right == place).nonzero().flatten()[: missing[place]]
            keep[found] = True
            missing[place] -= len(found)
        parts.append(counts[keep])
        if not any(missing):
            return torch.cat(parts)
    rare = language.answers[missing.index(max(missing))]
    raise ValueError(
        f"counts: expected ranges in which every answer occurs, got {list(ranges)}, in which "
        f"{rare!r} hardly does; choose others, or balanced=False"
    )


def labels_of(counts: Int[Tensor, "*model sample 3"]) -> Bool[Tensor, "*model sample"]:
    """True where the right answer of Count01 is '4': more 1s than 0s."""
    return COUNT01.labels(counts)


def sequences_of(
    counts: Int[Tensor, "sample symbol"], *, seed: int = 0, language: CountingLanguage = COUNT01
) -> list[Int[Tensor, " _"]]:
    """Write sentences out as token ids, the counted tokens in random order."""
    counts = as_counts(counts, language)
    rng = np.random.default_rng([seed, _STREAMS["order"]])
    tokens = np.arange(language.d_vocab)[language.counted]
    answers = language.answer_token(language.answer(counts)).tolist()
    sequences = []
    for row, answer in zip(counts.numpy(), answers, strict=True):
        body = rng.permutation(np.repeat(tokens, row))
        end = [language.equals, answer, language.eos]
        sequences.append(torch.from_numpy(np.concatenate([[0], body, end])).long())
    return sequences


def as_counts(
    data: CountsLike, language: CountingLanguage = COUNT01
) -> Int[Tensor, "sample symbol"]:
    """Check and return the counts of a split, or of anything like an int tensor [sample, symbol].

    A split has to be of this language.
    """
    n = len(language.symbols)
    if isinstance(data, Split):
        if data.language.symbols != language.symbols:
            raise ValueError(
                f"expected counts of {' '.join(language.symbols)}, got a split of "
                f"{' '.join(data.language.symbols)}"
            )
        return data.counts
    check_default_device()
    try:
        counts = torch.as_tensor(data)
    except (TypeError, ValueError, RuntimeError) as error:
        expected = f"a Split or an int tensor of counts [sample, {n}]"
        raise TypeError(f"expected {expected}, got {type(data).__name__}") from error
    if counts.ndim != 2 or counts.shape[1] != n:
        symbols = in_words(f"{symbol!r}s" for symbol in language.symbols)
        expected = f"shape [sample, {n}] (numbers of {symbols})"
        raise ValueError(f"counts: expected {expected}, got {list(counts.shape)}")
    if len(counts) == 0:
        raise ValueError("counts: expected at least one sentence, got none")
    if counts.is_floating_point() or counts.is_complex() or counts.dtype == torch.bool:
        raise TypeError(f"counts: expected whole numbers, got {counts.dtype}; use .long()")
    counts = counts.detach().cpu().long()
    if counts.min() < 0 or counts.max() > MAX_COUNT:
        outside = counts[((counts < 0) | (counts > MAX_COUNT)).any(1)][0].tolist()
        raise ValueError(f"counts: expected numbers from 0 to {MAX_COUNT}, got {outside}")
    return counts
