"""The parameters of the paper's model, as they are trained and as a HookedTransformer has them.

Training has *raw* parameters: an embedding, a layer norm, attention, an output layer. Because the
model has no positions, layer norm turns each token's embedding into one fixed vector, so it
folds into the table `W_E`. The residual stream of the HookedTransformer has two lanes,

    [ what attention reads | what the unembedding reads ],

`W_Q`, `W_K`, `W_V` read the first, `W_O` writes the second, `W_U` reads the second. Nothing in
the result is custom: bare TransformerLens loads and runs it, and its tools are exact on it.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from count01_lens.common.memory import check_memory
from count01_lens.common.text import plural
from count01_lens.common.validation import check_default_device, check_seed
from count01_lens.models.config import ModelConfig
from count01_lens.tasks.language import TOKENS

D_VOCAB = len(TOKENS)  # of Count01; other counting tasks have more or fewer
LAYER_NORM_EPS = 1e-5
_INIT_STREAM = 10

Raw = dict[str, Tensor]


def raw_shapes(config: ModelConfig, d_vocab: int = D_VOCAB) -> dict[str, tuple[int, ...]]:
    """Name and shape of every raw parameter, in the order in which they are initialised."""
    d_embed, heads, d_head = config.d_embed, config.n_heads, config.d_head
    shapes: dict[str, tuple[int, ...]] = {"W_E": (d_vocab, d_embed)}
    if config.layer_norm:
        shapes |= {"ln_w": (d_embed,), "ln_b": (d_embed,)}
    shapes |= dict.fromkeys(("W_Q", "W_K", "W_V"), (heads, d_embed, d_head))
    if config.qkv_bias:
        shapes |= dict.fromkeys(("b_Q", "b_K", "b_V"), (heads, d_head))
    if config.output == "fused":
        shapes |= {"W_out": (heads, d_head, d_vocab), "b_out": (d_vocab,)}
    else:
        shapes |= {"W_O": (heads, d_head, d_embed), "b_O": (d_embed,)}
        shapes |= {"W_U": (d_embed, d_vocab), "b_U": (d_vocab,)}
    return shapes


def check_size(
    config: ModelConfig,
    dtype: torch.dtype,
    d_vocab: int = D_VOCAB,
    *,
    n_models: int = 1,
    copies: int = 1,
) -> None:
    """Raise if models cannot fit into memory, before any of it is taken.

    Args:
        config: their shape.
        dtype: of their numbers.
        d_vocab: how many tokens there are.
        n_models: how many of them are kept as raw parameters, all at once.
        copies: of these, as optimisers keep them.
    """
    raw = n_models * copies * sum(map(math.prod, raw_shapes(config, d_vocab).values()))
    # One of them as a HookedTransformer, whose residual stream is wider.
    attention = 4 * config.n_heads * config.d_head * config.d_model
    whole = attention + (2 * d_vocab + config.n_ctx) * config.d_model
    check_memory(
        f"{plural(n_models, 'model')} with {config.n_heads:,} heads, d_embed={config.d_embed:,}, "
        f"d_head={config.d_head:,}, n_ctx={config.n_ctx:,}",
        max(raw, whole) * dtype.itemsize,
        "take smaller models" + (", or fewer at a time" if n_models > 1 else ""),
    )


def initial_raw(
    config: ModelConfig, seed: int, dtype: torch.dtype = torch.float32, *, d_vocab: int = D_VOCAB
) -> Raw:
    """Draw raw parameters; they depend on the config, the seed and the number of tokens alone."""
    check_seed(seed)
    check_default_device()
    check_size(config, dtype, d_vocab)
    rng = np.random.default_rng([seed, _INIT_STREAM])
    draw = _DRAWN_LIKE[config.init]
    return {
        name: torch.from_numpy(draw(rng, name, shape, config)).to(dtype)
        for name, shape in raw_shapes(config, d_vocab).items()
    }


def read_by_attention(raw: Mapping[str, Tensor], config: ModelConfig) -> Tensor:
    """What queries, keys and values read of each token: its embedding, normalised or not."""
    embedding = raw["W_E"]
    if not config.layer_norm:
        return embedding
    normalised = F.layer_norm(embedding, embedding.shape[-1:], eps=LAYER_NORM_EPS)
    return normalised * raw["ln_w"].unsqueeze(-2) + raw["ln_b"].unsqueeze(-2)


def transformer_lens_parameters(
    raw: Mapping[str, Tensor], config: ModelConfig
) -> dict[str, Tensor]:
    """Map raw parameters to those of the HookedTransformer, differentiably.

    Leading axes, such as `model` in a stack of models, stay in front. `W_pos` is not among the
    results: it is zero for every model.
    """
    embedding = raw["W_E"]
    lead = embedding.shape[:-2]
    read = read_by_attention(raw, config)
    # How much of the residual stream lies beside one embedding: nothing, if there is one lane.
    beside = config.d_model - config.d_embed

    if config.output == "fused":
        W_E = F.pad(read, (0, beside))
        own_coordinates = rearrange(
            torch.eye(beside, dtype=embedding.dtype, device=embedding.device),
            "(head d_head) d_z -> head d_head d_z",
            head=config.n_heads,
        )
        W_O = F.pad(own_coordinates, (config.d_embed, 0)).expand(*lead, -1, -1, -1)
        b_O = embedding.new_zeros(*lead, config.d_model)
        W_U = rearrange(raw["W_out"], "... head d_head vocab -> ... (head d_head) vocab")
        W_U = F.pad(W_U, (0, 0, config.d_embed, 0))
        b_U = raw["b_out"]
    else:
        W_E = torch.cat([read, embedding], dim=-1) if config.n_lanes == 2 else embedding
        W_O = F.pad(raw["W_O"], (beside, 0))
        b_O = F.pad(raw["b_O"], (beside, 0))
        W_U = F.pad(raw["W_U"], (0, 0, beside, 0))
        b_U = raw["b_U"]

    no_bias = embedding.new_zeros(*lead, config.n_heads, config.d_head)
    parameters = {"embed.W_E": W_E}
    for letter in "QKV":
        parameters[f"blocks.0.attn.W_{letter}"] = F.pad(raw[f"W_{letter}"], (0, 0, 0, beside))
        parameters[f"blocks.0.attn.b_{letter}"] = raw[f"b_{letter}"] if config.qkv_bias else no_bias
    parameters |= {"blocks.0.attn.W_O": W_O, "blocks.0.attn.b_O": b_O}
    return parameters | {"unembed.W_U": W_U, "unembed.b_U": b_U}


Draw = Callable[[np.random.Generator, str, tuple[int, ...], ModelConfig], np.ndarray]


def _pytorch(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], config: ModelConfig
) -> np.ndarray:
    if name == "W_E":
        return rng.standard_normal(shape)
    if name in ("ln_w", "ln_b"):
        return np.full(shape, 1.0 if name == "ln_w" else 0.0)
    return rng.uniform(-1.0, 1.0, shape) / math.sqrt(_fans(name, shape, config)[0])


def _xavier(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], config: ModelConfig
) -> np.ndarray:
    if name == "W_E" or name.startswith("ln_"):
        return _pytorch(rng, name, shape, config)
    if name.startswith("b_"):
        return np.zeros(shape)
    return rng.uniform(-1.0, 1.0, shape) * math.sqrt(6 / sum(_fans(name, shape, config)))


def _normal(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], config: ModelConfig
) -> np.ndarray:
    if name in ("W_Q", "W_K", "W_V"):
        return rng.standard_normal(shape)
    return _pytorch(rng, name, shape, config)


def _normal_of_size(size: Callable[[ModelConfig], float]) -> Draw:
    """Weights and embeddings N(0, size²), biases zero."""

    def draw(
        rng: np.random.Generator, name: str, shape: tuple[int, ...], config: ModelConfig
    ) -> np.ndarray:
        if name == "ln_w":
            return np.ones(shape)
        return rng.standard_normal(shape) * size(config) if name[0] == "W" else np.zeros(shape)

    return draw


_DRAWN_LIKE: dict[str, Draw] = {
    "pytorch": _pytorch,
    "transformer_lens": _normal_of_size(lambda config: 0.8 / math.sqrt(config.d_embed)),
    "xavier": _xavier,
    "normal": _normal,
    "small_normal": _normal_of_size(lambda config: 0.02),
}


def _fans(name: str, shape: tuple[int, ...], config: ModelConfig) -> tuple[int, int]:
    """Inputs and outputs of the linear layer that a weight or bias belongs to."""
    of_heads = config.n_heads * config.d_head
    return {
        "out": (of_heads, shape[-1]),
        "O": (of_heads, config.d_embed),
        "U": (config.d_embed, shape[-1]),
    }.get(name.removeprefix("W_").removeprefix("b_"), (config.d_embed, of_heads))
