"""The model once more, from scratch in NumPy, and random models to run it on.

Nothing here uses a computation of the library: a forward pass reads weights, embeds tokens, attends
to what stands before each asked position, and unembeds. It is slow, plain, and in float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from count01_lens.models.build import hooked_transformer
from count01_lens.models.config import ModelConfig
from count01_lens.models.lens import fields_of, state_of
from count01_lens.models.parameters import initial_raw

BOS, ZERO, ONE, TWO, EQUALS, FOUR, FIVE, EOS = range(8)
AT = ("=", "answer")


@dataclass(frozen=True)
class NumpyModel:
    """Weights of one attention layer.

    `read` is the table that attention reads, `stream` the one that the residual stream starts with;
    they differ where a layer norm stands before attention.
    """

    read: np.ndarray
    stream: np.ndarray
    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    b_Q: np.ndarray
    b_K: np.ndarray
    b_V: np.ndarray
    W_O: np.ndarray
    b_O: np.ndarray
    W_U: np.ndarray
    b_U: np.ndarray
    attn_scale: float

    @classmethod
    def of_hooked_transformer(cls, model) -> "NumpyModel":
        """Take the weights as they stand in a HookedTransformer."""
        state = {name: value.detach().double().numpy() for name, value in state_of(model).items()}
        attention = {
            name: state[f"blocks.0.attn.{name}"]
            for name in ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V", "W_O", "b_O")
        }
        scale = model.cfg.d_head**0.5 if fields_of(model)["use_attn_scale"] else 1.0
        unembed = {"W_U": state["unembed.W_U"], "b_U": state["unembed.b_U"]}
        table = state["embed.W_E"]
        return cls(read=table, stream=table, **attention, **unembed, attn_scale=scale)

    @classmethod
    def of_raw(cls, raw, config: ModelConfig) -> "NumpyModel":
        """Take the paper's parameters: nothing folded, no lanes."""
        raw = {name: value.double().numpy() for name, value in raw.items()}
        read = raw["W_E"]
        if config.layer_norm:
            centred = read - read.mean(axis=1, keepdims=True)
            variance = (centred**2).mean(axis=1, keepdims=True)
            read = centred / np.sqrt(variance + 1e-5) * raw["ln_w"] + raw["ln_b"]
        no_bias = np.zeros((config.n_heads, config.d_head))
        attention = {name: raw[name] for name in ("W_Q", "W_K", "W_V")}
        attention |= {name: raw.get(name, no_bias) for name in ("b_Q", "b_K", "b_V")}
        scale = config.d_head**0.5 if config.scale_scores else 1.0
        if config.output == "residual":
            rest = {name: raw[name] for name in ("W_O", "b_O", "W_U", "b_U")}
            return cls(read=read, stream=raw["W_E"], **attention, **rest, attn_scale=scale)
        # Heads write logits directly, and no skip connection does.
        return cls(
            read=read, stream=np.zeros((8, 8)), **attention, W_O=raw["W_out"], b_O=np.zeros(8),
            W_U=np.eye(8), b_U=raw["b_out"], attn_scale=scale,
        )  # fmt: skip

    def run(
        self, tokens: Sequence[int], rows: Sequence[int], times: Sequence[int] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return head outputs [row, head, d_head] and logits [row, token] at some positions.

        Args:
            tokens: the sentence.
            rows: the positions.
            times: how often each token stands there, where it is too often to write it out.
        """
        tokens, rows = np.asarray(tokens), np.asarray(rows)
        x = self.read[tokens]
        q = np.einsum("rd,hde->hre", x[rows], self.W_Q) + self.b_Q[:, None]
        k = np.einsum("kd,hde->hke", x, self.W_K) + self.b_K[:, None]
        v = np.einsum("kd,hde->hke", x, self.W_V) + self.b_V[:, None]
        scores = np.einsum("hre,hke->hrk", q, k) / self.attn_scale
        scores = np.where(np.arange(len(tokens)) > rows[:, None], -np.inf, scores)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        if times is not None:
            weights = weights * np.asarray(times, dtype=float)
        z = np.einsum("hrk,hke->rhe", weights, v) / weights.sum(axis=-1).T[..., None]
        stream = self.stream[tokens[rows]] + np.einsum("rhe,hed->rd", z, self.W_O) + self.b_O
        return z, stream @ self.W_U + self.b_U

    @property
    def scores(self) -> np.ndarray:
        """Attention scores of all pairs of tokens: [head, query, key]."""
        q = np.einsum("td,hde->hte", self.read, self.W_Q) + self.b_Q[:, None]
        k = np.einsum("td,hde->hte", self.read, self.W_K) + self.b_K[:, None]
        return np.einsum("hqe,hke->hqk", q, k) / self.attn_scale

    @property
    def largest_score(self) -> float:
        """The largest absolute score of '=', '4' or '5' for what may stand before them."""
        return float(np.abs(self.scores[:, EQUALS : FIVE + 1, :EOS]).max())

    @property
    def sizes(self) -> tuple[float, float]:
        """How large head outputs, and the terms that logits are the sum of, can become."""
        v = (
            np.einsum("td,hde->hte", np.abs(self.read), np.abs(self.W_V))
            + np.abs(self.b_V)[:, None]
        )
        written = np.einsum("he,hed->d", v.max(axis=1), np.abs(self.W_O)) + np.abs(self.b_O)
        stream = np.abs(self.stream).max(axis=0) + written
        logits = stream @ np.abs(self.W_U) + np.abs(self.b_U)
        return float(v.max()), float(logits.max())


def random_model(rng: np.random.Generator, *, dtype=torch.float64, largest_score: float = 3000.0):
    """Draw a model of any shape: its HookedTransformer, raw parameters and config.

    Its largest score is drawn, too: from nearly uniform attention to a head that sees one token.
    """
    config = ModelConfig(
        d_embed=int(rng.integers(1, 9)),
        n_heads=int(rng.integers(1, 7)),
        d_head=int(rng.integers(1, 5)),
        output=str(rng.choice(["fused", "residual"])),
        layer_norm=bool(rng.random() < 0.5),
        qkv_bias=bool(rng.random() < 0.5),
        scale_scores=bool(rng.random() < 0.5),
        init=str(rng.choice(["pytorch", "transformer_lens"])),
        n_ctx=64,
    )
    raw = initial_raw(config, int(rng.integers(2**32)), torch.float64)
    for name in raw:
        # Fresh models have layer norms of one and some biases of zero, which would hide mistakes.
        if name.startswith(("b_", "ln_")) and rng.random() < 0.5:
            raw[name] = raw[name] + torch.from_numpy(rng.standard_normal(raw[name].shape))
    size = 10 ** rng.uniform(-1, 1)
    raw["W_V"] = raw["W_V"] * size
    largest = NumpyModel.of_raw(raw, config).largest_score
    if largest > 0:
        smallest = 1e-3 if rng.random() < 0.75 else largest_score / 5
        factor = 10 ** rng.uniform(np.log10(smallest), np.log10(largest_score)) / largest
        raw |= {name: raw[name] * factor for name in ("W_Q", "b_Q") if name in raw}
    raw = {name: value.to(dtype) for name, value in raw.items()}
    return hooked_transformer(raw, config), raw, config


def random_counts(rng: np.random.Generator, n: int, most: int) -> np.ndarray:
    """Draw counts up to `most`: some zero, some ties, some a tie but for one."""
    counts = rng.integers(0, most + 1, (n, 3))
    counts[rng.random((n, 3)) < 0.2] = 0
    near = rng.random(n)
    for low, lead in ((0.0, -1), (0.1, 0), (0.2, 1)):
        rows = (low <= near) & (near < low + 0.1)
        counts[rows, 1] = counts[rows, 0] + lead
    return counts.clip(0, most)


def sentence(counts: Sequence[int], rng: np.random.Generator) -> list[int]:
    """Write counts out as tokens in random order, `[BOS] ... = a`, with the right answer."""
    n0, n1, n2 = (int(n) for n in counts)
    body = rng.permutation(np.repeat([ZERO, ONE, TWO], [n0, n1, n2])).tolist()
    return [BOS, *body, EQUALS, FOUR if n1 > n0 else FIVE]
