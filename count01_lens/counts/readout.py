"""A head on two tables, and a linear read-out of it as an inequality over counts.

At '=' a head's output is z = Σ_t n_t e^{S_t} v_t / Σ_t n_t e^{S_t}. The denominator is positive, so

    w·z + b > 0   ⟺   Σ_t n_t e^{S_t} (w·v_t + b) > 0   ⟺   α + β0 n0 + β1 n1 + β2 n2 > 0

with β_t = e^{S_t}(w·v_t + b), and α the same for '[BOS]' and '=', which stand once in every
sentence. So a probe, or the model's own direction, *is* an inequality over counts.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from count01_lens.common.text import sum_of_terms
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.counts.closed_form import CountForm
from count01_lens.models.hooks import check_heads
from count01_lens.tasks.dataset import CountsLike, as_counts
from count01_lens.tasks.decisions import four_margin
from count01_lens.tasks.language import TOKENS, Token

_SEEN = [Token.BOS, Token.ZERO, Token.ONE, Token.TWO, Token.EQUALS]


def qk_table(model: HookedTransformer, head: int) -> pd.DataFrame:
    """Attention scores of a head: a row per query token, a column per key token.

    Example:
        >>> cl.qk_table(cl.example_model(), 2).shape
        (8, 8)
    """
    form = CountForm.from_models([model])
    (head,) = check_heads(model, [head])
    names = pd.Index(TOKENS, name="query"), pd.Index(TOKENS, name="key")
    return pd.DataFrame(form.scores[0, head].numpy(), *names)


def ov_table(model: HookedTransformer, head: int) -> pd.DataFrame:
    """What attending to a token alone adds to each logit: a row per token, a column per logit.

    Example:
        >>> table = cl.ov_table(cl.example_model(), 2)
        >>> bool(table.loc["1", "4"] > table.loc["0", "4"])  # a '1' speaks for '4'
        True
    """
    form = CountForm.from_models([model])
    (head,) = check_heads(model, [head])
    attributed = form.values[0, head] @ form.logit_weights[0, head]
    return pd.DataFrame(
        attributed.numpy(), pd.Index(TOKENS, name="token"), pd.Index(TOKENS, name="logit")
    )


@dataclass(frozen=True, eq=False)
class CountReadout:
    """The inequality α + β0·n0 + β1·n1 + β2·n2 > 0, for which the answer is '4'.

    Attributes:
        scores: attention scores of '[BOS]', '0', '1', '2', '=' at '='. Kept apart from the values
            because e^S of scores far from each other has no common scale.
        values: w·v + b of the same tokens.
    """

    scores: Float[Array, " token=5"]
    values: Float[Array, " token=5"]

    @property
    def coefficients(self) -> Float[Array, " coefficient=4"]:
        """α, β0, β1, β2 up to a positive factor: β1 is ±1, or the largest β where β1 is nothing."""
        with np.errstate(over="ignore", invalid="ignore"):
            # Where '[BOS]' or '=' take all attention, α is beyond any number.
            weights = np.nan_to_num(
                np.exp(self.scores - self.scores[1:4].max()) * self.values,
                posinf=np.inf,
                neginf=-np.inf,
            )
        alpha, betas = weights[0] + weights[4], weights[1:4]
        largest = np.abs(betas).max()
        unit = abs(betas[1]) if abs(betas[1]) > 1e-3 * largest else largest
        coefficients = np.concatenate([[alpha], betas])
        return coefficients / unit if unit > 0 else coefficients

    def decide(self, data: CountsLike) -> Bool[Array, " sample"]:
        """Tell for which sentences the inequality holds, exactly also where scores are extreme."""
        counts = as_counts(data).numpy().astype(float)
        once = np.ones(len(counts))
        n = np.column_stack([once, counts, once])
        present = np.where(n > 0, self.scores, -np.inf)
        weights = n * np.exp(present - present.max(axis=1, keepdims=True))
        return np.asarray(weights @ self.values > 0)

    def __str__(self) -> str:
        """Write the inequality for a person, '1's first: `n1 − 1.003·n0 + 0.002·n2 − 0.41 > 0`."""
        alpha, beta0, beta1, beta2 = self.coefficients
        terms = [(beta1, "n1"), (beta0, "n0"), (beta2, "n2"), (alpha, "")]
        return f"{sum_of_terms(terms)} > 0"


def readout(
    form: CountForm, head: int, weights: Float[Array, " d_head"], bias: float
) -> CountReadout:
    """Write the read-out w·z + b > 0 of one head of one model as an inequality over counts."""
    values = form.values[0, head, _SEEN].double().numpy() @ weights + bias
    return CountReadout(form.scores[0, head, Token.EQUALS, _SEEN].double().numpy(), values)


def learned_readout(form: CountForm, head: int) -> CountReadout:
    """The model's own use of one head: what it adds to '4' minus '5', plus the bias."""
    direction = four_margin(form.logit_weights[0, head]).double().numpy()
    bias = float(four_margin(form.logit_bias[0, Token.EQUALS]))
    return readout(form, head, direction, bias)


def attention_ratios(form: CountForm) -> tuple[Float[Array, " head"], Float[Array, " head"]]:
    """w01 and w02: how much more attention one '0' gets at '=' than one '1', and than one '2'."""
    scores = form.scores[0, :, Token.EQUALS].double().numpy()
    with np.errstate(over="ignore"):  # a collapsed head has a ratio beyond any number
        w01 = np.exp(scores[:, Token.ZERO] - scores[:, Token.ONE])
        w02 = np.exp(scores[:, Token.ZERO] - scores[:, Token.TWO])
    return w01, w02


def head_weights(form: CountForm) -> Float[Array, " head"]:
    """hw: length of w_5 − w_4 of each head, together 1; how strongly the output layer reads it."""
    lengths = four_margin(form.logit_weights[0]).norm(dim=-1).double().numpy()
    return np.asarray(lengths / lengths.sum()) if lengths.sum() > 0 else lengths
