"""The model as algebra over counts, for a stack of models at once.

What a one-layer model without positions computes at '=' depends only on how often each token
occurs. With scores `S` and values `v` per token, a head's output is

    z = Σ_t n_t e^{S_t} v_t / Σ_t n_t e^{S_t},

two small matrix products for a whole batch of sentences. `CountForm` holds the tables.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.common.precision import at_least_float32, without_autocast
from count01_lens.counts.applies import require_counts
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.lens import state_of
from count01_lens.models.stored import Model, StoredModel, attn_scale_of
from count01_lens.models.task_of import language_for
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.places import COUNT01


@dataclass(frozen=True, eq=False)
class CountForm:
    """Token tables of a stack of models, from which everything they compute follows.

    Attributes:
        scores: attention scores `S[query, key]` of every head, over the vocabulary.
        values: value vectors.
        logit_weights: the paper's `w_{i,t}`, from a head's output to the logits.
        logit_bias: the logits after each token without any head.
        language: what the tokens are.
    """

    scores: Float[Tensor, "model head query key"]
    values: Float[Tensor, "model head key d_head"]
    logit_weights: Float[Tensor, "model head d_head vocab"]
    logit_bias: Float[Tensor, "model token vocab"]
    language: CountingLanguage = COUNT01

    @property
    def tables(self) -> dict[str, Float[Tensor, "model ..."]]:
        """The tables by name."""
        names = ("scores", "values", "logit_weights", "logit_bias")
        return {name: getattr(self, name) for name in names}

    @property
    def keys(self) -> slice:
        """Tokens that a query may see: all but '[EOS]', the last one."""
        return slice(0, self.scores.shape[-1] - 1)

    def of_models(self, which: Int[Tensor, " chosen"]) -> "CountForm":
        """Return some models of the stack, as a stack."""
        chosen = {name: table[which] for name, table in self.tables.items()}
        return CountForm(**chosen, language=self.language)

    @classmethod
    @without_autocast
    def from_parameters(
        cls,
        parameters: Mapping[str, Float[Tensor, "model ..."]],
        attn_scale: float = 1.0,
        language: CountingLanguage = COUNT01,
    ) -> "CountForm":
        """Make the tables from parameters with TransformerLens's names and a `model` axis."""
        W_E, W_U = parameters["embed.W_E"], parameters["unembed.W_U"]
        read = [parameters[f"blocks.0.attn.W_{letter}"] for letter in "QKV"]
        biases = [parameters[f"blocks.0.attn.b_{letter}"] for letter in "QKV"]
        W_O = rearrange(parameters["blocks.0.attn.W_O"], "m head d_head r -> m (head d_head) r")
        skip = (W_E + parameters["blocks.0.attn.b_O"].unsqueeze(1)) @ W_U
        scores, values = scores_and_values(W_E, read, biases, attn_scale)
        return cls(
            scores=scores,
            values=values,
            logit_weights=rearrange(
                W_O @ W_U, "m (head d_head) vocab -> m head d_head vocab", head=scores.shape[1]
            ),
            logit_bias=skip + parameters["unembed.b_U"].unsqueeze(1),
            language=language,
        )

    @classmethod
    def from_models(
        cls,
        models: Sequence[Model],
        dtype: torch.dtype | None = None,
        *,
        task: CountingTask | CountingLanguage | None = None,
        ignore_hooks: bool = False,
    ) -> "CountForm":
        """Make the tables of models of one shape that can be run on counts (`why_not_counts`).

        Args:
            models: at least one.
            dtype: of the tables; by default the models' own, but at least float32, because a
                table in half precision would round counts.
            task: the task of the sentences; by default that of the tokenizers, or else Count01.
            ignore_hooks: ignore hooks that are attached to the models.
        """
        if not isinstance(models, Sequence) or not models:
            raise ValueError(f"models: expected a list of at least one model, got {models!r}")
        language = language_for(models[0], task)
        for model in models:
            require_counts(model, language, ignore_hooks=ignore_hooks)
        shapes = {(m.cfg.d_model, m.cfg.n_heads, m.cfg.d_head) for m in models}
        scales = {attn_scale_of(m) for m in models}
        if len(shapes) > 1 or len(scales) > 1:
            raise ValueError(
                "models: expected one (d_model, n_heads, d_head) and one attn_scale, "
                f"got {sorted(shapes)} and {sorted(scales)}; make a CountForm of each"
            )
        states = [count_parameters(model, dtype) for model in models]
        stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
        return cls.from_parameters(stacked, scales.pop(), language)

    @classmethod
    def magnitudes(
        cls,
        model: Model,
        dtype: torch.dtype,
        *,
        task: CountingTask | CountingLanguage | None = None,
        floor: float = 0.0,
    ) -> "CountForm":
        """Make the tables of a model with all parameters replaced by their absolute values.

        Each entry is then the sum of the absolute values of what is summed up to the entry of the
        real table: the yardstick of its rounding error, however much cancels.

        Args:
            model: one that can be run on counts (see `why_not_counts`).
            dtype: of the tables.
            task: as in `from_models`.
            floor: added to every absolute value; an error relative to it covers underflow.
        """
        language = language_for(model, task)
        require_counts(model, language)
        parameters = {
            name: (parameter.abs() + floor).unsqueeze(0)
            for name, parameter in count_parameters(model, dtype).items()
        }
        scale = abs(attn_scale_of(model))
        return cls.from_parameters(parameters, scale, language)

    def with_outputs_of(
        self, heads: Sequence[int], outputs: float | Float[Tensor, "chosen d_head"]
    ) -> "CountForm":
        """Make the outputs of some heads the same in every sentence, such as zero or a mean."""
        values = self.values.clone()
        constant = outputs if isinstance(outputs, float) else outputs.to(values).unsqueeze(1)
        values[:, list(heads)] = constant
        return replace(self, values=values)

    def attention(self, sentences: Multiplicities) -> Float[Tensor, "model sample head query key"]:
        """Attention that all tokens of one type get together: `softmax(S + log n)`.

        Numerically safe: an absent token has `log 0 = -inf` and takes no part in the maximum.
        """
        scores = rearrange(
            self.scores[:, :, sentences.rows, self.keys], "m head q key -> m 1 head (q key)"
        )
        log_n = rearrange(sentences.n.log(), "... sample q key -> ... sample 1 (q key)")
        attention = torch.softmax(scores + log_n, dim=-1)
        return rearrange(attention, "... (q key) -> ... q key", q=sentences.n.shape[-2])

    @without_autocast
    def head_outputs(self, sentences: Multiplicities) -> Float[Tensor, "model sample head d_head"]:
        """Compute `hook_z` of every head."""
        outputs = self._outputs_by_coordinate(sentences)
        return rearrange(outputs, "m sample d_head head -> m sample head d_head")

    def _outputs_by_coordinate(
        self, sentences: Multiplicities
    ) -> Float[Tensor, "model sample d_head head"]:
        """Compute head outputs with heads last: their division is then several times faster."""
        scores = self.scores[:, :, sentences.rows, self.keys] + sentences.seen.to(self.scores)
        numerator, denominator = self._sums(scores, sentences.n)
        unsafe = denominator.detach().amin(dim=(1, 2)) < smallest_safe(scores.dtype)
        if not unsafe.any():
            return numerator * denominator.reciprocal().unsqueeze(-2)
        if unsafe.all():
            return self._outputs_by_attention(sentences)
        # The slower way for those models alone; a denominator of 1 keeps their share of the rest
        # finite, which is then overwritten.
        which = unsafe.nonzero().flatten()
        some = self.of_models(which)
        n = sentences.n[which] if sentences.n.dim() == 4 else sentences.n
        theirs = replace(sentences, n=n)
        denominator = torch.where(unsafe[:, None, None], 1.0, denominator)
        outputs = numerator * denominator.reciprocal().unsqueeze(-2)
        return outputs.index_copy(0, which, some._outputs_by_attention(theirs))

    def _sums(
        self,
        scores: Float[Tensor, "model head query key"],
        multiplicity: Float[Tensor, "*model sample query key"],
    ) -> tuple[Float[Tensor, "model sample d_head head"], Float[Tensor, "model sample head"]]:
        """Compute Σ n e^S v and Σ n e^S, whose quotient is the output.

        Scores relative to the largest one keep e^S from overflowing. They can still all underflow,
        where the token with the largest score is absent from a sentence: then the denominator is
        tiny, and the slower way, which looks at present tokens only, has to be taken.
        """
        relative = torch.exp(scores - scores.detach().amax(dim=-1, keepdim=True))
        n = rearrange(multiplicity, "... sample q key -> ... sample (q key)")
        denominator = n @ rearrange(relative, "m head q key -> m (q key) head")
        weighted = relative.unsqueeze(-1) * self.values[:, :, None, self.keys]
        numerator = n @ rearrange(weighted, "m head q key d -> m (q key) (d head)")
        by_coordinate = rearrange(
            numerator, "m sample (d head) -> m sample d head", head=scores.shape[1]
        )
        return by_coordinate, denominator

    def _outputs_by_attention(
        self, sentences: Multiplicities
    ) -> Float[Tensor, "model sample d_head head"]:
        attention = self.attention(sentences).sum(dim=-2)
        values = self.values[:, :, self.keys]
        return einsum(attention, values, "m sample head key, m head key d -> m sample d head")

    @without_autocast
    def head_logits(self, sentences: Multiplicities) -> Float[Tensor, "model sample head vocab"]:
        """Compute the direct logit attribution of every head, `O_i · w_{i,t}`."""
        outputs = self.head_outputs(sentences)
        return einsum(outputs, self.logit_weights, "m sample head d, m head d t -> m sample head t")

    @without_autocast
    def logits(self, sentences: Multiplicities) -> Float[Tensor, "model sample vocab"]:
        """Compute the logits of the next token."""
        outputs = rearrange(
            self._outputs_by_coordinate(sentences), "m sample d head -> m sample (d head)"
        )
        weights = rearrange(self.logit_weights, "m head d vocab -> m (d head) vocab")
        # A batched product with gaps in its input would be taken apart, model by model.
        current = sentences.asked.contiguous()
        return outputs @ weights + current @ self.logit_bias[:, sentences.rows]


