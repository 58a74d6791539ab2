import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from count01_lens.tasks.dataset import (
    MAX_COUNT,
    Split,
    Splits,
    SplitSpec,
    as_counts,
    make_splits,
    sequences_of,
)
from count01_lens.tasks.language import decode, validate


def test_sizes_and_ranges_are_the_papers():
    splits = make_splits()
    for split, size, zeros_and_ones, twos in [
        (splits.train, 7000, (0, 100), (0, 100)),
        (splits.validation, 1500, (101, 150), (0, 150)),
        (splits.test, 1500, (151, 200), (0, 200)),
    ]:
        assert split.counts.shape == (size, 3)
        low, high = split.counts.min(0).values.tolist(), split.counts.max(0).values.tolist()
        # With so many draws both ends of each interval occur.
        assert low == [zeros_and_ones[0]] * 2 + [twos[0]]
        assert high == [zeros_and_ones[1]] * 2 + [twos[1]]


def test_counts_are_uniform_and_independent():
    counts = make_splits(seed=3).train.counts.double()
    for column in counts.T:
        frequencies = torch.bincount(column.long(), minlength=101)
        chi_squared = ((frequencies - 7000 / 101) ** 2 / (7000 / 101)).sum()
        assert chi_squared < 170  # 100 degrees of freedom: about 1 in 100,000
    correlations = np.corrcoef(counts.T.numpy()) - np.eye(3)
    assert np.abs(correlations).max() < 0.06
    # Row D1 of the paper: about 70 of 7000 have no '0'.
    assert 35 < int((counts[:, 0] == 0).sum()) < 110


def test_the_same_seed_gives_the_same_sentences_and_another_seed_others():
    one, two, other = make_splits(seed=1), make_splits(seed=1), make_splits(seed=2)
    for name in ("train", "validation", "test"):
        assert torch.equal(getattr(one, name).counts, getattr(two, name).counts)
        assert not torch.equal(getattr(one, name).counts, getattr(other, name).counts)
    # Draws must stay the same from version to version, and so must the default.
    assert make_splits().train.counts[:2].tolist() == [[85, 11, 3], [64, 43, 25]]


def test_a_split_does_not_depend_on_the_size_of_another():
    small = SplitSpec(size=10, zeros_and_ones=(0, 5), twos=(0, 5))
    splits = make_splits(0, train=small)
    assert torch.equal(splits.test.counts, make_splits(0).test.counts)
    names = ("train", "validation", "test")
    assert [getattr(splits, name).name for name in names] == [*names]


def test_sequences_are_right_sentences_with_the_counts_in_random_order():
    split = make_splits(seed=4).test
    sequences = split.sequences()
    assert len(sequences) == len(split)
    shuffled = 0
    for sequence, counts, label in zip(sequences, split.counts, split.labels, strict=True):
        sentence = validate(decode(sequence.tolist()))
        assert sentence.ended
        assert sentence.counts == tuple(counts.tolist())
        assert (sentence.answer == "4") == bool(label)
        shuffled += list(sentence.body) != sorted(sentence.body)
    assert shuffled == len(split)
    assert all(map(torch.equal, sequences, split.sequences()))


def test_the_order_of_tokens_follows_from_the_seed():
    counts = torch.tensor([[20, 20, 20]])
    (default,), (zero,), (one,) = (
        sequences_of(counts), sequences_of(counts, seed=0), sequences_of(counts, seed=1)
    )  # fmt: skip
    assert torch.equal(default, zero)
    assert not torch.equal(zero, one)
    assert torch.equal(Split("mine", counts, seed=1).sequences()[0], one)
    assert [getattr(make_splits(5), name).seed for name in ("train", "test")] == [5, 5]


def test_numbers_of_numpy_become_plain_ones():
    spec = SplitSpec(size=np.int64(3), zeros_and_ones=(0, MAX_COUNT), twos=(0, 1))
    assert type(spec.size) is int
    assert type(Split("mine", torch.tensor([[1, 2, 3]]), np.int64(2)).seed) is int


