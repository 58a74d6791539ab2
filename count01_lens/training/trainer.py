"""The training loop: batches, loss, optimiser steps and evaluation of a stack of models."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.common.precision import without_autocast
from count01_lens.common.threads import one_thread
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.parameters import initial_raw, transformer_lens_parameters
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.decisions import eos_margin, is_right, says_answer
from count01_lens.tasks.places import COUNT01
from count01_lens.training.batches import Batches
from count01_lens.training.blocks import Blocks, Flat
from count01_lens.training.optimisers import OPTIMISERS, Optimiser
from count01_lens.training.recipe import SecondTask, remaining_rate
from count01_lens.training.run_directory import TrainingRun, TrainState
from count01_lens.training.stack import Rows, count_form_of, from_rows, to_rows
from count01_lens.training.step import ByAutograd, ByHand

# Of two answers True for the first, else their places; for each model, or for all.
Labels = Bool[Tensor, "*model sample"] | Int[Tensor, "*model sample"]
_ORDER_STREAM = 20
_DROPOUT_STREAM = 21


class TrainingDivergedError(RuntimeError):
    """The loss or the parameters of a model became NaN or infinite.

    Attributes:
        step: when.
        seeds: of the models.
    """

    step: int
    seeds: tuple[int, ...]

    @classmethod
    def at(cls, step: int, seeds: Sequence[int]) -> "TrainingDivergedError":
        """Say when, and of which models."""
        error = cls(
            f"training diverged at step {step} for seed(s) {list(seeds)}: NaN or infinite values; "
            "lower the learning rate or use precision='float64'"
        )
        error.step, error.seeds = step, tuple(seeds)
        return error


def next_token_loss(
    logits_at_equals: Float[Tensor, "*model sample token"],
    logits_at_answer: Float[Tensor, "*model sample token"],
    labels: Labels,
    eos_weight: float | Float[Tensor, "*model"] = 1.0,
    second_task: SecondTask = "end",
    language: CountingLanguage = COUNT01,
) -> Float[Tensor, "*model"]:
    """Negative log likelihood of the answer and, weighted, of what follows it; a mean."""
    right = language.answer_token(labels).unsqueeze(-1)
    answer = -F.log_softmax(logits_at_equals, dim=-1).gather(-1, right).squeeze(-1)
    after = -F.log_softmax(logits_at_answer, dim=-1)
    if second_task == "copy":
        second = after.gather(-1, right).squeeze(-1)
    else:
        # The other token is the last symbol, '2' in Count01.
        second = after[..., language.eos if second_task == "end" else language.equals - 1]
    return answer.mean(dim=-1) + eos_weight * second.mean(dim=-1)


def evaluate(
    logits: Float[Tensor, "model both_samples token"], labels: Labels, language: CountingLanguage
) -> dict[str, Float[Tensor, " model"]]:
    """Measure each model: answer and '[EOS]' accuracy, and how often it says an answer at all."""
    at_equals, at_answer = logits.chunk(2, dim=1)
    shares = {
        "accuracy": is_right(at_equals, labels, language),
        "eos_accuracy": eos_margin(at_answer) > 0,
        "says_answer": says_answer(at_equals, language),
    }
    return {name: right.double().mean(dim=-1) for name, right in shares.items()}


class Trainer:
    """Trains the models of a stack epoch by epoch."""

    def __init__(self, stored: TrainingRun):
        self.stored, self.seeds, self.shared = stored, stored.seeds, stored.configs[0]
        names = ("train", "validation", "test")
        self.splits = {name: getattr(stored.splits, name) for name in names}
        self.language = stored.language
        self.labels = {name: split.labels for name, split in self.splits.items()}
        batches = {
            name: Batches(split.counts, self.shared.dtype, self.language, self.shared.second_task)
            for name, split in self.splits.items()
        }
        self.batches = batches["train"]
        self.whole = {name: batches[name].all().n[0] for name in ("validation", "test")}
        self.blocks = Blocks(len(self.seeds), self.shared.model, self.language)
        self.learning_rate = self._per_number("learning_rate")
        self.weight_decay = self._per_number("weight_decay")
        eos_weights = [config.eos_weight for config in stored.configs]
        self.eos_weight = torch.tensor(eos_weights, dtype=self.shared.dtype)
        frozen = () if self.shared.train_output_bias else ("b_out", "b_U")
        self.frozen = self.blocks.places_of(frozen)

    def initial_state(self) -> TrainState:
        """Draw every model's initial parameters from its own seed."""
        pairs = zip(self.stored.configs, self.seeds, strict=True)
        raws = (
            initial_raw(config.model, seed, config.dtype, d_vocab=self.language.d_vocab)
            for config, seed in pairs
        )
        rows = to_rows(list(raws))
        optimiser = OPTIMISERS[self.shared.optimiser].for_rows(rows)
        return TrainState(rows, optimiser, history=[])

    def run(self, state: TrainState, show: Callable[[Mapping[str, Any]], None]) -> None:
        """Train until the last epoch, saving after each and showing its line of history."""
        with one_thread():
            self.begin(state)
            while state.epoch < self.shared.epochs:
                self.train_epoch(state)
                self.stored.save_state(state)
                show(state.history[-1])

    @without_autocast
    @torch.no_grad()
    def begin(self, state: TrainState) -> None:
        """Measure models before their first step, unless that is done."""
        if not state.history:
            self._record(state, torch.full((len(self.seeds),), torch.nan))

    @without_autocast
    @torch.no_grad()
    def train_epoch(self, state: TrainState) -> None:
        """Train one epoch more."""
        self._run_epoch(state)
        self._check_finite(state.rows.sum(dim=1), state.optimiser.steps)

    def _run_epoch(self, state: TrainState) -> None:
        # While an epoch lasts, everything that belongs to a parameter is kept block by block.
        flat = self._flat.copy_(self.blocks.flat(state.rows))
        optimiser = state.optimiser.arranged(self.blocks.flat)
        gradient_of = self._gradient_of(state.epoch)
        per_epoch, shown = self.stored.steps_per_epoch, frozenset(self.stored)
        losses, reported = flat.new_empty(per_epoch, len(self.seeds)), 0
        order = self._batch_order(state.epoch)
        for index, batch in enumerate(self.batches.split(order, self.shared.batch_size)):
            self._update(flat, gradient_of(batch, losses[index]), optimiser)
            if index + 1 == per_epoch or optimiser.steps in shown:
                new = losses[reported : index + 1]
                self._check_losses(new, optimiser.steps - len(new))
                state.rows = self.blocks.rows(flat)
                state.optimiser = optimiser.arranged(self.blocks.rows)
                self._record(state, new.mean(dim=0))
                reported = index + 1

    def _update(self, flat: Flat, gradient: Flat, optimiser: Optimiser) -> None:
        """Take a step along a gradient, in place."""
        total = self.shared.epochs * self.stored.steps_per_epoch
        remaining = remaining_rate(self.shared.decay, optimiser.steps / total)
        kept = flat[self.frozen] if len(self.frozen) else None
        optimiser.update(flat, gradient, self.learning_rate * remaining, self.weight_decay)
        if kept is not None:
            flat[self.frozen] = kept

    def _gradient_of(self, epoch: int) -> ByHand | ByAutograd:
        """How gradients are found in an epoch: by hand, unless there is dropout."""
        if self.shared.dropout == 0:
            return self._by_hand
        loss = partial(self._loss, keep_masks=self._dropout_masks(epoch))
        return ByAutograd(self.blocks, self._flat, loss)

    @cached_property
    def _flat(self) -> Flat:
        return torch.zeros(self.blocks.size, dtype=self.shared.dtype)

    @cached_property
    def _by_hand(self) -> ByHand:
        return ByHand(self.blocks, self._flat, self.eos_weight, self._loss)

    def _loss(
        self,
        rows: Float[Tensor, "some parameter"],
        sentences: Int[Tensor, "some sample"],
        which: Int[Tensor, " some"],
        keep_masks: Float[Tensor, "model both_samples d_model"] | None = None,
    ) -> Float[Tensor, " some"]:
        """Compute the losses of some models of the stack by the closed form; differentiable."""
        # The same sentences at '=' and at the answer.
        at_both = torch.cat([sentences, sentences + len(self.labels["train"])], dim=1)
        asked = self.asked["train"].batch(at_both)
        if keep_masks is None:
            logits = count_form_of(rows, self.shared.model, self.language).logits(asked)
        else:
            keep = keep_masks[which.unsqueeze(1), at_both]
            logits = self._logits_with_dropout(rows, asked, keep)
        at_equals, at_answer = logits.chunk(2, dim=1)
        return next_token_loss(
            at_equals,
            at_answer,
            self.labels["train"][sentences],
            self.eos_weight[which],
            self.shared.second_task,
            self.language,
        )

    def _logits_with_dropout(
        self,
        rows: Rows,
        sentences: Multiplicities,
        keep: Float[Tensor, "model sample d_model"],
    ) -> Float[Tensor, "model sample token"]:
        """Drop coordinates of what attention writes into the residual stream."""
        config = self.shared.model
        parameters = transformer_lens_parameters(from_rows(rows, config, self.language), config)
        form = CountForm.from_parameters(parameters, config.attn_scale, self.language)
        written = einsum(
            form.head_outputs(sentences),
            parameters["blocks.0.attn.W_O"],
            "m sample head d, m head d r -> m sample r",
        )
        kept = (written + parameters["blocks.0.attn.b_O"].unsqueeze(1)) * keep
        skip = sentences.asked @ parameters["embed.W_E"][:, sentences.rows]
        return (skip + kept) @ parameters["unembed.W_U"] + parameters["unembed.b_U"].unsqueeze(1)

    def _record(self, state: TrainState, loss: Float[Tensor, " model"]) -> None:
        """Write a line of history and, where asked for, keep the parameters."""
        step = state.optimiser.steps
        epoch = step // self.stored.steps_per_epoch
        row: dict[str, Any] = {"epoch": epoch, "step": step, "loss": loss.tolist()}
        self._flat.copy_(self.blocks.flat(state.rows))
        self._by_hand.make_tables()
        for name in ("validation", "test"):
            logits = self._logits(state.rows, name)
            for metric, value in evaluate(logits, self.labels[name], self.language).items():
                row[f"{name}_{metric}"] = value.tolist()
        state.history.append(row)
        if step in self.stored:
            self.stored.save_snapshot(step, state.rows)

    def _logits(self, rows: Rows, name: str) -> Float[Tensor, "model both_samples token"]:
        """Compute logits of a split from the tables that were made last: those of the rows."""
        logits = self._by_hand.logits(self.whole[name])
        if logits is not None:
            return logits.mT
        return count_form_of(rows, self.shared.model, self.language).logits(self.asked[name])

    @cached_property
    def asked(self) -> dict[str, Multiplicities]:
        """The splits as the closed form reads them, at '=' and at the answer: for autograd."""
        return {
            name: Multiplicities.at_both(split.counts, self.shared.dtype, self.language)
            for name, split in self.splits.items()
        }

    def _batch_order(self, epoch: int) -> Int[Tensor, "model sample"]:
        """Draw each model's order of sentences from its own seed and the epoch alone."""
        n = len(self.labels["train"])
        orders = [rng.permutation(n) for rng in self._generators(_ORDER_STREAM, epoch)]
        return torch.from_numpy(np.stack(orders))

    def _dropout_masks(self, epoch: int) -> Float[Tensor, "model both_samples d_model"] | None:
        dropout = self.shared.dropout
        if dropout == 0:
            return None
        shape = (2 * len(self.labels["train"]), self.shared.model.d_model)
        generators = self._generators(_DROPOUT_STREAM, epoch)
        kept = [rng.random(shape, dtype=np.float32) >= dropout for rng in generators]
        return torch.from_numpy(np.stack(kept)).to(self.shared.dtype) / (1 - dropout)

    def _generators(self, stream: int, epoch: int) -> list[np.random.Generator]:
        return [np.random.default_rng([seed, stream, epoch]) for seed in self.seeds]

    def _check_losses(self, losses: Float[Tensor, "step model"], first_step: int) -> None:
        """Raise at the first step where a loss was not finite; asked once for many steps."""
        finite = torch.isfinite(losses).all(dim=1)
        if not bool(finite.all()):
            first = int((~finite).nonzero()[0])
            self._check_finite(losses[first], first_step + first)

    def _check_finite(self, per_model: Float[Tensor, " model"], step: int) -> None:
        finite = torch.isfinite(per_model)
        if not bool(finite.all()):
            failed = torch.nonzero(~finite).flatten().tolist()
            raise TrainingDivergedError.at(step, [self.seeds[index] for index in failed])

    def _per_number(self, name: str) -> float | Flat:
        values = [getattr(config, name) for config in self.stored.configs]
        return self.blocks.per_number(values, self.shared.dtype)
