"""What the attention patcher shows, as HTML and pictures made from a `PatchSession`.

Every number carries a `data-count01` attribute, by which a page can be checked against Python.
"""

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from count01_lens.common.text import number, short
from count01_lens.common.types import Array
from count01_lens.tasks.language import TOKENS, Token
from count01_lens.views.document import element, in_notebook
from count01_lens.views.output_tiles import OutputTile, draw_tiles
from count01_lens.views.patching import HeadState, PatchSession
from count01_lens.views.pieces import Image, table

LONGEST_SHOWN = 40  # tokens of a sentence; longer ones are shown by type
_LEGEND = Markup(
    'test sentences with answer <b style="color: #0072B2">4</b> and '
    '<b style="color: #D55E00">5</b>, linear probe <b style="color: #009E73">green</b>; '
    "circles are the value vectors of 0, 1, 2 (grey at the edge: it lies farther out)"
)


def outputs_picture(session: PatchSession) -> bytes:
    """Draw the outputs of the chosen heads, with linear probes and value vectors, as a PNG."""
    state, heads = _shown(session)
    if len(heads) == 1:
        head = heads[0]
        near, far = (_tile(session, state, head, whole=whole) for whole in (False, True))
        return draw_tiles([far, near], tile_inches=3.8)
    tiles = [_tile(session, state, head) for head in heads]
    return draw_tiles(tiles, columns=4, tile_inches=2.1 if len(heads) > 2 else 3.0)


def outputs_html(session: PatchSession) -> str:
    """The same picture for a page, with words for those who cannot see it."""
    state, heads = _shown(session)
    accuracies = "; ".join(
        f"head {head}: s-acc {_row(session, state, head)['s_acc']:.3f}" for head in heads
    )
    words = f"{_which(session)} head outputs on the test split with linear probe and value vectors."
    picture = Image(outputs_picture(session), "png")
    return in_notebook(
        element("img", alt=f"{words} {accuracies}", src=picture.uri),
        element("div", _LEGEND, class_="legend"),
    )


def accuracy_html(session: PatchSession) -> str:
    """The whole model before and after, ties apart, and what it answers to the sentence."""
    accuracy = session.accuracy
    names = {"answer": "answer", "ties": "ties", "others": "no ties", "end": "[EOS]"}
    rows = [
        [state, *(_named(f"model-{state}-{name}", accuracy[name][state]) for name in names)]
        for state in ("original", "patched")
    ]
    answers = Markup(" · ").join(
        Markup("{}: <b>{}</b> ({}, by {})").format(
            state, said.answer, "right" if said.right else "wrong", short(abs(said.margin), 3)
        )
        for state, said in session.answers().items()
    )
    right = session.sentence.right_answer
    return in_notebook(
        table(["whole model, test split", *names.values()], rows, "Accuracy of the whole model"),
        element("div", f"the sentence below (right answer {right}): ", answers),
    )


def heads_html(session: PatchSession) -> str:
    """A row per chosen head: s-acc and l-acc before and after, and the read-out over counts."""
    rows = []
    for row in session.table.to_dict("records"):
        head = int(row["head"])
        before, after = session.readout(head)
        shown, other = (after, before) if session.chosen.patched else (before, after)
        rows.append(
            [
                str(head),
                row["category"],
                number(row["w01"], 3),
                number(row["w02"], 3),
                *_before_after(head, "s_acc", row["s_acc"], row["s_acc_patched"]),
                *_before_after(head, "l_acc", row["l_acc"], row["l_acc_patched"]),
                element("span", shown, data_count01=f"head-{head}-readout", title=other),
            ]
        )
    columns = ["head", "category", "own w01", "own w02", "s-acc", "patched", "l-acc", "patched"]
    probe = f"linear probe over counts, {_which(session)}"
    return in_notebook(table([*columns, probe], rows, "Chosen heads before and after the patch"))


