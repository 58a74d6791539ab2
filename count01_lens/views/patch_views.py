"""What the attention patcher shows, as HTML and pictures made from a `PatchSession`.

Every number carries a `data-count01` attribute, by which a page can be checked against Python.
"""

from jaxtyping import Float
from markupsafe import Markup

from count01_lens.common.text import number, short
from count01_lens.common.types import Array
from count01_lens.tasks.language import Token
from count01_lens.views.document import element, in_notebook
from count01_lens.views.output_tiles import OutputTile, draw_tiles, tile_of
from count01_lens.views.patching import PatchSession
from count01_lens.views.pieces import Image, table
from count01_lens.views.prompt_view import LONGEST, token_types

_LEGEND = Markup(
    'test sentences with answer <b style="color: #0072B2">4</b> and '
    '<b style="color: #D55E00">5</b>, linear probe <b style="color: #009E73">green</b>; '
    "circles are the value vectors of 0, 1, 2 (grey at the edge: it lies farther out)"
)


def outputs_picture(session: PatchSession) -> bytes:
    """Draw the outputs of the chosen heads, with linear probes and value vectors, as a PNG."""
    state = session.shown

    def tile(head: int, title: str, whole: bool) -> OutputTile:
        values, probe = session.value_vectors(head), state.probes.get(head)
        return tile_of(title, state.data, head, values, probe, whole)

    s_acc = state.table["s_acc"]
    tiles = [tile(head, f"head {head}: {s_acc[head]:.3f}", False) for head in session.heads]
    if len(tiles) == 1:
        far = tile(session.heads[0], "with value vectors; pale: training", True)
        return draw_tiles([far, *tiles], tile_inches=3.8)
    return draw_tiles(tiles, tile_inches=2.1 if len(tiles) > 2 else 3.0)


def outputs_html(session: PatchSession) -> str:
    """The same picture for a page, with words for those who cannot see it."""
    s_acc = session.shown.table["s_acc"]
    accuracies = "; ".join(f"head {head}: s-acc {s_acc[head]:.3f}" for head in session.heads)
    words = f"{_which(session)} head outputs on the test split with linear probe and value vectors."
    picture = Image(outputs_picture(session), "png")
    return in_notebook(
        element("img", alt=f"{words} {accuracies}", src=picture.uri),
        element("div", _LEGEND, class_="legend"),
    )


def accuracy_html(session: PatchSession) -> str:
    """The whole model before and after, ties apart, and what it answers to the sentence."""
    names = {"answer": "answer", "ties": "ties", "others": "no ties", "end": "[EOS]"}
    rows = [
        [str(state), *(_named(f"model-{state}-{name}", row[name]) for name in names)]
        for state, row in session.accuracy.iterrows()
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
        name = f"head-{row['head']}"
        readouts = session.readout(row["head"])
        shown, other = reversed(readouts) if session.chosen.patched else readouts
        cells = [str(row["head"]), row["category"], number(row["w01"], 3), number(row["w02"], 3)]
        for metric in ("s_acc", "l_acc"):
            before, after = row[metric], row[f"{metric}_patched"]
            change = "up" if after > before + 5e-4 else "down" if after < before - 5e-4 else None
            cells.append(_named(f"{name}-{metric}", before))
            cells.append(_named(f"{name}-{metric}-patched", after, change))
        rows.append([*cells, element("span", shown, data_count01=f"{name}-readout", title=other)])
    columns = ["head", "category", "own w01", "own w02", "s-acc", "patched", "l-acc", "patched"]
    probe = f"linear probe over counts, {_which(session)}"
    return in_notebook(table([*columns, probe], rows, "Chosen heads before and after the patch"))


def attention_html(session: PatchSession) -> str:
    """Attention of the chosen heads at '=' of the sentence, before and after."""
    tokens = session.sentence.tokens
    tokens = tokens[: tokens.index(Token.EQUALS) + 1]
    labels, note = [token.text for token in tokens], ""
    before, after = session.attention()
    if len(tokens) > LONGEST:
        types, grouping = token_types(tokens)
        labels = [name.removesuffix(" ×1") for name in types]
        before, after = (weights @ grouping.numpy().T for weights in (before, after))
        note = " (by token, all of a type together)"
    rows = [
        [str(head), _strip(labels, one), _strip(labels, other)]
        for head, one, other in zip(session.heads, before, after, strict=True)
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


def _named(name: str, value: float, change: str | None = None) -> Markup:
    return element("span", f"{value:.4f}", class_=change, data_count01=name)


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
