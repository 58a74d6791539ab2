"""From parameters to the tables that sentences meet, and gradients all the way back, by hand.

Half of a training step (`sentence_gradients` is the other). With x_t what attention reads of a
token, the tables of a head, for the queries u that ever ask and the keys t that each of them sees,
are

    q_u, k_t, v_t = x W_Q, x W_K, x W_V,    S_ut = q_u · k_t,    X_ut = e^{S_ut - max_t S_ut},

and `weighted` has X and X v side by side. Given the gradients G⁰ of X and G of X v, those of the
rest are (the maximum cancels in every quotient of sums, so that it counts as a constant)

    dv_t = Σ_u X_ut G_ut,    dS_ut = X_ut (G⁰_ut + G_ut · v_t),
    dq_u = Σ_t dS_ut k_t,    dk_t = Σ_u dS_ut q_u,
    dW = xᵀ [dq dk dv],      dx = [dq dk dv] Wᵀ,

and a layer norm x = w x̂ + b has dw = Σ_t x̂_t dx_t, db = Σ_t dx_t, and its own formula for the rest.

Each class has its buffers and views of them from the start: on tables this small, making them would
cost as much as computing.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.models.parameters import LAYER_NORM_EPS
from count01_lens.training.blocks import Blocks

Views = Mapping[str, Tensor]


class AttentionTables:
    """Scores and values of the tokens that queries see.

    A query sees '[BOS]', the symbols and '=', then itself: the last key. At '=' that is '=' once
    more, with a multiplicity of zero, so that all queries have as many keys.

    Attributes:
        n_keys: how many of them each query has.
        weighted: e^S and e^S v, of every query and key.
        d_weighted: its gradient but for the sign of that of e^S; who calls `backward` fills it.
    """

    def __init__(self, blocks: Blocks, parameters: Views, gradient: Views):
        config, language = blocks.config, blocks.language
        m, heads, d_head = blocks.n_models, config.n_heads, config.d_head
        queries, keys = len(language.answers) + 1, language.equals + 2
        self.parameters, self.gradient, self.config = parameters, gradient, config
        self.n_keys = keys
        embedding = parameters["W_E"]
        self._read = embedding.new_ones(m, language.d_vocab, config.d_embed + config.qkv_bias)
        self._embedded = self._read[..., : config.d_embed]
        self._d_read = torch.empty_like(embedding)
        self._of_embedding = parameters["W_QKV"][:, : config.d_embed].mT

        self._qkv, self._d_qkv = embedding.new_zeros(2, m, language.d_vocab, 3 * d_head * heads)
        of_queries, common, own = slice(language.equals, language.eos), slice(keys - 1), keys - 1
        by_letter = (m, language.d_vocab, 3, d_head, heads)
        qkv, d_qkv = self._qkv.view(by_letter), self._d_qkv.view(by_letter)
        self._q, self._d_q = qkv[:, of_queries, 0].unsqueeze(2), d_qkv[:, of_queries, 0]
        seen, d_seen = embedding.new_empty(2, m, queries, keys, 2, d_head, heads)
        self._k, self._v = seen[:, :, :, 0], seen[:, :, :, 1]
        self._d_k, self._d_v = d_seen[:, :, :, 0], d_seen[:, :, :, 1]
        # What a query sees, and where it is copied from.
        self._copied = [
            (seen[:, :, common], qkv[:, None, common, 1:]),
            (seen[:, :, own], qkv[:, of_queries, 1:]),
        ]
        self._d_common = d_seen[:, :, common], d_qkv[:, common, 1:]
        answers = slice(language.equals + 1, language.eos)
        self._d_own = d_seen[:, 1:, own], d_qkv[:, answers, 1:]

        self._products = torch.empty_like(self._k)
        self._scores = embedding.new_empty(m, queries, keys, heads)
        self._d_scores = self._scores.unsqueeze(3)
        self._largest = embedding.new_empty(m, queries, 1, heads)
        both = embedding.new_empty(2, m, queries, keys, 1 + d_head, heads)
        self.weighted, self.d_weighted = both.view(2, m, queries * keys, (1 + d_head) * heads)
        self._exponentials, self._d_exponentials = both[:, :, :, :, 0]
        self._shares = both[0, :, :, :, :1]
        self._products_with_v, self._d_products_with_v = both[:, :, :, :, 1:]
        # '=' is always seen, so that this alone is a lower bound of denominators.
        self.always_seen = self._exponentials[:, :, language.equals]

    def forward(self) -> None:
        """Make the tables of the parameters as they are now."""
        if self.config.layer_norm:
            weight, bias = self.parameters["ln"]
            embedding = self.parameters["W_E"]
            self._normalised, self._mean, self._rstd = torch.native_layer_norm(
                embedding, (self.config.d_embed,), None, None, LAYER_NORM_EPS
            )
            torch.addcmul(bias, self._normalised, weight, out=self._embedded)
        else:
            self._embedded.copy_(self.parameters["W_E"])
        torch.bmm(self._read, self.parameters["W_QKV"], out=self._qkv)
        for seen, tokens in self._copied:
            seen.copy_(tokens)
        torch.mul(self._k, self._q, out=self._products)
        torch.sum(self._products, 3, out=self._scores)
        self._scale()
        torch.amax(self._scores, 2, keepdim=True, out=self._largest)
        torch.exp(self._scores.sub_(self._largest), out=self._exponentials)
        torch.mul(self._v, self._shares, out=self._products_with_v)

    def backward(self) -> None:
        """Follow `d_weighted` back to the parameters."""
        torch.mul(self._d_products_with_v, self._v, out=self._products)
        torch.sum(self._products, 3, out=self._scores)
        self._scores.sub_(self._d_exponentials).mul_(self._exponentials)
        self._scale()
        torch.mul(self._d_products_with_v, self._shares, out=self._d_v)
        torch.mul(self._q, self._d_scores, out=self._d_k)
        torch.mul(self._k, self._d_scores, out=self._products)
        torch.sum(self._products, 2, out=self._d_q)
        common, into = self._d_common
        torch.sum(common, 1, out=into)
        own, into = self._d_own
        into.copy_(own)
        torch.bmm(self._read.mT, self._d_qkv, out=self.gradient["W_QKV"])
        d_read = self._d_read if self.config.layer_norm else self.gradient["W_E"]
        torch.bmm(self._d_qkv, self._of_embedding, out=d_read)
        if self.config.layer_norm:
            self._backward_of_layer_norm()

    def _backward_of_layer_norm(self) -> None:
        d_weight, d_bias = self.gradient["ln"]
        torch.sum(self._d_read, 1, keepdim=True, out=d_bias)
        torch.sum(self._d_read * self._normalised, 1, keepdim=True, out=d_weight)
        self._d_read.mul_(self.parameters["ln"][0])
        d_embedding, _, _ = torch.ops.aten.native_layer_norm_backward(
            self._d_read, self.parameters["W_E"], (self.config.d_embed,), self._mean, self._rstd,
            None, None, (True, False, False),
        )  # fmt: skip
        self.gradient["W_E"].copy_(d_embedding)

    def _scale(self) -> None:
        """Divide scores, or their gradient, as the config says."""
        if self.config.attn_scale != 1:
            self._scores.div_(self.config.attn_scale)


class OutputTable:
    """From head outputs to logits: the fused output layer.

    Attributes:
        weights: of the head outputs, then what a query adds to the logits without any head.
        d_weights: their gradient; who calls `backward` fills it.
        n_asked: how many queries are told apart; one if all add the same.
    """

    n_asked = 1

    def __init__(self, blocks: Blocks, parameters: Views, gradient: Views):
        self.weights: Float[Tensor, "model token coordinate"] = parameters["output"]
        self.d_weights: Float[Tensor, "model token coordinate"] = gradient["output"]

    def forward(self) -> None:
        """Make the table: it is made of parameters already."""

    def backward(self) -> None:
        """Follow `d_weights` back to the parameters: they are there already."""


class ResidualTable(OutputTable):
    """The same of a projection, the skip connection and an unembedding.

    The rows that the unembedding reads are those of W_O, then, for each query u, W_E[u] + b_O.
    """

    def __init__(self, blocks: Blocks, parameters: Views, gradient: Views):
        language, d_embed = blocks.language, blocks.config.d_embed
        self.parameters, self.gradient = parameters, gradient
        self.n_asked = len(language.answers) + 1
        n_outputs = blocks.config.n_heads * blocks.config.d_head
        shape = (2, blocks.n_models, n_outputs + self.n_asked)
        rows, d_rows = parameters["W_E"].new_empty(*shape, d_embed)
        weights = parameters["W_E"].new_empty(2, shape[1], language.d_vocab, shape[2])
        self.weights, self.d_weights = weights
        self._rows, self._d_rows = rows, d_rows
        self._of_heads, self._d_of_heads = rows[:, :n_outputs], d_rows[:, :n_outputs]
        self._skip, self._d_skip = rows[:, n_outputs:], d_rows[:, n_outputs:]
        self._bias, self._d_bias = weights[:, :, :, n_outputs:]
        of_queries = slice(language.equals, language.eos)
        self._current = parameters["W_E"][:, of_queries]
        self._d_current = gradient["W_E"][:, of_queries]

    def forward(self) -> None:
        """Make the table of the parameters as they are now."""
        self._of_heads.copy_(self.parameters["W_O"])
        torch.add(self._current, self.parameters["b_O"], out=self._skip)
        torch.bmm(self.parameters["W_U"].mT, self._rows.mT, out=self.weights)
        self._bias.add_(self.parameters["b_U"])

    def backward(self) -> None:
        """Follow `d_weights` back; what attention reads of W_E has its gradient already."""
        gradient = self.gradient
        torch.bmm(self._rows.mT, self.d_weights.mT, out=gradient["W_U"])
        torch.bmm(self.d_weights.mT, self.parameters["W_U"].mT, out=self._d_rows)
        gradient["W_O"].copy_(self._d_of_heads)
        torch.sum(self._d_bias, 2, keepdim=True, out=gradient["b_U"])
        torch.sum(self._d_skip, 1, keepdim=True, out=gradient["b_O"])
        self._d_current.add_(self._d_skip)
