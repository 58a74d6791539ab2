"""The shape of a model, and the choices that the paper leaves open.

Nothing heavy is imported here: the command line takes its defaults from this.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from count01_lens.common.validation import check_bool, check_choice, check_int

Init = Literal["pytorch", "transformer_lens", "xavier", "normal", "small_normal"]


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
            "xavier": as "pytorch", but linear layers uniform in ±√(6 / (fan_in + fan_out)) (heads
            side by side are one layer), zero biases.
            "normal": as "pytorch", but W_Q, W_K and W_V N(0, 1).
            "small_normal": embeddings and linear layers N(0, 0.02²), zero biases, as GPT-2.
        n_ctx: longest sentence in tokens.
    """

    d_embed: int = 32
    n_heads: int = 16
    d_head: int = None  # type: ignore[assignment]  # a number as soon as there is a config
    output: Literal["fused", "residual"] = "fused"
    layer_norm: bool = True
    qkv_bias: bool = False
    scale_scores: bool = False
    init: Init = "pytorch"
    n_ctx: int = 1024

    def __post_init__(self) -> None:
        for name in ("d_embed", "n_heads", "n_ctx"):
            vars(self)[name] = check_int(name, getattr(self, name), at_least=1)
        if self.d_head is None and self.d_embed < self.n_heads:
            raise ValueError(
                f"d_head = d_embed // n_heads = {self.d_embed} // {self.n_heads} is 0: "
                "expected at least as many embedding dimensions as heads; "
                "give d_head, for example d_head=1"
            )
        d_head = self.d_embed // self.n_heads if self.d_head is None else self.d_head
        vars(self)["d_head"] = check_int("d_head", d_head, at_least=1)
        check_choice("output", self.output, ("fused", "residual"))
        check_choice("init", self.init, get_args(Init))
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
