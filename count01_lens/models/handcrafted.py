"""Models written by hand, whose behaviour is known: the paper's minimal solution and two controls.

* `minimal_model`: one head of size one solves both tasks (appendix A).
* `cooperative_model`: one head counts '0's, one counts '1's, the output layer compares. Section
  6.1 imagines this; trained models do not do it. Alone, each head is worth nothing.
* `ensemble_model`: copies of the minimal head that average their votes. Alone, each is worth all.
"""

import math
from typing import Literal

import torch

from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_bool, check_dtype, check_int, check_number
from count01_lens.models.build import hooked_transformer
from count01_lens.models.config import ModelConfig
from count01_lens.models.parameters import D_VOCAB, Raw
from count01_lens.tasks.language import Token

_ANSWERS = (Token.FOUR, Token.FIVE)


def minimal_model(
    *,
    n: float = 10.0,
    epsilon: float = 5e-4,
    skip: bool = True,
    dtype: torch.dtype = torch.float32,
) -> HookedTransformer:
    """Build the handcrafted solution of appendix A: d = d0 = 1, one head, no layer norm.

    At '=', the head's output lies between N and N + 1, nearer to N + 1 the more 1s there are, and
    equals `a = (e(N+1) + N)/(1 + e)` when there are as many 1s as 0s. At '4' and '5' the head
    attends to the answer itself and gives N².

    Args:
        n: the paper's N. Attention scores reach N⁴.
        epsilon: the paper's ε, the lead of '5' at a tie. Between 1e-4 and 1e-3 the model is right
            for all counts up to 200, for N from 10 to 30, in float32 and float64.
        skip: with the skip connection, as in the paper, or without.
        dtype: float32 or float64.

    Example:
        >>> cl.verify(cl.minimal_model(), up_to=50).n_errors
        0
    """
    return _export(*minimal_raw(n, epsilon, skip), dtype)


def minimal_raw(n: float, epsilon: float, skip: bool) -> tuple[Raw, ModelConfig]:
    """Write down the raw parameters of the minimal solution, in float64."""
    check_number("n", n, above=0)
    check_number("epsilon", epsilon, above=0)
    check_bool("skip", skip)
    if n > 1000:
        raise ValueError(f"n: expected at most 1000 (scores reach n⁴), got {n!r}")
    # Appendix A prints nine entries of W_out and b_out for the eight tokens.
    boundary = (math.e * (n + 1) + n) / (1 + math.e)
    weight, bias = torch.zeros(2, D_VOCAB, dtype=torch.float64)
    weight[Token.FOUR], bias[Token.FOUR] = 1.0, -boundary - 1
    weight[Token.FIVE], bias[Token.FIVE] = -1.0, boundary + 1 + epsilon
    weight[Token.EOS], bias[Token.EOS] = 4.0, -4 * 3 * (n + 1)
    embedding = torch.tensor([0.0, n, n + 1, 0.0, 1.0, n**2, n**2, 0.0], dtype=torch.float64)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    raw = {"W_E": embedding[:, None], "W_Q": one, "W_K": one, "W_V": one}
    if skip:
        raw |= {"W_O": one, "b_O": torch.zeros(1, dtype=torch.float64)}
        raw |= {"W_U": weight[None, :], "b_U": bias}
    else:
        # What the skip connection would add at '=' is the embedding of '=', 1, times the weights.
        raw |= {"W_out": weight[None, None, :], "b_out": bias + weight}
    output: Literal["fused", "residual"] = "residual" if skip else "fused"
    return raw, ModelConfig(d_embed=1, n_heads=1, d_head=1, layer_norm=False, output=output)


def ensemble_model(
    n_heads: int = 4,
    *,
    n: float = 10.0,
    epsilon: float = 5e-4,
    dtype: torch.dtype = torch.float32,
) -> HookedTransformer:
    """Build copies of the minimal head, without skip connection, that share the logits equally."""
    check_int("n_heads", n_heads, at_least=1)
    raw, _ = minimal_raw(n, epsilon, skip=False)
    for name in ("W_Q", "W_K", "W_V", "W_out"):
        raw[name] = raw[name].expand(n_heads, -1, -1)
    raw["W_out"] = raw["W_out"] / n_heads
    config = ModelConfig(d_embed=1, n_heads=n_heads, d_head=1, layer_norm=False)
    return _export(raw, config, dtype)


def cooperative_model(
    *, scale: float = 1e4, dtype: torch.dtype = torch.float32
) -> HookedTransformer:
    """Build two heads that solve the task only together: head 0 counts '0's, head 1 counts '1's.

    Each head attends to '[BOS]' with weight `scale` and to each token it counts with weight 1,
    whose value is `scale`; its output `scale·n/(n + scale)` is nearly n. The output layer answers
    '4' where head 1 gives at least half a count more. At the answer both heads attend to it and
    give ten times `scale`, more than any count, which votes for '[EOS]'.

    Args:
        scale: the counting range; counts well below it are told apart.
        dtype: float32 or float64.

    Example:
        >>> analysis = cl.analyze_heads(cl.cooperative_model())
        >>> bool(analysis.pairs["s_acc"][0, 1] > analysis.table["s_acc"].max() + 0.4)
        True
    """
    check_number("scale", scale, above=1)
    config = ModelConfig(d_embed=D_VOCAB, n_heads=2, d_head=1, layer_norm=False)
    unattended = -60.0
    keys = torch.full((2, D_VOCAB), unattended, dtype=torch.float64)
    values = torch.zeros(2, D_VOCAB, dtype=torch.float64)
    for head, counted in enumerate((Token.ZERO, Token.ONE)):
        keys[head, Token.BOS] = math.log(scale)
        keys[head, counted] = 0.0
        keys[head, _ANSWERS] = -unattended
        values[head, counted] = scale
        values[head, _ANSWERS] = 10 * scale

    weight = torch.zeros(2, D_VOCAB)
    weight[:, Token.FOUR] = torch.tensor([-1.0, 1.0])
    weight[:, Token.FIVE] = torch.tensor([1.0, -1.0])
    weight[:, Token.EOS] = 1.0
    bias = torch.zeros(D_VOCAB)
    bias[Token.FIVE] = 1.0  # '4' - '5' is 2(n1 - n0) - 1: a lead of one count, or none
    bias[Token.EOS] = -4 * scale  # both outputs together stay below 2·scale at '='

    raw = {
        "W_E": torch.eye(D_VOCAB),
        "W_Q": torch.ones(2, D_VOCAB, 1),
        "W_K": keys[:, :, None],
        "W_V": values[:, :, None],
        "W_out": weight[:, None, :],
        "b_out": bias,
    }
    return _export(raw, config, dtype)


def _export(raw: Raw, config: ModelConfig, dtype: torch.dtype) -> HookedTransformer:
    check_dtype(dtype)
    return hooked_transformer({name: value.to(dtype) for name, value in raw.items()}, config)
