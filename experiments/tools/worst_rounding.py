"""A machine that rounds as badly as the standard model of arithmetic allows.

Real processors round up here and down there, and most of it cancels. This one computes in float64,
multiplies the result of every operation by `1 + e`, with |e| the unit roundoff of a coarser dtype,
and chooses the sign of each `e` so that the margin goes up: a bound that holds here does not live
on luck.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.counts.closed_form import smallest_safe
from count01_lens.models.lens import attn_scale, state_of
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


def worst_margins(
    model: HookedTransformer, tokens: list[int], dtype: torch.dtype
) -> dict[str, float]:
    """Compute the margin after the last token, '=', as high as rounding can bring it, by the way.

    Args:
        model: a model of one layer, without positions.
        tokens: the sequence.
        dtype: whose roundings are made.
    """
    run = _Run(model, tokens, smallest_safe(dtype))
    ways = {"sequence": run.sequence, "compact": run.compact, "closed form": run.closed_form}
    found = {}
    for way, margin in ways.items():
        machine = Machine()
        machine.turn_against(margin(machine), torch.finfo(dtype).eps / 2)
        found[f"worst, {way}"] = float(margin(machine))
    return found


class _Run:
    """One sentence, run on a machine in the ways of the library."""

    def __init__(self, model: HookedTransformer, tokens: list[int], safe: float):
        self.weights = {
            name.rpartition(".")[2]: parameter.detach().to(_FINE)
            for name, parameter in state_of(model).items()
            if parameter.is_floating_point()
        }
        self.scale = attn_scale(model)
        self.tokens, self.safe = tokens, safe

    def sequence(self, machine: Machine) -> Float[Tensor, ""]:
        """Run the tokens as they are; each position may round keys and values in its own way."""
        scores, values = self._scores_and_values(machine, self.tokens)
        return self._logit_margin(machine, self._attend(machine, scores, values))

    def compact(self, machine: Machine) -> Float[Tensor, ""]:
        """Run each token once, with `log n` added to its score."""
        present = sorted(set(self.tokens))
        scores, values = self._scores_and_values(machine, present)
        n = torch.tensor([self.tokens.count(token) for token in present], dtype=_FINE)
        scores = machine.rounded(scores + machine.rounded_function(n.log()))
        return self._logit_margin(machine, self._attend(machine, scores, values))

    def closed_form(self, machine: Machine) -> Float[Tensor, ""]:
        """Divide Σ n (e^S v) by Σ n e^S, scores relative to the largest of all, and fuse tables."""
        every = list(range(Token.FOUR))
        n = torch.tensor([[[float(self.tokens.count(token)) for token in every]]], dtype=_FINE)
        exact, _ = self._scores_and_values(Machine(), every)
        if bool(((exact - exact.amax(dim=-1, keepdim=True)).exp() @ n.mT < self.safe).any()):
            return self.compact(machine)  # the library, too, takes the softmax then
        scores, values = self._scores_and_values(machine, every)
        below = machine.rounded(scores - scores.amax(dim=-1, keepdim=True))
        weight = machine.rounded_function(below.exp()).mT
        inverse = machine.rounded(1 / machine.product(n, weight))
        z = machine.rounded(machine.product(n, machine.rounded(weight * values)) * inverse)
        written, x = self.weights["W_O"].flatten(0, 1), self.weights["W_E"][[Token.EQUALS]]
        fused = machine.product(written, self.weights["W_U"])
        stream = machine.added([x, self.weights["b_O"].unsqueeze(0)])
        bias = machine.product(stream, self.weights["W_U"], self.weights["b_U"].unsqueeze(0))
        return _four_margin(machine.product(z.reshape(1, -1), fused, bias))

    def _scores_and_values(
        self, machine: Machine, tokens: list[int]
    ) -> tuple[Float[Tensor, "head 1 key"], Float[Tensor, "head key d_head"]]:
        x = self.weights["W_E"][tokens].unsqueeze(0)
        q, k, v = (
            machine.product(x, self.weights[f"W_{i}"], self.weights[f"b_{i}"].unsqueeze(1))
            for i in "QKV"
        )
        scores = machine.product(q[:, [tokens.index(Token.EQUALS)]], k.mT)
        if self.scale == 1:
            return scores, v
        inverse = machine.rounded(1 / machine.rounded(torch.tensor(self.scale, dtype=_FINE)))
        return machine.rounded(scores * inverse), v

    def _attend(
        self,
        machine: Machine,
        scores: Float[Tensor, "head 1 key"],
        values: Float[Tensor, "head key d_head"],
    ) -> Float[Tensor, "head 1 d_head"]:
        below = machine.rounded(scores - scores.amax(dim=-1, keepdim=True))
        weight = machine.rounded_function(below.exp())
        inverse = machine.rounded(1 / machine.added(list(weight.unbind(-1)))).unsqueeze(-1)
        return machine.product(machine.rounded(weight * inverse), values)

    def _logit_margin(
        self, machine: Machine, z: Float[Tensor, "head 1 d_head"]
    ) -> Float[Tensor, ""]:
        weights = self.weights
        written = machine.product(z.reshape(1, -1), weights["W_O"].flatten(0, 1), weights["b_O"])
        stream = machine.added([weights["W_E"][[Token.EQUALS]], written])
        return _four_margin(machine.product(stream, weights["W_U"], weights["b_U"]))


def _four_margin(logits: Float[Tensor, "1 vocab"]) -> Float[Tensor, ""]:
    return logits[0, Token.FOUR] - logits[0, Token.FIVE]
