"""A linear read-out of a head that chooses among several answers: the largest of sums over counts.

As in `readout`, the denominator of a head's output is the same positive number for every answer, so
that the largest w_a·z + b_a belongs to the largest of

    α_a + Σ_t β_at n_t,   β_at = e^{S_t}(w_a·v_t + b_a).

What is added to all of them alike changes nothing. They are written so that for every token the
answer in the middle has nothing of it, which leaves few terms.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from count01_lens.common.text import as_written, sum_of_terms
from count01_lens.common.types import Array
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.readout import CountReadout, readout
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.dataset import CountsLike, as_counts


@dataclass(frozen=True, eq=False)
class ChoiceReadout:
    """The answer with the largest of several sums over counts, of equal ones the later.

    Attributes:
        scores: attention scores at '=' of '[BOS]', the symbols and '='.
        values: w_a·v + b_a of the same tokens, for every answer.
        language: what is counted.
    """

    scores: Float[Array, " seen"]
    values: Float[Array, "answer seen"]
    language: CountingLanguage

    @property
    def coefficients(self) -> Float[Array, "answer coefficient"]:
        """α and the β of each answer, up to a common factor and up to what all have alike.

        The largest β of all is ±1; where nothing depends on counts, the largest α.
        """
        n = len(self.values)
        middle = np.sort(self.values, axis=0)[(n - 1) // 2]
        apart, ends = self.values - middle, self.scores[[0, -1]]
        # '[BOS]' and '=' may be beyond any number next to the symbols: a unit of their own first.
        # Where a patch leaves them nothing, their scores are -inf.
        weights = np.exp(ends - ends.max()) if ends.max() > -np.inf else np.zeros(2)
        alpha = apart[:, [0, -1]] @ weights
        betas = apart[:, 1:-1] * np.exp(self.scores[1:-1] - self.scores[1:-1].max())
        unit = np.abs(betas).max()
        with np.errstate(over="ignore", divide="ignore"):
            scale = np.exp(ends.max() - self.scores[1:-1].max()) / unit
            beyond = not np.isfinite(scale * np.abs(alpha).max()) and alpha.any()
        if unit == 0 or beyond:
            return np.column_stack([alpha / (np.abs(alpha).max() or 1.0), 0 * betas])
        return np.column_stack([alpha * scale if alpha.any() else alpha, betas / unit])

    def decide(self, data: CountsLike) -> Int[Array, " sample"]:
        """The place of the answer with the largest sum; exact also where scores are extreme."""
        counts, n = as_counts(data, self.language), len(self.values)
        wins = np.zeros((len(counts), n), dtype=int)
        for one in range(n):
            for other in range(one + 1, n):
                lead = self.values[one] - self.values[other]
                leads = CountReadout(self.scores, lead, self.language).decide(counts)
                wins[:, one] += leads
                wins[:, other] += ~leads
        return np.asarray(n - 1 - wins[:, ::-1].argmax(axis=1))

    def disagreement(self, data: CountsLike) -> float:
        """Share of sentences for which the sums as written give another answer than exactly."""
        counts = as_counts(data, self.language).numpy().astype(float)
        written = np.vectorize(as_written)(self.coefficients)
        # Whole thousandths: their sums are exact, so that equal sides are equal.
        thousandths = np.rint(1e3 * np.clip(written, -1e15, 1e15))
        sums = counts @ thousandths[:, 1:].T + thousandths[:, 0]
        chosen = sums.shape[1] - 1 - sums[:, ::-1].argmax(axis=1)
        return float((chosen != self.decide(data)).mean())

    def __str__(self) -> str:
        """Write the sums for a person: `largest of A: na + 0.01; B: nb; C: 0.998·nc`."""
        coefficients, language = self.coefficients, self.language
        if not coefficients[:, 1:].any():
            best = len(coefficients) - 1 - int(coefficients[::-1, 0].argmax())
            return f"always {language.answers[best]!r}"
        sums = []
        for answer, (alpha, *betas) in zip(language.answers, coefficients, strict=True):
            named = [(beta, f"n{name}") for beta, name in zip(betas, language.symbols, strict=True)]
            sums.append(f"{answer}: {sum_of_terms([*named, (alpha, '')])}")
        return f"largest of {'; '.join(sums)}"


def choice_readout(
    form: CountForm,
    head: int,
    weights: Float[Array, "answer d_head"],
    biases: Float[Array, " answer"],
) -> ChoiceReadout:
    """Write the largest of w_a·z + b_a of one head of one model as sums over counts."""
    each = [readout(form, head, w, float(b)) for w, b in zip(weights, biases, strict=True)]
    return ChoiceReadout(each[0].scores, np.stack([one.values for one in each]), form.language)


def learned_choice_readout(form: CountForm, head: int) -> ChoiceReadout:
    """The model's own use of one head: what it adds to each answer, plus the bias."""
    language = form.language
    weights = form.logit_weights[0, head][:, language.answer_ids].double().numpy()
    biases = form.logit_bias[0, language.equals, language.answer_ids].double().numpy()
    return choice_readout(form, head, weights.T, biases)
