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

from count01_lens.common.text import as_written, sum_of_terms
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.counts.closed_form import CountForm
from count01_lens.models.hooks import check_heads
from count01_lens.tasks.dataset import CountsLike, as_counts
from count01_lens.tasks.decisions import four_margin
from count01_lens.tasks.language import TOKENS, Token

_SAFE_EXPONENT = 900  # 2^900 times any count is still a number
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
        >>> table = cl.ov_table(cl.example_model(), 3)
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
        """α, β0, β1, β2 up to a positive factor: β1 is ±1, or the largest β where β1 is nothing.

        α is infinite where '[BOS]' and '=' outweigh all counts beyond any number.
        """
        # Large scores have no digits left for logarithms.
        logs = self.scores - self.scores.max() + _logs(self.values)
        signs = np.sign(self.values)
        # '[BOS]' and '=' may both be beyond any number, with opposite signs: they are added up in a
        # unit of their own before they are compared with the rest.
        ends = logs[[0, 4]].max()
        alpha = float(signs[[0, 4]] @ np.exp(logs[[0, 4]] - ends)) if ends > -np.inf else 0.0
        signs = np.array([np.sign(alpha), *signs[1:4]])
        logs = np.array([ends + np.log(abs(alpha)) if alpha else -np.inf, *logs[1:4]])
        largest = logs[1:].max()
        unit = logs[2] if logs[2] > largest + np.log(1e-3) else largest
        if unit == -np.inf:
            return signs * (logs > -np.inf)
        with np.errstate(over="ignore"):
            return np.asarray(signs * np.exp(logs - unit))

    def decide(self, data: CountsLike) -> Bool[Array, " sample"]:
        """Tell for which sentences the inequality holds, exactly also where scores are extreme."""
        counts = as_counts(data).numpy().astype(float)
        once = np.ones(len(counts))
        n = np.column_stack([once, counts, once])
        # Tokens of equal scores are added up first, so that what cancels leaves the decision to
        # the rest; sums are then compared by their logarithms, of which none overflows.
        signs, logs = [], []
        scores = self.scores - self.scores.max()
        for score in np.unique(scores):
            values = np.where(scores == score, self.values, 0.0)
            exponent = max(int(np.frexp(np.abs(values).max())[1]) - _SAFE_EXPONENT, 0)
            sums = n @ np.ldexp(values, -exponent)
            signs.append(np.sign(sums))
            logs.append(score + exponent * np.log(2) + _logs(sums))
        relative = np.stack(logs) - np.maximum(np.max(logs, axis=0), np.finfo(float).min)
        return np.asarray((signs * np.exp(relative)).sum(axis=0) > 0)

    def rounded(self) -> Float[Array, " coefficient=4"]:
        """α, β0, β1, β2 as they are written, with few digits."""
        return np.array([as_written(value) for value in self.coefficients])

    def disagreement(self, data: CountsLike) -> float:
        """Share of sentences for which the inequality as written decides otherwise than exactly.

        Those are close calls, such as ties, and sentences without the token that a collapsed head
        looks at: all that is left there are terms too small to be written.
        """
        alpha, *betas = self.rounded()
        # Whole thousandths: their sums are exact, so that equal sides are equal.
        sums = as_counts(data).numpy().astype(float) @ np.rint(1e3 * np.array(betas))
        written = sums > -np.rint(1e3 * min(max(alpha, -1e300), 1e300))
        return float((written != self.decide(data)).mean())

    def __str__(self) -> str:
        """Write the inequality for a person, '1's first: `n1 − 1.003·n0 + 0.002·n2 − 0.41 > 0`.

        Numbers have three decimals; see `disagreement`. Where nothing depends on counts, the answer
        itself is written: `always '4'`.
        """
        alpha, beta0, beta1, beta2 = self.coefficients
        if np.isinf(alpha) or not any((beta0, beta1, beta2)):
            return "always '4'" if alpha > 0 else "never '4'"
        terms = [(beta1, "n1"), (beta0, "n0"), (beta2, "n2"), (alpha, "")]
        return f"{sum_of_terms(terms)} > 0"


def _logs(values: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """Logarithms of sizes; a huge score of what is nothing stays nothing, and not ∞·0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.abs(values)))


def readout(
    form: CountForm, head: int, weights: Float[Array, " d_head"], bias: float
) -> CountReadout:
    """Write the read-out w·z + b > 0 of one head of one model as an inequality over counts."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = form.values[0, head, _SEEN].double().numpy() @ weights + bias
    if not np.isfinite(values).all():
        raise ValueError(
            f"head {head}: expected a read-out in the range of float64, got {values}: its values "
            "or the weights are too large; scale the model down"
        )
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
    weights = form.logit_weights[0]
    lengths = four_margin(weights).norm(dim=-1).double().numpy()
    if not np.isfinite(lengths.sum()):  # squares overflow long before what they are of
        scaled = weights.double() / weights.double().abs().max()
        lengths = four_margin(scaled).norm(dim=-1).numpy()
    return np.asarray(lengths / lengths.sum()) if lengths.sum() > 0 else lengths
