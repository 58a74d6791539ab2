"""Independent heads: shuffling keeps each head as it is, and tells copies from complements."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.head_data import AskedHeads, HeadData, head_data
from count01_lens.heads.independence import independent_heads, shuffled, why_not_independent
from count01_lens.heads.metrics import METRICS, Groups
from count01_lens.heads.probe_fits import LostProbe
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, ensemble_model
from tests.views.other_tasks import two_layers_three_answers

DATA = head_data(build_model(ModelConfig(d_embed=12, n_heads=5), seed=3))


def noisy_heads(n_heads, shared, *, n=2000, seed=0):
    """Heads that see the answer behind noise, of which they share a part: 0 to 1 of its variance."""
    rng = np.random.default_rng(seed)

    def outputs():
        answers = rng.integers(0, 2, n)
        common, own = rng.standard_normal((n, 1)), rng.standard_normal((n, n_heads))
        seen = 1 - 2 * answers[:, None] + np.sqrt(shared) * common + np.sqrt(1 - shared) * own
        return seen, answers

    (train, train_answers), (test, test_answers) = outputs(), outputs()
    heads = np.stack([test, -test], axis=2)
    return HeadData(
        train_outputs=train[:, :, None],
        train_answers=train_answers,
        test_outputs=test[:, :, None],
        asked={"answer": AskedHeads(heads=heads, rest=np.zeros((n, 2)), answers=test_answers)},
    )


def test_each_head_alone_does_what_it_did():
    mixed = shuffled(DATA, np.random.default_rng(0))
    alone = np.eye(5, dtype=bool)
    for name, metric in METRICS.items():
        before, after = (metric.measure(Groups(data, alone)) for data in (DATA, mixed))
        np.testing.assert_allclose(after, before, atol=1e-9, err_msg=name)


def test_places_change_only_among_prompts_with_the_same_answer():
    mixed = shuffled(DATA, np.random.default_rng(1))
    for head in range(5):
        for answer in (0, 1):
            some = DATA.answer.answers == answer
            for before, after in (
                (DATA.test_outputs[some, head], mixed.test_outputs[some, head]),
                (DATA.answer.heads[some, head], mixed.answer.heads[some, head]),
                # What follows an answer depends on which it was.
                (DATA.asked["end"].heads[some, head], mixed.asked["end"].heads[some, head]),
            ):
                assert not np.array_equal(before, after)
                np.testing.assert_array_equal(np.sort(before, axis=0), np.sort(after, axis=0))
    np.testing.assert_array_equal(mixed.answer.rest, DATA.answer.rest)


def test_questions_with_prompts_of_their_own_are_shuffled_among_these():
    end = DATA.asked["end"]
    few = AskedHeads(heads=end.heads[:40], rest=end.rest[:40], answers=end.answers[:40])
    mixed = shuffled(replace(DATA, asked={**DATA.asked, "end": few}), np.random.default_rng(1))
    for head in range(5):
        before, after = few.heads[:, head], mixed.asked["end"].heads[:, head]
        assert not np.array_equal(before, after)
        np.testing.assert_array_equal(np.sort(before, axis=0), np.sort(after, axis=0))


def test_outputs_and_attributions_stay_together():
    """A prompt's output of a head must still give the attribution beside it."""
    mixed = shuffled(DATA, np.random.default_rng(2))
    for head in range(5):
        known = {
            tuple(output): tuple(logits)
            for output, logits in zip(
                DATA.test_outputs[:, head], DATA.answer.heads[:, head], strict=True
            )
        }
        for output, logits in zip(
            mixed.test_outputs[:, head], mixed.answer.heads[:, head], strict=True
        ):
            np.testing.assert_allclose(known[tuple(output)], logits, atol=1e-12)


@pytest.mark.parametrize("metric", ["l_acc", "s_acc"])
def test_heads_that_share_their_mistakes_do_worse(metric):
    found = independent_heads(noisy_heads(5, shared=0.6), METRICS[metric])
    assert found.high < -0.01
    assert found.by_size[1] == pytest.approx(0, abs=1e-9)  # a head alone is the same
    assert (found.by_size[2:] > 0.01).all()


@pytest.mark.parametrize("metric", ["l_acc", "s_acc"])
def test_independent_heads_do_as_independent_heads_do(metric):
    found = independent_heads(noisy_heads(5, shared=0.0), METRICS[metric])
    assert found.low <= 0 <= found.high
    assert np.abs(found.by_size).max() < 0.03


@pytest.mark.parametrize("metric", ["l_acc", "s_acc"])
def test_the_controls(metric):
    complementing = independent_heads(head_data(cooperative_model()), METRICS[metric])
    assert complementing.low > 0.05
    assert complementing.by_size[2] < -0.1
    copies = independent_heads(head_data(ensemble_model()), METRICS["s_acc"])
    assert copies.high < -0.005


def test_the_interval_covers_as_it_says():
    """The truth for independent heads is 0: of 40 intervals nearly all hold it."""
    held = [
        found.low <= 0 <= found.high
        for found in (
            independent_heads(noisy_heads(3, shared=0.0, n=400, seed=seed), METRICS["l_acc"])
            for seed in range(40)
        )
    ]
    assert np.mean(held) >= 0.875


@pytest.mark.parametrize("ablation", ["zero", "mean", "resample"])
def test_what_replaces_heads_stays_where_it_is(ablation):
    """A shuffled model with all of its heads is nearly as good, whatever replaces heads."""
    analysis = analyze_heads(example_model(), ablation=ablation, progress=False)
    mixed = shuffled(analysis.data, np.random.default_rng(0))
    groups = np.concatenate([np.eye(16, dtype=bool), np.ones((1, 16), dtype=bool)])
    before, after = (Groups(data, groups).accuracy["answer"] for data in (analysis.data, mixed))
    np.testing.assert_allclose(after[:-1], before[:-1], atol=0.02)
    assert after[-1] > before[-1] - 0.02


def test_the_interval_is_also_over_the_orders_of_heads():
    data = replace(DATA, probe=None)
    seeds = [independent_heads(data, METRICS["l_acc"], n_orders=8, seed=seed) for seed in range(12)]
    middle = np.mean([found.beyond for found in seeds])
    assert sum(found.low <= middle <= found.high for found in seeds) >= 10


def test_the_same_seed_gives_the_same_numbers():
    data = noisy_heads(3, shared=0.3, n=300)
    first, again = (independent_heads(data, METRICS["l_acc"]) for _ in range(2))
    assert first.beyond == again.beyond
    assert independent_heads(data, METRICS["l_acc"], seed=1).beyond != first.beyond


def test_any_probe_will_do():
    data = replace(noisy_heads(3, shared=0.6, n=600), probe=LogisticRegression())
    assert independent_heads(data, METRICS["s_acc"], n_shuffles=1, n_orders=2).beyond < 0


def test_where_heads_cannot_be_made_independent_the_reason_is_told():
    assert why_not_independent(DATA) is None
    assert "through each other" in why_not_independent(two_layers_three_answers().data)
    assert "probe" in why_not_independent(replace(DATA, probe=LostProbe("Mine()")))
