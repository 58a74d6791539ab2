"""Sweeps of attention ratios against refitting by hand through real hooks and scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC

import count01_lens as cl
from count01_lens.heads.runners import model_logits
from tests.helpers import TINY, two_layers

MODEL = cl.example_model()


@pytest.mark.parametrize("ratio", ["w01", "w02"])
def test_every_point_is_a_probe_refitted_on_patched_outputs(ratio):
    """By the other road: hooks on sequences, and scikit-learn."""
    model = cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3), seed=2, dtype=torch.float64)
    values = [0.05, 1.0, 20.0]
    sweep = cl.sweep_attention(model, ratio, values, TINY)
    assert sweep.s_acc.shape == (3, 3)
    for row, value in enumerate(values):
        patch = dict(w01=value, w02=math.inf) if ratio == "w01" else dict(w01=1.0, w02=value)
        with cl.patch_attention(model, **patch):
            train, test = (cl.head_outputs(model, s).numpy() for s in (TINY.train, TINY.test))
            logits = model_logits(model, TINY.test)
        accuracy = ((logits[:, 5] > logits[:, 6]) == TINY.test.labels).double().mean()
        assert sweep.model["answer"][row] == pytest.approx(float(accuracy))
        for head in range(3):
            probe = LinearSVC(C=1000, dual=False, tol=1e-12, max_iter=100_000)
            probe.fit(train[:, head], TINY.train.labels.numpy())
            expected = probe.score(test[:, head], TINY.test.labels.numpy())
            assert sweep.s_acc[row, head] == pytest.approx(expected, abs=0.026)


def test_the_answer_row_is_patched_for_the_end_and_only_then():
    sweep = cl.sweep_attention(MODEL, "w02", [0.01, 1.0], TINY)
    with cl.patch_attention(MODEL, w01=1.0, w02=0.01, at="answer"):
        logits = model_logits(MODEL, TINY.test, "answer")
    expected = float((logits.argmax(dim=-1) == cl.Token.EOS).double().mean())
    assert sweep.model["end_if_patched_at_answer"][0] == pytest.approx(expected)
    assert (sweep.model["end"] == sweep.model["end"][0]).all()
    assert sweep.model["end_if_patched_at_answer"][0] != sweep.model["end"][0]


def test_the_paper_s_findings_show_on_the_trained_model():
    sweep = cl.sweep_attention(MODEL, "w01", [1e-4, 0.3, 1.0, 3.0, 1e4])
    mean = sweep.s_acc.mean(axis=1)
    assert (mean[1:4] > 0.97).all()
    assert (mean[[0, 4]] < 0.6).all()
    assert sweep.worst_gradient < 1e-10
    table = sweep.table
    assert table["s_acc_mean"].to_numpy() == pytest.approx(mean)
    assert table["s_acc_std"].to_numpy() == pytest.approx(sweep.s_acc.std(axis=1))
    lines = sweep.heads
    assert len(lines) == 5 * 16
    assert lines[lines["head"] == 3]["s_acc"].tolist() == sweep.s_acc[:, 3].tolist()
    assert sweep.own[0] == pytest.approx(cl.analyze_heads(MODEL).table["w01"][0])
    assert "16 heads over 5 values of w01" in repr(sweep)


def test_zero_and_infinity_are_points_like_others():
    sweep = cl.sweep_attention(MODEL, "w02", [math.inf, 0, 1], TINY)
    assert sweep.values.tolist() == [0, 1, math.inf]
    assert np.isfinite(sweep.s_acc).all()


@pytest.mark.parametrize(
    ("task", "ratio", "fixed"),
    [
        ("count01", "w01", "'2' gets nothing"),
        ("count01", "w02", "'0' and '1' alike"),
        ("majority", "wac", "'a' and 'b' alike"),
        ("two_comparisons", "w01", "'0', '2' and '3' alike"),
    ],
)
def test_what_is_fixed_is_told(task, ratio, fixed):
    counting = cl.counting_task(task)
    model = cl.build_model(cl.ModelConfig(d_embed=4, n_heads=1), seed=0, task=counting)
    sweep = cl.sweep_attention(model, ratio, [0.5, 2.0], counting)
    assert sweep.fixed == fixed
    assert cl.plot_sweep(sweep).axes[0].get_xlabel() == f"{ratio} ({fixed})"


def test_a_deep_model_is_swept_through_hooks():
    model = two_layers(None)
    sweep = cl.sweep_attention(model, "w01", [1.0], TINY)
    assert sweep.s_acc.shape == (1, 6)
    assert np.isnan(sweep.own).all()
    with cl.patch_attention(model, w01=1.0, w02=math.inf):
        train, test = (cl.head_outputs(model, s).numpy() for s in (TINY.train, TINY.test))
    for head in range(6):
        probe = cl.LinearSVM().fit(train[:, head], TINY.train.labels.numpy())
        assert sweep.s_acc[0, head] == probe.score(test[:, head], TINY.test.labels.numpy())
    with cl.patch_attention(model, w01=1.0, w02=math.inf):
        logits = model_logits(model, TINY.test, "answer")
    assert sweep.table["end"][0] == pytest.approx(float((logits.argmax(-1) == 7).double().mean()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(ratio="w12"), "ratio: expected 'w01' or 'w02'"),
        (dict(values=[]), "at least one number"),
        (dict(values=[1, -1]), "w01: expected None or a number from 0 to infinity, got -1"),
        (dict(values=[None]), "at least one number"),
        (dict(values="1,2"), "values: expected several numbers"),
        (dict(task="test"), "task: expected a CountingTask, or the result of make_splits"),
    ],
)
def test_bad_sweeps(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cl.sweep_attention(MODEL, **arguments)
