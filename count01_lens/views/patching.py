"""The state behind the attention patcher: what is patched, and what that does. No widgets here.

`PatchSession` keeps the measurements of the original model and computes those of the patched one
anew at each change, for the chosen heads only: the others stay as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.attention.patches import Others, Ratios
from count01_lens.attention.rows import PatchedForm
from count01_lens.common.threads import one_thread
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.common.validation import check_bool
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.heads.analysis import HeadAnalysis, analyze_heads
from count01_lens.heads.count_columns import probe_readouts
from count01_lens.heads.head_data import HeadData
from count01_lens.heads.metrics import CATEGORIES, Groups
from count01_lens.heads.probe_fits import Fits
from count01_lens.heads.runners import CountRunner
from count01_lens.models.hooks import check_heads
from count01_lens.tasks.count01 import CountPrompts, as_task
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.decisions import four_margin
from count01_lens.tasks.language import COUNTED, Sentence, Token, parse
from count01_lens.tasks.places import AT_EQUALS
from count01_lens.tasks.prompts import Task

_UNCHANGED: Any = object()


@dataclass(frozen=True)
class Chosen:
    """What the user has set.

    Attributes:
        heads: "all", a category such as "failed", or numbers.
        w01: as for `patch_attention`; None keeps each head's own ratio.
        w02: likewise.
        others: likewise.
        patched: whether the patched model is shown, or the original.
        sentence: whose attention is shown.
    """

    heads: str | tuple[int, ...] = "all"
    w01: float | None = None
    w02: float | None = None
    others: Others = "zero"
    patched: bool = True
    sentence: str = "0110212="


@dataclass(frozen=True, eq=False)
class HeadState:
    """Some heads of a model, original or patched, as far as they are measured.

    Attributes:
        data: outputs and attributions of these heads.
        fits: a probe of each.
        table: a row per head: s_acc, l_acc, readout.
    """

    data: HeadData
    fits: Fits | None
    table: pd.DataFrame


@dataclass(frozen=True)
class SentenceAnswer:
    """What a model answers, by how much '4' leads '5', and what would be right."""

    answer: str
    margin: float
    right_answer: str

    @property
    def right(self) -> bool:
        """Whether the answer is right."""
        return self.answer == self.right_answer


class PatchSession:
    """A model with attention patched by hand.

    Args:
        model: one that can be run on counts.
        task: the data set; by default the one of the analysis, or the paper's.
        analysis: of the same model and data set, if it is at hand.
    """

    def __init__(
        self,
        model: HookedTransformer,
        task: Task | Splits | None = None,
        analysis: HeadAnalysis | None = None,
    ):
        self.form = CountForm.from_models([model])
        self.model = model
        if task is None and analysis is not None:
            task = analysis.task
        self.task = as_task(task)
        if analysis is not None:
            analysis.check_made_from(model, self.task)
        self.analysis = analyze_heads(model, self.task) if analysis is None else analysis
        self.chosen = Chosen()
        self.sentence = parse(self.chosen.sentence)
        table = self.analysis.table[["s_acc", "l_acc", "readout"]]
        self.original = HeadState(self.analysis.data, self.analysis.fits, table)
        self._patched: HeadState | None = None

    @property
    def n_heads(self) -> int:
        """Number of heads of the model."""
        return len(self.analysis.table)

    @property
    def heads(self) -> list[int]:
        """The chosen heads, as numbers."""
        return self._heads_of(self.chosen.heads)

    @property
    def ratios(self) -> Ratios:
        """The patch, as the library understands it."""
        return self._ratios_of(self.chosen)

    @property
    def code(self) -> str:
        """The call that reproduces what is shown."""
        if not self.chosen.patched:
            return "# the original model: nothing is patched"
        return f"cl.{self.ratios}"

    def update(
        self,
        *,
        heads: str | Iterable[int] = _UNCHANGED,
        w01: float | None = _UNCHANGED,
        w02: float | None = _UNCHANGED,
        others: Others = _UNCHANGED,
        patched: bool = _UNCHANGED,
        sentence: str = _UNCHANGED,
    ) -> None:
        """Change what is chosen. A bad value raises ValueError and changes nothing."""
        given: dict[str, Any] = dict(
            heads=heads, w01=w01, w02=w02, others=others, patched=patched, sentence=sentence
        )
        changes = {name: value for name, value in given.items() if value is not _UNCHANGED}
        if "heads" in changes and not isinstance(heads, str):
            changes["heads"] = tuple(check_heads(self.model, heads))
        if "patched" in changes:
            check_bool("patched", patched)
        chosen = replace(self.chosen, **changes)
        self._ratios_of(chosen)
        if "sentence" in changes:
            self.sentence = self._checked_sentence(sentence)
        if (chosen.heads, chosen.w01, chosen.w02, chosen.others) != (
            self.chosen.heads,
            self.chosen.w01,
            self.chosen.w02,
            self.chosen.others,
        ):
            self._patched = None
        self.chosen = chosen

    def reset(self) -> None:
        """Go back to where the session started, the sentence aside."""
        self.update(heads="all", w01=None, w02=None, others="zero", patched=True)

    @property
    def patched(self) -> HeadState:
        """The chosen heads under the patch; computed at its first use after a change."""
        if self._patched is None:
            self._patched = self._measured()
        return self._patched

    @property
    def table(self) -> pd.DataFrame:
        """A row per chosen head: category, own ratios, s-acc and l-acc before and after."""
        before = self.analysis.table.iloc[self.heads]
        after = self.patched.table
        return pd.DataFrame(
            {
                "head": before["head"].to_numpy(),
                "category": before["category"].to_numpy(),
                "w01": before["w01"].to_numpy(),
                "w02": before["w02"].to_numpy(),
                "s_acc": before["s_acc"].to_numpy(),
                "s_acc_patched": after["s_acc"].to_numpy(),
                "l_acc": before["l_acc"].to_numpy(),
                "l_acc_patched": after["l_acc"].to_numpy(),
            }
        )

    @property
    def accuracy(self) -> pd.DataFrame:
        """The whole model on the test split, before and after: answer, ties, others, end."""
        data = self.original.data
        heads = data.answer.heads.copy()
        heads[:, self.heads] = self.patched.data.answer.heads
        # The row of the answer, and so the end, stays as it is.
        patched = replace(data, asked={**data.asked, "answer": replace(data.answer, heads=heads)})
        rows = {"original": self.analysis.accuracy, "patched": patched.accuracies()}
        return pd.DataFrame(rows).T

    def readout(self, head: int) -> tuple[str, str]:
        """The linear probe of a chosen head as an inequality over counts, before and after.

        After a patch the inequality has the patched weights in the place of e^S. Where '[BOS]' and
        '=' keep their weights there is no such inequality, and the second text says so.
        """
        before = str(self.original.table["readout"].iloc[head])
        return before, str(self.patched.table["readout"].iloc[self.heads.index(head)])

    def attention(self) -> tuple[Float[Array, "head key"], Float[Array, "head key"]]:
        """Attention of the chosen heads at '=' of the sentence, per token, before and after.

        The columns are the tokens of the sentence up to '=', in their order.
        """
        tokens = [int(token) for token in self.sentence.tokens]
        tokens = tokens[: tokens.index(Token.EQUALS) + 1]
        asked = Multiplicities.of(self._counts, AT_EQUALS, self.form.scores.dtype)
        n = np.maximum(asked.n[0, 0].double().numpy(), 1)
        before, after = (
            (form.attention(asked)[0, 0, :, 0].double().numpy() / n)[:, tokens]
            for form in (self._chosen_form(), self._chosen_form(patched=True))
        )
        return before, after

    def answers(self) -> "dict[str, SentenceAnswer]":
        """What the model says to the sentence, "original" and "patched"."""
        runner, asked = CountRunner(self.form), CountPrompts.of(self._counts, AT_EQUALS)
        runners = {"original": runner, "patched": runner.under(self.ratios)}
        margins = {
            name: float(four_margin(each.logits(asked))[0]) for name, each in runners.items()
        }
        return {
            name: SentenceAnswer("4" if margin > 0 else "5", margin, self.sentence.right_answer)
            for name, margin in margins.items()
        }

    def value_vectors(self, head: int) -> Float[Array, "token=3 d_head"]:
        """Value vectors of '0', '1' and '2' of a head."""
        return np.asarray(self.form.values[0, head, list(COUNTED)].double().numpy())

    def _heads_of(self, heads: str | tuple[int, ...]) -> list[int]:
        if not isinstance(heads, str):
            return list(heads)
        if heads == "all":
            return list(range(self.n_heads))
        if heads not in CATEGORIES:
            raise ValueError(
                f"heads: expected 'all', one of {', '.join(CATEGORIES)}, or numbers, got {heads!r}"
            )
        found = np.flatnonzero((self.analysis.table["category"] == heads).to_numpy()).tolist()
        if not found:
            raise ValueError(f"heads: this model has no {heads} head")
        return [int(head) for head in found]

    def _ratios_of(self, chosen: Chosen) -> Ratios:
        numbers = self._heads_of(chosen.heads)
        heads = None if len(numbers) == self.n_heads else tuple(numbers)
        return Ratios(w01=chosen.w01, w02=chosen.w02, heads=heads, others=chosen.others)

    def _checked_sentence(self, text: str) -> Sentence:
        if not isinstance(text, str):
            raise ValueError(f"sentence: expected text such as '0110=', got {text!r}")
        sentence = parse(text.strip())
        length = len(sentence.tokens)
        if length > self.model.cfg.n_ctx:
            raise ValueError(
                f"sentence: {length} tokens, but the model reads {self.model.cfg.n_ctx} (n_ctx)"
            )
        return sentence

    @property
    def _counts(self) -> Int[Tensor, "1 3"]:
        return torch.tensor([self.sentence.counts])

    def _chosen_form(self, *, patched: bool = False) -> CountForm:
        """Tables of the chosen heads alone, patched or not."""
        form, heads = self.form, self.heads
        chosen = CountForm(
            form.scores[:, heads],
            form.values[:, heads],
            form.logit_weights[:, heads],
            form.logit_bias,
        )
        return replace(self.ratios, heads=None).on_counts(chosen) if patched else chosen

    def _measured(self) -> HeadState:
        """Measure the chosen heads under the patch."""
        form = self._chosen_form(patched=True)
        runner, asked = CountRunner(form), self.task.questions["answer"]
        with one_thread():
            train, test = (runner.outputs(part).double() for part in (asked.train, asked.test))
            heads = runner.attribute(asked.test).heads[..., list(asked.choices)]
        original = self.analysis.data
        data = replace(
            original,
            train_outputs=train.numpy(),
            test_outputs=test.numpy(),
            asked={"answer": replace(original.answer, heads=heads.numpy())},
        )
        groups = Groups(data, np.eye(data.n_heads, dtype=bool))
        columns = {
            "s_acc": groups.probe_accuracy,
            "l_acc": groups.accuracy["answer"],
            "readout": _readouts(form, groups.fits),
        }
        return HeadState(data, groups.fits, pd.DataFrame(columns))


def _readouts(form: CountForm, fits: Fits) -> list[str]:
    if fits.weights is None:
        return ["none: the probe is not linear"] * form.scores.shape[1]
    if isinstance(form, PatchedForm):
        # The patched weights stand in the place of e^S.
        scores = form.patched_scores
        if scores is None:
            reason = "none: '[BOS]' and '=' keep weights that depend on the sentence"
            return [reason] * form.scores.shape[1]
        form = CountForm(scores, form.values, form.logit_weights, form.logit_bias)
    return probe_readouts(form, fits.weights)
