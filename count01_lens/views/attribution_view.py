"""Direct logit attribution of heads, token by token.

Attention says where a head looks; what it adds to a logit is attention times what it reads there,
which can raise the logit or lower it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.text import plural, rounded, short, signed
from count01_lens.common.threads import one_thread
from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import is_int
from count01_lens.heads.runners import check_ids
from count01_lens.models.direct_path import DirectPath
from count01_lens.models.hooks import HeadName
from count01_lens.models.lens import require_model
from count01_lens.models.parameters import D_VOCAB
from count01_lens.tasks.language import TOKENS, Token
from count01_lens.views.attention_view import AttentionView, view_of
from count01_lens.views.circuits_page import Drawing, Section, Table
from count01_lens.views.prompt_view import LONGEST, Asked, Seen, Shown
from count01_lens.views.wording import output_texts

# Sums in another order differ by some roundings of the largest number; a hook changes far more.
_ROUNDINGS = 1e3

# Where the model is asked, by name and position; what is shown; the combination of logits it is.
Question = tuple[str, int, str, Float[Tensor, " vocab"]]


@torch.no_grad()
@one_thread()  # the same bytes however many there are
def show_attribution(
    model: HookedTransformer,
    prompt: Shown,
    *,
    heads: Iterable[HeadName] | None = None,
    layer: int | None = None,
    position: int | None = None,
    answer: int | None = None,
    choices: Iterable[int] | None = None,
) -> AttentionView:
    """Show what each token adds to the answer through each head.

    The direct logit attribution of a head is the sum over tokens of attention times what the head
    reads there, so the values of its tokens add up to it, exactly; biases and the skip connection
    belong to no head. Layer norms on the way are frozen at their scale.

    What is attributed is the logit of the answer minus the mean of those of the other choices. Of a
    sentence of Count01 it is '4' against '5' after '=' and, if it has an answer, '[EOS]' after it.

    Args:
        model: any HookedTransformer.
        prompt: as for `show_attention`, such as "0110=" or [0, 3, 1].
        heads: numbers, or (layer, head) pairs; all by default.
        layer: show only its heads; numbers of heads then count within it.
        position: where the model is asked; the last token by default.
        answer: token whose logit is attributed; by default what the model chooses.
        choices: tokens that it is compared with; all by default.
    """
    among = _choices(model, answer, choices)
    if position is None and (answer is not None or among is not None):
        position = -1  # of a sentence, too, what was asked for instead of its own places
    asked, path = Asked(model, prompt, heads, layer, position), DirectPath(model)
    seen = asked.look(path.hooks)
    attributions: dict[str, Tensor] = {}
    sections = []
    for at, place, heading, direction in _questions(asked, seen, answer, among):
        at_position = {name: seen.cache[name][:, place] for name in path.hooks}
        logits = path.uncapped(seen.logits[place, None], at_position)[0].cpu()
        added = _by_token(path, seen.cache, place, direction)
        by_token = asked.grouping.to(added) @ added[:-1]
        attributions[at] = by_token[:, asked.heads]
        total = float(direction.to(logits) @ logits)
        text = _text(asked, added, total)
        sections.append(Section(heading, [text], [_drawing(asked, by_token)], _table(asked, added)))
    return view_of(asked, seen, sections, attributions=attributions)


def _choices(
    model: HookedTransformer, answer: Any, choices: Iterable[int] | None
) -> list[int] | None:
    """Check what is to be attributed; None stands for all tokens."""
    require_model(model)
    given = None if choices is None else list(choices)
    for name, values in (("answer", [answer] * (answer is not None)), ("choices", given or [])):
        if not all(is_int(value) and value >= 0 for value in values):
            raise TypeError(f"{name}: expected token ids, got {values!r:.80}")
        check_ids(name, max(values, default=0), model.cfg.d_vocab_out)
    if given is not None and (len(set(given)) < 2 or len(set(given)) < len(given)):
        raise ValueError(f"choices: expected at least two different tokens, got {given!r:.80}")
    if given is not None and answer is not None and answer not in given:
        raise ValueError(f"answer: expected one of the choices {given!r:.80}, got {answer}")
    return given


def _questions(
    asked: Asked, seen: Seen, answer: int | None, choices: list[int] | None
) -> Iterator[Question]:
    """Yield where the model is asked, and the combination of logits that is its answer there."""
    if asked.sentence is not None:
        yield from _of_sentence(asked.tokens)
        return
    logits = seen.logits[asked.position]
    among = list(range(len(logits))) if choices is None else choices
    if answer is None:
        answer = among[int(logits[among].argmax())]
    others = [choice for choice in among if choice != answer]
    direction = torch.zeros(len(logits))
    direction[answer] = 1.0
    if others:
        direction[others] = -1 / len(others)
    shown = output_texts(asked.model, [answer, *others[:1]])
    minus = "that of " + shown[-1] if len(others) == 1 else f"the mean of {len(others)} others"
    place = f"position {asked.position}"
    heading = f"Direct logit attribution at {place}: logit of {shown[0]} minus {minus}"
    yield "asked", asked.position, heading, direction


def _of_sentence(tokens: list[int]) -> Iterator[Question]:
    one_hot = torch.eye(D_VOCAB)
    equals = tokens.index(Token.EQUALS)
    heading = "Direct logit attribution after '=': logit of '4' minus that of '5'"
    yield "=", equals, heading, one_hot[Token.FOUR] - one_hot[Token.FIVE]
    if len(tokens) > equals + 1:
        answer = TOKENS[tokens[equals + 1]]
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
        n_tokens = plural(len(asked.tokens), "token")
        text += f" The {asked.kind} has {n_tokens}; those of a type are drawn as one."
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


def _table(asked: Asked, added: Float[Tensor, "position_and_none head"]) -> Table | None:
    """Attribution by type of token, if those are few, also where every token is drawn."""
    columns, grouping = asked.types
    if len(columns) > LONGEST:
        return None
    values = grouping.to(added) @ added[:-1]
    if added[-1].any():
        columns, values = [*columns, "no token"], torch.cat([values, added[-1:]])
    values = torch.cat([values, values.sum(dim=0, keepdim=True)])
    rows = dict(zip(asked.names, values[:, asked.heads].T.tolist(), strict=True))
    return Table([*columns, "sum"], {**rows, "all heads": values.sum(dim=1).tolist()})
