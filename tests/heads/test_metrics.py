"""Metrics against ablation by hooks, scikit-learn and plain counting."""

import math
import os

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from count01_lens.attention.interventions import patch_attention
from count01_lens.heads.metrics import (
    HeadData,
    areas,
    empty_values,
    end_accuracy,
    learned_accuracy,
    model_accuracies,
    roc_auc,
    separation_accuracy,
    separation_fits,
    separation_scores,
)
from count01_lens.heads.runners import ablate_heads, head_data, model_logits
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, ensemble_model
from count01_lens.tasks.dataset import SplitSpec, make_splits
from tests.helpers import two_layers

SPLITS = make_splits()
SMALL = make_splits(
    0,
    train=SplitSpec(size=200, zeros_and_ones=(0, 6), twos=(0, 6)),
    test=SplitSpec(size=60, zeros_and_ones=(5, 9), twos=(0, 9)),
)
MODEL = example_model()
DATA = head_data(MODEL, SPLITS)


def random_groups(n_groups, n_heads, most=16):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    return [
        sorted(rng.choice(n_heads, rng.integers(1, most + 1), replace=False).tolist())
        for _ in range(n_groups)
    ]


def group_masks(groups, n_heads):
    return np.array([[head in group for head in range(n_heads)] for group in groups])


@pytest.mark.parametrize("model", [MODEL, build_model(ModelConfig(output="residual"))])
def test_learned_accuracy_is_that_of_the_model_without_the_others(model):
    data = head_data(model, SMALL)
    for group in random_groups(4, 16):
        others = [head for head in range(16) if head not in group]
        if not others:
            continue
        with ablate_heads(model, others):
            after_equals = model_logits(model, SMALL.test).double()
            after_answer = model_logits(model, SMALL.test, "answer").double()
        masks = group_masks([group], 16)
        expected = ((after_equals[:, 5] > after_equals[:, 6]) == SMALL.test.labels).double().mean()
        assert learned_accuracy(data, masks)[0] == pytest.approx(float(expected), abs=1e-9)
        ended = (after_answer.argmax(dim=-1) == 7).double().mean()
        assert end_accuracy(data, masks)[0] == pytest.approx(float(ended), abs=1e-9)


def test_all_heads_together_are_the_model():
    everybody = np.ones((1, 16), dtype=bool)
    logits = model_logits(MODEL, SPLITS.test)
    accuracy = ((logits[:, 5] > logits[:, 6]) == SPLITS.test.labels).double().mean()
    assert learned_accuracy(DATA, everybody)[0] == pytest.approx(float(accuracy))


def test_accuracies_of_the_whole_model_are_those_of_running_it():
    model = build_model(ModelConfig(d_embed=8, n_heads=4), seed=2)
    data, ties = head_data(model, SMALL), SMALL.test.ties
    logits = torch.stack([model(s[None])[0, -3:-1] for s in SMALL.test.sequences()])
    right = ((logits[:, 0, 5] > logits[:, 0, 6]) == SMALL.test.labels).double()
    expected = {
        "answer": right.mean(),
        "ties": right[ties].mean(),
        "others": right[~ties].mean(),
        "eos": (logits[:, 1].argmax(-1) == 7).double().mean(),
    }
    assert len(set(map(float, expected.values()))) == 4  # so that none can be taken for another
    found = model_accuracies(data, ties.numpy())
    assert found == pytest.approx({name: float(value) for name, value in expected.items()})
    no_ties = model_accuracies(data, np.zeros_like(data.test_labels))
    assert np.isnan(no_ties["ties"])
    assert no_ties["others"] == no_ties["answer"] == found["answer"]


def test_accuracies_of_random_shares_counted_one_by_one():
    rng = np.random.default_rng(5)
    data = HeadData(
        train_outputs=np.zeros((2, 3, 1)), train_labels=np.array([True, False]),
        test_outputs=np.zeros((40, 3, 1)), test_labels=rng.random(40) < 0.5,
        shares=rng.standard_normal((40, 3, 2)), bias=rng.standard_normal((40, 2)),
        end_shares=rng.standard_normal((40, 3, 4)), end_bias=rng.standard_normal((40, 4)),
        end_token=2,
    )  # fmt: skip
    ties = rng.random(40) < 0.3
    right, ended = [], []
    for n in range(40):
        first, second = (sum(data.shares[n, :, a]) + data.bias[n, a] for a in (0, 1))
        right.append((first > second) == data.test_labels[n])
        end = [sum(data.end_shares[n, :, t]) + data.end_bias[n, t] for t in range(4)]
        ended.append(max(end) == end[2])
    assert model_accuracies(data, ties) == pytest.approx(
        {
            "answer": np.mean(right),
            "ties": np.mean([r for r, tie in zip(right, ties, strict=True) if tie]),
            "others": np.mean([r for r, tie in zip(right, ties, strict=True) if not tie]),
            "eos": np.mean(ended),
        }
    )


