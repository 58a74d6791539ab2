"""The part of a report that says what each head does, with the tables that it follows from."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from count01_lens.common.text import number, percent
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.choice_readout import ChoiceReadout
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.mechanism import Mechanism
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.mechanisms import ways_in_words
from count01_lens.views import plots
from count01_lens.views.document import element
from count01_lens.views.pieces import Shaded, bullets, paragraph, shaded_table, table, unfolding
from count01_lens.views.report_heads import BADGES
from count01_lens.views.report_page import Part
from count01_lens.views.wording import Words

_MOST_TOKENS = 16  # a wider table is read nowhere
_LEVELS = 5


def mechanisms_part(
    analysis: HeadAnalysis,
    words: Words,
    model: HookedTransformer | None,
    found: Sequence[Mechanism],
) -> Part | None:
    """What each head does; models without read-outs have a note that says so."""
    if not {"readout", "learned_readout"} <= set(analysis.table):
        return None
    content: list[Markup] = []
    if found:
        good = analysis.table["category"] == "successful"
        content += [paragraph(text) for text in [ways_in_words(found, good.tolist())] if text]
    content.append(paragraph(_about(analysis, words)))
    if not found or model is None:
        content.append(_readouts(analysis, words))
        return Part("readouts", "What each head counts", content)
    form = CountForm.from_models([model])
    heads = list(plots.strongest(analysis))
    each = {head: _head(analysis, words, form, found[head], head) for head in range(len(found))}
    content += [each[head] for head in heads]
    if rest := [each[head] for head in each if head not in set(heads)]:
        content.append(unfolding(f"The other {len(rest)} heads", Markup("\n").join(rest)))
    if _fits(form):
        content.append(unfolding("How to read the tables of a head", bullets(_reading(words))))
    return Part("readouts", "What each head does, and how", content)


def _about(analysis: HeadAnalysis, words: Words) -> str:
    """What read-outs are, and how exactly they are written."""
    text = "A linear read-out of a head decides by how often each token occurs: "
    text += (
        f"where its inequality holds, the answer is {words.answers[0]}."
        if len(words.answers) == 2
        else "the answer is that with the largest sum."
    )
    if words.is_count01:
        text += (
            " Perfect counting is n1 − n0 > 0. A factor of n0 that is off is a bias that grows "
            "with the sentence, a factor of n2 is noise, and the last number shifts the ties."
        )
    off = analysis.table.filter(like="readout_off").to_numpy()
    if off.size:  # older files do not say
        text += " Numbers are rounded to three decimals: as written here, "
        text += (
            f"read-outs decide up to {percent(float(off.max()), 2)} of the test {words.prompts} "
            "otherwise than they really do."
            if off.max()
            else f"read-outs decide all test {words.prompts} as they really do."
        )
    return text


def _readouts(analysis: HeadAnalysis, words: Words) -> Markup:
    """Read-outs alone, where there is no model to say more."""
    rows = [
        [name, BADGES[str(row["category"])], row["readout"], row["learned_readout"]]
        for name, row in zip(words.heads, analysis.table.to_dict("records"), strict=True)
    ]
    columns = ["head", "category", "linear probe of its output", "the model's own use of it"]
    return table(columns, rows, "Count read-outs of each head")


def _head(
    analysis: HeadAnalysis, words: Words, form: CountForm, found: Mechanism, head: int
) -> Markup:
    """A head in a sentence and its linear probe; what is behind them unfolds."""
    row = analysis.table.loc[head]
    summary = Markup(" ").join(
        [
            element("b", f"Head {words.heads[head]}"),
            BADGES[str(row["category"])],
            element("span", f"{found}."),
            element("span", f"Linear probe: {row['readout']}", class_="probe"),
        ]
    )
    own = paragraph(f"The model's own use of it: {row['learned_readout']}")
    shown = [own, _tables(analysis, form, found, head, words.heads[head])] if _fits(form) else [own]
    return element(
        "details", element("summary", summary), Markup("\n").join(shown), class_="mechanism"
    )


def _fits(form: CountForm) -> bool:
    return form.language.d_vocab <= _MOST_TOKENS


def _tables(
    analysis: HeadAnalysis, form: CountForm, found: Mechanism, head: int, name: str
) -> Markup:
    """The rows of its QK table that are asked, its OV table, and its probe, by token."""
    language, n_seen = form.language, form.language.equals + 1
    tokens, answers = language.tokens, range(language.answer_ids.start, language.answer_ids.stop)
    ends = "end" in analysis.data.asked
    scores = form.scores[0, head].double().numpy()
    attributed = (form.values[0, head] @ form.logit_weights[0, head]).double().numpy()
    columns = tokens[: language.eos] if ends else tokens[:n_seen]
    rows = [("QK from '='", _attended(scores[language.equals, :n_seen]))]
    if ends:
        for answer in answers:
            seen = [*range(n_seen), answer]
            cells = dict(zip(seen, _attended(scores[answer, seen]), strict=True))
            shown = [cells.get(token, Shaded("")) for token in range(len(columns))]
            rows.append((f"QK from '{tokens[answer]}'", shown))
    logits = [*answers, language.eos] if ends else [*answers]
    values = attributed[: len(columns), logits].T
    written = _signed(values)
    rows += [
        (f"OV to '{tokens[logit]}'", cells) for logit, cells in zip(logits, written, strict=True)
    ]
    rows += _probe_rows(found)
    padded = [
        (title, [*cells, *[Shaded("")] * (len(columns) - len(cells))]) for title, cells in rows
    ]
    return shaded_table(columns, padded, f"QK and OV tables of head {name}")


def _probe_rows(found: Mechanism) -> list[tuple[str, list[Shaded]]]:
    """What the probe reads from one token of each kind: its value, and with its attention."""
    readout = found.readout
    values = np.atleast_2d(readout.values)
    betas = np.atleast_2d(readout.coefficients)[:, 1:]
    if isinstance(readout, ChoiceReadout):
        values = values - np.sort(values, axis=0)[(len(values) - 1) // 2]
        names = [f", '{answer}'" for answer in readout.language.answers]
    else:
        names = [""]
    values = values / (np.abs(values[:, 1:-1]).max() or 1.0)
    rows = [(f"probe reads{n}", c) for n, c in zip(names, _signed(values, 3), strict=True)]
    blank = [Shaded("")]
    rows += [
        (f"one token adds{n}", [*blank, *c, *blank])
        for n, c in zip(names, _signed(betas, 3), strict=True)
    ]
    return rows


def _attended(scores: np.ndarray) -> list[Shaded]:
    """Scores, the darker the more attention a token gets next to that which gets most."""
    shares = np.exp(scores - scores.max()) if np.isfinite(scores.max()) else 0 * scores
    return [
        Shaded(_short(score), round(_LEVELS * float(share)))
        for score, share in zip(scores, np.nan_to_num(shares), strict=True)
    ]


def _signed(values: np.ndarray, decimals: int = 2) -> list[list[Shaded]]:
    """Rows of values on one scale: what is above zero in blue, what is below in orange."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0) or 1.0
    levels = np.nan_to_num(_LEVELS * values / largest).clip(-_LEVELS, _LEVELS).round().astype(int)
    return [
        [
            Shaded(_short(value, decimals), int(level))
            for value, level in zip(row, shades, strict=True)
        ]
        for row, shades in zip(values, levels, strict=True)
    ]


def _short(value: float, decimals: int = 2) -> str:
    rounded = round(float(value), decimals) + 0.0
    return number(rounded if abs(rounded) < 100 else float(f"{value:.3g}"))


def _reading(words: Words) -> list[str]:
    return [
        "QK: the attention score of each token, in the rows of the tokens that ask; a cell is the "
        "darker the more attention one such token gets.",
        "OV: what attending to a token alone adds to a logit; blue raises it, orange lowers it.",
        f"Probe reads: how far the value of one token speaks for {words.answers[0]} (blue) or "
        "against it; the largest of the counted tokens is 1."
        if len(words.answers) == 2
        else "Probe reads: how far the value of one token speaks for each answer.",
        "One token adds: the same times its attention; these are the factors of the inequality. "
        "All tables whole: cl.qk_table(model, head) and cl.ov_table(model, head).",
    ]
