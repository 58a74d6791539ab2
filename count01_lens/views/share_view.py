"""Shares of heads in the answer, token by token.

Attention says where a head looks; what it makes of that is attention times what it reads there,
which can speak for an answer or against it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.threads import one_thread
from count01_lens.common.types import HookedTransformer
from count01_lens.models.hooks import HeadName, has_final_norm, through_frozen_norm
from count01_lens.models.parameters import D_VOCAB
from count01_lens.tasks.language import At, Sentence, Token
from count01_lens.views.attention_view import Asked, AttentionView, look, token_types
from count01_lens.views.circuits_page import Drawing, Section, Table, rounded, signed

# Sums in another order differ by some roundings of the largest number; a hook changes far more.
_ROUNDINGS = 1e3


@torch.no_grad()
@one_thread()  # the same bytes however many there are
def show_shares(
    model: HookedTransformer,
    sentence: str | Sentence,
    *,
    heads: Iterable[HeadName] | None = None,
) -> AttentionView:
    """Show what each token brings to the answer through each head.

    The share of a head is the sum over tokens of attention times what the head reads there, so
    the colours of a head add up to its share, exactly; biases and the skip connection belong to
    no head. With a final layer norm, shares are taken at its frozen scale.

    Args:
        model: any HookedTransformer over the eight tokens.
        sentence: such as "0110=". If it has an answer, '[EOS]' after it is shown too.
        heads: numbers, or (layer, head) pairs; all by default.
    """
    asked = Asked.check(model, sentence, heads)
    seen = look(model, asked)
    shares: dict[At, Tensor] = {}
    sections = []
    for at, position, heading, direction in _questions(asked.tokens):
        parts = _share_by_token(model, seen.cache, position, direction.to(model.W_U))
        by_token = asked.grouping.to(parts.by_token) @ parts.by_token
        shares[at] = by_token[:, asked.heads]
        total = float(direction.to(seen.logits) @ seen.logits[position])
        text = _share_text(asked, parts, total, frozen=has_final_norm(model))
        drawing = _share_drawing(asked, by_token)
        sections.append(Section(heading, text, [drawing], _share_table(asked, parts)))
    return AttentionView(
        asked.title, asked.labels, asked.names, seen.attention, tuple(sections), shares=shares
    )


def _questions(tokens: list[Token]) -> Iterable[tuple[At, int, str, Float[Tensor, " vocab=8"]]]:
    """Yield where the model is asked, and the combination of logits that is its answer there."""
    one_hot = torch.eye(D_VOCAB)
    equals = tokens.index(Token.EQUALS)
    yield (
        "=",
        equals,
        "Shares after '=': logit of '4' minus that of '5'",
        one_hot[Token.FOUR] - one_hot[Token.FIVE],
    )
    if len(tokens) > equals + 1:
        answer = tokens[equals + 1].text
        heading = f"Shares after the answer '{answer}': logit of '[EOS]'"
        yield "answer", equals + 1, heading, one_hot[Token.EOS]


@dataclass(frozen=True, eq=False)
class _Parts:
    """Shares of all heads: what comes from each token, and what a hook put in its place."""

    by_token: Float[Tensor, "position head"]
    no_token: Float[Tensor, " head"]


def _share_by_token(
    model: HookedTransformer,
    cache: Any,
    position: int,
    direction: Float[Tensor, " vocab"],
) -> _Parts:
    layers = []
    for layer in range(model.cfg.n_layers):
        v = cache["v", layer][0]
        v = v.repeat_interleave(model.cfg.n_heads // v.shape[1], dim=1)  # shared by several heads
        pattern, z = cache["pattern", layer][0, :, position], cache["z", layer][0, position]
        read = einsum(pattern, v, "head key, key head d_head -> key head d_head")
        # A hook on z, such as an ablation, leaves nothing of what the head read.
        difference = (z - read.sum(dim=0)).abs().amax(dim=-1, keepdim=True)
        replaced = difference > _ROUNDINGS * torch.finfo(z.dtype).eps * z.abs().max().clamp(min=1)
        rows = torch.cat([read.masked_fill(replaced, 0), z.masked_fill(~replaced, 0)[None]])
        layers.append(einsum(rows, model.W_O[layer], "row head d, head d r -> row head r"))
    written = torch.cat(layers, dim=1)
    if has_final_norm(model):
        scale = cache["ln_final.hook_scale"][0, position].expand(len(written), 1)
        written = through_frozen_norm(model, written, scale)
    shares = (written @ (model.W_U @ direction)).cpu()
    return _Parts(shares[:-1], shares[-1])


def _share_text(asked: Asked, parts: _Parts, total: float, *, frozen: bool) -> list[str]:
    replaced = float(parts.no_token.sum())
    heads = float(parts.by_token.sum()) + replaced
    scale = " (at the frozen scale of the final layer norm)" if frozen else ""
    text = (
        f"{signed(total)} in all: heads bring {signed(heads)}{scale}, everything else "
        f"{signed(total - heads)}."
    )
    if asked.by_type:
        text += f" The sentence has {len(asked.tokens)} tokens; those of a type are drawn as one."
    if parts.no_token.any():
        text += f" Hooks replace outputs of heads: {signed(replaced)} comes from no token."
    return [text]


def _share_drawing(asked: Asked, by_token: Float[Tensor, "shown head"]) -> Drawing:
    """Colour the tokens by all heads together, or by one of them.

    The component keeps one scale for all columns; that of single heads shows most.
    """
    chosen, together = by_token[:, asked.heads], by_token.sum(dim=1, keepdim=True)
    # circuitsvis rounds the scale to six decimals, and divides by it.
    full = max(float(chosen.abs().max()), 1e-6)
    names = ["all heads", *asked.names]
    props = {
        "tokens": asked.labels,
        "values": rounded(torch.cat([together, chosen], dim=1).tolist()),
        "labels": names,
        "positiveBounds": [full] * len(names),
        "negativeBounds": [-full] * len(names),
    }
    caption = (
        "Point at a head, then at a token. Blue speaks for it, red against it; the colour is full "
        f"at ±{full:.3g}, the largest share of one head. Lower the bounds to see weaker ones."
    )
    return Drawing("ColoredTokensMulti", props, caption)


def _share_table(asked: Asked, parts: _Parts) -> Table:
    """Shares by type of token, which are few, also where every token is drawn."""
    columns, grouping = token_types(asked.tokens)
    values = grouping.to(parts.by_token) @ parts.by_token
    if parts.no_token.any():
        columns, values = [*columns, "no token"], torch.cat([values, parts.no_token[None]])
    values = torch.cat([values, values.sum(dim=0, keepdim=True)])
    rows = dict(zip(asked.names, values[:, asked.heads].T.tolist(), strict=True))
    return Table([*columns, "sum"], {**rows, "all heads": values.sum(dim=1).tolist()})
