"""A grid of recipes and seeds: one table of heads, however often it is stopped on the way."""

import itertools
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import count01_lens as cl
from count01_lens.cli import app
from count01_lens.common.parsing import parse_axis
from count01_lens.training.evolution import head_metrics
from count01_lens.training.model_sweep import train_stack, varied_columns
from count01_lens.training.recipe import training_cost
from tests.helpers import PROGRAM, run, within
from tests.processes import started

SHORT = cl.TrainConfig(epochs=2, batch_size=700)
GRID, _ = cl.model_grid(SHORT, n_heads=[1, 2], d_embed=[2, 4])
SMALL = ["--epochs", "2", "--vary", "batch_size=700", "--d-embed", "4"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sweep")
    return cl.sweep_models(GRID, range(5), directory, per_job=2, workers=0), directory


def test_every_head_of_every_model_has_a_row(sweep):
    result, _ = sweep
    assert len(result.models) == 4 * 5
    assert len(result.heads) == (1 + 2 + 1 + 2) * 5
    places = ["config", "seed", "head"]
    assert not result.heads.duplicated(places).any()
    for number, config in enumerate(GRID):
        mine = result.heads[result.heads["config"] == number]
        assert set(mine["n_heads"]) == {config.model.n_heads}
        assert set(mine["d_embed"]) == {config.model.d_embed}
        assert sorted(mine["seed"].unique()) == list(range(5))
    assert set(result.heads["epochs"]) == {2}


def test_larger_stacks_are_expected_to_take_longer():
    cost = training_cost(SHORT, 2)
    more = [cl.TrainConfig(epochs=3, batch_size=700), cl.TrainConfig(epochs=2, batch_size=600)]
    more += [cl.TrainConfig(model=shape, epochs=2, batch_size=700) for shape in (
        cl.ModelConfig(n_heads=32, d_embed=32), cl.ModelConfig(n_heads=16, d_embed=48),
    )]  # fmt: skip
    assert all(training_cost(config, 2) > cost for config in more)
    assert cost < training_cost(SHORT, 3) < 1.5 * cost  # a step is dispatched once for all
    # As measured: 1.6 ms a step for 50 models of the paper's, 0.15 ms for one.
    assert training_cost(cl.TrainConfig(epochs=1), 50) == pytest.approx(110 * 1.6e-3, rel=0.34)
    assert training_cost(cl.TrainConfig(epochs=1), 1) == pytest.approx(110 * 0.15e-3, rel=0.34)


def test_rows_belong_to_the_models_that_come_back(sweep):
    """Each row again, from the HookedTransformer that the sweep returns."""
    result, _ = sweep
    splits = cl.make_splits()
    for config, seed in [(0, 0), (1, 3), (3, 4)]:
        model = result.model(config, seed)
        assert model.cfg.n_heads == GRID[config].model.n_heads
        expected = head_metrics(cl.CountForm.from_models([model]), splits)
        rows = result.heads.query(f"config == {config} and seed == {seed}")
        for column in ("s_acc", "l_acc", "roc_auc", "eos_l_acc", "w01", "accuracy"):
            np.testing.assert_allclose(rows[column], expected[column], rtol=1e-5, err_msg=column)
        whole = result.models.query(f"config == {config} and seed == {seed}")
        assert whole["test_accuracy"].item() == pytest.approx(expected["accuracy"][0], abs=2e-3)
    with pytest.raises(ValueError, match="expected a recipe and a seed of the sweep, got 0 and 9"):
        result.model(0, 9)


def test_a_model_of_the_sweep_is_the_one_that_train_gives(sweep):
    result, _ = sweep
    alone = cl.train(GRID[3], seeds=[4], progress=False).models[0]
    torch.testing.assert_close(result.model(3, 4).W_E, alone.W_E, rtol=1e-3, atol=1e-4)


def test_the_files_hold_the_tables(sweep):
    result, directory = sweep
    heads = pd.read_csv(directory / "heads.csv")
    pd.testing.assert_frame_equal(heads, result.heads, check_dtype=False)
    assert len(pd.read_csv(directory / "models.csv")) == 20
    about = json.loads((directory / "sweep.json").read_text())
    assert about["seeds"] == [0, 1, 2, 3, 4]
    assert [cl.TrainConfig.from_dict(config) for config in about["configs"]] == GRID
    assert about["jobs_without_result"] == 0


def test_more_seeds_and_recipes_compute_only_these(sweep, tmp_path):
    result, directory = sweep
    directory = shutil.copytree(directory, tmp_path / "more")
    more = [*GRID, cl.TrainConfig(model=cl.ModelConfig(d_embed=3, n_heads=1), epochs=1)]
    again = cl.sweep_models(more, range(7), directory, per_job=2, workers=0)
    # Of each old recipe seeds 0 to 3 are there; 4 was alone, and now has a neighbour.
    assert (len(again.outcome.found), len(again.outcome.new)) == (8, 4 * 2 + 4)
    assert len(again.models) == 5 * 7
    old = again.heads[(again.heads["config"] < 4) & (again.heads["seed"] < 4)]
    expected = result.heads[result.heads["seed"] < 4]
    pd.testing.assert_frame_equal(old.reset_index(drop=True), expected.reset_index(drop=True))


def test_a_grid_takes_all_combinations_and_says_which_are_impossible():
    configs, impossible = cl.model_grid(n_heads=[1, 8], d_embed=[4, 8], eos_weight=[0.0, 1.0])
    shapes = [(c.model.n_heads, c.model.d_embed, c.model.d_head, c.eos_weight) for c in configs]
    assert shapes == [
        (1, 4, 4, 0.0), (1, 4, 4, 1.0), (1, 8, 8, 0.0), (1, 8, 8, 1.0),
        (8, 8, 1, 0.0), (8, 8, 1, 1.0),
    ]  # fmt: skip
    assert len(impossible) == 2
    assert "'n_heads': 8, 'd_embed': 4" in impossible[0]
    assert "expected at least as many embedding dimensions as heads" in impossible[0]
    assert varied_columns(configs) == ["d_embed", "n_heads", "d_head", "eos_weight"]


def test_a_grid_varies_every_choice_of_a_recipe():
    axes = [
        parse_axis(t) for t in ("decay=cosine,none", "optimiser=adam,sgd", "init=xavier,normal")
    ]
    configs, impossible = cl.model_grid(cl.TrainConfig(), **dict(axes))
    assert (len(configs), impossible) == (8, [])
    assert {(c.decay, c.optimiser, c.model.init) for c in configs} == set(
        itertools.product(*(values for _, values in axes))
    )


def test_a_grid_keeps_what_it_does_not_vary():
    base = cl.TrainConfig(model=cl.ModelConfig(d_embed=6, n_heads=2, d_head=5), epochs=3)
    (config,), _ = cl.model_grid(base, learning_rate=[0.1])
    assert (config.model, config.epochs, config.learning_rate) == (base.model, 3, 0.1)
    (config,), _ = cl.model_grid(base, n_heads=[3])
    assert config.model.d_head == 2


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"heads": [1]}, "expected fields of .*, got 'heads'"),
        ({"n_heads": 3}, "n_heads: expected a list of values, got 3"),
        ({"n_heads": []}, r"n_heads: expected a list of values, got \[\]"),
        ({"output": "fused"}, "output: expected a list of values, got 'fused'"),
    ],
)
def test_wrong_axes(axes, message):
    with pytest.raises(ValueError, match=message):
        cl.model_grid(**axes)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], [0]), TypeError, "configs: expected a list of TrainConfig"),
        ((["fast"], [0]), TypeError, "configs: expected a list of TrainConfig"),
        ((GRID, []), ValueError, "seeds: expected at least one"),
        ((GRID, [-1]), ValueError, "seeds"),
    ],
)
def test_wrong_sweeps_leave_no_directory(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        cl.sweep_models(*arguments, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_what_failed_is_missing_and_counted(tmp_path, monkeypatch):
    wild = cl.TrainConfig(model=cl.ModelConfig(d_embed=4, n_heads=2), epochs=2, learning_rate=1e30)
    result = cl.sweep_models([GRID[0], wild], [0, 1], tmp_path, workers=0)
    assert len(result.models) == 2
    (failure,) = result.outcome.failed
    assert "TrainingDivergedError" in failure.reason
    assert json.loads((tmp_path / "sweep.json").read_text())["jobs_without_result"] == 1
    nothing = cl.sweep_models([wild], [0], tmp_path / "none", workers=0)
    assert repr(nothing) == "0 models, 0 heads"
    assert (tmp_path / "none" / "heads.csv").exists()


def test_a_sweep_tells_what_it_found(sweep):
    result, _ = sweep
    lines = repr(result).splitlines()
    assert lines[0] == "20 models, 30 heads"
    assert "successful heads" in lines[1]
    assert len(lines) == 3 + 4


def test_a_stack_is_measured_as_its_models_are():
    value = train_stack(GRID[1].to_dict(), [7, 8])
    assert list(value["models"]["seed"]) == [7, 8]
    assert len(value["heads"]) == 2
    assert value["parameters"].shape[0] == 2


def test_the_command_line_goes_on_after_an_interrupt_and_a_kill(tmp_path):
    """The same tables as an undisturbed run, however often it was stopped."""
    grid = ["--heads", "1,2", "--seeds", "0-7", "--per-job", "1", "--workers", "2", *SMALL]
    whole = run("sweep-models", "--out", tmp_path / "whole", *grid)
    assert whole.returncode == 0, whole.stderr
    assert "16 models, 24 heads" in whole.stdout
    assert "written to" in whole.stdout
    assert "16/16 jobs done" in whole.stderr

    out = tmp_path / "stopped"
    for blow, code in [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]:
        known = _results(out)
        with started(
            PROGRAM, "sweep-models", "--out", out, *grid,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "NO_COLOR": "1"},
        ) as process:  # fmt: skip
            assert within(120, lambda expected=known + 3: _results(out) >= expected)
            process.send_signal(blow)
            _, errors = process.communicate(timeout=120)
        assert process.returncode == code
        assert ("the same command goes on" in errors) == (blow == signal.SIGINT)
    assert 6 <= _results(out) < 16
    last = run("sweep-models", "--out", out, *grid)
    assert last.returncode == 0, last.stderr
    for name in ("heads.csv", "models.csv"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def _results(directory: Path) -> int:
    return len(list((directory / "jobs").glob("*.safetensors")))


def test_the_command_line_says_what_is_wrong(tmp_path):
    out = tmp_path / "sweep"
    for arguments, message in [
        (["--heads", "two"], "n_heads: expected numbers such as '0', '0-9' or '1,5,7', got 'two'"),
        (["--vary", "learning_rate=fast"], "learning_rate: expected"),
        (["--vary", "learning_rate"], "vary: expected such as 'learning_rate=0.001,0.005', got"),
        (["--vary", "speed=1"], "got 'speed'"),
        (["--vary", "n_heads=2"], "vary: expected a field that is given once, got n_heads again"),
        (["--vary", "eos_weight=1", "--vary", "eos-weight=2"], "got eos_weight again"),
        (["--seeds", "0-99999,7"], "seeds: expected at most 100,000 numbers"),
        (["--heads", "8", "--d-embed", "4"], "no combination is possible"),
        (["--workers", "2", "--dask", "tcp://127.0.0.1:9"], "expected --workers or --dask"),
        (["--vary", "output=wide"], "output: expected"),
    ]:
        done = CliRunner().invoke(app, ["sweep-models", "--out", str(out), *arguments])
        assert isinstance(done.exception, ValueError)
        assert message in str(done.exception)
    assert not out.exists()
    done = run("sweep-models", "--out", out, "--dask", "nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("count01-lens: --dask: expected an address such as tcp://host:87")


def test_the_command_line_leaves_out_what_is_impossible_and_reports_failures(tmp_path):
    grid = ["--heads", "1,8", "--seeds", "0", "--workers", "1"]
    grid += ["--vary", "learning_rate=0.005,1e30"]
    done = run("sweep-models", "--out", tmp_path / "sweep", *grid, *SMALL)
    assert done.returncode == 1
    assert done.stderr.count("left out: {'n_heads': 8") == 2
    assert "training diverged" in done.stderr
    assert "1 models, 1 heads" in done.stdout
