"""Loss and gradient by hand against autograd on the closed form, and what they are made from."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.tasks.places import COUNT01
from count01_lens.training import batches as batches_module
from count01_lens.training.batches import Batches
from count01_lens.training.blocks import Blocks
from count01_lens.training.optimisers import OPTIMISERS
from count01_lens.training.run_directory import TrainingRun
from count01_lens.training.stack import count_form_of, from_rows
from count01_lens.training.step import ByAutograd, ByHand
from count01_lens.training.trainer import Trainer, TrainingDivergedError
from tests.helpers import QUICK, SHAPES, SPLITS, with_biases

SPEC = cl.CountSpec(size=60, counts=(0, 6))
TASKS = {
    "three answers": cl.CountingTask(
        symbols="abcd", answers="XYZ", rule=["na > max(nb, nc)", "nb > nc"],
        train=SPEC, validation=SPEC, test=SPEC,
    ),
    "one symbol": cl.CountingTask(
        symbols="a", answers="XY", rule=["na > 3"], train=SPEC, validation=SPEC, test=SPEC
    ),
}  # fmt: skip
MINIMAL = cl.ModelConfig(d_embed=2, n_heads=1, d_head=1, layer_norm=False)
WIDE = cl.ModelConfig(d_embed=1, n_heads=6, d_head=1, layer_norm=False)
SCALED = cl.ModelConfig(d_embed=6, n_heads=2, output="residual", qkv_bias=True, scale_scores=True)


def trainer_of(model=None, task=None, eos_weights=(1.0, 0.3, 0.0), **changed) -> Trainer:
    """A stack whose models differ in seed and in the weight of the second task."""
    base = dataclasses.replace(QUICK, model=model or QUICK.model, **changed)
    configs = [dataclasses.replace(base, eos_weight=weight) for weight in eos_weights]
    splits = SPLITS if task is None else task.splits
    return Trainer(TrainingRun(configs, range(len(configs)), splits, [], task=task))


def both_roads(trainer: Trainer, rows: torch.Tensor, size: int = 25):
    """Losses and gradients, as rows, of each batch: by hand, by autograd."""
    flat = trainer.blocks.flat(rows)
    by_hand = ByHand(trainer.blocks, flat, trainer.eos_weight, trainer._loss)
    by_autograd = ByAutograd(trainer.blocks, flat, trainer._loss)
    for batch in trainer.batches.split(trainer._batch_order(0), size):
        found = []
        for road in (by_hand, by_autograd):
            losses = torch.full((len(rows),), torch.nan, dtype=rows.dtype)
            with torch.no_grad():
                found.append((losses, trainer.blocks.rows(road(batch, losses)).clone()))
        yield found


@pytest.mark.parametrize("config", [*SHAPES, MINIMAL, WIDE, SCALED], ids=str)
@pytest.mark.parametrize("task", [None, *TASKS.values()], ids=["count01", *TASKS])
def test_loss_and_gradient_are_those_of_autograd(config, task):
    trainer = trainer_of(config, task)
    rows = with_biases(trainer.initial_state().rows)
    compared = list(both_roads(trainer, rows, size=25))
    assert len(compared) > 2  # the last batch is smaller
    for (loss, gradient), (expected_loss, expected) in compared:
        torch.testing.assert_close(loss, expected_loss, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)
        assert expected.abs().amax(dim=1).min() > 1e-3


@pytest.mark.parametrize("second_task", ["end", "copy", "other_token"])
@pytest.mark.parametrize("output", ["fused", "residual"])
def test_every_second_task(second_task, output):
    model = cl.ModelConfig(d_embed=6, n_heads=3, output=output)
    for task in (None, TASKS["three answers"]):
        trainer = trainer_of(model, task, second_task=second_task)
        rows = with_biases(trainer.initial_state().rows)
        for (loss, gradient), (expected_loss, expected) in both_roads(trainer, rows):
            torch.testing.assert_close(loss, expected_loss, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_gradient_by_differences():
    """An oracle that knows no calculus: the loss by hand a little to both sides."""
    trainer = trainer_of(SCALED)
    flat = trainer.blocks.flat(with_biases(trainer.initial_state().rows))
    by_hand = ByHand(trainer.blocks, flat, trainer.eos_weight, trainer._loss)
    batch = next(trainer.batches.split(trainer._batch_order(0), 40))
    losses = torch.zeros(3, dtype=flat.dtype)
    gradient = by_hand(batch, losses).clone()
    for place in range(0, len(flat), 7):
        sides, kept = [], float(flat[place])
        for step in (1e-5, -1e-5):
            flat[place] = kept + step
            by_hand(batch, losses)
            sides.append(float(losses.sum()))
        flat[place] = kept
        assert (sides[0] - sides[1]) / 2e-5 == pytest.approx(float(gradient[place]), abs=1e-8)


def with_vanishing(trainer: Trainer, model: int) -> torch.Tensor:
    """Rows of which one model looks at the last symbol only, which some sentences do not have."""
    rows = with_biases(trainer.initial_state().rows)
    raw = from_rows(rows, trainer.shared.model, trainer.language)  # views
    raw["W_E"][model] = torch.tensor([1.0, 0.0], dtype=rows.dtype)
    raw["W_E"][model, trainer.language.equals - 1, 1] = 1.0
    raw["W_Q"][model, 0] = torch.tensor([[1000.0], [0.0]], dtype=rows.dtype)
    raw["W_K"][model, 0] = torch.tensor([[0.0], [1.0]], dtype=rows.dtype)
    return rows


def test_vanishing_denominators_go_the_careful_way(monkeypatch):
    """Large scores underflow where the token with the largest is absent; the rest is untouched."""
    trainer = trainer_of(MINIMAL, TASKS["three answers"])
    rows = with_vanishing(trainer, 1)
    asked, careful = [], ByAutograd.of_some

    def noticed(self, batch, losses, which):
        asked.append(which.tolist())
        return careful(self, batch, losses, which)

    monkeypatch.setattr(ByAutograd, "of_some", noticed)
    for (loss, gradient), (expected_loss, expected) in both_roads(trainer, rows):
        assert torch.isfinite(gradient).all()
        torch.testing.assert_close(loss, expected_loss, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-10)
    assert [1] in asked  # the careful way by hand; [0, 1, 2] is the oracle's
    assert all(which in ([1], [0, 1, 2]) for which in asked)


def test_a_model_that_is_lost_hides_no_other():
    """NaN in one model must not keep another from the careful way."""
    trainer = trainer_of(MINIMAL, TASKS["three answers"])
    rows = with_vanishing(trainer, 1)
    rows[0] = torch.nan
    for (loss, gradient), (expected_loss, expected) in both_roads(trainer, rows):
        assert loss[0].isnan()
        torch.testing.assert_close(loss[1:], expected_loss[1:], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(gradient[1:], expected[1:], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("config", [*SHAPES, MINIMAL], ids=str)
@pytest.mark.parametrize("task", [None, TASKS["three answers"]], ids=["count01", "three answers"])
def test_logits_of_a_whole_split_are_those_of_the_closed_form(config, task):
    trainer = trainer_of(config, task)
    state = trainer.initial_state()
    state.rows = with_biases(state.rows)
    trainer._record(state, torch.zeros(3))
    for name in ("validation", "test"):
        found = trainer._logits(state.rows, name)
        form = count_form_of(state.rows, config, trainer.language)
        expected = form.logits(trainer.asked[name])
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_unsafe_logits_are_left_to_the_closed_form():
    trainer = trainer_of(MINIMAL, TASKS["three answers"])
    state = trainer.initial_state()
    state.rows = with_vanishing(trainer, 1)
    trainer._record(state, torch.zeros(3))
    assert trainer._by_hand.logits(trainer.whole["test"]) is None
    found = trainer._logits(state.rows, "test")
    expected = count_form_of(state.rows, MINIMAL, trainer.language).logits(trainer.asked["test"])
    assert torch.equal(found, expected)


@pytest.mark.parametrize("at_once", [1, 10_000, 10**9])
@pytest.mark.parametrize("task", [None, TASKS["three answers"]], ids=["count01", "three answers"])
def test_batches_hold_the_multiplicities_of_their_sentences(monkeypatch, at_once, task):
    monkeypatch.setattr(batches_module, "_AT_ONCE", at_once)
    splits, language = (SPLITS, COUNT01) if task is None else (task.splits, task.language)
    counts = splits.train.counts
    rng = np.random.default_rng(0)
    order = torch.from_numpy(np.stack([rng.permutation(len(counts)) for _ in range(3)]))
    found = list(Batches(counts, torch.float64, language, "copy").split(order, 32))
    assert torch.equal(torch.cat([batch.sentences for batch in found], dim=1), order)
    n_common = language.equals + 1
    for batch in found:
        both = torch.cat([batch.sentences, batch.sentences + len(counts)], dim=1)
        expected = Multiplicities.at_both(counts, torch.float64, language).batch(both).n
        n = batch.n.mT.reshape(*both.shape, len(language.answers) + 1, n_common + 1)
        assert torch.equal(n[..., :n_common], expected[..., :n_common])
        own = expected[:, :, 1:, n_common:].diagonal(dim1=-2, dim2=-1)
        assert torch.equal(n[:, :, 1:, n_common], own)
        assert not n[:, :, 0, n_common].any()
        token = language.answer_token(language.labels(counts))[batch.sentences]
        assert torch.equal(batch.right.squeeze(1), torch.cat([token, token], dim=1))


@pytest.mark.parametrize("config", SHAPES, ids=str)
def test_blocks_hold_every_number_once(config):
    blocks = Blocks(3, config)
    rows = torch.arange(blocks.size).reshape(3, -1).double()
    flat = blocks.flat(rows)
    assert torch.equal(flat.sort().values, rows.flatten())
    assert torch.equal(blocks.rows(flat), rows)
    assert all(view.is_contiguous() for view in blocks.views(flat).values())
    raw, views = from_rows(rows, config), blocks.views(flat)
    assert torch.equal(views["W_E"], raw["W_E"])
    last, heads = config.d_head - 1, config.n_heads
    by_letter = views["W_QKV"][:, : config.d_embed].reshape(3, -1, 3, last + 1, heads)
    assert torch.equal(by_letter[:, :, 1, last, 0], raw["W_K"][:, 0, :, last])
    name = "b_out" if config.output == "fused" else "b_U"
    assert torch.equal(flat[blocks.places_of([name])].sort().values, raw[name].flatten())
    assert blocks.per_number([0.1, 0.1, 0.1], torch.float64) == 0.1
    expected = torch.tensor([[0.1], [0.2], [0.3]], dtype=torch.float64)
    settings = blocks.rows(blocks.per_number([0.1, 0.2, 0.3], torch.float64))
    assert torch.equal(settings, expected.expand_as(rows))


def step_of_divergence(config, seeds) -> tuple[int, list[int]]:
    """Train for an epoch by autograd and look at every loss at once, as it is computed."""
    trainer = Trainer(TrainingRun([config] * len(seeds), seeds, SPLITS, []))
    flat = trainer.blocks.flat(trainer.initial_state().rows)
    by_autograd = ByAutograd(trainer.blocks, flat, trainer._loss)
    optimiser = OPTIMISERS[config.optimiser].for_rows(flat)
    for batch in trainer.batches.split(trainer._batch_order(0), config.batch_size):
        losses = torch.empty(len(seeds))
        gradient = by_autograd(batch, losses)
        if not losses.isfinite().all():
            failed = (~losses.isfinite()).nonzero().flatten().tolist()
            return optimiser.steps, [seeds[index] for index in failed]
        optimiser.update(flat, gradient, config.learning_rate, config.weight_decay)
    raise AssertionError("expected a training that diverges")


@pytest.mark.parametrize(
    ("optimiser", "rate"), [("sgd", 40.0), ("sgd", 1e6), ("adamw", 1e3), ("adamw", 1e12)]
)
def test_divergence_is_told_with_the_step_and_seeds_where_it_happened(tmp_path, optimiser, rate):
    """Losses are looked at once for many steps, but what is told is the first that was lost."""
    config = cl.TrainConfig(
        model=QUICK.model, epochs=1, batch_size=10, optimiser=optimiser, learning_rate=rate,
        decay="none",
    )  # fmt: skip
    step, seeds = step_of_divergence(config, [0, 1, 2])
    assert 0 < step < 15
    expected = f"diverged at step {step} for seed(s) {seeds}:"
    snapshots = dict(first_epoch_steps=range(15), directory=tmp_path / "run")
    for more in ({}, snapshots):
        with pytest.raises(TrainingDivergedError) as told:
            cl.train(config, seeds=range(3), splits=SPLITS, progress=False, **more)
        assert expected in str(told.value)
    kept = sorted(path.name for path in (tmp_path / "run" / "snapshots").iterdir())
    assert kept == [f"step-{number:07d}.safetensors" for number in range(step + 1)]


def test_training_by_hand_is_training_by_autograd(monkeypatch):
    """The same run with the oracle in place, which dropout takes in any case."""
    config = dataclasses.replace(QUICK, train_output_bias=False)
    ours = cl.train(config, seeds=[0, 1], splits=SPLITS, progress=False)
    roads = []

    def by_autograd(self, epoch):
        roads.append(epoch)
        return ByAutograd(self.blocks, self._flat, partial(self._loss, keep_masks=None))

    monkeypatch.setattr(Trainer, "_gradient_of", by_autograd)
    oracle = cl.train(config, seeds=[0, 1], splits=SPLITS, progress=False)
    assert roads == [0, 1, 2]
    for step, rows in oracle.snapshots.items():
        torch.testing.assert_close(ours.snapshots[step], rows, rtol=1e-9, atol=1e-9)


def test_autocast_does_not_round_a_training():
    plain = cl.train(QUICK, seeds=[0], splits=SPLITS, progress=False).snapshots[15]
    config = dataclasses.replace(QUICK, precision="float32")
    alone = cl.train(config, seeds=[0], splits=SPLITS, progress=False).snapshots[15]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = cl.train(config, seeds=[0], splits=SPLITS, progress=False).snapshots[15]
    assert torch.equal(alone, rounded)
    torch.testing.assert_close(alone.double(), plain, rtol=1e-2, atol=1e-3)
