"""Metrics of groups of heads: learned accuracy, ROC AUC, accuracy of a linear probe.

Section 5.1 of the paper. A metric is a record in `METRICS`: adding one is adding a record. Nothing
here knows the task. Groups are rows of booleans, a column per head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.stats import rankdata

from count01_lens.common.progress import counted, track
from count01_lens.common.threads import workers
from count01_lens.common.types import Array
from count01_lens.heads.head_data import AskedHeads, HeadData, check_finite
from count01_lens.heads.probe_fits import Fits, fit_probes
from count01_lens.heads.thresholds import FAILED, SUCCESSFUL

Masks = Bool[Array, "group head"]
Starts = Float[Array, "group row feature_and_bias"]
# Is told whose answers some of the groups were looked at (a question, or the probe), the places of
# these groups, and which prompts they get right.
Noted = Callable[[str, Int[Array, " some"], Bool[Array, "some prompt"]], None]
PROBE = "probe"
# Groups at a time, and numbers at a time: their logits should fit a processor's cache.
_TOGETHER, _NUMBERS = 256, 1_000_000
_NOTED = 1024  # groups whose right answers are kept until they are noted
# What a head gives varies by rounding alone if by less than this many roundings of its size: a sum
# of thousands of terms, such as over the tokens of a sentence, is off by no more. In half precision
# sums are added up in float32, and rounded a few times.
_ROUNDINGS, _ROUNDINGS_OF_HALF = 64, 4
_HALF = float(np.finfo(np.float16).eps)

CATEGORIES = ("successful", "mixed", "failed")


def category_of(s_acc: Float[Array, " head"]) -> Array:
    """Call heads successful, mixed or failed."""
    return np.select([s_acc >= SUCCESSFUL, s_acc <= FAILED], ["successful", "failed"], "mixed")


class Groups:
    """Groups of heads to be measured, and what several metrics need of them, computed once.

    Their probes start from weights such as those of smaller groups, or are fitted already. What
    takes long shows its progress, if that is True, or None and somebody is likely to look on.
    `noted` is told which prompts each group gets right, whose mean is all that is kept here.
    """

    def __init__(
        self,
        data: HeadData,
        masks: Masks,
        *,
        start: Starts | None = None,
        fits: Fits | None = None,
        progress: bool | None = False,
        noted: Noted | None = None,
    ):
        self.data, self.masks, self._start, self._fits = data, masks, start, fits
        self.progress, self.noted = progress, noted

    @cached_property
    def accuracy(self) -> dict[str, Float[Array, " group"]]:
        """Accuracy of the model with only the heads of each group, by question.

        Equals the accuracy with all other heads' outputs replaced, as the data says by what. Where
        attributions do not add up, groups are run; those that were run before are not run again.
        """
        data = self.data
        if data.group_logits is None:
            return {name: self._added_up(name, asked) for name, asked in data.asked.items()}
        missing = np.flatnonzero(~self._run.all(axis=1))
        total = len(missing) * data.n_asked
        with counted(total, "running the model with groups of heads", self.progress) as advance:
            for name, numbers, logits in data.group_logits(self.masks[missing], advance):
                which = missing[numbers]
                asked, column = data.asked[name], list(data.asked).index(name)
                self._check_finite(name, which, logits)
                right = asked.right_by_logits(logits)
                self._note(name, which, right)
                self._found[which, column] = right.mean(axis=-1)
                self._run[which, column] = True
        return {name: self._found[:, column] for column, name in enumerate(data.asked)}

    @cached_property
    def _found(self) -> Float[Array, "group question"]:
        """Accuracies of groups that were run, as far as they were."""
        return np.zeros((len(self.masks), len(self.data.asked)))

    @cached_property
    def _run(self) -> Bool[Array, "group question"]:
        """Which were."""
        return np.zeros((len(self.masks), len(self.data.asked)), dtype=bool)

    def _check_finite(
        self, name: str, which: Int[Array, " some"], logits: Float[Array, "some prompt choice"]
    ) -> None:
        bad = ~np.isfinite(logits).all(axis=(1, 2))
        if bad.any():
            heads = np.flatnonzero(self.masks[which[bad][0]]).tolist()
            raise ValueError(
                f"heads {heads}: expected finite logits of {name!r} with only them, got NaN or "
                "infinite ones; scale the model's weights down"
            )

    @cached_property
    def fits(self) -> Fits:
        """A probe of each group's outputs, fitted to the training prompts."""
        if self._fits is not None:
            return self._fits
        data = self.data
        for outputs in (data.train_outputs, data.test_outputs):
            check_finite("outputs", outputs)
        return fit_probes(
            data.train_outputs.reshape(len(data.train_outputs), -1),
            data.train_labels,
            np.repeat(self.masks, data.d_head, axis=1),
            probe=data.probe,
            start=self._start,
        )

    @cached_property
    def probe_accuracy(self) -> Float[Array, " group"]:
        """Accuracy of these probes on the test prompts."""
        flat = self.data.test_outputs.reshape(len(self.data.test_outputs), -1)
        right = self.fits.predict(flat) == self.data.test_labels[:, None]
        self._note(PROBE, np.arange(len(self.masks)), right.T)
        return np.asarray(right.mean(axis=0))

    def _note(
        self, source: str, which: Int[Array, " some"], right: Bool[Array, "some prompt"]
    ) -> None:
        if self.noted is not None:
            self.noted(source, which, right)

    def _added_up(self, name: str, asked: AskedHeads) -> Float[Array, " group"]:
        by_head, rest = asked.gains.in_range().leads()
        right_of = partial(_right_answers, asked, by_head.reshape(len(by_head), -1), rest)
        parts = self.parts(at_once=_NUMBERS // rest.size)
        at_once = max(1, _NOTED // len(parts[0]))
        found: list[Float[Array, " some"]] = []
        done = 0
        for some in (parts[i : i + at_once] for i in range(0, len(parts), at_once)):
            with workers() as pool:
                right = np.concatenate(list(pool.map(right_of, some)))
            self._note(name, np.arange(done, done + len(right)), right)
            found.append(right.mean(axis=1))
            done += len(right)
        return np.concatenate(found)

    def parts(self, at_once: int = _TOGETHER) -> list[Float[Array, "part head"]]:
        """The groups in portions, as numbers for matrix products."""
        size = min(max(at_once, 1), _TOGETHER)
        return [
            self.masks[start : start + size].astype(float)
            for start in range(0, len(self.masks), size)
        ]


class RightKept:
    """Keeps which prompts a number of groups get right, by whose answers they are; for `noted`."""

    def __init__(self, n_groups: int):
        self.n_groups, self.by = n_groups, dict[str, Bool[Array, "group prompt"]]()

    def __call__(
        self, source: str, which: Int[Array, " some"], right: Bool[Array, "some prompt"]
    ) -> None:
        """Keep what is noted of some groups."""
        empty = np.zeros((self.n_groups, right.shape[1]), dtype=bool)
        self.by.setdefault(source, empty)[which] = right


@dataclass(frozen=True)
class Metric:
    """Something to measure of groups of heads.

    Attributes:
        without_heads: what the empty group has: which prompts it gets right, or one number.
        right_by: whose right answers the metric is the mean of: the question that the model is
            asked, or the probe; None if it is no mean over prompts.
        question: what it is about; a task without this question does not have the metric.
    """

    name: str
    label: str
    meaning: str
    measure: Callable[[Groups], Float[Array, " group"]]
    without_heads: Callable[[HeadData], Shaped[Array, " prompt_or_one"]]
    right_by: str | None
    question: str = "answer"

    def of_no_heads(self, data: HeadData) -> float:
        """The value of the empty group."""
        return float(self.without_heads(data).mean())


def roc_auc(groups: Groups) -> Float[Array, " group"]:
    """ROC AUC of each choice's attribution as a score for it.

    Of two choices the larger area, as in the paper; of more their mean, one against the rest. What
    is the same for every prompt up to rounding ranks none of them: it counts as exactly the same.
    """
    asked = groups.data.answer.in_range()
    constant = constant_heads(groups.data)
    by_choice = []
    n = asked.rest.shape[1]
    for choice in track(
        range(n), n, "ranking by each answer", groups.progress if n > 10 else False
    ):
        is_right = asked.answers == choice
        if is_right.any() and not is_right.all():
            scores = np.where(constant[:, choice, None], 0.0, asked.heads[:, :, choice].T)
            rank = partial(_areas_of_groups, scores, is_right)
            with workers() as pool:
                by_choice.append(np.concatenate(list(pool.map(rank, groups.parts()))))
    together = np.max if asked.rest.shape[1] == 2 else np.mean
    return np.asarray(together(np.stack(by_choice), axis=0))


def _right_answers(
    asked: AskedHeads,
    by_head: Float[Array, "head number"],
    rest: Float[Array, "..."],
    groups: Float[Array, "group head"],
) -> Bool[Array, "group prompt"]:
    """Tell which prompts each group answers right, from what heads write, side by side."""
    leads = (groups @ by_head).reshape(len(groups), *rest.shape)
    leads += rest
    return asked.right(leads)


def _areas_of_groups(
    scores: Float[Array, "head sample"],
    labels: Bool[Array, " sample"],
    groups: Float[Array, "group head"],
) -> Float[Array, " group"]:
    return areas(groups @ scores, labels)


def constant_heads(data: HeadData) -> Bool[Array, "head choice"]:
    """Tell which heads write the same into a choice's logit for every prompt, up to rounding.

    Either their outputs are the same, or what is written is. Rounding is relative to the largest
    value, and that of the numbers that the model was run in.
    """
    outputs = np.asarray(_varies_by_rounding(data.test_outputs, data.eps).all(axis=-1))
    return np.asarray(outputs[:, None] | _varies_by_rounding(data.answer.heads, data.eps))


def _varies_by_rounding(
    values: Float[Array, "prompt head part"], eps: float
) -> Bool[Array, "head part"]:
    low, high = values.min(axis=0), values.max(axis=0)
    rounding = eps * (_ROUNDINGS if eps < _HALF else _ROUNDINGS_OF_HALF)
    # Halves, because a difference of finite numbers may not be one.
    return np.asarray(high / 2 - low / 2 <= rounding * np.maximum(high, -low) / 2)


def areas(
    scores: Float[Array, "group sample"], labels: Bool[Array, " sample"]
) -> Float[Array, " group"]:
    """Area under the ROC curve of each row of scores; equal scores count half, as usual."""
    if not np.isfinite(scores).all():
        raise ValueError("scores: expected finite numbers, got NaN or infinite ones")
    positives, negatives = int(labels.sum()), int((~labels).sum())
    # Sorting numbers is ten times as fast as sorting indices: the last bit of each score carries
    # its label along. Equal scores of one label may stand in any order; where scores of different
    # labels are equal but for that bit, ranks are found by the slow way.
    bits = (scores.astype(np.float64).view(np.int64) & ~1) | labels
    ordered = np.sort(bits.view(np.float64), axis=1).view(np.int64)
    ranks = (ordered & 1) @ np.arange(1.0, len(labels) + 1)
    close = (ordered & ~1).view(np.float64)
    mixed = (close[:, 1:] == close[:, :-1]) & (ordered[:, 1:] != ordered[:, :-1])
    for row in np.flatnonzero(mixed.any(axis=1)):
        ranks[row] = rankdata(scores[row])[labels].sum()
    return np.asarray((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def right_without_heads(data: HeadData, question: str) -> Bool[Array, " prompt"]:
    """Tell what is answered rightly by what no head writes: biases, in some models the skip."""
    kept = RightKept(1)
    # Groups are measured by all questions together.
    _ = Groups(data, np.zeros((1, data.n_heads), dtype=bool), noted=kept).accuracy
    return np.asarray(kept.by[question][0])


def right_by_majority(data: HeadData) -> Bool[Array, " prompt"]:
    """Tell where the answer is the most frequent one in training."""
    # Of equally frequent ones the later, as of equal logits.
    counts = np.bincount(data.train_answers)
    most = len(counts) - 1 - int(counts[::-1].argmax())
    return np.asarray(data.answer.answers == most)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="l_acc",
            label="l-acc",
            meaning="accuracy of the answer with all other heads taken out",
            measure=lambda groups: groups.accuracy["answer"],
            without_heads=lambda data: right_without_heads(data, "answer"),
            right_by="answer",
        ),
        Metric(
            name="roc_auc",
            label="ROC AUC",
            meaning="how well what the head writes into a logit ranks prompts, whatever the "
            "threshold",
            measure=roc_auc,
            without_heads=lambda data: np.array([0.5]),
            right_by=None,
        ),
        Metric(
            name="s_acc",
            label="s-acc",
            meaning="accuracy of a linear probe fitted to the head's output on training prompts",
            measure=lambda groups: groups.probe_accuracy,
            without_heads=right_by_majority,
            right_by=PROBE,
        ),
        Metric(
            name="eos_l_acc",
            label="[EOS] l-acc",
            meaning="how often '[EOS]' follows the answer with all other heads taken out",
            measure=lambda groups: groups.accuracy["end"],
            without_heads=lambda data: right_without_heads(data, "end"),
            right_by="end",
            question="end",
        ),
    )
}


def metrics_of(data: HeadData) -> list[Metric]:
    """The metrics that a task has."""
    return [metric for metric in METRICS.values() if metric.question in data.asked]


def measure_all(groups: Groups) -> dict[str, Float[Array, " group"]]:
    """Every metric of some groups, by name."""
    return {metric.name: metric.measure(groups) for metric in metrics_of(groups.data)}
