"""Where heads look in a prompt, as it is and under a patch.

`prompt_view` reads and runs the prompt, `circuits_page` makes pages of the drawings;
`attribution_view` shows what heads add to the logits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.attention.patches import patch_attention
from count01_lens.common.text import number, plural, short
from count01_lens.common.threads import one_thread
from count01_lens.common.types import HookedTransformer
from count01_lens.models.build import check_model
from count01_lens.models.hooks import HeadName
from count01_lens.tasks.language import Sentence
from count01_lens.views import circuits_page
from count01_lens.views.circuits_page import Section, Table
from count01_lens.views.document import in_frame, write_page
from count01_lens.views.prompt_view import Asked, Seen, Shown

_MOST_TOGETHER = 16  # heads in one drawing, if they are of several layers
_MARK = "▸"
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class AttentionView:
    """What a notebook shows, and `save` writes as a page that opens from disk.

    Attributes:
        title: the prompt on one line, shortened to counts of its tokens if it is long.
        tokens: what the rows and columns stand for; types of tokens for a long prompt.
        heads: names of the heads.
        attention: attention of these heads.
        sections: what is drawn.
        patched: attention under a patch, for `compare_attention`.
        attributions: for `show_attribution`, direct logit attribution by token and head: "asked",
            to the answer above the other choices; of Count01, at "=" to the logit of '4' minus that
            of '5', at "answer" to the logit of '[EOS]'.
    """

    title: str
    tokens: list[str]
    heads: list[str]
    attention: Float[Tensor, "head query key"]
    sections: tuple[Section, ...]
    patched: Float[Tensor, "head query key"] | None = None
    attributions: Mapping[str, Float[Tensor, "token head"]] = field(default_factory=dict)

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
        shown = f"{plural(len(self.heads), 'head')}, {plural(len(self.tokens), 'token')}"
        return f"AttentionView({self.title!r}: {shown}); call .save(path)"


@torch.no_grad()
@one_thread()  # the same bytes however many there are
def show_attention(
    model: HookedTransformer,
    prompt: Shown,
    *,
    heads: Iterable[HeadName] | None = None,
    layer: int | None = None,
    position: int | None = None,
) -> AttentionView:
    """Show where each head looks.

    Hooks that are attached take part: inside `with patch_attention(...)` you see the patch.

    Args:
        model: any HookedTransformer.
        prompt: a text, if the model has a tokenizer, or token ids in a row. For a model over
            Count01's eight tokens a text is a sentence, such as "0110=" or "0110=4". One of more
            than 40 tokens is shown by type: what all '0's together get, for example, from an
            average '1'.
        heads: numbers, or (layer, head) pairs; all by default.
        layer: show only its heads; numbers of heads then count within it.
        position: where the model is asked for the next token; the last one by default.

    Example:
        >>> model = cl.example_model()
        >>> cl.show_attention(model, "0110=4", heads=[0, 3])
        AttentionView('0110=4': 2 heads, 7 tokens); call .save(path)
        >>> cl.show_attention(model, [0, 1, 2, 2, 4])
        AttentionView('[BOS]011=': 16 heads, 5 tokens); call .save(path)
    """
    asked = Asked(model, prompt, heads, layer, position)
    seen = asked.look()
    top = asked.scale(seen.attention)
    rows = "A row is a query position (destination), a column a key position (source)."
    if asked.sentence is not None:
        largest = "the largest weight in the row of '=' or below"
    else:
        largest = "the largest weight" + " below the first row" * asked.is_masked
    text = [
        f"{rows} {asked.note(seen.attention)}".rstrip(),
        f"The colour is full at {short(top, 2)}, {largest}. The model {seen.answer}",
    ]
    return view_of(asked, seen, _by_layer(asked, seen, text, top))


def _by_layer(asked: Asked, seen: Seen, text: list[str], top: float) -> list[Section]:
    """One drawing, or one for each layer where the heads of several are many."""
    layers = [head // asked.model.cfg.n_heads for head in asked.heads]
    if len(set(layers)) == 1 or len(layers) <= _MOST_TOGETHER:
        return [Section("Attention", text, [asked.heat_maps(seen.attention, top)])]
    sections: list[Section] = []
    for layer, group in groupby(range(len(layers)), key=lambda place: layers[place]):
        places = list(group)
        names = [asked.names[place] for place in places]
        drawing = asked.heat_maps(seen.attention[places], top, names=names)
        sections.append(Section(f"Attention, layer {layer}", text * (not sections), [drawing]))
    return sections


def view_of(asked: Asked, seen: Seen, sections: Iterable[Section], **more: Any) -> AttentionView:
    """Make a view of sections."""
    return AttentionView(
        asked.title, asked.labels, asked.names, seen.attention, tuple(sections), **more
    )


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
    check_model(model)
    asked = Asked(model, sentence, heads)
    with patch_attention(model, w01=w01, w02=w02, heads=asked.heads, others=others):
        after = asked.look()
    before = asked.look()
    both = before.attention, after.attention
    # All heads side by side: a colour that is full for many weights would hide what changes.
    top = max(float(each[:, 1:].max()) for each in both) if len(asked.labels) > 1 else 1.0
    changed = (both[0] - both[1]).abs().amax(dim=(0, 2)) > _ROUNDING
    rows = changed.nonzero().flatten().tolist()
    marked = [f"{_MARK} {label}" * (row in rows) or label for row, label in enumerate(asked.labels)]
    ratios = [f"{n} = {number(w, 6)}" for n, w in (("w01", w01), ("w02", w02)) if w is not None]
    written = ", ".join(ratios) or "each head's own ratios"
    rest = "get nothing" if others == "zero" else "keep their weights"
    patch = f"Patched in the row of '=': {written}; '[BOS]' and '=' {rest}."
    text = [
        f"{patch} {asked.note(*both)}".rstrip(),
        f"The colour is full at {short(top, 2)} on both sides; {_MARK} marks the rows that change.",
    ]
    drawings = [
        asked.heat_maps(seen.attention, top, f"{when}: the model {seen.answer}", labels=marked)
        for when, seen in (("Before", before), ("After", after))
    ]
    sections = [
        *_changed_rows(asked, both, rows),
        Section("Attention before and after the patch", text, drawings),
    ]
    return view_of(asked, before, sections, patched=after.attention)


def _changed_rows(
    asked: Asked, both: tuple[Tensor, Tensor], rows: Sequence[int]
) -> Iterator[Section]:
    """What changes, as numbers and first of all: in the maps it is one row of many."""
    for row in rows:
        written = {
            f"{name}, {when}": [*attention[head, row].tolist(), float(attention[head, row].sum())]
            for head, name in enumerate(asked.names)
            for when, attention in zip(("before", "after"), both, strict=True)
        }
        means = both[1][:, row].mean(dim=0)
        written["mean, after"] = [*means.tolist(), float(means.sum())]
        table = Table([*asked.labels, "sum"], written)
        yield Section(f"{_MARK} The row of {asked.labels[row]}, before and after", [], [], table)


def page_of(title: str, views: Iterable[AttentionView]) -> str:
    """Put views into one HTML document; a view of another sentence than the title says which."""
    sections = [
        part if view.title == title else replace(part, heading=f"{view.title}: {part.heading}")
        for view in views
        for part in view.sections
    ]
    return circuits_page.page(title, sections)
