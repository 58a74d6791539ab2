"""Metrics against ablation by hooks, scikit-learn and plain counting."""

import itertools
import os

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from count01_lens.checkpoints import example_model
from count01_lens.dataset import SplitSpec, make_splits
from count01_lens.handcrafted import cooperative_model, ensemble_model
from count01_lens.heads import ablate_heads, head_data, model_logits
from count01_lens.metrics import (
    areas,
    empty_values,
    end_accuracy,
    group_masks,
    learned_accuracy,
    roc_auc,
    separation_accuracy,
)
from count01_lens.model import ModelConfig, build_model
from tests.test_heads import two_layers

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


@pytest.mark.parametrize("group", [[], [16], [-1]])
def test_groups_that_do_not_exist(group):
    with pytest.raises(ValueError, match="group: expected heads from 0 to 15"):
        group_masks([group], 16)


def test_splits_with_one_answer_only():
    only_fives = SplitSpec(size=20, zeros_and_ones=(3, 3), twos=(0, 3))
    with pytest.raises(ValueError, match="test split: expected both answers"):
        head_data(build_model(), make_splits(0, test=only_fives))


def test_masks_are_the_groups():
    masks = group_masks([list(group) for group in itertools.combinations(range(4), 2)], 4)
    assert masks.sum(axis=1).tolist() == [2] * 6
    assert masks[0].tolist() == [True, True, False, False]
