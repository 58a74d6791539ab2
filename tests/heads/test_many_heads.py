"""Too many heads for all groups, work that is interrupted, and what is said meanwhile."""

from types import SimpleNamespace

import numpy as np
import pytest

import count01_lens as cl
from count01_lens.common.progress import counted
from count01_lens.heads.groups import GroupsInWork
from count01_lens.heads.head_data import head_data
from count01_lens.heads.sampling import sampled_shapley
from count01_lens.heads.tables import strongest
from tests.helpers import deep_model, random_data


@pytest.fixture(scope="module")
def twenty():
    """Twenty heads in five layers."""
    model = deep_model(n_layers=5, n_heads=4, d_head=2, attn_only=True, normalization_type="LN")
    rows = np.random.default_rng(0).integers(0, 8, (60, 5))
    task = cl.Task.split(cl.Prompts(rows, 2 + rows[:, 0] % 3), test=0.5)
    return model, task, cl.analyze_heads(model, task, budget=200)


def test_pairs_of_the_strongest_and_sampled_values_within_the_budget(twenty):
    _, _, analysis = twenty
    measured = ~np.isnan(analysis.pairs["l_acc"])
    chosen = strongest(analysis.heads, 50)
    assert len(chosen) == 10  # of which there are 45 pairs
    assert measured.sum() == 2 * 45 + 20
    assert measured[np.ix_(chosen, chosen)].all()
    weakest = np.abs(analysis.heads["total_effect"]).drop(chosen).max()
    assert weakest <= np.abs(analysis.heads["total_effect"][chosen]).min()
    assert len(analysis.pairs_table()) == 45
    assert not analysis.pairs_table().isna().any().any()
    estimate = analysis.sampled["l_acc"]
    assert estimate.n_samples == 7  # times 20 heads are no more than 150 groups
    assert "pairs of the 10 strongest" in " ".join(analysis.notes)
    assert "budget of 200 groups" in " ".join(analysis.notes)
    assert "too many groups to measure all of them" in analysis.answer
    with pytest.raises(ValueError, match="20 heads have .* groups: expected at most 18"):
        analysis.groups()


def test_sampled_values_add_up_to_what_the_whole_model_has_more_than_none(twenty):
    model, task, analysis = twenty
    with cl.ablate_heads(model, range(20)):
        without = cl.accuracy(model, task)
    total = analysis.sampled["l_acc"].values.sum()
    assert total == pytest.approx(analysis.accuracy["answer"] - without)


def test_a_pair_is_what_the_model_gives_with_only_these(twenty):
    model, task, analysis = twenty
    first, second = analysis.pairs_table()[["first", "second"]].iloc[3]
    others = [head for head in range(20) if head not in (first, second)]
    with cl.ablate_heads(model, others):
        expected = cl.accuracy(model, task)
    assert analysis.pairs["l_acc"][first, second] == pytest.approx(expected)


def test_they_are_kept_in_the_file(twenty, tmp_path):
    _, _, analysis = twenty
    analysis.save(tmp_path / "analysis")
    loaded = cl.HeadAnalysis.load(tmp_path / "analysis")
    assert loaded.sampled.keys() == {"l_acc"}
    for part in ("values", "standard_errors"):
        found, expected = (getattr(a.sampled["l_acc"], part) for a in (loaded, analysis))
        assert np.array_equal(found, expected)
    assert np.array_equal(loaded.pairs["s_acc"], analysis.pairs["s_acc"], equal_nan=True)
    assert loaded.answer == analysis.answer


def test_no_budget_no_groups(twenty):
    model, task, _ = twenty
    analysis = cl.analyze_heads(model, task, budget=0)
    assert not analysis.sampled
    assert len(analysis.pairs_table()) == 0


def interrupted_after(n_calls, function):
    """A function that Ctrl-C meets after some calls."""
    calls = []

    def call(*args, **options):
        if len(calls) == n_calls:
            raise KeyboardInterrupt
        calls.append(1)
        return function(*args, **options)

    return call


