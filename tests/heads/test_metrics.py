"""Metrics against ablation by hooks, scikit-learn and plain counting."""

import dataclasses
import itertools
import math
import os

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

import count01_lens as cl
from count01_lens.attention.ablation import ablate_heads
from count01_lens.attention.patches import patch_attention
from count01_lens.heads.answer import heads_in_text
from count01_lens.heads.head_data import AskedHeads, HeadData, head_data
from count01_lens.heads.metrics import METRICS, Groups, Metric, areas, measure_all
from count01_lens.heads.runners import model_logits
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, ensemble_model
from count01_lens.tasks.dataset import SplitSpec, make_splits
from tests.helpers import TINY, random_data, two_layers

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


def measured(data, masks, metric):
    return METRICS[metric].measure(Groups(data, masks))


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
        assert measured(data, masks, "l_acc")[0] == pytest.approx(float(expected), abs=1e-9)
        ended = (after_answer.argmax(dim=-1) == 7).double().mean()
        assert measured(data, masks, "eos_l_acc")[0] == pytest.approx(float(ended), abs=1e-9)


def test_all_heads_together_are_the_model():
    everybody = np.ones((1, 16), dtype=bool)
    logits = model_logits(MODEL, SPLITS.test)
    accuracy = ((logits[:, 5] > logits[:, 6]) == SPLITS.test.labels).double().mean()
    assert measured(DATA, everybody, "l_acc")[0] == pytest.approx(float(accuracy))


def test_accuracies_of_the_whole_model_are_those_of_running_it():
    model = build_model(ModelConfig(d_embed=8, n_heads=4), seed=2)
    data, ties = head_data(model, SMALL), SMALL.test.ties
    logits = torch.stack([model(s[None])[0, -3:-1] for s in SMALL.test.sequences()])
    right = ((logits[:, 0, 5] > logits[:, 0, 6]) == SMALL.test.labels).double()
    expected = {
        "answer": right.mean(),
        "ties": right[ties].mean(),
        "others": right[~ties].mean(),
        "end": (logits[:, 1].argmax(-1) == 7).double().mean(),
    }
    assert len(set(map(float, expected.values()))) == 4  # so that none can be taken for another
    assert data.accuracies() == pytest.approx({name: float(v) for name, v in expected.items()})


def test_no_ties_have_no_accuracy():
    without = SplitSpec(size=60, zeros_and_ones=(5, 9), twos=(0, 9))
    counts = make_splits(0, test=without).test.counts
    some = cl.Split("test", counts[counts[:, 0] != counts[:, 1]])
    splits = cl.Splits(SMALL.train, SMALL.validation, some)
    found = head_data(build_model(ModelConfig(d_embed=8, n_heads=4)), splits).accuracies()
    assert np.isnan(found["ties"])
    assert found["others"] == found["answer"]


@pytest.mark.parametrize("choices", [2, 3, 5])
def test_accuracies_of_random_attributions_counted_one_by_one(choices):
    data = random_data(np.random.default_rng(5), choices=choices)
    masks = np.array([[True, False, True], [True, True, True], [False, False, False]])
    found = Groups(data, masks).accuracy
    for name, asked in data.asked.items():
        for row, mask in enumerate(masks):
            right = []
            for n in range(40):
                logits = [
                    sum(asked.heads[n, mask, c]) + asked.rest[n, c]
                    for c in range(asked.rest.shape[1])
                ]
                right.append(logits[asked.answers[n]] == max(logits))
            assert found[name][row] == pytest.approx(np.mean(right))
            if mask.all():
                assert data.accuracies()[name] == pytest.approx(np.mean(right))
                if name == "answer":
                    ties = [r for r, tie in zip(right, asked.subsets["ties"], strict=True) if tie]
                    assert data.accuracies()["ties"] == pytest.approx(np.mean(ties))


@pytest.mark.parametrize("choices", [2, 3, 8])
def test_equal_logits_go_to_the_later_choice_in_every_group(choices):
    """Whole numbers add up exactly, so that many groups have ties on many prompts."""
    rng = np.random.default_rng(11)
    asked = AskedHeads(
        heads=rng.integers(-1, 2, (60, 3, choices)).astype(float),
        rest=rng.integers(-1, 2, (60, choices)).astype(float),
        answers=rng.integers(choices, size=60),
    )
    data = dataclasses.replace(random_data(rng, choices=choices), asked={"answer": asked})
    masks = np.array(list(itertools.product([False, True], repeat=3)))
    for mask, accuracy in zip(masks, Groups(data, masks).accuracy["answer"], strict=True):
        logits = asked.heads[:, mask].sum(axis=1) + asked.rest
        chosen = choices - 1 - logits[:, ::-1].argmax(axis=1)
        assert accuracy == (chosen == asked.answers).mean()


