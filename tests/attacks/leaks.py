"""Calls that fail on purpose, and what they leave behind: hooks, flags, random states, memory.

After every failure the model and the process must be as they were before it. Out of reach of Python
code is an interrupt in the microseconds in which a context manager is taking its hooks away.
"""

import gc
import itertools
import json
import linecache
import math
import os
import random
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.modules import module as torch_module

import count01_lens as cl
from count01_lens.common.threads import one_thread
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.compact import compact_hooks, compact_tokens
from count01_lens.models.hooks import head_names, hooks_attached
from count01_lens.models.lens import has_bridges, is_own_hook, parameters_of
from count01_lens.tasks.dataset import SplitSpec, make_splits
from tests.lens_versions import made

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(cl.__file__).parent)
CLEAN = "nothing left"
SENTENCE = "0112="
TOKENS = torch.tensor([[0, 1, 2, 2, 3, 4]])
COUNTS = torch.tensor([[1, 2, 1], [3, 0, 1]])  # as many tokens as in `SENTENCE`
TINY = make_splits(
    0,
    train=SplitSpec(size=120, zeros_and_ones=(0, 6), twos=(0, 4)),
    test=SplitSpec(size=40, zeros_and_ones=(0, 7), twos=(0, 5)),
)
Way = Callable[[np.random.Generator, HookedTransformer], None]


class Pressed(KeyboardInterrupt):
    """Ctrl-C of a case; a plain KeyboardInterrupt is the person in front of the screen."""


@cache
def models() -> tuple[HookedTransformer, HookedTransformer]:
    """One that can be run on counts, and one that cannot, with hooks of the user's own."""
    small = cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3, n_ctx=64), seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        deep = made(
            n_layers=2, d_model=6, n_heads=3, d_head=2, n_ctx=64, d_vocab=8, d_mlp=4, act_fn="relu"
        )  # fmt: skip
    parameters_of(small)["unembed.W_U"].requires_grad_(False)
    parameters_of(deep)["blocks.1.attn.W_Q"].requires_grad_(False)
    deep.add_hook("blocks.0.attn.hook_z", lambda z, hook: z * 1.5)
    deep.blocks[1].mlp.hook_post.add_perma_hook(lambda x, hook: x + 0.25)
    deep.blocks[1].register_forward_hook(
        lambda module, inputs, output: (output[0] * 2,) if has_bridges() else output * 2
    )
    return small, deep


def state_of(model: HookedTransformer) -> dict[str, Any]:
    """All that a failing call might change, by name, in values that can be compared."""
    return {
        "hooks": [_hooks_of(module) for module in model.modules()],
        "TransformerLens hooks": [
            ([id(handle) for handle in point.fwd_hooks], [id(handle) for handle in point.bwd_hooks])
            for point in model.hook_points()
        ],
        "hook contexts": [sorted(map(str, point.ctx)) for point in model.hook_points()],
        "flags": (
            model.context_level,
            getattr(model, "is_caching", None),
            str(model.cfg.to_dict()),
        ),
        "training mode": [module.training for module in model.modules()],
        "parameters": [
            (name, p.requires_grad, p.grad is None, p.dtype, p.detach().numpy().tobytes())
            for name, p in model.named_parameters()
        ],
        "torch's global hooks": [
            len(getattr(torch_module, f"_global_{kind}"))
            for kind in ("forward_hooks", "forward_pre_hooks", "backward_hooks")
        ],
        "torch's modes": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_anomaly_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_default_dtype(),
            torch.get_default_device(),
        ),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "numpy's random state": _plain_state(np.random.get_state()),  # noqa: NPY002
        # Where the tests check shapes, beartype draws from it to choose an item of a list.
        "Python's random state": None if "tests.shapes" in sys.modules else random.getstate(),
        "numpy's errors": np.geterr(),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "matplotlib": (dict(matplotlib.rcParams), plt.get_fignums()),
        "process": (os.getcwd(), dict(os.environ), signal.getsignal(signal.SIGINT)),
    }


