"""Attack the bound on rounding, and tell how much of it is reached.

    python -m experiments.tools.rounding

Random models, from tame to extreme, and models that were changed step by step to come closer to
the bound are run in every way of the library, and on sequences in several orders. The exact margin
is computed in NumPy's longdouble, from the formulas alone. Short sentences are also run on a
machine that rounds as badly as it may (`worst_rounding`). What is printed is the largest error that
was seen, in units of the bound: above 1 the bound would be none.
"""

import argparse
import copy

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

import count01_lens as cl
from count01_lens.common.progress import track
from count01_lens.common.threads import one_thread
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.counts.rounding import MarginBound
from count01_lens.models.lens import attn_scale, parameters_of, state_of
from count01_lens.tasks.dataset import sequences_of
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import AT_EQUALS
from experiments.tools.worst_rounding import worst_margins

# With the largest count of a token: in half precision, on longer sentences there is no bound.
MOST = {torch.float64: 200, torch.float32: 200, torch.bfloat16: 20, torch.float16: 100}
FEW = 12  # of each token on the worst machine


def exact_margins(model: HookedTransformer, counts: Int[Tensor, "sample 3"]) -> Array:
    """By how much '4' leads '5' after '=', for the weights as they are stored."""
    weights = {
        name.rpartition(".")[2]: parameter.detach().double().numpy().astype(np.longdouble)
        for name, parameter in state_of(model).items()
        if parameter.is_floating_point()
    }
    x = weights["W_E"][: Token.FOUR]
    q, k, v = (
        np.einsum("td,hde->hte", x, weights[f"W_{letter}"]) + weights[f"b_{letter}"][:, None]
        for letter in "QKV"
    )
    scale = np.longdouble(attn_scale(model))
    scores = np.einsum("he,hte->ht", q[:, Token.EQUALS], k) / scale
    to_four, bias = (weights[name][..., 5] - weights[name][..., 6] for name in ("W_U", "b_U"))
    alone = np.einsum("hte,hed,d->ht", v, weights["W_O"], to_four)
    n = np.pad(counts.numpy(), ((0, 0), (1, 1)), constant_values=1)[:, None]
    present = np.where(n > 0, scores, -np.inf)
    attention = n * np.exp(present - present.max(axis=-1, keepdims=True))
    shares = (attention * alone).sum(axis=-1) / attention.sum(axis=-1)
    return np.asarray(shares.sum(axis=-1) + (x[Token.EQUALS] + weights["b_O"]) @ to_four + bias)


def run_margins(model: HookedTransformer, counts: Int[Tensor, "sample 3"]) -> dict[str, Array]:
    """The same as the library computes it, by the name of the way."""
    dtype = model.W_E.dtype
    by_order: dict[str, list[Tensor]] = {}
    with torch.no_grad():
        for sequence in sequences_of(counts, seed=1):
            orders = _orders(model, sequence[:-2])
            for name, logits in zip(orders, model(torch.stack([*orders.values()])), strict=True):
                by_order.setdefault(f"sequence, {name}", []).append(logits[-1])
        logits = {way: torch.stack(rows) for way, rows in by_order.items()}
        logits["compact"] = cl.compact_logits(model, counts)
        if dtype in (torch.float32, torch.float64):
            form = CountForm.from_models([model])
            logits["closed form"] = form.logits(Multiplicities.of(counts, AT_EQUALS, dtype))[0]
    fine = {way: found.double().numpy().astype(np.longdouble) for way, found in logits.items()}
    return {way: found[:, Token.FOUR] - found[:, Token.FIVE] for way, found in fine.items()}


def _orders(model: HookedTransformer, sequence: Int[Tensor, " n"]) -> dict[str, Int[Tensor, " n"]]:
    """One sentence in several orders: what is summed up first decides what is rounded."""
    body = sequence[1:-1]
    value = model.W_E.detach() @ model.W_V.detach()[0, 0].double().sum(dim=1).to(model.W_E)
    by_value = body[value[body].argsort(stable=True)]
    bodies = {
        "shuffled": body,
        "by kind": body.sort().values,
        "by value": by_value,
        "by value, down": by_value.flip(0),
    }
    ends = sequence[:1], sequence[-1:]
    return {name: torch.cat([ends[0], middle, ends[1]]) for name, middle in bodies.items()}


