"""Sequences, compact and closed form are the same model: values and gradients."""

import itertools
import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.compact import compact_logits
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.build import build_model
from count01_lens.models.config import Init, ModelConfig
from count01_lens.models.handcrafted import cooperative_model, minimal_raw
from count01_lens.models.lens import load_state, state_of
from count01_lens.models.parameters import initial_raw
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS
from tests.three_ways import outcomes, tolerance

COUNTS = torch.tensor(
    [[0, 0, 0], [0, 0, 3], [0, 4, 0], [5, 0, 0], [3, 0, 2], [0, 2, 7], [4, 4, 1], [9, 11, 6]]
)


def check_three_ways(raw, config, counts):
    reference, *others = outcomes(raw, config, counts)
    bound = tolerance(raw, config)
    for other in others:
        for at, expected in reference.logits.items():
            assert torch.isfinite(expected).all()
            error = (other.logits[at] - expected).abs().max()
            assert error <= bound, f"{other.way} at {at}: {error} > {bound}"
        for name, expected in reference.gradients.items():
            assert torch.isfinite(expected).all()
            error = (other.gradients[name] - expected).abs().max()
            assert error <= bound, f"{other.way}, gradient of {name}: {error} > {bound}"


@pytest.mark.parametrize(
    ("output", "layer_norm", "heads", "d_head"),
    list(itertools.product(("fused", "residual"), (True, False), (1, 2, 16, 64), (1, 2, 4))),
)
def test_three_ways_agree(output, layer_norm, heads, d_head):
    config = ModelConfig(
        d_embed=8, n_heads=heads, d_head=d_head, output=output, layer_norm=layer_norm
    )
    check_three_ways(initial_raw(config, seed=heads, dtype=torch.float64), config, COUNTS)


configs = st.builds(
    ModelConfig,
    d_embed=st.integers(1, 9),
    n_heads=st.integers(1, 5),
    d_head=st.integers(1, 4),
    output=st.sampled_from(["fused", "residual"]),
    layer_norm=st.booleans(),
    qkv_bias=st.booleans(),
    scale_scores=st.booleans(),
    init=st.sampled_from(get_args(Init)),
    n_ctx=st.just(128),
)
count_rows = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6
)


@given(configs, st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 5.0, 30.0]), count_rows)
@settings(max_examples=60)
def test_three_ways_agree_on_random_models(config, seed, scale, rows):
    raw = initial_raw(config, seed, torch.float64)
    # Attention weights of any size: from nearly uniform to collapsed onto one token.
    raw["W_Q"], raw["W_K"] = raw["W_Q"] * scale, raw["W_K"] * scale
    check_three_ways(raw, config, torch.tensor(rows))


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("n", [10, 30])
def test_three_ways_agree_on_the_minimal_solution(n, skip):
    raw, config = minimal_raw(n, 5e-4, skip)
    long = torch.tensor([[100, 99, 50], [99, 100, 50]])
    check_three_ways(raw, config, torch.cat([COUNTS, long]))


