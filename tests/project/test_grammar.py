"""What objects of the library say of themselves is written as people write."""

import pandas as pd
import pytest
import torch

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.jobs.outcome import Failure, Outcome, Status
from count01_lens.models.handcrafted import cooperative_model, minimal_model
from count01_lens.training.group_evolution import GroupEvolution
from tests.grammar import assert_well_written
from tests.helpers import TINY


@pytest.mark.parametrize(
    "text",
    ["1 heads", "1 redundant pairs", "16 head by s-acc", "0 token", "1 of 16 heads are enough",
     "7 of 16 works against it", "head 3 work", "1.001500e+00", "2e-05", "0.30000000004", "is nan",
     "None of it", "95% interval", "heads ()", "It is..", "(NaN)"],
)  # fmt: skip
def test_what_is_wrong_is_found(text):
    with pytest.raises(AssertionError):
        assert_well_written(text, is_prose=False)


@pytest.mark.parametrize(
    "text", ["It is -3.", "Heads , that", "A  b.", "It is red", "it is.", "One (a)."]
)
def test_what_is_wrong_in_prose_is_found(text):
    if text == "One (a).":
        assert_well_written(text)
    else:
        assert_well_written(text, is_prose=False)
        with pytest.raises(AssertionError):
            assert_well_written(text)


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
@pytest.mark.parametrize("epochs", [1, 2])
def test_runs_and_evolutions(n_heads, seeds, epochs, tmp_path):
    config = cl.TrainConfig(model=cl.ModelConfig(d_embed=4, n_heads=n_heads), epochs=epochs)
    result = cl.train(config, seeds=seeds, splits=TINY, progress=False)
    assert_well_written(repr(result), is_prose=False)
    for moments in ([epochs], [0, epochs]):
        found = cl.group_evolution(result, moments, groups="ends")
        assert_well_written(repr(found), is_prose=False)


def test_an_evolution_after_a_part_of_an_epoch():
    table = pd.DataFrame(
        {"model": 0, "epoch": [0.25, 1 / 3], "metric": "l_acc", "mean_interaction": [0.1, 1e-9]}
    )
    text = repr(GroupEvolution(table, pd.DataFrame()))
    assert text == (
        "1 model at 2 epochs, 0.25 to 0.3333. Mean interaction of two heads after the last:\n"
        "l-acc: 0.0000"
    )


@pytest.mark.parametrize(
    "model",
    [
        minimal_model(),
        cooperative_model(),
        cl.build_model(cl.ModelConfig(d_embed=4, n_heads=1), seed=0),
        cl.build_model(
            cl.ModelConfig(d_embed=4, n_heads=2), seed=1, task=cl.counting_task("majority")
        ),
    ],
)
@pytest.mark.parametrize("up_to", [0, 1, 12])
def test_verifications(model, up_to):
    text = repr(cl.verify(model, up_to))
    assert_well_written(text, is_prose=False)
    assert max(map(len, text.splitlines())) <= 80


def test_sweeps_of_attention():
    for values in ([1.0], [0.0, 1e-4, 1e4, float("inf")]):
        found = cl.sweep_attention(minimal_model(), "w01", values, TINY)
        text = repr(found).replace("inf", "∞")
        assert_well_written(text, is_prose=False)
    assert text.startswith("1 head over 4 values of w01\n")


def test_tasks_and_data():
    rows = torch.arange(8).reshape(4, 2)
    for n in (1, 2, 4):
        assert_well_written(repr(cl.Prompts(rows[:n], rows[:n, 0])), is_prose=False)
    assert_well_written(repr(cl.Count01(TINY)), is_prose=False)
    for counts in ([[1, 1, 0]], [[1, 2, 0], [1, 1, 1]]):
        assert_well_written(repr(cl.Split("test", torch.tensor(counts), seed=0)), is_prose=False)


@pytest.mark.parametrize("n", [1, 2])
def test_jobs(n):
    jobs = [Job("sum", sum, {"values": [number]}, "1") for number in range(n)]
    outcome = Outcome(
        jobs[1:], jobs, [Failure(job, "too long") for job in jobs], jobs, "it stopped"
    )
    assert_well_written(str(outcome), is_prose=False)
    assert_well_written(str(Status(n, n, n, n, 60.0 * n)), is_prose=False)
