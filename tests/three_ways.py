"""One model run in three ways from the same raw parameters, with gradients."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.compact import compact_hooks, compact_tokens
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.build import empty_hooked_transformer
from count01_lens.models.config import ModelConfig
from count01_lens.models.parameters import transformer_lens_parameters
from count01_lens.tasks.dataset import labels_of, sequences_of
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import PLACES
from count01_lens.training.trainer import next_token_loss
from tests.lens_versions import call_with


@dataclass
class Outcome:
    way: str
    logits: dict[str, Tensor]
    gradients: dict[str, Tensor]


def outcomes(raw: dict[str, Tensor], config: ModelConfig, counts: Tensor) -> list[Outcome]:
    """Run sequences, compact and closed form; the first is the reference."""
    return [_outcome(way, raw, config, counts) for way in ("sequences", "compact", "closed form")]


def tolerance(raw: dict[str, Tensor], config: ModelConfig) -> float:
    parameters = transformer_lens_parameters(raw, config)
    form = CountForm.from_parameters(_stack_of_one(parameters), config.attn_scale)
    return 1e-12 * max(1.0, largest_score(form))


def largest_score(form: CountForm) -> float:
    """The largest absolute score between tokens that meet: the yardstick of rounding."""
    before_equals = form.scores[:, :, Token.EQUALS : Token.EOS, : Token.FOUR].abs().max()
    answers = [form.scores[:, :, token, token].abs().max() for token in (Token.FOUR, Token.FIVE)]
    return float(max(before_equals, *answers))


def _outcome(way: str, raw: dict[str, Tensor], config: ModelConfig, counts: Tensor) -> Outcome:
    leaves = {name: value.detach().clone().requires_grad_() for name, value in raw.items()}
    parameters = transformer_lens_parameters(leaves, config)
    if way == "closed form":
        form = CountForm.from_parameters(_stack_of_one(parameters), config.attn_scale)
        logits = {
            at: form.logits(Multiplicities.of(counts, place, torch.float64))[0]
            for at, place in PLACES.items()
        }
    else:
        model = empty_hooked_transformer(config, torch.float64)
        model.W_pos.data.zero_()
        if way == "compact":
            with model.hooks(fwd_hooks=compact_hooks(counts, model=model)):
                output = call_with(model, parameters, compact_tokens(counts))
            logits = {at: output[:, place.column] for at, place in PLACES.items()}
        else:
            rows = list(_sequence_logits(model, parameters, counts))
            logits = {at: torch.stack([row[at] for row in rows]) for at in PLACES}
    loss = next_token_loss(logits["="], logits["answer"], labels_of(counts), 0.7)
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return Outcome(
        way,
        {at: value.detach() for at, value in logits.items()},
        {
            name: torch.zeros_like(raw[name]) if gradient is None else gradient
            for name, gradient in zip(leaves, gradients, strict=True)
        },
    )


def _sequence_logits(model, parameters, counts: Tensor) -> Iterator[dict[str, Tensor]]:
    for sequence in sequences_of(counts, seed=5):
        output = call_with(model, parameters, sequence[None])[0]
        yield {"=": output[-3], "answer": output[-2]}


def _stack_of_one(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.unsqueeze(0) for name, value in parameters.items()}
