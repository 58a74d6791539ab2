"""The bound on rounding, attacked: no run may be further from the exact margin than it says."""

import numpy as np
import pytest
import torch

from count01_lens.common.threads import one_thread
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.counts.rounding import MarginBound, Precision, RoundingErrors, Roundings
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import minimal_model
from count01_lens.models.lens import parameters_of
from count01_lens.tasks.decisions import four_margin
from count01_lens.tasks.places import AT_EQUALS
from experiments.tools import rounding
from tests.lens_versions import has_bridges, needs_3

REAL = (torch.float32, torch.float64)
HALF = (torch.bfloat16, torch.float16)
ONE_HEAD = ModelConfig(d_embed=2, n_heads=1, d_head=2, layer_norm=False)


@pytest.fixture(autouse=True)
def alone():
    """Sums of models this small are slower on two threads than on one."""
    with one_thread():
        yield


def put_margin(model, counts, margin):
    """Change a bias so that one sentence has nearly this margin."""
    with torch.no_grad():
        model.unembed.b_U[5] += float(margin - rounding.exact_margins(model, counts)[0])


def closed_form_margins(model, counts, dtype):
    form = CountForm.from_models([model], dtype=dtype)
    return four_margin(form.logits(Multiplicities.of(counts, AT_EQUALS, dtype))[0])


def test_long_sentences_in_float32_stay_within_the_bound():
    """An estimate of a few eps, whatever the length, was passed by a factor of four here."""
    rng = np.random.default_rng(0)
    known = torch.tensor([[104, 317, 294]])
    counts = torch.cat([known, torch.from_numpy(rng.integers(100, 330, (9, 3)))])
    found = rounding.ratios(build_model(ONE_HEAD, seed=1), counts)
    assert max(found.values()) < 1
    assert found["sequence, shuffled"] > 0.02  # a bound that is far too large would be no help