def test_roc_auc_is_the_larger_of_two_of_scikit_learn():
    labels = DATA.test_labels
    groups = random_groups(10, 16)
    ours = roc_auc(DATA, group_masks(groups, 16))
    for group, value in zip(groups, ours, strict=True):
        share = DATA.shares[:, group].sum(axis=1)
        expected = max(roc_auc_score(labels, share[:, 0]), roc_auc_score(~labels, share[:, 1]))
        assert value == pytest.approx(expected, abs=1e-12)


def test_ties_in_scores_count_half():
    rng = np.random.default_rng(3)
    labels = rng.random(200) < 0.4
    scores = np.stack([rng.integers(0, 4, 200), np.zeros(200), rng.random(200)]).astype(float)
    expected = [roc_auc_score(labels, row) for row in scores]
    np.testing.assert_allclose(areas(scores, labels), expected, atol=1e-12)
    assert areas(scores, labels)[1] == 0.5


def test_separation_accuracy_is_that_of_scikit_learn():
    groups = random_groups(5, 16, most=4)
    ours = separation_accuracy(DATA, group_masks(groups, 16))
    for group, value in zip(groups, ours, strict=True):
        train = DATA.train_outputs[:, group].reshape(7000, -1)
        test = DATA.test_outputs[:, group].reshape(1500, -1)
        probe = LinearSVC(C=1000, dual=False, tol=1e-10, max_iter=100_000)
        expected = probe.fit(train, DATA.train_labels).score(test, DATA.test_labels)
        # A sentence on the boundary may fall to either side.
        assert value == pytest.approx(expected, abs=3 / 1500)


def test_a_separator_may_be_given_a_start_and_another_penalty():
    masks = group_masks([[0], [2, 5], [9]], 16)
    fits = separation_fits(DATA, masks)
    np.testing.assert_array_equal(fits.weights, separation_fits(DATA, masks, C=1000).weights)
    again = separation_fits(DATA, masks, start=fits.weights)
    assert (again.n_iter < fits.n_iter).all()
    np.testing.assert_allclose(again.objectives, fits.objectives)
    loose = separation_fits(DATA, masks, C=1e-3)
    for weights, mask in zip(loose.weights, masks, strict=True):
        train = DATA.train_outputs[:, mask].reshape(7000, -1)
        probe = LinearSVC(C=1e-3, dual=False, tol=1e-10, max_iter=100_000, intercept_scaling=1)
        expected = probe.fit(train, DATA.train_labels)
        np.testing.assert_allclose(
            weights[:-1].reshape(16, -1)[mask].ravel(), expected.coef_[0], rtol=1e-4, atol=1e-7
        )
    scores = separation_accuracy(DATA, masks, C=1e-3)
    np.testing.assert_array_equal(scores, separation_scores(DATA, loose))
    assert not np.array_equal(scores, separation_accuracy(DATA, masks))
    np.testing.assert_array_equal(
        separation_accuracy(DATA, masks), separation_accuracy(DATA, masks, C=1000)
    )


def test_the_controls_come_out_as_they_were_built():
    cooperative = head_data(cooperative_model(), SPLITS)
    singles, both = np.eye(2, dtype=bool), np.ones((1, 2), dtype=bool)
    assert (separation_accuracy(cooperative, singles) < 0.55).all()
    assert separation_accuracy(cooperative, both)[0] == 1.0
    assert learned_accuracy(cooperative, both)[0] == 1.0
    ensemble = head_data(ensemble_model(3), SPLITS)
    # The handcrafted head separates all but the ties, by a fitted separator; the copies agree.
    alone = separation_accuracy(ensemble, np.eye(3, dtype=bool))
    assert alone.min() == alone.max() >= 0.98