def attention_html(session: PatchSession) -> str:
    """Attention of the chosen heads at '=' of the sentence, before and after."""
    before, after = session.attention()
    tokens = [int(token) for token in session.sentence.tokens]
    tokens = tokens[: tokens.index(Token.EQUALS) + 1]
    labels = [TOKENS[token] for token in tokens]
    note = ""
    if len(tokens) > LONGEST_SHOWN:
        labels, before, after = _by_type(tokens, before, after)
        note = " (by token, all of a type together)"
    rows = [
        [str(head), _strip(labels, before[place]), _strip(labels, after[place])]
        for place, head in enumerate(session.heads)
    ]
    columns = ["head", f"attention at =, original{note}", "patched"]
    return in_notebook(table(columns, rows, "Attention at = before and after the patch"))


def code_html(session: PatchSession) -> str:
    """The call that reproduces what is shown."""
    return in_notebook(element("code", session.code, data_count01="code"))


def message_html(text: str) -> str:
    """A message that something is wrong, or nothing."""
    if not text:
        return ""
    message = f"{text}\n(shown below: the last choice that was possible)"
    return in_notebook(element("div", message, role="alert", data_count01="message"))


def _which(session: PatchSession) -> str:
    return "patched" if session.chosen.patched else "original"


def _shown(session: PatchSession) -> tuple[HeadState, list[int]]:
    return (session.patched if session.chosen.patched else session.original), session.heads


def _row(session: PatchSession, state: HeadState, head: int) -> dict[str, float]:
    position = session.heads.index(head) if session.chosen.patched else head
    return {"position": position, "s_acc": float(state.table["s_acc"].iloc[position])}


def _tile(session: PatchSession, state: HeadState, head: int, *, whole: bool = False) -> OutputTile:
    row = _row(session, state, head)
    position, data = int(row["position"]), state.data
    part = slice(position * data.d_head, (position + 1) * data.d_head)
    fitted = None if state.fits is None else state.fits.weights
    return OutputTile(
        title="with value vectors; pale: training" if whole else f"head {head}: {row['s_acc']:.3f}",
        outputs=data.test_outputs[:, position],
        labels=data.test_labels,
        values=session.value_vectors(head),
        weights=None if fitted is None else fitted[position, part],
        bias=0.0 if fitted is None else float(fitted[position, -1]),
        whole=whole,
        train_outputs=data.train_outputs[:, position] if whole else None,
        train_labels=data.train_labels if whole else None,
    )


def _named(name: str, value: float, change: str | None = None) -> Markup:
    return element("span", f"{value:.4f}", class_=change, data_count01=name)


def _before_after(head: int, metric: str, before: float, after: float) -> tuple[Markup, Markup]:
    change = "up" if after > before + 5e-4 else "down" if after < before - 5e-4 else None
    name = f"head-{head}-{metric}"
    return _named(name, before), _named(f"{name}-patched", after, change)


def _by_type(
    tokens: list[int], before: Float[Array, "head key"], after: Float[Array, "head key"]
) -> tuple[list[str], Array, Array]:
    kinds = sorted(set(tokens))
    places = [np.flatnonzero(np.array(tokens) == kind) for kind in kinds]
    labels = [
        TOKENS[kind] if len(place) == 1 else f"{TOKENS[kind]} ×{len(place)}"
        for kind, place in zip(kinds, places, strict=True)
    ]

    def summed(weights: Array) -> Array:
        return np.stack([weights[:, place].sum(axis=1) for place in places], axis=1)

    return labels, summed(before), summed(after)


def _strip(labels: list[str], weights: Float[Array, " key"]) -> Markup:
    largest = max(float(weights.max()), 1e-12)
    return Markup().join(
        element(
            "span",
            label,
            class_="token",
            title=f"{weight:.4f}",
            style=f"background: rgba(0, 114, 178, {0.75 * weight / largest:.3f})",
        )
        for label, weight in zip(labels, weights.tolist(), strict=True)
    )
