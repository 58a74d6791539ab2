"""What a runner computes, held against the model itself on a few prompts before it is believed.

`counts.applies` does this for tables over counts. Here are the two other roads on which a number
could be wrong without a word: direct logit attribution of models that are run by hooks, and
interventions that are applied to tables. A model is checked once, unless hooks are attached to it.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.remembered import Remembered
from count01_lens.common.types import HookedTransformer
from count01_lens.models.direct_path import Activations, DirectPath, precise
from count01_lens.models.fingerprint import fingerprint, hooked_modules
from count01_lens.models.hooks import Hook, ablation_hooks, z_hook
from count01_lens.tasks.prompts import Asked, Prompts

N_PROMPTS = 4
_CHECKED: Remembered[None] = Remembered(most=1000)

# Runs a model on prompts: logits and activations at the query positions, batch by batch.
Visits = Callable[
    [Asked, list[str], Sequence[tuple[str, Hook]]],
    Iterable[tuple[Float[Tensor, "prompt token"], dict[str, Tensor]]],
]


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
                f"{self.what}: expected the same by two roads, got numbers {float(off):.2g} apart; "
                "a module or a hook that was put into the model comes in between: take it out, or "
                "measure this model with head_outputs and ablate_heads only"
            )


def check_attribution(
    model: HookedTransformer, visits: Visits, prompts: Asked, under: Iterable[type] = ()
) -> None:
    """Raise unless heads reach the logits of a model in the way that `DirectPath` says.

    A model is tried once under each kind of interventions, or each time if hooks are attached.
    """

    def check() -> None:
        for both in _attribution(model, visits, prompts.few(N_PROMPTS)):
            both.check()

    if hooked_modules(model):
        check()
    else:
        checked_once("attribution", (fingerprint(model), *under), check)


def checked_once(what: str, of: Hashable, check: Callable[[], None]) -> None:
    """Check something of something, which raises if it is not so, unless it was so before."""
    _CHECKED.recall((what, of), check)


def _attribution(model: HookedTransformer, visits: Visits, prompts: Asked) -> Iterator[TwoRoads]:
    path, layers, dtype = DirectPath(model), range(model.cfg.n_layers), model.W_U.dtype
    names = sorted({*path.hooks, *(name for layer in layers for name in _stream(model, layer))})
    every_head = ablation_hooks(model, range(len(layers) * model.cfg.n_heads))
    ((logits, at),) = visits(prompts, names, [])
    ((_, without),) = visits(prompts, names, every_head)
    alone = torch.cat([logits for one in _one_by_one(prompts) for logits, _ in visits(one, [], [])])
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
        frozen = path.has_norm_after_attention(layer)
        rest = path.written_by_bias(at, layer) if frozen else _added(model, without, layer)
        size = written.abs().sum(dim=1).amax() + precise(at[_stream(model, layer)[0]]).abs().amax()
        what = f"what attention of layer {layer} adds, and its heads through W_O"
        yield TwoRoads(what, added, written.sum(dim=1) + rest, dtype, size)


def _one_by_one(prompts: Asked) -> list[Prompts]:
    """Every prompt for itself, without padding."""
    parts = zip(prompts.sequences(), prompts.answers.tolist(), prompts.positions, strict=True)
    return [Prompts([tokens], [answer], [position]) for tokens, answer, position in parts]


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
