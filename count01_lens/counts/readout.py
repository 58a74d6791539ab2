"""A head on two tables, and a linear read-out of it as an inequality over counts.

At '=' a head's output is z = Σ_t n_t e^{S_t} v_t / Σ_t n_t e^{S_t}. The denominator is positive, so

    w·z + b > 0   ⟺   Σ_t n_t e^{S_t} (w·v_t + b) > 0   ⟺   α + β0 n0 + β1 n1 + β2 n2 > 0

(in Count01; other tasks have other symbols)
with β_t = e^{S_t}(w·v_t + b), and α the same for '[BOS]' and '=', which stand once in every
sentence. So a probe, or the model's own direction, *is* an inequality over counts.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from torch import Tensor

from count01_lens.common.text import as_written, sum_of_terms
from count01_lens.common.types import Array
from count01_lens.counts.closed_form import CountForm
from count01_lens.models.hooks import check_heads
from count01_lens.models.stored import Model
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.dataset import CountsLike, as_counts
from count01_lens.tasks.places import COUNT01

_SAFE_EXPONENT = 900  # 2^900 times any count is still a number


def qk_table(model: Model, head: int) -> pd.DataFrame:
    """Attention scores of a head: a row per query token, a column per key token.

    Example:
        >>> cl.qk_table(cl.example_model(), 2).shape
        (8, 8)
    """
    form = CountForm.from_models([model])
    (head,) = check_heads(model, [head])
    tokens = form.language.tokens
    names = pd.Index(tokens, name="query"), pd.Index(tokens, name="key")
    return pd.DataFrame(form.scores[0, head].numpy(), *names)


def ov_table(model: Model, head: int) -> pd.DataFrame:
    """What attending to a token alone adds to each logit: a row per token, a column per logit.

    Example:
        >>> table = cl.ov_table(cl.example_model(), 3)
        >>> bool(table.loc["1", "4"] > table.loc["0", "4"])  # a '1' speaks for '4'
        True
    """
    form = CountForm.from_models([model])
    (head,) = check_heads(model, [head])
    attributed = form.values[0, head] @ form.logit_weights[0, head]
    tokens = form.language.tokens
    names = pd.Index(tokens, name="token"), pd.Index(tokens, name="logit")
    return pd.DataFrame(attributed.numpy(), *names)


@dataclass(frozen=True, eq=False)
class CountReadout:
    """The inequality α + β0·n0 + β1·n1 + β2·n2 > 0, for which the first of two answers is given.

    Attributes:
        scores: attention scores at '=' of '[BOS]', the symbols ('0', '1', '2') and '='. Kept apart
            from the values because e^S of scores far from each other has no common scale.
        values: w·v + b of the same tokens.
        language: what is counted. The symbol that its rule names first, '1' in Count01, is the unit
            of the coefficients, and is written first.
    """

    scores: Float[Array, " seen"]
    values: Float[Array, " seen"]
    language: CountingLanguage = COUNT01

    @property
    def coefficients(self) -> Float[Array, " coefficient"]:
        """α, β0, β1, β2 up to a positive factor: β1 is ±1, or the largest β where β1 is nothing.

        α is infinite where '[BOS]' and '=' outweigh all counts beyond any number.
        """
        # Large scores have no digits left for logarithms.
        logs = self.scores - self.scores.max() + _logs(self.values)
        signs = np.sign(self.values)
        # '[BOS]' and '=' may both be beyond any number, with opposite signs: they are added up in a
        # unit of their own before they are compared with the rest.
        once = [0, -1]
        ends = logs[once].max()
        alpha = float(signs[once] @ np.exp(logs[once] - ends)) if ends > -np.inf else 0.0
        signs = np.array([np.sign(alpha), *signs[1:-1]])
        logs = np.array([ends + np.log(abs(alpha)) if alpha else -np.inf, *logs[1:-1]])
        largest, first = logs[1:].max(), logs[1 + self.language.rule.order()[0]]
        unit = first if first > largest + np.log(1e-3) else largest
        if unit == -np.inf:
            return signs * (logs > -np.inf)
        with np.errstate(over="ignore"):
            return np.asarray(signs * np.exp(logs - unit))

    def decide(self, data: CountsLike) -> Bool[Array, " sample"]:
        """Tell for which sentences the inequality holds, exactly also where scores are extreme."""
        counts = as_counts(data, self.language).numpy().astype(float)
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

    def rounded(self) -> Float[Array, " coefficient"]:
        """α, β0, β1, β2 as they are written, with few digits."""
        return np.array([as_written(value) for value in self.coefficients])

    def disagreement(self, data: CountsLike) -> float:
        """Share of sentences for which the inequality as written decides otherwise than exactly.

        Those are close calls, such as ties, and sentences without the token that a collapsed head
        looks at: all that is left there are terms too small to be written.
        """
        alpha, *betas = self.rounded()
        # Whole thousandths: their sums are exact, so that equal sides are equal.
        sums = as_counts(data, self.language).numpy().astype(float) @ np.rint(1e3 * np.array(betas))
        written = sums > -np.rint(1e3 * min(max(alpha, -1e300), 1e300))
        return float((written != self.decide(data)).mean())

    def __str__(self) -> str:
        """Write the inequality for a person: `n1 − 1.003·n0 + 0.002·n2 − 0.41 > 0`.

        Numbers have three decimals; see `disagreement`. Where nothing depends on counts, the answer
        itself is written: `always '4'`.
        """
        (alpha, *betas), symbols = self.coefficients, self.language.symbols
        if np.isinf(alpha) or not any(betas):
            return f"{'always' if alpha > 0 else 'never'} {self.language.answers[0]!r}"
        order = self.language.rule.order()
        terms = [*((betas[place], f"n{symbols[place]}") for place in order), (alpha, "")]
        return f"{sum_of_terms(terms)} > 0"


def _logs(values: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """Logarithms of sizes; a huge score of what is nothing stays nothing, and not ∞·0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.abs(values)))


