"""The paper's data set: sentences drawn as counts, written out as tokens only on demand.

Section 3 of the paper: the numbers of '0's, '1's and '2's are drawn independently and uniformly;
validation and test sentences have more '0's and more '1's than any training sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from count01_lens.common.types import Array
from count01_lens.common.validation import check_int, check_seed, is_int
from count01_lens.tasks.language import Token

# Random streams are independent: a larger training split leaves the test split as it is.
_STREAMS = {"train": 0, "validation": 1, "test": 2, "order": 3}
# Counts up to here are exact in float32, in which models usually run.
MAX_COUNT = 2**24


@dataclass(frozen=True, kw_only=True)
class SplitSpec:
    """How many sentences, and the smallest and largest number of '0's (and '1's) and of '2's."""

    size: int
    zeros_and_ones: tuple[int, int]
    twos: tuple[int, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_int("size", self.size, at_least=1))
        for name in ("zeros_and_ones", "twos"):
            interval = getattr(self, name)
            is_row = isinstance(interval, Sequence) and len(interval) == 2
            expected = "(smallest, largest) as two whole numbers"
            if is_row and all(map(is_int, interval)):
                if 0 <= interval[0] <= interval[1] <= MAX_COUNT:
                    continue
                expected = f"0 <= smallest <= largest <= {MAX_COUNT}"
            raise ValueError(f"{name}: expected {expected}, got {interval!r}")


TRAIN = SplitSpec(size=7000, zeros_and_ones=(0, 100), twos=(0, 100))
VALIDATION = SplitSpec(size=1500, zeros_and_ones=(101, 150), twos=(0, 150))
TEST = SplitSpec(size=1500, zeros_and_ones=(151, 200), twos=(0, 200))


@dataclass(frozen=True, eq=False)
class Split:
    """Sentences as numbers of '0's, '1's and '2's; `seed` orders the tokens of `sequences()`."""

    name: str
    counts: Int[Tensor, "sample 3"]
    seed: int = 0

    def __post_init__(self) -> None:
        # A copy: a tensor that the user changes later must not change the split.
        object.__setattr__(self, "counts", as_counts(self.counts).clone())
        object.__setattr__(self, "seed", check_seed(self.seed))

    @property
    def labels(self) -> Bool[Tensor, " sample"]:
        """True where the right answer is '4'."""
        return labels_of(self.counts)

    @property
    def ties(self) -> Bool[Tensor, " sample"]:
        """True where there are as many 1s as 0s; the right answer is then '5'."""
        return self.counts[:, 0] == self.counts[:, 1]

    def sequences(self) -> list[Int[Tensor, " _"]]:
        """Write every sentence out as `[BOS] ... = answer [EOS]`, its tokens in random order."""
        return sequences_of(self.counts, seed=self.seed)

    def __len__(self) -> int:
        return len(self.counts)

    def __repr__(self) -> str:
        fours, ties = int(self.labels.sum()), int(self.ties.sum())
        return f"Split({self.name!r}: {len(self)} sentences, {fours} with answer '4', {ties} ties)"


# What functions over sentences take: a split, or anything like an int tensor [sample, 3].
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
        ranges = (spec.zeros_and_ones, spec.zeros_and_ones, spec.twos)
        columns = [rng.integers(low, high, size=spec.size, endpoint=True) for low, high in ranges]
        drawn[name] = Split(name, torch.from_numpy(np.stack(columns, axis=1)), seed)
    return Splits(**drawn)


def labels_of(counts: Int[Tensor, "*model sample 3"]) -> Bool[Tensor, "*model sample"]:
    """True where the right answer is '4': more 1s than 0s."""
    return counts[..., 1] > counts[..., 0]


def sequences_of(counts: Int[Tensor, "sample 3"], *, seed: int = 0) -> list[Int[Tensor, " _"]]:
    """Write sentences out as token ids, the counted tokens in random order."""
    counts = as_counts(counts)
    rng = np.random.default_rng([seed, _STREAMS["order"]])
    tokens = np.array([Token.ZERO, Token.ONE, Token.TWO])
    sequences = []
    for row, is_four in zip(counts.numpy(), labels_of(counts).tolist(), strict=True):
        body = rng.permutation(np.repeat(tokens, row))
        end = [Token.EQUALS, Token.FOUR if is_four else Token.FIVE, Token.EOS]
        sequences.append(torch.from_numpy(np.concatenate([[Token.BOS], body, end])).long())
    return sequences


def as_counts(data: CountsLike) -> Int[Tensor, "sample 3"]:
    """Check and return the counts of a split, or of anything like an int tensor [sample, 3]."""
    if isinstance(data, Split):
        return data.counts
    try:
        counts = torch.as_tensor(data)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"expected a Split or an int tensor of counts [sample, 3], got {type(data).__name__}"
        ) from error
    if counts.ndim != 2 or counts.shape[1] != 3:
        expected = "shape [sample, 3] (numbers of '0's, '1's and '2's)"
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
