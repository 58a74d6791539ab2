"""Token ids, positions and choices as users give them: checked, and copied."""

from collections.abc import Iterable, Mapping, Sequence
from reprlib import repr as shortened
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from count01_lens.common.types import Array
from count01_lens.common.validation import check_default_device


def spread(length: int, n: int) -> list[int]:
    """Places of up to n of many things, spread evenly from the first to the last.

    >>> spread(9, 3), spread(2, 3)
    ([0, 4, 8], [0, 1])
    """
    n = min(n, length)
    return [round(i * (length - 1) / max(n - 1, 1)) for i in range(n)]


def check_choices(choices: Any, answers: Any, model: Any = None) -> tuple[Any, ...]:
    """Return the tokens among which a model chooses, by default the answers, in their order.

    Raises unless they are at least two different ones, and the answers among them.
    """
    occurring = sorted(set(listed_tokens(answers)))
    if isinstance(choices, str):
        raise TypeError(f"choices: expected several tokens, got the text {choices!r}")
    given = list(choices) if isinstance(choices, Iterable) else choices
    chosen = occurring if choices is None else listed_tokens(texts_or_ids("choices", given))
    if model is not None:
        chosen = [one_token("choices", c, model) if isinstance(c, str) else c for c in chosen]
    missing = [answer for answer in occurring if answer not in chosen]
    if missing or len(set(chosen)) < len(chosen) or len(chosen) < 2:
        expected = f"at least two different tokens, all answers ({shortened(occurring)}) among them"
        raise ValueError(f"choices: expected {expected}, got {shortened(chosen)}")
    return tuple(chosen)


def one_token(name: str, text: str, model: Any) -> int:
    """The id of a text that is a single token of a model's tokenizer."""
    if getattr(model, "tokenizer", None) is None:
        raise ValueError(f"{name}: expected a model with a tokenizer, got a text, {text!r}")
    ids = model.to_tokens(text, prepend_bos=False)[0].tolist()
    if len(ids) != 1:
        parts = [model.to_string([token]) for token in ids]
        raise ValueError(
            f"{name}: expected texts of one token each, got {text!r}, which is {parts}; mind "
            "spaces, as in ' Paris'"
        )
    return int(ids[0])


def listed_tokens(answers: Tensor | list[Any]) -> list[Any]:
    """Return ids or texts as a list."""
    return answers if isinstance(answers, list) else answers.tolist()


def texts_or_ids(name: str, values: Any) -> Any:
    """Check tokens: all of them as texts, or all as ids."""
    if isinstance(values, Sequence) and values and all(isinstance(v, str) for v in values):
        return list(values)
    return token_ids(name, values)


def rows_of_ids(tokens: Any) -> list[Int[Tensor, " _"]]:
    """Check prompts written out as token ids."""
    return [token_ids(f"tokens[{i}]", row) for i, row in enumerate(tokens)]


def masks_of(subsets: Any) -> dict[str, Bool[Array, " prompt"]]:
    """Check masks of prompts, by name."""
    if not isinstance(subsets, Mapping):
        raise TypeError(f"subsets: expected masks by name, got {subsets!r:.80}")
    masks = {str(name): np.asarray(mask).copy() for name, mask in subsets.items()}
    for name, mask in masks.items():
        if mask.dtype != bool or mask.ndim != 1:
            expected = "booleans in a row, one for each prompt"
            got = f"{mask.dtype} {list(mask.shape)}"
            raise TypeError(f"subsets[{name!r}]: expected {expected}, got {got}")
    return masks


def counted_from_start(rows: list[Int[Tensor, " _"]], places: list[int]) -> list[int]:
    """Check positions in prompts; negative ones count from the end."""
    for i, (row, place) in enumerate(zip(rows, places, strict=True)):
        if not -len(row) <= place < len(row):
            expected = f"one of the {len(row)} tokens of prompt {i}"
            raise ValueError(f"position: expected {expected}, got {place}")
    return [place % len(row) for row, place in zip(rows, places, strict=True)]


def token_ids(name: str, values: Any, at_least: int | None = 0) -> Int[Tensor, " _"]:
    """Check whole numbers in a row, such as token ids."""
    check_default_device()
    try:
        ids = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: expected whole numbers, got {values!r:.80}") from error
    if ids.shape == (0,):  # of nothing there is no kind
        return torch.empty(0, dtype=torch.long)
    if ids.ndim != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        got = f"{ids.dtype} {list(ids.shape)}"
        raise TypeError(f"{name}: expected whole numbers in a row, got {got}")
    # A copy: what the user changes later must not change the prompts.
    ids = ids.detach().cpu().long().clone()
    if at_least is not None and len(ids) and int(ids.min()) < at_least:
        raise ValueError(f"{name}: expected token ids of at least {at_least}, got {int(ids.min())}")
    return ids