def test_roc_auc_is_the_larger_of_two_of_scikit_learn():
    labels, heads = DATA.test_labels, DATA.answer.heads
    groups = random_groups(10, 16)
    ours = measured(DATA, group_masks(groups, 16), "roc_auc")
    for group, value in zip(groups, ours, strict=True):
        added = heads[:, group].sum(axis=1)
        expected = max(roc_auc_score(labels, added[:, 0]), roc_auc_score(~labels, added[:, 1]))
        assert value == pytest.approx(expected, abs=1e-12)


def test_roc_auc_of_more_choices_is_the_mean_of_one_against_the_rest():
    data = random_data(np.random.default_rng(7), choices=4)
    (ours,) = measured(data, np.ones((1, 3), dtype=bool), "roc_auc")
    scores, answers = data.answer.heads.sum(axis=1), data.answer.answers
    expected = np.mean([roc_auc_score(answers == c, scores[:, c]) for c in range(4)])
    assert ours == pytest.approx(expected, abs=1e-12)


def test_ties_in_scores_count_half():
    rng = np.random.default_rng(3)
    labels = rng.random(200) < 0.4
    scores = np.stack([rng.integers(0, 4, 200), np.zeros(200), rng.random(200)]).astype(float)
    expected = [roc_auc_score(labels, row) for row in scores]
    np.testing.assert_allclose(areas(scores, labels), expected, atol=1e-12)
    assert areas(scores, labels)[1] == 0.5


def test_probe_accuracy_is_that_of_scikit_learn():
    groups = random_groups(5, 16, most=4)
    ours = measured(DATA, group_masks(groups, 16), "s_acc")
    for group, value in zip(groups, ours, strict=True):
        train = DATA.train_outputs[:, group].reshape(7000, -1)
        test = DATA.test_outputs[:, group].reshape(1500, -1)
        probe = LinearSVC(C=1000, dual=False, tol=1e-10, max_iter=100_000)
        expected = probe.fit(train, DATA.train_labels).score(test, DATA.test_labels)
        # A sentence on the boundary may fall to either side.
        assert value == pytest.approx(expected, abs=3 / 1500)


def test_probes_may_start_from_others():
    masks = group_masks([[0], [2, 5], [9]], 16)
    first = Groups(DATA, masks).fits
    again = Groups(DATA, masks, start=first.starts).fits
    assert (again.n_iter < first.n_iter).all()
    np.testing.assert_allclose(again.objectives, first.objectives)
    given = Groups(DATA, masks, fits=first)
    assert given.fits is first
    np.testing.assert_array_equal(given.probe_accuracy, Groups(DATA, masks).probe_accuracy)


def test_the_controls_come_out_as_they_were_built():
    cooperative = head_data(cooperative_model(), SPLITS)
    singles, both = np.eye(2, dtype=bool), np.ones((1, 2), dtype=bool)
    assert (measured(cooperative, singles, "s_acc") < 0.55).all()
    assert measured(cooperative, both, "s_acc")[0] == 1.0
    assert measured(cooperative, both, "l_acc")[0] == 1.0
    ensemble = head_data(ensemble_model(3), SPLITS)
    # The handcrafted head tells all but the ties apart, by a linear probe; the copies agree.
    alone = measured(ensemble, np.eye(3, dtype=bool), "s_acc")
    assert alone.min() == alone.max() >= 0.98


def test_the_empty_group():
    empty = {name: metric.of_no_heads(DATA) for name, metric in METRICS.items()}
    rest = DATA.answer.rest[0]
    assert empty["l_acc"] == pytest.approx(((rest[0] > rest[1]) == DATA.test_labels).mean())
    assert empty["roc_auc"] == 0.5
    majority = DATA.train_labels.mean() > 0.5
    assert empty["s_acc"] == pytest.approx((DATA.test_labels == majority).mean())
    assert list(empty) == ["l_acc", "roc_auc", "s_acc", "eos_l_acc"]
    assert empty["eos_l_acc"] == pytest.approx((DATA.asked["end"].rest.argmax(axis=1) == 0).mean())


def nothing(answers, **options):
    """Four prompts on which nothing leads: the answer is one of two, the end the first of three."""
    asked = {
        "answer": AskedHeads(
            heads=np.zeros((4, 1, 2)),
            rest=np.zeros((4, 2)),
            answers=np.array(answers),
            subsets={"ties": np.array([True, False, True, False])},
        ),
        "end": AskedHeads(
            heads=np.zeros((4, 1, 3)), rest=np.zeros((4, 3)), answers=np.zeros(4, dtype=int)
        ),
    }
    return HeadData(
        train_outputs=np.zeros((4, 1, 1)),
        train_answers=np.array([0, 1, 1, 0]),
        test_outputs=np.zeros((4, 1, 1)),
        asked=asked,
        **options,
    )