@pytest.mark.parametrize("present", [[7, 0, 0], [0, 7, 0], [0, 0, 7], [0, 0, 0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_dominant_token_that_is_absent_does_no_harm(present, dtype):
    """The largest score belongs to '0'; where there is no '0', nothing may underflow to 0/0."""
    form = CountForm.from_models([cooperative_model(dtype=dtype)])
    scores = form.scores.clone()
    scores[:, :, :, 1] = 1000.0
    form = CountForm(scores, form.values, form.logit_weights, form.logit_bias)
    sentences = Multiplicities.of(torch.tensor([present]), AT_EQUALS, dtype)
    outputs = form.head_outputs(sentences)[0, 0]
    for head in range(2):
        weights, total = 0.0, 0.0
        counts = {0: 1, 1: present[0], 2: present[1], 3: present[2], 4: 1}
        largest = max(float(scores[0, head, 4, key]) for key, n in counts.items() if n)
        for key, n in counts.items():
            weight = n * math.exp(float(scores[0, head, 4, key]) - largest) if n else 0.0
            weights += weight
            total += weight * float(form.values[0, head, key, 0])
        assert float(outputs[head, 0]) == pytest.approx(total / weights, rel=1e-5, abs=1e-20)


@pytest.mark.parametrize("spread", [30.0, 38.0, 42.0, 50.0, 80.0, 100.0, 1000.0])
def test_gradients_stay_finite_and_right_in_float32_however_far_apart_scores_are(spread):
    """A denominator near underflow once made the square of its inverse overflow in training."""
    gradients = {}
    counts = torch.tensor([[3, 0, 0], [0, 2, 1], [0, 0, 0], [4, 5, 6]])
    for dtype in (torch.float32, torch.float64):
        config = ModelConfig(d_embed=4, n_heads=2)
        form = CountForm.from_models([build_model(config, dtype=dtype)])
        scores = form.scores.clone()
        scores[:, :, :, 1] += spread
        scores.requires_grad_()
        form = CountForm(scores, form.values, form.logit_weights, form.logit_bias)
        logits = form.logits(Multiplicities.at_both(counts, dtype))
        (gradients[dtype],) = torch.autograd.grad(logits.logsumexp(-1).sum(), scores)
    assert torch.isfinite(gradients[torch.float32]).all()
    torch.testing.assert_close(
        gradients[torch.float32].double(), gradients[torch.float64], atol=1e-4, rtol=1e-3
    )


def test_a_stack_gives_each_model_what_it_gives_alone():
    models = [build_model(seed=seed, dtype=torch.float64) for seed in range(3)]
    together = CountForm.from_models(models)
    sentences = Multiplicities.of(COUNTS, AT_ANSWER, torch.float64)
    for index, model in enumerate(models):
        alone = CountForm.from_models([model])
        ours = together.logits(sentences)[index]
        torch.testing.assert_close(ours, alone.logits(sentences)[0])
        torch.testing.assert_close(ours, compact_logits(model, COUNTS, "answer").detach())


def test_both_places_at_once_are_the_two_places():
    form = CountForm.from_models([build_model(dtype=torch.float64)])
    both = form.logits(Multiplicities.at_both(COUNTS, torch.float64))
    for place, part in zip((AT_EQUALS, AT_ANSWER), both.chunk(2, dim=1), strict=True):
        alone = form.logits(Multiplicities.of(COUNTS, place, torch.float64))
        torch.testing.assert_close(part, alone)


def test_tables_are_made_in_the_precision_that_is_asked_for():
    model = build_model(ModelConfig(d_embed=4, n_heads=2))
    for table in CountForm.from_models([model]).tables.values():
        assert table.dtype == torch.float32
    for table in CountForm.from_models([model], torch.float64).tables.values():
        assert table.dtype == torch.float64


def test_scores_are_not_scaled_unless_asked_for():
    model = build_model(ModelConfig(d_embed=4, n_heads=2))
    parameters = {name: value.detach()[None] for name, value in state_of(model).items()}
    scores = CountForm.from_parameters(parameters).scores
    assert torch.equal(scores, CountForm.from_models([model]).scores)
    halved = CountForm.from_parameters(parameters, 2.0).scores
    torch.testing.assert_close(halved, scores / 2)


def test_a_model_with_hooks_is_refused_unless_they_are_to_be_ignored():
    model = build_model(ModelConfig(d_embed=4, n_heads=2))
    expected = CountForm.from_models([model]).scores
    model.add_hook("hook_embed", lambda value, hook: value * 0)
    with pytest.raises(ValueError, match="hooks are attached to it"):
        CountForm.from_models([model])
    assert torch.equal(CountForm.from_models([model], ignore_hooks=True).scores, expected)


@pytest.mark.parametrize("scale_scores", [False, True])
def test_magnitudes_are_the_tables_of_absolute_parameters(scale_scores):
    config = ModelConfig(d_embed=8, n_heads=2, scale_scores=scale_scores, qkv_bias=True)
    model = build_model(config, seed=3)
    found = CountForm.magnitudes(model, torch.float64)
    weights = {
        name: w.abs() if w.ndim and w.dtype.is_floating_point else w
        for name, w in state_of(model).items()
    }
    load_state(model, weights)
    expected = CountForm.from_models([model], torch.float64)
    for name, table in expected.tables.items():
        assert getattr(found, name).dtype == torch.float64
        torch.testing.assert_close(getattr(found, name), table)
    with pytest.raises(ValueError, match="expected a (HookedTransformer|TransformerBridge)"):
        CountForm.magnitudes("model", torch.float64)


def test_attributions_and_bias_add_up_to_the_logits():
    config = ModelConfig(output="residual", qkv_bias=True)
    form = CountForm.from_models([build_model(config, dtype=torch.float64)])
    sentences = Multiplicities.of(COUNTS, AT_EQUALS, torch.float64)
    total = form.head_logits(sentences).sum(dim=2) + form.logit_bias[:, None, 4]
    torch.testing.assert_close(total, form.logits(sentences))


def test_attention_sums_to_one_over_what_is_present():
    form = CountForm.from_models([build_model(dtype=torch.float64)])
    attention = form.attention(Multiplicities.of(COUNTS, AT_ANSWER, torch.float64))
    torch.testing.assert_close(
        attention.sum(dim=(-1, -2)), torch.ones(1, 8, 16, dtype=torch.float64)
    )
    absent = COUNTS[:, :, None, None] == 0
    by_type = attention[0].sum(dim=-2)[..., 1:4]
    assert (by_type.permute(0, 2, 1)[absent[..., 0].expand(8, 3, 16)] == 0).all()


def test_models_that_do_not_fit_together_are_rejected():
    plain, scaled = ModelConfig(), ModelConfig(scale_scores=True)
    with pytest.raises(ValueError, match="one attn_scale"):
        CountForm.from_models([build_model(plain), build_model(scaled)])
    with pytest.raises(
        ValueError,
        match=r"^models: expected one \(d_model, n_heads, d_head\) and one attn_scale, got",
    ):
        CountForm.from_models([build_model(plain), build_model(ModelConfig(n_heads=8))])
    for nothing in ([], build_model(plain)):
        with pytest.raises(ValueError, match="models: expected a list of at least one model"):
            CountForm.from_models(nothing)
    short, long = (build_model(ModelConfig(n_ctx=n_ctx)) for n_ctx in (16, 32))
    assert CountForm.from_models([short, long]).scores.shape[0] == 2


@pytest.mark.parametrize("own_sentences", [False, True])
def test_a_collapsed_model_does_not_touch_the_others_of_its_stack(own_sentences):
    """Models whose attention underflows take a slower way, alone: values, gradients and all."""
    counts = torch.tensor([[3, 0, 0], [0, 2, 1], [0, 0, 0], [4, 5, 6]])
    shared = Multiplicities.at_both(counts, torch.float32)
    rolled = torch.stack([shared.n.roll(shift, 0) for shift in range(4)])
    config = ModelConfig(d_embed=4, n_heads=2)
    form = CountForm.from_models([build_model(config, seed=seed) for seed in range(4)])
    scores = form.scores.clone()
    scores[[1, 3], :, :, 1] += 1000.0  # nothing is left of a sentence without '0'
    scores.requires_grad_()

    def logits_and_gradient(which: slice) -> tuple[torch.Tensor, torch.Tensor]:
        tables = (scores, form.values, form.logit_weights, form.logit_bias)
        part = CountForm(*(table[which] for table in tables))
        own = Multiplicities(rolled[which], shared.rows)
        logits = part.logits(own if own_sentences else shared)
        (gradient,) = torch.autograd.grad(logits.logsumexp(-1).sum(), scores)
        return logits, gradient[which]

    logits, gradient = logits_and_gradient(slice(None))
    assert torch.isfinite(logits).all()
    assert torch.isfinite(gradient).all()
    for index in range(4):
        alone = logits_and_gradient(slice(index, index + 1))
        torch.testing.assert_close(logits[index : index + 1], alone[0])
        torch.testing.assert_close(gradient[index : index + 1], alone[1])
