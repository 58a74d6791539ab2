"""Read-outs as inequalities against running the probe, or the model, on whole grids."""

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from count01_lens.attention.ablation import ablate_heads
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.counts.readout import (
    CountReadout,
    attention_ratios,
    head_weights,
    learned_readout,
    ov_table,
    qk_table,
    readout,
)
from count01_lens.heads.probes import LinearSVM
from count01_lens.heads.runners import head_logits, head_outputs, model_logits
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, minimal_model
from count01_lens.tasks.dataset import make_splits
from count01_lens.tasks.language import TOKENS
from count01_lens.tasks.places import AT_EQUALS

GRID = torch.cartesian_prod(*[torch.tensor([0, 1, 2, 3, 7, 30, 99, 200])] * 3)
MODEL = example_model()
FORM = CountForm.from_models([MODEL], dtype=torch.float64)
ON_GRID = Multiplicities.of(GRID, AT_EQUALS, torch.float64)


@pytest.mark.parametrize("head", range(16))
def test_a_probe_is_its_inequality(head):
    splits = make_splits()
    probe = LinearSVM().fit(
        head_outputs(MODEL, splits.train)[:, head].double().numpy(), splits.train.labels.numpy()
    )
    written = readout(FORM, head, probe.coef_[0], float(probe.intercept_[0]))
    outputs = FORM.head_outputs(ON_GRID)[0, :, head].numpy()
    values = probe.decision_function(outputs)
    clear = np.abs(values) > 1e-9 * np.abs(values).max()
    assert clear.mean() > 0.9
    assert (written.decide(GRID)[clear] == (values > 0)[clear]).all()


@pytest.mark.parametrize("head", [0, 2, 9])
def test_the_models_own_direction_is_its_inequality(head):
    with ablate_heads(MODEL, [other for other in range(16) if other != head]):
        logits = model_logits(MODEL, GRID[:60]).double()
    margins = (logits[:, 5] - logits[:, 6]).numpy()
    clear = np.abs(margins) > 1e-4
    assert (learned_readout(FORM, head).decide(GRID[:60])[clear] == (margins > 0)[clear]).all()


@given(st.integers(0, 2**32), st.sampled_from([1.0, 10.0, 60.0]))
@settings(max_examples=40)
def test_random_readouts(seed, scale):
    model = build_model(ModelConfig(d_embed=6, n_heads=2), seed=seed, dtype=torch.float64)
    form = CountForm.from_models([model])
    form = CountForm(form.scores * scale, form.values, form.logit_weights, form.logit_bias)
    rng = np.random.default_rng(seed)
    weights, bias = rng.standard_normal(3), float(rng.standard_normal())
    outputs = form.head_outputs(ON_GRID)[0, :, 1].numpy()
    values = outputs @ weights + bias
    clear = np.abs(values) > 1e-9
    assert (readout(form, 1, weights, bias).decide(GRID)[clear] == (values > 0)[clear]).all()


def test_coefficients_decide_where_scores_are_moderate():
    written = learned_readout(FORM, 2)
    alpha, *betas = written.coefficients
    assert abs(betas[1]) == pytest.approx(1)
    values = alpha + GRID.numpy() @ np.array(betas)
    clear = np.abs(values) > 1e-6
    assert (written.decide(GRID)[clear] == (values > 0)[clear]).all()


def test_the_inequality_of_the_minimal_model_by_arithmetic():
    """Z − a > ε/2 with z between N and N + 1: e(N+1−a) n1 + (N−a) n0 up to e^N."""
    form = CountForm.from_models([minimal_model(skip=False, dtype=torch.float64)])
    written = learned_readout(form, 0)
    _, beta0, beta1, beta2 = written.coefficients
    # Both counts weigh the same, but for ε; a '2' weighs e^-10 of that, times about 54.
    assert beta1 == pytest.approx(-beta0, rel=2e-3)
    assert abs(beta2) < 54 * math.exp(-10)
    assert str(written).startswith("n1 − 1.00")
    assert str(written).endswith("> 0")


