"""The paper's model as a plain HookedTransformer.

Training has *raw* parameters: an embedding, a layer norm, attention, an output layer. Because the
model has no positions, layer norm turns each of the eight embeddings into one fixed vector, so it
folds into the table `W_E`. The residual stream of the HookedTransformer has two lanes,

    [ what attention reads | what the unembedding reads ],

`W_Q`, `W_K`, `W_V` read the first, `W_O` writes the second, `W_U` reads the second. Nothing in
the result is custom: bare TransformerLens loads and runs it, and its tools are exact on it.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import (
    check_bool,
    check_choice,
    check_dtype,
    check_int,
    check_seed,
)
from count01_lens.tasks.language import TOKENS

D_VOCAB = len(TOKENS)
LAYER_NORM_EPS = 1e-5
_INIT_STREAM = 10

Raw = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a model and the choices that the paper leaves open.

    Attributes:
        d_embed: the paper's d, size of a token embedding.
        n_heads: the paper's a.
        d_head: the paper's d0; `d_embed // n_heads` unless given.
        output: "fused": the output layer reads the head outputs directly, no skip connection
            reaches the logits (the paper's analysis). "residual": a projection P, the skip
            connection and an unembedding.
        layer_norm: normalise embeddings before attention reads them. With d_embed=1 this makes
            all tokens alike: leave it out there, as the paper does.
        qkv_bias: give queries, keys and values a bias.
        scale_scores: divide attention scores by √d_head; the paper writes them without.
        init: "pytorch": embeddings N(0, 1), linear layers uniform in ±1/√fan_in.
            "transformer_lens": N(0, 0.8²/d_embed), zero biases.
        n_ctx: longest sentence in tokens.
    """

    d_embed: int = 32
    n_heads: int = 16
    d_head: int = None  # type: ignore[assignment]  # filled in below
    output: Literal["fused", "residual"] = "fused"
    layer_norm: bool = True
    qkv_bias: bool = False
    scale_scores: bool = False
    init: Literal["pytorch", "transformer_lens"] = "pytorch"
    n_ctx: int = 1024

    def __post_init__(self) -> None:
        for name in ("d_embed", "n_heads", "n_ctx"):
            object.__setattr__(self, name, check_int(name, getattr(self, name), at_least=1))
        given: int | None = self.d_head
        if given is None:
            if self.d_embed < self.n_heads:
                raise ValueError(
                    f"d_head = d_embed // n_heads = {self.d_embed} // {self.n_heads} is 0: "
                    "expected at least as many embedding dimensions as heads; "
                    "give d_head, for example d_head=1"
                )
            object.__setattr__(self, "d_head", self.d_embed // self.n_heads)
        object.__setattr__(self, "d_head", check_int("d_head", self.d_head, at_least=1))
        check_choice("output", self.output, ("fused", "residual"))
        check_choice("init", self.init, ("pytorch", "transformer_lens"))
        for name in ("layer_norm", "qkv_bias", "scale_scores"):
            check_bool(name, getattr(self, name))

    @property
    def n_lanes(self) -> int:
        """One where attention and the unembedding can read the same vector, else two."""
        return 1 if self.output == "residual" and not self.layer_norm else 2

    @property
    def d_model(self) -> int:
        """Width of the HookedTransformer's residual stream, all lanes together."""
        if self.output == "fused":
            return self.d_embed + self.n_heads * self.d_head
        return self.n_lanes * self.d_embed

    @property
    def attn_scale(self) -> float:
        """What attention scores are divided by."""
        return math.sqrt(self.d_head) if self.scale_scores else 1.0


def raw_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every raw parameter, in the order in which they are initialised."""
    d_embed, heads, d_head = config.d_embed, config.n_heads, config.d_head
    shapes: dict[str, tuple[int, ...]] = {"W_E": (D_VOCAB, d_embed)}
    if config.layer_norm:
        shapes |= {"ln_w": (d_embed,), "ln_b": (d_embed,)}
    shapes |= dict.fromkeys(("W_Q", "W_K", "W_V"), (heads, d_embed, d_head))
    if config.qkv_bias:
        shapes |= dict.fromkeys(("b_Q", "b_K", "b_V"), (heads, d_head))
    if config.output == "fused":
        shapes |= {"W_out": (heads, d_head, D_VOCAB), "b_out": (D_VOCAB,)}
    else:
        shapes |= {"W_O": (heads, d_head, d_embed), "b_O": (d_embed,)}
        shapes |= {"W_U": (d_embed, D_VOCAB), "b_U": (D_VOCAB,)}
    return shapes


def initial_raw(config: ModelConfig, seed: int, dtype: torch.dtype = torch.float32) -> Raw:
    """Draw raw parameters; they depend on the config and the seed, and on nothing else."""
    check_seed(seed)
    rng = np.random.default_rng([seed, _INIT_STREAM])
    draw = _draw_like_pytorch if config.init == "pytorch" else _draw_like_transformer_lens
    return {
        name: torch.from_numpy(draw(rng, name, shape, config)).to(dtype)
        for name, shape in raw_shapes(config).items()
    }


def read_by_attention(raw: Mapping[str, Tensor], config: ModelConfig) -> Tensor:
    """What queries, keys and values read of each token: its embedding, normalised or not."""
    if not config.layer_norm:
        return raw["W_E"]
    return _layer_norm(raw["W_E"], raw["ln_w"], raw["ln_b"])


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
    new_zeros = embedding.new_zeros

    if config.output == "fused":
        d_z = config.n_heads * config.d_head
        W_E = F.pad(read, (0, d_z))
        own_coordinates = rearrange(
            torch.eye(d_z, dtype=embedding.dtype, device=embedding.device),
            "(head d_head) d_z -> head d_head d_z",
            head=config.n_heads,
        )
        W_O = F.pad(own_coordinates, (config.d_embed, 0)).expand(*lead, -1, -1, -1)
        b_O = new_zeros(*lead, config.d_model)
        W_U = rearrange(raw["W_out"], "... head d_head vocab -> ... (head d_head) vocab")
        W_U = F.pad(W_U, (0, 0, config.d_embed, 0))
        b_U = raw["b_out"]
    else:
        first_lane = config.d_model - config.d_embed
        W_E = torch.cat([read, embedding], dim=-1) if config.n_lanes == 2 else embedding
        W_O = F.pad(raw["W_O"], (first_lane, 0))
        b_O = F.pad(raw["b_O"], (first_lane, 0))
        W_U = F.pad(raw["W_U"], (0, 0, first_lane, 0))
        b_U = raw["b_U"]

    second_lane = config.d_model - config.d_embed
    parameters = {"embed.W_E": W_E}
    for letter in "QKV":
        parameters[f"blocks.0.attn.W_{letter}"] = F.pad(raw[f"W_{letter}"], (0, 0, 0, second_lane))
        parameters[f"blocks.0.attn.b_{letter}"] = (
            raw[f"b_{letter}"]
            if config.qkv_bias
            else new_zeros(*lead, config.n_heads, config.d_head)
        )
    parameters |= {"blocks.0.attn.W_O": W_O, "blocks.0.attn.b_O": b_O}
    return parameters | {"unembed.W_U": W_U, "unembed.b_U": b_U}


def hooked_transformer(raw: Mapping[str, Tensor], config: ModelConfig) -> HookedTransformer:
    """Export raw parameters as a plain HookedTransformer with a tokenizer, on the CPU."""
    _check_raw(raw, config)
    model = empty_hooked_transformer(config, raw["W_E"].dtype)
    model.load_state_dict(
        {
            name: parameter.detach().contiguous()
            for name, parameter in transformer_lens_parameters(raw, config).items()
        }
        | {"pos_embed.W_pos": torch.zeros_like(model.pos_embed.W_pos)},
        strict=False,  # the two buffers of the attention block are constants
    )
    return model


def build_model(
    config: ModelConfig | None = None, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> HookedTransformer:
    """Make an untrained model.

    Args:
        config: the paper's 16 heads and 32 dimensions by default.
        seed: of the initialisation; the global random state is neither used nor changed.
        dtype: float32 or float64.

    Example:
        >>> model = cl.build_model(cl.ModelConfig(d_embed=8, n_heads=4), seed=3)
        >>> model.cfg.n_layers, model.cfg.n_heads, model.cfg.d_head
        (1, 4, 2)
        >>> model.to_string(model.to_tokens("011="))
        ['[BOS]011=']
    """
    config = ModelConfig() if config is None else config
    if not isinstance(config, ModelConfig):
        raise TypeError(f"config: expected a ModelConfig, got {config!r}")
    check_dtype(dtype)
    return hooked_transformer(initial_raw(config, seed, dtype), config)


def empty_hooked_transformer(config: ModelConfig, dtype: torch.dtype) -> HookedTransformer:
    """Make the HookedTransformer of a config, its weights not yet set."""
    from count01_lens.tasks.tokenizer import count01_tokenizer

    model = make_hooked_transformer(
        dict(
            d_model=config.d_model,
            d_head=config.d_head,
            n_heads=config.n_heads,
            n_layers=1,
            n_ctx=config.n_ctx,
            d_vocab=D_VOCAB,
            attn_only=True,
            normalization_type=None,
            use_attn_scale=config.scale_scores,
            device="cpu",
            dtype=dtype,
            init_weights=False,
            model_name="count01",
        ),
        tokenizer=count01_tokenizer(),
    )
    # TransformerLens has no "none" for positions: a frozen table of zeros is one.
    model.pos_embed.W_pos.requires_grad_(False)
    return model


def make_hooked_transformer(
    cfg: dict[str, Any], tokenizer: Any = None, move_to_device: bool = True
) -> HookedTransformer:
    """Call `HookedTransformer(cfg)` without its notice that a later version removes the class."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        return HookedTransformer(
            HookedTransformerConfig(**cfg), tokenizer=tokenizer, move_to_device=move_to_device
        )


