"""Small attacks with one question each, for builds that are broken on purpose.

Each compares the library with an answer that it did not compute itself. "right" is the only outcome
that a good build gives.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.svm import LinearSVC

import count01_lens as cl
import count01_lens.views.figures
import count01_lens.views.plots
from count01_lens.common.types import HookedTransformer
from count01_lens.tasks.dataset import SplitSpec, make_splits
from experiments.tools import rounding

RIGHT = "right"
SMALL = cl.ModelConfig(d_embed=4, n_heads=2, n_ctx=64)
# Splits of one size, so that labels of one fit the other.
SPLITS = make_splits(
    0,
    train=SplitSpec(size=150, zeros_and_ones=(0, 8), twos=(0, 6)),
    validation=SplitSpec(size=50, zeros_and_ones=(0, 8), twos=(0, 6)),
    test=SplitSpec(size=150, zeros_and_ones=(0, 9), twos=(0, 6)),
)


def random_model(rng: np.random.Generator) -> HookedTransformer:
    """An untrained model in float64."""
    return cl.build_model(SMALL, seed=int(rng.integers(2**32)), dtype=torch.float64)


def attack_collapsed(cases: int, seed: int) -> Counter[str]:
    """Heads that see one token only, on sentences without it: counts against tokens."""
    rng = np.random.default_rng(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(cases):
        model = random_model(rng)
        with torch.no_grad():
            model.blocks[0].attn.W_Q.mul_(3000)
        counts = torch.from_numpy(rng.integers(0, 2, size=(8, 3)))
        found = cl.head_outputs(model, counts).numpy()
        close = np.allclose(found, _outputs_by_sequences(model, counts), rtol=0, atol=1e-8)
        outcomes[RIGHT if close else "other outputs than the model's"] += 1
    return outcomes


def attack_separation(cases: int, seed: int) -> Counter[str]:
    """s-acc of single heads against scikit-learn's probe on the outputs of the model itself."""
    rng = np.random.default_rng(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(cases):
        model = random_model(rng)
        found = cl.analyze_heads(model, SPLITS).table["s_acc"]
        outputs, fours = {}, {}
        for name in ("train", "test"):
            counts = getattr(SPLITS, name).counts
            outputs[name] = _outputs_by_sequences(model, counts)
            fours[name] = np.array([n1 > n0 for n0, n1, _ in counts.tolist()])
        for head, value in enumerate(found):
            probe = LinearSVC(C=1000, dual=False, tol=1e-10, max_iter=100_000)
            probe.fit(outputs["train"][:, head], fours["train"])
            expected = float(probe.score(outputs["test"][:, head], fours["test"]))
            # A sentence or two may lie on the line itself.
            close = abs(value - expected) <= 2 / 150
            outcomes[RIGHT if close else "another s-acc than scikit-learn's"] += 1
    return outcomes


def _outputs_by_sequences(model: HookedTransformer, counts: torch.Tensor) -> Any:
    sentences = [[0, *[1] * n0, *[2] * n1, *[3] * n2, 4] for n0, n1, n2 in counts.tolist()]
    longest = max(map(len, sentences))
    # What follows '=' does not matter to it, so sentences may be filled up.
    tokens = torch.tensor([row + [7] * (longest - len(row)) for row in sentences])
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens, names_filter="blocks.0.attn.hook_z")
    ends = torch.tensor([len(row) - 1 for row in sentences])
    return cache["blocks.0.attn.hook_z"][torch.arange(len(tokens)), ends].numpy()


def attack_ratios(cases: int, seed: int) -> Counter[str]:
    """Attention that one '0', one '1', one '2' get under a patch, against what was asked for."""
    rng = np.random.default_rng(seed)
    outcomes: Counter[str] = Counter()
    tokens = torch.tensor([[0, 1, 2, 2, 3, 4]])
    for _ in range(cases):
        model = random_model(rng)
        w01, w02 = (float(ratio) for ratio in np.exp(rng.normal(0, 2, size=2)))
        with cl.patch_attention(model, w01=w01, w02=w02), torch.no_grad():
            _, cache = model.run_with_cache(tokens)
        row = cache["blocks.0.attn.hook_pattern"][0, :, -1]
        asked = torch.tensor([0, 1, 1 / w01, 1 / w01, 1 / w02, 0], dtype=torch.float64)
        close = torch.allclose(row, (asked / asked.sum()).expand_as(row), rtol=1e-9, atol=1e-12)
        outcomes[RIGHT if close else "other attention than asked for"] += 1
    return outcomes


def attack_training_twice(cases: int, seed: int) -> Counter[str]:
    """Train the same models twice; every bit must be the same, whatever random state there is."""
    outcomes: Counter[str] = Counter()
    for case in range(cases):
        config = cl.TrainConfig(model=SMALL, epochs=2, batch_size=40)
        runs = []
        for other in (1, 2):
            with random_state(other):
                result = cl.train(config, seeds=[seed + case, seed + case + 1], splits=SPLITS)
            runs.append(result.snapshots)
        same = all(torch.equal(runs[0][step], runs[1][step]) for step in runs[0])
        outcomes[RIGHT if same else "other parameters the second time"] += 1
    return outcomes


def attack_rounding(cases: int, seed: int) -> Counter[str]:
    """Long sentences in float32: errors of every way against the bound on them."""
    rng = np.random.default_rng(seed)
    config = cl.ModelConfig(d_embed=2, n_heads=1, d_head=2, layer_norm=False)
    outcomes: Counter[str] = Counter()
    for case in range(cases):
        model = cl.build_model(config, seed=case + 1)
        found = rounding.ratios(model, torch.from_numpy(rng.integers(100, 330, size=(10, 3))))
        within = max(found.values()) <= 1
        outcomes[RIGHT if within else "a run is further off than the bound"] += 1
    return outcomes


@contextmanager
def random_state(seed: int) -> Iterator[None]:
    """Let the process have another random state for a while."""
    before = np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        yield
    np.random.set_state(before)  # noqa: NPY002


def attack_figures(cases: int, seed: int) -> Counter[str]:
    """Draw figures twice: the same bytes, and nothing left with pyplot."""
    import matplotlib.pyplot as plt

    model = cl.cooperative_model()
    analysis = cl.analyze_heads(model, SPLITS)
    drawn = [
        lambda: count01_lens.views.plots.plot_pairs(analysis),
        lambda: count01_lens.views.plots.plot_attention_ratios(analysis),
        lambda: count01_lens.views.plots.plot_head_outputs(model, analysis),
        lambda: count01_lens.views.plots.plot_shapley(analysis),
    ]
    outcomes: Counter[str] = Counter()
    for case in range(cases):
        draw, kind = drawn[case % len(drawn)], ("svg", "png")[case // len(drawn) % 2]
        one, two = (count01_lens.views.figures.as_bytes(draw(), kind) for _ in range(2))
        open_figures = plt.get_fignums()
        plt.close("all")
        if one != two:
            outcomes[f"other bytes of the same {kind}"] += 1
        else:
            outcomes["figures stay open" if open_figures else RIGHT] += 1
    return outcomes
