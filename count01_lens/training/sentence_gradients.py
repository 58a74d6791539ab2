"""From tables to the loss of a batch, and gradients back to the tables, by hand.

The half of a training step that meets sentences (`table_gradients` is the other). With the
multiplicities n of a sentence, its two sums over tokens, the head output and the logits are

    y⁰ = Σ_t n_t X_t,    y = Σ_t n_t X_t v_t,    z = y / y⁰,    l = T [z 1],    p = softmax(l).

With the one-hot vector e of the right token, and a weight w (one over the batch, times that of the
second task), the gradients of the loss -w log p_right are

    dl = w (p - e),      dT = Σ dl [z 1]ᵀ,      dz = Tᵀ dl,
    dy = dz / y⁰,        dy⁰ = -dy · z,         d(X) = Σ n dy⁰,    d(X v) = Σ n dy,

sums over the sentences of the batch: each is one product for all heads of a model. Sentences are
the last axis of every array, so that what is computed for each runs over many numbers in a row.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.counts.closed_form import smallest_safe
from count01_lens.training.table_gradients import AttentionTables, OutputTable

_IN_CACHE = 200_000  # numbers
_FEWEST_SENTENCES = 300  # with fewer at once, the calls cost more than a full cache


class SentenceGradients:
    """Loss and gradients of batches of one size, with the buffers for it."""

    def __init__(
        self,
        attention: AttentionTables,
        output: OutputTable,
        loss_weights: Float[Tensor, "model both_samples"],
    ):
        self.attention, self.output = attention, output
        config, (m, samples) = attention.config, loss_weights.shape
        heads, d_head = config.n_heads, config.d_head
        n_outputs, self._dtype = heads * d_head, loss_weights.dtype
        both = loss_weights.new_empty(2, m, 1 + d_head, heads, samples)
        self._sums, self._d_sums = both.view(2, m, (1 + d_head) * heads, samples)
        self._denominator, self._d_denominator = both[:, :, 0]
        self._numerator, self._d_numerator = both[:, :, 1:]
        self._inverse = loss_weights.new_empty(m, 1, heads, samples)
        self._z = loss_weights.new_ones(m, n_outputs + output.n_asked, samples)
        self._outputs = self._z[:, :n_outputs].view(m, d_head, heads, samples)
        self._asked = self._z[:, n_outputs:]
        self._d_outputs = torch.empty_like(self._outputs)
        self._flat_d_outputs = self._d_outputs.view(m, n_outputs, samples)
        self._of_outputs = output.weights[:, :, :n_outputs].mT
        self.logits = loss_weights.new_empty(m, output.weights.shape[1], samples)
        self._probabilities = torch.empty_like(self.logits)
        per_sample = loss_weights.new_empty(3, m, 1, samples)
        self._largest, self._total, self._rate = per_sample
        self._weights = loss_weights.unsqueeze(1)
        self._minus_weights = -self._weights

    def forward(self, n: Float[Tensor, "model seen both_samples"]) -> Int[Tensor, " unsafe"] | None:
        """Compute logits; return the models whose denominators, and so their logits, are unsafe."""
        torch.bmm(self.attention.weighted.mT, n, out=self._sums)
        unsafe = None
        smallest = smallest_safe(self._dtype)
        # Nearly always the first question is enough, which looks at tables instead of sentences.
        if bool((self.attention.always_seen < smallest).any()):
            found = (self._denominator < smallest).flatten(1).any(dim=1).nonzero().flatten()
            if len(found):
                unsafe = found
                self._denominator[unsafe] = 1.0
        torch.reciprocal(self._denominator.unsqueeze(1), out=self._inverse)
        torch.mul(self._numerator, self._inverse, out=self._outputs)
        if self.output.n_asked > 1:
            self._asked.copy_(n[:, :: self.attention.n_keys])
        torch.bmm(self.output.weights, self._z, out=self.logits)
        return unsafe

    def backward(
        self,
        n: Float[Tensor, "model seen both_samples"],
        right: Int[Tensor, "model 1 both_samples"],
        loss: Float[Tensor, "model 1 1"],
    ) -> None:
        """Write each model's loss, and the gradients of the tables."""
        probabilities, logits = self._probabilities, self.logits
        torch.amax(logits, 1, keepdim=True, out=self._largest)
        torch.exp(logits.sub_(self._largest), out=probabilities)
        torch.sum(probabilities, 1, keepdim=True, out=self._total)
        likelihood = logits.gather(1, right).sub_(self._total.log())
        torch.bmm(likelihood, self._minus_weights.mT, out=loss)
        torch.div(self._weights, self._total, out=self._rate)
        d_logits = probabilities.mul_(self._rate).scatter_add_(1, right, self._minus_weights)
        torch.bmm(d_logits, self._z.mT, out=self.output.d_weights)
        torch.bmm(self._of_outputs, d_logits, out=self._flat_d_outputs)
        torch.mul(self._d_outputs, self._inverse, out=self._d_numerator)
        # With the other sign: the tables know it.
        torch.mul(self._d_numerator, self._outputs, out=self._d_outputs)
        torch.sum(self._d_outputs, 1, out=self._d_denominator)
        torch.bmm(n, self._d_sums.mT, out=self.attention.d_weighted)


def logits_of_all(
    attention: AttentionTables, output: OutputTable, n: Float[Tensor, "seen both_samples"]
) -> Float[Tensor, "model token both_samples"] | None:
    """Compute logits of the same sentences for every model; None if a denominator is unsafe."""
    (m, _, columns), heads = attention.weighted.shape, attention.config.n_heads
    n_outputs, smallest = columns - heads, smallest_safe(n.dtype)
    # One product for all models, since they share the sentences.
    weighted = attention.weighted.mT.reshape(m * columns, -1)
    at_once = max(_FEWEST_SENTENCES, _IN_CACHE // len(weighted))
    doubtful = bool((attention.always_seen < smallest).any())
    pieces, keys, half = [], attention.n_keys, n.shape[1] // 2
    # At '=' only the first query asks, at the answer only the others: the rest of n is zero.
    for seen, samples in (slice(keys), slice(half)), (slice(keys, None), slice(half, None)):
        asked = slice(seen.start and 1, seen.stop and 1) if output.n_asked > 1 else slice(None)
        bias = output.weights[:, :, n_outputs:][:, :, asked]
        for part in torch.split(n[seen, samples], at_once, dim=1):
            sums = (weighted[:, seen] @ part).view(m, -1, heads, part.shape[1])
            if doubtful and bool((sums[:, 0] < smallest).any()):
                return None
            outputs = sums[:, 1:].div_(sums[:, :1]).reshape(m, n_outputs, -1)
            logits = torch.bmm(output.weights[:, :, :n_outputs], outputs)
            # '[BOS]', the first key, tells which query asks.
            pieces.append(logits.add_(bias @ part[::keys] if output.n_asked > 1 else bias))
    return torch.cat(pieces, dim=2)