def readout(
    form: CountForm, head: int, weights: Float[Array, " d_head"], bias: float
) -> CountReadout:
    """Write the read-out w·z + b > 0 of one head of one model as an inequality over counts."""
    language = form.language
    seen = slice(0, language.equals + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        values = form.values[0, head, seen].double().numpy() @ weights + bias
    if not np.isfinite(values).all():
        raise ValueError(
            f"head {head}: expected a read-out in the range of float64, got {values}: its values "
            "or the weights are too large; scale the model down"
        )
    scores = form.scores[0, head, language.equals, seen].double().numpy()
    return CountReadout(scores, values, language)


def learned_readout(form: CountForm, head: int) -> CountReadout:
    """The model's own use of one head: what it adds to '4' minus '5', plus the bias."""
    language = form.language
    first, second = form.logit_weights[0, head][:, language.answer_ids].unbind(-1)
    biases = form.logit_bias[0, language.equals, language.answer_ids]
    direction = (first - second).double().numpy()
    return readout(form, head, direction, float(biases[0] - biases[1]))


def attention_ratios(form: CountForm) -> tuple[Float[Array, " head"], ...]:
    """How much more attention one of the first symbol gets at '=' than one of each other.

    In Count01 w01 and w02: of a '0' over a '1', and over a '2'.
    """
    scores = form.scores[0, :, form.language.equals].double().numpy()
    with np.errstate(over="ignore"):  # a collapsed head has a ratio beyond any number
        others = range(2, form.language.equals)
        return tuple(np.exp(scores[:, 1] - scores[:, other]) for other in others)


def ratio_names(language: CountingLanguage) -> list[str]:
    """What these ratios are called: w01 and w02 in Count01."""
    first, *others = language.symbols
    return [f"w{first}{other}" for other in others]


def head_weights(form: CountForm) -> Float[Array, " head"]:
    """hw: length of w_5 − w_4 of each head, together 1; how strongly the output layer reads it.

    Of more than two answers, the length of all their weights less the mean of them.
    """
    weights = form.logit_weights[0][..., form.language.answer_ids]
    lengths = _spread_of(weights)
    if not np.isfinite(lengths.sum()):  # squares overflow long before what they are of
        lengths = _spread_of(weights.double() / weights.double().abs().max())
    return np.asarray(lengths / lengths.sum()) if lengths.sum() > 0 else lengths


def _spread_of(weights: Float[Tensor, "head d_head answer"]) -> Float[Array, " head"]:
    if weights.shape[-1] == 2:
        return np.asarray((weights[..., 0] - weights[..., 1]).norm(dim=-1).double().numpy())
    apart = weights - weights.mean(dim=-1, keepdim=True)
    return np.asarray(apart.flatten(1).norm(dim=-1).double().numpy())
