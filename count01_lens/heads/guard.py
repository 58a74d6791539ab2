"""What a runner computes, held against the model itself on a few prompts before it is believed.

`counts.applies` does this for tables over counts. Here are the two other roads on which a number
could be wrong without a word: direct logit attribution of models that are run by hooks, and
interventions that are applied to tables. A model is checked once, unless hooks are attached to it.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.precision import at_least_float32
from count01_lens.common.remembered import Remembered
from count01_lens.common.types import HookedTransformer
from count01_lens.heads.visits import Visit, Visits, in_order
from count01_lens.models.direct_path import Activations, DirectPath, precise
from count01_lens.models.fingerprint import (
    code_of,
    exact_copy,
    fingerprint,
    hooked_modules,
    overridden_methods,
)
from count01_lens.models.hooks import ablation_hooks, z_hook
from count01_lens.models.lens import named_modules, rounds_to_float32
from count01_lens.tasks.prompts import Asked, Prompts

N_PROMPTS = 4
_CHECKED: Remembered[None] = Remembered(most=1000)


class TwoRoads(NamedTuple):
    """Something computed in two ways.

    Attributes:
        dtype: the precision that a model ran in.
        size: how large the numbers are that are added up.
    """

    what: str
    one: Tensor
    other: Tensor
    dtype: torch.dtype
    size: Tensor

    def check(self) -> None:
        """Raise if the two differ by more than rounding."""
        off = (precise(self.one) - precise(self.other)).abs().amax()
        rounding = min(1000 * torch.finfo(self.dtype).eps, 0.1)
        if not bool(off <= rounding * self.size):
            raise ValueError(
                f"{self.what}: expected the same result in two ways, got numbers {float(off):.2g} "
                "apart, because of a module or a hook that was added to the model, or of a part of "
                "it that this library does not know: remove it, or measure this model with "
                "head_outputs and ablate_heads only"
            )


def check_attribution(
    model: HookedTransformer,
    try_out: Callable[[HookedTransformer], Visits],
    prompts: Asked,
    under: Iterable[type] = (),
) -> None:
    """Raise unless heads reach the logits of a model in the way that `DirectPath` says.

    A model is tried once under each kind of interventions, or each time if hooks are attached.
    """
    missing = [name for name in DirectPath(model).hooks if name not in model.hook_dict]
    if missing:
        raise ValueError(
            f"model: expected the hook points {', '.join(missing)} on the way from its heads to "
            "its logits, got none: what heads write cannot be followed without them; measure this "
            "model with head_outputs and ablate_heads only"
        )

    def check() -> None:
        tried = model
        if at_least_float32(model.W_U.dtype) != model.W_U.dtype:
            _check_nothing_after_heads(model)
            tried = exact_copy(model)
        for both in _attribution(tried, try_out(tried), _one_by_one(prompts.few(N_PROMPTS))):
            both.check()

    if hooked_modules(model):
        check()
    else:
        checked_once("attribution", (fingerprint(model), code_of(model), *under), check)


def rounded_like(model: HookedTransformer) -> torch.dtype:
    """The precision in which a model computes, at its lowest."""
    dtype: torch.dtype = model.W_U.dtype
    lower = dtype == torch.float64 and rounds_to_float32(model)
    return torch.float32 if lower else dtype


def _check_nothing_after_heads(model: HookedTransformer) -> None:
    """Raise if hooks or replaced methods may change what heads write.

    Rounding to half precision would hide it, and a copy in float64 does not have it.
    """
    late = re.compile(r"hook_(result|attn_out|resid_mid|resid_post)|ln1_post|ln_final|unembed")
    found = [name for name in hooked_modules(model) if late.search(name)]
    found += [name for name, module in named_modules(model) if overridden_methods(module)]
    if found:
        raise ValueError(
            "direct logit attribution: expected no hooks and no replaced methods after the heads "
            f"of a model in half precision, got some at {', '.join(found)}; remove them, or use "
            "model.float()"
        )


def checked_once(what: str, of: Hashable, check: Callable[[], None]) -> None:
    """Check something of something, which raises if it is not so, unless it was so before."""
    _CHECKED.recall((what, of), check)


def _attribution(
    model: HookedTransformer, visits: Visits, each: list[Prompts]
) -> Iterator[TwoRoads]:
    path, layers, dtype = DirectPath(model), range(model.cfg.n_layers), rounded_like(model)
    names = sorted({*path.hooks, *(name for layer in layers for name in _stream(model, layer))})
    every_head = ablation_hooks(model, range(len(layers) * model.cfg.n_heads))
    in_batches = _twice(each)
    logits, at = _together(visits(in_batches, names, []))
    _, without = _together(visits(in_batches, names, every_head))
    alone = torch.cat([_together(visits(one, [], []))[0] for one in each]).repeat(2, 1)
    yield TwoRoads("logits in a batch, and one by one", logits, alone, dtype, logits.abs().amax())
    size = (path.read(at).abs() @ precise(model.W_U).abs()).amax() + model.b_U.abs().amax()
    read = path.capped(path.logits(at))
    yield TwoRoads("logits, and the residual stream through W_U", logits, read, dtype, size)
    for layer in layers:
        z, ablated = at[z_hook(layer)], without[z_hook(layer)]
        what = f"outputs of heads of layer {layer} that are set to zero, and zero"
        yield TwoRoads(what, ablated, torch.zeros_like(z), dtype, z.abs().amax())
        written, added = path.written(z, at, layer), _added(model, at, layer)
        # A hook may add a constant, as steering vectors are, but not where a norm comes after it.
        frozen = path.norm_after_attention(layer) is not None
        rest = path.written_by_bias(at, layer) if frozen else _added(model, without, layer)
        size = written.abs().sum(dim=1).amax() + precise(at[_stream(model, layer)[0]]).abs().amax()
        what = f"what attention of layer {layer} adds, and its heads through W_O"
        yield TwoRoads(what, added, written.sum(dim=1) + rest, dtype, size)


def _together(visits: Iterable[Visit]) -> tuple[Float[Tensor, "prompt token"], dict[str, Tensor]]:
    """Logits and activations of all prompts."""
    parts = list(visits)
    logits = in_order((part.some, part.logits) for part in parts)
    names = parts[0].at
    return logits, {name: in_order((p.some, p.at[name]) for p in parts) for name in names}


def _one_by_one(prompts: Asked) -> list[Prompts]:
    """Every prompt for itself."""
    parts = zip(prompts.sequences(), prompts.answers.tolist(), prompts.positions, strict=True)
    return [Prompts([tokens], [answer], [position]) for tokens, answer, position in parts]


def _twice(each: list[Prompts]) -> Prompts:
    """All of them twice: prompts of one length are run as a batch."""
    tokens = [row for one in each for row in one.sequences()]
    answers = [answer for one in each for answer in one.answers.tolist()]
    positions = [position for one in each for position in one.positions]
    return Prompts(tokens * 2, answers * 2, positions * 2)


def _stream(model: HookedTransformer, layer: int) -> list[str]:
    """Hook points of the residual stream before and after a layer, and of what its MLP adds."""
    last = layer == model.cfg.n_layers - 1
    after = f"blocks.{layer}.hook_resid_post" if last else f"blocks.{layer + 1}.hook_resid_pre"
    mlp = [] if model.cfg.attn_only else [f"blocks.{layer}.hook_mlp_out"]
    return [f"blocks.{layer}.hook_resid_pre", after, *mlp]


def _added(
    model: HookedTransformer, at: Activations, layer: int
) -> Float[Tensor, "prompt d_model"]:
    """What attention of a layer adds to the residual stream."""
    before, after, *mlp = (precise(at[name]) for name in _stream(model, layer))
    return after - before - sum(mlp)
