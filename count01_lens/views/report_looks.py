"""The part of a report about what heads look like: attention ratios, outputs, logits."""

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup

from count01_lens.common.text import plural, signed
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.mechanism import Mechanism
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.mechanisms import ways_in_words
from count01_lens.tasks.prompts import Task
from count01_lens.views import plots
from count01_lens.views.effect_plots import lift_table
from count01_lens.views.figures import MOST_HEADS
from count01_lens.views.pieces import figures, paragraph
from count01_lens.views.report_figures import MOST_TILES, drawn_with_data
from count01_lens.views.report_page import Part
from count01_lens.views.wording import Words

_VALUE_VECTORS = (
    " Circled digits are the value vectors of the tokens, at the edge where they lie outside."
)


def looks_part(
    analysis: HeadAnalysis,
    words: Words,
    model: HookedTransformer | None,
    task: Task | None,
    found: Sequence[Mechanism] = (),
) -> Part:
    """Attention ratios, outputs, and direct logit attribution."""
    drawn, left_out = [], []
    ratios = analysis.counts is not None and {"w01", "w02"} <= set(analysis.counts)
    logits = plots.has_paper_logits(analysis)
    if ratios:
        drawn.append(_ratios_figure(analysis, found))
    elif words.is_count01:
        reasons = "; ".join(analysis.notes)
        left_out.append(f"Left out: {reasons}; likewise the figure of logits.")
    if model is None:
        left_out.append(
            "Head outputs, logits and attention need the model, which a loaded analysis does "
            "not have: give its checkpoint, analysis.report(path, checkpoint=...)."
        )
    else:
        drawn.append(_outputs_figure(analysis, words, model))
    if not logits:
        drawn.append(_lifts_figure(analysis, words))
    elif model is not None and task is not None:
        drawn.append(_logits_figure(analysis, model, task))
    notes = [paragraph(text, "note") for text in left_out]
    title = "Attention, outputs and logits of heads" if ratios else "Outputs and logits of heads"
    return Part("looks", title, [*notes, figures(drawn)])


def _ratios_figure(analysis: HeadAnalysis, found: Sequence[Mechanism]) -> Markup:
    known = analysis.table
    good = known["category"] == "successful"
    paper, n_good = known[good]["w01"].between(0.5, 2) & (known[good]["w02"] > 10), int(good.sum())
    inside = (
        f"{paper.sum()} of {plural(n_good, 'successful head')} attend to '0' and '1' alike and "
        "hardly to '2' (w01 from 0.5 to 2, w02 above 10)"
        if n_good
        else "No head is successful"
    )
    ways = ways_in_words(found, good.tolist())
    return drawn_with_data(
        plots.plot_attention_ratios(analysis),
        "attention_ratios.csv",
        known[["layer", "head", "w01", "w02", "s_acc"]],
        f"Heads by their attention ratios, both axes logarithmic: {inside}.",
        f"{inside}. {ways} Ratios beyond the axes are drawn at the edge.".replace("  ", " "),
    )


def _outputs_figure(analysis: HeadAnalysis, words: Words, model: HookedTransformer) -> Markup:
    data, s_acc = analysis.data, analysis.table["s_acc"]
    heads = plots.strongest(analysis)
    if len(heads) < len(s_acc):
        heads = plots.strongest(analysis, MOST_TILES)
    which = "each head" if len(heads) == len(s_acc) else f"the {len(heads)} heads of best s-acc"
    outputs = data.test_outputs[:, heads].reshape(len(data.test_labels), -1)
    names = [
        f"head_{words.heads[head]}_{i}" for head in heads for i in range(data.test_outputs.shape[2])
    ]
    points = pd.DataFrame(outputs, columns=names)
    answers = (4, 5) if words.is_count01 else words.answers
    points.insert(0, "answer", [answers[number] for number in data.answer.answers])
    probe = analysis.fits is not None and analysis.fits.weights is not None
    return drawn_with_data(
        plots.plot_head_outputs(model, analysis, heads),
        "head_outputs.csv",
        points,
        f"Outputs of {which} {words.where} on the test split, a picture for each"
        + ", with its linear probe" * probe
        + f": s-acc from {s_acc[heads].min():.3f} to {s_acc[heads].max():.3f}.",
        f"Outputs of {which} {words.where}: {_colours_in_words(words)}."
        + " The green line is the linear probe." * probe
        + _VALUE_VECTORS * plots.has_paper_logits(analysis)
        + " Heads of another size than 2 are shown along their two main directions."
        * (data.test_outputs.shape[2] != 2),
    )


def _colours_in_words(words: Words) -> str:
    if len(words.answers) == 2:
        first, second = words.answers
        return f"blue where the answer is {first}, orange where it is {second}"
    return "a point is a test prompt, its colour the right answer"


def _lifts_figure(analysis: HeadAnalysis, words: Words) -> Markup:
    table = lift_table(analysis)
    means = table[table["answer"] == "all"]["mean"].to_numpy()
    most, least = int(means.argmax()), int(means.argmin())
    by_answer = table["answer"].nunique() > 1 and len(words.heads) <= MOST_HEADS
    return drawn_with_data(
        plots.plot_lifts(analysis),
        "lifts.csv",
        table,
        "Direct logit attribution of each head to the right answer, above the mean of the other "
        f"choices: on average most by head {words.heads[most]} ({signed(means[most])}), least by "
        f"head {words.heads[least]} ({signed(means[least])}).",
        "What each head writes directly into the right answer's logit, above the mean of what it "
        "writes into the other choices'."
        + " A head that lifts one answer and lowers another, whichever is right, is biased."
        * by_answer,
    )


def _logits_figure(analysis: HeadAnalysis, model: HookedTransformer, task: Task) -> Markup:
    margins = analysis.table["mean_margin"]
    return drawn_with_data(
        plots.plot_logits(model, task),
        "logits.csv",
        plots.logit_table(model, task),
        f"Direct logit attribution of each head to '4', '5' and '[EOS]'. After '=' "
        f"{(margins > 0).sum()} heads favour '4' on average, {(margins < 0).sum()} favour '5'.",
        "What each head adds to three logits, by query position and true next token: medians, and "
        "5 % to 95 % of sentences. A head whose blue and orange keep their order is biased to one "
        "answer.",
    )
