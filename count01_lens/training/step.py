"""The loss and the gradient of one training step: by hand, or by autograd.

By hand a step is some fifty operations on buffers that are there already. Autograd follows the
closed form (`count_form_of`), five times slower: for dropout, for models whose denominators are too
small for the formulas by hand, and as the oracle of tests. They agree to rounding.
"""

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.training.batches import Batch
from count01_lens.training.blocks import Blocks, Flat
from count01_lens.training.sentence_gradients import SentenceGradients, logits_of_all
from count01_lens.training.table_gradients import AttentionTables, OutputTable, ResidualTable

# Losses of some models, given their rows, their sentences and their places in the stack.
LossOfRows = Callable[
    [Float[Tensor, "some parameter"], Int[Tensor, "some sample"], Int[Tensor, " some"]],
    Float[Tensor, " some"],
]


class ByAutograd:
    """Gradients of any loss of rows."""

    def __init__(self, blocks: Blocks, flat: Flat, loss_of_rows: LossOfRows):
        self.blocks, self.flat, self.loss_of_rows = blocks, flat, loss_of_rows

    def __call__(self, batch: Batch, losses: Float[Tensor, " model"]) -> Flat:
        """Write each model's loss; return the gradient of their sum."""
        return self.blocks.flat(self.of_some(batch, losses, torch.arange(len(losses))))

    def of_some(
        self, batch: Batch, losses: Float[Tensor, " model"], which: Int[Tensor, " some"]
    ) -> Float[Tensor, "some parameter"]:
        """Write losses of some models; return the rows of their gradients."""
        with torch.enable_grad():
            leaf = self.blocks.rows(self.flat)[which].requires_grad_()
            loss = self.loss_of_rows(leaf, batch.sentences[which], which)
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        losses[which] = loss.detach()
        return gradient


class ByHand:
    """The gradient of the next-token loss, as derived in the modules that it puts together."""

    def __init__(
        self,
        blocks: Blocks,
        flat: Flat,
        eos_weight: Float[Tensor, " model"],
        loss_of_rows: LossOfRows,
    ):
        self.blocks, self.eos_weight = blocks, eos_weight
        self.gradient = torch.zeros_like(flat)
        views = blocks.views(flat), blocks.views(self.gradient)
        self.attention = AttentionTables(blocks, *views)
        table = OutputTable if blocks.config.output == "fused" else ResidualTable
        self.output = table(blocks, *views)
        self.carefully = ByAutograd(blocks, flat, loss_of_rows)
        self.sentences = cache(self._sentences_of_size)

    def _sentences_of_size(self, size: int) -> SentenceGradients:
        weights = torch.stack([torch.ones_like(self.eos_weight), self.eos_weight], dim=1) / size
        return SentenceGradients(self.attention, self.output, weights.repeat_interleave(size, 1))

    def make_tables(self) -> None:
        """Make the tables of the parameters as they are now."""
        self.attention.forward()
        self.output.forward()

    def logits(
        self, n: Float[Tensor, "seen both_samples"]
    ) -> Float[Tensor, "model token both_samples"] | None:
        """Compute logits of sentences that all models share; None where that is unsafe."""
        return logits_of_all(self.attention, self.output, n)

    def __call__(self, batch: Batch, losses: Float[Tensor, " model"]) -> Flat:
        """Write each model's loss; return the gradient of their sum, until the next step."""
        sentences = self.sentences(batch.sentences.shape[1])
        self.make_tables()
        unsafe = sentences.forward(batch.n)
        sentences.backward(batch.n, batch.right, losses.view(-1, 1, 1))
        self.attention.backward()
        self.output.backward()
        if unsafe is not None:
            rows = self.blocks.rows(self.gradient)
            rows[unsafe] = self.carefully.of_some(batch, losses, unsafe)
            self.gradient.copy_(self.blocks.flat(rows))
        return self.gradient
