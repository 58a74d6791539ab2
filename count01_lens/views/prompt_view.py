"""A prompt to be shown: read, checked before the model runs, run once, and put into drawings.

A prompt is a text or token ids. Sentences of Count01 are shown with their own words; everything
else as tokens of some model. Where it is too long to be drawn token by token, all tokens of a type
are drawn as one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.text import percent, rounded, signed
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.common.validation import is_int
from count01_lens.heads.runners import check_ids
from count01_lens.models.build import check_model
from count01_lens.models.hooks import HeadName, check_heads, several_heads
from count01_lens.models.parameters import D_VOCAB
from count01_lens.tasks.decisions import four_margin
from count01_lens.tasks.language import COUNTED, TOKENS, Sentence, Token, parse
from count01_lens.views.circuits_page import Drawing
from count01_lens.views.wording import output_texts, token_texts

# A heat map of more tokens than this has cells too small to point at.
LONGEST = 40
LONGEST_DRAWN = 256  # tokens, where they are of too many types to be drawn by type
_LONGEST_TITLE = 60
_BLUE = "#00529b"

Shown = str | Sentence | Sequence[int] | Tensor | Array


@dataclass(frozen=True, eq=False)
class Seen:
    """What a run of the model gave; `attention` is that of the heads asked for, as drawn."""

    attention: Float[Tensor, "head query key"]
    logits: Float[Tensor, "position vocab"]
    cache: Any
    answer: str


class Asked:
    """A request, checked before the model runs: raises where it cannot be shown.

    Args:
        heads: None for all; with a layer, numbers count within it.
        layer: show its heads only.
        position: where the model is asked; None for a sentence's own places, else the last token.

    Attributes:
        sentence: of Count01; None where tokens are just tokens.
        by_type: whether all tokens of a type are drawn as one.
        labels: what is drawn.
        grouping: 1 where a position belongs to what is drawn.
    """

    def __init__(
        self,
        model: HookedTransformer,
        prompt: Shown,
        heads: Iterable[HeadName] | None,
        layer: int | None = None,
        position: int | None = None,
    ):
        check_model(model, d_vocab=None)
        cfg = model.cfg
        self.model = model
        self.sentence, self.tokens, texts = _read(model, prompt)
        if position is not None:
            self.sentence = None
        self.kind = "prompt" if self.sentence is None else "sentence"
        if len(self.tokens) > cfg.n_ctx:
            raise ValueError(
                f"the {self.kind} has {len(self.tokens)} tokens, the model reads {cfg.n_ctx} "
                f"(n_ctx): expected a shorter {self.kind}"
            )
        self.position = _position(position, len(self.tokens))
        self.heads = check_heads(model, _chosen(model, heads, layer))
        self.names = [
            f"layer {head // cfg.n_heads} " * (cfg.n_layers > 1) + f"head {head % cfg.n_heads}"
            for head in self.heads
        ]
        self.types = token_types(self.tokens, texts if self.sentence is None else None)
        long = len(self.tokens) > LONGEST
        self.by_type = long and len(self.types[0]) <= LONGEST
        if len(self.tokens) > LONGEST_DRAWN and not self.by_type:
            raise ValueError(
                f"the prompt has {len(self.tokens)} tokens, of {len(self.types[0])} types: "
                f"expected at most {LONGEST_DRAWN} tokens, or {LONGEST} types, to draw them; "
                "shorten it"
            )
        self.labels, self.grouping = texts, torch.eye(len(self.tokens))
        if self.by_type:
            self.labels, self.grouping = self.types

    @property
    def title(self) -> str:
        """The prompt on one line."""
        if self.sentence is not None:
            return (" " if self.by_type else "").join(self.labels[1:])
        spaced = self.by_type or self.model.tokenizer is None
        text = (" " if spaced else "").join(self.labels).strip()
        return text if len(text) <= _LONGEST_TITLE else text[: _LONGEST_TITLE - 1] + "…"

    def look(self, more: Iterable[str] = ()) -> Seen:
        """Run the model once, with all hooks that are attached to it; cache what is asked for."""
        model, layers = self.model, range(self.model.cfg.n_layers)
        names = [f"blocks.{layer}.attn.hook_{x}" for layer in layers for x in ("pattern", "v", "z")]
        tokens = torch.tensor([self.tokens], device=model.W_E.device)
        logits, cache = model.run_with_cache(tokens, names_filter=[*names, *more])
        logits = logits[0].cpu()
        pattern = torch.cat([cache["pattern", layer][0] for layer in layers])[self.heads].cpu()
        grouping = self.grouping.to(pattern)
        mean = grouping / grouping.sum(dim=1, keepdim=True)
        drawn = einsum(
            mean, pattern, grouping, "row query, head query key, column key -> head row column"
        )
        answer = _next_token(self, logits) if self.sentence is None else _answer(self, logits)
        return Seen(drawn, logits, cache, answer)

    def note(self, *attention: Float[Tensor, "head query key"]) -> str:
        """How to read a row of what is drawn."""
        sums = _sums_of_rows(torch.cat(attention))
        if not self.by_type:
            return f"{sums.capitalize()}." if sums else ""
        ending = f", and {sums}." if sums else "."
        return (
            f"The {self.kind} has {len(self.tokens)} tokens, so they are drawn by type: a row is "
            f"the mean over all tokens of a type, a column the sum{ending}"
        )

    def scale(self, *attention: Float[Tensor, "head query key"]) -> float:
        """The largest weight from '=' on; '[BOS]' can only look at itself, with a weight of 1.

        Of other prompts, the largest of all but such a first row.
        """
        if self.sentence is not None:
            first = self.labels.index(Token.EQUALS.text)
        else:
            first = int(self.is_masked and len(self.labels) > 1)
        return max(float(weights[:, first:].max()) for weights in attention) or 1.0

    @property
    def is_masked(self) -> bool:
        """Whether a drawn token sees only itself and those before it."""
        return bool(self.model.cfg.attention_dir == "causal" and not self.by_type)

    def heat_maps(
        self,
        attention: Float[Tensor, "head query key"],
        top: float,
        caption: str = "",
        names: list[str] | None = None,
        labels: list[str] | None = None,
    ) -> Drawing:
        """Draw one heat map for each head."""
        props = {
            "attention": rounded(attention.tolist()),
            "attentionHeadNames": self.names if names is None else names,
            "maxValue": top,
            "positiveColor": _BLUE,
            "tokens": self.labels if labels is None else labels,
            "maskUpperTri": self.is_masked,
        }
        return Drawing("AttentionHeads", props, caption)


def token_types(
    tokens: Sequence[int], texts: Sequence[str] | None = None
) -> tuple[list[str], Float[Tensor, "type position"]]:
    """Name the types of token that occur, and mark the positions of each.

    Texts are those of the tokens; without them the tokens are Count01's, and those that are counted
    are named with their number.
    """
    types, often = sorted(set(tokens)), Counter(tokens)
    if texts is None:
        labels = [TOKENS[kind] + f" ×{often[kind]}" * (kind in COUNTED) for kind in types]
    else:
        text_of = dict(zip(tokens, texts, strict=True))
        labels = [text_of[kind] + f" ×{often[kind]}" * (often[kind] > 1) for kind in types]
    return labels, torch.tensor([[float(token == kind) for token in tokens] for kind in types])


def reads_count01(model: HookedTransformer) -> bool:
    """Whether texts for a model are sentences: it has the eight tokens and no other tokenizer."""
    if {model.cfg.d_vocab, model.cfg.d_vocab_out} != {D_VOCAB}:
        return False
    vocabulary = getattr(model.tokenizer, "vocab", None)
    return vocabulary is None or vocabulary == {text: i for i, text in enumerate(TOKENS)}


def _read(model: HookedTransformer, prompt: Shown) -> tuple[Sentence | None, list[int], list[str]]:
    """Read a prompt as tokens, with their texts."""
    if isinstance(prompt, Sentence) or (isinstance(prompt, str) and reads_count01(model)):
        check_model(model)
        sentence = prompt if isinstance(prompt, Sentence) else parse(prompt)
        return sentence, list(sentence.tokens), [token.text for token in sentence.tokens]
    if isinstance(prompt, str):
        if model.tokenizer is None:
            raise ValueError(
                "prompt: expected token ids such as [0, 3, 1], because the model has no tokenizer, "
                f"got {prompt!r:.80}"
            )
        tokens = model.to_tokens(prompt)[0].tolist()
    else:
        tokens = _ids(prompt)
    if not tokens:
        raise ValueError("prompt: expected at least one token, got none")
    for token in (min(tokens), max(tokens)):
        if token < 0:
            raise ValueError(f"prompt: expected token ids of at least 0, got {token}")
        check_ids("prompt", token, model.cfg.d_vocab)
    return None, tokens, token_texts(model, tokens)


def _ids(prompt: Any) -> list[int]:
    values = prompt.tolist() if isinstance(prompt, Tensor | Array) else prompt
    if (
        isinstance(values, list | tuple)
        and len(values) == 1
        and isinstance(values[0], list | tuple)
    ):
        values = values[0]  # a batch of one prompt
    if not isinstance(values, list | tuple) or not all(map(is_int, values)):
        raise TypeError(
            "prompt: expected a sentence as a str, or token ids in a row such as [0, 3, 1], got "
            f"{prompt!r:.80}"
        )
    return [int(value) for value in values]


def _position(position: Any, length: int) -> int:
    if position is None:
        return length - 1
    if not is_int(position) or not -length <= position < length:
        expected = f"one of the {length} tokens of the prompt"
        raise ValueError(f"position: expected {expected}, got {position!r}")
    return int(position) % length


def _chosen(
    model: HookedTransformer, heads: Iterable[HeadName] | None, layer: int | None
) -> Iterable[HeadName]:
    cfg = model.cfg
    if layer is None:
        return range(cfg.n_layers * cfg.n_heads) if heads is None else heads
    if not is_int(layer) or not 0 <= layer < cfg.n_layers:
        raise ValueError(f"layer: expected 0 to {cfg.n_layers - 1}, got {layer!r}")
    given = several_heads(range(cfg.n_heads) if heads is None else heads)
    if any(isinstance(head, tuple) or not 0 <= head < cfg.n_heads for head in given):
        raise ValueError(
            f"heads: expected numbers 0 to {cfg.n_heads - 1} of heads in layer {layer}, got {given}"
        )
    return [(layer, head) for head in given if not isinstance(head, tuple)]


def _answer(asked: Asked, logits: Float[Tensor, "position vocab"]) -> str:
    """What the model answers to a sentence."""
    assert asked.sentence is not None
    at_equals = logits[asked.tokens.index(Token.EQUALS)]
    return (
        f"writes '{TOKENS[int(at_equals.argmax())]}' after '=' "
        f"(right: '{asked.sentence.right_answer}'): logit of '4' minus that of '5' is "
        f"{signed(float(four_margin(at_equals)))}."
    )


def _next_token(asked: Asked, logits: Float[Tensor, "position vocab"]) -> str:
    """What the model finds most likely at the position where it is asked."""
    shares = logits[asked.position].double().softmax(dim=-1)
    best = shares.topk(min(2, len(shares))).indices.tolist()
    said = [
        f"{text} ({percent(float(shares[token]))})"
        for token, text in zip(best, output_texts(asked.model, best), strict=True)
    ]
    return f"gives most to {', then to '.join(said)} at position {asked.position}."


def _sums_of_rows(attention: Float[Tensor, "head query key"]) -> str:
    """Say what rows sum to, or nothing where hooks wrote rows that may sum to anything.

    A patch leaves a row empty in a sentence with none of the tokens that it gives weights to.
    """
    whole = (attention.double().sum(dim=-1) - 1).abs() < 0.005  # as far as a reader can see
    empty = (attention == 0).all(dim=-1)
    if whole.all():
        return "a row sums to one"
    if (whole | empty).all():
        return "a row sums to one, or is empty where a head looks at nothing"
    return ""
