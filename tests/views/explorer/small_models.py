"""Small models of every counting task, for tests of the explorer."""

import torch

import count01_lens as cl
from tests.helpers import TINY

SMALL = {
    "train": cl.CountSpec(size=300, counts=(0, 9)),
    "validation": cl.CountSpec(size=20, counts=(0, 9)),
    "test": cl.CountSpec(size=120, counts=(0, 12)),
}
TASKS = {
    "count01": cl.Count01(TINY),
    "majority": cl.CountingTask("abc", "ABC", ["na > max(nb, nc)", "nb > nc"], **SMALL),
    "twice": cl.CountingTask("012", "45", "n1 > 2*n0", **SMALL),
    "two_comparisons": cl.CountingTask("0123", "45", "n1 > n0 and not n3 <= n2", **SMALL),
    "most_frequent": cl.CountingTask(
        "abcde", "ABCDE",
        ["na > max(nb, nc, nd, ne)", "nb > max(nc, nd, ne)", "nc > max(nd, ne)", "nd > ne"],
        **SMALL,
    ),
}  # fmt: skip


def model_for(task, seed, size, dtype=torch.float64, d_head=2):
    """A random model; the larger its weights, the more its heads collapse."""
    model = cl.build_model(
        cl.ModelConfig(d_embed=8, n_heads=4, d_head=d_head), seed=seed, task=task
    ).to(dtype)
    for name in ("W_Q", "W_K", "W_V"):
        getattr(model.blocks[0].attn, name).data *= size
    return model
