"""Hooks on any HookedTransformer: attached for a while, taken away for certain.

Heads are counted through the layers: head h of layer l is number `l * n_heads + h`.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import is_int
from count01_lens.models.stored import Model

HeadName = int | tuple[int, int]
Hook = Callable[..., Tensor]
# Module, kind, function, and options of torch's `register_<kind>`.
TorchHook = tuple[torch.nn.Module, str, Callable[..., Any], dict[str, bool]]
_TOKENS_AT_ONCE, _FEWEST_ROWS = 8192, 16


def head_names(model: Model) -> list[tuple[int, int]]:
    """List every head as (layer, head), in the order of all per-head results."""
    return list(itertools.product(range(model.cfg.n_layers), range(model.cfg.n_heads)))


def z_hook(layer: int) -> str:
    """Name the hook point of the head outputs of a layer."""
    return f"blocks.{layer}.attn.hook_z"


def ablation_hooks(
    model: HookedTransformer,
    heads: Iterable[HeadName],
    *,
    means: Float[Tensor, "head d_head"] | None = None,
) -> list[tuple[str, Hook]]:
    """Make `fwd_hooks` that replace the outputs of heads, at all positions, by means or zeros."""
    n = model.cfg.n_heads
    values = None if means is None else lambda layer: means[layer * n : (layer + 1) * n]
    return replacing_hooks(model, heads, values)


def replacing_hooks(
    model: HookedTransformer,
    heads: Iterable[HeadName],
    values: Callable[[int], Tensor] | None = None,
) -> list[tuple[str, Hook]]:
    """Make `fwd_hooks` that replace the outputs of heads by values of their layer, or by zeros.

    Values of a layer are [row, position, head, d_head], or anything that broadcasts to it.
    """
    n_heads = model.cfg.n_heads

    def replace(z: Tensor, hook: Any, layer: int, chosen: list[int]) -> Tensor:
        z = z.clone()
        if values is None:
            z[:, :, chosen] = 0.0
        else:
            z[:, :, chosen] = values(layer)[..., chosen, :].to(z)
        return z

    hooks: list[tuple[str, Hook]] = []
    numbers = check_heads(model, heads)
    for layer, group in itertools.groupby(numbers, key=lambda number: number // n_heads):
        chosen = [number % n_heads for number in group]
        hooks.append((z_hook(layer), partial(replace, layer=layer, chosen=chosen)))
    return hooks


@contextmanager
def hooks_attached(
    model: HookedTransformer, hooks: Sequence[tuple[str, Hook]], *, first: Sequence[str] = ()
) -> Iterator[HookedTransformer]:
    """Attach hooks for the length of a `with` block, and take away exactly these at its end.

    Hooks that were there before stay, and so do these if TransformerLens resets its own inside.
    At hook points named in `first` they come before those that are there.
    """
    known = model.hook_dict
    attached = []
    try:
        for name, hook in hooks:
            point, mine = known[name], _named(hook)
            attached.append((point, repr(mine)))
            # By TransformerLens, which splits what a bridge holds into heads.
            point.add_hook(mine, is_permanent=True, prepend=name in first)
        yield model
    finally:
        for point, name in attached:
            _take_away(point, name)


def _named(hook: Hook) -> Hook:
    """Wrap a hook in a function that no other is: TransformerLens names hooks after their repr."""

    def mine(value: Tensor, /, **named: Any) -> Tensor:
        return hook(value, **named)

    return mine


def _take_away(point: Any, name: str) -> None:
    """Take a hook away, known by its name: Ctrl-C may have come before there was a handle."""
    # A list first: another thread may register hooks meanwhile.
    keys = [key for key, known in list(point._forward_hooks.items()) if known.__name__ == name]
    point.fwd_hooks = [handle for handle in point.fwd_hooks if handle.hook.id not in keys]
    for key in keys:
        point._forward_hooks_with_kwargs.pop(key, None)
        point._forward_hooks_always_called.pop(key, None)
        del point._forward_hooks[key]


@contextmanager
def hooks_for_one_pass(
    model: HookedTransformer, hooks: Sequence[tuple[str, Hook]], *, first: Sequence[str] = ()
) -> Iterator[HookedTransformer]:
    """Attach hooks for the one pass that is run in a `with` block, and for no other.

    What other threads run on the model meanwhile, or a hook inside the pass, is left alone.
    """
    here, depth = threading.get_ident(), 0

    def count(step: int, *_: Any) -> None:
        nonlocal depth
        depth += step if threading.get_ident() == here else 0

    def once(hook: Hook, value: Tensor, /, **named: Any) -> Tensor:
        return hook(value, **named) if depth == 1 and threading.get_ident() == here else value

    counting: list[TorchHook] = [
        (model, "forward_pre_hook", partial(count, 1), {}),
        (model, "forward_hook", partial(count, -1), {"always_call": True}),
    ]
    mine = [(name, partial(once, hook)) for name, hook in hooks]
    with torch_hooks(counting), hooks_attached(model, mine, first=first):
        yield model


@contextmanager
def torch_hooks(hooks: Iterable[TorchHook]) -> Iterator[None]:
    """Register plain torch hooks, given with their module and kind, for a `with` block.

    They are found again by what they are, not by torch's handles: Ctrl-C may come before there is a
    handle, and one that goes down with a cycle of references no longer knows where its hook is.
    """
    attached = []
    try:
        for module, kind, function, options in hooks:
            attached.append((module, kind, function))
            getattr(module, f"register_{kind}")(function, **options)
        yield
    finally:
        for module, kind, function in attached:
            registry = getattr(module, f"_{kind}s")
            # A list first: another thread may register hooks meanwhile.
            for key in [key for key, known in list(registry.items()) if known is function]:
                for option in ("with_kwargs", "always_called"):
                    getattr(module, f"_{kind}s_{option}", {}).pop(key, None)
                del registry[key]


def check_heads(model: Model, heads: Iterable[HeadName]) -> list[int]:
    """Return the numbers of heads given as numbers or (layer, head) pairs; raise if there is none.

    A plain number names a head of a one-layer model, or counts through the layers of a deeper one.
    """
    return head_numbers(heads, model.cfg.n_layers, model.cfg.n_heads)


def head_numbers(heads: Iterable[HeadName], n_layers: int, n_heads: int) -> list[int]:
    """Do the same for any model of some layers with some heads each."""
    numbers = set()
    for head in several_heads(heads):
        layer, number = head if isinstance(head, tuple) else divmod(head, n_heads)
        if not (0 <= layer < n_layers and 0 <= number < n_heads):
            raise ValueError(
                f"heads: there is no head {head!r}; the model has {n_layers} layer(s) of "
                f"{n_heads} heads, numbered 0 to {n_layers * n_heads - 1}"
            )
        numbers.add(int(layer * n_heads + number))
    return sorted(numbers)


def several_heads(heads: Iterable[HeadName]) -> tuple[HeadName, ...]:
    """Return heads as they were given; raise unless they are several that a model could have."""
    if isinstance(heads, str) or not isinstance(heads, Iterable):
        raise TypeError(f"heads: expected several such as [0, 3] or [(0, 3)], got {heads!r}")
    given = tuple(heads)
    for head in given:
        pair = isinstance(head, tuple) and len(head) == 2 and all(map(is_int, head))
        if not pair and not is_int(head):
            raise TypeError(f"heads: expected numbers or (layer, head) pairs, got {head!r}")
    if not given:
        raise ValueError("heads: expected at least one head, got none")
    return given


def batches(
    model: HookedTransformer,
    sequences: Sequence[Int[Tensor, " _"]],
    positions: Sequence[int],
) -> Iterator[tuple[list[int], Int[Tensor, "sample position"], Int[Tensor, " sample"]]]:
    """Yield sequences of equal length together: their numbers, tokens, and asked positions.

    A causal model does not see what follows a position, so it gets sequences cut off there. Nothing
    is padded: a hook on the last token, or one that averages over tokens, sees each sequence as if
    it were run alone.
    """
    causal = model.cfg.attention_dir == "causal"
    lengths = [at + 1 for at in positions] if causal else [len(row) for row in sequences]
    if max(lengths) > model.cfg.n_ctx:
        raise ValueError(
            f"a sentence has {max(lengths)} tokens, the model reads {model.cfg.n_ctx} (n_ctx): "
            "expected shorter sentences"
        )
    order = sorted(range(len(sequences)), key=lengths.__getitem__)
    for length, same in itertools.groupby(order, key=lengths.__getitem__):
        numbers = list(same)
        together = max(_FEWEST_ROWS, _TOKENS_AT_ONCE // length)
        for start in range(0, len(numbers), together):
            some = numbers[start : start + together]
            tokens = torch.stack([sequences[number][:length] for number in some])
            asked = torch.tensor([positions[number] for number in some])
            yield some, tokens.to(model.W_E.device), asked.to(model.W_E.device)