def test_how_it_is_written():
    def written(alpha, beta0, beta1, beta2):
        values = np.array([alpha, beta0, beta1, beta2, 0.0])
        return str(CountReadout(np.zeros(5), values))

    assert written(-0.41, -1.003, 1.0, 0.002) == "n1 − 1.003·n0 + 0.002·n2 − 0.41 > 0"
    assert written(-0.3, -2.0, 1e-5, 0.0) == "−n0 − 0.15 > 0"
    assert written(0, -2.0, 2.0, 0) == "n1 − n0 > 0"
    assert written(0.5, 0, -1.0, 0) == "−n1 + 0.5 > 0"
    assert written(1234.0, 0, 1.0, 0) == "n1 + 1,230 > 0"
    assert written(100.4, 0, 1.0, 0) == "n1 + 100 > 0"
    assert written(99.96, 0, 1.0, 0) == "n1 + 99.96 > 0"
    assert written(5e-4, 0, 1.0, 0) == "n1 + 0.001 > 0"
    assert written(4.9e-4, 0, 1.0, 0) == "n1 > 0"
    assert written(0, 0, 0, 0) == "never '4'"
    assert written(0.5, 0, 0, 0) == "always '4'"
    assert written(-1e-9, 0, 0, 0) == "never '4'"


def test_a_collapsed_head_is_decided_exactly():
    """'0' outweighs all else by e^1000; without any '0' the rest still decides."""
    scores = np.array([0.0, 1000.0, 0.0, 0.0, 0.0])
    values = np.array([-1.0, 5.0, 1.0, 0.0, 0.0])
    decisions = CountReadout(scores, values).decide([[1, 0, 0], [0, 1, 0], [0, 2, 0], [0, 0, 3]])
    assert decisions.tolist() == [True, False, True, False]


def test_tables_are_what_the_model_does():
    qk, ov = qk_table(MODEL, 3), ov_table(MODEL, 3)
    assert qk.shape == ov.shape == (8, 8)
    assert [*qk.index.names, *qk.columns.names] == ["query", "key"]
    assert [*ov.index.names, *ov.columns.names] == ["token", "logit"]
    for table in (qk, ov):
        assert tuple(table.index) == tuple(table.columns) == TOKENS
    tokens = torch.tensor([[0, 1, 2, 3, 4]])
    _, cache = MODEL.run_with_cache(tokens)
    pattern = cache["pattern", 0][0, 3, 4]
    expected = torch.tensor(qk.loc["="].to_numpy()[:5]).softmax(-1)
    torch.testing.assert_close(pattern, expected, atol=1e-5, rtol=1e-4)
    share = head_logits(MODEL, [[1, 1, 1]])[0, 3]
    combined = torch.tensor(pattern.numpy() @ ov.to_numpy()[:5])
    torch.testing.assert_close(share, combined, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="there is no head 16"):
        qk_table(MODEL, 16)


def test_ratios_are_those_of_attention_weights():
    w01, w02 = attention_ratios(FORM)
    _, cache = MODEL.run_with_cache(torch.tensor([[0, 1, 2, 3, 4]]))
    pattern = cache["pattern", 0][0, :, 4].double().numpy()
    seen = pattern[:, 2] > 1e-20
    np.testing.assert_allclose(w01[seen], (pattern[:, 1] / pattern[:, 2])[seen], rtol=1e-3)
    seen = pattern[:, 3] > 1e-20
    np.testing.assert_allclose(w02[seen], (pattern[:, 1] / pattern[:, 3])[seen], rtol=1e-3)


def test_head_weights_are_lengths_that_sum_to_one():
    weights = head_weights(FORM)
    assert weights.sum() == pytest.approx(1)
    by_hand = [
        float((MODEL.W_O[0, head] @ (MODEL.W_U[:, 6] - MODEL.W_U[:, 5])).detach().norm())
        for head in range(16)
    ]
    np.testing.assert_allclose(weights, np.array(by_hand) / sum(by_hand), rtol=1e-5)
    cooperative = CountForm.from_models([cooperative_model()])
    np.testing.assert_allclose(head_weights(cooperative), [0.5, 0.5])
    tiny = CountForm(FORM.scores, FORM.values, FORM.logit_weights * 1e-9, FORM.logit_bias)
    np.testing.assert_allclose(head_weights(tiny), weights)
    nothing = CountForm(FORM.scores, FORM.values, FORM.logit_weights * 0, FORM.logit_bias)
    assert head_weights(nothing).tolist() == [0.0] * 16


