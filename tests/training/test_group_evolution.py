"""Groups of heads during training, against analysing each checkpoint by itself."""

import warnings

import numpy as np
import pytest

import count01_lens as cl
from count01_lens.common.text import written_signed
from count01_lens.heads.group_numbers import OF_ALL, OF_ENDS, group_numbers
from count01_lens.training import evolution
from tests.helpers import TINY

CONFIG = cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=4), epochs=3, precision="float64")
RESULT = cl.train(CONFIG, seeds=[3, 4], splits=TINY, first_epoch_steps=[1])
METRICS = ["l_acc", "roc_auc", "s_acc", "eos_l_acc"]


@pytest.fixture(scope="module")
def found():
    return cl.group_evolution(RESULT, [0, 3])


def test_every_moment_is_what_an_analysis_of_that_checkpoint_says(found):
    assert len(found.table) == 2 * 2 * 4
    assert found.table["metric"].tolist()[:4] == METRICS
    for model, epoch in ((0, 0), (1, 3)):
        analysis = cl.analyze_heads(RESULT.at(model, epoch=epoch), TINY).with_groups()
        at = (found.table["model"] == model) & (found.table["epoch"] == epoch)
        rows = found.table[at].set_index("metric")
        heads = found.heads[(found.heads["model"] == model) & (found.heads["epoch"] == epoch)]
        for metric in METRICS:
            pairs = analysis.interactions(metric)[np.triu_indices(4, 1)]
            assert rows.loc[metric, "mean_interaction"] == pytest.approx(pairs.mean(), abs=1e-9)
            assert set(rows["seed"]) == {RESULT.seeds[model]}
        for metric in set(METRICS) - {"s_acc"}:
            expected = group_numbers(analysis._values(metric))
            assert rows.loc[metric, [*OF_ENDS, *OF_ALL]].to_dict() == pytest.approx(expected)
            shapley = analysis.shapley(metric).tolist()
            assert heads[f"shapley_{metric}"].tolist() == pytest.approx(shapley)
            for label in ("facilitating", "irrelevant"):
                count = (heads[f"label_{metric}"] == label).sum()
                assert count == rows.loc[metric, label]


def test_of_probes_only_the_ends_unless_asked(found):
    probed = found.table[found.table["metric"] == "s_acc"]
    assert probed[list(OF_ALL)].isna().all(axis=None)
    assert "shapley_s_acc" not in found.heads
    every = cl.group_evolution(RESULT, [3], probes="all")
    ends = cl.group_evolution(RESULT, [3], groups="ends")
    assert every.table.notna().all(axis=None)
    assert "label_s_acc" in every.heads
    assert ends.table[list(OF_ALL)].isna().all(axis=None)
    for column in OF_ENDS:
        assert ends.table[column].tolist() == pytest.approx(every.table[column].tolist())


def test_the_heads_are_those_of_head_evolution(found):
    alone = cl.head_evolution(RESULT, [0, 3])
    assert found.heads[alone.columns].equals(alone)


def test_steps_are_parts_of_epochs():
    per_epoch = RESULT.history.loc[RESULT.history["epoch"] == 1, "step"].iloc[0]
    table = cl.group_evolution(RESULT, steps=[1, per_epoch], groups="ends").table
    assert table["epoch"].unique().tolist() == [1 / per_epoch, 1]
    expected = cl.group_evolution(RESULT, [1], groups="ends").table
    last = table[table["epoch"] == 1].reset_index(drop=True)
    assert last["mean_interaction"].tolist() == pytest.approx(expected["mean_interaction"].tolist())
    with pytest.raises(ValueError, match="expected epochs or steps, got both"):
        cl.group_evolution(RESULT, [1], steps=[1])
    with pytest.raises(ValueError, match="no snapshot at step 2"):
        cl.group_evolution(RESULT, steps=[2])


def test_errors_come_before_any_work(monkeypatch):
    monkeypatch.setattr(evolution, "collect", None)
    with pytest.raises(ValueError, match="groups: expected 'ends' or 'all', got 'some'"):
        cl.group_evolution(RESULT, groups="some")
    many = cl.train(
        cl.TrainConfig(model=cl.ModelConfig(d_embed=19, n_heads=19), epochs=1), splits=TINY
    )
    with pytest.raises(ValueError, match=r"groups: expected 'ends' for 19 heads"):
        cl.group_evolution(many)


def test_many_heads_have_an_exact_mean_interaction():
    many = cl.train(
        cl.TrainConfig(model=cl.ModelConfig(d_embed=20, n_heads=20), epochs=1), splits=TINY
    )
    table = cl.group_evolution(many, [1], groups="ends").table
    assert table["mean_interaction"].notna().all()


def test_ctrl_c_keeps_the_moments_that_are_done(monkeypatch):
    collect, calls = evolution.collect, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return collect(*arguments)

    monkeypatch.setattr(evolution, "collect", interrupted)
    with pytest.warns(UserWarning, match="interrupted: 3 of 8 moments were measured"):
        found = cl.group_evolution(RESULT, groups="ends")
    places = found.table[["epoch", "model"]].drop_duplicates().to_numpy().tolist()
    assert places == [[0, 0], [0, 1], [1, 0]]
    calls[:] = [None] * 3
    with pytest.raises(KeyboardInterrupt):
        cl.head_evolution(RESULT)


def test_it_says_what_came_out(found):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = repr(found).splitlines()
    assert told[0] == (
        "2 models at 2 epochs, 0 to 3. Mean interaction of two heads after the last, in the mean "
        "over models (lowest to highest):"
    )
    last = found.table[(found.table["epoch"] == 3) & (found.table["metric"] == "l_acc")]
    assert told[1].startswith(f"l-acc: {written_signed(last['mean_interaction'].mean(), '.4f')} (")
