import dataclasses
import math
from functools import partial
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR

import count01_lens.training.trainer as trainer_module
from count01_lens.counts.compact import compact_hooks, compact_logits, compact_tokens
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.build import empty_hooked_transformer
from count01_lens.models.config import ModelConfig
from count01_lens.models.parameters import initial_raw, transformer_lens_parameters
from count01_lens.tasks.dataset import make_splits
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS
from count01_lens.training.optimisers import OPTIMISERS
from count01_lens.training.recipe import OptimiserName, TrainConfig, remaining_rate
from count01_lens.training.run_directory import TrainingRun
from count01_lens.training.stack import count_form_of, from_rows, to_rows
from count01_lens.training.trainer import Trainer, TrainingDivergedError, next_token_loss
from count01_lens.training.training_run import train
from tests.helpers import QUICK, SMALL, SPLITS
from tests.lens_versions import call_with

TORCH = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": partial(torch.optim.SGD, momentum=0.9),
}
SCHEDULES = {
    "linear": lambda optimiser, n: LinearLR(optimiser, 1.0, 0.0, n),
    "cosine": lambda optimiser, n: CosineAnnealingLR(optimiser, n),
    "none": lambda optimiser, n: ConstantLR(optimiser, 1.0),
}


def by_plain_pytorch(config, seed):
    """Train one model with torch.optim on the HookedTransformer itself."""
    raw = {name: value.requires_grad_() for name, value in initial_raw(config.model, seed, config.dtype).items()}  # fmt: skip
    model = empty_hooked_transformer(config.model, config.dtype)
    model.pos_embed.W_pos.data.zero_()
    trained = [value for name, value in raw.items() if config.train_output_bias or name != "b_out"]
    optimiser = TORCH[config.optimiser](
        trained, lr=config.learning_rate, weight_decay=config.weight_decay
    )
    steps = config.epochs * math.ceil(len(SPLITS.train) / config.batch_size)
    schedule = SCHEDULES[config.decay](optimiser, steps)
    for epoch in range(config.epochs):
        order = torch.from_numpy(np.random.default_rng([seed, 20, epoch]).permutation(150))
        for batch in order.split(config.batch_size):
            counts = SPLITS.train.counts[batch]
            with model.hooks(fwd_hooks=compact_hooks(counts)):
                parameters = transformer_lens_parameters(raw, config.model)
                logits = call_with(model, parameters, compact_tokens(counts))
            loss = next_token_loss(
                logits[:, AT_EQUALS.column],
                logits[:, AT_ANSWER.column],
                SPLITS.train.labels[batch],
                config.eos_weight,
                config.second_task,
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return to_rows([{name: value.detach() for name, value in raw.items()}])[0]


@pytest.mark.parametrize(
    "config",
    [
        QUICK,
        TrainConfig(
            model=ModelConfig(d_embed=4, n_heads=2, output="residual", qkv_bias=True),
            epochs=2,
            batch_size=40,
            learning_rate=1e-2,
            weight_decay=0.1,
            decay="none",
            eos_weight=0.3,
            precision="float64",
        ),
        dataclasses.replace(QUICK, optimiser="adam", decay="cosine", weight_decay=0.1),
        dataclasses.replace(QUICK, optimiser="sgd", decay="cosine", weight_decay=0.1),
        dataclasses.replace(QUICK, second_task="copy"),
        dataclasses.replace(QUICK, train_output_bias=False, weight_decay=0.1),
    ],
)
def test_training_equals_plain_pytorch(config):
    result = train(config, seeds=[3], splits=SPLITS)
    ours = result.snapshots[max(result.snapshots)][0]
    torch.testing.assert_close(ours, by_plain_pytorch(config, 3), atol=1e-9, rtol=1e-9)


def test_a_model_does_not_depend_on_the_others_of_its_stack():
    other = TrainConfig(**{**vars(QUICK), "learning_rate": 2e-2, "eos_weight": 0.0})
    together = train([QUICK, other], seeds=[4, 5], splits=SPLITS)
    rows = together.snapshots[max(together.snapshots)]
    for index, (config, seed) in enumerate([(QUICK, 4), (QUICK, 5), (other, 4), (other, 5)]):
        alone = train(config, seeds=[seed], splits=SPLITS)
        torch.testing.assert_close(
            rows[index], alone.snapshots[max(alone.snapshots)][0], atol=1e-9, rtol=1e-9
        )
    assert (together.configs[2], together.seeds[2]) == (other, 4)


@pytest.mark.parametrize("name", TORCH)
def test_optimisers_equal_torch_s_with_settings_per_row(name):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    rates, decays = torch.tensor([[0.1], [0.01]]).double(), torch.tensor([[0.0], [0.3]]).double()
    plain = [row.clone().requires_grad_() for row in rows]
    optimisers = [
        TORCH[name]([row], lr=float(rate), weight_decay=float(decay))
        for row, rate, decay in zip(plain, rates, decays, strict=True)
    ]
    ours, stacked = rows.clone(), OPTIMISERS[name].for_rows(rows)
    for _ in range(20):
        gradient = torch.randn(2, 5, generator=generator, dtype=torch.float64)
        for row, optimiser, part in zip(plain, optimisers, gradient, strict=True):
            row.grad = part.clone()
            optimiser.step()
        stacked.update(ours, gradient, rates, decays)
    torch.testing.assert_close(ours, torch.stack([row.detach() for row in plain]))


def test_every_optimiser_that_a_recipe_can_name_is_there():
    assert set(get_args(OptimiserName)) == set(OPTIMISERS) == set(TORCH)


def test_decay_by_hand():
    shares = {name: [remaining_rate(name, at) for at in (0, 0.25, 0.5, 1)] for name in SCHEDULES}
    assert shares["linear"] == [1, 0.75, 0.5, 0]
    assert shares["cosine"] == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, 0])
    assert shares["none"] == [1, 1, 1, 1]