@one_thread()
def attack_failing_calls(cases: int, seed: int, names: Sequence[str] | None = None) -> Counter[str]:
    """Let calls fail in random ways, on a model with one layer and on one with two.

    Args:
        cases: how many.
        seed: of the choices.
        names: of ways to fail; all by default.
    """
    rng = np.random.default_rng(seed)
    expected = [_logits(model) for model in models()]
    outcomes: Counter[str] = Counter()
    for _ in range(cases):
        name = _one(rng, list(WAYS) if names is None else names)
        number = int(rng.integers(2))
        model = models()[number]
        outcome = outcome_of(lambda name=name, model=model: WAYS[name](rng, model), model, name)
        if not outcome.endswith(CLEAN):
            models.cache_clear()  # what was left is not to be found a second time
        elif not torch.equal(_logits(model), expected[number]):
            outcome = f"{outcome}, but other logits ({name})"
        outcomes[outcome] += 1
    return outcomes


def outcome_of(call: Callable[[], None], model: HookedTransformer, name: str) -> str:
    """Call what fails; say how it failed and what is left of it."""
    watched = {model, *models()}
    before, raised = [state_of(each) for each in watched], "no error"
    try:
        call()
    except BaseException as error:
        if type(error) is KeyboardInterrupt:
            raise
        raised = type(error).__name__
    changed = {
        part
        for each, earlier in zip(watched, before, strict=True)
        for part, value in state_of(each).items()
        if value != earlier[part]
    }
    if changed:
        return f"{raised}, left {', '.join(sorted(changed))} ({name})"
    return f"{raised}, {CLEAN}" if raised != "no error" else f"no error ({name})"


def _hooks_of(module: torch.nn.Module) -> list[list[int]]:
    kinds = (
        "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
        "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    )  # fmt: skip
    return [
        [key for key, hook in getattr(module, kind).items() if not is_own_hook(hook)]
        for kind in kinds
    ]


def _plain_state(state: Any) -> tuple[Any, ...]:
    return tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in state)


def _logits(model: HookedTransformer) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKENS)


# --- Arguments -------------------------------------------------------------------------------------


def _pressing() -> Iterator[int]:
    """Heads that are asked for one by one, until somebody presses Ctrl-C."""
    yield 0
    raise Pressed


