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
from einops import einsum
from jaxtyping import Float

from count01_lens.attention.rows import AttentionRatios, Others, PatchedForm, RowPatch
from count01_lens.common.threads import one_thread
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.common.validation import check_bool
from count01_lens.counts.closed_form import CountForm, multiplicities
from count01_lens.counts.compact import require_count_form
from count01_lens.counts.readout import readout
from count01_lens.heads.analysis import CATEGORIES, HeadAnalysis, analyze_heads, check_same
from count01_lens.heads.metrics import (
    HeadData,
    learned_accuracy,
    model_accuracies,
    separation_fits,
    separation_scores,
)
from count01_lens.heads.probes import ManyFits
from count01_lens.models.hooks import check_heads
from count01_lens.tasks.dataset import Splits, make_splits
from count01_lens.tasks.decisions import four_margin
from count01_lens.tasks.language import COUNTED, Sentence, Token, parse

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
        data: outputs and direct logit attribution of these heads.
        fits: a linear probe for each.
        table: a row per head: s_acc, l_acc, readout.
    """

    data: HeadData
    fits: ManyFits
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
        model: one to which `count_form_applies`.
        splits: the data set; by default the one of the analysis, or the paper's.
        analysis: of the same model and data set, if it is at hand.
    """

    def __init__(
        self,
        model: HookedTransformer,
        splits: Splits | None = None,
        analysis: HeadAnalysis | None = None,
    ):
        require_count_form(model)
        self.model = model
        if splits is None:
            known = None if analysis is None else analysis.splits
            splits = make_splits() if known is None else known
        if analysis is not None:
            check_same(analysis, model, splits)
        self.splits = splits
        self.analysis = analyze_heads(model, splits) if analysis is None else analysis
        self.form = CountForm.from_models([model])
        self.chosen = Chosen()
        self.sentence = parse(self.chosen.sentence)
        dtype = self.form.scores.dtype
        self._n_train, self._n_test = (
            multiplicities(split.counts, "=", dtype)
            for split in (self.splits.train, self.splits.test)
        )
        self._original = self._measured(self.form, self.analysis.data)
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
    def ratios(self) -> AttentionRatios:
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
    def original(self) -> HeadState:
        """All heads of the model as it is."""
        return self._original

    @property
    def patched(self) -> HeadState:
        """The chosen heads under the patch; computed at its first use after a change."""
        if self._patched is None:
            form = self._patched_form()
            self._patched = self._measured(form, self._patched_data(form))
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
        """The whole model on the test split, before and after: answer, ties, others, '[EOS]'."""
        shares = self.original.data.shares.copy()
        shares[:, self.heads] = self.patched.data.shares
        patched = replace(self.original.data, shares=shares)
        ties = self.splits.test.ties.numpy()
        rows = {"original": self.analysis.accuracy, "patched": model_accuracies(patched, ties)}
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
        n = multiplicities(torch.tensor([self.sentence.counts]), "=", self.form.scores.dtype)
        per_type = []
        for form in (self._sub_form(), self._patched_form()):
            together = form.attention(n, "=")[0, 0, :, 0].double().numpy()
            per_type.append(together / np.maximum(n[0, 0].double().numpy(), 1))
        return per_type[0][:, tokens], per_type[1][:, tokens]

    def answers(self) -> "dict[str, SentenceAnswer]":
        """The model's answer to the sentence, "original" and "patched"."""
        n = multiplicities(torch.tensor([self.sentence.counts]), "=", self.form.scores.dtype)
        whole = PatchedForm.of(self.form, RowPatch.from_ratios(self.model, self.ratios))
        forms = {"original": self.form, "patched": whole}
        margins = {
            name: float(four_margin(form.logits(n, "=")[0, 0])) for name, form in forms.items()
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

    def _ratios_of(self, chosen: Chosen) -> AttentionRatios:
        numbers = self._heads_of(chosen.heads)
        heads = None if len(numbers) == self.n_heads else tuple(numbers)
        return AttentionRatios(w01=chosen.w01, w02=chosen.w02, heads=heads, others=chosen.others)

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

    def _sub_form(self) -> CountForm:
        """Tables of the chosen heads alone."""
        form, heads = self.form, self.heads
        return CountForm(
            form.scores[:, heads],
            form.values[:, heads],
            form.logit_weights[:, heads],
            form.logit_bias,
        )

    def _patched_form(self) -> PatchedForm:
        whole = RowPatch.from_ratios(self.model, self.ratios)
        patch = RowPatch(list(range(len(whole.heads))), whole.log_weights, whole.kept, whole.at)
        return PatchedForm.of(self._sub_form(), patch)

    def _patched_data(self, form: PatchedForm) -> HeadData:
        """Collect what the metrics need of the chosen heads.

        The row of the answer is not patched, so that '[EOS]' stays as it is.
        """
        original, heads = self.analysis.data, self.heads
        with torch.no_grad(), one_thread():
            train, test = (
                form.head_outputs(n, "=")[0].double() for n in (self._n_train, self._n_test)
            )
            weights = form.logit_weights[0][..., [Token.FOUR, Token.FIVE]].double()
            shares = einsum(test, weights, "sample head d, head d t -> sample head t")
        return replace(
            original,
            train_outputs=train.numpy(),
            test_outputs=test.numpy(),
            shares=shares.numpy(),
            end_shares=original.end_shares[:, heads],
        )

    def _measured(self, form: CountForm, data: HeadData) -> HeadState:
        singles = np.eye(data.n_heads, dtype=bool)
        fits = separation_fits(data, singles)
        columns = {
            "s_acc": separation_scores(data, fits),
            "l_acc": learned_accuracy(data, singles),
            "readout": [_readout_of(form, position, fits) for position in range(data.n_heads)],
        }
        return HeadState(data, fits, pd.DataFrame(columns))


def _readout_of(form: CountForm, head: int, fits: ManyFits) -> str:
    d_head = form.values.shape[-1]
    weights = fits.weights[head, head * d_head : (head + 1) * d_head]
    if isinstance(form, PatchedForm):
        if form.patch.kept.any():
            return "none: '[BOS]' and '=' keep weights that depend on the sentence"
        scores = form.scores.clone()
        scores[:, form.patch.heads] = form.patch.log_weights.to(scores)
        form = CountForm(scores, form.values, form.logit_weights, form.logit_bias)
    return str(readout(form, head, weights, float(fits.weights[head, -1])))
