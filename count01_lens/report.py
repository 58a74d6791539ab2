"""`analysis.report(path)`: all that an analysis found, as one HTML file for people to read.

The report follows from the analysis alone: the same analysis gives the same bytes. What does not
apply to a model is left out, and the report says why.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from count01_lens import plots
from count01_lens.analysis import FAILED, SUCCESSFUL, HeadAnalysis
from count01_lens.attention_view import show_attention
from count01_lens.checkpoints import checkpoint_info, load_checkpoint
from count01_lens.circuits_page import signed
from count01_lens.dataset import Splits, make_splits
from count01_lens.figures import as_bytes
from count01_lens.groups import LARGEST_EXACT
from count01_lens.heads import head_outputs
from count01_lens.plots import METRIC_NAMES
from count01_lens.probes import Array
from count01_lens.report_page import (
    Html,
    Part,
    Tone,
    badge,
    bullets,
    choose_image,
    download,
    element,
    facts,
    figure,
    figures,
    joined,
    number,
    paragraph,
    percent,
    report_page,
    table,
    tiles,
    unfolding,
)
from count01_lens.share_view import show_shares
from count01_lens.storage import write_atomically
from count01_lens.versions import library_versions

if TYPE_CHECKING:
    import transformer_lens

SENTENCE = "0110212=4"
MOST_TILES = 32  # pictures of head outputs in one figure
LARGEST_TABLE = 1_000_000


def write_report(
    analysis: HeadAnalysis, path: Path, *, checkpoint: str | PathLike[str] | None = None
) -> Path:
    """Write the report of an analysis; `HeadAnalysis.report` describes it."""
    check_report_path(path)
    info = None if checkpoint is None else checkpoint_info(checkpoint)
    model = analysis.model
    if model is None and checkpoint is not None:
        model = load_checkpoint(checkpoint)
    report = _Report(analysis, model, analysis.splits or make_splits(), info)
    write_atomically(path, report.page().encode())
    return path


def check_report_path(path: Path) -> None:
    """Raise unless a file can be written there, before anything takes long."""
    if path.is_dir():
        raise ValueError(f"{path}: expected a file to write, got a directory")
    if not path.parent.is_dir():
        raise ValueError(
            f"{path}: expected a file in a directory that exists, got {path.parent}; create it"
        )


@dataclass(frozen=True, eq=False)
class _Report:
    """An analysis, and what else is at hand for its report.

    Attributes:
        model: what was analysed, if it is at hand.
        splits: the data set of the analysis.
        info: what the checkpoint tells of the model's making.
    """

    analysis: HeadAnalysis
    model: "transformer_lens.HookedTransformer | None"
    splits: Splits
    info: dict[str, Any] | None

    def __post_init__(self) -> None:
        if self.model is not None:
            _check_same(self.analysis, self.model, self.splits)

    def page(self) -> str:
        """Write the whole report."""
        parts = [self.heads(), self.readouts(), self.pairs(), self.groups(), self.looks()]
        parts += [None if self.model is None else sentence_part(self.model), self.making()]
        heads = _heads(len(self.analysis.table))
        return report_page(
            f"What each head does: a model with {heads} on Count01",
            self.opening(),
            [part for part in parts if part is not None],
        )

    def opening(self) -> Html:
        """The answer in words, and how well the whole model does."""
        analysis = self.analysis
        names = {
            "answer": "right answers",
            "ties": "on ties (as many 1s as 0s)",
            "others": "on all others",
            "eos": "'[EOS]' after the answer",
        }
        accuracies = [(names[key], percent(value, 2)) for key, value in analysis.accuracy.items()]
        n_test = len(analysis.data.test_labels)
        return joined(
            [
                paragraph(analysis.answer, "lead"),
                paragraph(f"The whole model on the {n_test:,} sentences of the test split:"),
                tiles(accuracies),
                *(paragraph(f"Note: {note}.", "note") for note in analysis.notes),
            ]
        )

    def heads(self) -> Part:
        """Every head by itself."""
        known = self.analysis.table
        columns = {title: name for title, name in _COLUMNS.items() if name in known}
        if known["layer"].max() == 0:
            columns.pop("layer")
            columns.pop("head in its layer")
        rows = [
            [
                str(n),
                _category(row["category"]),
                *(_cell(name, row[name]) for name in columns.values()),
            ]
            for n, row in enumerate(known.to_dict("records"))
        ]
        return Part(
            "heads",
            "Each head alone",
            [
                paragraph(
                    "A head is successful where a linear separator of its output is right on "
                    f"at least {percent(SUCCESSFUL, 0)} of the test sentences (s-acc), and "
                    f"failed at {percent(FAILED, 0)} or less, which is close to a coin flip. "
                    "An s-acc of exactly 0.98 nearly always means: all but the ties."
                ),
                table(["head", "category", *columns], rows, "Metrics of each head alone"),
                _saved("heads.csv", known),
                unfolding("What the columns mean", bullets(_MEANINGS)),
            ],
        )

    def readouts(self) -> Part | None:
        """Read-outs as inequalities; models without them have a note that says so."""
        known = self.analysis.table
        if "readout" not in known:
            return None
        rows = [
            [str(row["head"]), _category(row["category"])]
            + [
                element("span", row[name], class_="plain")
                for name in ("readout", "learned_readout")
            ]
            for row in known.to_dict("records")
        ]
        columns = [
            "head",
            "category",
            "separator fitted to its output",
            "the model's own use of it",
        ]
        return Part(
            "readouts",
            "What each head counts",
            [
                paragraph(
                    "A linear read-out of a head is an inequality over how often each token "
                    "occurs: where it holds, it says '4'. Perfect counting is n1 − n0 > 0. A "
                    "factor of n0 that is off is a bias that grows with the sentence, a factor "
                    "of n2 is noise, and the last number shifts the ties."
                ),
                table(columns, rows, "Count read-outs of each head"),
            ],
        )

    def pairs(self) -> Part | None:
        """Pairs of heads; there are none of a single one."""
        analysis = self.analysis
        if len(analysis.table) == 1:
            return None
        drawn = [
            _figure(
                plots.plot_pairs(analysis, metric),
                f"pairs_{metric}.csv",
                _matrix(analysis.pairs[metric]),
                _pairs_alt(METRIC_NAMES[metric], analysis.pairs[metric]),
                f"{METRIC_NAMES[metric]} of a pair where its row meets its column; single heads "
                "on the diagonal. Everything up to 0.5 is dark.",
            )
            for metric in ("s_acc", "roc_auc", "l_acc", "eos_l_acc")
        ]
        gains = _off_diagonal(analysis.gains)
        (first, second), best = _largest(analysis.gains)
        share = percent(float((gains > 0.01).mean()))
        drawn.append(
            _figure(
                plots.plot_gains(analysis),
                "gains.csv",
                _matrix(analysis.gains),
                f"Heat map of the gain in s-acc of each pair over its better head: {share} of "
                f"pairs gain more than 0.01; heads {first} and {second} gain most, {best:.3f}.",
                "Blue pairs separate better than the better of their two heads, red ones worse.",
            )
        )
        text = f"{share} of the pairs have an s-acc more than 0.01 above that of their better head."
        return Part("pairs", "Pairs of heads", [paragraph(text), figures(drawn)])

    def groups(self) -> Part | None:
        """All groups of heads, if they were computed; otherwise how to get them."""
        analysis = self.analysis
        n_heads = len(analysis.table)
        if n_heads == 1:
            return None
        title = "All groups: cooperate, repeat or compete"
        if analysis._groups is None:
            how = (
                "Not computed here. Call analysis.groups() before analysis.report(...), or give "
                "--groups all to count01-lens analyze: it takes about a minute for 16 heads."
                if n_heads <= LARGEST_EXACT
                else f"{n_heads} heads have too many groups to compute them all; "
                "analysis.sampled_shapley(metric) estimates what each head is worth."
            )
            return Part("groups", title, [paragraph(how)])
        metrics = ("s_acc", "l_acc", "eos_l_acc")
        worth = pd.DataFrame({metric: analysis.shapley(metric) for metric in metrics})
        rows = [
            [str(head), *(f"{value:+.4f}".replace("-", "−") for value in row)]
            for head, *row in worth.itertuples()
        ]
        columns = ["head", *(METRIC_NAMES[metric] for metric in metrics)]
        return Part(
            "groups",
            title,
            [
                paragraph(
                    f"All {2**n_heads - 1:,} groups of heads were measured. The Shapley value "
                    "of a head is what it adds to a group, averaged over all groups; together "
                    "the values give the whole model's metric above that of no heads. The "
                    "interaction of a pair is what two heads are worth together beyond what "
                    "they are worth apart."
                ),
                figures(self._group_figures(worth)),
                unfolding(
                    "Shapley values as a table", table(columns, rows, "Shapley values by head")
                ),
            ],
        )

    def _group_figures(self, worth: pd.DataFrame) -> Iterable[Html]:
        analysis = self.analysis
        by_size = plots.groups_by_size(analysis)
        medians = by_size[0.5].unstack("metric")["s_acc"]
        told = ", ".join(f"{medians[size]:.3f} of {_heads(size)}" for size in _some(medians.index))
        yield _figure(
            plots.plot_groups(analysis),
            "groups_by_size.csv",
            by_size.reset_index(),
            f"Metrics of all groups by their size; median s-acc: {told}.",
            "Marks are medians, thick lines quartiles, thin ones 5 % to 95 % of all groups.",
        )
        told = "; ".join(
            f"{METRIC_NAMES[str(name)]}: most for head {values.idxmax()} ({signed(values.max())}), "
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
        for metric in worth:
            matrix = analysis.interactions(str(metric))
            (one, two), most = _largest(matrix)
            (three, four), least = _largest(-matrix)
            yield _figure(
                plots.plot_interactions(analysis, str(metric)),
                f"interactions_{metric}.csv",
                _matrix(matrix),
                f"Heat map of Shapley interactions on {METRIC_NAMES[str(metric)]}: mean "
                f"{signed(float(_off_diagonal(matrix).mean()))}, most between heads {one} and "
                f"{two} ({signed(most)}), least between {three} and {four} ({signed(-least)}).",
                "Blue pairs cooperate: together they are worth more than apart. Red ones repeat "
                "each other. The data have Shapley values on the diagonal.",
            )

    def looks(self) -> Part:
        """Where heads look, what comes out, and what the output layer makes of it."""
        analysis, known, drawn = self.analysis, self.analysis.table, []
        left_out = []
        if "w01" not in known:
            left_out.append(f"Left out: {analysis.notes[0]}; likewise the figure of logits.")
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
        if self.model is None:
            left_out.append(
                "Head outputs, logits and attention need the model, which a loaded analysis does "
                "not have: give its directory, analysis.report(path, checkpoint=...)."
            )
        else:
            drawn.append(self._outputs_figure(self.model))
            if "w01" in known:
                drawn.append(self._logits_figure(self.model))
        notes = [paragraph(text, "note") for text in left_out]
        return Part("looks", "Where heads look, and what they say", [*notes, figures(drawn)])

    def _outputs_figure(self, model: "transformer_lens.HookedTransformer") -> Html:
        data, s_acc = self.analysis.data, self.analysis.table["s_acc"]
        n_heads = len(s_acc)
        heads = sorted(s_acc.sort_values(ascending=False, kind="stable").index[:MOST_TILES])
        which = "each head" if n_heads <= MOST_TILES else f"the {MOST_TILES} heads of best s-acc"
        outputs = data.test_outputs[:, heads].reshape(len(data.test_labels), -1)
        names = [f"head_{head}_{i}" for head in heads for i in range(data.test_outputs.shape[2])]
        points = pd.DataFrame(outputs, columns=names)
        points.insert(0, "answer", np.where(data.test_labels, 4, 5))
        return _figure(
            plots.plot_head_outputs(model, self.analysis, heads),
            "head_outputs.csv",
            points,
            f"Outputs of {which} at '=' on the test split, a picture for each, with its separator: "
            f"s-acc from {s_acc[heads].min():.3f} to {s_acc[heads].max():.3f}.",
            f"Outputs of {which} at '=': blue where the answer is '4', orange where it is '5'. The "
            "green line is the fitted separator. Circled digits are the value vectors of the "
            "tokens, at the edge where they lie outside."
            + " Heads of another size than 2 are shown along their two main directions."
            * (data.test_outputs.shape[2] != 2),
        )

    def _logits_figure(self, model: "transformer_lens.HookedTransformer") -> Html:
        margins = self.analysis.table["mean_margin"]
        return _figure(
            plots.plot_logits(model, self.splits),
            "logits.csv",
            plots.logit_table(model, self.splits),
            f"Shares of each head in the logits of '4', '5' and '[EOS]'. After '=' "
            f"{(margins > 0).sum()} heads favour '4' on average, {(margins < 0).sum()} favour '5'.",
            "What each head adds to three logits, by current and true next token: medians, and 5 % "
            "to 95 % of sentences. A head whose blue and orange keep their order is biased to one "
            "answer.",
        )

    def making(self) -> Part:
        """What the numbers were made of and with."""
        content = []
        if self.info is not None:
            known = dict(self.info.get("info") or {"seed and recipe": "the checkpoint has none"})
            recipe = known.pop("recipe", None)
            content += [paragraph("The checkpoint says of itself:"), facts(known, "Checkpoint")]
            if isinstance(recipe, dict):
                content.append(unfolding("The recipe it was trained by", facts(recipe, "Recipe")))
            versions = self.info.get("versions", {})
            content.append(unfolding("What it was saved with", facts(versions, "Saved with")))
        if self.model is not None:
            cfg = self.model.cfg
            names = ("n_layers", "n_heads", "d_head", "d_model", "n_ctx", "normalization_type")
            shape = {name: getattr(cfg, name) for name in names}
            content.append(unfolding("The HookedTransformer", facts(shape, "Model")))
        gradient = self.analysis.worst_gradient
        content += [
            paragraph(
                "Separators are linear SVMs, solved to convergence: the largest relative gradient "
                f"at the end of any fit is {gradient:.1e}."
            ),
            paragraph("This report was made with:"),
            facts(library_versions(), "Versions"),
        ]
        return Part("making", "How this was made", content)


def sentence_part(model: "transformer_lens.HookedTransformer") -> Part:
    """Attention and shares on one sentence, to point at; for other reports, too."""
    views = [show_attention(model, SENTENCE), show_shares(model, SENTENCE)]
    text = (
        "Choose a head with the mouse or with Tab and Enter. Other sentences: "
        "cl.show_attention(model, ...), or count01-lens view."
    )
    return Part(
        "sentence",
        f"One sentence, head by head: {SENTENCE}",
        [paragraph(text, "small")],
        sections=[section for view in views for section in view.sections],
    )


def _check_same(
    analysis: HeadAnalysis, model: "transformer_lens.HookedTransformer", splits: Splits
) -> None:
    """Raise if figures would show another model, or other data, than the numbers beside them."""
    labels = splits.test.labels.numpy()
    known = analysis.data.test_outputs
    if not np.array_equal(labels, analysis.data.test_labels):
        raise ValueError(
            "splits: expected the data set of the analysis, got another; assign it to "
            "analysis.splits, or analyse the model again"
        )
    outputs = head_outputs(model, splits.test).double().numpy()
    if outputs.shape != known.shape or not np.allclose(outputs, known, rtol=1e-4, atol=1e-5):
        raise ValueError(
            "model: expected the one that was analysed, got one whose heads give other outputs; "
            "it was changed since, or it is another: analyse it again"
        )


def _figure(drawn: Figure, name: str, data: pd.DataFrame, alt: str, caption: str) -> Html:
    image = choose_image(lambda: as_bytes(drawn, "svg"), lambda: as_bytes(drawn, "png"))
    return figure(image, alt, caption, [_link(name, data)])


def _link(name: str, data: pd.DataFrame) -> Html:
    text = data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    instead = "count01-lens analyze --out and analysis.data have the numbers"
    return download(name, text.encode(), largest=LARGEST_TABLE, instead=instead)


def _saved(name: str, data: pd.DataFrame) -> Html:
    return paragraph(_link(name, data), "downloads")


def _matrix(values: Array) -> pd.DataFrame:
    return pd.DataFrame(values).rename_axis("head").reset_index()


def _pairs_alt(metric: str, matrix: Array) -> str:
    single, pairs = np.diag(matrix), _off_diagonal(matrix)
    (first, second), _ = _largest(matrix)
    return (
        f"Heat map of {metric}: single heads from {single.min():.3f} to {single.max():.3f}, pairs "
        f"from {pairs.min():.3f} to {pairs.max():.3f}, the best of heads {first} and {second}."
    )


def _off_diagonal(matrix: Array) -> Array:
    return np.asarray(matrix[np.triu_indices(len(matrix), 1)])


def _largest(matrix: Array) -> tuple[tuple[int, int], float]:
    """The pair with the largest value, the first of equal ones."""
    first, second = np.triu_indices(len(matrix), 1)
    place = int(np.argmax(matrix[first, second]))
    one, two = int(first[place]), int(second[place])
    return (one, two), float(matrix[one, two])


def _some(sizes: Iterable[int]) -> Sequence[int]:
    """Sizes to tell: doubling ones, and the largest."""
    known = list(sizes)
    return [size for size in known if size & (size - 1) == 0 or size == known[-1]]


def _heads(count: int) -> str:
    return f"{count} head{'s' * (count != 1)}"


def _category(name: str) -> Html:
    symbol, tone = _BADGES[name]
    return badge(symbol, name, tone)


def _cell(column: str, value: float) -> str:
    if column in ("layer", "head"):
        return str(value)
    if column in ("w01", "w02") or not np.isfinite(value):
        return number(value, 3)
    return f"{value:.4f}"


_BADGES: dict[str, tuple[str, Tone]] = {
    "successful": ("●", "good"),
    "mixed": ("◐", "middling"),
    "failed": ("○", "bad"),
}
_COLUMNS = {
    "layer": "layer",
    "head in its layer": "head",
    "l-acc": "l_acc",
    "ROC AUC": "roc_auc",
    "s-acc": "s_acc",
    "s-acc, ties": "s_acc_ties",
    "s-acc, others": "s_acc_others",
    "[EOS] l-acc": "eos_l_acc",
    "w01": "w01",
    "w02": "w02",
    "head weight": "head_weight",
}
_MEANINGS = [
    "l-acc: accuracy of the answer, '4' against '5', with all other heads set to zero.",
    "ROC AUC: how well the head's share of a logit ranks sentences, whatever the threshold.",
    "s-acc: accuracy of a linear separator fitted to the head's output on the training split.",
    "s-acc, ties and others: the same on sentences with as many 1s as 0s, and on all others.",
    "[EOS] l-acc: how often '[EOS]' follows the answer with all other heads set to zero.",
    "w01, w02: attention that one '0' gets at '=', over that of one '1' and of one '2'.",
    "head weight: how strongly the output layer reads the head for the answer; all sum to 1.",
]