def test_loss_is_the_negative_log_likelihood_of_the_text_after_equals():
    logits = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([True, False, False, True])
    expected = []
    for sample, label in enumerate(labels):
        answer = logits[0, sample].softmax(-1)[5 if label else 6].log()
        eos = logits[1, sample].softmax(-1)[7].log()
        expected.append(-(answer + 0.5 * eos))
    loss = next_token_loss(logits[0], logits[1], labels, 0.5)
    torch.testing.assert_close(loss, torch.stack(expected).mean())


@pytest.mark.parametrize(("task", "after_four", "after_five"), [("copy", 5, 6), ("other_token", 3, 3)])  # fmt: skip
def test_another_second_task_takes_the_place_of_eos(task, after_four, after_five):
    logits = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([True, False, False, True])
    answer = next_token_loss(logits[0], logits[1], labels, 0.0)
    second = [
        -row.softmax(-1)[after_four if label else after_five].log()
        for row, label in zip(logits[1], labels, strict=True)
    ]
    loss = next_token_loss(logits[0], logits[1], labels, 0.5, task)
    torch.testing.assert_close(loss, answer + 0.5 * torch.stack(second).mean())


def test_fields_of_model_and_recipe_are_changed_alike():
    base = TrainConfig.paper()
    found = base.changed(n_heads=4, learning_rate=0.5, qkv_bias=False)
    assert (found.model.n_heads, found.model.d_head, found.learning_rate) == (4, 8, 0.5)
    assert found.model.qkv_bias is False
    assert found.batch_size == base.batch_size
    assert base.changed(d_head=3).model.d_head == 3
    assert base.changed(d_head=3).changed(epochs=2).model.d_head == 3
    assert base.changed(n_heads=4, d_head=3).model.d_head == 3
    assert base.changed() == base
    with pytest.raises(ValueError, match="expected fields of .*'batch_size'.*, got 'heads'"):
        base.changed(heads=3)


@pytest.mark.parametrize("output", ["fused", "residual"])
def test_an_output_bias_that_is_not_trained_stays_as_it_was(output):
    model = ModelConfig(d_embed=4, n_heads=2, output=output, qkv_bias=True)
    config = dataclasses.replace(QUICK, model=model, train_output_bias=False)
    result = train(config, seeds=[3, 4], splits=SPLITS, snapshot_epochs=[0, 1])
    start, *_, end = (from_rows(rows, model) for _, rows in sorted(result.snapshots.items()))
    name = "b_out" if output == "fused" else "b_U"
    assert torch.equal(start[name], end[name])
    assert all((start[other] != end[other]).any() for other in start if other != name)


def test_without_the_eos_loss_the_second_task_is_not_trained():
    config = TrainConfig(model=SMALL, epochs=40, batch_size=32, learning_rate=2e-2)
    no_eos = TrainConfig(**{**vars(config), "eos_weight": 0.0})
    history = train([config, no_eos], seeds=[0, 1], splits=SPLITS, snapshot_epochs=[]).history
    last = history[history["epoch"] == 40]
    assert (last["validation_eos_accuracy"].to_numpy()[:2] > 0.95).all()
    assert (last["validation_eos_accuracy"].to_numpy()[2:] < 0.05).all()
    assert (last["validation_says_answer"] > 0.95).all()


