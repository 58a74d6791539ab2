"""Three metrics of a group of heads: learned accuracy, ROC AUC, separation accuracy.

Section 5.1 of the paper. Nothing here knows the task: the metrics take head outputs, shares of
the logits and labels, and any number of groups at once as rows of booleans, a column per head.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata

from count01_lens.common.types import Array
from count01_lens.heads.probe_fits import ManyFits, fit_many
from count01_lens.heads.probes import DEFAULT_C

Masks = Bool[Array, "group head"]
_TOGETHER = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadData:
    """What a model's heads do on a task with two answers and an end.

    Attributes:
        train_outputs: outputs of every head where the answer is asked for, training split.
        train_labels: True where the first answer is right.
        test_outputs: the same on the test split.
        test_labels: likewise.
        shares: share of every head in the logits of the two answers, test split.
        bias: the rest of these two logits.
        end_shares: share of every head in all logits, where the end is asked for.
        end_bias: the rest of these logits.
        end_token: the token that is right there.
        ablated: where shares are not additive (a final layer norm, later layers): a function that
            runs the model with only the heads of a group and gives the two answers' logits and
            all logits at the end; metrics of learned accuracy then use it.
    """

    train_outputs: Float[Array, "train head d_head"]
    train_labels: Bool[Array, " train"]
    test_outputs: Float[Array, "test head d_head"]
    test_labels: Bool[Array, " test"]
    shares: Float[Array, "test head answer=2"]
    bias: Float[Array, "test answer=2"]
    end_shares: Float[Array, "test head token"]
    end_bias: Float[Array, "test token"]
    end_token: int
    ablated: Callable[[Bool[Array, " head"]], tuple[Array, Array]] | None = None

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            labels = getattr(self, f"{name}_labels")
            if labels.all() or not labels.any():
                raise ValueError(
                    f"{name} split: expected both answers among its labels, got only one"
                )

    @property
    def n_heads(self) -> int:
        """Number of heads, all layers together."""
        return int(self.shares.shape[1])


def learned_accuracy(data: HeadData, masks: Masks) -> Float[Array, " group"]:
    """l-acc: accuracy of the shares of a group plus the bias, between the two answers.

    Equals the accuracy of the model with all other heads' outputs set to zero.
    """
    if data.ablated is not None:
        logits = np.stack([data.ablated(mask)[0] for mask in masks])
        return np.asarray(((logits[..., 0] > logits[..., 1]) == data.test_labels).mean(axis=1))
    margins = data.shares[:, :, 0] - data.shares[:, :, 1]
    bias = data.bias[:, 0] - data.bias[:, 1]
    return np.concatenate(
        [((part @ margins.T + bias > 0) == data.test_labels).mean(axis=1) for part in _parts(masks)]
    )


def end_accuracy(data: HeadData, masks: Masks) -> Float[Array, " group"]:
    """l-acc of the end: how often its token leads all others, by a group's shares and the bias."""
    others = np.arange(data.end_shares.shape[2]) != data.end_token
    if data.ablated is not None:
        logits = np.stack([data.ablated(mask)[1] for mask in masks])
        leads = logits[..., [data.end_token]] > logits[..., others]
        return np.asarray(leads.all(axis=-1).mean(axis=1))
    leads = data.end_shares[..., [data.end_token]] - data.end_shares[..., others]
    bias = data.end_bias[..., [data.end_token]] - data.end_bias[..., others]
    by_head = leads.transpose(1, 0, 2).reshape(data.n_heads, -1)
    accuracies = []
    for part in _parts(masks):
        margins = (part @ by_head).reshape(len(part), *bias.shape) + bias
        accuracies.append((margins > 0).all(axis=-1).mean(axis=1))
    return np.concatenate(accuracies)


def model_accuracies(data: HeadData, ties: Bool[Array, " test"]) -> dict[str, float]:
    """Accuracy of the whole model: all sentences, ties, others, and the end."""
    logits = data.shares.sum(axis=1) + data.bias
    right = (logits[:, 0] > logits[:, 1]) == data.test_labels
    # By shares, as all heads together are the model; `end_accuracy` might run it once more.
    end_logits = data.end_shares.sum(axis=1) + data.end_bias
    others = np.delete(end_logits, data.end_token, axis=1)
    return {
        "answer": float(right.mean()),
        "ties": float(right[ties].mean()) if ties.any() else float("nan"),
        "others": float(right[~ties].mean()),
        "eos": float((end_logits[:, data.end_token] > others.max(axis=1)).mean()),
    }


def roc_auc(data: HeadData, masks: Masks) -> Float[Array, " group"]:
    """ROC AUC: the larger of two, the first answer's share as a score for it, and the second's."""
    first = [areas(part @ data.shares[:, :, 0].T, data.test_labels) for part in _parts(masks)]
    second = [areas(part @ data.shares[:, :, 1].T, ~data.test_labels) for part in _parts(masks)]
    return np.asarray(np.maximum(np.concatenate(first), np.concatenate(second)))


def areas(
    scores: Float[Array, "group sample"], labels: Bool[Array, " sample"]
) -> Float[Array, " group"]:
    """Area under the ROC curve of each row of scores; equal scores count half, as usual."""
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


def separation_fits(
    data: HeadData,
    masks: Masks,
    *,
    start: Float[Array, "group feature_and_bias"] | None = None,
    C: float = DEFAULT_C,
) -> ManyFits:
    """Fit the linear SVM of each group to its outputs on the training split."""
    flat = data.train_outputs.reshape(len(data.train_labels), -1)
    supports = np.repeat(masks, data.train_outputs.shape[2], axis=1)
    return fit_many(flat, data.train_labels, supports, start=start, C=C)


def separation_scores(data: HeadData, fits: ManyFits) -> Float[Array, " group"]:
    """s-acc: accuracy of fitted separators on the test split."""
    flat = data.test_outputs.reshape(len(data.test_labels), -1)
    return fits.scores(flat, data.test_labels)


def separation_accuracy(
    data: HeadData, masks: Masks, *, C: float = DEFAULT_C
) -> Float[Array, " group"]:
    """s-acc: fit a linear SVM on the training split, measure it on the test split."""
    return separation_scores(data, separation_fits(data, masks, C=C))


def empty_values(data: HeadData) -> dict[str, float]:
    """The metrics of no heads at all: the bias alone, the training majority, a coin."""
    nobody = np.zeros((1, data.n_heads), dtype=bool)
    majority = data.train_labels.mean() > 0.5
    return {
        "l_acc": float(learned_accuracy(data, nobody)[0]),
        "roc_auc": 0.5,
        "s_acc": float((data.test_labels == majority).mean()),
        "eos_l_acc": float(end_accuracy(data, nobody)[0]),
    }


def _parts(masks: Masks) -> list[Float[Array, "part head"]]:
    """Cut groups into portions whose scores fit into the memory of any laptop."""
    return [
        masks[start : start + _TOGETHER].astype(float) for start in range(0, len(masks), _TOGETHER)
    ]
