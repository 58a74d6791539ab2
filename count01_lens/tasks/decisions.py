"""From logits to decisions: an answer after '=', '[EOS]' after the answer."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import COUNT01


def four_margin(logits: Float[Tensor, "*batch 8"]) -> Float[Tensor, "*batch"]:
    """By how much '4' leads '5'. The decision is '4' where this is positive, as in the paper."""
    return logits[..., Token.FOUR] - logits[..., Token.FIVE]


def answer_margin(
    logits: Float[Tensor, "*batch token"], labels: Tensor, language: CountingLanguage
) -> Float[Tensor, "*batch"]:
    """By how much the right answer leads the best of the others."""
    if len(language.answers) == 2:
        first, second = logits[..., language.answer_ids].unbind(-1)
        return torch.where(labels, first - second, second - first)
    of_right, others, _ = _against_others(logits, labels, language)
    return of_right - others.amax(dim=-1)


def is_right(
    logits: Float[Tensor, "*batch token"], labels: Tensor, language: CountingLanguage
) -> Bool[Tensor, "*batch"]:
    """Whether the right answer has the highest logit; of equal ones the later answer wins."""
    if len(language.answers) == 2:
        first, second = logits[..., language.answer_ids].unbind(-1)
        return (first - second > 0) == labels
    of_right, others, before = _against_others(logits, labels, language)
    leads = of_right.unsqueeze(-1) - others
    return ((leads > 0) | (before & (leads == 0)) | (others == -torch.inf)).all(dim=-1)


def eos_margin(logits: Float[Tensor, "*batch token"]) -> Float[Tensor, "*batch"]:
    """By how much '[EOS]', the last token, leads the best of the other tokens."""
    return logits[..., -1] - logits[..., :-1].amax(dim=-1)


def says_answer(
    logits: Float[Tensor, "*batch token"], language: CountingLanguage = COUNT01
) -> Bool[Tensor, "*batch"]:
    """Whether an answer leads all other tokens: the superficial syntax of what follows '='."""
    answers = logits[..., language.answer_ids].amax(dim=-1)
    others = torch.maximum(logits[..., : language.equals + 1].amax(dim=-1), logits[..., -1])
    return answers > others


def _against_others(
    logits: Float[Tensor, "*batch token"], labels: Tensor, language: CountingLanguage
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch answer"], Bool[Tensor, "*labels answer"]]:
    """Logits of the right answer and of the others (it is -inf there); which come before it."""
    answers = logits[..., language.answer_ids]
    places = torch.arange(len(language.answers))
    right = labels.unsqueeze(-1)
    of_right = answers.gather(-1, right.expand(*answers.shape[:-1], 1)).squeeze(-1)
    return of_right, answers.masked_fill(places == right, -torch.inf), places < right
