"""Which heads a figure shows, in the order they were asked for."""

from collections.abc import Iterable

import pandas as pd

from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.models.hooks import HeadName, head_numbers, several_heads


def shown_heads(analysis: HeadAnalysis, heads: Iterable[HeadName] | None) -> list[int]:
    """Numbers of the heads of an analysis that were asked for, as they were; all by default."""
    if heads is None:
        return list(range(len(analysis.heads)))
    return numbers_in_order(heads, _size(analysis.heads, "layer"), _size(analysis.heads, "head"))


def numbers_in_order(heads: Iterable[HeadName], n_layers: int, n_heads: int) -> list[int]:
    """Numbers of heads given as numbers or (layer, head) pairs; raise if one comes twice."""
    numbers = [head_numbers([head], n_layers, n_heads)[0] for head in several_heads(heads)]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise ValueError(f"heads: expected each head once, got more than once: {twice}")
    return numbers


def _size(heads: pd.DataFrame, column: str) -> int:
    return int(heads[column].max()) + 1
