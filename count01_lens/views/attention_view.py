"""Where heads look in a sentence, as it is and under a patch.

In sentences too long to be drawn token by token, all tokens of a type are drawn as one.
`circuits_page` makes pages of the drawings; `attribution_view` shows what heads add to the logits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from count01_lens.attention.patches import patch_attention
from count01_lens.common.text import number, plural, rounded, short, signed
from count01_lens.common.threads import one_thread
from count01_lens.common.types import HookedTransformer
from count01_lens.models.build import check_model
from count01_lens.models.hooks import HeadName, check_heads
from count01_lens.tasks.decisions import four_margin
from count01_lens.tasks.language import COUNTED, TOKENS, Sentence, Token, parse
from count01_lens.tasks.places import At
from count01_lens.views import circuits_page
from count01_lens.views.circuits_page import Drawing, Section
from count01_lens.views.document import in_frame, write_page

# A heat map of more tokens than this has cells too small to point at.
LONGEST = 40
_BLUE = "#00529b"


@dataclass(frozen=True, eq=False, repr=False)
class AttentionView:
    """What a notebook shows, and `save` writes as a page that opens from disk.

    Attributes:
        title: the sentence, shortened to its counts if it is long.
        tokens: what the rows and columns stand for; types of tokens for a long sentence.
        heads: names of the heads.
        attention: attention of these heads.
        sections: what is drawn.
        patched: attention under a patch, for `compare_attention`.
        attributions: for `show_attribution`, direct logit attribution by token and head: at "=" to
            the logit of '4' minus that of '5', at "answer" to the logit of '[EOS]'.
    """

    title: str
    tokens: list[str]
    heads: list[str]
    attention: Float[Tensor, "head query key"]
    sections: tuple[Section, ...]
    patched: Float[Tensor, "head query key"] | None = None
    attributions: Mapping[At, Float[Tensor, "token head"]] = field(default_factory=dict)

    @property
    def page(self) -> str:
        """The view as a complete HTML document."""
        return page_of(self.title, [self])

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file."""
        return write_page(Path(path), lambda: self.page)

    def _repr_html_(self) -> str:
        """Show the page in JupyterLab, VS Code and Colab."""
        page = circuits_page.page(self.title, self.sections, packed=True)
        return in_frame(page, f"Attention on {self.title}")

    def __repr__(self) -> str:
        shown = f"{plural(len(self.heads), 'head')}, {len(self.tokens)} tokens"
        return f"AttentionView({self.title!r}: {shown}); call .save(path)"


@torch.no_grad()
@one_thread()  # the same bytes however many there are
def show_attention(
    model: HookedTransformer,
    sentence: str | Sentence,
    *,
    heads: Iterable[HeadName] | None = None,
) -> AttentionView:
    """Show where each head looks.

    Hooks that are attached take part: inside `with patch_attention(...)` you see the patch.

    Args:
        model: any HookedTransformer over the eight tokens.
        sentence: such as "0110=" or "0110=4". One of more than 40 tokens is shown by type: what
            all '0's together get, for example, from an average '1'.
        heads: numbers, or (layer, head) pairs; all by default.
    """
    asked = Asked(model, sentence, heads)
    seen = asked.look()
    top = asked.scale(seen.attention)
    rows = "A row is a query position (destination), a column a key position (source)."
    text = [
        f"{rows} {asked.note(seen.attention)}".rstrip(),
        f"The colour is full at {short(top, 2)}, the largest weight in the row of '=' or below. "
        f"The model {seen.answer}",
    ]
    section = Section("Attention", text, [asked.heat_maps(seen.attention, top)])
    return asked.view(seen, [section])


@torch.no_grad()
@one_thread()  # the same bytes however many there are
def compare_attention(
    model: HookedTransformer,
    sentence: str | Sentence,
    *,
    w01: float | None = None,
    w02: float | None = None,
    heads: Iterable[HeadName] | None = None,
    others: Literal["zero", "keep"] = "zero",
) -> AttentionView:
    """Show the attention of heads before and after `patch_attention`, side by side.

    Args:
        model: any HookedTransformer over the eight tokens.
        sentence: such as "0110=".
        w01: as in `patch_attention`, likewise the other arguments.
        heads: the heads that are patched and shown; all by default.
    """
    asked = Asked(model, sentence, heads)
    with patch_attention(model, w01=w01, w02=w02, heads=asked.heads, others=others):
        after = asked.look()
    before = asked.look()
    both = before.attention, after.attention
    top = asked.scale(*both)
    ratios = [f"{n} = {number(w, 6)}" for n, w in (("w01", w01), ("w02", w02)) if w is not None]
    written = ", ".join(ratios) or "each head's own ratios"
    rest = "get nothing" if others == "zero" else "keep their weights"
    patch = f"Patched in the row of '=': {written}; '[BOS]' and '=' {rest}."
    text = [
        f"{patch} {asked.note(*both)}".rstrip(),
        f"The colour is full at {short(top, 2)} on both sides.",
    ]
    drawings = [
        asked.heat_maps(seen.attention, top, f"{when}: the model {seen.answer}")
        for when, seen in (("Before", before), ("After", after))
    ]
    section = Section("Attention before and after the patch", text, drawings)
    return asked.view(before, [section], patched=after.attention)


