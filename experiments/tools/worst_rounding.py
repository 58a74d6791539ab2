"""A machine that rounds as badly as the standard model of arithmetic allows.

Real processors round up here and down there, and most of it cancels. This one computes in float64,
multiplies the result of every operation by `1 + e`, with |e| the unit roundoff of a coarser dtype,
and chooses the sign of each `e` so that the margin goes up: a bound that holds here does not live
on luck.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.tasks.language import Token

_FINE = torch.float64


class Machine:
    """Rounds every operation by errors that are given, in the order in which they are met."""

    def __init__(self) -> None:
        self.errors: list[Tensor] = []
        self.met = 0

    def rounded(self, exact: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Round the result of one operation."""
        if self.met == len(self.errors):
            self.errors.append(torch.zeros_like(exact, requires_grad=True))
        error = self.errors[self.met]
        self.met += 1
        return exact * (1 + error)

    def added(self, terms: list[Float[Tensor, "*shape"]]) -> Float[Tensor, "*shape"]:
        """Add one term after the other; what is added to zero, or zero to it, stays exact."""
        total = terms[0]
        for term in terms[1:]:
            exact = total + term
            total = torch.where((total == 0) | (term == 0), exact, self.rounded(exact))
        return total

    def product(
        self,
        rows: Float[Tensor, "*batch row inner"],
        columns: Float[Tensor, "*batch inner column"],
        *more: Tensor,
    ) -> Float[Tensor, "*batch row column"]:
        """Multiply matrices, and add something."""
        terms = rows.unsqueeze(-2) * columns.mT.unsqueeze(-3)
        return self.added([*self.rounded(terms).unbind(-1), *more])

    def rounded_function(self, exact: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Round an exp or a log, which may be off by two units in the last place."""
        for _ in range(4):
            exact = self.rounded(exact)
        return exact

    def turn_against(self, margin: Float[Tensor, ""], unit: float) -> None:
        """Choose for the next run the errors that raise the margin most, to first order."""
        gradients = torch.autograd.grad(margin, self.errors, allow_unused=True)
        self.errors = [
            torch.zeros_like(error) if gradient is None else unit * gradient.sign()
            for error, gradient in zip(self.errors, gradients, strict=True)
        ]
        self.met = 0


def worst_margin(
    model: HookedTransformer, tokens: list[int], dtype: torch.dtype, times: list[int] | None = None
) -> float:
    """Compute the margin after the last token, which is '=', as high as rounding can bring it.

    Args:
        model: a model of one layer, without positions.
        tokens: the sequence.
        dtype: whose roundings are made.
        times: in the compact form, how often each token occurs.
    """
    machine, unit = Machine(), torch.finfo(dtype).eps / 2
    machine.turn_against(_margin(machine, model, tokens, times), unit)
    return float(_margin(machine, model, tokens, times))


def _margin(
    machine: Machine, model: HookedTransformer, tokens: list[int], times: list[int] | None
) -> Float[Tensor, ""]:
    weights = {
        name.rpartition(".")[2]: parameter.detach().to(_FINE)
        for name, parameter in model.named_parameters()
    }
    x, scale = weights["W_E"][tokens], float(model.blocks[0].attn.attn_scale)
    # A token has one key and one value, but each position may round them in its own way.
    q, k, v = (
        machine.product(x.unsqueeze(0), weights[f"W_{letter}"], weights[f"b_{letter}"].unsqueeze(1))
        for letter in "QKV"
    )
    scores = machine.product(q[:, -1:], k.mT)
    if scale != 1:
        inverse = machine.rounded(1 / machine.rounded(torch.tensor(scale, dtype=_FINE)))
        scores = machine.rounded(scores * inverse)
    if times is not None:
        log_n = machine.rounded_function(torch.tensor([math.log(n) for n in times], dtype=_FINE))
        scores = machine.rounded(scores + log_n)
    below = machine.rounded(scores - scores.amax(dim=-1, keepdim=True))
    weight = machine.rounded_function(below.exp())
    inverse = machine.rounded(1 / machine.added(list(weight.unbind(-1)))).unsqueeze(-1)
    z = machine.product(machine.rounded(weight * inverse), v)
    written = machine.product(z.reshape(1, -1), weights["W_O"].flatten(0, 1), weights["b_O"])
    stream = machine.added([x[-1:], written])
    logits = machine.product(stream, weights["W_U"], weights["b_U"])[0]
    return logits[Token.FOUR] - logits[Token.FIVE]
