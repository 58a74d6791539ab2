"""Read-outs as inequalities against running the probe, or the model, on whole grids."""

import math

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
    assert written(1234.0, 0, 1.0, 0) == "n1 + 1.23e+03 > 0"
    assert written(100.4, 0, 1.0, 0) == "n1 + 100 > 0"
    assert written(99.96, 0, 1.0, 0) == "n1 + 99.96 > 0"
    assert written(5e-4, 0, 1.0, 0) == "n1 + 0.001 > 0"
    assert written(4.9e-4, 0, 1.0, 0) == "n1 > 0"
    assert written(0, 0, 0, 0) == "0 > 0"


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
    assert str(readout) == "n1 − n0 − inf > 0"
    assert not readout.decide(torch.tensor([[0, 200, 0]])).any()