def page_of(title: str, views: Iterable[AttentionView]) -> str:
    """Put views into one HTML document; a view of another sentence than the title says which."""
    sections = [
        part if view.title == title else replace(part, heading=f"{view.title}: {part.heading}")
        for view in views
        for part in view.sections
    ]
    return circuits_page.page(title, sections)


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
        heads: None for all.

    Attributes:
        by_type: whether all tokens of a type are drawn as one.
        labels: what is drawn.
        grouping: 1 where a position belongs to what is drawn.
    """

    def __init__(
        self,
        model: HookedTransformer,
        sentence: str | Sentence,
        heads: Iterable[HeadName] | None,
    ):
        check_model(model)
        cfg = model.cfg
        self.model = model
        self.sentence = sentence if isinstance(sentence, Sentence) else parse(sentence)
        self.tokens = self.sentence.tokens
        if len(self.tokens) > cfg.n_ctx:
            raise ValueError(
                f"the sentence has {len(self.tokens)} tokens, the model reads {cfg.n_ctx} "
                "(n_ctx): expected a shorter sentence"
            )
        every = range(cfg.n_layers * cfg.n_heads)
        self.heads = check_heads(model, every if heads is None else heads)
        self.names = [
            f"layer {head // cfg.n_heads} " * (cfg.n_layers > 1) + f"head {head % cfg.n_heads}"
            for head in self.heads
        ]
        self.by_type = len(self.tokens) > LONGEST
        self.labels = [token.text for token in self.tokens]
        self.grouping = torch.eye(len(self.tokens))
        if self.by_type:
            self.labels, self.grouping = token_types(self.tokens)

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
        at_equals = logits[self.tokens.index(Token.EQUALS)]
        answer = (
            f"writes '{TOKENS[int(at_equals.argmax())]}' after '=' "
            f"(right: '{self.sentence.right_answer}'): logit of '4' minus that of '5' is "
            f"{signed(float(four_margin(at_equals)))}."
        )
        return Seen(drawn, logits, cache, answer)

    def view(self, seen: Seen, sections: Iterable[Section], **more: Any) -> AttentionView:
        """Make a view of sections."""
        title = (" " if self.by_type else "").join(self.labels[1:])
        return AttentionView(
            title, self.labels, self.names, seen.attention, tuple(sections), **more
        )

    def note(self, *attention: Float[Tensor, "head query key"]) -> str:
        """How to read a row of what is drawn."""
        sums = _sums_of_rows(torch.cat(attention))
        if not self.by_type:
            return f"{sums.capitalize()}." if sums else ""
        ending = f", and {sums}." if sums else "."
        return (
            f"The sentence has {len(self.tokens)} tokens, so they are drawn by type: a row is the "
            f"mean over all tokens of a type, a column the sum{ending}"
        )

    def scale(self, *attention: Float[Tensor, "head query key"]) -> float:
        """The largest weight from '=' on; '[BOS]' can only look at itself, with a weight of 1."""
        first = self.labels.index(Token.EQUALS.text)
        return max(float(weights[:, first:].max()) for weights in attention) or 1.0

    def heat_maps(
        self, attention: Float[Tensor, "head query key"], top: float, caption: str = ""
    ) -> Drawing:
        """Draw one heat map for each head."""
        props = {
            "attention": rounded(attention.tolist()),
            "attentionHeadNames": self.names,
            "maxValue": top,
            "positiveColor": _BLUE,
            "tokens": self.labels,
            "maskUpperTri": self.model.cfg.attention_dir == "causal" and not self.by_type,
        }
        return Drawing("AttentionHeads", props, caption)


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


def token_types(tokens: list[Token]) -> tuple[list[str], Float[Tensor, "type position"]]:
    """Name the types of token that occur, and mark the positions of each."""
    types = sorted(set(tokens))
    labels = [kind.text + f" ×{tokens.count(kind)}" * (kind in COUNTED) for kind in types]
    return labels, torch.tensor([[float(token == kind) for token in tokens] for kind in types])