def test_the_paper_s_model_learns_to_count():
    config = TrainConfig(epochs=6, batch_size=128)
    result = train(config, seeds=[0, 1], snapshot_epochs=[6], first_epoch_steps=[1, 50])
    history = result.history
    assert (history["loss"][history["epoch"] == 6] < 0.1).all()
    assert (history["validation_accuracy"][history["epoch"] == 6] > 0.85).all()
    assert (history["validation_eos_accuracy"][history["epoch"] == 6] == 1).all()
    model, test = result.models[1], make_splits().test
    accuracy = (
        ((compact_logits(model, test)[:, 5:7].diff()[:, 0] < 0) == test.labels).double().mean()
    )
    reported = history.query("epoch == 6 and seed == 1")["test_accuracy"].item()
    assert accuracy.item() == pytest.approx(reported, abs=2 / 1500)


def test_history_and_snapshots():
    result = train(
        QUICK, seeds=[7, 8], splits=SPLITS, snapshot_epochs=[0, 2], first_epoch_steps=[0, 1, 3]
    )
    assert isinstance(result.history, pd.DataFrame)
    assert list(result.history.columns[:5]) == ["model", "seed", "epoch", "step", "loss"]
    one = result.history[result.history["seed"] == 8]
    assert one["step"].tolist() == [0, 1, 3, 5, 10, 15]
    assert one["epoch"].tolist() == [0, 0, 0, 1, 2, 3]
    assert math.isnan(one["loss"].iloc[0])
    assert list(result.snapshots) == [0, 1, 3, 10, 15]
    assert result.snapshot_epochs == [0, 2, 3]
    initial = to_rows([initial_raw(SMALL, seed, torch.float64) for seed in (7, 8)])
    assert torch.equal(result.snapshots[0], initial)
    assert not torch.equal(result.snapshots[1], initial)
    at_two = result.at(1, epoch=2)
    torch.testing.assert_close(at_two.W_E, result.at(1, step=10).W_E)
    form = result.count_form(epoch=2)
    assert form.scores.shape == (2, 3, 8, 8)
    assert torch.equal(result.models[0].W_E, result.at(0).W_E)
    assert torch.equal(result.at(0, epoch=0).W_E, result.at(0, step=0).W_E)


def test_every_epoch_is_kept_by_default():
    result = train(QUICK, seeds=[0], splits=SPLITS)
    assert result.snapshot_epochs == [0, 1, 2, 3]


def test_the_mean_loss_of_an_epoch_is_reported():
    """With a vanishing learning rate the epoch's mean loss is the loss of the initial model."""
    config = TrainConfig(
        model=SMALL, epochs=1, batch_size=50, learning_rate=1e-12, precision="float64"
    )
    history = train(config, seeds=[0], splits=SPLITS).history
    rows = to_rows([initial_raw(SMALL, 0, torch.float64)])
    asked = Multiplicities.at_both(SPLITS.train.counts, torch.float64)
    logits = count_form_of(rows, SMALL).logits(asked).chunk(2, dim=1)
    expected = next_token_loss(logits[0][0], logits[1][0], SPLITS.train.labels)
    assert history["loss"].iloc[1] == pytest.approx(float(expected), rel=1e-6)


def test_nan_is_noticed_with_seed_and_step(monkeypatch):
    healthy = trainer_module.initial_raw

    def broken(config, seed, dtype, **options):
        raw = healthy(config, seed, dtype, **options)
        return {**raw, "W_Q": raw["W_Q"] * torch.nan} if seed == 9 else raw

    monkeypatch.setattr(trainer_module, "initial_raw", broken)
    with pytest.raises(TrainingDivergedError, match=r"diverged at step 0 for seed\(s\) \[9\]"):
        train(QUICK, seeds=[8, 9], splits=SPLITS)


def test_dropout_that_drops_nothing_is_no_dropout():
    config = TrainConfig(
        model=ModelConfig(d_embed=4, n_heads=2, output="residual"), precision="float64"
    )
    trainer = Trainer(TrainingRun([config], [0], SPLITS, []))
    rows = trainer.initial_state().rows
    sentences = trainer.asked["train"].batch(torch.arange(300).unsqueeze(0))
    keep = torch.ones(1, 300, config.model.d_model, dtype=torch.float64)
    plain = count_form_of(rows, config.model).logits(sentences)
    torch.testing.assert_close(trainer._logits_with_dropout(rows, sentences, keep), plain)
    assert not torch.allclose(trainer._logits_with_dropout(rows, sentences, keep * 0), plain)


