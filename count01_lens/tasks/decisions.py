"""From logits to decisions: '4' or '5' after '=', '[EOS]' after the answer."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from count01_lens.tasks.language import Token


def four_margin(logits: Float[Tensor, "*batch 8"]) -> Float[Tensor, "*batch"]:
    """By how much '4' leads '5'. The decision is '4' where this is positive, as in the paper."""
    return logits[..., Token.FOUR] - logits[..., Token.FIVE]


def eos_margin(logits: Float[Tensor, "*batch 8"]) -> Float[Tensor, "*batch"]:
    """By how much '[EOS]' leads the best of the other seven tokens."""
    return logits[..., Token.EOS] - logits[..., : Token.EOS].amax(dim=-1)


def says_answer(logits: Float[Tensor, "*batch 8"]) -> Bool[Tensor, "*batch"]:
    """Whether '4' or '5' leads all other tokens: the superficial syntax of what follows '='."""
    answers = torch.maximum(logits[..., Token.FOUR], logits[..., Token.FIVE])
    others = torch.maximum(logits[..., : Token.FOUR].amax(dim=-1), logits[..., Token.EOS])
    return answers > others
