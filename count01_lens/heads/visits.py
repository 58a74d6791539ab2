"""What a model does on prompts that are run batch by batch, in no order."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.models.hooks import Hook
from count01_lens.tasks.prompts import Asked


class Visit(NamedTuple):
    """What a model does on some prompts, at their query positions.

    Attributes:
        some: their numbers.
        logits: of the next token.
        at: activations, by hook point.
    """

    some: list[int]
    logits: Float[Tensor, "prompt token"]
    at: dict[str, Tensor]


# Runs a model on prompts, batch by batch; activations of these hook points, under these hooks.
Visits = Callable[[Asked, list[str], Sequence[tuple[str, Hook]]], Iterable[Visit]]


def in_order(parts: Iterable[tuple[list[int], Tensor]]) -> Tensor:
    """Put results of some prompts, given with their numbers, into the order of all prompts."""
    numbers, found = zip(*parts, strict=True)
    return torch.cat(found)[torch.tensor([n for some in numbers for n in some]).argsort()]
