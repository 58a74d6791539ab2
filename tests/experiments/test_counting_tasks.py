"""The table of what counting tasks reach: made from its data, and made as it says."""

import pandas as pd

import count01_lens as cl
from experiments.generated_part import generated_part
from experiments.tools.counting_tasks import PAGE, RECIPES, SEEDS, TABLE, lines, measured


def test_the_page_shows_what_was_measured():
    table = pd.read_csv(TABLE)
    assert generated_part(lines(table)) in PAGE.read_text("utf-8")
    assert set(table["task"]) == set(cl.COUNTING_TASKS)
    assert set(table["seed"]) == set(SEEDS)
    assert len(table) == len(cl.COUNTING_TASKS) * len(RECIPES) * len(SEEDS)


def test_a_task_is_trained_and_run_on_every_sentence():
    config = cl.TrainConfig(model=cl.ModelConfig(d_embed=4, n_heads=2), epochs=1)
    table = measured("two_comparisons", "tiny", config, [0, 1])
    assert table["seed"].tolist() == [0, 1]
    assert table["up_to"].tolist() == [20, 20]
    task = cl.counting_task("two_comparisons")
    model = cl.train(config, seeds=[0, 1], task=task, progress=False).models[1]
    assert table["test"][1] == cl.accuracy(model, task)
    assert table["every_sentence"][1] == cl.verify(model).accuracy
