"""What the attention patcher shows, as HTML and pictures made from a `PatchSession`.

Every number carries a `data-count01` attribute, by which a page can be checked against Python.
"""

import base64
from html import escape

import numpy as np
from jaxtyping import Float

from count01_lens.common.types import Array
from count01_lens.tasks.language import TOKENS, Token
from count01_lens.views.output_tiles import OutputTile, draw_tiles
from count01_lens.views.patching import HeadState, PatchSession

LONGEST_SHOWN = 40  # tokens of a sentence; longer ones are shown by type
_STYLE = """<style>
.count01 { line-height: 1.45; }
.count01 table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.count01 th, .count01 td { padding: 1px 8px; text-align: right; white-space: nowrap; }
.count01 th { font-weight: 600; border-bottom: 1px solid #8888; }
.count01 td.text, .count01 th.text { text-align: left; }
.count01 .up { color: #009E73; } .count01 .down { color: #D55E00; }
.count01 .tokens span { display: inline-block; min-width: 1.1em; padding: 0 3px; margin: 1px;
  text-align: center; border-radius: 3px; border: 1px solid #8884; }
.count01 .scroll { overflow-x: auto; }
</style>"""


def outputs_picture(session: PatchSession) -> bytes:
    """Draw the outputs of the chosen heads, with separators and value vectors, as a PNG."""
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
    which = "patched" if session.chosen.patched else "original"
    words = "; ".join(
        f"head {head}: s-acc {_row(session, state, head)['s_acc']:.3f}" for head in heads
    )
    picture = base64.b64encode(outputs_picture(session)).decode()
    return (
        f'<img style="max-width: 100%; background: white" alt="{which} head outputs on the test '
        f'split with separator and value vectors. {escape(words)}" '
        f'src="data:image/png;base64,{picture}"/>'
        '<div style="font-size: 90%; max-width: 52em">test sentences with answer '
        '<b style="color: #0072B2">4</b> and <b style="color: #D55E00">5</b>, separator '
        '<b style="color: #009E73">green</b>; circles are the value vectors of 0, 1, 2 '
        "(grey at the edge: it lies farther out)</div>"
    )


def accuracy_html(session: PatchSession) -> str:
    """The whole model before and after, ties apart, and what it says to the sentence."""
    accuracy = session.accuracy
    names = {"answer": "answer", "ties": "ties", "others": "no ties", "eos": "[EOS]"}
    head = "".join(f"<th>{label}</th>" for label in names.values())
    rows = ""
    for state in ("original", "patched"):
        cells = "".join(
            f'<td data-count01="model-{state}-{name}">{accuracy[name][state]:.4f}</td>'
            for name in names
        )
        rows += f'<tr><td class="text">{state}</td>{cells}</tr>'
    says = " · ".join(
        f"{state}: <b>{said.answer}</b> ({'right' if said.right else 'wrong'}, "
        f"by {abs(said.margin):.3g})"
        for state, said in session.answers().items()
    )
    right = session.sentence.right_answer
    return _in_frame(
        f'<table><tr><th class="text">whole model, test split</th>{head}</tr>{rows}</table>'
        f"<div>the sentence below (right answer {right}): {says}</div>"
    )


def heads_html(session: PatchSession) -> str:
    """A row per chosen head: s-acc and l-acc before and after, and the read-out over counts."""
    rows = ""
    for row in session.table.to_dict("records"):
        head = int(row["head"])
        before, after = session.readout(head)
        shown, other = (after, before) if session.chosen.patched else (before, after)
        rows += (
            f'<tr><td>{head}</td><td class="text">{row["category"]}</td>'
            f"<td>{row['w01']:.3g}</td><td>{row['w02']:.3g}</td>"
            + _before_after(head, "s_acc", row["s_acc"], row["s_acc_patched"])
            + _before_after(head, "l_acc", row["l_acc"], row["l_acc_patched"])
            + f'<td class="text" data-count01="head-{head}-readout" '
            f'title="{escape(other)}">{escape(shown)}</td></tr>'
        )
    which = "patched" if session.chosen.patched else "original"
    return _in_frame(
        '<div class="scroll"><table><tr><th>head</th><th class="text">kind</th><th>own w01</th>'
        "<th>own w02</th><th>s-acc</th><th>patched</th><th>l-acc</th><th>patched</th>"
        f'<th class="text">separator over counts, {which}</th></tr>{rows}</table></div>'
    )


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
    rows = ""
    for number, head in enumerate(session.heads):
        strips = "".join(
            f'<td class="tokens text">{_strip(labels, weights[number])}</td>'
            for weights in (before, after)
        )
        rows += f"<tr><td>{head}</td>{strips}</tr>"
    return _in_frame(
        f'<div class="scroll"><table><tr><th>head</th><th class="text">attention at =, '
        f'original{note}</th><th class="text">patched</th></tr>{rows}</table></div>'
    )


def code_html(session: PatchSession) -> str:
    """The call that reproduces what is shown."""
    return _in_frame(f'<code data-count01="code">{escape(session.code)}</code>')


def message_html(text: str) -> str:
    """A message that something is wrong, or nothing."""
    if not text:
        return ""
    return (
        '<div role="alert" data-count01="message" style="border-left: 4px solid #D55E00; '
        'padding: 2px 8px; white-space: pre-wrap; font-family: monospace">'
        f"{escape(text)}\n(shown below: the last choice that was possible)</div>"
    )


def _shown(session: PatchSession) -> tuple[HeadState, list[int]]:
    return (session.patched if session.chosen.patched else session.original), session.heads


def _row(session: PatchSession, state: HeadState, head: int) -> dict[str, float]:
    position = session.heads.index(head) if session.chosen.patched else head
    return {"position": position, "s_acc": float(state.table["s_acc"].iloc[position])}


def _tile(session: PatchSession, state: HeadState, head: int, *, whole: bool = False) -> OutputTile:
    row = _row(session, state, head)
    position, data = int(row["position"]), state.data
    d_head = data.test_outputs.shape[2]
    fitted = state.fits.weights[position]
    return OutputTile(
        title="with value vectors; pale: training" if whole else f"head {head}: {row['s_acc']:.3f}",
        outputs=data.test_outputs[:, position],
        labels=data.test_labels,
        values=session.value_vectors(head),
        weights=fitted[position * d_head : (position + 1) * d_head],
        bias=float(fitted[-1]),
        whole=whole,
        train_outputs=data.train_outputs[:, position] if whole else None,
        train_labels=data.train_labels if whole else None,
    )


def _before_after(head: int, metric: str, before: float, after: float) -> str:
    change = "up" if after > before + 5e-4 else "down" if after < before - 5e-4 else ""
    arrow = {"up": "▲", "down": "▼", "": ""}[change]
    return (
        f'<td data-count01="head-{head}-{metric}">{before:.4f}</td>'
        f'<td class="{change}"><span data-count01="head-{head}-{metric}-patched">{after:.4f}</span>'
        f" {arrow}</td>"
    )


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


def _strip(labels: list[str], weights: Float[Array, " key"]) -> str:
    largest = max(float(weights.max()), 1e-12)
    return "".join(
        f'<span title="{weight:.4f}" style="background: rgba(0, 114, 178, '
        f'{0.75 * weight / largest:.3f})">{escape(label)}</span>'
        for label, weight in zip(labels, weights.tolist(), strict=True)
    )


def _in_frame(content: str) -> str:
    return f'{_STYLE}<div class="count01">{content}</div>'
