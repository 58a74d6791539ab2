"""Measure how fast things are, as ratios taken in one run, and how much memory they need.

Run `make bench`. Each measurement has a process of its own, so that its peak memory is its own. The
numbers go to `bench.json` and, as a table, to the terminal. Machines differ and are noisy: read the
ratios, not the seconds.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from count01_lens.common.storage import json_bytes, write_atomically
from count01_lens.common.versions import library_versions
from experiments.tools import bench_games
from experiments.tools.bench_explorer import (
    explorer_first_paint,
    explorer_one_head,
    explorer_sixteen_heads,
)
from experiments.tools.timing import best

OUTPUT = Path("bench.json")
SAMPLE = 32  # sentences on which sequences are timed; the rest is scaled


def forward_sequences() -> dict[str, float]:
    """Test split, logits at '=', on token sequences, at the best of several batch sizes."""
    import torch

    model, sequences = _model(), _split("test").sequences()
    sample = sorted(sequences[:SAMPLE], key=len)

    def run(batch_size: int) -> None:
        for batch in _chunks(sample, batch_size):
            model(_padded(batch))

    with torch.no_grad():
        seconds = min(best(partial(run, batch_size), 3) for batch_size in (1, 4, 16))
    return {"seconds": seconds * len(sequences) / SAMPLE}


def forward_compact() -> dict[str, float]:
    """Test split, logits at '=', as six tokens with multiplicities."""
    import torch

    import count01_lens as cl

    model, test = _model(), _split("test")
    with torch.no_grad():
        return {"seconds": best(lambda: cl.compact_logits(model, test), 40)}


def forward_closed_form() -> dict[str, float]:
    """Test split, logits at '=', as algebra over counts."""
    import torch

    import count01_lens as cl
    from count01_lens.common.threads import one_thread
    from count01_lens.counts.multiplicities import Multiplicities
    from count01_lens.tasks.places import AT_EQUALS

    form, counts = cl.CountForm.from_models([_model()]), _split("test").counts
    with torch.no_grad(), one_thread():
        return {
            "seconds": best(
                lambda: form.logits(Multiplicities.of(counts, AT_EQUALS, torch.float32)), 500
            )
        }


def epoch_sequences() -> dict[str, float]:
    """One epoch of training on token sequences in batches of 64, timed on a few of them."""
    split = _split("train")
    batches = list(_chunks(split.sequences()[: 64 * 3], 64))
    _, step = _sequence_trainer()
    seconds = best(lambda: [step(_padded(batch)) for batch in batches], 3)
    return {"seconds": seconds * len(split) / (64 * len(batches))}


def epoch_compact() -> dict[str, float]:
    """One epoch of training on six tokens with multiplicities, timed on part of it."""
    from count01_lens.counts.compact import compact_hooks, compact_tokens

    split = _split("train")
    batches = [split.counts[start : start + 64] for start in range(0, 64 * 20, 64)]
    model, step = _sequence_trainer()

    def run() -> None:
        for counts in batches:
            with model.hooks(fwd_hooks=compact_hooks(counts)):
                step(compact_tokens(counts))

    return {"seconds": best(run, 3) * len(split) / (64 * len(batches))}


def epoch_closed_form() -> dict[str, float]:
    """One epoch of training on counts: one model."""
    return _epochs(models=1)


def epoch_stack_of_ten() -> dict[str, float]:
    """One epoch of training on counts: ten models together."""
    return _epochs(models=10)


def train_ten() -> dict[str, float]:
    """Ten 16-head models trained for 100 epochs, from start to end."""
    import count01_lens as cl

    start = time.perf_counter()
    result = cl.train(seeds=range(10), progress=True)
    seconds = time.perf_counter() - start
    last = result.history[result.history["epoch"] == 100]
    return {
        "seconds": seconds,
        "lowest_test_accuracy": float(last["test_accuracy"].min()),
        "seeds_at_0.99_or_more": int((last["test_accuracy"] >= 0.99).sum()),
        "lowest_eos_accuracy": float(last["test_eos_accuracy"].min()),
    }


def verify_up_to_200() -> dict[str, float]:
    """All 8.1 million sentences up to 200 of each token, 16 heads, float64."""
    import count01_lens as cl

    model = _model()
    return {"seconds": best(lambda: cl.verify(model), 2)}


def analyze_heads() -> dict[str, float]:
    """Every head and every pair of the 16-head model, after imports."""
    import count01_lens as cl

    model = _model()
    return {"seconds": best(lambda: cl.analyze_heads(model), 3)}


def all_groups() -> dict[str, float]:
    """The four metrics of all 65,535 groups of 16 heads."""
    import count01_lens as cl

    analysis = cl.analyze_heads(_model())
    seconds = best(lambda: analysis.groups(progress=False), 1)
    return {"seconds": seconds, "worst_gradient": analysis.worst_gradient}


def probes_of_all_groups() -> dict[str, float]:
    """The 65,535 linear SVMs of all groups alone."""
    import numpy as np

    from count01_lens.heads.groups import as_rows, fit_all

    data = _head_data()
    masks = as_rows(np.arange(1, 2**16), 16)
    return {"seconds": best(lambda: fit_all(data, masks), 1)}


def probes_by_scikit_learn() -> dict[str, float]:
    """The same SVMs by LinearSVC(C=1000, dual=False, tol=1e-8) on two cores, scaled."""
    import warnings
    from math import comb

    import numpy as np
    from sklearn.svm import LinearSVC

    data, rng, total = _head_data(), np.random.default_rng(0), 0.0
    probe = LinearSVC(C=1000, dual=False, tol=1e-8, max_iter=100_000)
    for size in range(1, 17):
        times = []
        for _ in range(4):
            heads = rng.choice(16, size, replace=False)
            features = data.train_outputs[:, heads].reshape(len(data.train_labels), -1)
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                probe.fit(features, data.train_labels)
            times.append(time.perf_counter() - start)
        total += comb(16, size) * float(np.mean(times))
    return {"seconds": total / 2}  # as if two processes halved it


def _head_data() -> Any:
    from count01_lens.heads.head_data import head_data

    return head_data(_model())


def sweep_of_w01() -> dict[str, float]:
    """s-acc of 16 heads over 43 values of w01: 688 separators refitted on patched outputs."""
    import count01_lens as cl

    model = _model()
    return {"seconds": best(lambda: cl.sweep_attention(model, "w01"), 2)}


def groups_run_plainly() -> dict[str, float]:
    """255 groups of 8 heads, a layer of them with a norm, each run from its tokens on."""
    from count01_lens.heads.group_runs import PlainRuns

    return _groups(PlainRuns, 1)


def groups_of_one_run() -> dict[str, float]:
    """The same groups from one run of the model."""
    from count01_lens.heads.group_runs import StreamRuns

    return _groups(StreamRuns, 1)


def deep_groups_run_plainly() -> dict[str, float]:
    """255 groups of 8 heads in two layers with MLPs, each run from its tokens on."""
    from count01_lens.heads.group_runs import PlainRuns

    return _groups(PlainRuns, 2)


def deep_groups_sharing_runs() -> dict[str, float]:
    """The same groups, which share the run of their first layer."""
    from count01_lens.heads.group_runs import StreamRuns

    return _groups(StreamRuns, 2)


def _groups(road: Any, n_layers: int) -> dict[str, float]:
    import numpy as np
    import torch

    import count01_lens as cl
    from count01_lens.heads.groups import as_rows
    from count01_lens.heads.hook_runner import HookRunner
    from count01_lens.heads.replacements import Replacement
    from count01_lens.models.build import make_hooked_transformer

    config: dict[str, Any] = dict(n_layers=n_layers, n_heads=8 // n_layers, d_model=64, d_head=8)
    config |= dict(n_ctx=12, d_vocab=20, act_fn="gelu", attn_only=n_layers == 1)
    config |= dict(normalization_type="LN", seed=0, device="cpu")
    model = make_hooked_transformer(config)
    tokens = torch.randint(0, 20, (500, 12), generator=torch.Generator().manual_seed(0))
    masks = as_rows(np.arange(1, 256), 8)
    masks = masks[np.lexsort(masks.T[::-1])]
    prompts = cl.Prompts(tokens, tokens.amax(dim=1))

    def run() -> None:
        runs = road(HookRunner(model), prompts, range(20), Replacement("zero"))
        assert sum(len(part) for part in runs(masks)) == len(masks)

    return {"seconds": best(run, 2)}


def ground_truth() -> dict[str, float]:
    """Roles found in 250 models with planted heads, with and without noise, against the truth."""
    from experiments.ground_truth import JUDGED, OUT, judge, numbers

    start = time.perf_counter()
    models, table = judge(JUDGED, OUT)
    return {"seconds": time.perf_counter() - start, **numbers(models, table)}


def import_package() -> dict[str, float]:
    """`import count01_lens` in a new interpreter, less the interpreter's own start."""
    bare = best(lambda: _run([sys.executable, "-c", "pass"]), 5)
    whole = best(lambda: _run([sys.executable, "-c", "import count01_lens"]), 5)
    return {"seconds": whole - bare}


