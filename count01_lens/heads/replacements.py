"""What stands in the place of the outputs of heads that are taken out of a model.

* **zero**: nothing.
* **mean**: the head's mean output at the query position over some prompts, at all positions.
* **resample**: the head's output on another prompt. Which one is decided by the tokens of the
  prompt that is run, and a seed: it depends neither on batches nor on their order. Both prompts are
  aligned at their ends, where a causal model is asked; what stands before the beginning of the
  other is what it has at its first token. Attention in both directions sees the whole prompt, so
  that there the other one has to be of the same length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.common.validation import check_choice, check_seed
from count01_lens.heads.hook_runner import HookRunner, Outputs, Runner
from count01_lens.tasks.prompts import Asked, Prompts
from count01_lens.tasks.tokens import spread

Mode = Literal["zero", "mean", "resample"]
N_OTHERS = 64  # prompts that outputs are resampled from: at all positions they take their room


@dataclass(frozen=True, eq=False)
class Replacement:
    """Outputs that stand in the place of those of heads.

    Attributes:
        means: of every head, for "mean" and "zero".
        others: prompts that outputs are resampled from, as far as the model sees them.
        outputs: of every head at their positions, or at the last one alone.
        n_heads: of a layer.
    """

    mode: Mode
    means: Float[Tensor, "head d_head"] | None = None
    others: Sequence[Int[Tensor, " _"]] = ()
    outputs: Sequence[Float[Tensor, "_ head d_head"]] = ()
    same_length: bool = False
    seed: int = 0
    n_heads: int | None = None

    @classmethod
    def by(cls, runner: Runner, mode: Mode, prompts: Asked, seed: int = 0) -> "Replacement":
        """Take what replaces outputs from what a runner gives on prompts."""
        check_choice("ablation", mode, get_args(Mode))
        if mode == "zero":
            return cls(mode)
        hooked = runner if isinstance(runner, HookRunner) else None
        cfg = None if hooked is None else hooked.model.cfg
        n_heads = None if cfg is None else cfg.n_heads
        if mode == "mean":
            return cls(mode, means=runner.outputs(prompts).mean(dim=0), n_heads=n_heads)
        whole = cfg is not None and cfg.attention_dir != "causal"
        few = _of_each_length(prompts) if whole else prompts.few(N_OTHERS)
        if hooked is None:
            outputs = [z.unsqueeze(0) for z in runner.outputs(few)]
        else:
            outputs = hooked.everywhere(few)
        return cls(mode, None, seen_tokens(few, whole), outputs, whole, check_seed(seed), n_heads)

    def in_layer(self, layer: int, tokens: Int[Tensor, "row position"]) -> Tensor:
        """What replaces outputs of a layer in a run on tokens, or what broadcasts to it."""
        assert self.n_heads is not None
        of_layer = slice(layer * self.n_heads, (layer + 1) * self.n_heads)
        if self.means is not None:
            return self.means[of_layer]
        rows = [self._aligned(row)[:, of_layer] for row in tokens.cpu()]
        return torch.stack(rows)

    def at_query(self, prompts: Asked) -> Outputs | None:
        """What replaces outputs at the query position of prompts; None for zeros."""
        if self.mode == "zero":
            return None
        if self.means is not None:
            return self.means.expand(len(prompts), -1, -1)
        if self.same_length:
            pairs = zip(prompts.sequences(), prompts.positions, strict=True)
            return torch.stack([self._aligned(row)[at] for row, at in pairs])
        return torch.stack([self.outputs[self._other(row)][-1] for row in seen_tokens(prompts)])

    def _aligned(self, row: Int[Tensor, " position"]) -> Float[Tensor, "position head d_head"]:
        outputs = self.outputs[self._other(row)]
        places = torch.arange(len(row)) + len(outputs) - len(row)
        return outputs[places.clamp(min=0).to(outputs.device)]

    def _other(self, row: Int[Tensor, " position"]) -> int:
        """The number of the prompt that stands in for this one."""
        text = row.long().numpy().tobytes() + str(self.seed).encode()
        first = int.from_bytes(blake2b(text, digest_size=8).digest())
        for number in ((first + step) % len(self.others) for step in range(len(self.others))):
            other = self.others[number]
            fits = len(other) == len(row) or not self.same_length
            if fits and not torch.equal(other, row):
                return number
        length = f" of {len(row)} tokens" if self.same_length else ""
        raise ValueError(
            f"ablation: expected another prompt{length} to resample from, got none among the "
            f"{len(self.others)} that were given; use mode='mean' or 'zero'"
        )


def _of_each_length(prompts: Asked) -> Asked:
    """Some prompts of each length that there is, if they can be taken one by one."""
    if not isinstance(prompts, Prompts):
        return prompts.few(N_OTHERS)
    lengths = np.array([len(row) for row in prompts.sequences()])
    each = max(2, N_OTHERS // len(np.unique(lengths)))
    same = [np.flatnonzero(lengths == length) for length in np.unique(lengths)]
    return prompts[np.concatenate([numbers[spread(len(numbers), each)] for numbers in same])]


def seen_tokens(prompts: Asked, whole: bool = False) -> list[Int[Tensor, " _"]]:
    """Prompts up to their query positions, which a causal model sees; or whole."""
    pairs = zip(prompts.sequences(), prompts.positions, strict=True)
    return [row if whole else row[: at + 1] for row, at in pairs]
