"""What runners give, and the runner that takes any HookedTransformer: real hooks on sequences.

This is the reference that the faster ways are held against.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from count01_lens.common.progress import counted
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.guard import check_attribution
from count01_lens.heads.visits import Visit, in_order
from count01_lens.models.acting_hooks import check_hooks_act
from count01_lens.models.direct_path import DirectPath
from count01_lens.models.hooks import Hook, batches, hooks_attached, replacing_hooks, z_hook
from count01_lens.tasks.prompts import Asked

Outputs = Float[Tensor, "prompt head d_head"]
Hooks = Sequence[tuple[str, Hook]]
# What stands in the place of the outputs of a layer's heads in a run on tokens: [row, position,
# head, d_head], or anything that broadcasts to it.
Replace = Callable[[int, Tensor], Tensor]


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
        outputs: `hook_z` of every head there.
        instead: what other outputs, if some were given, would write in the heads' place.
    """

    heads: Float[Tensor, "prompt head token"]
    rest: Float[Tensor, "prompt token"]
    outputs: Outputs
    instead: Float[Tensor, "prompt head token"] | None = None


class Runner(Protocol):
    """Runs one model on prompts."""

    @property
    def n_heads(self) -> int:
        """Number of heads, all layers together."""

    @property
    def why_not_counts(self) -> str | None:
        """Why it is not run on counts; None if it is."""

    def outputs(self, prompts: Asked) -> Outputs:
        """`hook_z` of every head at the query position."""

    def attribute(
        self,
        prompts: Asked,
        tokens: Sequence[int] | None = None,
        instead: Outputs | None = None,
    ) -> Attribution:
        """Take the logits of some tokens, or of all, at the query position apart, in float64."""

    def logits(self, prompts: Asked, without: Sequence[int] = ()) -> Float[Tensor, "prompt token"]:
        """Logits at the query position, with the outputs of some heads set to zero."""

    def under(self, intervention: Intervention) -> "Runner":
        """The same model under an intervention."""


@dataclass(frozen=True, eq=False)
class HookRunner:
    """Runs a model on sequences, through real hooks: several layers, positions, MLPs, any of it.

    Attributes:
        model: any HookedTransformer; hooks that are attached to it take part.
        why_not_counts: why it is not run on counts, for those who wonder.
        interventions: what is applied to it while it runs, the first outermost.
        progress: whether to show how far it is, as for `counted`.
    """

    model: HookedTransformer
    why_not_counts: str | None = None
    interventions: tuple[Intervention, ...] = ()
    progress: bool | None = False

    @property
    def n_heads(self) -> int:
        """Number of heads, all layers together."""
        return int(self.model.cfg.n_layers * self.model.cfg.n_heads)

    @torch.no_grad()
    def outputs(self, prompts: Asked) -> Outputs:
        """`hook_z` of every head of every layer at the query position."""
        names = self._z_hooks
        return in_order((some, self._z(at)) for some, _, at in self._visits(prompts, names))

    @torch.no_grad()
    def attribute(
        self,
        prompts: Asked,
        tokens: Sequence[int] | None = None,
        instead: Outputs | None = None,
    ) -> Attribution:
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
        path, chosen = DirectPath(self.model), slice(None) if tokens is None else list(tokens)
        heads, whole, outputs, others = [], [], [], []
        for some, logits, at in self._visits(prompts, path.hooks):
            heads.append((some, path.heads(at, chosen).double().cpu()))
            whole.append((some, path.uncapped(logits, at)[:, chosen].double().cpu()))
            outputs.append((some, self._z(at)))
            if instead is not None:
                by_layer = torch.split(
                    instead[some].to(self.model.W_U.device), self.model.cfg.n_heads, 1
                )
                others.append((some, path.of_outputs(by_layer, at, chosen).double().cpu()))
        attributed = in_order(heads)
        return Attribution(
            attributed,
            in_order(whole) - attributed.sum(dim=1),
            in_order(outputs),
            in_order(others) if others else None,
        )

    @torch.no_grad()
    def logits(
        self, prompts: Asked, without: Sequence[int] = (), replace_by: Replace | None = None
    ) -> Float[Tensor, "prompt token"]:
        """Logits at the query position, with the outputs of some heads replaced, by default by 0.

        Args:
            prompts: what the model is run on.
            without: numbers of heads.
            replace_by: what is put in the place of their outputs.
        """

        def hooks(tokens: Tensor) -> Hooks:
            values = None if replace_by is None else lambda layer: replace_by(layer, tokens)
            return replacing_hooks(self.model, without, values) if without else []

        visits = self._visits(prompts, [], hooks=hooks)
        return in_order((some, logits) for some, logits, _ in visits)

    @torch.no_grad()
    def everywhere(self, prompts: Asked) -> list[Float[Tensor, "position head d_head"]]:
        """`hook_z` of every head of every layer at all positions that the query position sees."""
        found: dict[int, Tensor] = {}
        check_hooks_act(self.model, "z")
        with self._applied():
            for some, tokens, _ in batches(self.model, prompts.sequences(), prompts.positions):
                _, cache = self.model.run_with_cache(tokens, names_filter=self._z_hooks)
                z = torch.cat([cache[name] for name in self._z_hooks], dim=2)
                found |= dict(zip(some, z, strict=True))
        return [found[number] for number in range(len(prompts))]

    def under(self, intervention: Intervention) -> "HookRunner":
        """The same model under an intervention."""
        return replace(self, interventions=(*self.interventions, intervention))

    @property
    def _z_hooks(self) -> list[str]:
        return [z_hook(layer) for layer in range(self.model.cfg.n_layers)]

    def _z(self, at: dict[str, Tensor]) -> Outputs:
        return torch.cat([at[name] for name in self._z_hooks], dim=1)

    def _applied(self) -> ExitStack:
        with ExitStack() as stack:
            for intervention in self.interventions:
                stack.enter_context(intervention.applied(self.model))
            return stack.pop_all()

    def _visits(
        self,
        prompts: Asked,
        names: list[str],
        hooks: Hooks | Callable[[Tensor], Hooks] = (),
    ) -> Iterator[Visit]:
        """Run the model batch by batch, in no order; hooks may depend on the tokens of a batch."""
        check_hooks_act(self.model, "z")
        shown = counted(len(prompts), "running the model on prompts", self.progress)
        with self._applied(), shown as advance:
            for some, tokens, asked in batches(self.model, prompts.sequences(), prompts.positions):
                rows = torch.arange(len(tokens), device=tokens.device)
                with hooks_attached(self.model, hooks(tokens) if callable(hooks) else hooks):
                    logits, cache = self.model.run_with_cache(tokens, names_filter=names)
                found = {name: cache[name][rows, asked] for name in names}
                yield Visit(some, logits[rows, asked], found)
                advance(len(some))
