"""The state behind the attention patcher: what is patched, and what that does. No widgets here.

`PatchSession` keeps the measurements of the original model and computes those of the patched one
anew at each change, with probes of the chosen heads only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from count01_lens.attention.patches import Others, Ratios
from count01_lens.attention.rows import PatchedForm
from count01_lens.common.threads import one_thread
from count01_lens.common.types import Array, HookedTransformer
from count01_lens.common.validation import check_bool
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.head_data import HeadData, collect
from count01_lens.heads.metrics import CATEGORIES, Groups
from count01_lens.heads.runners import CountRunner
from count01_lens.heads.tables import probe_readouts
from count01_lens.models.hooks import check_heads
from count01_lens.tasks.count01 import CountPrompts, as_task
from count01_lens.tasks.dataset import Splits
from count01_lens.tasks.decisions import four_margin
from count01_lens.tasks.language import COUNTED, Sentence, Token, parse
from count01_lens.tasks.places import AT_EQUALS
from count01_lens.tasks.prompts import Task


@dataclass(frozen=True)
class Chosen:
    """What the user has set.

    Attributes:
        heads: "all", a category such as "failed", or numbers.
        w01: as for `patch_attention`, likewise `w02` and `others`.
        patched: whether the patched model is shown, or the original.
        sentence: whose attention is shown.
    """

    heads: str | tuple[int, ...] = "all"
    w01: float | None = None
    w02: float | None = None
    others: Others = "zero"
    patched: bool = True
    sentence: str = "0110212="

    def __post_init__(self) -> None:
        check_bool("patched", self.patched)
        if not isinstance(self.sentence, str):
            raise ValueError(f"sentence: expected text such as '0110=', got {self.sentence!r}")


@dataclass(frozen=True, eq=False)
class HeadState:
    """A model, original or patched, and its heads as far as they are measured.

    Attributes:
        data: outputs and attributions of all heads.
        probes: the linear probe of each measured head: weights of all outputs, and a bias.
        table: s_acc, l_acc and readout of each measured head, by its number.
    """

    data: HeadData
    probes: Mapping[int, Float[Array, " feature_and_bias"]]
    table: pd.DataFrame


@dataclass(frozen=True)
class SentenceAnswer:
    """What a model answers, by how much '4' leads '5', and whether it is right."""

    answer: str
    margin: float
    right: bool


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
        self.task = as_task(analysis.task if task is None and analysis is not None else task)
        if analysis is not None:
            analysis.check_made_from(model, self.task)
        self.analysis = analyze_heads(model, self.task) if analysis is None else analysis
        self.chosen = Chosen()
        self.sentence = parse(self.chosen.sentence)
        fits, table = self.analysis.fits, self.analysis.table[["s_acc", "l_acc", "readout"]]
        probes = {} if fits is None or fits.weights is None else dict(enumerate(fits.weights))
        self.original = HeadState(self.analysis.data, probes, table)
        self._patched: HeadState | None = None

    @property
    def heads(self) -> list[int]:
        """The chosen heads, as numbers."""
        return self._heads_of(self.chosen)

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

    def update(self, **changes: Any) -> None:
        """Change fields of `chosen`. A bad value raises ValueError and changes nothing."""
        if "heads" in changes and not isinstance(changes["heads"], str):
            changes["heads"] = tuple(check_heads(self.model, changes["heads"]))
        chosen = replace(self.chosen, **changes)
        same = self._ratios_of(chosen) == self.ratios
        if "sentence" in changes:
            self.sentence = self._readable(chosen.sentence)
        self._patched = self._patched if same else None
        self.chosen = chosen

    def reset(self) -> None:
        """Go back to where the session started, the sentence aside."""
        self.update(**vars(Chosen(sentence=self.chosen.sentence)))

    @property
    def patched(self) -> HeadState:
        """The model under the patch, with the chosen heads measured at its first use."""
        if self._patched is None:
            self._patched = self._measured()
        return self._patched

    @property
    def shown(self) -> HeadState:
        """The patched model or the original, whichever is chosen."""
        return self.patched if self.chosen.patched else self.original

    @property
    def table(self) -> pd.DataFrame:
        """A row per chosen head: category, own ratios, s-acc and l-acc before and after."""
        names = ["head", "category", "w01", "w02", "s_acc", "l_acc"]
        after = self.patched.table.add_suffix("_patched")
        table = self.analysis.table[names].join(after, how="right")
        order = [*names[:5], "s_acc_patched", "l_acc", "l_acc_patched"]
        return table[order].reset_index(drop=True)

    @property
    def accuracy(self) -> pd.DataFrame:
        """The whole model on the test split, before and after: answer, ties, others, end."""
        rows = {"original": self.analysis.accuracy, "patched": self.patched.data.accuracies()}
        return pd.DataFrame(rows).T

    def readout(self, head: int) -> tuple[str, str]:
        """The linear probe of a chosen head as an inequality over counts, before and after.

        After a patch the inequality has the patched weights in the place of e^S. Where '[BOS]' and
        '=' keep their weights there is no such inequality, and the second text says so.
        """
        before, after = self.original.table["readout"], self.patched.table["readout"]
        return str(before.iloc[head]), str(after.loc[head])

    def attention(self) -> tuple[Float[Array, "head key"], Float[Array, "head key"]]:
        """Attention of the chosen heads at '=' of the sentence, per token, before and after.

        The columns are the tokens of the sentence up to '=', in their order.
        """
        tokens = [int(token) for token in self.sentence.tokens]
        tokens = tokens[: tokens.index(Token.EQUALS) + 1]
        counts = torch.tensor([self.sentence.counts])
        asked = Multiplicities.of(counts, AT_EQUALS, self.form.scores.dtype)
        n = np.maximum(asked.n[0, 0].double().numpy(), 1)
        before, after = (
            (form.attention(asked)[0, 0, self.heads, 0].double().numpy() / n)[:, tokens]
            for form in (self.form, self.ratios.on_counts(self.form))
        )
        return before, after

    def answers(self) -> dict[str, SentenceAnswer]:
        """What the model says to the sentence, "original" and "patched"."""
        asked = CountPrompts.of(torch.tensor([self.sentence.counts]), AT_EQUALS)
        answers = {}
        for name, form in (("original", self.form), ("patched", self.ratios.on_counts(self.form))):
            margin = float(four_margin(CountRunner(form).logits(asked))[0])
            said = "4" if margin > 0 else "5"
            answers[name] = SentenceAnswer(said, margin, said == self.sentence.right_answer)
        return answers

    def value_vectors(self, head: int) -> Float[Array, "token=3 d_head"]:
        """Value vectors of '0', '1' and '2' of a head."""
        return np.asarray(self.form.values[0, head, list(COUNTED)].double().numpy())

    def _heads_of(self, chosen: Chosen) -> list[int]:
        heads, categories = chosen.heads, self.analysis.table["category"]
        if not isinstance(heads, str):
            return list(heads)
        if heads == "all":
            return list(range(len(categories)))
        if heads not in CATEGORIES:
            raise ValueError(
                f"heads: expected 'all', one of {', '.join(CATEGORIES)}, or numbers, got {heads!r}"
            )
        found: list[int] = np.flatnonzero(categories == heads).tolist()
        if not found:
            raise ValueError(f"heads: this model has no {heads} head")
        return found

    def _readable(self, text: str) -> Sentence:
        sentence, longest = parse(text.strip()), self.model.cfg.n_ctx
        if len(sentence.tokens) > longest:
            raise ValueError(
                f"sentence: {len(sentence.tokens)} tokens, but the model reads {longest} (n_ctx)"
            )
        return sentence

    def _ratios_of(self, chosen: Chosen) -> Ratios:
        numbers = self._heads_of(chosen)
        heads = None if len(numbers) == len(self.analysis.table) else tuple(numbers)
        return Ratios(w01=chosen.w01, w02=chosen.w02, heads=heads, others=chosen.others)

    def _measured(self) -> HeadState:
        """Measure the chosen heads under the patch."""
        form, heads = self.ratios.on_counts(self.form), self.heads
        with one_thread():
            data = collect(CountRunner(form), self.task, self.original.data.probe)
        groups = Groups(data, np.eye(data.n_heads, dtype=bool)[heads])
        weights = groups.fits.weights
        probes = {} if weights is None else dict(zip(heads, weights, strict=True))
        columns = {
            "s_acc": groups.probe_accuracy,
            "l_acc": groups.accuracy["answer"],
            "readout": _readouts(form, probes, heads),
        }
        return HeadState(data, probes, pd.DataFrame(columns, index=heads))


def _readouts(form: CountForm, probes: Mapping[int, Array], heads: list[int]) -> list[str]:
    if not probes:
        return ["none: the probe is not linear"] * len(heads)
    scores = form.patched_scores if isinstance(form, PatchedForm) else form.scores
    if scores is None:
        return ["none: '[BOS]' and '=' keep weights that depend on the sentence"] * len(heads)
    # The patched weights stand in the place of e^S.
    patched = CountForm(scores, form.values, form.logit_weights, form.logit_bias)
    nothing = np.zeros_like(probes[heads[0]])
    weights = np.stack([probes.get(head, nothing) for head in range(scores.shape[1])])
    written = probe_readouts(patched, weights)
    return [written[head] for head in heads]