BAD_HEADS: list[Callable[[], Any]] = [
    lambda: [99], lambda: [-1], lambda: [], lambda: 3, lambda: "01", lambda: [0.5], lambda: [None],
    lambda: [(0, 99)], lambda: [(9, 0)], lambda: [(0, 0, 0)], lambda: [True], lambda: [0, math.nan],
    _pressing, lambda: (1 // 0 for _ in range(2)),
]  # fmt: skip
BAD_RATIOS = [math.nan, -1.0, -math.inf, "1", True, [1.0], 1j, object(), {"0": 1}]
BAD_WEIGHTS = [
    {}, {"3": 1}, {"0": math.nan}, {"0": math.inf}, {"0": -1.0}, {"0": "x"}, {"0": None}, None,
    [("0", 1)], {0: 1.0}, {"0": 1, "=": True},
]  # fmt: skip
BAD_SENTENCES = ["", "01", "3=", "01=6", "=4=", "0" * 100 + "=", None, 5, b"01="]
BAD_DATA = [[[1, 2]], [[0.5, 1.0, 2.0]], [[-1, 0, 0]], [], "counts", object(), [[2**30, 0, 0]]]
BAD_CHOICES = ["drop", None, 0, "ZERO"]


def _one(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _some_heads(rng: np.random.Generator, model: HookedTransformer) -> list[Any]:
    names = head_names(model)
    chosen = rng.permutation(len(names))[: int(rng.integers(1, len(names) + 1))]
    return [names[n] if rng.random() < 0.5 else int(n) for n in chosen]


def _bad_call(rng: np.random.Generator, model: HookedTransformer) -> tuple[str, tuple, dict]:
    """The name of a function, and arguments of which one is wrong."""
    good_heads, wrong = _some_heads(rng, model), int(rng.integers(4))
    match _one(rng, ("patch_attention", "set_attention", "copy_attention", "ablate_heads")):
        case "patch_attention" as name:
            options: dict[str, Any] = {"w01": 2.0, "w02": 0.5, "heads": good_heads}
            options |= [
                {_one(rng, ("w01", "w02")): _one(rng, BAD_RATIOS)},
                {"heads": _one(rng, BAD_HEADS)()},
                {_one(rng, ("others", "at")): _one(rng, BAD_CHOICES)},
                {"w01": 0, "w02": 0},
            ][wrong]
            return name, (), options
        case "set_attention" as name:
            options = {"weights": {"0": 1, "1": 2.5}, "heads": good_heads}
            options |= [
                {"weights": _one(rng, BAD_WEIGHTS)},
                {"heads": _one(rng, BAD_HEADS)()},
                {"others": _one(rng, BAD_CHOICES)},
                {"at": _one(rng, BAD_CHOICES)},
            ][wrong]
            return name, (options.pop("weights"),), options
        case "copy_attention" as name:
            options = {"source": SENTENCE, "heads": good_heads}
            options |= [
                {"source": _one(rng, BAD_SENTENCES)},
                {"heads": _one(rng, BAD_HEADS)()},
                {"at": _one(rng, BAD_CHOICES)},
                {"at": "answer"},  # the source has none
            ][wrong]
            return name, (options.pop("source"),), options
        case name:
            options = [
                {"heads": _one(rng, BAD_HEADS)()},
                {"heads": good_heads, "mode": _one(rng, BAD_CHOICES)},
                {"heads": good_heads, "mode": "mean", "data": _one(rng, BAD_DATA)},
                {"heads": [*good_heads, 99], "mode": "mean", "data": COUNTS},
            ][wrong]
            return name, (options.pop("heads"),), options


# The interventions as values, by the functions that are the short way to them.
VALUES: dict[str, Any] = {
    "patch_attention": cl.Ratios,
    "set_attention": cl.Weights,
    "copy_attention": cl.CopyFrom,
    "ablate_heads": cl.Ablate,
}


def valid(rng: np.random.Generator, model: HookedTransformer) -> AbstractContextManager[Any]:
    """Choose an intervention that works on sentences of the length of `SENTENCE`."""
    heads, others = _some_heads(rng, model), _one(rng, ("zero", "keep"))
    match int(rng.integers(5)):
        case 0:
            return cl.ablate_heads(model, heads, "mean", data=COUNTS)
        case 1:
            return cl.ablate_heads(model, heads)
        case 2:
            return cl.patch_attention(model, w01=0.5, w02=math.inf, heads=heads, others=others)
        case 3:
            return cl.set_attention(model, {"0": 1, "=": 0.5}, heads=heads, others=others)
        case _:
            return cl.copy_attention(model, SENTENCE, heads=heads)


def valid_list(rng: np.random.Generator, model: HookedTransformer) -> list[tuple[str, Any]]:
    """Choose the same as a list of hooks."""
    heads = _some_heads(rng, model)
    chosen = [
        cl.Ablate(heads),
        cl.Ratios(w01=2.0, w02=0.1, heads=heads),
        cl.Weights({"1": 1}, heads=heads, others="keep"),
        cl.CopyFrom(SENTENCE, heads=heads),
        cl.Ratios(w01=0.5, heads=heads[:1]) + cl.Ablate(heads) + cl.CopyFrom(SENTENCE),
    ]
    # A head's own ratio is asked for in the sum, which only one of the models has.
    one = _one(rng, chosen if model is models()[0] else chosen[:-1])
    return one.fwd_hooks(model, TOKENS)


def _any_error(rng: np.random.Generator) -> BaseException:
    kinds = (
        ValueError, Pressed, GeneratorExit, StopIteration, StopAsyncIteration, SystemExit,
        MemoryError, RecursionError, torch.OutOfMemoryError, UserWarning,
    )  # fmt: skip
    return _one(rng, kinds)("on purpose")


def _point(rng: np.random.Generator, model: HookedTransformer) -> str:
    """A hook point that every forward pass comes through."""
    layer = f"blocks.{rng.integers(model.cfg.n_layers)}"
    names = ("attn.hook_q", "attn.hook_v", "attn.hook_attn_scores", "attn.hook_pattern",
             "attn.hook_z", "hook_attn_out", "hook_resid_pre", "hook_resid_post")  # fmt: skip
    return _one(rng, ("hook_embed", "hook_pos_embed", *(f"{layer}.{name}" for name in names)))


def _raising(rng: np.random.Generator) -> Callable[..., Any]:
    """Write a hook of the user's own that does not work."""
    error = _any_error(rng)

    def own_hook(value: torch.Tensor, hook: Any = None) -> torch.Tensor:
        raise error

    return own_hook


# --- Ways to fail ----------------------------------------------------------------------------------


def _bad_arguments(rng: np.random.Generator, model: HookedTransformer) -> None:
    name, positional, options = _bad_call(rng, model)
    match int(rng.integers(3)):
        case 0:
            VALUES[name](*positional, **options).fwd_hooks(model, TOKENS)
        case 1:
            with VALUES[name](*positional, **options).applied(model):
                pass
        case _:
            with getattr(cl, name)(model, *positional, **options):
                pass


def _bad_model(rng: np.random.Generator, model: HookedTransformer) -> None:
    name = _one(rng, ("patch_attention", "set_attention", "copy_attention", "ablate_heads"))
    positional = {"set_attention": ({"0": 1},), "copy_attention": ("01=",), "ablate_heads": ([0],)}
    with getattr(cl, name)(_one(rng, ("model", None, model.cfg)), *positional.get(name, ())):
        pass


def _bad_arguments_inside(rng: np.random.Generator, model: HookedTransformer) -> None:
    with valid(rng, model), valid(rng, model):
        model(TOKENS)
        _bad_arguments(rng, model)


def _body_raises(rng: np.random.Generator, model: HookedTransformer) -> None:
    with ExitStack() as stack:
        for _ in range(int(rng.integers(1, 4))):
            stack.enter_context(valid(rng, model))
        if rng.random() < 0.7:
            model(TOKENS)
        raise _any_error(rng)


def _decorated_function_raises(rng: np.random.Generator, model: HookedTransformer) -> None:
    @valid(rng, model)  # a context manager of contextlib is a decorator, too
    def work() -> None:
        model(TOKENS)
        raise _any_error(rng)

    work()


def _own_hook_raises(rng: np.random.Generator, model: HookedTransformer) -> None:
    with valid(rng, model), valid(rng, model):
        model.run_with_hooks(TOKENS, fwd_hooks=[(_point(rng, model), _raising(rng))])


def _own_torch_hook_raises(rng: np.random.Generator, model: HookedTransformer) -> None:
    point, hook = model.hook_dict[_point(rng, model)], _raising(rng)
    handle = point.register_forward_hook(lambda module, inputs, output: hook(output))
    try:
        with valid(rng, model):
            model.run_with_cache(TOKENS)
    finally:
        handle.remove()


def _own_hook_in_the_list_raises(rng: np.random.Generator, model: HookedTransformer) -> None:
    hooks = [*valid_list(rng, model), (_point(rng, model), _raising(rng))]
    hooks = [hooks[n] for n in rng.permutation(len(hooks))]
    match int(rng.integers(3)):
        case 0:
            model.run_with_hooks(TOKENS, fwd_hooks=hooks)
        case 1:
            with model.hooks(fwd_hooks=hooks), valid(rng, model):
                model(TOKENS)
        case _:
            with hooks_attached(model, hooks):
                model(TOKENS)


def _own_hook_spoils_the_shape(rng: np.random.Generator, model: HookedTransformer) -> None:
    spoil = ("blocks.0.attn.hook_pattern", lambda pattern, hook: pattern[..., :2])
    with valid(rng, model):
        model.run_with_hooks(TOKENS, fwd_hooks=[spoil])


def _no_such_hook_point(rng: np.random.Generator, model: HookedTransformer) -> None:
    hooks = [*valid_list(rng, model), ("blocks.7.hook_nowhere", _raising(rng))]
    with hooks_attached(model, hooks):
        pass


def _list_while_the_body_raises(rng: np.random.Generator, model: HookedTransformer) -> None:
    with model.hooks(fwd_hooks=valid_list(rng, model)):
        model(TOKENS)
        raise _any_error(rng)


def _bad_tokens(rng: np.random.Generator, model: HookedTransformer) -> None:
    tokens = _one(
        rng,
        (
            torch.tensor([[0, 1, 8]]),
            torch.tensor([[0, -9, 4]]),
            torch.zeros(1, 65, dtype=torch.long),
            torch.zeros(2, 3, dtype=torch.complex64),
        ),
    )
    with valid(rng, model), valid(rng, model):
        model(tokens)


def _another_length(rng: np.random.Generator, model: HookedTransformer) -> None:
    with valid(rng, model), cl.copy_attention(model, "011="):
        model(TOKENS)


def _no_tokens_at_all(rng: np.random.Generator, model: HookedTransformer) -> None:
    with cl.patch_attention(model, w01=1.0, w02=1.0), valid(rng, model):
        model(torch.zeros(1, 3, model.cfg.d_model), start_at_layer=0)


def _generator_left_half_way(rng: np.random.Generator, model: HookedTransformer) -> None:
    def work() -> Iterator[torch.Tensor]:
        with valid(rng, model), valid(rng, model):
            for _ in range(3):
                yield model(TOKENS)

    steps = work()
    next(steps)
    match int(rng.integers(4)):
        case 0:
            steps.close()
        case 1:
            del steps
        case 2:
            steps.throw(Pressed)
        case _:
            cycle = [steps]
            cycle.append(cycle)
            del steps, cycle
            gc.collect()
    raise GeneratorExit("left half-way")


def _entered_and_forgotten(rng: np.random.Generator, model: HookedTransformer) -> None:
    """Without `with`: nobody calls `__exit__`, so the hooks go when the context manager does."""
    outer, inner = valid(rng, model), valid(rng, model)
    outer.__enter__()
    inner.__enter__()
    model(TOKENS)
    del outer, inner  # the outer one first: each takes away its own hooks only
    raise GeneratorExit("forgotten")


def _entered_twice(rng: np.random.Generator, model: HookedTransformer) -> None:
    once = valid(rng, model)
    with once, once:
        pass


def _reset_inside(rng: np.random.Generator, model: HookedTransformer) -> None:
    """Somebody inside takes hooks away, level by level, before the body fails."""
    with valid(rng, model), model.hooks(fwd_hooks=valid_list(rng, model)), valid(rng, model):
        model.reset_hooks(level=model.context_level, clear_contexts=False)
        raise _any_error(rng)


def _library_function_fails(rng: np.random.Generator, model: HookedTransformer) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: cl.head_outputs(model, _one(rng, BAD_DATA)),
        lambda: cl.head_logits(model, COUNTS, at="4"),
        lambda: cl.head_outputs(models()[1], [[60, 5, 5]]),  # longer than n_ctx
        lambda: cl.analyze_heads(model, "splits"),
        lambda: cl.analyze_heads("model", TINY),
        lambda: cl.sweep_attention(model, "w01", [math.nan], TINY),
        lambda: cl.sweep_attention(model, "w03"),
        lambda: cl.show_attention(model, _one(rng, BAD_SENTENCES)),
        lambda: cl.compare_attention(model, SENTENCE, w01=_one(rng, BAD_RATIOS)),
        lambda: cl.verify(models()[0], -1),
        lambda: cl.verify(models()[1], 2),
        lambda: cl.Explorer(models()[1], TINY),
        lambda: cl.compact_logits(model, _one(rng, BAD_DATA)),
        lambda: cl.compact_logits(models()[1], COUNTS),
    ]
    if rng.random() < 0.5:
        _one(rng, calls)()
    else:
        with valid(rng, model):
            _one(rng, calls)()


def _other_counts_than_tokens(rng: np.random.Generator, model: HookedTransformer) -> None:
    hooks = compact_hooks(COUNTS)
    with valid(rng, models()[0]):
        models()[0].run_with_hooks(compact_tokens([[1, 1, 1]]), fwd_hooks=hooks)


WAYS: dict[str, Way] = {
    "bad arguments": _bad_arguments,
    "bad model": _bad_model,
    "bad arguments inside": _bad_arguments_inside,
    "body raises": _body_raises,
    "decorated function raises": _decorated_function_raises,
    "own hook raises": _own_hook_raises,
    "own torch hook raises": _own_torch_hook_raises,
    "own hook in the list raises": _own_hook_in_the_list_raises,
    "own hook spoils the shape": _own_hook_spoils_the_shape,
    "no such hook point": _no_such_hook_point,
    "list while the body raises": _list_while_the_body_raises,
    "bad tokens": _bad_tokens,
    "another length": _another_length,
    "no tokens at all": _no_tokens_at_all,
    "generator left half-way": _generator_left_half_way,
    "entered and forgotten": _entered_and_forgotten,
    "entered twice": _entered_twice,
    "reset inside": _reset_inside,
    "library function fails": _library_function_fails,
    "other counts than tokens": _other_counts_than_tokens,
}


# --- Ctrl-C at any line ----------------------------------------------------------------------------


@one_thread()
def attack_interrupts(cases: int, seed: int) -> Counter[str]:
    """Press Ctrl-C at a line of the library, while hooks are put in place or are at work."""
    rng = np.random.default_rng(seed)
    outcomes: Counter[str] = Counter()
    for choice in range(10):
        run_until(models()[0], choice, None)  # what is imported and cached the first time
    for _ in range(cases):
        model, choice = models()[rng.integers(2)], int(rng.integers(2**32))
        lines = run_until(model, choice, None)
        at = int(rng.integers(1, lines + 1))
        outcomes[
            outcome_of(
                lambda model=model, choice=choice, at=at: run_until(model, choice, at) and None,
                model,
                f"choice {choice}, line {at}",
            )
        ] += 1
    return outcomes


def run_until(
    model: HookedTransformer, choice: int, last: int | None, functions: tuple[str, ...] = ()
) -> int:
    """Run a model under an intervention; raise at the given line, or return how many there are.

    Args:
        model: the model.
        choice: seed of the choice of interventions.
        last: the line to raise at, counted from the start.
        functions: count lines of functions of these names only.
    """
    lines, leaving = 0, False

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if leaving or not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if functions and frame.f_code.co_name not in functions:
            return None
        # The line of a `with` is also that of its end, which Python does not protect.
        if event == "line" and not _text_of(frame).startswith("with "):
            lines += 1
            if lines == last:
                raise Pressed
        return trace

    rng = np.random.default_rng(choice)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with valid(rng, model), valid(rng, model):
            model(TOKENS)
            leaving = True
    finally:
        sys.settrace(before)
    return lines


def _text_of(frame: Any) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()


# --- The explorer ----------------------------------------------------------------------------------


@one_thread()
def attack_patcher(cases: int, seed: int) -> Counter[str]:
    """Give the explorer what it cannot do; it must stay at what it shows."""
    rng = np.random.default_rng(seed)
    model = models()[0]
    panel = cl.Explorer(model, TINY)
    outcomes: Counter[str] = Counter()
    for _ in range(cases):
        panel.w01, panel.w02, panel.heads = _one(rng, (None, 0.5, 2.0)), 1.0, _some_numbers(rng)
        panel.sentence = SENTENCE
        before = _shown(panel)
        outcome = outcome_of(_bad_change(rng, panel), model, "patcher")
        if _shown(panel) != before:
            outcome = f"{outcome}, shows something else"
        outcomes[outcome] += 1
    return outcomes


def _some_numbers(rng: np.random.Generator) -> list[int]:
    return sorted({int(n) for n in rng.integers(3, size=2)})


def _shown(panel: cl.Explorer) -> tuple[Any, ...]:
    traits = ("heads", "w01", "w02", "ratios", "weights", "others", "off", "sentence", "code")
    return (repr(panel._choices), repr(panel._state), *(repr(getattr(panel, n)) for n in traits))


def _bad_change(rng: np.random.Generator, panel: cl.Explorer) -> Callable[[], Any]:
    def change(name: str, value: Any) -> Callable[[], Any]:
        return lambda: setattr(panel, name, value)

    calls: list[Callable[[], Any]] = [
        change(_one(rng, ("w01", "w02")), _one(rng, BAD_RATIOS)),
        change("ratios", {"1": 0.0, "2": 0}),
        change("ratios", {"7": 1.0}),
        change("weights", {"x": 1.0}),
        change("weights", {"0": math.inf}),
        change("heads", [99]),
        change("off", ["nobody"]),
        change("others", _one(rng, BAD_CHOICES)),
        change("sentence", _one(rng, BAD_SENTENCES)),
        change("code", "import this"),
    ]
    return _one(rng, calls)


# --- Memory ----------------------------------------------------------------------------------------

_PROGRAM = """
import json, sys
from tests.attacks.leaks import attack_failing_calls, growth_of_analyses
size, calls, failing = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
failed = attack_failing_calls(failing, seed=2)
print(json.dumps({"failed": failed, "growth": growth_of_analyses(size, calls)}))
"""


@cache
def process_of_its_own(size: str, calls: int, failing: int) -> dict[str, Any]:
    """Let calls fail, and analyse heads again and again, where nothing else runs and no test looks."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:HookedTransformer is deprecated",
         "-c", _PROGRAM, size, str(calls), str(failing)],
        capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def attack_memory(cases: int, seed: int, size: str = "small") -> Counter[str]:
    """Analyse heads again and again in a process of its own; its memory must stay as it is.

    Args:
        cases: calls after the warm-up.
        seed: is of no use here.
        size: "small" or "example", the 16-head model.
    """
    return judged_growth(process_of_its_own(size, cases, 30)["growth"], cases)


def judged_growth(growth: dict[str, int], cases: int) -> Counter[str]:
    """Say whether memory is flat.

    However many calls there are, 3 MB may come for pages that the allocator keeps for later, and
    what two analyses hold, because one may be there while the next is made. Without a leak it is
    well below 1 MB. The garbage collector may know ten objects more, or one for each hundred calls.
    """
    words = []
    if growth["bytes"] > 3_000_000 + 2 * growth["bytes_of_one"]:
        words.append(f"grew by {growth['bytes']:,} bytes")
    if growth["objects"] > max(10, cases // 100):
        words.append(f"left {growth['objects']:,} objects")
    return Counter({", ".join(words) or "flat": cases})


def growth_of_analyses(size: str, calls: int) -> dict[str, int]:
    """Measure what calls of `analyze_heads` add to this process."""
    if size == "small":
        model = cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2), seed=0)
    else:
        model = cl.example_model()
    splits = make_splits(
        0,
        train=SplitSpec(size=1000, zeros_and_ones=(0, 60), twos=(0, 60)),
        test=SplitSpec(size=1000, zeros_and_ones=(0, 80), twos=(0, 80)),
    )
    one = cl.analyze_heads(model, splits).data
    parts = [vars(one), *map(vars, one.asked.values())]
    arrays = [value for part in parts for value in part.values() if isinstance(value, np.ndarray)]
    size_of_one = sum(array.nbytes for array in arrays)
    return {
        **growth_of(lambda: cl.analyze_heads(model, splits), calls),
        "bytes_of_one": size_of_one,
    }


def growth_of(call: Callable[[], Any], calls: int, warm_up: int = 20) -> dict[str, int]:
    """Count bytes and objects before and after many calls.

    A leak grows all the time, so of two halves the one that grew less tells; what something else in
    the process makes once, at any moment, is none.
    """
    for _ in range(warm_up):
        call()
    moments = [_measured()]
    for _ in range(2):
        for _ in range(-(-calls // 2)):
            call()
        moments.append(_measured())
    halves = [
        {name: after[name] - before[name] for name in after}
        for before, after in itertools.pairwise(moments)
    ]
    return {name: 2 * min(half[name] for half in halves) for name in moments[0]}


def _measured() -> dict[str, int]:
    gc.collect()
    # The list of objects has megabytes itself: it has to come before the bytes, both times.
    objects = len(gc.get_objects())
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"objects": objects, "bytes": pages * os.sysconf("SC_PAGE_SIZE")}
