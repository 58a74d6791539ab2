"""Optimisers of a stack of models, whose settings may differ from model to model.

Each takes the same steps as torch's own of that name, which knows one setting per tensor only. What
is a parameter's stands at its place in every tensor; which place that is, they need not know.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

Numbers = Float[Tensor, "..."]
# Of each parameter, or one for all of them.
Setting = Numbers | float


@dataclass
class Optimiser(ABC):
    """What an optimiser remembers between steps: a number or more for each parameter.

    Attributes:
        moments: by the names in `MOMENTS`; they are stored with a run.
        steps: taken so far.
    """

    MOMENTS: ClassVar[tuple[str, ...]]

    moments: dict[str, Numbers]
    steps: int = 0

    @classmethod
    def for_rows(cls, rows: Numbers) -> Self:
        """Start with zero moments."""
        return cls({name: torch.zeros_like(rows) for name in cls.MOMENTS})

    def arranged(self, order: Callable[[Numbers], Numbers]) -> Self:
        """Return the optimiser of parameters that are put into another order."""
        return replace(self, moments={name: order(value) for name, value in self.moments.items()})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Put the moments of several stacks that have taken the same steps below each other."""
        moments = {name: torch.cat([part.moments[name] for part in parts]) for name in cls.MOMENTS}
        return replace(parts[0], moments=moments)

    @abstractmethod
    def update(
        self, rows: Numbers, gradient: Numbers, learning_rate: Setting, weight_decay: Setting
    ) -> None:
        """Take one step in place."""


@dataclass
class AdamW(Optimiser):
    """Adam with decoupled weight decay, as `torch.optim.AdamW`."""

    MOMENTS = ("first_moment", "second_moment")

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def update(
        self, rows: Numbers, gradient: Numbers, learning_rate: Setting, weight_decay: Setting
    ) -> None:
        """Shrink the weights, whatever the gradient, and take a step of Adam."""
        rows.mul_(1 - learning_rate * weight_decay)
        self._step(rows, gradient, learning_rate)

    def _step(self, rows: Numbers, gradient: Numbers, learning_rate: Setting) -> None:
        self.steps += 1
        beta1, beta2 = self.betas
        first, second = (self.moments[name] for name in self.MOMENTS)
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # Corrections of the moments for their start at zero, as numbers: no pass over parameters.
        correction = math.sqrt(1 - beta2**self.steps)
        denominator = second.sqrt().add_(self.eps * correction)
        update = torch.div(first, denominator, out=denominator)
        _descend(rows, update, learning_rate * (correction / (1 - beta1**self.steps)))


@dataclass
class Adam(AdamW):
    """Adam with weight decay added to the gradient, as `torch.optim.Adam`."""

    def update(
        self, rows: Numbers, gradient: Numbers, learning_rate: Setting, weight_decay: Setting
    ) -> None:
        """Take a step of Adam on the loss with a penalty of ½ weight_decay ‖weights‖²."""
        self._step(rows, gradient + weight_decay * rows, learning_rate)


@dataclass
class SGD(Optimiser):
    """Gradient descent with momentum and weight decay added to the gradient: `torch.optim.SGD`."""

    MOMENTS = ("velocity",)

    momentum: float = 0.9

    def update(
        self, rows: Numbers, gradient: Numbers, learning_rate: Setting, weight_decay: Setting
    ) -> None:
        """Take a step along the velocity."""
        self.steps += 1
        velocity = self.moments["velocity"]
        velocity.mul_(self.momentum).add_(gradient).add_(weight_decay * rows)
        _descend(rows, velocity, learning_rate)


def _descend(rows: Numbers, update: Numbers, learning_rate: Setting) -> None:
    """Subtract an update; in one pass where all have one learning rate."""
    if isinstance(learning_rate, float):
        rows.sub_(update, alpha=learning_rate)
    else:
        rows.sub_(learning_rate * update)


OPTIMISERS: dict[str, type[Optimiser]] = {"adamw": AdamW, "adam": Adam, "sgd": SGD}
