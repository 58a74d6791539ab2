import itertools
import json

import numpy as np
import pytest
import torch

from count01_lens.counts.compact import compact_logits
from count01_lens.counts.verification import verify
from count01_lens.models.build import build_model, hooked_transformer
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, minimal_model, minimal_raw
from tests.lens_versions import KIND


def by_brute_force(model, up_to):
    """The same figures from the compact form, sentence by sentence, in plain Python."""
    grid = list(itertools.product(range(up_to + 1), repeat=3))
    counts = torch.tensor(grid)
    after_equals = compact_logits(model, counts).tolist()
    after_answer = compact_logits(model, counts, "answer").tolist()
    wrong = [(c, c[1] > c[0]) for c, z in zip(grid, after_equals, strict=True)
             if (z[5] > z[6]) != (c[1] > c[0])]  # fmt: skip
    return {
        "wrong": sorted(c for c, _ in wrong),
        "tie_errors": sum(c[0] == c[1] for c, _ in wrong),
        "eos_errors": sum(max(range(8), key=z.__getitem__) != 7 for z in after_answer),
        "other": sum(max(range(8), key=z.__getitem__) not in (5, 6) for z in after_equals),
        "frontier": min((max(c) for c, _ in wrong), default=up_to + 1) - 1,
        "non_tie_frontier": min((max(c) for c, _ in wrong if c[0] != c[1]), default=up_to + 1) - 1,
        "margin": min(abs(z[5] - z[6]) for z in after_equals),
    }


@pytest.mark.parametrize("seed", range(4))
def test_figures_equal_brute_force(seed):
    config = ModelConfig(d_embed=6, n_heads=3, output=("fused", "residual")[seed % 2])
    model = build_model(config, seed=seed, dtype=torch.float64)
    up_to = 9
    result = verify(model, up_to=up_to, keep=2000)
    expected = by_brute_force(model, up_to)
    assert result.n_sentences == 1000
    assert result.n_ties == 100
    assert sorted(map(tuple, result.counterexamples.tolist())) == expected["wrong"]
    assert result.n_errors == len(expected["wrong"])
    assert result.accuracy == pytest.approx(1 - len(expected["wrong"]) / 1000)
    assert result.n_tie_errors == expected["tie_errors"]
    assert result.tie_accuracy == pytest.approx(1 - expected["tie_errors"] / 100)
    non_tie_errors = len(expected["wrong"]) - expected["tie_errors"]
    assert result.non_tie_accuracy == pytest.approx(1 - non_tie_errors / 900)
    assert result.n_eos_errors == expected["eos_errors"]
    assert result.eos_accuracy == pytest.approx(1 - expected["eos_errors"] / 1000)
    assert result.n_other_tokens == expected["other"]
    assert result.frontier == expected["frontier"]
    assert result.non_tie_frontier == expected["non_tie_frontier"]
    assert result.smallest_margin == pytest.approx(expected["margin"], rel=1e-6)


def test_minimal_model_has_no_counterexample_up_to_200():
    result = verify(minimal_model())
    assert result.n_sentences == 201**3
    assert result.accuracy == result.eos_accuracy == result.tie_accuracy == 1.0
    assert f"{result.n_below_rounding:,} answers may depend on rounding" in repr(result)
    assert (result.frontier, result.non_tie_frontier) == (200, 200)
    assert len(result.counterexamples) == 0
    assert "100.0000 %  (0 wrong)" in repr(result)


def test_long_ties_of_the_minimal_model_hang_on_rounding_in_float32_only():
    """Their margin of 5e-4 is what is left of logits of 12, each an average over 400 tokens.

    A run on tokens sorted by value is already off by a fifth of that margin.
    """
    assert verify(minimal_model(), up_to=80).n_below_rounding == 0
    assert 0 < verify(minimal_model(), up_to=100).n_below_rounding < 1000
    in_float64 = verify(minimal_model(dtype=torch.float64), up_to=100)
    assert (in_float64.n_errors, in_float64.n_below_rounding) == (0, 0)


