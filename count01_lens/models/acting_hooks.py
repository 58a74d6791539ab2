"""That hooks act is tried out before anything is believed that is measured by them.

A hook point can be there, hand out a value, take another one back, and not use it: no error, and
numbers of a model that was never changed. So the first time that a model is measured it is run once
on a few tokens, with edits at every hook point that the library relies on, in every layer, and what
comes after each has to follow from what was put in:

* `hook_attn_scores` (TransformerLens 3): the pattern is the softmax of the edited scores.
* `hook_pattern`: outputs of heads are the edited weights times `hook_v`.
* `hook_z`: what attention writes is the edited outputs times W_O, head by head.
"""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.precision import at_least_float32, without_autocast
from count01_lens.common.types import HookedTransformer
from count01_lens.models.direct_path import DirectPath
from count01_lens.models.hooks import Hook, hooks_attached, hooks_for_one_pass, z_hook
from count01_lens.models.lens import attention_outputs, output_bias, scores_act

_N_TOKENS = 4
Name = Literal["attn_scores", "pattern", "z"]
# What was found of models, with that which a user could have replaced since.
_FOUND: WeakKeyDictionary[Any, tuple[tuple[int, ...], dict[str, str]]] = WeakKeyDictionary()


def check_hooks_act(model: HookedTransformer, *names: Name) -> None:
    """Raise unless edits at some hook points of a model's attention do what they should.

    A model is run once for all of them; it is run again if its attention was replaced.
    """
    parts = tuple(_parts(model))
    known, dead = _FOUND.get(model, ((), {}))
    if known != parts:
        dead = _without_effect(model)
        _FOUND[model] = (parts, dead)
    for name in names:
        if name in dead:
            raise ValueError(
                f"model: expected edits at hook_{name} to act, got a model in which they do not "
                f"({dead[name]}), so that what they measure would be silently wrong; use a model "
                "whose attention TransformerLens itself computes"
            )


def edits_needed() -> tuple[Name, ...]:
    """Hook points at which attention is patched, and tokens are multiplied."""
    return ("attn_scores", "pattern") if scores_act() else ("pattern",)


def _without_effect(model: HookedTransformer) -> dict[str, str]:
    """Hook points at which edits do not do what they should, and what was found there."""
    return {
        consequence.name: reason
        for layer, seen in enumerate(_edited_run(model))
        for consequence in _consequences(model, layer, seen)
        if (reason := consequence.reason) is not None
    }


def _parts(model: HookedTransformer) -> Iterator[int]:
    points = model.hook_dict
    for layer in range(model.cfg.n_layers):
        for module in model.blocks[layer].attn.modules():
            yield from (id(module), id(type(module).forward), id(vars(module).get("forward")))
        yield from (id(points[name]) for name in (_point(layer, "pattern"), z_hook(layer)))


def _point(layer: int, name: str) -> str:
    return f"blocks.{layer}.attn.hook_{name}"


@torch.no_grad()
@without_autocast
def _edited_run(model: HookedTransformer) -> list[dict[str, Tensor]]:
    """Run a model with edits everywhere; give what came to each hook point, and what left it."""
    seen: list[dict[str, Tensor]] = [{} for _ in range(model.cfg.n_layers)]
    before: list[tuple[str, Hook]] = []
    after: list[tuple[str, Hook]] = []

    def note(layer: int, name: str, value: Tensor, hook: Any) -> Tensor:
        seen[layer][name] = value.detach().clone()
        return value

    def edit(layer: int, name: str, value: Tensor, hook: Any) -> Tensor:
        changed = _edits[name](value)
        seen[layer][f"edited {name}"] = changed.detach().clone()
        return changed

    for layer in range(model.cfg.n_layers):
        # Hooks of the user stay and take part: what comes is noted before them, and edits after.
        edited = ["pattern", "z", *(["attn_scores"] if scores_act() else [])]
        for name in edited:
            before.append((_point(layer, name), partial(note, layer, name)))
            after.append((_point(layer, name), partial(edit, layer, name)))
        after.append((_point(layer, "v"), partial(note, layer, "v")))
        for n, name in enumerate(attention_outputs(layer)):
            if name in model.hook_dict:
                before.append((name, partial(note, layer, f"out {n}")))
    length = min(_N_TOKENS, model.cfg.n_ctx)
    tokens = torch.arange(length, device=model.W_E.device)[None] % model.cfg.d_vocab
    first = [name for name, _ in before]
    with warnings.catch_warnings():
        # Where TransformerLens 4 knows that an edit is lost, it says so; so shall we.
        warnings.filterwarnings("ignore", r"A hook on .* returned a modified tensor", UserWarning)
        with hooks_attached(model, before, first=first), hooks_for_one_pass(model, after):
            model(tokens)
    return seen


