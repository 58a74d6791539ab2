"""`analyze_heads(model)`: every head, every pair, every group, and an answer in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from count01_lens.common.progress import track
from count01_lens.common.types import Array
from count01_lens.common.validation import check_choice
from count01_lens.heads import games
from count01_lens.heads.answer import answer_of, text_of, verdict_of
from count01_lens.heads.ends import Ends
from count01_lens.heads.groups import AllGroups, GroupsInWork
from count01_lens.heads.head_data import HeadData, runner_for_task
from count01_lens.heads.independence import (
    IndependentHeads,
    independent_heads,
    why_not_independent,
)
from count01_lens.heads.labels import LABELS, HeadLabels, label_heads
from count01_lens.heads.made_from import MadeFrom
from count01_lens.heads.metrics import (
    CATEGORIES,
    METRICS,
    Groups,
    Metric,
    metrics_of,
)
from count01_lens.heads.probe_fits import Fits
from count01_lens.heads.sampling import (
    Estimate,
    Value,
    sampled_interactions,
    sampled_shapley,
)
from count01_lens.heads.structure import Structure, find_structure
from count01_lens.heads.tables import head_labels
from count01_lens.heads.verdict import Verdict, judged_metrics
from count01_lens.models.stored import Model
from count01_lens.tasks.prompts import Task


@dataclass(frozen=True, eq=False)
class HeadAnalysis:
    """What the heads of a model do: the results of `analyze_heads`, which do not change.

    Attributes:
        heads: a row per head: layer, head, a column per metric, s-acc on the task's subsets,
            category. mean_margin and std_margin: by how much the head favours the first of two
            answers over the second. direct_effect, total_effect and self_repair, for models in
            which heads reach the logits by more than one path: how much the head raises the right
            answer by what it writes into the logits, how much is lost without it, and the
            difference.
        counts: for models that can be run on counts, a row per head: w01, w02, head_weight, readout
            (the fitted probe as an inequality over counts) and learned_readout (the model's own
            direction). Both are rounded; readout_off and learned_readout_off are the shares of test
            sentences that the rounded inequality decides differently. None for other models.
        pairs: for each metric a matrix of all pairs, with single heads on the diagonal; NaN for
            pairs that were not measured.
        accuracy: of the whole model on the test prompts: by question, and on the subsets.
        notes: what does not apply to this model, and why.
        data: what the metrics were computed from.
        fits: the probe of every head; None in a loaded analysis whose probe was the user's own.
        worst_gradient: the largest relative gradient at the end of any probe's fit; NaN if it is
            unknown, as for probes of scikit-learn.
        made_from: fingerprints of the model and the task.
        ends: by metric, the mean interaction of all pairs, for metrics that are judged
            (`heads.ends`).
        known_groups: all groups, if they were measured: see `with_groups`.
        independent: by metric, how all groups compare with groups of independent heads, if
            measured.
        sampled: by metric, estimated Shapley values, if there are too many heads for all groups.
        model: the model, for figures and reports; None in a loaded analysis.
        task: the task, likewise.
    """

    heads: pd.DataFrame
    counts: pd.DataFrame | None
    pairs: dict[str, Float[Array, "head head"]]
    accuracy: dict[str, float]
    notes: tuple[str, ...]
    data: HeadData = field(repr=False)
    fits: Fits | None = field(repr=False)
    worst_gradient: float
    made_from: MadeFrom = field(repr=False)
    ends: Mapping[str, Ends] = field(default_factory=dict, repr=False)
    known_groups: AllGroups | None = field(default=None, repr=False)
    independent: Mapping[str, IndependentHeads] = field(default_factory=dict, repr=False)
    sampled: Mapping[str, Estimate] = field(default_factory=dict, repr=False)
    model: Model | None = field(default=None, repr=False)
    task: Task | None = field(default=None, repr=False)

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row per head, with everything that is known of single heads."""
        return self.heads if self.counts is None else self.heads.join(self.counts)

    @property
    def gains(self) -> Float[Array, "head head"]:
        """s-acc of each pair minus that of its better head; single heads' s-acc on the diagonal."""
        pairs = self.pairs["s_acc"]
        single = np.diag(pairs)
        gains = pairs - np.maximum(single[:, None], single[None, :])
        np.fill_diagonal(gains, single)
        return np.asarray(gains)

    def pairs_table(self) -> pd.DataFrame:
        """All measured pairs as a table: the two heads, their metrics, and the gain in s-acc."""
        first, second = np.triu_indices(len(self.heads), 1)
        known = ~np.isnan(self.pairs["s_acc"][first, second])
        first, second = first[known], second[known]
        columns = {name: matrix[first, second] for name, matrix in self.pairs.items()}
        gain = self.gains[first, second]
        return pd.DataFrame({"first": first, "second": second, **columns, "s_acc_gain": gain})

    def groups(self, *, progress: bool | None = None) -> pd.DataFrame:
        """Metrics of every group: mask (bit i = head i), size, metrics. Computed at the first call.

        Ctrl-C keeps what is done: the next call continues from there. `with_groups` returns an
        analysis that saves and reports them.
        """
        return self._all_groups(progress).table

    def with_groups(self, *, progress: bool | None = None) -> "HeadAnalysis":
        """Return this analysis with all groups of heads measured.

        Also measures, for comparison, groups of independent heads, where heads can be made
        independent.
        """
        if self.known_groups is not None:
            return self
        groups = self._all_groups(progress)
        worst = max(self.worst_gradient, groups.worst_gradient)
        independent = {}
        if len(self.heads) > 1 and why_not_independent(self.data) is None:
            for metric in track(self.ends, len(self.ends), "making heads independent", progress):
                independent[metric] = independent_heads(self.data, METRICS[metric])
        return replace(self, known_groups=groups, worst_gradient=worst, independent=independent)

    def shapley(self, metric: str) -> Float[Array, " head"]:
        """Exact Shapley value of each head; with too many heads, use `sampled_shapley`."""
        return games.shapley_values(self._values(metric))

    def interactions(
        self, metric: str, order: int = 2, index: games.Index = "shapley"
    ) -> Float[Array, "..."]:
        """Exact interactions of up to `order` heads; of pairs, single heads on the diagonal.

        See `heads.games` for the kinds: "shapley", "banzhaf", "shapley_taylor" and "faithful".
        """
        if order == 2 and index == "shapley":
            return games.shapley_interactions(self._values(metric))
        games.check_kind(order, index, self.data.n_heads)  # before groups are measured
        return games.interactions(self._values(metric), order, index)

    def dividends(self, metric: str) -> Float[Array, " mask"]:
        """What each group adds to all smaller groups within it, by mask (Harsanyi, Möbius)."""
        return games.dividends(self._values(metric))

    def explained(self, metric: str) -> pd.Series:
        """Share of a metric's variance over all groups that heads, pairs, triples, … explain."""
        shares = games.explained_by_order(self._values(metric))
        orders = pd.RangeIndex(1, len(shares) + 1, name="order")
        return pd.Series(shares, index=orders, name=metric)

    def smallest_groups(self, metric: str, share: float = 0.99) -> list[tuple[int, ...]]:
        """The smallest groups of heads that reach a share of what all heads gain over none."""
        games.check_share(share)  # before groups are measured
        masks = games.smallest_groups(self._values(metric), share).tolist()
        heads = range(self.data.n_heads)
        return [tuple(head for head in heads if mask >> head & 1) for mask in masks]

    def sampled_shapley(
        self,
        metric: str,
        *,
        n_permutations: int = 100,
        seed: int = 0,
        progress: bool | None = None,
    ) -> Estimate:
        """Estimate Shapley values, with standard errors, for any number of heads.

        Measures a group per head for each of `n_permutations` random orders of heads.
        """
        return sampled_shapley(
            self._value(metric),
            self.data.n_heads,
            n_permutations=n_permutations,
            seed=seed,
            progress=progress,
        )

    def sampled_interactions(self, metric: str, *, n_samples: int = 50, seed: int = 0) -> Estimate:
        """Estimate interactions of all pairs, with standard errors, for any number of heads."""
        value, n_heads = self._value(metric), self.data.n_heads
        return sampled_interactions(value, n_heads, n_samples=n_samples, seed=seed)

    def labels(self, metric: str) -> HeadLabels:
        """Which heads facilitate, interfere or are irrelevant; which are redundant or cooperate.

        Each label comes with the number that decides it and its interval over test prompts
        (`heads.labels`). docs/ground_truth.md says how often labels are right on models whose heads
        are known. Measures all groups if need be.
        """
        if self._metric(metric).right_by is None:
            raise ValueError(
                f"labels: expected a metric that is a mean over prompts, got {metric!r}: it has no "
                "interval over prompts; analysis.shapley and .interactions have its numbers"
            )
        if metric not in self._labels:
            groups = self._all_groups(None)
            found = label_heads(groups.values(metric), groups.contributions[metric])
            self._labels[metric] = found
        return self._labels[metric]

    def agreement(self, metric: str) -> pd.DataFrame:
        """Count heads by their label (rows) and by the paper's category (columns)."""
        labels = pd.Categorical(self.labels(metric).heads["label"], LABELS)
        categories = pd.Categorical(self.heads["category"], CATEGORIES)
        return pd.crosstab(
            labels, categories, rownames=["label"], colnames=["category"], dropna=False
        )

    def structure(self, metric: str | None = None) -> Structure:
        """Which heads are copies, which take over for which, which groups suffice; `print` it.

        Based on all groups; `heads.structure` has the equations. The metric is by default that of
        the verdict on the answer: s_acc, or l_acc for models of several layers.
        """
        name = self.main_metric if metric is None else metric
        outputs = self.data.test_outputs
        flat = outputs.reshape(len(outputs), -1)
        answers = None if self.fits is None else self.fits.predict(flat)
        return find_structure(self._values(name), name, head_labels(self.heads), answers)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether heads cooperate, are redundant or compete; with all groups it says more."""
        if len(self.heads) == 1:
            raise ValueError(
                "verdict: expected at least two heads, got one: there is no other to compete or "
                "cooperate with"
            )
        return verdict_of(self)

    @property
    def main_metric(self) -> str:
        """The metric that judges heads on the answer: s_acc, or l_acc for several layers."""
        return next(iter(judged_metrics(["answer"], self.heads["layer"].nunique())))

    @property
    def answer(self) -> str:
        """The result in words: whether heads compete or cooperate, and how they do alone."""
        return answer_of(self)

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        from count01_lens.views.report import analysis_html

        return analysis_html(self)

    def report(self, path: str | Path, *, checkpoint: str | Path | None = None) -> Path:
        """Write all results to one HTML file, which opens from disk.

        Only the report of `with_groups()` has Shapley values and interactions.

        With the model's `checkpoint`, the report has its seed and recipe and, for a loaded
        analysis, the figures that need the model itself.
        """
        from count01_lens.views.report import write_report

        return write_report(self, Path(path), checkpoint=checkpoint)

    def save(self, path: str | Path) -> None:
        """Write the analysis, with all groups if they are known, as one safetensors file."""
        from count01_lens.heads.analysis_file import write_analysis

        write_analysis(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "HeadAnalysis":
        """Read what `save` wrote."""
        from count01_lens.heads.analysis_file import read_analysis

        return read_analysis(Path(path))

    def check_made_from(self, model: Model, task: Task) -> None:
        """Raise if this analysis is of another model or of other data."""
        self.made_from.check(model, runner_for_task(model, task), task)

    def _all_groups(self, progress: bool | None) -> AllGroups:
        if self.known_groups is not None:
            return self.known_groups
        if not self._computed:
            self._computed.append(self._in_work.finish(progress=progress))
        return self._computed[0]

    @cached_property
    def _labels(self) -> dict[str, HeadLabels]:
        """Labels by metric, kept for the next call."""
        return {}

    @cached_property
    def _computed(self) -> list[AllGroups]:
        """Groups kept for the next call; what an analysis says of itself does not depend on it."""
        return []

    @cached_property
    def _in_work(self) -> GroupsInWork:
        """Groups that are not all measured yet."""
        return GroupsInWork(self.data)

    def _metric(self, name: str) -> Metric:
        check_choice("metric", name, [metric.name for metric in metrics_of(self.data)])
        return METRICS[name]

    def _values(self, metric: str) -> Float[Array, " mask"]:
        self._metric(metric)
        return self._all_groups(None).values(metric)

    def _value(self, name: str) -> Value:
        """Values of groups, of which some may be empty: no probe can be fitted to no heads."""
        metric = self._metric(name)

        def value(masks: Array) -> Array:
            some = masks.any(axis=1)
            values = np.full(len(masks), 0.0 if some.all() else metric.of_no_heads(self.data))
            if some.any():
                values[some] = metric.measure(Groups(self.data, masks[some]))
            return values

        return value
