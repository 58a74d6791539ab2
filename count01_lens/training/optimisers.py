"""Optimisers of a stack of models, whose settings may differ from row to row.

Each takes the same steps as torch's own of that name, which knows one setting per tensor only.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.training.stack import Rows

PerModel = Float[Tensor, "model 1"]


@dataclass
class Optimiser(ABC):
    """What an optimiser remembers between steps: a number or more for each parameter.

    Attributes:
        moments: by the names in `MOMENTS`; they are stored with a run.
        steps: taken so far.
    """

    MOMENTS: ClassVar[tuple[str, ...]]

    moments: dict[str, Rows]
    steps: int = 0

    @classmethod
    def for_rows(cls, rows: Rows) -> Self:
        """Start with zero moments."""
        return cls({name: torch.zeros_like(rows) for name in cls.MOMENTS})

    @abstractmethod
    def update(
        self, rows: Rows, gradient: Rows, learning_rate: PerModel, weight_decay: PerModel
    ) -> None:
        """Take one step in place."""


@dataclass
class AdamW(Optimiser):
    """Adam with decoupled weight decay, as `torch.optim.AdamW`."""

    MOMENTS = ("first_moment", "second_moment")

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def update(
        self, rows: Rows, gradient: Rows, learning_rate: PerModel, weight_decay: PerModel
    ) -> None:
        """Shrink the weights, whatever the gradient, and take a step of Adam."""
        rows.mul_(1 - learning_rate * weight_decay)
        self._step(rows, gradient, learning_rate)

    def _step(self, rows: Rows, gradient: Rows, learning_rate: PerModel) -> None:
        self.steps += 1
        beta1, beta2 = self.betas
        first, second = (self.moments[name] for name in self.MOMENTS)
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        denominator = second.sqrt()
        denominator.div_(math.sqrt(1 - beta2**self.steps)).add_(self.eps)
        update = first / denominator
        rows.sub_(update.mul_(learning_rate / (1 - beta1**self.steps)))


@dataclass
class Adam(AdamW):
    """Adam with weight decay added to the gradient, as `torch.optim.Adam`."""

    def update(
        self, rows: Rows, gradient: Rows, learning_rate: PerModel, weight_decay: PerModel
    ) -> None:
        """Take a step of Adam on the loss with a penalty of ½ weight_decay ‖weights‖²."""
        self._step(rows, gradient + weight_decay * rows, learning_rate)


@dataclass
class SGD(Optimiser):
    """Gradient descent with momentum and weight decay added to the gradient: `torch.optim.SGD`."""

    MOMENTS = ("velocity",)

    momentum: float = 0.9

    def update(
        self, rows: Rows, gradient: Rows, learning_rate: PerModel, weight_decay: PerModel
    ) -> None:
        """Take a step along the velocity."""
        self.steps += 1
        velocity = self.moments["velocity"]
        velocity.mul_(self.momentum).add_(gradient).add_(weight_decay * rows)
        rows.sub_(learning_rate * velocity)


OPTIMISERS: dict[str, type[Optimiser]] = {"adamw": AdamW, "adam": Adam, "sgd": SGD}