def count_parameters(
    model: Model, dtype: torch.dtype | None = None
) -> dict[str, Float[Tensor, "..."]]:
    """Take the parameters that tables are made from, by name, also where two share one tensor.

    They are in a dtype, or in the model's own, but in at least float32.
    """
    state = model.state_dict() if isinstance(model, StoredModel) else state_of(model)
    attention = (f"blocks.0.attn.{kind}_{letter}" for kind in "Wb" for letter in "QKVO")
    return {
        name: state[name].cpu().to(dtype or at_least_float32(state[name].dtype))
        for name in ("embed.W_E", *attention, "unembed.W_U", "unembed.b_U")
    }


def scores_and_values(
    embedding: Float[Tensor, "model token d_model"],
    weights: Sequence[Float[Tensor, "model head d_model d_head"]],
    biases: Sequence[Float[Tensor, "model head d_head"]],
    attn_scale: float,
) -> tuple[Float[Tensor, "model head query key"], Float[Tensor, "model head key d_head"]]:
    """Make the tables of attention from what queries, keys and values read of each token.

    Weights are given for the three of them, biases for the three or for none.
    """
    # Heads are put side by side: one product per model is much faster than one per head.
    side_by_side = rearrange(torch.cat(list(weights), dim=1), "m h d_model d -> m d_model (h d)")
    read = embedding @ side_by_side
    if biases:
        read = read + rearrange(torch.cat(list(biases), dim=1), "m h d -> m 1 (h d)")
    q, k, values = rearrange(
        read, "m token (letter h d) -> letter m h token d", letter=3, h=weights[0].shape[1]
    )
    scores = q @ k.mT
    return (scores if attn_scale == 1 else scores / attn_scale), values


def smallest_safe(dtype: torch.dtype) -> float:
    """The smallest denominator whose inverse, and its square in the gradient, are harmless.

    It is also far above anything that underflow could have taken from it.
    """
    return math.sqrt(torch.finfo(dtype).tiny) * 1e4
