"""What prompts contribute: their mean is the exact index, whatever the order and the interruptions."""

import contextlib

import numpy as np
import pytest

from count01_lens.heads.contributions import ContributionsInWork, index_weights
from count01_lens.heads.games import shapley_interactions
from count01_lens.heads.groups import GroupsInWork, all_groups, as_rows
from count01_lens.heads.head_data import head_data
from count01_lens.heads.metrics import METRICS, Groups
from count01_lens.models.build import build_model
from count01_lens.models.config import ModelConfig
from tests.views.other_tasks import two_layers_three_answers


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_weights_are_those_of_shapley_values_and_interactions(n):
    values = np.random.default_rng(n).standard_normal(2**n)
    found = values @ index_weights(as_rows(np.arange(2**n), n))
    np.testing.assert_allclose(found, shapley_interactions(values)[np.triu_indices(n)], atol=1e-13)


def test_each_prompt_has_a_game_of_its_own():
    rng = np.random.default_rng(3)
    right = rng.random((16, 5)) < 0.5
    in_work = ContributionsInWork(4, 5)
    for numbers in np.array_split(rng.permutation(16), 3):
        in_work.add(numbers, right[numbers])
        in_work.add(numbers[:1], right[numbers[:1]])  # once more, which must not count
    found = in_work.finished()
    for prompt, row in zip(right.T, found, strict=True):
        alone = shapley_interactions(prompt.astype(float))[np.triu_indices(4)]
        np.testing.assert_allclose(row, alone, atol=1e-13)


def test_missing_groups_are_noticed():
    in_work = ContributionsInWork(2, 3)
    in_work.add(np.array([0, 1, 3]), np.ones((3, 3), dtype=bool))
    with pytest.raises(RuntimeError, match="expected all 4 groups, got 3"):
        in_work.finished()


def small():
    return head_data(build_model(ModelConfig(d_embed=8, n_heads=4), seed=2))


def check(found):
    n = int(found.table["size"].max())
    for metric, contributions in found.contributions.items():
        exact = shapley_interactions(found.values(metric))[np.triu_indices(n)]
        np.testing.assert_allclose(contributions.mean(axis=0), exact, atol=1e-12, err_msg=metric)


def test_the_mean_over_prompts_is_the_exact_index():
    found = all_groups(small())
    assert list(found.contributions) == ["l_acc", "s_acc", "eos_l_acc"]
    assert found.contributions["s_acc"].shape == (1500, 10)
    check(found)


def test_deep_models_contribute_as_well():
    check(two_layers_three_answers().with_groups(progress=False).known_groups)


def test_interruptions_neither_lose_nor_repeat_a_group(monkeypatch):
    """Ctrl-C when a portion of groups is noted, before it counts and after it."""
    data = small()
    expected, in_work, rng = all_groups(data), GroupsInWork(data), np.random.default_rng(0)
    plain, interruptions = ContributionsInWork.add, []

    def interrupted(self, numbers, right):
        moment = rng.choice(["before", "after", "never"])
        if moment != "before":
            plain(self, numbers, right)
        if moment != "never":
            interruptions.append(moment)
            raise KeyboardInterrupt

    monkeypatch.setattr(ContributionsInWork, "add", interrupted)
    found = None
    while found is None:
        with contextlib.suppress(KeyboardInterrupt):
            found = in_work.finish()
    assert min(interruptions.count(moment) for moment in ("before", "after")) >= 3
    for metric, contributions in expected.contributions.items():
        np.testing.assert_allclose(found.contributions[metric], contributions, atol=1e-12)


def test_what_is_noted_is_what_is_measured():
    data, seen = small(), {}
    masks = as_rows(np.arange(1, 16), 4)

    def note(source, which, right):
        seen.setdefault(source, np.full((15, right.shape[1]), -1))[which] = right

    groups = Groups(data, masks, noted=note)
    for name, source in (("l_acc", "answer"), ("s_acc", "probe"), ("eos_l_acc", "end")):
        values = METRICS[name].measure(groups)
        assert METRICS[name].right_by == source
        np.testing.assert_allclose(seen[source].mean(axis=1), values)
