"""`analyze_heads(model)`: every head, every pair, every group, and an answer in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from count01_lens.common.text import plural, short
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.heads import games
from count01_lens.heads.groups import LARGEST_EXACT, AllGroups, GroupsInWork
from count01_lens.heads.head_data import HeadData, runner_for_task
from count01_lens.heads.made_from import MadeFrom
from count01_lens.heads.metrics import (
    CATEGORIES,
    FAILED,
    METRICS,
    SUCCESSFUL,
    Groups,
    Metric,
    metrics_of,
)
from count01_lens.heads.probe_fits import Fits
from count01_lens.heads.roles import Roles, find_roles
from count01_lens.heads.sampling import (
    Estimate,
    Value,
    sampled_interactions,
    sampled_shapley,
)
from count01_lens.heads.tables import (
    head_labels,
)
from count01_lens.heads.verdict import Verdict, judge
from count01_lens.tasks.prompts import Task


@dataclass(frozen=True, eq=False)
class HeadAnalysis:
    """What the heads of a model do. It holds what was computed, and does not change.

    Attributes:
        heads: a row per head: layer, head, a column per metric, s-acc on the task's subsets,
            category. mean_margin and std_margin: by how much the head favours the first of two
            answers over the second. direct_effect, total_effect and self_repair, for models in
            which heads reach the logits by more than one way: by how much the head lifts the right
            answer, by what it writes into the logits and by what is lost without it, and the
            difference.
        counts: for models that can be run on counts, a row per head: w01, w02, head_weight, readout
            (the fitted probe as an inequality over counts) and learned_readout (the model's own
            direction); both are rounded, and readout_off and learned_readout_off are the shares of
            test sentences that they decide otherwise as written; else None.
        pairs: for each metric a matrix of all pairs, with single heads on the diagonal; NaN for
            pairs that were not measured.
        accuracy: of the whole model on the test prompts: by question, and on the subsets.
        notes: what does not apply to this model, and why.
        data: what the metrics were computed from.
        fits: the probe of every head; None in a loaded analysis whose probe was the user's own.
        worst_gradient: the largest relative gradient at the end of any probe's fit; NaN where
            nobody knows, as of probes of scikit-learn.
        made_from: fingerprints of the model and the task.
        known_groups: all groups, where they were computed: see `with_groups`.
        sampled: where heads are too many for all groups, estimated Shapley values, by metric.
        model: what was analysed, for figures and reports; a loaded analysis has None.
        task: likewise what it was asked.
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
    known_groups: AllGroups | None = field(default=None, repr=False)
    sampled: Mapping[str, Estimate] = field(default_factory=dict, repr=False)
    model: HookedTransformer | None = field(default=None, repr=False)
    task: Task | None = field(default=None, repr=False)

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row per head: all that is known of it alone."""
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

        Ctrl-C keeps what is done: the next call goes on from there. `with_groups` gives an analysis
        that has them in its file and its report.
        """
        return self._all_groups(progress).table

    def with_groups(self, *, progress: bool | None = None) -> "HeadAnalysis":
        """Return this analysis with all groups of heads among its results."""
        groups = self._all_groups(progress)
        worst = max(self.worst_gradient, groups.worst_gradient)
        return replace(self, known_groups=groups, worst_gradient=worst)

    def shapley(self, metric: str) -> Float[Array, " head"]:
        """Exact Shapley value of each head; where heads are too many, use `sampled_shapley`."""
        return games.shapley_values(self._values(metric))

    def interactions(
        self, metric: str, order: int = 2, index: games.Index = "shapley"
    ) -> Float[Array, "..."]:
        """Exact interactions of up to `order` heads; of pairs, single heads on the diagonal.

        See `heads.games` for the kinds: "shapley", "banzhaf", "shapley_taylor" and "faithful".
        """
        if order == 2 and index == "shapley":
            return games.shapley_interactions(self._values(metric))
        return games.interactions(self._values(metric), order, index)

    def dividends(self, metric: str) -> Float[Array, " mask"]:
        """What each group adds that no smaller group of it has, by mask (Harsanyi, Möbius)."""
        return games.dividends(self._values(metric))

    def explained(self, metric: str) -> pd.Series:
        """Share of a metric's variance over all groups that heads, pairs, triples, … explain."""
        shares = games.explained_by_order(self._values(metric))
        orders = pd.RangeIndex(1, len(shares) + 1, name="order")
        return pd.Series(shares, index=orders, name=metric)

    def smallest_groups(self, metric: str, share: float = 0.99) -> list[tuple[int, ...]]:
        """The smallest groups of heads that have a share of what all heads gain over none."""
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

        Measures as many groups as there are heads for each of `n_permutations` orders.
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

    def roles(self, metric: str = "l_acc") -> Roles:
        """Which heads work, are idle, oppose the rest, are copies of each other, or cooperate.

        Told from all groups by fixed thresholds (`heads.roles`); docs/ground_truth.md has how often
        that is right on models whose roles are known.
        """
        return find_roles(self._values(metric))

    @cached_property
    def verdict(self) -> Verdict:
        """Whether heads cooperate, are redundant or compete; computes all groups if need be."""
        if len(self.heads) == 1:
            raise ValueError(
                "verdict: expected at least two heads, got one: there is no other to compete or "
                "cooperate with"
            )
        layers = self.heads["layer"].tolist()
        judged = {"answer": "l_acc" if len(set(layers)) > 1 else "s_acc", "end": "eos_l_acc"}
        asked = [question for question in judged if question in self.data.asked]
        found = {question: self.interactions(judged[question]) for question in asked}
        return judge(found, head_labels(self.heads), layers)

    @property
    def answer(self) -> str:
        """The result in words: how heads do alone and, where all groups are known, together."""
        counts = self.heads["category"].value_counts()
        kinds = ", ".join(f"{counts.get(kind, 0)} {kind}" for kind in CATEGORIES)
        bounds = f"s-acc ≥ {SUCCESSFUL}, between, ≤ {FAILED:.2f}"
        text = f"{plural(len(self.heads), 'head')}: {kinds} ({bounds})."
        if len(self.heads) == 1:
            return text + " There is no other to compete or cooperate with."
        if len(self.heads) > LARGEST_EXACT:
            return text + " They are too many for all groups: see .sampled, or .sampled_shapley()."
        if self.known_groups is None:
            return text + " See .verdict, or .with_groups(), for whether they cooperate."
        return f"{text} {self.verdict}"

    def __repr__(self) -> str:
        learned = ["learned_readout", "learned_readout_off"]
        shown = self.table.drop(columns=learned, errors="ignore")
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

        Shapley values and interactions are in the report of `with_groups()`.

        The model's checkpoint is for its seed and recipe; for a loaded analysis also to draw what
        needs the model itself.
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

    def check_made_from(self, model: HookedTransformer, task: Task) -> None:
        """Raise if this is of another model, or of other data, than what is shown beside it."""
        self.made_from.check(model, runner_for_task(model, task), task)

    def _all_groups(self, progress: bool | None) -> AllGroups:
        if self.known_groups is not None:
            return self.known_groups
        if not self._computed:
            self._computed.append(self._in_work.finish(progress=progress))
        return self._computed[0]

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