def show_help() -> dict[str, float]:
    """`count01-lens --help`, from start to end."""
    program = Path(sys.executable).parent / "count01-lens"
    return {"seconds": best(lambda: _run([str(program), "--help"]), 5)}


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [
    forward_sequences,
    forward_compact,
    forward_closed_form,
    epoch_sequences,
    epoch_compact,
    epoch_closed_form,
    epoch_stack_of_ten,
    train_ten,
    verify_up_to_200,
    analyze_heads,
    all_groups,
    probes_of_all_groups,
    probes_by_scikit_learn,
    sweep_of_w01,
    explorer_one_head,
    explorer_sixteen_heads,
    explorer_first_paint,
    groups_run_plainly,
    groups_of_one_run,
    deep_groups_run_plainly,
    deep_groups_sharing_runs,
    ground_truth,
    import_package,
    show_help,
    *bench_games.MEASUREMENTS,
]

# Name, numerator, denominator: how many times faster the second is than the first.
RATIOS = [
    ("forward: compact over sequences", "forward_sequences", "forward_compact"),
    ("forward: closed form over sequences", "forward_sequences", "forward_closed_form"),
    ("epoch: compact over sequences", "epoch_sequences", "epoch_compact"),
    ("epoch: closed form over sequences", "epoch_sequences", "epoch_closed_form"),
    ("probes of all groups: over scikit-learn", "probes_by_scikit_learn", "probes_of_all_groups"),
    ("groups of one layer: one run over each its own", "groups_run_plainly", "groups_of_one_run"),
    (
        "groups of two layers: shared runs over each its own",
        "deep_groups_run_plainly",
        "deep_groups_sharing_runs",
    ),
    *bench_games.RATIOS,
]