def test_the_empty_group():
    empty = empty_values(DATA)
    bias = DATA.bias[0]
    assert empty["l_acc"] == pytest.approx(((bias[0] > bias[1]) == DATA.test_labels).mean())
    assert empty["roc_auc"] == 0.5
    majority = DATA.train_labels.mean() > 0.5
    assert empty["s_acc"] == pytest.approx((DATA.test_labels == majority).mean())
    assert list(empty) == ["l_acc", "roc_auc", "s_acc", "eos_l_acc"]
    assert empty["eos_l_acc"] == pytest.approx((DATA.end_bias.argmax(axis=1) == 7).mean())


def test_where_nothing_leads_the_second_answer_is_given_and_nothing_ends():
    """By shares and by really running: equal logits are '5', as in the paper, and no end."""
    labels = np.array([True, False, False, True])
    zeros = dict(
        train_outputs=np.zeros((4, 1, 1)), train_labels=labels,
        test_outputs=np.zeros((4, 1, 1)), test_labels=~labels,
        shares=np.zeros((4, 1, 2)), bias=np.zeros((4, 2)),
        end_shares=np.zeros((4, 1, 3)), end_bias=np.zeros((4, 3)), end_token=1,
    )  # fmt: skip
    for ablated in (None, lambda mask: (np.zeros((4, 2)), np.zeros((4, 3)))):
        data = HeadData(**zeros, ablated=ablated)
        (head,) = learned_accuracy(data, np.ones((1, 1), dtype=bool)).tolist()
        assert head == 0.5
        assert end_accuracy(data, np.ones((1, 1), dtype=bool))[0] == 0
        whole = model_accuracies(data, np.array([True, False, True, False]))
        assert whole == {"answer": 0.5, "ties": 0.5, "others": 0.5, "eos": 0.0}
    uneven = HeadData(**zeros | {"test_labels": np.array([True, False, False, False])})
    assert learned_accuracy(uneven, np.ones((1, 1), dtype=bool))[0] == 0.75
    ran = HeadData(
        **zeros | {"test_labels": np.array([True, False, False, False])},
        ablated=lambda mask: (np.zeros((4, 2)), np.zeros((4, 3))),
    )
    assert learned_accuracy(ran, np.ones((1, 1), dtype=bool))[0] == 0.75
    assert model_accuracies(uneven, np.array([True, False, True, False]))["answer"] == 0.75
    # No majority among the training labels: '5' again.
    assert empty_values(uneven)["s_acc"] == 0.75


def test_a_deep_model_is_measured_by_running_it_without_heads():
    model = two_layers("LN")
    data = head_data(model, SMALL)
    assert data.ablated is not None
    assert data.n_heads == 6
    groups = [[0, 3], [5], [1, 2, 4]]
    for group, value, ended in zip(
        groups,
        learned_accuracy(data, group_masks(groups, 6)),
        end_accuracy(data, group_masks(groups, 6)),
        strict=True,
    ):
        with ablate_heads(model, [head for head in range(6) if head not in group]):
            logits = torch.stack([model(s[None])[0, -3:-1] for s in SMALL.test.sequences()])
        right = (logits[:, 0, 5] > logits[:, 0, 6]) == SMALL.test.labels
        assert value == pytest.approx(float(right.double().mean()))
        assert ended == pytest.approx(float((logits[:, 1].argmax(-1) == 7).double().mean()))


def test_splits_with_one_answer_only():
    only_fives = SplitSpec(size=20, zeros_and_ones=(3, 3), twos=(0, 3))
    with pytest.raises(ValueError, match="test split: expected both answers"):
        head_data(build_model(), make_splits(0, test=only_fives))


def test_groups_of_a_model_that_was_changed_since_are_refused():
    model = two_layers("LN")
    with patch_attention(model, w01=0.01, w02=math.inf):
        data = head_data(model, SMALL)
        within = learned_accuracy(data, group_masks([[0, 1]], 6))
    assert 0 <= within[0] <= 1
    # What needs no running is still that of the patched model.
    with patch_attention(model, w01=0.01, w02=math.inf):
        logits = model_logits(model, SMALL.test, "answer")
    ended = float((logits.argmax(-1) == 7).double().mean())
    assert model_accuracies(data, SMALL.test.ties.numpy())["eos"] == pytest.approx(ended)
    with pytest.raises(ValueError, match="its weights or its hooks have changed since"):
        learned_accuracy(data, group_masks([[0, 1]], 6))