def test_dropout_masks_keep_the_expected_value_and_the_right_share():
    config = TrainConfig(model=SMALL, dropout=0.25)
    masks = Trainer(TrainingRun([config], [0], SPLITS, []))._dropout_masks(0)
    assert masks.shape == (1, 300, SMALL.d_model)
    assert float((masks == 0).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert sorted(masks.unique().tolist()) == pytest.approx([0, 1 / 0.75])


def test_training_with_dropout_is_deterministic_and_different():
    dropped = TrainConfig(**{**vars(QUICK), "dropout": 0.2})
    one, two = (train(dropped, seeds=[0], splits=SPLITS) for _ in range(2))
    assert torch.equal(one.snapshots[15], two.snapshots[15])
    assert not torch.equal(one.snapshots[15], train(QUICK, seeds=[0], splits=SPLITS).snapshots[15])


def test_rows_and_parameters_are_inverse():
    raws = [initial_raw(SMALL, seed) for seed in range(3)]
    cut = from_rows(to_rows(raws), SMALL)
    for name, value in cut.items():
        assert torch.equal(value, torch.stack([raw[name] for raw in raws]))


def test_global_state_is_left_as_it_was():
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = (torch.random.get_rng_state(), np.random.get_state()[1].tolist())  # noqa: NPY002
    threads = torch.get_num_threads()
    with torch.no_grad():
        train(QUICK, seeds=[0], splits=SPLITS)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.get_num_threads() == threads


def test_progress_lines_where_there_is_no_terminal(capsys):
    train(QUICK, seeds=[0], splits=SPLITS, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith("epoch 3/3  1 model  loss ")
    train(QUICK, seeds=[0], splits=SPLITS)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: TrainConfig(epochs=0), ValueError, "epochs: expected"),
        (lambda: TrainConfig(batch_size=0), ValueError, "batch_size: expected"),
        (lambda: TrainConfig(learning_rate=0), ValueError, "learning_rate: expected a finite"),
        (lambda: TrainConfig(learning_rate=math.nan), ValueError, "learning_rate: expected"),
        (lambda: TrainConfig(eos_weight=-1), ValueError, "eos_weight: expected"),
        (lambda: TrainConfig(second_task="eos"), ValueError, "second_task: expected"),
        (lambda: TrainConfig(train_output_bias=0), ValueError, "train_output_bias: expected True"),
        (lambda: TrainConfig(dropout=1.0), ValueError, "dropout: expected a share below 1"),
        (lambda: TrainConfig(decay="cos"), ValueError, "decay: expected 'linear' or 'cosine'"),
        (lambda: TrainConfig(optimiser="lion"), ValueError, "optimiser: expected 'adamw' or"),
        (lambda: TrainConfig(precision="half"), ValueError, "precision: expected"),
        (lambda: TrainConfig(model="big"), TypeError, "model: expected a ModelConfig"),
        (lambda: train(QUICK, seeds=3), TypeError, "seeds: expected several whole numbers"),
        (lambda: train(QUICK, seeds=[]), ValueError, "at least one config and one seed"),
        (lambda: train(QUICK, seeds=[1, 1]), ValueError, "seeds: expected each one once"),
        (lambda: train(QUICK, seeds=[-1]), ValueError, "seeds: expected"),
        (lambda: train(QUICK, seeds=None), TypeError, "seeds: expected several"),
        (lambda: train(QUICK, seeds="12"), TypeError, "seeds: expected several"),
        (lambda: train(5), TypeError, "config: expected a TrainConfig or several, got 5"),
        (lambda: train([QUICK, QUICK]), ValueError, "config: expected each one once"),
        (lambda: train(QUICK, snapshot_epochs=1), TypeError, "snapshot_epochs: expected several"),
        (lambda: TrainConfig(eos_weight=np.complex64(1)), ValueError, "eos_weight: expected"),
        (lambda: train("fast"), TypeError, "config: expected a TrainConfig"),
        (lambda: train(QUICK, splits=3), TypeError, "splits: expected the result of make_splits"),
        (lambda: train(QUICK, snapshot_epochs=[4]), ValueError, "numbers up to 3, got 4"),
        (lambda: train(QUICK, first_epoch_steps=[-1]), ValueError, "first_epoch_steps: expected"),
        (
            lambda: train([QUICK, TrainConfig(model=SMALL)]),
            ValueError,
            "must share epochs, batch_size, precision",
        ),
        (
            lambda: train([QUICK, TrainConfig(**{**vars(QUICK), "model": ModelConfig()})]),
            ValueError,
            "must share d_embed, n_heads",
        ),
    ],
)
def test_bad_arguments_are_rejected_before_any_work(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_bad_look_ups_are_rejected():
    result = train(QUICK, seeds=[0], splits=SPLITS, snapshot_epochs=[1])
    with pytest.raises(ValueError, match="no snapshot of epoch 2: expected one of the steps 5, 15"):
        result.at(0, epoch=2)
    with pytest.raises(ValueError, match="expected an epoch or a step, got both"):
        result.at(0, epoch=1, step=5)
    with pytest.raises(ValueError, match="model: expected 0 to 0, got 1"):
        result.at(1)


def test_divergence_in_the_last_step_is_noticed(tmp_path):
    config = TrainConfig(model=SMALL, epochs=1, batch_size=150, learning_rate=1e39)
    with pytest.raises(TrainingDivergedError, match=r"diverged at step 1 for seed\(s\) \[0\]"):
        train(config, seeds=[0], splits=SPLITS, directory=tmp_path / "run")
    assert not (tmp_path / "run" / "state.safetensors").exists()


def test_numpy_numbers_are_welcome(tmp_path):
    config = TrainConfig(
        model=ModelConfig(d_embed=np.int64(4), n_heads=np.int32(2)),
        epochs=np.int64(1),
        learning_rate=np.float32(0.01),
        eos_weight=np.float64(1),
    )
    result = train(config, seeds=np.arange(2), splits=SPLITS, directory=tmp_path / "run")
    names = [path.name for path in result.save_models(tmp_path / "models")]
    assert names == ["seed-0.safetensors", "seed-1.safetensors"]
    assert type(config.model.n_heads) is int


def test_snapshot_epochs_are_those_that_can_be_asked_for():
    result = train(QUICK, seeds=[0], splits=SPLITS, snapshot_epochs=[2], first_epoch_steps=[1])
    assert result.snapshot_epochs == [2, 3]
    for epoch in result.snapshot_epochs:
        assert result.at(0, epoch=epoch).cfg.n_heads == 3
    assert result.at(0, step=1).cfg.n_heads == 3


def test_training_works_inside_inference_mode():
    with torch.inference_mode():
        result = train(QUICK, seeds=[0], splits=SPLITS)
        assert torch.is_inference_mode_enabled()
    assert torch.equal(result.snapshots[15], train(QUICK, seeds=[0], splits=SPLITS).snapshots[15])


def test_results_can_be_compared_without_a_crash():
    result = train(QUICK, seeds=[0], splits=SPLITS)
    itself = result
    assert result == itself
    assert result != train(QUICK, seeds=[0], splits=SPLITS)


def test_the_last_epoch_is_always_reported(capsys):
    config = TrainConfig(model=SMALL, epochs=25, batch_size=150)
    train(config, seeds=[0], splits=SPLITS, progress=True, snapshot_epochs=[])
    assert capsys.readouterr().err.splitlines()[-1].startswith("epoch 25/25")


def test_a_result_says_in_three_lines_what_it_is(tmp_path):
    recipes = [QUICK, dataclasses.replace(QUICK, learning_rate=0.01)]
    result = train(recipes, seeds=range(12), splits=SPLITS, directory=tmp_path / "run")
    last = result.history.groupby("model").last()
    assert repr(result).splitlines() == [
        "24 models with 3 heads by 2 recipes, 3 epochs; seeds 0, 1, 2, 3, ..., 9, 10, 11",
        f"accuracy after training: test {last['test_accuracy'].mean():.4f} "
        f"(lowest {last['test_accuracy'].min():.4f}), "
        f"'[EOS]' {last['test_eos_accuracy'].mean():.4f} "
        f"(lowest {last['test_eos_accuracy'].min():.4f})",
        f"stored in {tmp_path / 'run'}",
    ]
    alone = repr(train(QUICK, seeds=[5], splits=SPLITS))
    assert alone.startswith("1 model with 3 heads, 3 epochs; seed 5\n")
    assert alone.endswith("\nnot stored on disk")
