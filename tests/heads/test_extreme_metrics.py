"""Metrics at the limits of numbers: attributions near the largest float, and heads of rounding."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.head_data import head_data
from count01_lens.heads.metrics import (
    METRICS,
    Groups,
    areas,
    constant_heads,
    measure_all,
    right_without_heads,
)
from count01_lens.models.build import build_model
from count01_lens.models.config import ModelConfig
from tests.helpers import TINY, random_data

LARGEST = np.finfo(float).max
EVERY_GROUP = np.array([[bool(n >> head & 1) for head in range(3)] for n in range(1, 8)])


def scaled(data, factor):
    """The same logits, times a power of two: every metric of them is the same."""
    asked = {
        name: replace(each, heads=each.heads * factor, rest=each.rest * factor)
        for name, each in data.asked.items()
    }
    return replace(data, asked=asked)


@pytest.mark.parametrize("choices", [2, 3])
def test_metrics_of_attributions_near_the_largest_float(choices):
    rng = np.random.default_rng(choices)
    for case in range(60):
        data = random_data(rng, n=12, choices=choices)
        size = max(np.abs(each.heads).max() for each in data.asked.values())
        size = max(size, *(np.abs(each.rest).max() for each in data.asked.values()))
        exponent = 1024 - int(np.frexp(size)[1]) - case % 4
        ordinary, large = (
            measure_all(Groups(each, EVERY_GROUP)) for each in (data, scaled(data, 2.0**exponent))
        )
        for name, values in ordinary.items():
            np.testing.assert_array_equal(large[name], values, err_msg=f"{case} {name}")
            assert ((values >= 0) & (values <= 1)).all()
        large = right_without_heads(scaled(data, 2.0**exponent), "end")
        np.testing.assert_array_equal(large, right_without_heads(data, "end"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("metric", ["l_acc", "roc_auc", "eos_l_acc"])
def test_heads_that_overflow_are_named(bad, metric):
    data = random_data(np.random.default_rng(0))
    for asked in data.asked.values():
        asked.heads[3, 1, 0] = bad
    with pytest.raises(ValueError, match="heads 1: expected finite attributions.* overflow"):
        METRICS[metric].measure(Groups(data, EVERY_GROUP))
    data = random_data(np.random.default_rng(0))
    for asked in data.asked.values():
        asked.rest[3, 0] = bad
    if metric == "roc_auc":
        data.answer.heads[0, 2] = bad
    with pytest.raises(ValueError, match="other parts than heads|heads 2"):
        METRICS[metric].measure(Groups(data, EVERY_GROUP))


@pytest.mark.parametrize("part", ["train_outputs", "test_outputs"])
def test_outputs_that_overflow_are_named(part):
    data = random_data(np.random.default_rng(0))
    getattr(data, part)[1, 2] = np.inf
    with pytest.raises(ValueError, match="heads 2: expected finite outputs"):
        METRICS["s_acc"].measure(Groups(data, EVERY_GROUP))


def test_logits_of_a_run_that_overflow_are_refused():
    def run(masks, told):
        yield "answer", np.arange(len(masks)), np.full((len(masks), 40, 2), np.inf)

    data = random_data(np.random.default_rng(0), group_logits=run)
    with pytest.raises(ValueError, match=r"heads \[0\]: expected finite logits of 'answer'"):
        METRICS["l_acc"].measure(Groups(data, EVERY_GROUP))


def test_the_whole_model_near_the_largest_float():
    """Sums over heads that overflow still have an order."""
    data = random_data(np.random.default_rng(5))
    large = {
        name: replace(asked, heads=np.ldexp(asked.heads, 1019), rest=np.ldexp(asked.rest, 1019))
        for name, asked in data.asked.items()
    }
    assert replace(data, asked=large).accuracies() == data.accuracies()


def test_probes_of_outputs_near_the_largest_float():
    data = random_data(np.random.default_rng(3), n=60)
    rng = np.random.default_rng(4)
    answers = rng.integers(0, 2, 60)
    outputs = rng.standard_normal((60, 3, 1)) + answers[:, None, None]
    data = replace(data, train_outputs=outputs, train_answers=answers)
    large = replace(data, train_outputs=outputs * 1e307, test_outputs=data.test_outputs * 1e307)
    # No larger unit changes a probe whose weights cost nothing.
    middle = replace(data, train_outputs=outputs * 1e9, test_outputs=data.test_outputs * 1e9)
    found, expected = (Groups(each, EVERY_GROUP).probe_accuracy for each in (large, middle))
    np.testing.assert_array_equal(found, expected)


def test_areas_refuse_what_is_no_number():
    with pytest.raises(ValueError, match="scores: expected finite numbers"):
        areas(np.array([[1.0, np.inf, 2.0]]), np.array([True, False, True]))
    most = np.array([[LARGEST, -LARGEST, LARGEST, 0.0]])
    assert areas(most, np.array([True, False, False, False]))[0] == pytest.approx(2.5 / 3)


@pytest.mark.parametrize("eps", [np.finfo(np.float32).eps, np.finfo(np.float64).eps])
@pytest.mark.parametrize("choices", [2, 4])
def test_a_head_of_rounding_ranks_nothing(eps, choices):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    data = random_data(rng, n=300, choices=choices)
    before = METRICS["roc_auc"].measure(Groups(data, EVERY_GROUP))
    noise = 1 + eps * rng.integers(-8, 9, (300, choices))
    data.answer.heads[:, 1] = rng.standard_normal(choices) * noise
    data = replace(data, eps=float(eps))
    assert constant_heads(data).tolist() == [[head == 1] * choices for head in range(3)]
    found = METRICS["roc_auc"].measure(Groups(data, EVERY_GROUP))
    assert found[1] == 0.5
    # A group is what its other heads are, to the bit.
    np.testing.assert_array_equal(found[[0, 2, 3, 4, 5, 6]], before[[0, 0, 3, 4, 3, 4]])
    # A difference that the run could tell is one.
    data.answer.heads[:, 1] *= 1 + 1000 * eps * (data.answer.answers == 0)[:, None]
    assert not constant_heads(data).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heads_that_give_the_same_for_every_sentence_have_an_area_of_one_half(dtype, tmp_path):
    """Head 0 reads nothing from any token: its values are their bias, its outputs that, rounded."""
    model = build_model(ModelConfig(d_embed=6, n_heads=3, qkv_bias=True), seed=1, dtype=dtype)
    attention = model.blocks[0].attn
    with torch.no_grad():
        attention.b_V.add_(0.3)
        attention.W_V[0] = 0
    data = head_data(model, TINY)
    assert data.eps == torch.finfo(dtype).eps
    attributed = data.answer.heads
    assert np.ptp(attributed[:, 0, 0]) > 0 or np.ptp(attributed[:, 0, 1]) > 0  # by rounding
    assert constant_heads(data)[0].all()
    assert not constant_heads(data)[2].any()
    analysis = analyze_heads(model, TINY)
    assert analysis.table["roc_auc"][0] == 0.5
    assert analysis.pairs["roc_auc"][0, 2] == analysis.table["roc_auc"][2]
    analysis.save(tmp_path / "analysis")
    loaded = HeadAnalysis.load(tmp_path / "analysis")
    assert loaded.data.eps == data.eps
    np.testing.assert_array_equal(loaded.groups()["roc_auc"], analysis.groups()["roc_auc"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_head_with_an_offset_is_not_constant_in_half_precision(dtype):
    """What it says is a twentieth of its size, and far above its rounding."""
    data = head_data(build_model(ModelConfig(d_embed=6, n_heads=3), seed=1), TINY)
    rng, answers = np.random.default_rng(0), data.answer.answers
    heads = np.ones(data.answer.heads.shape)
    heads[:, :, 0] += 0.05 * (answers == 0)[:, None] + 1e-3 * rng.standard_normal((len(answers), 1))
    heads = torch.tensor(heads).to(dtype).double().numpy()
    asked = {**data.asked, "answer": replace(data.answer, heads=heads)}
    data = replace(data, asked=asked, eps=torch.finfo(dtype).eps)
    assert METRICS["roc_auc"].measure(Groups(data, EVERY_GROUP)).min() == 1.0