def check_model(model: Any, *, d_vocab: int | None = D_VOCAB) -> None:
    """Raise unless this is a HookedTransformer with finite weights over so many tokens.

    Args:
        model: what a user gave.
        d_vocab: Count01's by default; None for any.
    """
    from transformer_lens import HookedTransformer

    if not isinstance(model, HookedTransformer):
        raise TypeError(f"model: expected a HookedTransformer, got {type(model).__name__}")
    if d_vocab is not None and {model.cfg.d_vocab, model.cfg.d_vocab_out} != {d_vocab}:
        raise ValueError(
            f"model: expected the {d_vocab} tokens of Count01, got {model.cfg.d_vocab} "
            f"(and {model.cfg.d_vocab_out} logits)"
        )
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        raise ValueError("model: expected finite weights, got NaN or infinite ones")


def _layer_norm(
    x: Float[Tensor, "*model token d_embed"],
    weight: Float[Tensor, "*model d_embed"],
    bias: Float[Tensor, "*model d_embed"],
) -> Float[Tensor, "*model token d_embed"]:
    normalised = F.layer_norm(x, x.shape[-1:], eps=LAYER_NORM_EPS)
    return normalised * weight.unsqueeze(-2) + bias.unsqueeze(-2)


def _check_raw(raw: Mapping[str, Tensor], config: ModelConfig) -> None:
    expected = raw_shapes(config)
    got = {name: tuple(value.shape) for name, value in raw.items()}
    if got != expected:
        raise ValueError(f"raw parameters: expected {expected}, got {got}")


def _draw_like_pytorch(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], config: ModelConfig
) -> np.ndarray:
    if name == "W_E":
        return rng.standard_normal(shape)
    if name in ("ln_w", "ln_b"):
        return np.full(shape, 1.0 if name == "ln_w" else 0.0)
    reads_heads = name in ("W_out", "b_out", "W_O", "b_O")
    fan_in = config.n_heads * config.d_head if reads_heads else config.d_embed
    return rng.uniform(-1.0, 1.0, shape) / math.sqrt(fan_in)


def _draw_like_transformer_lens(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], config: ModelConfig
) -> np.ndarray:
    if name == "ln_w":
        return np.ones(shape)
    if name.startswith("W_"):
        return rng.standard_normal(shape) * (0.8 / math.sqrt(config.d_embed))
    return np.zeros(shape)
