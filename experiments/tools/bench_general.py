"""Measure l-acc of all groups of heads of models run by hooks: part of `make bench`.

The plain way is what anybody would write with TransformerLens: for each group, a run with hooks
that set the outputs of all other heads to zero. The library's has to give the same numbers.

    python -m experiments.tools.bench_general --share 0.02

measures how long `analyze_heads` and `with_groups` take for such a model on sentences of Count01,
of which so large a share is taken: 1 is all 7,000 and 1,500 of them.
"""

import argparse
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

import count01_lens as cl
from count01_lens.common.types import Array
from experiments.tools.timing import best

N_HEADS, N_PROMPTS, LENGTH, N_TOKENS = 8, 200, 12, 20


def groups_by_hooks() -> dict[str, float]:
    """l-acc of the 255 groups of 8 heads, a layer with a norm after it, a hooked run for each."""
    return {"seconds": best(lambda: _by_hooks(1), 2)}


def groups_by_runner() -> dict[str, float]:
    """The same by the library, from one run of the model."""
    return _by_library(1)


def deep_groups_by_hooks() -> dict[str, float]:
    """l-acc of the 255 groups of 8 heads in two layers with MLPs, a hooked run for each."""
    return {"seconds": best(lambda: _by_hooks(2), 2)}


def deep_groups_by_runner() -> dict[str, float]:
    """The same by the library: groups share runs of the layers in which they agree."""
    return _by_library(2)


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [
    groups_by_hooks,
    groups_by_runner,
    deep_groups_by_hooks,
    deep_groups_by_runner,
]

RATIOS = [
    (
        "groups of a layer with a norm: over a hooked run each",
        "groups_by_hooks",
        "groups_by_runner",
    ),
    (
        "groups of two layers: over a hooked run each",
        "deep_groups_by_hooks",
        "deep_groups_by_runner",
    ),
]


@cache
def model_and_task(n_layers: int) -> tuple[Any, cl.Task]:
    """A model with norms and, if it has two layers, MLPs; the largest token is asked for."""
    from count01_lens.models.lens import make_model

    config: dict[str, Any] = dict(
        n_layers=n_layers, n_heads=N_HEADS // n_layers, d_model=64, d_head=8, n_ctx=LENGTH,
        d_vocab=N_TOKENS, act_fn="gelu", attn_only=n_layers == 1, normalization_type="LN", seed=0,
        device="cpu",
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, N_TOKENS, (N_PROMPTS, LENGTH), generator=generator)
    prompts = cl.Prompts(tokens, tokens.amax(dim=1))
    return make_model(config), cl.Task(train=prompts, test=prompts)


def _by_hooks(n_layers: int) -> Array:
    """l-acc by mask, from 1 on: bit i is head i, layers one after the other."""
    model, task = model_and_task(n_layers)
    question = task.questions["answer"]
    tokens = torch.stack(question.test.sequences())
    choices = torch.as_tensor(question.choices)
    per_layer, found = N_HEADS // n_layers, []
    for mask in range(1, 2**N_HEADS):
        kept = torch.tensor([bool(mask >> head & 1) for head in range(N_HEADS)])
        hooks = [
            (
                f"blocks.{layer}.attn.hook_z",
                lambda z, hook, on=kept[layer * per_layer :][:per_layer]: z * on[:, None],
            )
            for layer in range(n_layers)
        ]
        with torch.no_grad():
            logits = model.run_with_hooks(tokens, fwd_hooks=hooks)[:, -1, choices]
        said = choices[logits.argmax(dim=-1)]
        found.append(float((said == torch.as_tensor(question.test.answers)).double().mean()))
    return np.array(found)


def _by_library(n_layers: int) -> dict[str, float]:
    from count01_lens.heads.groups import as_rows
    from count01_lens.heads.head_data import head_data
    from count01_lens.heads.metrics import METRICS, Groups

    model, task = model_and_task(n_layers)
    masks, found = as_rows(np.arange(1, 2**N_HEADS), N_HEADS), []

    def run() -> None:
        found.append(METRICS["l_acc"].measure(Groups(head_data(model, task), masks)))

    seconds = best(run, 3)
    off = np.abs(found[0] - _by_hooks(n_layers)).max()
    return {"seconds": seconds, "largest_difference": float(off)}


def on_sentences(share: float) -> dict[str, float]:
    """Two layers of four heads with MLPs, on a share of the sentences of Count01, run by hooks.

    Seconds of processors, which a busy machine does not change much; and of the clock.
    """
    from count01_lens.models.lens import make_model

    splits = cl.make_splits(0)
    parts: dict[str, Any] = {}
    for name, split in (("train", splits.train), ("test", splits.test)):
        sentences = split.sequences()[: max(2, round(share * len(split)))]
        answers = [int(sentence[-2]) for sentence in sentences]
        parts[name] = cl.Prompts([sentence[:-2].tolist() for sentence in sentences], answers)
    config: dict[str, Any] = dict(
        n_layers=2, n_heads=4, d_model=32, d_head=8, d_mlp=128, n_ctx=1024, d_vocab=8,
        act_fn="gelu", normalization_type="LN", seed=0, device="cpu",
    )  # fmt: skip
    model, task = make_model(config), cl.Task(**parts)
    found = {"train": float(len(parts["train"])), "test": float(len(parts["test"]))}
    clock, processors = time.perf_counter(), time.process_time()
    analysis = cl.analyze_heads(model, task)
    found["analyze_processor_seconds"] = time.process_time() - processors
    processors = time.process_time()
    analysis.with_groups()
    found["groups_processor_seconds"] = time.process_time() - processors
    return {**found, "seconds": time.perf_counter() - clock}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=on_sentences.__doc__)
    parser.add_argument("--share", type=float, default=0.02)
    for name, value in on_sentences(parser.parse_args().share).items():
        print(f"{name:26} {value:10,.1f}")
