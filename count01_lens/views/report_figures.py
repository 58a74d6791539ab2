"""The figures of a report, each with its data, a caption, and words for those who cannot see it."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from count01_lens.common.text import percent, plural, signed
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.groups import LARGEST_EXACT
from count01_lens.heads.metrics import METRICS
from count01_lens.tasks.prompts import Task
from count01_lens.views import plots
from count01_lens.views.figures import as_bytes
from count01_lens.views.pieces import (
    choose_image,
    download,
    figure,
    figures,
    paragraph,
    table,
    unfolding,
)
from count01_lens.views.report_page import Part

MOST_TILES = 32  # pictures of head outputs in one figure
LARGEST_TABLE = 1_000_000


def pairs_part(analysis: HeadAnalysis) -> Part | None:
    """Pairs of heads; there are none of a single one."""
    if len(analysis.table) == 1:
        return None
    drawn = []
    for metric, matrix in analysis.pairs.items():
        label, single, pairs = METRICS[metric].label, np.diag(matrix), _off_diagonal(matrix)
        first, second, _ = _largest(matrix)
        drawn.append(
            _figure(
                plots.plot_pairs(analysis, metric),
                f"pairs_{metric}.csv",
                _matrix(matrix),
                f"Heat map of {label}: single heads from {single.min():.3f} to "
                f"{single.max():.3f}, pairs from {pairs.min():.3f} to {pairs.max():.3f}, the best "
                f"of heads {first} and {second}.",
                f"{label} of a pair where its row meets its column; single heads on the diagonal. "
                "Everything up to 0.5 is dark.",
            )
        )
    first, second, best = _largest(analysis.gains)
    share = percent(float((_off_diagonal(analysis.gains) > 0.01).mean()))
    drawn.append(
        _figure(
            plots.plot_gains(analysis),
            "gains.csv",
            _matrix(analysis.gains),
            f"Heat map of the gain in s-acc of each pair over its better head: {share} of "
            f"pairs gain more than 0.01; heads {first} and {second} gain most, {best:.3f}.",
            "Blue pairs have a higher s-acc than the better of their heads, red ones a lower one.",
        )
    )
    text = f"{share} of the pairs have an s-acc more than 0.01 above that of their better head."
    return Part("pairs", "Pairs of heads", [paragraph(text), figures(drawn)])


def groups_part(analysis: HeadAnalysis) -> Part | None:
    """All groups of heads, if they were computed; otherwise how to get them."""
    n_heads = len(analysis.table)
    if n_heads == 1:
        return None
    title = "All groups: cooperate, repeat or compete"
    if analysis.known_groups is None:
        how = (
            "Not computed here. Call analysis.with_groups().report(...), or give "
            "--groups all to count01-lens analyze: it takes about a minute for 16 heads."
            if n_heads <= LARGEST_EXACT
            else f"{n_heads} heads have too many groups to compute them all; "
            "analysis.sampled_shapley(metric) estimates what each head is worth."
        )
        return Part("groups", title, [paragraph(how)])
    worth = pd.DataFrame({metric: analysis.shapley(metric) for metric in analysis.pairs})
    rows = [
        [str(head), *(signed(value, ".4f") for value in row)] for head, *row in worth.itertuples()
    ]
    columns = ["head", *(METRICS[metric].label for metric in analysis.pairs)]
    text = (
        f"All {2**n_heads - 1:,} groups of heads were measured. The Shapley value of a head is "
        "what it adds to a group, averaged over all groups; together the values give the whole "
        "model's metric above that of no heads. The interaction of a pair is what two heads are "
        "worth together beyond what they are worth apart."
    )
    values = table(columns, rows, "Shapley values by head")
    content = [paragraph(text), figures(_group_figures(analysis, worth))]
    return Part("groups", title, [*content, unfolding("Shapley values as a table", values)])


def _group_figures(analysis: HeadAnalysis, worth: pd.DataFrame) -> Iterable[Markup]:
    by_size = plots.groups_by_size(analysis)
    medians = by_size[0.5].unstack("metric")["s_acc"]
    doubling = [n for n in medians.index if n & (n - 1) == 0 or n == medians.index[-1]]
    told = ", ".join(f"{medians[size]:.3f} of {plural(size, 'head')}" for size in doubling)
    yield _figure(
        plots.plot_groups(analysis),
        "groups_by_size.csv",
        by_size.reset_index(),
        f"Metrics of all groups by their size; median s-acc: {told}.",
        "Marks are medians, thick lines quartiles, thin ones 5 % to 95 % of all groups.",
    )
    told = "; ".join(
        f"{METRICS[str(name)].label}: most for head {values.idxmax()} ({signed(values.max())}), "
        f"least for head {values.idxmin()} ({signed(values.min())})"
        for name, values in worth.items()
    )
    yield _figure(
        plots.plot_shapley(analysis),
        "shapley.csv",
        worth.rename_axis("head").reset_index(),
        f"Bars of Shapley values. {told}.",
        "A head with a bar below zero makes groups worse on average: it competes.",
    )
    for metric in analysis.pairs:
        matrix = analysis.interactions(metric)
        one, two, most = _largest(matrix)
        three, four, least = _largest(-matrix)
        yield _figure(
            plots.plot_interactions(analysis, metric),
            f"interactions_{metric}.csv",
            _matrix(matrix),
            f"Heat map of Shapley interactions on {METRICS[metric].label}: mean "
            f"{signed(float(_off_diagonal(matrix).mean()))}, most between heads {one} and "
            f"{two} ({signed(most)}), least between {three} and {four} ({signed(-least)}).",
            "Blue pairs cooperate: together they are worth more than apart. Red ones repeat "
            "each other. The data have Shapley values on the diagonal.",
        )


def looks_part(analysis: HeadAnalysis, model: HookedTransformer | None, task: Task) -> Part:
    """Attention ratios, outputs, and direct logit attribution."""
    known, drawn, left_out = analysis.table, [], []
    if analysis.counts is None:
        reasons = "; ".join(analysis.notes)
        left_out.append(f"Left out: {reasons}; likewise the figure of logits.")
    else:
        good = known[known["category"] == "successful"]
        paper = good["w01"].between(0.5, 2) & (good["w02"] > 10)
        drawn.append(
            _figure(
                plots.plot_attention_ratios(analysis),
                "attention_ratios.csv",
                known[["layer", "head", "w01", "w02", "s_acc"]],
                f"Heads by their attention ratios, both axes logarithmic: {paper.sum()} of "
                f"{len(good)} successful heads have w01 from 0.5 to 2 and w02 above 10.",
                "A head that sees '0' and '1' alike (w01 near 1) and hardly sees '2' (w02 "
                "large) can count. Ratios beyond the axes are drawn at the edge.",
            )
        )
    if model is None:
        left_out.append(
            "Head outputs, logits and attention need the model, which a loaded analysis does "
            "not have: give its checkpoint, analysis.report(path, checkpoint=...)."
        )
    else:
        drawn.append(_outputs_figure(analysis, model))
        if analysis.counts is not None:
            drawn.append(_logits_figure(analysis, model, task))
    notes = [paragraph(text, "note") for text in left_out]
    return Part("looks", "Attention, outputs and logits of heads", [*notes, figures(drawn)])


def _outputs_figure(analysis: HeadAnalysis, model: HookedTransformer) -> Markup:
    data, s_acc = analysis.data, analysis.table["s_acc"]
    n_heads = len(s_acc)
    heads = sorted(s_acc.sort_values(ascending=False, kind="stable").index[:MOST_TILES])
    which = "each head" if n_heads <= MOST_TILES else f"the {MOST_TILES} heads of best s-acc"
    outputs = data.test_outputs[:, heads].reshape(len(data.test_labels), -1)
    names = [f"head_{head}_{i}" for head in heads for i in range(data.test_outputs.shape[2])]
    points = pd.DataFrame(outputs, columns=names)
    points.insert(0, "answer", np.where(data.test_labels, 4, 5))
    return _figure(
        plots.plot_head_outputs(model, analysis, heads),
        "head_outputs.csv",
        points,
        f"Outputs of {which} at '=' on the test split, a picture for each, with its linear probe: "
        f"s-acc from {s_acc[heads].min():.3f} to {s_acc[heads].max():.3f}.",
        f"Outputs of {which} at '=': blue where the answer is '4', orange where it is '5'. The "
        "green line is the linear probe. Circled digits are the value vectors of the "
        "tokens, at the edge where they lie outside."
        + " Heads of another size than 2 are shown along their two main directions."
        * (data.test_outputs.shape[2] != 2),
    )


def _logits_figure(analysis: HeadAnalysis, model: HookedTransformer, task: Task) -> Markup:
    margins = analysis.table["mean_margin"]
    return _figure(
        plots.plot_logits(model, task),
        "logits.csv",
        plots.logit_table(model, task),
        f"Direct logit attribution of each head to '4', '5' and '[EOS]'. After '=' "
        f"{(margins > 0).sum()} heads favour '4' on average, {(margins < 0).sum()} favour '5'.",
        "What each head adds to three logits, by query position and true next token: medians, and "
        "5 % to 95 % of sentences. A head whose blue and orange keep their order is biased to one "
        "answer.",
    )


def _figure(drawn: Figure, name: str, data: pd.DataFrame, alt: str, caption: str) -> Markup:
    image = choose_image(lambda: as_bytes(drawn, "svg"), lambda: as_bytes(drawn, "png"))
    return figure(image, alt, caption, [csv_link(name, data)])


def csv_link(name: str, data: pd.DataFrame) -> Markup:
    """Link to a table that the page carries, or say where it is if it is too large."""
    text = data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    instead = "count01-lens analyze --out and analysis.data have the numbers"
    return download(name, text.encode(), largest=LARGEST_TABLE, instead=instead)


def _matrix(values: Array) -> pd.DataFrame:
    return pd.DataFrame(values).rename_axis("head").reset_index()


def _off_diagonal(matrix: Array) -> Array:
    return np.asarray(matrix[np.triu_indices(len(matrix), 1)])


def _largest(matrix: Array) -> tuple[int, int, float]:
    """The pair with the largest value, the first of equal ones."""
    first, second = np.triu_indices(len(matrix), 1)
    place = int(np.argmax(matrix[first, second]))
    one, two = int(first[place]), int(second[place])
    return one, two, float(matrix[one, two])