def test_a_boundary_that_is_off_is_found():
    """With a large ε, '5' wins where there is one '1' more: only between long sentences."""
    result = verify(minimal_model(epsilon=0.01), up_to=60)
    assert result.n_errors > 0
    assert result.n_tie_errors == 0
    n0, n1, _ = result.counterexamples.T
    assert bool((n1 == n0 + 1).all())
    assert result.frontier == int(result.counterexamples[0].max()) - 1
    assert verify(minimal_model(epsilon=0.01), up_to=result.frontier).n_errors == 0
    assert len(verify(minimal_model(epsilon=0.01), up_to=60, keep=3).counterexamples) == 3


def test_margins_below_rounding_are_counted():
    """ε near the rounding of float32, where the paper's construction is known to fail."""
    assert verify(minimal_model(n=30, epsilon=1e-6), up_to=40).n_below_rounding >= 40 * 41
    assert verify(cooperative_model(), up_to=40).n_below_rounding == 0
    in_float64 = minimal_model(n=30, epsilon=1e-6, dtype=torch.float64)
    assert verify(in_float64, up_to=40).n_below_rounding == 0


def with_large_logits():
    """Both logits are shifted by the same large amount, so that float32 loses their difference."""
    model = minimal_model(skip=False)
    model.W_U.data[1:, 5:7] += 3e4
    return model


def with_cancelling_scores():
    """The scores of the minimal solution, as differences of numbers 10,000 times as large."""
    raw, _ = minimal_raw(10, 5e-4, skip=False)
    config = ModelConfig(d_embed=1, n_heads=1, d_head=2, layer_norm=False)
    large, part = 1e4, 0.7310585
    raw["W_Q"] = torch.tensor([[[1.0, large]]])
    raw["W_K"] = torch.tensor([[[1 + part * large, -part]]])
    raw["W_V"] = torch.tensor([[[1.0, 0.0]]])
    raw["W_out"] = torch.cat([raw["W_out"], torch.zeros_like(raw["W_out"])], dim=1)
    return hooked_transformer({name: value.float() for name, value in raw.items()}, config)


@pytest.mark.parametrize("make", [with_large_logits, with_cancelling_scores])
def test_what_float32_turns_round_is_counted_as_below_rounding(make):
    model = make()
    exact = verify(model, up_to=20, keep=10_000)
    own = by_brute_force(model, 20)
    turned_round = set(map(tuple, exact.counterexamples.tolist())) ^ set(own["wrong"])
    assert 0 < len(turned_round) <= exact.n_below_rounding


def test_computing_in_float32_is_judged_by_its_own_rounding():
    model = minimal_model(n=30, epsilon=1e-6, dtype=torch.float64)
    assert verify(model, up_to=40).n_errors == 0
    coarse = verify(model, up_to=40, dtype=torch.float32)
    assert 0 < coarse.n_errors <= coarse.n_below_rounding


def test_a_trained_model_has_decisions_that_do_not_hang_on_rounding():
    result = verify(example_model(), up_to=60)
    assert result.n_below_rounding == 0
    assert result.smallest_margin > 1e-3


def test_the_result_is_json_and_says_what_was_found():
    result = verify(build_model(), up_to=np.int64(5))
    values = json.loads(json.dumps(result.to_dict()))
    assert values["up_to"] == 5
    assert values["dtype"] == "float64"
    assert values["accuracy"] == result.accuracy
    assert "all 216 sentences with 0 to 5 of each token (float64)" in repr(result)


def test_up_to_zero_is_one_sentence():
    result = verify(minimal_model(), up_to=0)
    assert (result.n_sentences, result.accuracy) == (1, 1.0)
    assert result.to_dict()["non_tie_accuracy"] is None
    assert result.non_tie_accuracy != result.non_tie_accuracy


def test_state_is_left_as_it_was():
    model = build_model()
    threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
    verify(model, up_to=3)
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)
    assert model.W_E.requires_grad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"up_to": -1}, "up_to: expected a whole number of at least 0, got -1"),
        ({"up_to": 1.5}, "up_to: expected"),
        ({"up_to": 10**6}, "up_to: expected at most 2000"),
        ({"keep": -1}, "keep: expected"),
        ({"dtype": torch.int64}, "dtype: expected"),
    ],
)
def test_bad_arguments_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        verify(minimal_model(), **arguments)


def test_bad_models_are_rejected():
    with pytest.raises(ValueError, match=f"cannot be run on counts: expected a {KIND}"):
        verify(torch.nn.Linear(2, 2))
    model = build_model()
    model.W_E.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="model: expected finite weights"):
        verify(model)