def test_ratios_of_a_collapsed_head_are_infinite_without_a_warning():
    collapsed = CountForm(FORM.scores * 1e4, FORM.values, FORM.logit_weights, FORM.logit_bias)
    w01, w02 = attention_ratios(collapsed)
    assert np.isinf(w01).any()
    assert np.isinf(w02).any()
    assert (w01 >= 0).all()


def test_a_head_that_looks_at_the_ends_alone_has_an_infinite_constant():
    scores = np.array([3000.0, 0.0, 0.0, 0.0, 0.0])
    readout = CountReadout(scores, np.array([-1.0, -1.0, 1.0, 0.0, 1.0]))
    assert readout.coefficients.tolist() == [-np.inf, -1.0, 1.0, 0.0]
    assert str(readout) == "never '4'"
    assert not readout.decide(torch.tensor([[0, 200, 0]])).any()
    assert readout.disagreement(GRID) == 0


@pytest.mark.parametrize(
    ("bos", "equals", "text"),
    [
        ((3000.0, 1.0), (2000.0, -1.0), "always '4'"),
        ((3000.0, -1.0), (3000.0, 0.5), "never '4'"),
        ((3000.0, -1.0), (3000.0, 1.0), "n1 − n0 > 0"),  # they cancel, to the bit
        ((3000.0, 0.0), (-3000.0, -1.0), "n1 − n0 > 0"),  # ∞·0 is nothing
        ((3000.0, 0.0), (0.0, -0.5), "n1 − n0 − 0.5 > 0"),
        ((750.0, 1e-320), (750.0, -1e-320), "n1 − n0 > 0"),
        ((0.0, 1e308), (0.0, 1e308), "always '4'"),
    ],
)
def test_ends_beyond_any_number_are_added_up_before_they_are_compared(bos, equals, text):
    scores = np.array([bos[0], 0.0, 0.0, 0.0, equals[0]])
    readout = CountReadout(scores, np.array([bos[1], -1.0, 1.0, 0.0, equals[1]]))
    assert str(readout) == text
    assert readout.disagreement(GRID) == 0


def test_a_token_that_says_nothing_takes_no_digits_from_the_others():
    """'0' takes all attention and has nothing to say; the decision is then that of the rest."""
    readout = CountReadout(
        np.array([0.0, 2000.0, 0.0, 0.0, 0.0]), np.array([-0.5, 0, 1.0, -1.0, 0])
    )
    assert str(readout) == "n1 − n2 − 0.5 > 0"
    assert readout.decide([[9, 2, 1], [9, 1, 1], [0, 1, 0]]).tolist() == [True, False, True]


def exact_sum(scores, values, counts):
    """Σ n e^S value, and the sum of its absolute terms, to 60 digits and with any exponent."""
    with localcontext(Context(prec=60, Emax=10**9, Emin=-(10**9))):
        n = (1, *counts, 1)
        triples = zip(n, map(float, scores), map(float, values), strict=True)
        terms = [k * Decimal(score).exp() * Decimal(value) for k, score, value in triples]
        return sum(terms), sum(map(abs, terms))


def test_extreme_readouts_against_sixty_digits():
    rng = np.random.default_rng(0)
    some = rng.integers(0, 4, (12, 3))
    sayings = set()
    for case in range(300):
        scores = rng.choice([0.0, 1.0, 700.0, -800.0, 3000.0, 1e4], 5) + rng.choice(
            [0.0, 1.0]
        ) * rng.standard_normal(5)
        extremes = [1e-250, -1e250, 3e-200] if case % 2 else [1e308, -1e308, -1e307]
        values = rng.choice([0.0, 1.0, -1.0, 0.3, -2.5, *extremes], 5)
        readout = CountReadout(scores, values)
        decided = readout.decide(torch.from_numpy(some))
        signs = []
        for row, decision in zip(some.tolist(), decided, strict=True):
            total, size = exact_sum(scores, values, row)
            close = abs(total) <= Decimal("1e-10") * size
            signs.append(bool(decision) if close else total > 0)
            assert decision == signs[-1], (case, row)
        text = str(readout)
        if "'4'" in text:
            sayings.add(text)
            assert signs == ["always" in text] * len(signs), (case, text)
        _check_coefficients(readout, scores, values)
    assert sayings == {"always '4'", "never '4'"}


