"""The training loop: batches, loss, optimiser steps and evaluation of a stack of models."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.common.threads import one_thread
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.parameters import initial_raw, transformer_lens_parameters
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.decisions import eos_margin, is_right, says_answer
from count01_lens.tasks.places import COUNT01
from count01_lens.training.optimisers import OPTIMISERS
from count01_lens.training.recipe import SecondTask, remaining_rate
from count01_lens.training.run_directory import TrainingRun, TrainState
from count01_lens.training.stack import Rows, count_form_of, from_rows, places_of, to_rows

# Of two answers True for the first, else their places; for each model, or for all.
Labels = Bool[Tensor, "*model sample"] | Int[Tensor, "*model sample"]
_ORDER_STREAM = 20
_DROPOUT_STREAM = 21
_IN_CACHE = 200_000  # numbers
_FEWEST_SENTENCES = 300  # with fewer at once, the calls cost more than a full cache


class TrainingDivergedError(RuntimeError):
    """The loss or the parameters of a model became NaN or infinite."""


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
    form: CountForm, asked: Multiplicities, labels: Labels
) -> dict[str, Float[Tensor, " model"]]:
    """Measure each model: answer and '[EOS]' accuracy, and how often it says an answer at all."""
    # Head outputs of a wide stack on a whole split are too large for a processor's cache.
    at_once = max(_FEWEST_SENTENCES, _IN_CACHE // form.values[:, :, 0].numel())
    pieces = [form.logits(piece) for piece in asked.split(at_once)]
    at_equals, at_answer = torch.cat(pieces, dim=1).chunk(2, dim=1)
    shares = {
        "accuracy": is_right(at_equals, labels, asked.language),
        "eos_accuracy": eos_margin(at_answer) > 0,
        "says_answer": says_answer(at_equals, asked.language),
    }
    return {name: right.double().mean(dim=-1) for name, right in shares.items()}


class Trainer:
    """Trains the models of a stack epoch by epoch."""

    def __init__(self, stored: TrainingRun):
        self.stored, self.seeds, self.shared = stored, stored.seeds, stored.configs[0]
        splits = {name: getattr(stored.splits, name) for name in ("train", "validation", "test")}
        self.language = stored.language
        self.labels = {name: split.labels for name, split in splits.items()}
        # In the form in which the closed form reads sentences, at '=' and at the answer at once.
        self.asked = {
            name: Multiplicities.at_both(split.counts, self.shared.dtype, self.language)
            for name, split in splits.items()
        }
        self.learning_rate = self._per_model("learning_rate").unsqueeze(1)
        self.weight_decay = self._per_model("weight_decay").unsqueeze(1)
        self.eos_weight = self._per_model("eos_weight")
        frozen = () if self.shared.train_output_bias else ("b_out", "b_U")
        self.frozen = places_of(frozen, self.shared.model, self.language)

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
            if not state.history:
                self._record(state, torch.full((len(self.seeds),), torch.nan))
            while state.epoch < self.shared.epochs:
                self._run_epoch(state)
                self._check_finite(state.rows.sum(dim=1), state.optimiser.steps)
                self.stored.save_state(state)
                show(state.history[-1])

    def _run_epoch(self, state: TrainState) -> None:
        keep_masks = self._dropout_masks(state.epoch)
        losses: list[Float[Tensor, " model"]] = []
        for batch in torch.split(self._batch_order(state.epoch), self.shared.batch_size, dim=1):
            losses.append(self._step(state, batch, keep_masks))
            step = state.optimiser.steps
            if step % self.stored.steps_per_epoch == 0 or step in self.stored:
                self._record(state, torch.stack(losses).mean(dim=0))
                losses.clear()

    def _step(
        self, state: TrainState, batch: Int[Tensor, "model sample"], keep_masks: Tensor | None
    ) -> Float[Tensor, " model"]:
        # The same sentences at '=' and at the answer.
        at_both = torch.cat([batch, batch + len(self.labels["train"])], dim=1)
        sentences = self.asked["train"].batch(at_both)
        leaf = state.rows.requires_grad_()
        if keep_masks is None:
            logits = count_form_of(leaf, self.shared.model, self.language).logits(sentences)
        else:
            models = torch.arange(len(batch)).unsqueeze(1)
            logits = self._logits_with_dropout(leaf, sentences, keep_masks[models, at_both])
        at_equals, at_answer = logits.chunk(2, dim=1)
        labels = self.labels["train"][batch]
        loss = next_token_loss(
            at_equals,
            at_answer,
            labels,
            self.eos_weight,
            self.shared.second_task,
            self.language,
        )
        self._check_finite(loss, state.optimiser.steps)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        leaf.requires_grad_(False)
        total = self.shared.epochs * self.stored.steps_per_epoch
        rate = self.learning_rate * remaining_rate(self.shared.decay, state.optimiser.steps / total)
        kept = state.rows[:, self.frozen]
        state.optimiser.update(state.rows, gradient, rate, self.weight_decay)
        if len(self.frozen):
            state.rows[:, self.frozen] = kept
        return loss.detach()

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
        with torch.no_grad():
            form = count_form_of(state.rows, self.shared.model, self.language)
            for name in ("validation", "test"):
                for metric, value in evaluate(form, self.asked[name], self.labels[name]).items():
                    row[f"{name}_{metric}"] = value.tolist()
        state.history.append(row)
        if step in self.stored:
            self.stored.save_snapshot(step, state.rows)

    def _batch_order(self, epoch: int) -> Int[Tensor, "model sample"]:
        """Draw each model's order of sentences from its own seed and the epoch alone."""
        n = len(self.labels["train"])
        orders = [rng.permutation(n) for rng in self._generators(_ORDER_STREAM, epoch)]
        return torch.from_numpy(np.stack(orders))

    def _dropout_masks(self, epoch: int) -> Float[Tensor, "model both_samples d_model"] | None:
        dropout = self.shared.dropout
        if dropout == 0:
            return None
        shape = (len(self.asked["train"].n), self.shared.model.d_model)
        generators = self._generators(_DROPOUT_STREAM, epoch)
        kept = [rng.random(shape, dtype=np.float32) >= dropout for rng in generators]
        return torch.from_numpy(np.stack(kept)).to(self.shared.dtype) / (1 - dropout)

    def _generators(self, stream: int, epoch: int) -> list[np.random.Generator]:
        return [np.random.default_rng([seed, stream, epoch]) for seed in self.seeds]

    def _check_finite(self, per_model: Float[Tensor, " model"], step: int) -> None:
        finite = torch.isfinite(per_model.detach())
        if not bool(finite.all()):
            failed = [self.seeds[index] for index in torch.nonzero(~finite).flatten().tolist()]
            raise TrainingDivergedError(
                f"training diverged at step {step} for seed(s) {failed}: NaN or infinite values; "
                "lower the learning rate or use precision='float64'"
            )

    def _per_model(self, name: str) -> Float[Tensor, " model"]:
        values = [getattr(config, name) for config in self.stored.configs]
        return torch.tensor(values, dtype=self.shared.dtype)
