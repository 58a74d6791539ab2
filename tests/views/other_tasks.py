"""Models and tasks far from Count01, and analyses of them, for what people look at."""

import numpy as np
import pandas as pd
import torch

from count01_lens.heads.analyze import analyze_heads
from count01_lens.models.lens import make_model
from count01_lens.tasks.prompts import Prompts, Task

EVIL_TOKEN = "<script>alert(1)</script>$x$"


class Words:
    """A tokenizer as small as can be: a list of texts."""

    def __init__(self, texts):
        self.texts = texts
        self.vocab = {text: number for number, text in enumerate(texts)}
        self.padding_side = "right"
        self.bos_token_id = self.eos_token_id = self.pad_token_id = 0

    def decode(self, tokens, **options):
        return "".join(self.texts[int(token)] for token in tokens)


def model_of(*, seed=0, scale=0.6, **fields):
    """A HookedTransformer with random weights and any config."""
    config = dict(
        d_model=16, d_head=4, n_heads=4, n_layers=2, n_ctx=12, d_vocab=9, d_mlp=24, act_fn="gelu",
        normalization_type="LN", device="cpu", dtype=torch.float64, seed=1,
    )  # fmt: skip
    model = make_model(config | fields)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data += scale * noise / parameter.shape[0] ** 0.25
    return model


def most_frequent(n=90, *, seed=0, subsets=True, answers=3):
    """Which of the symbols 1, 2, ... is most frequent; 0 begins and 8 asks."""
    rng = np.random.default_rng(seed)
    drawn: dict[tuple[int, ...], None] = {}  # each prompt once, in the order of drawing
    while len(drawn) < n:
        drawn[0, *rng.integers(1, answers + 1, rng.integers(3, 9)).tolist(), 8] = None
    rows = [list(row) for row in drawn]
    right = [max(range(1, answers + 1), key=row[1:-1].count) for row in rows]
    short = np.array([len(row) < 7 for row in rows])
    return Task.split(
        Prompts(rows, right, subsets={"short": short, "long": ~short} if subsets else {}),
        test=0.4,
        seed=seed,
    )


def named_second(n=300, *, n_names=60, seed=0):
    """Which name comes second: as many answers as names. The last token asks."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, n_names, (n, 4))
    return Task.split(
        Prompts(np.column_stack([rows, np.full(n, n_names)]), rows[:, 1]),
        test=0.4,
        seed=seed,
        choices=range(n_names),
    )


def two_layers_three_answers():
    """(b): two layers of four heads over nine tokens; learned positions, layer norm, MLPs."""
    return analyze_heads(model_of(), most_frequent())


def one_layer_sixty_answers():
    """(c): one layer without an MLP, and sixty answers."""
    model = model_of(n_layers=1, d_vocab=61, attn_only=True, normalization_type=None)
    return analyze_heads(model, named_second())


def many_heads(budget=400):
    """(d): 12 layers of 12 tiny heads; a budget of 400 is 91 pairs and two random orders."""
    model = model_of(n_layers=12, n_heads=12, d_model=24, d_head=2, d_mlp=24, scale=0.3)
    return analyze_heads(model, most_frequent(60), budget=budget)


def with_effects(analysis, *, repaired=(3, 0.4)):
    """The analysis with direct and total effects, one head of which is partly made up for."""
    rng = np.random.default_rng(1)
    heads = analysis.heads.copy()
    direct = rng.normal(0.5, 0.3, len(heads))
    total = direct + rng.uniform(0, 0.05, len(heads))
    head, share = repaired
    direct[head] = 2.0
    total[head] = 2.0 * (1 - share)
    effects = {"direct_effect": direct, "total_effect": total, "self_repair": direct - total}
    more = pd.DataFrame(effects, index=heads.index)
    made = object.__new__(type(analysis))
    for name, value in vars(analysis).items():
        if name not in ("table", "verdict", "_computed"):
            object.__setattr__(made, name, value)
    object.__setattr__(made, "heads", heads.drop(columns=list(effects), errors="ignore").join(more))
    return made