def collect(names: list[str]) -> dict[str, Any]:
    """Run the measurements, each in its own process."""
    results = {}
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "experiments.tools.bench", "--one", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results[name] = json.loads(done.stdout.splitlines()[-1])
    ratios = {
        label: results[slow]["seconds"] / results[fast]["seconds"]
        for label, slow, fast in RATIOS
        if slow in results and fast in results
    }
    if {"epoch_closed_form", "epoch_stack_of_ten"} <= results.keys():
        one, ten = results["epoch_closed_form"], results["epoch_stack_of_ten"]
        ratios["epoch: ten models one by one over a stack of ten"] = (
            10 * one["seconds"] / ten["seconds"]
        )
    machine = {"cores": os.cpu_count(), "processor": platform.machine()}
    return {
        "measurements": results,
        "ratios": ratios,
        "machine": machine,
        "versions": library_versions(),
    }


def markdown(report: dict[str, Any]) -> str:
    """Write the report as two tables."""
    lines = ["| ratio | times |", "|---|---|"]
    lines += [f"| {label} | {value:,.1f} |" for label, value in report["ratios"].items()]
    lines += ["", "| measurement | seconds | peak memory, MB | |", "|---|---|---|---|"]
    docs = {function.__name__: (function.__doc__ or "") for function in MEASUREMENTS}
    for name, result in report["measurements"].items():
        lines.append(
            f"| {name} | {result['seconds']:.4g} | {result['peak_mb']:,.0f} | {docs[name]} |"
        )
    return "\n".join(lines)


def _model() -> Any:
    import count01_lens as cl

    return cl.example_model()


def _split(name: str) -> Any:
    import count01_lens as cl

    return getattr(cl.make_splits(), name)


def _epochs(models: int, epochs: int = 3) -> dict[str, float]:
    import count01_lens as cl

    config = cl.TrainConfig(epochs=epochs)
    run = lambda: cl.train(config, seeds=range(models), snapshot_epochs=[])  # noqa: E731
    return {"seconds": best(run, 2) / epochs}


def _sequence_trainer() -> tuple[Any, Callable[[Any], None]]:
    """A HookedTransformer and a training step on tokens, at the two tokens after '='."""
    import torch

    import count01_lens as cl
    from count01_lens.training.trainer import next_token_loss

    model = cl.build_model()
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)

    def step(tokens: Any) -> None:
        logits = model(tokens)
        row = torch.arange(len(tokens))
        at_equals = (tokens == cl.Token.EQUALS).int().argmax(dim=1)
        labels = tokens[row, at_equals + 1] == cl.Token.FOUR
        loss = next_token_loss(logits[row, at_equals], logits[row, at_equals + 1], labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return model, step


def _padded(sequences: Any) -> Any:
    """Pad on the right, which a causal model does not see."""
    import torch

    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=7)


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Run all measurements, or some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUTPUT)
    parser.add_argument("--only", nargs="*", help="names of measurements")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    functions = {function.__name__: function for function in MEASUREMENTS}
    if arguments.one:
        result = functions[arguments.one]()
        # ru_maxrss is in kilobytes on Linux, in bytes on macOS.
        unit = 1e6 if sys.platform == "darwin" else 1e3
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        print(json.dumps({**result, "peak_mb": peak}))
        return
    unknown = sorted(set(arguments.only or []) - set(functions))
    if unknown:
        parser.error(f"unknown measurements {unknown}; expected some of {list(functions)}")
    report = collect(arguments.only or list(functions))
    write_atomically(arguments.out, json_bytes(report))
    print(markdown(report))
    print(f"\nwritten to {arguments.out}")


if __name__ == "__main__":
    main()
