"""Runners: what the heads of a model do on prompts, whichever way the model is run.

`CountRunner` follows from counts, in closed form; `HookRunner` runs any HookedTransformer on token
sequences. Which of them may be used is decided here, in `runner_for`, and nowhere else. Both give
the same, to rounding.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Protocol

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.precision import without_autocast
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.applies import few_sentences, why_not_counts
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.heads.guard import TwoRoads, check_attribution, checked_once
from count01_lens.heads.visits import Visit, in_order
from count01_lens.models.build import check_model
from count01_lens.models.direct_path import DirectPath
from count01_lens.models.fingerprint import exact_copy, fingerprint
from count01_lens.models.hooks import (
    Hook,
    ablation_hooks,
    batches,
    hooks_attached,
    z_hook,
)
from count01_lens.models.task_of import language_for
from count01_lens.tasks.counting import At, CountingLanguage
from count01_lens.tasks.counting_task import CountPrompts
from count01_lens.tasks.dataset import CountsLike, Split
from count01_lens.tasks.places import COUNT01
from count01_lens.tasks.prompts import Asked, Prompts


class Intervention(Protocol):
    """A change of what a model computes, as a value; `attention` has them."""

    def applied(self, model: HookedTransformer) -> AbstractContextManager[HookedTransformer]:
        """Attach it to a model for the length of a `with` block."""

    def on_counts(self, form: CountForm) -> CountForm | None:
        """Apply it to tables over counts; None if it cannot be told from counts alone."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """The logits at the query position, taken apart.

    Attributes:
        heads: what each head writes into them directly.
        rest: everything else: biases, the skip connection, MLPs.
    """

    heads: Float[Tensor, "prompt head token"]
    rest: Float[Tensor, "prompt token"]


class Runner(Protocol):
    """Runs one model on prompts."""

    @property
    def n_heads(self) -> int:
        """Number of heads, all layers together."""

    @property
    def why_not_counts(self) -> str | None:
        """Why it is not run on counts; None if it is."""

    def outputs(self, prompts: Asked) -> Float[Tensor, "prompt head d_head"]:
        """`hook_z` of every head at the query position."""

    def attribute(self, prompts: Asked) -> Attribution:
        """Take the logits at the query position apart, in float64."""

    def logits(self, prompts: Asked, without: Sequence[int] = ()) -> Float[Tensor, "prompt token"]:
        """Logits at the query position, with the outputs of some heads set to zero."""

    def under(self, intervention: Intervention) -> "Runner":
        """The same model under an intervention."""


@dataclass(frozen=True, eq=False)
class HookRunner:
    """Runs a model on sequences, through real hooks: several layers, positions, MLPs, any of it.

    This is the reference that the faster way is held against.

    Attributes:
        model: any HookedTransformer; hooks that are attached to it take part.
        why_not_counts: why it is not run on counts, for those who wonder.
        interventions: what is applied to it while it runs, the first outermost.
    """

    model: HookedTransformer
    why_not_counts: str | None = None
    interventions: tuple[Intervention, ...] = ()

    @property
    def n_heads(self) -> int:
        """Number of heads, all layers together."""
        return int(self.model.cfg.n_layers * self.model.cfg.n_heads)

    @torch.no_grad()
    def outputs(self, prompts: Asked) -> Float[Tensor, "prompt head d_head"]:
        """`hook_z` of every head of every layer at the query position."""
        return in_order((some, self._z(at)) for some, _, at in self._visits(prompts, self._z_hooks))

    @torch.no_grad()
    def attribute(self, prompts: Asked) -> Attribution:
        """Direct logit attribution of every head, and the rest of the logits, in float64.

        Norms on the way are frozen at the scale that they have on the full model; logits with a
        soft cap are taken before it.
        """
        check_attribution(
            self.model,
            lambda model: replace(self, model=model)._visits,
            prompts,
            under=map(type, self.interventions),
        )
        path, heads, whole = DirectPath(self.model), [], []
        for some, logits, at in self._visits(prompts, path.hooks):
            heads.append((some, path.heads(at).double().cpu()))
            whole.append((some, path.uncapped(logits, at).double().cpu()))
        attributed = in_order(heads)
        return Attribution(attributed, in_order(whole) - attributed.sum(dim=1))

    @torch.no_grad()
    def logits(self, prompts: Asked, without: Sequence[int] = ()) -> Float[Tensor, "prompt token"]:
        """Logits at the query position, with the outputs of some heads set to zero."""
        hooks = ablation_hooks(self.model, without) if without else []
        return in_order((some, logits) for some, logits, _ in self._visits(prompts, [], hooks))

    def under(self, intervention: Intervention) -> "HookRunner":
        """The same model under an intervention."""
        return replace(self, interventions=(*self.interventions, intervention))

    @property
    def _z_hooks(self) -> list[str]:
        return [z_hook(layer) for layer in range(self.model.cfg.n_layers)]

    def _z(self, at: dict[str, Tensor]) -> Float[Tensor, "prompt head d_head"]:
        return torch.cat([at[name] for name in self._z_hooks], dim=1)

    def _visits(
        self, prompts: Asked, names: list[str], hooks: Sequence[tuple[str, Hook]] = ()
    ) -> Iterator[Visit]:
        """Run the model batch by batch, in no order."""
        with ExitStack() as stack:
            for intervention in self.interventions:
                stack.enter_context(intervention.applied(self.model))
            stack.enter_context(hooks_attached(self.model, hooks))
            for some, tokens, asked in batches(self.model, prompts.sequences(), prompts.positions):
                rows = torch.arange(len(tokens), device=tokens.device)
                logits, cache = self.model.run_with_cache(tokens, names_filter=names)
                found = {name: cache[name][rows, asked] for name in names}
                yield Visit(some, logits[rows, asked], found)


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
    model: HookedTransformer | None = None
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
    def attribute(self, prompts: Asked) -> Attribution:
        """Direct logit attribution of every head, and the rest of the logits, in float64."""
        asked = self._asked(prompts)
        outputs, weights = self.form.head_outputs(asked)[0], self.form.logit_weights[0]
        form = "prompt head d, head d token -> prompt head token"
        heads = einsum(outputs.double(), weights.double(), form)
        return Attribution(heads, (asked.asked @ self.form.logit_bias[0, asked.rows]).double())

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
        return HookRunner(self.model, reason, interventions)

    def _asked(self, prompts: Asked) -> Multiplicities:
        if not isinstance(prompts, CountPrompts):
            raise TypeError(f"prompts: expected counts, got {type(prompts).__name__}")
        if prompts.language.tokens != self.form.language.tokens:
            expected = " ".join(self.form.language.tokens)
            got = " ".join(prompts.language.tokens)
            raise ValueError(f"prompts: expected counts over {expected}, got over {got}")
        return Multiplicities.of(prompts.counts, prompts.place, self.form.scores.dtype)


def _check_on_counts(
    model: HookedTransformer, intervention: Intervention, language: CountingLanguage
) -> None:
    """Raise unless an intervention does to tables what it does to the model itself.

    Each kind is tried once on each model, by itself, on a few sentences.
    """

    def check(part: Intervention) -> None:
        exact, counts = exact_copy(model), few_sentences(model, language)
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

    for part in getattr(intervention, "parts", (intervention,)):
        checked_once("on counts", (fingerprint(model), language, type(part)), partial(check, part))


def runner_for(model: HookedTransformer, *prompts: Asked) -> Runner:
    """Choose how a model is run on prompts: on counts where that is exact, else by hooks."""
    counted = [each for each in prompts if isinstance(each, CountPrompts)]
    as_counts = len(counted) == len(prompts)
    language = counted[0].language if counted else COUNT01
    check_model(model, d_vocab=language.d_vocab if as_counts else None)
    for each in prompts:
        if isinstance(each, Prompts):
            largest = max(int(row.max()) for row in each.tokens)
            check_ids("tokens", largest, model.cfg.d_vocab)
            check_ids("answers", int(each.answers.max()), model.cfg.d_vocab_out)
    reason = (
        why_not_counts(model, language) if as_counts else "its prompts are written out as tokens"
    )
    if reason is None:
        return CountRunner(CountForm.from_models([model], task=language), model)
    return HookRunner(model, why_not_counts=reason)


def check_ids(name: str, largest: int, d_vocab: int) -> None:
    """Raise if a model has no such tokens."""
    if largest >= d_vocab:
        raise ValueError(
            f"{name}: expected token ids of the model, 0 to {d_vocab - 1}, got {largest}"
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
    prompts = as_prompts(data, at, language_for(model))
    return runner_for(model, prompts).outputs(prompts)


def head_logits(
    model: HookedTransformer, data: CountsLike | Prompts | CountPrompts, at: At = "="
) -> Float[Tensor, "sample head token"]:
    """Return the direct logit attribution of every head: the paper's `O_i · w_{i,t}`.

    Norms on the way to the logits are not linear; their scale is frozen at what it is on the full
    model, and a warning says so.

    Example:
        >>> counts = torch.tensor([[3, 5, 2]])
        >>> parts = cl.head_logits(cl.example_model(), counts)  # sample, head, token
        >>> bool(parts[0, :, cl.Token.FOUR].sum() > parts[0, :, cl.Token.FIVE].sum())
        True
    """
    prompts = as_prompts(data, at, language_for(model))
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
    prompts = as_prompts(data, at, language_for(model))
    return runner_for(model, prompts).logits(prompts)


def as_prompts(
    data: CountsLike | Prompts | CountPrompts,
    at: At = "=",
    language: CountingLanguage = COUNT01,
) -> Asked:
    """Return prompts as they are; a split, or counts of a language, are asked at a place."""
    place = (data.language if isinstance(data, Split) else language).place(at)
    return data if isinstance(data, Prompts | CountPrompts) else CountPrompts.of(data, place)
