"""Heads during training against analysing each checkpoint by itself."""

import pytest

import count01_lens as cl
from count01_lens.training.evolution import head_metrics
from tests.helpers import TINY

RESULT = cl.train(
    cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=4), epochs=3, precision="float64"),
    seeds=[3, 4],
    splits=TINY,
)


def test_every_epoch_is_what_an_analysis_of_that_checkpoint_says():
    table = cl.head_evolution(RESULT, splits=TINY)
    assert sorted(table["epoch"].unique()) == [0, 1, 2, 3]
    assert len(table) == 2 * 4 * 4
    for model, epoch in ((0, 0), (1, 2), (1, 3)):
        rows = table[(table["model"] == model) & (table["epoch"] == epoch)]
        analysis = cl.analyze_heads(RESULT.at(model, epoch=epoch), TINY)
        for column in ("l_acc", "roc_auc", "s_acc", "eos_l_acc", "w01", "w02", "head_weight"):
            assert rows[column].tolist() == pytest.approx(analysis.table[column].tolist()), column
        assert rows["category"].tolist() == analysis.table["category"].tolist()
        assert set(rows["accuracy"]) == {analysis.accuracy["answer"]}
        assert set(rows["seed"]) == {RESULT.seeds[model]}


def test_one_sided_tells_how_often_a_head_favours_the_same_answer():
    table = head_metrics(cl.CountForm.from_models([cl.minimal_model()]), TINY)
    assert table["one_sided"].between(0.5, 1).all()
    parts = cl.head_logits(cl.minimal_model(), TINY.test)[:, 0]
    for_four = (parts[:, cl.Token.FOUR] > parts[:, cl.Token.FIVE]).double().mean().item()
    assert table["one_sided"][0] == pytest.approx(max(for_four, 1 - for_four))


def test_some_epochs_only():
    table = cl.head_evolution(RESULT, [1, 3], TINY)
    assert sorted(table["epoch"].unique()) == [1, 3]
    with pytest.raises(ValueError, match="epochs: expected a whole number"):
        cl.head_evolution(RESULT, [-1], TINY)
    with pytest.raises(ValueError, match="no snapshot of epoch 9"):
        cl.head_evolution(RESULT, [9], TINY)