def test_labels_and_ties():
    split = Split("mine", torch.tensor([[1, 2, 0], [2, 2, 5], [3, 2, 0], [0, 0, 0]]))
    assert split.labels.tolist() == [True, False, False, False]
    assert split.ties.tolist() == [False, True, False, True]
    assert repr(split) == "Split('mine': 4 sentences, 1 with answer '4', 2 ties)"


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(1, 30),
    st.integers(0, 2**40),
)
def test_custom_ranges_are_kept(low, width, twos_low, twos_width, size, seed):
    spec = SplitSpec(
        size=size, zeros_and_ones=(low, low + width), twos=(twos_low, twos_low + twos_width)
    )
    counts = make_splits(seed, validation=spec).validation.counts
    assert counts.shape == (size, 3)
    assert bool(((counts[:, :2] >= low) & (counts[:, :2] <= low + width)).all())
    assert bool(((counts[:, 2] >= twos_low) & (counts[:, 2] <= twos_low + twos_width)).all())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 0}, "size: expected a whole number of at least 1, got 0"),
        ({"size": 2.5}, "size: expected a whole number"),
        ({"size": True}, "size: expected a whole number"),
        ({"twos": (5, 4)}, "twos: expected 0 <= smallest <= largest"),
        ({"zeros_and_ones": (-1, 4)}, "zeros_and_ones: expected 0 <="),
        ({"zeros_and_ones": (0, MAX_COUNT + 1)}, "zeros_and_ones: expected 0 <="),
        ({"twos": 7}, "twos: expected \\(smallest, largest\\)"),
        ({"twos": (1.5, 2)}, "twos: expected \\(smallest, largest\\)"),
    ],
)
def test_impossible_splits_are_rejected(fields, message):
    with pytest.raises(ValueError, match=message):
        SplitSpec(**{"size": 10, "zeros_and_ones": (0, 5), "twos": (0, 5)} | fields)


@pytest.mark.parametrize("seed", [-1, 1.0, "0", None, True])
def test_bad_seeds_are_rejected(seed):
    with pytest.raises(ValueError, match="seed: expected a whole number from 0 to "):
        make_splits(seed)


def test_a_split_that_is_no_spec_is_rejected():
    with pytest.raises(TypeError, match="train: expected a SplitSpec"):
        make_splits(0, train=(10, 5))


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([[1, 2]], ValueError, r"^counts: expected shape .* and '2's\), got \[1, 2\]$"),
        (torch.zeros(3, dtype=torch.long), ValueError, "expected shape"),
        (torch.zeros(0, 3, dtype=torch.long), ValueError, "^counts: expected at .* got none$"),
        (torch.zeros(2, 3), TypeError, "expected whole numbers, got torch.float32"),
        (torch.ones(2, 3, dtype=torch.bool), TypeError, "expected whole numbers"),
        ([[0, MAX_COUNT, 0], [1, -2, 3]], ValueError, r"got \[1, -2, 3\]"),
        ([[0, MAX_COUNT + 1, 0]], ValueError, "expected numbers from 0 to 16777216"),
        ("012", TypeError, "expected a Split or an int tensor .*, got str"),
    ],
)
def test_bad_counts_are_rejected(data, error, message):
    with pytest.raises(error, match=message):
        as_counts(data)


def test_counts_may_come_as_lists_arrays_and_splits():
    expected = torch.tensor([[1, 2, 3]])
    assert torch.equal(as_counts([[1, 2, 3]]), expected)
    assert torch.equal(as_counts(np.array([[1, 2, 3]], dtype=np.int32)), expected)
    assert torch.equal(as_counts(Split("mine", expected)), expected)
    assert as_counts([[0, MAX_COUNT, 0]]).tolist() == [[0, MAX_COUNT, 0]]
    assert [sequence.tolist() for sequence in sequences_of(torch.tensor([[0, 0, 0]]))] == [
        [0, 4, 6, 7]
    ]


def test_a_split_keeps_its_own_copy():
    counts = torch.tensor([[1, 2, 3]])
    split = Split("mine", counts)
    counts[0, 0] = 9
    assert split.counts.tolist() == [[1, 2, 3]]


def test_splits_are_splits():
    with pytest.raises(TypeError, match="train: expected a Split, got 1"):
        Splits(1, 2, 3)
