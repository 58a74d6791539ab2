"""Runners: what the heads of a model do on prompts, whichever way the model is run.

`CountRunner` follows from counts, in closed form; `HookRunner` runs any HookedTransformer on token
sequences. Which of them may be used is decided here, in `runner_for`, and nowhere else. Both give
the same, to rounding.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.precision import without_autocast
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.applies import few_sentences, why_not_counts
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.heads.guard import TwoRoads, checked_once
from count01_lens.heads.hook_runner import Attribution, HookRunner, Intervention, Outputs, Runner
from count01_lens.models.build import check_model, check_tokens
from count01_lens.models.direct_path import DirectPath
from count01_lens.models.fingerprint import exact_copy, fingerprint
from count01_lens.models.stored import Model, StoredModel, hooked
from count01_lens.models.task_of import language_for
from count01_lens.tasks.counting import At, CountingLanguage
from count01_lens.tasks.counting_task import CountPrompts
from count01_lens.tasks.dataset import CountsLike, Split
from count01_lens.tasks.places import COUNT01
from count01_lens.tasks.prompts import Asked, Prompts


@dataclass(frozen=True, eq=False)
class CountRunner:
    """Runs a model in closed form, from its tables over counts.

    Attributes:
        form: the tables of one model.
        model: where they come from, if it is at hand: an intervention that cannot be told from
            counts needs it.
        interventions: those that the tables have in them already.
    """

    form: CountForm
    model: Model | None = None
    interventions: tuple[Intervention, ...] = ()
    why_not_counts: ClassVar[None] = None

    @property
    def n_heads(self) -> int:
        """Number of heads."""
        return self.form.scores.shape[1]

    @torch.no_grad()
    def outputs(self, prompts: Asked) -> Float[Tensor, "prompt head d_head"]:
        """`hook_z` of every head at the query position."""
        return self.form.head_outputs(self._asked(prompts))[0]

    @torch.no_grad()
    @without_autocast
    def attribute(
        self,
        prompts: Asked,
        tokens: Sequence[int] | None = None,
        instead: Outputs | None = None,
    ) -> Attribution:
        """Direct logit attribution of every head, and the rest of the logits, in float64."""
        asked, chosen = self._asked(prompts), slice(None) if tokens is None else list(tokens)
        outputs = self.form.head_outputs(asked)[0]
        rest = (asked.asked @ self.form.logit_bias[0, asked.rows]).double()[:, chosen]
        other = None if instead is None else self._written(instead)[..., chosen]
        return Attribution(self._written(outputs)[..., chosen], rest, outputs, other)

    def _written(self, outputs: Outputs) -> Float[Tensor, "prompt head token"]:
        """What outputs of heads add to the logits."""
        form = "prompt head d, head d token -> prompt head token"
        return einsum(outputs.double(), self.form.logit_weights[0].double(), form)

    @torch.no_grad()
    def logits(self, prompts: Asked, without: Sequence[int] = ()) -> Float[Tensor, "prompt token"]:
        """Logits at the query position, with the outputs of some heads set to zero."""
        form = self.form.with_outputs_of(list(without), 0.0) if without else self.form
        return form.logits(self._asked(prompts))[0]

    def under(self, intervention: Intervention) -> Runner:
        """The same model under an intervention."""
        form = intervention.on_counts(self.form)
        interventions = (*self.interventions, intervention)
        if form is not None:
            if self.model is not None:
                _check_on_counts(self.model, intervention, self.form.language)
            return CountRunner(form, self.model, interventions)
        if self.model is None:
            raise ValueError(
                f"{intervention}: expected a model to run on sequences, got its tables alone"
            )
        reason = f"{type(intervention).__name__} cannot be told from counts"
        return HookRunner(hooked(self.model), reason, interventions)

    def _asked(self, prompts: Asked) -> Multiplicities:
        if not isinstance(prompts, CountPrompts):
            raise TypeError(f"prompts: expected counts, got {type(prompts).__name__}")
        if prompts.language.tokens != self.form.language.tokens:
            expected = " ".join(self.form.language.tokens)
            got = " ".join(prompts.language.tokens)
            raise ValueError(f"prompts: expected counts over {expected}, got over {got}")
        return Multiplicities.of(prompts.counts, prompts.place, self.form.scores.dtype)


def _check_on_counts(model: Model, intervention: Intervention, language: CountingLanguage) -> None:
    """Raise unless an intervention does to tables what it does to the model itself.

    Each kind is tried once on each model, by itself, on a few sentences. Stored models are plain:
    what the library's own kinds do to them is known without a run.
    """
    parts: Sequence[Intervention] = getattr(intervention, "parts", (intervention,))
    if isinstance(model, StoredModel) and all(map(_of_the_library, parts)):
        return
    tried = hooked(model)

    def check(part: Intervention) -> None:
        exact, counts = exact_copy(tried), few_sentences(tried, language)
        form = CountForm.from_models([exact], task=language)
        by_hooks, by_counts = (
            HookRunner(exact, interventions=(part,)),
            CountRunner(form).under(part),
        )
        for place in (language.at_equals, language.at_answer) if len(counts) else ():
            asked = CountPrompts.of(counts, place)
            parts = by_hooks.attribute(asked)
            size = parts.heads.abs().sum(dim=1).amax() + parts.rest.abs().amax()
            size = size * (1 + form.scores.abs().amax())
            name = f"{type(part).__name__}: logits at {place.name!r}, on counts and by hooks"
            one, other = by_hooks.logits(asked), by_counts.logits(asked)
            TwoRoads(name, one, other, one.dtype, size).check()

    for part in parts:
        checked_once("on counts", (fingerprint(tried), language, type(part)), partial(check, part))


def _of_the_library(intervention: Intervention) -> bool:
    return type(intervention).__module__.startswith("count01_lens.")


def runner_for(model: Model, *prompts: Asked) -> Runner:
    """Choose how a model is run on prompts: on counts where that is exact, else by hooks."""
    counted = [each for each in prompts if isinstance(each, CountPrompts)]
    as_counts = len(counted) == len(prompts)
    language = counted[0].language if counted else COUNT01
    if not isinstance(model, StoredModel):
        check_model(model, d_vocab=language.d_vocab if as_counts else None)
    elif as_counts:  # the rest was checked when it was read
        check_tokens(model.cfg, language.d_vocab)
    if model.cfg.positional_embedding_type == "alibi" and model.cfg.attention_dir != "causal":
        raise ValueError(
            "model: expected causal attention with ALiBi, got attention in both directions, for "
            "which TransformerLens gives other logits after it was run on a longer prompt"
        )
    for each in prompts:
        if isinstance(each, Prompts):
            largest = max(int(row.max()) for row in each.tokens)
            check_ids("tokens", largest, model.cfg.d_vocab)
            check_ids("answers", int(each.answers.max()), model.cfg.d_vocab_out)
            check_length(model, each)
    reason = (
        why_not_counts(model, language) if as_counts else "its prompts are written out as tokens"
    )
    if reason is None:
        return CountRunner(CountForm.from_models([model], task=language), model)
    return HookRunner(hooked(model), why_not_counts=reason)


def check_ids(name: str, largest: int, d_vocab: int) -> None:
    """Raise if a model has no such tokens."""
    if largest >= d_vocab:
        raise ValueError(
            f"{name}: expected token ids of the model, 0 to {d_vocab - 1}, got {largest}"
        )


def check_length(model: Model, prompts: Prompts) -> None:
    """Raise if a model cannot read prompts as far as it has to."""
    causal = model.cfg.attention_dir == "causal"
    lengths = [at + 1 for at in prompts.positions] if causal else list(map(len, prompts.tokens))
    longest = max(lengths)
    if longest > model.cfg.n_ctx:
        raise ValueError(
            f"prompts: expected at most {model.cfg.n_ctx} tokens, as many as the model reads "
            f"(n_ctx), got {longest} in prompt {lengths.index(longest)}; shorten it"
        )


def head_outputs(
    model: HookedTransformer, data: CountsLike | Prompts | CountPrompts, at: At = "="
) -> Float[Tensor, "sample head d_head"]:
    """Return `hook_z` of every head at the query position.

    Args:
        model: any HookedTransformer.
        data: a split, counts [sample, 3], or prompts.
        at: where sentences given as counts are asked: "=" or "answer".

    Example:
        >>> counts = torch.tensor([[3, 5, 2], [5, 3, 0]])
        >>> cl.head_outputs(cl.example_model(), counts).shape  # sample, head, d_head
        torch.Size([2, 16, 2])
    """
    prompts = as_prompts(data, at, model)
    return runner_for(model, prompts).outputs(prompts)


def head_logits(
    model: HookedTransformer, data: CountsLike | Prompts | CountPrompts, at: At = "="
) -> Float[Tensor, "sample head token"]:
    """Return the direct logit attribution of every head: the paper's `O_i · w_{i,t}`.

    Norms on the way to the logits are not linear; their scale is frozen at its value in the full
    model, and a warning says so.

    Example:
        >>> counts = torch.tensor([[3, 5, 2]])
        >>> parts = cl.head_logits(cl.example_model(), counts)  # sample, head, token
        >>> bool(parts[0, :, cl.Token.FOUR].sum() > parts[0, :, cl.Token.FIVE].sum())
        True
    """
    prompts = as_prompts(data, at, model)
    runner = runner_for(model, prompts)
    if DirectPath(model).has_norms:
        warnings.warn(
            "the model has layer norms before its logits: attributed at their frozen scale",
            stacklevel=2,
        )
    return runner.attribute(prompts).heads.to(model.W_U.dtype)


def model_logits(
    model: HookedTransformer, data: CountsLike | Prompts | CountPrompts, at: At = "="
) -> Float[Tensor, "sample token"]:
    """Return the logits of the next token at the query position."""
    prompts = as_prompts(data, at, model)
    return runner_for(model, prompts).logits(prompts)


def as_prompts(
    data: CountsLike | Prompts | CountPrompts,
    at: At = "=",
    model: HookedTransformer | None = None,
    *,
    language: CountingLanguage | None = None,
) -> Asked:
    """Return prompts, texts as tokens of a model; a split, or counts, are asked at a place.

    Counts are of a language, by default the model's, or Count01's where there is no model.
    """
    if isinstance(data, Prompts):
        return data if model is None else data.tokenized(model)
    if isinstance(data, CountPrompts):
        return data
    if language is None:
        language = COUNT01 if model is None else language_for(model)
    place = (data.language if isinstance(data, Split) else language).place(at)
    return CountPrompts.of(data, place)