def ratios(
    model: HookedTransformer, counts: Int[Tensor, "sample 3"], *, worst: bool = False
) -> dict[str, float]:
    """The largest error of each way, in units of the bound, on real machines or the worst one."""
    bound, exact = (
        MarginBound(model, model.W_E.dtype).of(counts).numpy(),
        exact_margins(model, counts),
    )
    known = np.isfinite(bound)
    runs = worst_run_margins(model, counts) if worst else run_margins(model, counts)
    return {
        way: float(np.nan_to_num(np.abs(run - exact) / bound, nan=np.inf)[known].max(initial=0.0))
        for way, run in runs.items()
    }


def worst_run_margins(
    model: HookedTransformer, counts: Int[Tensor, "sample 3"]
) -> dict[str, Array]:
    """The margin as high as the worst machine can bring it, on sentences sorted by token."""
    sentences = [sequence[:-2].sort().values.tolist() for sequence in sequences_of(counts)]
    rows = [worst_margins(model, tokens, model.W_E.dtype) for tokens in sentences]
    return {way: np.array([row[way] for row in rows]) for way in rows[0]}


def draw_model(rng: np.random.Generator, dtype: torch.dtype) -> HookedTransformer:
    """A small model: scores from tame to extreme, and terms of logits that may cancel."""
    n_heads, d_head = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    config = cl.ModelConfig(
        d_embed=int(rng.integers(1, 9)),
        n_heads=n_heads,
        d_head=d_head,
        output="fused" if rng.random() < 0.5 else "residual",
        layer_norm=False,
        scale_scores=bool(rng.random() < 0.5),
    )
    model = cl.build_model(config, seed=int(rng.integers(2**31)), dtype=torch.float64)
    attn, largest = model.blocks[0].attn, 2 if dtype == torch.float16 else 5
    with torch.no_grad():
        attn.W_Q.mul_(rng.choice([0, *10 ** rng.uniform(-3, largest - 1, 3)]))
        for bias in (attn.b_Q, attn.b_K, attn.b_V):
            bias += torch.from_numpy(rng.standard_normal(bias.shape)) * rng.choice([0, 0, 1, 30])
        attn.b_O.add_(torch.from_numpy(rng.standard_normal(attn.b_O.shape)))
        larger = rng.choice([0, 0, 10 ** rng.uniform(0, largest - 1)])
        model.W_U[:, Token.FOUR : Token.EOS].add_(larger)
    return model.to(dtype, print_details=False)


def draw_counts(rng: np.random.Generator, n: int, most: int) -> Int[Tensor, "sample 3"]:
    """Sentences of all lengths, some without one of the tokens."""
    counts = rng.integers(0, rng.integers(1, most + 1, (n, 1)) + 1, (n, 3))
    counts[rng.random((n, 3)) < 0.1] = 0
    return torch.from_numpy(counts)


def climb(
    model: HookedTransformer, counts: Int[Tensor, "sample 3"], rng: np.random.Generator, steps: int
) -> tuple[HookedTransformer, dict[str, float]]:
    """Change a model by small random steps, and keep those that come closer to the bound."""
    best, found = model, ratios(model, counts)
    for _ in range(steps):
        other = copy.deepcopy(best)
        with torch.no_grad():
            for name, parameter in parameters_of(other).items():
                if "pos_embed" not in name:
                    noise = torch.from_numpy(rng.standard_normal(parameter.shape)).to(parameter)
                    parameter.mul_(1 + 10 ** rng.uniform(-5, -0.5) * noise)
        reached = ratios(other, counts)
        if max(reached.values()) > max(found.values()):
            best, found = other, reached
    return best, found


def attack(dtype: torch.dtype, *, models: int, steps: int, seed: int) -> pd.DataFrame:
    """Run random models, and climb from every tenth of them: a row per model and way."""
    rng, name = (
        np.random.default_rng([seed, [*MOST].index(dtype)]),
        str(dtype).removeprefix("torch."),
    )
    rows = []
    for i in track(range(models), models, name, None):
        model, counts = draw_model(rng, dtype), draw_counts(rng, 8, MOST[dtype])
        found = ratios(model, counts)
        if i % 10 == 0:
            found = climb(model, counts[:4], rng, steps)[1]
        if dtype != torch.float64:  # in which that machine itself computes
            found |= ratios(model, draw_counts(rng, 2, FEW), worst=True)
        rows += [{"dtype": name, "way": way, "reached": ratio} for way, ratio in found.items()]
    return pd.DataFrame(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Attack the bound on rounding.")
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with one_thread():
        found = pd.concat([attack(dtype, **vars(options)) for dtype in MOST])
    table = found.pivot_table("reached", index="way", columns="dtype", aggfunc="max", sort=False)
    print(table.to_string(float_format="{:.3f}".format, na_rep="-"))
