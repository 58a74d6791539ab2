"""Interventions as values: what is changed while a model runs, said before it runs.

    patch = cl.Ratios(w01=1.0, w02=float("inf"), heads=[3]) + cl.Ablate([5])
    with patch.applied(model): ...                       # for the length of a block
    model.run_with_hooks(tokens, fwd_hooks=patch.fwd_hooks(model, tokens))

Runners understand them, too: on tables over counts where that is exact, else by hooks.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from count01_lens.attention.noticed_tokens import NoticedTokens
from count01_lens.attention.seen_tokens import GivenTokens, SeenTokens, Tokens
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.closed_form import CountForm
from count01_lens.models.hooks import Hook, hooks_attached

HookList = list[tuple[str, Hook]]


class Intervention(ABC):
    """A change of what a model computes."""

    @contextmanager
    def applied(self, model: HookedTransformer) -> Iterator[HookedTransformer]:
        """Attach it to a model for the length of a `with` block.

        Works on sequences of different lengths, on the compact form, and while text is generated.
        Blocks nest; of two that set the same attention the innermost decides.
        """
        seen = NoticedTokens(model)
        hooks = self._hooks(model, seen)  # which raises before anything is attached
        with seen.noticing(), hooks_attached(model, hooks):
            yield model

    def fwd_hooks(self, model: HookedTransformer, tokens: Tokens = None) -> HookList:
        """List it as `fwd_hooks` for `run_with_hooks`.

        Args:
            model: the model that will be run.
            tokens: what it will be run on, a text or token ids; hooks do not see them. Ablation
                alone can do without.
        """
        seen = GivenTokens(model, tokens)
        hooks = self._hooks(model, seen)
        return [*seen.hooks, *hooks]

    def on_counts(self, form: CountForm) -> CountForm | None:
        """Apply it to tables over counts; None if it cannot be told from counts alone."""
        return None

    def __add__(self, other: "Intervention") -> "Combined":
        """Combine two; the second is applied after the first."""
        if not isinstance(other, Intervention):
            return NotImplemented
        return Combined((*_parts(self), *_parts(other)))

    @abstractmethod
    def _hooks(self, model: HookedTransformer, seen: SeenTokens) -> HookList:
        """Make the hooks; raise if the model is none to which it can be applied."""


@dataclass(frozen=True)
class Combined(Intervention):
    """Several interventions, one after the other."""

    parts: tuple[Intervention, ...]

    @contextmanager
    def applied(self, model: HookedTransformer) -> Iterator[HookedTransformer]:
        """Attach all of them for the length of a `with` block, the first outermost."""
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.applied(model))
            yield model

    def on_counts(self, form: CountForm) -> CountForm | None:
        """Apply all of them to tables over counts, if each can be."""
        changed: CountForm | None = form
        for part in self.parts:
            changed = None if changed is None else part.on_counts(changed)
        return changed

    def _hooks(self, model: HookedTransformer, seen: SeenTokens) -> HookList:
        hooks: HookList = []
        with ExitStack() as stack:
            for part in self.parts:
                # What a part measures of the model, such as a mean, it measures under earlier ones.
                hooks += part._hooks(model, seen)
                stack.enter_context(part.applied(model))
        return hooks


def _parts(intervention: Intervention) -> tuple[Intervention, ...]:
    return intervention.parts if isinstance(intervention, Combined) else (intervention,)