def _check_coefficients(readout, scores, values):
    exact = [exact_sum(scores[[t] * 5], values[[t] * 5] * [1, 0, 0, 0, 0], (0, 0, 0))[0]
             for t in (1, 2, 3)]  # fmt: skip
    ends, size = exact_sum(scores, values, (0, 0, 0))
    exact = [ends if abs(ends) > Decimal("1e-10") * size else 0, *exact]
    alpha, *betas = readout.coefficients
    largest = max(range(3), key=lambda t: abs(exact[t + 1]))
    if not exact[largest + 1]:
        assert not any(betas)
        return
    with localcontext(Context(prec=60, Emax=10**9, Emin=-(10**9))):
        ratios = [value / abs(exact[largest + 1]) for value in exact]
        for found, ratio in zip((alpha, *betas), ratios, strict=True):
            expected = float(ratio * Decimal(abs(betas[largest])))
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-300 if ratio else 1e-9)


@pytest.mark.parametrize("head", [1, 2, 9, 10])
def test_how_often_the_written_inequality_decides_otherwise(head):
    """Read the text as a person does, in exact decimals."""
    counts = make_splits().test.counts
    written = learned_readout(FORM, head)
    text = str(written).removesuffix(" > 0").replace("− ", "-").replace("+ ", "+")
    coefficients = dict.fromkeys(("n0", "n1", "n2", ""), Fraction(0))
    for term in text.replace("−", "-").split(" "):
        factor, _, name = term.rpartition("·") if "n" in term else (term, "", "")
        if not factor:
            factor, name = term[:-2] + "1", term[-2:]
        coefficients[name] = Fraction(factor)
    beta = [coefficients[name] for name in ("n0", "n1", "n2")]
    assert written.rounded() == pytest.approx([float(x) for x in (coefficients[""], *beta)])
    decided = [
        sum(b * n for b, n in zip(beta, row, strict=True)) + coefficients[""] > 0
        for row in counts.tolist()
    ]
    assert written.disagreement(counts) == (np.array(decided) != written.decide(counts)).mean()


def test_a_collapsed_head_decides_otherwise_than_it_is_written_where_its_token_is_absent():
    scores = np.array([0.0, 1000.0, 0.0, 0.0, 0.0])
    readout = CountReadout(scores, np.array([-1.0, -5.0, 1.0, 0.0, 0.0]))
    assert str(readout) == "−n0 > 0"
    assert readout.disagreement([[1, 5, 0], [0, 5, 0], [0, 0, 0], [2, 0, 3]]) == 0.25


def test_a_readout_that_overflows_is_refused():
    with pytest.raises(ValueError, match="head 3: expected a read-out in the range of float64"):
        readout(FORM, 3, np.full(2, 1e308) * np.sign(FORM.values[0, 3, 1].numpy()), 1e308)


def test_head_weights_whose_squares_overflow():
    large = CountForm(FORM.scores, FORM.values, FORM.logit_weights * 1e300, FORM.logit_bias)
    np.testing.assert_allclose(head_weights(large), head_weights(FORM), rtol=1e-12)


def test_large_scores_that_are_close_to_each_other_decide_by_their_difference():
    scores = np.array([0.0, 1e13, 1e13 + 1, 0.0, 0.0])
    inequality = CountReadout(scores, np.array([0.0, 1.0, -1.0, 0.0, 0.0]))
    assert inequality.decide([[1001, 368, 0], [1000, 368, 0]]).tolist() == [True, False]
    np.testing.assert_allclose(inequality.coefficients, [0, np.exp(-1), -1, 0])
