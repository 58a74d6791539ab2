"""Direct logit attribution of heads, token by token.

Attention says where a head looks; what it adds to a logit is attention times what it reads there,
which can raise the logit or lower it.
"""

from collections.abc import Iterable
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.text import rounded, short, signed
from count01_lens.common.threads import one_thread
from count01_lens.common.types import HookedTransformer
from count01_lens.models.direct_path import DirectPath
from count01_lens.models.hooks import HeadName
from count01_lens.models.parameters import D_VOCAB
from count01_lens.tasks.language import Sentence, Token
from count01_lens.tasks.places import At
from count01_lens.views.attention_view import Asked, AttentionView, token_types
from count01_lens.views.circuits_page import Drawing, Section, Table

# Sums in another order differ by some roundings of the largest number; a hook changes far more.
_ROUNDINGS = 1e3


@torch.no_grad()
@one_thread()  # the same bytes however many there are
def show_attribution(
    model: HookedTransformer,
    sentence: str | Sentence,
    *,
    heads: Iterable[HeadName] | None = None,
) -> AttentionView:
    """Show what each token adds to the answer through each head.

    The direct logit attribution of a head is the sum over tokens of attention times what the head
    reads there, so the values of its tokens add up to it, exactly; biases and the skip connection
    belong to no head. Layer norms on the way are frozen at their scale.

    Args:
        model: any HookedTransformer over the eight tokens.
        sentence: such as "0110=". If it has an answer, '[EOS]' after it is shown too.
        heads: numbers, or (layer, head) pairs; all by default.
    """
    asked, path = Asked(model, sentence, heads), DirectPath(model)
    seen = asked.look(path.hooks)
    attributions: dict[At, Tensor] = {}
    sections = []
    for at, position, heading, direction in _questions(asked.tokens):
        at_position = {name: seen.cache[name][:, position] for name in path.hooks}
        logits = path.uncapped(seen.logits[position, None], at_position)[0].cpu()
        added = _by_token(path, seen.cache, position, direction)
        by_token = asked.grouping.to(added) @ added[:-1]
        attributions[at] = by_token[:, asked.heads]
        total = float(direction.to(logits) @ logits)
        text = _text(asked, added, total)
        sections.append(Section(heading, [text], [_drawing(asked, by_token)], _table(asked, added)))
    return asked.view(seen, sections, attributions=attributions)


def _questions(tokens: list[Token]) -> Iterable[tuple[At, int, str, Float[Tensor, " vocab=8"]]]:
    """Yield where the model is asked, and the combination of logits that is its answer there."""
    one_hot = torch.eye(D_VOCAB)
    equals = tokens.index(Token.EQUALS)
    heading = "Direct logit attribution after '=': logit of '4' minus that of '5'"
    yield "=", equals, heading, one_hot[Token.FOUR] - one_hot[Token.FIVE]
    if len(tokens) > equals + 1:
        answer = tokens[equals + 1].text
        heading = f"Direct logit attribution after the answer '{answer}': logit of '[EOS]'"
        yield "answer", equals + 1, heading, one_hot[Token.EOS]


def _by_token(
    path: DirectPath, cache: Any, position: int, direction: Float[Tensor, " vocab"]
) -> Float[Tensor, "position_and_none head"]:
    """Attribution to all heads: from each token, and last from what a hook put in their place."""
    layers, model = [], path.model
    for layer in range(model.cfg.n_layers):
        v = cache["v", layer][0]
        v = v.repeat_interleave(model.cfg.n_heads // v.shape[1], dim=1)  # shared by several heads
        pattern, z = cache["pattern", layer][0, :, position], cache["z", layer][0, position]
        read = einsum(pattern, v, "head key, key head d_head -> key head d_head")
        # A hook on z, such as an ablation, leaves nothing of what the head read.
        difference = (z - read.sum(dim=0)).abs().amax(dim=-1, keepdim=True)
        replaced = difference > _ROUNDINGS * torch.finfo(z.dtype).eps * z.abs().max().clamp(min=1)
        rows = torch.cat([read.masked_fill(replaced, 0), z.masked_fill(~replaced, 0)[None]])
        layers.append(rows)
    at = {name: cache[name][:, position].expand(len(rows), -1) for name in path.scales}
    added = path.of_outputs(layers, at).cpu()
    return added @ direction.to(added)


def _text(asked: Asked, added: Float[Tensor, "position_and_none head"], total: float) -> str:
    replaced = float(added[-1].sum())
    heads = float(added[:-1].sum()) + replaced
    frozen = DirectPath(asked.model).has_norms
    scale = " (at the frozen scale of layer norms)" if frozen else ""
    text = (
        f"{signed(total)} in all: heads add {signed(heads)}{scale}, everything else "
        f"{signed(total - heads)}."
    )
    if asked.by_type:
        text += f" The sentence has {len(asked.tokens)} tokens; those of a type are drawn as one."
    if added[-1].any():
        text += f" Hooks replace outputs of heads: {signed(replaced)} comes from no token."
    return text


def _drawing(asked: Asked, by_token: Float[Tensor, "shown head"]) -> Drawing:
    """Colour the tokens by what all heads together add, or one of them.

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
        "Point at a head, then at a token. Blue raises the logit, red lowers it; the colour is "
        f"full at ±{short(full, 3)}, the largest value of one head. Lower the bounds to see the "
        "smaller ones."
    )
    return Drawing("ColoredTokensMulti", props, caption)


def _table(asked: Asked, added: Float[Tensor, "position_and_none head"]) -> Table:
    """Attribution by type of token, which are few, also where every token is drawn."""
    columns, grouping = token_types(asked.tokens)
    values = grouping.to(added) @ added[:-1]
    if added[-1].any():
        columns, values = [*columns, "no token"], torch.cat([values, added[-1:]])
    values = torch.cat([values, values.sum(dim=0, keepdim=True)])
    rows = dict(zip(asked.names, values[:, asked.heads].T.tolist(), strict=True))
    return Table([*columns, "sum"], {**rows, "all heads": values.sum(dim=1).tolist()})
