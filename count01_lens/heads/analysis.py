"""`analyze_heads(model)`: every head, every pair, every group, and an answer in words."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from count01_lens.common.text import short
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.compact import count_form_applies
from count01_lens.counts.readout import attention_ratios, head_weights, learned_readout, readout
from count01_lens.heads.groups import (
    LARGEST_EXACT,
    METRICS,
    AllGroups,
    SampledShapley,
    all_groups,
    metrics_of,
    sampled_interactions,
    sampled_shapley,
    shapley_interactions,
    shapley_values,
)
from count01_lens.heads.metrics import (
    HeadData,
    empty_values,
    end_accuracy,
    learned_accuracy,
    model_accuracies,
    roc_auc,
    separation_fits,
    separation_scores,
)
from count01_lens.heads.probes import ManyFits
from count01_lens.heads.runners import head_data, head_outputs
from count01_lens.heads.verdict import Verdict, judge
from count01_lens.models.hooks import head_names
from count01_lens.tasks.dataset import Splits, make_splits

SUCCESSFUL, FAILED = 0.98, 0.60


@dataclass(eq=False)
class HeadAnalysis:
    """What the heads of a model do.

    Attributes:
        table: a row per head: layer, head, l_acc, roc_auc, s_acc, s_acc_ties, s_acc_others,
            category, eos_l_acc, and, for models that can be run on counts, w01, w02, head_weight,
            readout (the fitted probe as an inequality over counts) and learned_readout (the
            model's own direction). mean_margin and std_margin: by how much the head's share
            favours '4' over '5'.
        pairs: for each metric a matrix of all pairs, with single heads on the diagonal.
        accuracy: of the whole model on the test split: answer, ties, others, eos.
        notes: what does not apply to this model, and why.
        data: what the metrics were computed from.
        worst_gradient: the largest relative gradient at the end of any probe's fit.
        model: what was analysed, for figures and reports; a loaded analysis has None.
        splits: likewise the data set.
    """

    table: pd.DataFrame
    pairs: dict[str, Float[Array, "head head"]]
    accuracy: dict[str, float]
    notes: list[str]
    data: HeadData = field(repr=False)
    worst_gradient: float = 0.0
    model: HookedTransformer | None = field(default=None, repr=False)
    splits: Splits | None = field(default=None, repr=False)

    @property
    def gains(self) -> Float[Array, "head head"]:
        """s-acc of each pair minus that of its better head; single heads' s-acc on the diagonal."""
        pairs = self.pairs["s_acc"]
        single = np.diag(pairs)
        gains = pairs - np.maximum(single[:, None], single[None, :])
        np.fill_diagonal(gains, single)
        return np.asarray(gains)

    def pairs_table(self) -> pd.DataFrame:
        """All pairs as a table: the two heads, their metrics, and the gain in s-acc."""
        first, second = np.triu_indices(len(self.table), 1)
        columns = {name: matrix[first, second] for name, matrix in self.pairs.items()}
        gain = self.gains[first, second]
        return pd.DataFrame({"first": first, "second": second, **columns, "s_acc_gain": gain})

    def groups(self, *, progress: bool | None = None) -> pd.DataFrame:
        """Compute the metrics of every group, once: mask (bit i = head i), size, metrics."""
        if self._groups is None:
            self._groups = all_groups(self.data, progress=progress)
            self.worst_gradient = max(self.worst_gradient, self._groups.worst_gradient)
        return self._groups.table

    def shapley(self, metric: str) -> Float[Array, " head"]:
        """Exact Shapley value of each head; where heads are too many, use `sampled_shapley`."""
        return shapley_values(self._values(metric))

    def interactions(self, metric: str) -> Float[Array, "head head"]:
        """Exact Shapley interaction of each pair; Shapley values on the diagonal."""
        return shapley_interactions(self._values(metric))

    def sampled_shapley(
        self, metric: str, *, n_permutations: int = 100, seed: int = 0
    ) -> SampledShapley:
        """Estimate Shapley values, with standard errors, for any number of heads."""
        check_choice("metric", metric, METRICS)
        return sampled_shapley(
            lambda masks: METRICS[metric](self.data, masks),
            self.data.n_heads,
            empty=empty_values(self.data)[metric],
            n_permutations=n_permutations,
            seed=seed,
        )

    def sampled_interactions(
        self, metric: str, *, n_samples: int = 50, seed: int = 0
    ) -> tuple[Float[Array, "head head"], Float[Array, "head head"]]:
        """Estimate interactions of all pairs, for any number of heads; also standard errors."""
        check_choice("metric", metric, METRICS)
        empty = empty_values(self.data)[metric]

        def value(masks: Bool[Array, "group head"]) -> Float[Array, " group"]:
            """No separator can be fitted to no heads."""
            some = masks.any(axis=1)
            values = np.full(len(masks), empty)
            values[some] = METRICS[metric](self.data, masks[some])
            return values

        return sampled_interactions(value, self.data.n_heads, n_samples=n_samples, seed=seed)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether heads cooperate, are redundant or compete; computes all groups if need be."""
        if len(self.table) == 1:
            raise ValueError(
                "verdict: expected at least two heads, got one: there is no other to compete or "
                "cooperate with"
            )
        tasks = {"answer": "s_acc", "end": "eos_l_acc"}
        return judge({task: self.interactions(metric) for task, metric in tasks.items()})

    @property
    def answer(self) -> str:
        """The result in words: how heads do alone and, once groups are known, together."""
        counts = self.table["category"].value_counts()
        kinds = ", ".join(f"{counts.get(kind, 0)} {kind}" for kind in CATEGORIES)
        heads = "1 head" if len(self.table) == 1 else f"{len(self.table)} heads"
        text = f"{heads}: {kinds} (s-acc ≥ {SUCCESSFUL}, between, ≤ {FAILED:.2f})."
        if len(self.table) == 1:
            return text + " There is no other to compete or cooperate with."
        if self._groups is None:
            return text + " Call .groups() to learn whether they cooperate."
        return f"{text} {self.verdict}"

    def __repr__(self) -> str:
        shown = self.table.drop(columns=["learned_readout"], errors="ignore")
        accuracy = ", ".join(f"{name} {value:.4f}" for name, value in self.accuracy.items())
        lines = [self.answer, f"whole model on the test split: {accuracy}"]
        lines += [shown.to_string(index=False, float_format=short)]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from count01_lens.views.report import analysis_html

        return analysis_html(self)

    def report(self, path: str | Path, *, checkpoint: str | Path | None = None) -> Path:
        """Write everything that is known as one HTML file, which opens from disk.

        Shapley values and interactions are in it once `groups` was called.

        Args:
            path: of the file.
            checkpoint: the model's directory, to show its seed and recipe; for a loaded analysis
                also to draw what needs the model itself.
        """
        from count01_lens.views.report import write_report

        return write_report(self, Path(path), checkpoint=checkpoint)

    def save(self, path: str | Path) -> None:
        """Write the analysis to one file, with a checksum; nothing is pickled."""
        from count01_lens.heads.analysis_file import write_analysis

        write_analysis(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "HeadAnalysis":
        """Read what `save` wrote."""
        from count01_lens.heads.analysis_file import read_analysis

        return read_analysis(Path(path))

    def _values(self, metric: str) -> Float[Array, " mask"]:
        check_choice("metric", metric, METRICS)
        self.groups()
        assert self._groups is not None
        return self._groups.values(metric)

    _groups: AllGroups | None = field(default=None, init=False, repr=False)


CATEGORIES = ("successful", "mixed", "failed")


def analyze_heads(model: HookedTransformer, splits: Splits | None = None) -> HeadAnalysis:
    """Analyse every head and every pair of heads of a model on Count01.

    Args:
        model: any HookedTransformer over the eight tokens. One with positions, MLPs or several
            layers is run on sequences through hooks; what does not apply to it is noted.
        splits: the data set; the paper's by default.

    Example:
        >>> analysis = cl.analyze_heads(cl.example_model())
        >>> analysis.table["category"].value_counts().sort_index().to_dict()
        {'failed': 3, 'mixed': 3, 'successful': 10}
        >>> print(analysis.table["readout"][2])
        n1 − 0.997·n0 − 0.001·n2 − 0.65 > 0
    """
    splits = make_splits() if splits is None else splits
    if not isinstance(splits, Splits):
        raise TypeError(f"splits: expected the result of make_splits, got {splits!r}")
    data = head_data(model, splits)
    singles = np.eye(data.n_heads, dtype=bool)
    fits = separation_fits(data, singles)
    table = _table_of_singles(model, data, splits, singles, fits)
    reason = count_form_applies(model)
    notes = []
    if reason is None:
        _add_count_columns(table, CountForm.from_models([model]), fits)
    else:
        notes.append(f"no attention ratios, head weights or count read-outs: {reason}")
    pairs, worst = _pairs(data, table, fits)
    if data.n_heads > LARGEST_EXACT:
        notes.append(f"{data.n_heads} heads: too many for all groups; use .sampled_shapley(metric)")
    worst = max(worst, float(fits.gradient_norms.max()))
    accuracy = model_accuracies(data, splits.test.ties.numpy())
    return HeadAnalysis(table, pairs, accuracy, notes, data, worst, model, splits)


def category_of(s_acc: Float[Array, " head"]) -> Array:
    """Call heads successful (the paper's bound), failed (ours, for "close to a coin"), or mixed."""
    return np.select([s_acc >= SUCCESSFUL, s_acc <= FAILED], ["successful", "failed"], "mixed")


def check_same(analysis: HeadAnalysis, model: HookedTransformer, splits: Splits) -> None:
    """Raise if an analysis is of another model, or of other data, than what is shown beside it."""
    known, data = analysis.data.test_outputs, analysis.data
    if not (
        np.array_equal(splits.test.labels, data.test_labels)
        and np.array_equal(splits.train.labels, data.train_labels)
    ):
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


def _table_of_singles(
    model: HookedTransformer,
    data: HeadData,
    splits: Splits,
    singles: Array,
    fits: ManyFits,
) -> pd.DataFrame:
    names = head_names(model)
    flat = data.test_outputs.reshape(len(data.test_labels), -1)
    decisions = flat @ fits.weights[:, :-1].T + fits.weights[:, -1] > 0
    right = decisions == data.test_labels[:, None]
    ties = splits.test.ties.numpy()
    s_acc = separation_scores(data, fits)
    margins = data.shares[:, :, 0] - data.shares[:, :, 1]
    return pd.DataFrame(
        {
            "layer": [layer for layer, _ in names],
            "head": [head for _, head in names],
            "l_acc": learned_accuracy(data, singles),
            "roc_auc": roc_auc(data, singles),
            "s_acc": s_acc,
            "s_acc_ties": right[ties].mean(axis=0) if ties.any() else np.nan,
            "s_acc_others": right[~ties].mean(axis=0),
            "category": category_of(s_acc),
            "eos_l_acc": end_accuracy(data, singles),
            # The biases of figure F1: by how much a head's share favours '4', and how it varies.
            "mean_margin": margins.mean(axis=0),
            "std_margin": margins.std(axis=0),
        }
    )


def _add_count_columns(table: pd.DataFrame, form: CountForm, fits: ManyFits) -> None:
    table["w01"], table["w02"] = attention_ratios(form)
    table["head_weight"] = head_weights(form)
    d_head = form.values.shape[-1]
    probes = [
        readout(form, head, weights[head * d_head : (head + 1) * d_head], float(weights[-1]))
        for head, weights in enumerate(fits.weights)
    ]
    table["readout"] = [str(probe) for probe in probes]
    table["learned_readout"] = [str(learned_readout(form, head)) for head in range(len(table))]


def _pairs(data: HeadData, table: pd.DataFrame, fits: ManyFits) -> tuple[dict[str, Array], float]:
    n = data.n_heads
    first, second = np.triu_indices(n, 1)
    matrices = {metric: np.diag(table[metric].to_numpy()) for metric in METRICS}
    if len(first) == 0:
        return matrices, 0.0
    masks = np.zeros((len(first), n), dtype=bool)
    masks[np.arange(len(first)), first] = masks[np.arange(len(first)), second] = True
    better = np.where(fits.objectives[first] <= fits.objectives[second], first, second)
    pair_fits = separation_fits(data, masks, start=fits.weights[better])
    values = metrics_of(data, masks, separation_scores(data, pair_fits))
    for metric, matrix in matrices.items():
        matrix[first, second] = matrix[second, first] = values[metric]
    return matrices, float(pair_fits.gradient_norms.max())