def _edit_scores(
    scores: Float[Tensor, "sample head query key"],
) -> Float[Tensor, "sample head query key"]:
    """Move attention to the first token, by another amount in every head."""
    changed = scores.clone()
    changed[..., 0] += torch.linspace(0.5, 1.0, scores.shape[1]).to(scores)[:, None]
    return changed


def _edit_pattern(
    pattern: Float[Tensor, "sample head query key"],
) -> Float[Tensor, "sample head query key"]:
    """Give half of the attention to the first token."""
    changed = pattern * 0.5
    changed[..., 0] += 0.5
    return changed


def _edit_outputs(
    outputs: Float[Tensor, "sample position head d_head"],
) -> Float[Tensor, "sample position head d_head"]:
    """Add to each head and coordinate another number."""
    n = outputs.shape[2] * outputs.shape[3]
    return outputs + torch.linspace(0.5, 1.0, n).reshape(outputs.shape[2:]).to(outputs)


_edits = {"attn_scores": _edit_scores, "pattern": _edit_pattern, "z": _edit_outputs}


class Consequence(NamedTuple):
    """What came after an edit at a hook point, what should have come, and of which size it is."""

    name: Name
    layer: int
    got: Tensor
    expected: Tensor
    size: Tensor
    rounding: float

    @property
    def reason(self) -> str | None:
        """How what came differs, if it does."""
        if self.got.shape != self.expected.shape:
            return (
                f"what follows it in layer {self.layer} is {list(self.got.shape)} instead of "
                f"{list(self.expected.shape)}"
            )
        off = (self.got - self.expected).abs().max()
        # What is not finite does not tell anything.
        if bool(off > self.rounding * self.size):
            return f"what follows it in layer {self.layer} is {float(off):.2g} off"
        return None


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) if one.shape == other.shape else torch.inf


def _consequences(
    model: HookedTransformer, layer: int, seen: dict[str, Tensor]
) -> Iterator[Consequence]:
    """What has to follow from the edits of a layer."""
    came = [value for name, value in seen.items() if name.startswith("out ")]
    missing = {"pattern", "z", "v"} - seen.keys() | ({"attn_out"} if not came else set())
    if missing:
        points = ", ".join(f"hook_{name}" for name in sorted(missing))
        raise ValueError(
            "model: expected every hook point of its heads to be reached in a run, got nothing at "
            f"{points} of layer {layer}; use a model whose attention TransformerLens itself "
            "computes"
        )
    rounding = min(1e4 * torch.finfo(seen["z"].dtype).eps, 0.05)
    values = {name: value.to(at_least_float32(value.dtype)) for name, value in seen.items()}
    if scores_act() and not model.cfg.use_attention_sinks:
        softmax = values["edited attn_scores"].softmax(dim=-1)
        one = softmax.new_ones(())
        yield Consequence("attn_scores", layer, values["pattern"], softmax, one, rounding)
    v = values["v"]
    v = v.repeat_interleave(model.cfg.n_heads // v.shape[2], dim=2)  # shared by several heads
    form = "sample head query key, sample key head d -> sample query head d"
    read, size = einsum(values["edited pattern"], v, form), v.abs().max()
    yield Consequence("pattern", layer, values["z"], read, size, rounding)
    if scores_act() and DirectPath(model).norm_after_attention(layer) is not None:
        return  # what is written goes through a norm, which `heads.guard` follows
    z, W_O = values["edited z"], model.blocks[layer].attn.W_O.detach().to(v)
    if z.shape[2:] != W_O.shape[:2]:
        raise ValueError(
            f"model: expected heads whose outputs are read by W_O {list(W_O.shape[:2])}, got "
            f"outputs of {list(z.shape[2:])} in layer {layer}; this library does not know such "
            "heads"
        )
    b_O = output_bias(model, layer).detach().to(v)
    form = "sample position head d, head d r -> sample position r"
    size = (einsum(z.abs(), W_O.abs(), form) + b_O.abs()).max()
    written = einsum(z, W_O, form) + b_O
    nearest = min((value.to(v) for value in came), key=lambda value: _apart(value, written))
    yield Consequence("z", layer, nearest, written, size, rounding)