@pytest.mark.parametrize("dtype", REAL)
def test_answers_that_are_called_safe_stay(dtype):
    """Margins around the bound, of both signs: each way must answer like the exact margin."""
    rng = np.random.default_rng(1)
    turned_round = safe = 0
    for case in range(30):
        model = build_model(ONE_HEAD, seed=1 + case // 10, dtype=dtype)
        counts = torch.from_numpy(rng.integers(50, 150, (1, 3)))
        size = float(MarginBound(model, dtype).of(counts)[0])
        put_margin(model, counts, rng.choice([-1, 1]) * size * 10 ** rng.uniform(-3, 0.7))
        exact = rounding.exact_margins(model, counts)[0]
        runs = rounding.run_margins(model, counts).values()
        same = all((run[0] > 0) == (exact > 0) for run in runs)
        margin = closed_form_margins(model, counts, torch.float64)
        if RoundingErrors(model, torch.float64, 150).count_unsafe(counts, margin) == 0:
            safe += 1
            assert same
        turned_round += not same
    assert safe > 1
    assert turned_round > 1


@pytest.mark.parametrize("dtype", [*REAL, *HALF])
@pytest.mark.parametrize("seed", range(2))
def test_no_way_to_run_a_random_model_leaves_the_bound(dtype, seed):
    rng = np.random.default_rng([seed, 1])
    for _ in range(6):
        model = rounding.draw_model(rng, dtype)
        found = rounding.ratios(model, rounding.draw_counts(rng, 3, rounding.MOST[dtype]))
        assert max(found.values()) <= 1


@pytest.mark.parametrize("dtype", REAL)
def test_models_that_climb_towards_the_bound_do_not_reach_it(dtype):
    rng = np.random.default_rng(2)
    model, counts = build_model(ONE_HEAD, seed=1, dtype=dtype), torch.tensor([[60, 70, 50]])
    before = max(rounding.ratios(model, counts).values())
    after = max(rounding.climb(model, counts, rng, steps=25)[1].values())
    assert before < after <= 1


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_the_worst_machine_stays_within_the_bound_and_comes_near_it(dtype):
    rng = np.random.default_rng(3)
    found = [
        rounding.ratios(
            rounding.draw_model(rng, dtype), rounding.draw_counts(rng, 1, 6), worst=True
        )
        for _ in range(12)
    ]
    reached = [ratio for ratios in found for ratio in ratios.values()]
    assert max(reached) <= 1
    assert max(reached) > 0.25


def empty_model(d_embed=1, d_head=1, output="fused"):
    """One head, the identity to its own coordinates, and zeros to fill in."""
    config = ModelConfig(d_embed=d_embed, n_heads=1, d_head=d_head, layer_norm=False, output=output)
    model = build_model(config)
    for name, parameter in parameters_of(model).items():
        if not name.endswith("W_O"):
            parameter.data.zero_()
    return model


def heavy_first_token():
    """Most attention goes to what is summed up first, and rounded with all that follows."""
    model = empty_model()
    attn = model.blocks[0].attn
    model.W_E.data[:5, 0] = torch.tensor([10, 0.1, 0.11, 0.12, 1])
    attn.W_Q.data[:, 0] = attn.W_K.data[:, 0] = 1
    attn.b_V.data[:] = 1.3
    model.W_U.data[1, 5] = 1.7
    return model


def large_scores():
    """'0' and '1' have the same large score, and opposite values."""
    model = empty_model(d_embed=2)
    attn = model.blocks[0].attn
    model.W_E.data[:5, :2] = torch.tensor([[0, 0], [1, 1], [1, -1], [0, 0], [1, 0]])
    attn.W_Q.data[:, 0] = attn.W_K.data[:, 0] = 100
    attn.W_V.data[:, 1] = model.W_U.data[2, 5] = 1
    return model


def cancelling_values():
    model = empty_model(d_embed=32)
    model.W_E.data[:, :32] = 1000
    model.blocks[0].attn.W_V.data[0, :16] = 1
    model.blocks[0].attn.W_V.data[0, 16:32] = -1
    model.W_U.data[32, 5] = 1
    return model


def cancelling_logits():
    model = empty_model(d_head=4)
    model.blocks[0].attn.b_V.data[:] = 1
    model.W_U.data[1:, 5:7] = 1e4
    return model


def large_skip():
    model = empty_model(output="residual")
    model.W_E.data[:] = 1
    model.W_U.data[:, 5:7] = 3e4
    model.b_U.data[5:7] = 1e4
    return model


def far_below_an_absent_token():
    """The closed form takes scores relative to that of '2', which need not be there."""
    model = empty_model()
    attn = model.blocks[0].attn
    model.W_E.data[:5, 0] = torch.tensor([-30, 0.1, -0.1, 30, 1])
    attn.W_Q.data[:, 0] = attn.W_K.data[:, 0] = attn.W_V.data[:, 0] = model.W_U.data[1, 5] = 1
    return model


@pytest.mark.parametrize(
    ("make", "counts", "reached"),
    [
        (heavy_first_token, [15, 15, 15], 0.85),
        (large_scores, [3, 3, 0], 0.7),
        (cancelling_values, [1, 1, 0], 0.2),
        (cancelling_logits, [1, 1, 0], 0.3),
        (large_skip, [1, 1, 0], 0.3),
        (far_below_an_absent_token, [1, 1, 0], 0.6),
    ],
)
def test_each_part_of_the_bound_is_needed(make, counts, reached):
    """Models in which one kind of error is all that matters, on the worst machine."""
    model = make()
    if has_bridges():  # which divide by a half: queries as a HookedTransformer has them
        model.blocks[0].attn.W_Q.data.mul_(0.5)
    found = rounding.ratios(model, torch.tensor([counts]), worst=True)
    assert reached < max(found.values()) <= 1


def test_weights_that_are_rounded_to_a_coarser_dtype_are_part_of_the_bound():
    rng = np.random.default_rng(4)
    reached = []
    for _ in range(20):
        model, counts = rounding.draw_model(rng, torch.float64), rounding.draw_counts(rng, 50, 300)
        error = closed_form_margins(model, counts, torch.float32).double().numpy()
        error = np.abs(error - rounding.exact_margins(model, counts))
        reached.append(float((error / MarginBound(model, torch.float32).of(counts).numpy()).max()))
    assert 0.01 < max(reached) <= 1
    finer, own, coarser = (
        Roundings.of(model.float(), dtype)
        for dtype in (torch.float64, torch.float32, torch.bfloat16)
    )
    assert finer == own
    assert coarser == Roundings(own.score + 4, own.value + 2, own.logit + 2)


@pytest.mark.parametrize("dtype", REAL)
def test_underflow_is_part_of_the_bound(dtype):
    """Values whose products underflow before the output makes them large again."""
    rng, lost = np.random.default_rng(5), 0.0
    small = torch.finfo(dtype).tiny ** 0.5
    counts = rounding.draw_counts(rng, 6, 60)
    for seed in range(6):
        model = build_model(ONE_HEAD, seed=seed, dtype=dtype)
        with torch.no_grad():
            model.W_E.mul_(small)
            model.blocks[0].attn.W_V.mul_(small / 4.0 ** rng.integers(0, 10))
            model.W_U.div_(small)
            model.b_U.zero_()
        found = rounding.ratios(model, counts)
        assert max(found.values()) <= 1
        lost = max(lost, *found.values())
    assert lost > 0


def test_numbers_that_are_flushed_to_zero_are_part_of_the_bound():
    """A query of 1e-39 and a key of 1e34: a score of 1e-5, or none at all."""
    model, counts = empty_model(d_embed=2), torch.tensor([[2, 2, 0]])
    attn = model.blocks[0].attn
    model.W_E.data[:5, :2] = torch.tensor([[0, 0], [0, 1], [0, -1], [0, 0], [1e-20, 0]])
    attn.W_Q.data[:, 0], attn.W_K.data[:, 1] = 1e-19, 1e34
    attn.W_V.data[:, 1] = model.W_U.data[2, 5] = 1
    assert torch.set_flush_denormal(True)
    try:
        found = rounding.ratios(model, counts)
    finally:
        torch.set_flush_denormal(False)
    assert 1e-3 < max(found.values()) <= 1


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("function", ["exp", "log"])
def test_exp_and_log_are_as_exact_as_is_assumed(dtype, function):
    rng = np.random.default_rng(6)
    numbers = rng.uniform(-80, 0, 200_001) if function == "exp" else rng.uniform(1, 2000, 200_001)
    given = torch.from_numpy(numbers).to(dtype)
    exact = getattr(np, function)(given.numpy().astype(np.longdouble))
    found = getattr(torch, function)(given).numpy().astype(np.longdouble)
    assert np.abs(found / exact - 1).max() <= 4 * Precision.of(dtype).unit


@pytest.mark.parametrize("dtype", [*REAL, torch.bfloat16])
def test_the_quick_bound_is_above_that_of_each_sentence(dtype):
    rng = np.random.default_rng(7)
    for _ in range(10):
        model, counts = rounding.draw_model(rng, dtype), rounding.draw_counts(rng, 40, 60)
        bound = MarginBound(model, dtype)
        quick = bound.at_most(counts.sum(dim=1).double() + 2)
        assert bool((bound.of(counts) <= quick * (1 + 1e-9)).all())


def test_the_bound_grows_with_the_sentence_and_with_the_unit():
    model = example_model()
    counts = torch.tensor([[5, 5, 5], [50, 50, 50], [200, 200, 200]])
    fine, coarse = (
        MarginBound(model, dtype).of(counts) for dtype in (torch.float64, torch.float32)
    )
    assert bool((coarse.diff() > 0).all())
    assert torch.allclose(coarse / fine, torch.tensor(2.0**29).double(), rtol=1e-2)


def test_where_there_is_no_bound_every_answer_hangs_on_rounding():
    """bfloat16 has 8 bits: after 256 roundings nothing can be said."""
    model = minimal_model().to(torch.bfloat16, print_details=False)
    bound = MarginBound(model, torch.bfloat16).of(torch.tensor([[10, 10, 10], [90, 90, 90]]))
    assert torch.isfinite(bound).tolist() == [True, False]
    errors = RoundingErrors(model, torch.float64, 90)
    assert errors.count_unsafe(torch.tensor([[90, 90, 90]]), torch.tensor([1e300]).double()) == 1


def test_what_may_overflow_has_no_bound():
    counts = torch.tensor([[1, 2, 3]])
    model = minimal_model()
    with torch.no_grad():
        model.blocks[0].attn.W_V.mul_(1e36)
        model.W_U.div_(1e36)
    assert torch.isinf(MarginBound(model, torch.float32).of(counts)).all()
    assert torch.isfinite(MarginBound(model, torch.float64).of(counts)).all()


def test_scores_that_rounding_can_turn_over_leave_the_range_of_the_values():
    """Nothing is known of attention, but it is an average of what tokens contribute."""
    model, counts = build_model(ONE_HEAD, seed=3), torch.tensor([[4, 5, 6]])
    with torch.no_grad():
        model.blocks[0].attn.W_Q.mul_(1e12)
    bound = MarginBound(model, torch.float32)
    alone = bound.alone[0]
    expected = float(alone.max() - alone.min())
    assert float(bound.of(counts)[0]) == pytest.approx(expected, rel=0.02)
    assert max(rounding.ratios(model, counts).values()) <= 1


def test_a_margin_at_the_bound_is_not_safe():
    model, counts = minimal_model(), torch.tensor([[3, 4, 5]])
    errors = RoundingErrors(model, torch.float64, 5)
    both = sum(bound.of(counts) for bound in errors.bounds[0, 1])
    unsafe = [
        errors.count_unsafe(counts, sign * both * by) for sign in (-1, 1) for by in (1, 1.001)
    ]
    assert unsafe == [1, 0, 1, 0]
    assert errors.count_unsafe(counts, torch.tensor([torch.nan]).double()) == 1


def test_the_table_of_the_attack_has_a_row_for_each_model_and_way():
    table = rounding.attack(torch.float32, models=2, steps=1, seed=0)
    ways = {*rounding.run_margins(minimal_model(), torch.tensor([[1, 1, 1]]))}
    assert {*table["way"]} == ways | {"worst, sequence", "worst, compact", "worst, closed form"}
    assert len(table) == 2 * len({*table["way"]})
    assert table["reached"].between(0, 1).all()


@needs_3("a scale is positive")
def test_the_sign_of_the_scale_does_not_matter():
    counts = torch.tensor([[20, 21, 5], [3, 3, 0]])
    model = build_model(ModelConfig(d_embed=6, n_heads=2, scale_scores=True), seed=1)
    expected = MarginBound(model, torch.float32).of(counts)
    model.blocks[0].attn.attn_scale *= -1
    for name in ("W_Q", "b_Q"):
        getattr(model.blocks[0].attn, name).data *= -1
    torch.testing.assert_close(MarginBound(model, torch.float32).of(counts), expected)
