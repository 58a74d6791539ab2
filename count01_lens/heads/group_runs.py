"""The model run with only the heads of each of many groups, without running it from its beginning.

Groups that agree in their first layers share the run of these. In the last layer, attention does
not depend on which of its heads are kept, and what follows it works on the query position alone:
there, every group is a sum of what its heads write, taken through the rest of the block, the real
final norm and the unembedding. So a model of one layer is run once for all its groups.

That this is what the model itself computes is tried out on a few groups and prompts; if it is not,
or if hooks are attached, whose effect is nobody's to guess, every group is run from its tokens on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.common.remembered import Remembered
from count01_lens.common.types import Array
from count01_lens.heads.guard import rounded_like
from count01_lens.heads.hook_runner import HookRunner
from count01_lens.heads.replacements import Replacement
from count01_lens.models.direct_path import DirectPath, precise
from count01_lens.models.fingerprint import (
    code_of,
    fingerprint,
    hooked_modules,
    overridden_methods,
)
from count01_lens.models.hooks import batches, hooks_attached, z_hook
from count01_lens.models.lens import (
    has_bridges,
    has_parallel_mlp,
    module_at,
    output_bias,
    run_block,
    run_mlp,
)
from count01_lens.tasks.prompts import Asked, Question

Masks = Bool[Array, "group head"]
Logits = Float[Array, "group prompt choice"]
# Is told, while groups are run, on how many more prompts how many of them were: their product.
Told = Callable[[int], object]
# Runs a model with only the heads of each of some groups, in portions: the name of a question, the
# numbers of some groups, and the logits of its choices, before any soft cap.
GroupLogits = Callable[[Masks, Told], Iterator[tuple[str, Int[Array, " group"], Logits]]]
Road = Callable[[Masks, Told], Iterator[Logits]]

_KEPT = 10_000_000  # numbers, of eight bytes each
_AT_ONCE = 4_000_000  # numbers: more do not fit a processor's cache
_FEW_PROMPTS, _FEW_GROUPS = 4, 6
_SMALL_VOCABULARY = 1024
_AGREES: Remembered[bool] = Remembered(most=1000)


class Kept(NamedTuple):
    """Prompts of one length, all of them in the same batch.

    `instead` is what replaces outputs, by layer.
    """

    some: list[int]
    tokens: Int[Tensor, "prompt position"]
    asked: Int[Tensor, " prompt"]
    instead: list[Tensor | None]


class Ending(NamedTuple):
    """What the last layer of a run starts from, at the query position of some prompts.

    Attributes:
        stream: the residual stream before it.
        base: what attention writes with all heads replaced.
        gains: what it writes more if a head is not replaced.
    """

    stream: Float[Tensor, "prompt d_model"]
    base: Float[Tensor, "prompt d_model"]
    gains: Float[Tensor, "head prompt d_model"]


def group_logits(
    runner: HookRunner, questions: Mapping[str, Question], replaced: Mapping[str, Replacement]
) -> GroupLogits:
    """Make the function that runs a model with only the heads of each of some groups."""

    def run(masks: Masks, told: Told) -> Iterator[tuple[str, Int[Array, " group"], Logits]]:
        # Groups that agree in their first layers stand side by side.
        order = np.lexsort(masks.T[::-1])
        for name, question in questions.items():
            done = 0
            road = _road(runner, question.test, question.choices, replaced[name])
            for logits in road(masks[order], told):
                yield name, order[done : done + len(logits)], logits
                done += len(logits)

    return run


class KeptRuns:
    """Runs no group twice, as long as the logits of those that were run are not too many to keep.

    Single heads, pairs and all heads but one are asked for first, and all groups later.
    """

    def __init__(self, run: GroupLogits, questions: Sequence[str]):
        self.run, self.questions = run, questions
        self.kept: dict[tuple[str, bytes], Float[Array, "prompt choice"]] = {}
        self.room = _KEPT

    def __call__(
        self, masks: Masks, told: Told
    ) -> Iterator[tuple[str, Int[Array, " group"], Logits]]:
        """Yield logits as the function does that runs groups: of those that are known, first."""
        keys = [mask.tobytes() for mask in masks]
        is_known = np.array(
            [all((name, key) in self.kept for name in self.questions) for key in keys]
        )
        known, others = np.flatnonzero(is_known), np.flatnonzero(~is_known)
        for name in self.questions if len(known) else ():
            logits = np.stack([self.kept[name, keys[i]] for i in known])
            told(logits.shape[0] * logits.shape[1])
            yield name, known, logits
        for name, numbers, logits in self.run(masks[others], told) if len(others) else ():
            if logits.size <= self.room:
                self.room -= logits.size
                self.kept |= {
                    (name, keys[i]): each for i, each in zip(others[numbers], logits, strict=True)
                }
            yield name, others[numbers], logits


def _road(
    runner: HookRunner, prompts: Asked, choices: Sequence[int], replacement: Replacement
) -> Road:
    """The fast way, where it gives what the model does; else the plain one."""
    plain = PlainRuns(runner, prompts, choices, replacement)
    model = runner.model
    odd = any(overridden_methods(module) for module in model.modules())
    if (
        odd
        or runner.interventions
        or hooked_modules(model)
        or model.cfg.positional_embedding_type == "shortformer"
        or torch.is_autocast_enabled("cpu")
        or torch.is_autocast_enabled("cuda")
    ):
        return plain

    def agree() -> bool:
        few = prompts.few(_FEW_PROMPTS)
        rng = np.random.default_rng(0)
        masks = rng.random((_FEW_GROUPS, runner.n_heads)) < np.linspace(0, 1, _FEW_GROUPS)[:, None]
        masks = masks[np.lexsort(masks.T[::-1])]
        options = (few, choices, replacement)
        try:
            one = np.concatenate(list(StreamRuns(runner, *options)(masks, _tell_nobody)))
        except Exception:
            if has_bridges():  # some blocks of other libraries want more than a stream
                return False
            raise
        other = np.concatenate(list(PlainRuns(runner, *options)(masks, _tell_nobody)))
        eps = torch.finfo(rounded_like(model)).eps
        size = max(1.0, float(np.abs(other).max()))
        return np.allclose(one, other, rtol=0, atol=min(1000 * eps, 0.1) * size)

    of = (fingerprint(model), code_of(model), model.W_U.dtype, replacement.mode)
    return StreamRuns(runner, prompts, choices, replacement) if _AGREES.recall(of, agree) else plain


def _tell_nobody(more: int) -> None:
    """Let what is tried out be no part of what is told."""


class PlainRuns:
    """Runs a model from its tokens on for every group: the reference."""

    def __init__(
        self,
        runner: HookRunner,
        prompts: Asked,
        choices: Sequence[int],
        replacement: Replacement,
    ):
        self.runner, self.prompts, self.choices = runner, prompts, list(choices)
        self.replace_by = None if replacement.mode == "zero" else replacement.in_layer
        self.uncap = DirectPath(runner.model).uncap

    def __call__(self, masks: Masks, told: Told) -> Iterator[Logits]:
        """Yield logits group by group."""
        for mask in masks:
            without = np.flatnonzero(~mask).tolist()
            logits = self.runner.logits(self.prompts, without, self.replace_by)
            told(len(logits))
            yield self.uncap(logits[None, :, self.choices].double().cpu().numpy())


class StreamRuns:
    """Runs a model layer by layer on residual streams that groups share."""

    def __init__(
        self,
        runner: HookRunner,
        prompts: Asked,
        choices: Sequence[int],
        replacement: Replacement,
    ):
        self.model, self.choices = runner.model, list(choices)
        self.path, self.n_prompts = DirectPath(runner.model), len(prompts)
        self.n_layers, self.n_heads = self.model.cfg.n_layers, self.model.cfg.n_heads
        layers = range(self.n_layers)
        zero = replacement.mode == "zero"
        self.batches = [
            Kept(
                some,
                tokens,
                asked,
                [None if zero else replacement.in_layer(layer, tokens) for layer in layers],
            )
            for some, tokens, asked in batches(self.model, prompts.sequences(), prompts.positions)
        ]

    def __call__(self, masks: Masks, told: Told) -> Iterator[Logits]:
        """Yield logits of groups, which have to be in lexical order, in portions."""
        d_model, n_last = self.model.cfg.d_model, self.n_heads
        prefixes, sizes = np.unique(masks[:, :-n_last], axis=0, return_counts=True)
        parts = np.split(masks[:, -n_last:], np.cumsum(sizes)[:-1])
        at_once = max(1, _AT_ONCE // max(self._size(kept) for kept in self.batches))
        together = max(1, _AT_ONCE // (self.n_prompts * d_model))
        for start in range(0, len(prefixes), at_once):
            some = prefixes[start : start + at_once]
            n_groups = int(sizes[start : start + at_once].sum())
            endings = []
            for kept in self.batches:
                endings.append(self._endings(kept, some))
                told(n_groups * len(kept.some))
            for i, part in enumerate(parts[start : start + at_once]):
                for heads in np.array_split(part, -(-len(part) // together)):
                    logits = np.empty((len(heads), self.n_prompts, len(self.choices)))
                    for kept, ending in zip(self.batches, endings, strict=True):
                        found = self._finish(ending[i], torch.from_numpy(heads))
                        logits[:, kept.some] = found.double().cpu().numpy()
                    yield self.path.uncap(logits)

    def _size(self, kept: Kept) -> int:
        """How many numbers the largest part of a block's run has: stream, MLP or attention."""
        cfg = self.model.cfg
        wide = max(cfg.d_model, cfg.d_mlp or 0, cfg.n_heads * max(kept.tokens.shape[1], cfg.d_head))
        return int(kept.tokens.numel() * wide)

    @torch.no_grad()
    def _endings(self, kept: Kept, prefixes: Masks) -> list[Ending]:
        """Run all layers but the last for each choice of heads in them."""
        stream, _, _, attention_mask = self.model.input_to_embed(kept.tokens)
        stream = stream.unsqueeze(0)  # of every different choice of heads so far
        known = np.zeros(len(prefixes), dtype=int)
        for layer in range(self.n_layers - 1):
            so_far = prefixes[:, : (layer + 1) * self.n_heads]
            different, first, number = np.unique(
                so_far, axis=0, return_index=True, return_inverse=True
            )
            heads = torch.from_numpy(different[:, layer * self.n_heads :])
            stream = self._layer(layer, stream[known[first]], heads, kept, attention_mask)
            known = number.reshape(-1)
        last = self.n_layers - 1
        _, z = self._block(last, stream, None, kept, attention_mask)
        rows = torch.arange(len(kept.tokens), device=kept.tokens.device)
        at, query = precise(z[:, rows, kept.asked]), stream[:, rows, kept.asked]
        instead = torch.zeros_like(at[0])
        if (other := kept.instead[last]) is not None:
            instead = other.to(at).expand(z.shape[1:])[rows, kept.asked]
        W_O = precise(self.model.blocks[last].attn.W_O)
        gains = einsum(at - instead, W_O, "group prompt head d, head d r -> group head prompt r")
        base = einsum(instead, W_O, "prompt head d, head d r -> prompt r")
        base = base + precise(output_bias(self.model, last))
        return [Ending(query[number], base, gains[number]) for number in known]

    def _layer(
        self,
        layer: int,
        stream: Float[Tensor, "group prompt position d_model"],
        heads: Bool[Tensor, "group head"],
        kept: Kept,
        attention_mask: Tensor | None,
    ) -> Float[Tensor, "group prompt position d_model"]:
        """Run a layer with some heads kept; where none is, its attention need not be computed."""
        some = heads.any(dim=1)
        after = torch.empty_like(stream)
        if some.any():
            after[some] = self._block(layer, stream[some], heads[some], kept, attention_mask)[0]
        if not some.all():
            attention = self.model.blocks[layer].attn
            written = precise(output_bias(self.model, layer))
            if (instead := kept.instead[layer]) is not None:
                form = "... head d, head d r -> ... r"
                written = written + einsum(precise(instead), precise(attention.W_O), form)
            quiet = stream[~some]
            everywhere = written.to(stream).expand(stream.shape[1:])
            found = self._after_attention(
                layer, quiet.flatten(0, 1), everywhere.repeat(len(quiet), 1, 1)
            )
            after[~some] = found.reshape(quiet.shape)
        return after

    def _block(
        self,
        layer: int,
        stream: Float[Tensor, "group prompt position d_model"],
        heads: Bool[Tensor, "group head"] | None,
        kept: Kept,
        attention_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Run a block with some heads kept, or all; return the stream after it, and its outputs."""
        groups = len(stream)
        found: list[Tensor] = []

        def at_outputs(z: Float[Tensor, "row position head d_head"], hook: Any) -> Tensor:
            z = rearrange(z, "(group prompt) ... -> group prompt ...", group=groups)
            found.append(z)
            if heads is not None:
                instead = kept.instead[layer]
                other = torch.zeros_like(z[0]) if instead is None else instead.to(z).expand_as(z[0])
                z = torch.where(heads.to(z.device)[:, None, None, :, None], z, other)
            return rearrange(z, "group prompt ... -> (group prompt) ...")

        mask = None if attention_mask is None else attention_mask.repeat(groups, 1)
        rows = rearrange(stream, "group prompt ... -> (group prompt) ...")
        with hooks_attached(self.model, [(z_hook(layer), at_outputs)]):
            after = run_block(self.model, layer, rows, mask)
        return rearrange(after, "(group prompt) ... -> group prompt ...", group=groups), found[0]

    @torch.no_grad()
    def _finish(
        self, ending: Ending, heads: Bool[Tensor, "group head"]
    ) -> Float[Tensor, "group prompt choice"]:
        """Add up what the kept heads of the last layer write, and go on to the logits."""
        kept = heads.to(ending.gains)
        written = einsum(kept, ending.gains, "group head, head prompt r -> group prompt r")
        stream = self._after_attention(
            self.n_layers - 1, ending.stream.unsqueeze(0), (ending.base + written).to(ending.stream)
        )
        model = self.model
        if model.cfg.normalization_type is not None:
            stream = model.ln_final(stream)
        if model.cfg.d_vocab_out <= _SMALL_VOCABULARY:
            logits = model.unembed(stream)[..., self.choices]
        else:
            logits = stream @ model.W_U[:, self.choices] + model.b_U[self.choices]
        return self.path.capped(logits)

    def _after_attention(
        self,
        layer: int,
        stream: Float[Tensor, "#row position d_model"],
        written: Float[Tensor, "row position d_model"],
    ) -> Float[Tensor, "row position d_model"]:
        """What a block computes from what its attention writes, as `TransformerBlock` does."""
        block, cfg = self.model.blocks[layer], self.model.cfg
        norm = self.path.norm_after_attention(layer)
        if norm is not None:
            written = module_at(self.model, norm)(written)
        if cfg.attn_only:
            return stream + written
        if has_parallel_mlp(self.model):
            return stream + written + run_mlp(block, block.ln2(stream))
        middle = stream + written
        before_mlp = middle if norm == f"blocks.{layer}.ln1" else block.ln2(middle)
        return middle + run_mlp(block, before_mlp)
