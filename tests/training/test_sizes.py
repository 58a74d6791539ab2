"""Numbers that are far too large are refused at once, and leave nothing behind."""

import time
from pathlib import Path

import numpy as np
import pytest

import count01_lens as cl
from count01_lens.common.validation import LARGEST_SEED
from count01_lens.training.recipe import MOST_EPOCHS
from tests.helpers import TINY

SMALL = cl.ModelConfig(d_embed=2, n_heads=1)
ONE_EPOCH = cl.TrainConfig(model=SMALL, epochs=1, batch_size=300)
BILLION = 10**9


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cl.TrainConfig(epochs=BILLION), "epochs: .* from 1 to 500,000, got 1000000000"),
        (lambda: cl.TrainConfig(data_seed=2**63), "seed: .* to 9,223,372,036,854,775,807, got"),
        (lambda: cl.build_model(seed=2**63), "seed: .* to 9,223,372,036,854,775,807, got"),
        (lambda: cl.build_model(cl.ModelConfig(n_heads=BILLION, d_head=1)), "1,000,000,000 heads"),
        (
            lambda: cl.build_model(cl.ModelConfig(d_embed=BILLION)),
            "which need at least .* GB; take",
        ),
        (lambda: cl.build_model(cl.ModelConfig(d_head=BILLION)), "which this machine has, got"),
        (lambda: cl.build_model(cl.ModelConfig(n_ctx=10 * BILLION)), "n_ctx=10,000,000,000"),
        (lambda: cl.model_grid(n_heads=range(1, 100_001), d_embed=range(9, 100)), "got 9,100,000"),
    ],
)
def test_sizes_that_no_machine_has_are_refused(make, words):
    start = time.monotonic()
    with pytest.raises(ValueError, match=words):
        make()
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seeds": [0, LARGEST_SEED + 1]}, "seeds: .* to 9,223,372,036,854,775,807, got"),
        ({"seeds": range(100_000)}, "at most 10,000 models .*, got 100,000; train some at a time"),
        ({"config": cl.TrainConfig(model=cl.ModelConfig(d_embed=BILLION))}, "take smaller models"),
        (
            {"config": cl.TrainConfig(model=cl.ModelConfig(d_embed=10_000)), "seeds": range(9999)},
            "got 9,999 models with .* take smaller models, or fewer at a time",
        ),
    ],
)
def test_training_that_no_machine_can_do_is_refused_before_it_begins(tmp_path, arguments, words):
    start = time.monotonic()
    with pytest.raises(ValueError, match=words):
        cl.train(**{"config": ONE_EPOCH, **arguments}, splits=TINY, directory=tmp_path / "run")
    assert time.monotonic() - start < 60
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [[2**63], range(1_000_001)])
def test_sweeps_that_are_far_too_large_are_refused_before_they_begin(tmp_path, seeds):
    with pytest.raises(ValueError, match="9,223,372,036,854,775,807|at most 1,000,000 models"):
        cl.sweep_models([ONE_EPOCH], seeds, tmp_path / "sweep", workers=0)
    assert not (tmp_path / "sweep").exists()


def test_the_largest_seed_is_trained_saved_and_read(tmp_path: Path):
    seeds = [LARGEST_SEED, 0]
    result = cl.train(ONE_EPOCH, seeds=seeds, splits=TINY, directory=tmp_path / "run")
    assert result.history["seed"].dtype == np.int64
    assert sorted(set(result.history["seed"])) == [0, LARGEST_SEED]
    assert cl.load_run(tmp_path / "run").seeds == tuple(seeds)
    path, _ = result.save_models(tmp_path / "run")
    assert path.name == f"seed-{LARGEST_SEED}.safetensors"
    assert cl.checkpoint_info(path)["info"]["seed"] == LARGEST_SEED
    sweep = cl.sweep_models([ONE_EPOCH], seeds, tmp_path / "sweep", workers=0)
    sweep.outcome.check()
    assert sorted(sweep.models["seed"]) == [0, LARGEST_SEED]
    assert cl.build_model(SMALL, seed=LARGEST_SEED).cfg.n_heads == 1


def test_the_most_epochs_may_be_asked_for():
    assert cl.TrainConfig(epochs=MOST_EPOCHS).epochs == 500_000
