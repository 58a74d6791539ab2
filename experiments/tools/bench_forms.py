"""Measure the three ways to run a model, forward and in training: part of `make bench`."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from experiments.tools.timing import best

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


MEASUREMENTS: list[Callable[[], dict[str, float]]] = [
    forward_sequences,
    forward_compact,
    forward_closed_form,
    epoch_sequences,
    epoch_compact,
    epoch_closed_form,
    epoch_stack_of_ten,
    train_ten,
]

RATIOS = [
    ("forward: compact over sequences", "forward_sequences", "forward_compact"),
    ("forward: closed form over sequences", "forward_sequences", "forward_closed_form"),
    ("forward: closed form over compact", "forward_compact", "forward_closed_form"),
    ("epoch: compact over sequences", "epoch_sequences", "epoch_compact"),
    ("epoch: closed form over sequences", "epoch_sequences", "epoch_closed_form"),
]


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