def test_all_groups_go_on_where_they_were_interrupted(monkeypatch):
    model = deep_model(n_heads=4)
    rows = np.random.default_rng(1).integers(0, 8, (60, 5))
    task = cl.Task.split(cl.Prompts(rows, 2 + rows[:, 0] % 2), test=0.5)
    whole = cl.analyze_heads(model, task).groups()
    analysis = cl.analyze_heads(model, task)
    run, ran = analysis.data.group_logits, []

    def stopped(masks, told):
        for i, part in enumerate(run(masks, told)):
            if i == 3 and len(ran) == 1:
                ran.append(len(masks))
                raise KeyboardInterrupt
            yield part
        ran.append(len(masks))

    object.__setattr__(analysis.data, "group_logits", stopped)
    with pytest.raises(KeyboardInterrupt):
        analysis.groups()
    assert analysis.groups().equals(whole)
    # The empty one, all others and, of these, those that were not run yet.
    assert ran[:2] == [1, 255]
    assert 0 < ran[2] < 255


def test_probes_of_all_groups_go_on_where_they_were_interrupted(monkeypatch):
    data = head_data(cl.build_model(cl.ModelConfig(d_embed=8, n_heads=4), seed=1), small())
    work, whole = GroupsInWork(data), GroupsInWork(data).finish()
    fit = work.probes._fit
    monkeypatch.setattr(work.probes, "_fit", interrupted_after(2, fit))
    with pytest.raises(KeyboardInterrupt):
        work.finish()
    left = len(work.probes.to_do)
    assert left == 2
    monkeypatch.setattr(work.probes, "_fit", interrupted_after(2, fit))
    assert work.finish().table.equals(whole.table)


def small():
    return cl.make_splits(
        0,
        train=cl.SplitSpec(size=60, zeros_and_ones=(0, 6), twos=(0, 4)),
        test=cl.SplitSpec(size=30, zeros_and_ones=(0, 7), twos=(0, 5)),
    )


def test_pairs_that_were_measured_before_ctrl_c_are_kept(monkeypatch, twenty):
    from count01_lens.heads import tables

    model, task, _ = twenty
    monkeypatch.setattr(tables, "_PORTION", 10)
    monkeypatch.setattr(tables, "_pairs_of", interrupted_after(2, tables._pairs_of))
    with pytest.warns(UserWarning, match="interrupted: 18 of 45 pairs were measured"):
        analysis = cl.analyze_heads(model, task, budget=180)
    assert 0 < len(analysis.pairs_table()) < 45
    assert any("interrupted" in note for note in analysis.notes)


def test_an_estimate_comes_from_the_orders_that_are_done():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(5)

    def value(masks):
        return masks @ weights

    with pytest.warns(UserWarning, match="interrupted: the estimate is from 4 of 50 orders"):
        found = sampled_shapley(interrupted_after(5, value), 5, n_permutations=50)
    assert found.n_samples == 4
    np.testing.assert_allclose(found.values, weights)
    with pytest.raises(KeyboardInterrupt):  # one order has no error
        sampled_shapley(interrupted_after(2, value), 5, n_permutations=50)


def test_long_work_says_how_long_it_will_take(capsys, monkeypatch):
    from count01_lens.common import progress

    clock = iter([0.0, 0.5, 2.0, 3.0, 4.0, 5.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with counted(100, "running", True) as advance:
        for _ in range(4):
            advance(20)
    told = capsys.readouterr().err.splitlines()
    assert told == ["running: about 3 seconds to go", "running: 60 of 100", "running: 80 of 100"]
    clock = iter([0.0, 5.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with counted(100, "running", None) as advance:
        advance(20)
    assert capsys.readouterr().err == ""


def test_groups_are_measured_in_portions_that_fit_into_memory(monkeypatch):
    from count01_lens.heads import metrics

    data = random_data(np.random.default_rng(2), choices=5)
    masks = np.array([[i >> h & 1 for h in range(3)] for i in range(1, 8)], dtype=bool)
    whole = metrics.Groups(data, masks).accuracy["answer"]
    monkeypatch.setattr(metrics, "_NUMBERS", 200)
    assert np.array_equal(metrics.Groups(data, masks).accuracy["answer"], whole)