def without_a_word(masks, told):
    """A run in which every logit is zero."""
    for name, n in (("answer", 2), ("end", 3)):
        yield name, np.arange(len(masks)), np.zeros((len(masks), 4, n))


@pytest.mark.parametrize("run", [None, without_a_word])
def test_where_nothing_leads_the_later_choice_is_given(run):
    """By adding up and by really running: equal logits are '5', as in the paper, and no end."""
    everybody = np.ones((1, 1), dtype=bool)
    data = nothing([1, 0, 0, 1], group_logits=run)
    assert measured(data, everybody, "l_acc")[0] == 0.5
    assert measured(data, everybody, "eos_l_acc")[0] == 0
    assert data.accuracies() == {"answer": 0.5, "ties": 0.5, "end": 0.0}
    uneven = nothing([0, 1, 1, 1], group_logits=run)
    assert measured(uneven, everybody, "l_acc")[0] == 0.75
    assert uneven.accuracies()["answer"] == 0.75
    # No majority among the training labels: '5' again.
    assert METRICS["s_acc"].of_no_heads(uneven) == 0.75


def test_a_deep_model_is_measured_by_running_it_without_heads():
    model = two_layers("LN")
    data = head_data(model, SMALL)
    assert data.group_logits is not None
    assert data.n_heads == 6
    groups = [[0, 3], [5], [1, 2, 4]]
    found = measure_all(Groups(data, group_masks(groups, 6)))
    for row, group in enumerate(groups):
        with ablate_heads(model, [head for head in range(6) if head not in group]):
            logits = torch.stack([model(s[None])[0, -3:-1] for s in SMALL.test.sequences()])
        right = (logits[:, 0, 5] > logits[:, 0, 6]) == SMALL.test.labels
        assert found["l_acc"][row] == pytest.approx(float(right.double().mean()))
        ended = (logits[:, 1].argmax(-1) == 7).double().mean()
        assert found["eos_l_acc"][row] == pytest.approx(float(ended))


def test_a_group_is_run_once_for_all_metrics():
    runs = []

    def run(masks, told):
        runs.append(masks.tolist())
        for name, n in (("answer", 2), ("end", 4)):
            yield name, np.arange(len(masks)), np.zeros((len(masks), 40, n))

    data = random_data(np.random.default_rng(1), group_logits=run)
    masks = group_masks([[0], [1, 2], [0, 1, 2]], 3)
    measure_all(Groups(data, masks))
    assert runs == [masks.tolist()]


def test_adding_a_metric_is_adding_a_record(monkeypatch, tmp_path):
    """It appears in tables, pairs, groups, values of the game, files and figures by itself."""
    metric = Metric(
        name="members",
        label="number of heads",
        meaning="how many heads there are",
        measure=lambda groups: groups.masks.sum(axis=1).astype(float),
        without_heads=lambda data: np.zeros(1),
        right_by=None,
    )
    monkeypatch.setitem(METRICS, "members", metric)
    model = build_model(ModelConfig(d_embed=6, n_heads=3), seed=1)
    analysis = cl.analyze_heads(model, TINY).with_groups()
    assert analysis.table["members"].tolist() == [1, 1, 1]
    assert analysis.pairs["members"][0, 2] == 2
    assert analysis.groups()["members"].max() == 3
    np.testing.assert_allclose(analysis.shapley("members"), 1)
    assert analysis.sampled_shapley("members").values == pytest.approx(1)
    assert "members" in heads_in_text(analysis, wide=True)
    analysis.save(tmp_path / "analysis")
    loaded = cl.HeadAnalysis.load(tmp_path / "analysis")
    np.testing.assert_allclose(loaded.interactions("members"), np.eye(3), atol=1e-12)
    page = analysis.report(tmp_path / "report.html").read_text()
    assert page.count("number of heads") >= 3  # its column, its meaning, its figure of pairs


def test_splits_with_one_answer_only():
    only_fives = SplitSpec(size=20, zeros_and_ones=(3, 3), twos=(0, 3))
    with pytest.raises(ValueError, match="test prompts: expected at least two different answers"):
        head_data(build_model(), make_splits(0, test=only_fives))


def test_groups_of_a_model_that_was_changed_since_are_refused():
    model = two_layers("LN")
    with patch_attention(model, w01=0.01, w02=math.inf):
        data = head_data(model, SMALL)
        within = measured(data, group_masks([[0, 1]], 6), "l_acc")
    assert 0 <= within[0] <= 1
    # What needs no running is still that of the patched model.
    with patch_attention(model, w01=0.01, w02=math.inf):
        logits = model_logits(model, SMALL.test, "answer")
    ended = float((logits.argmax(-1) == 7).double().mean())
    assert data.accuracies()["end"] == pytest.approx(ended)
    with pytest.raises(ValueError, match="hooks were attached to it or taken off since"):
        measured(data, group_masks([[0, 1]], 6), "l_acc")
