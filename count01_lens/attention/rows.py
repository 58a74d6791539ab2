"""What attention rows are rewritten to: a weight for each pair of query and key token.

A new row is built from the tokens of the sentence, never by reweighting the old one: in a collapsed
head the old row is zero where the new one should not be. `pattern_hooks` rewrites rows while a
model runs, `PatchedForm` in tables over counts. Both call `RowPatch.rewrite`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from count01_lens.attention.seen_tokens import Attended, GivenTokens, Pattern, SeenTokens
from count01_lens.common.precision import at_least_float32
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.closed_form import CountForm, smallest_safe
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.acting_hooks import check_hooks_act, edits_needed
from count01_lens.models.build import check_model
from count01_lens.models.hooks import HeadName, Hook, check_heads
from count01_lens.models.lens import scores_act, shows_masks
from count01_lens.models.task_of import language_for
from count01_lens.tasks.counting import Place


@dataclass(frozen=True, eq=False)
class RowPatch:
    """New attention rows of some heads, by query and key token.

    Attributes:
        heads: numbers of the heads, counted through the layers.
        log_weights: log of the weight that one key token gets from a query token, for each of
            these heads; -inf is nothing.
        kept: key tokens that keep the weight they have; the others share the rest.
        place: which rows are rewritten.
    """

    heads: list[int]
    log_weights: Float[Tensor, "chosen query key"]
    kept: Bool[Tensor, " key"]
    place: Place

    @property
    def replaces_scores(self) -> bool:
        """Whether the new weights are nothing but other scores."""
        nothing = (self.log_weights == -math.inf).all(dim=-1).any()
        return not bool(self.kept.any() or nothing)

    def rewrite(
        self,
        own: Float[Tensor, "*row key"],
        log_weights: Float[Tensor, "*row key"],
        kept: Bool[Tensor, "*_ key"],
    ) -> Float[Tensor, "*row key"]:
        """Build rows from log-weights of their keys; the heart of all patches.

        A row in which nothing has a weight stays zero: the head then says nothing.
        """
        log_weights = log_weights.masked_fill(kept, -math.inf)
        largest = log_weights.amax(dim=-1, keepdim=True)
        relative = torch.exp(log_weights - largest.where(largest.isfinite(), largest.new_zeros(())))
        total = relative.sum(dim=-1, keepdim=True)
        shares = relative / total.where(total > 0, torch.ones_like(total))
        rest = own.masked_fill(kept, 0.0).sum(dim=-1, keepdim=True) if self.kept.any() else 1.0
        return own.where(kept, rest * shares)


@dataclass(frozen=True, eq=False)
class PatchedForm(CountForm):
    """Tables of a model whose attention is patched; everything of `CountForm` works on it.

    Attributes:
        patches: applied one after the other.
        replaced: heads whose outputs are replaced, so that no attention reaches them any more, not
            even one to nothing.
    """

    patches: tuple[RowPatch, ...] = ()
    replaced: tuple[int, ...] = ()

    @classmethod
    def of(cls, form: CountForm, *patches: RowPatch) -> "PatchedForm":
        """Patch the tables of a model, patched or not."""
        tables = {each.name: getattr(form, each.name) for each in fields(CountForm)}
        replaced: tuple[int, ...] = ()
        if isinstance(form, PatchedForm):
            patches, replaced = (*form.patches, *patches), form.replaced
        return cls(**tables, patches=_without(replaced, patches), replaced=replaced)

    def with_outputs_of(
        self, heads: Sequence[int], outputs: float | Float[Tensor, "chosen d_head"]
    ) -> "PatchedForm":
        """Make the outputs of some heads the same in every sentence, whatever is patched."""
        form = PatchedForm.of(super().with_outputs_of(heads, outputs))
        patches = _without(heads, self.patches)
        return replace(form, patches=patches, replaced=(*self.replaced, *heads))

    def attention(self, sentences: Multiplicities) -> Float[Tensor, "model sample head query key"]:
        """Attention that all tokens of one type get together, in patched rows and others."""
        attention = super().attention(sentences).clone()
        queries = range(*sentences.rows.indices(self.language.d_vocab))
        for patch in self.patches:
            for row, query in enumerate(queries):
                if query not in patch.place.queries:
                    continue
                log_n = sentences.n[..., row, :].log().unsqueeze(-2)
                weights = patch.log_weights[:, query, self.keys].to(attention) + log_n
                own = attention[..., patch.heads, row, :]
                present = sentences.n[..., row, :1] > 0  # is this query asked here?
                attention[..., patch.heads, row, :] = patch.rewrite(
                    own, weights.expand_as(own), patch.kept[self.keys]
                ) * present.unsqueeze(-1)
        return attention

    @property
    def patched_scores(self) -> Float[Tensor, "model head query key"] | None:
        """Scores that give the patched attention; None if none do."""
        if not all(patch.replaces_scores for patch in self.patches):
            return None
        scores = self.scores.clone()
        for patch in self.patches:
            queries = list(patch.place.queries)
            heads = torch.tensor(patch.heads)[:, None]
            scores[:, heads, torch.tensor(queries)] = patch.log_weights[:, queries].to(scores)
        return scores

    def _outputs_by_coordinate(
        self, sentences: Multiplicities
    ) -> Float[Tensor, "model sample d_head head"]:
        scores = self.patched_scores
        if scores is None or any(patch.place.rows != sentences.rows for patch in self.patches):
            return self._outputs_by_attention(sentences)
        # Other scores go the fast way, but for the few sentences with next to nothing to attend to.
        numerator, denominator = self._sums(scores[:, :, sentences.rows, self.keys], sentences.n)
        outputs = numerator * denominator.reciprocal().unsqueeze(-2)
        unsafe = (denominator < smallest_safe(scores.dtype)).any(dim=-1).any(dim=0)
        if unsafe.any():
            outputs[:, unsafe] = self._outputs_by_attention(sentences[unsafe])
        return outputs


def _without(heads: Sequence[int], patches: Iterable[RowPatch]) -> tuple[RowPatch, ...]:
    """Take heads out of patches, and patches of no other heads away."""
    found = []
    for patch in patches:
        left = [place for place, head in enumerate(patch.heads) if head not in heads]
        numbers = [patch.heads[place] for place in left]
        if numbers:
            found.append(replace(patch, heads=numbers, log_weights=patch.log_weights[left]))
    return tuple(found)


def patchable_heads(model: HookedTransformer, heads: Iterable[HeadName] | None) -> list[int]:
    """Return the numbers of heads, all where None is given, of a model that can be patched."""
    check_model(model, d_vocab=language_for(model).d_vocab)
    if model.cfg.attention_dir != "causal":
        raise ValueError("model: expected causal attention, in which '=' sees what stands before")
    if model.cfg.n_devices > 1:
        raise ValueError(
            f"model: expected one device, got {model.cfg.n_devices} (n_devices); move the model to "
            "one, because tokens cannot be followed between devices"
        )
    every = range(model.cfg.n_layers * model.cfg.n_heads)
    numbers = check_heads(model, every if heads is None else heads)
    check_hooks_act(model, *edits_needed())
    return numbers


@dataclass(frozen=True, eq=False)
class AskingRows:
    """Rows of a batch of patterns that are rewritten: where they are, and which keys they see."""

    sample: Int[Tensor, " row"]
    query: Int[Tensor, " row"]
    token: Int[Tensor, " row"]
    keys: Int[Tensor, "row key"]
    hidden: Bool[Tensor, "row head key"]

    @classmethod
    def of_pattern(cls, now: Attended, pattern: Pattern, place: Place) -> "AskingRows":
        """Find the rows in a pattern, where no scores can be seen.

        That a key has no weight does not say that it is hidden: what is padding has to be known.
        """
        assert now.keys is not None
        scores = torch.zeros_like(pattern)
        # Whoever is not told of padding has to take a token that nobody attends to for it.
        if not now.told and bool((pattern == 0).flatten(1, 2).all(dim=1).any()):
            raise ValueError(
                "attention patch: expected tokens that are attended to, got some that no head "
                "sees, because they are padding or because all heads ignore them; hooks in a list "
                "cannot tell which: use the context manager instead"
            )
        if now.padding is not None:
            scores.masked_fill_(_hidden_by(now.padding, now.keys), -math.inf)
        return cls.of(now.keys, scores, place)

    @classmethod
    def of(cls, keys: Int[Tensor, "sample key"], scores: Pattern, place: Place) -> "AskingRows":
        """Find the rows in which a model is asked at a place, before their scores are softmaxed.

        Which keys are hidden, later ones, padding, or what is outside of a window, is seen in the
        scores only: in a pattern they have no weight, but so may others of a collapsed head.
        """
        first = scores.shape[-1] - scores.shape[-2]  # keys from a cache come before the queries
        queries = keys[:, first:]
        asking = torch.isin(queries, torch.tensor(place.queries, device=queries.device))
        sample, query = asking.nonzero(as_tuple=True)
        position = torch.arange(keys.shape[1], device=keys.device)
        later = (position > (query + first)[:, None])[:, None]
        hidden = scores[sample, :, query] == -math.inf
        if scores.dtype == torch.float16 and (hidden & ~later).any():
            raise ValueError(
                "attention patch: expected scores that float16 can hold, got some of -inf, which "
                "may be masked or too large; use model.float()"
            )
        return cls(sample, query, queries[sample, query], keys[sample], hidden | later)

    def replaced(
        self, pattern: Pattern, heads: list[int], new: Float[Tensor, "row chosen key"]
    ) -> Pattern:
        """Put new rows of some heads in their place."""
        pattern = pattern.clone()
        chosen = torch.tensor(heads, device=pattern.device)
        pattern[self.sample[:, None], chosen, self.query[:, None]] = new.to(pattern)
        return pattern


def _hidden_by(mask: Tensor, keys: Int[Tensor, "sample key"]) -> Bool[Tensor, "#s #h #q key"]:
    """Which keys a mask hides: one of tokens, or, as in transformers, one that is added."""
    if mask.shape == keys.shape:
        return (mask == 0)[:, None, None]
    if mask.ndim == 4 and mask.is_floating_point() and mask.shape[-1] == keys.shape[1]:
        return mask < -1.0
    raise ValueError(
        "attention patch: expected an attention_mask [sample, position], or one that is added to "
        f"scores, got one of {mask.dtype} {list(mask.shape)}, which may hide anything; load the "
        "model with attn_implementation='eager'"
    )


# From rows, the pattern they are of, and the chosen heads: their places in the choice and numbers.
NewRows = Callable[[AskingRows, Pattern, list[int], list[int]], Float[Tensor, "row chosen key"]]


def row_hooks(
    model: HookedTransformer,
    numbers: list[int],
    place: Place,
    seen: SeenTokens,
    new_rows: NewRows,
) -> list[tuple[str, Hook]]:
    """Make the hooks that find rows at the scores, and put new ones there at the pattern."""
    this = object()

    def find(scores: Pattern, hook: Any) -> Pattern:
        now = seen.attended(scores, hook)
        if this in now.found:
            raise ValueError(
                f"attention patch: expected layer {now.layer} to run its attention once in a pass, "
                "got a hook that runs it again; run the model from its tokens on"
            )
        assert now.keys is not None
        if scores_act():
            now.found[this] = AskingRows.of(now.keys, scores, place)
        else:
            now.told = now.told or seen.log_multiplicity(scores) is not None
            now.found[this] = AskingRows.of_pattern(now, scores, place)
        return scores

    def rewrite(chosen: list[int], heads: list[int]) -> Hook:
        def hook_pattern(pattern: Pattern, hook: Any) -> Pattern:
            if not scores_act():
                find(pattern, hook)
            rows: AskingRows = seen.attended(pattern, hook).found[this]
            if len(rows.sample) == 0:
                return pattern
            return rows.replaced(pattern, heads, new_rows(rows, pattern, chosen, heads))

        return hook_pattern

    if isinstance(seen, GivenTokens) and not shows_masks(model):
        raise ValueError(
            "fwd_hooks: expected a native bridge, got one to another library, whose masks hooks in "
            "a list cannot see; use the context manager instead"
        )
    hooks: list[tuple[str, Hook]] = []
    for layer, chosen, heads in heads_by_layer(model, numbers):
        seen.need([layer])
        if scores_act():
            hooks.append((f"blocks.{layer}.attn.hook_attn_scores", find))
        hooks.append((pattern_hook(layer), rewrite(chosen, heads)))
    return hooks


def pattern_hooks(
    model: HookedTransformer, patch: RowPatch, seen: SeenTokens
) -> list[tuple[str, Hook]]:
    """Make the hooks that rewrite rows while a model runs."""

    def new_rows(
        rows: AskingRows, pattern: Pattern, chosen: list[int], heads: list[int]
    ) -> Float[Tensor, "row chosen key"]:
        # Half precision is for the result only: log-weights rounded to it are other weights.
        own = pattern[rows.sample, :, rows.query][:, heads]
        own = own.to(at_least_float32(own.dtype))
        table = patch.log_weights.to(own)[chosen]
        weights = table[:, rows.token[:, None], rows.keys].transpose(0, 1)
        log_n = seen.log_multiplicity(own)
        if log_n is not None:
            weights = weights + log_n[rows.sample, None, :]
        weights = weights.masked_fill(rows.hidden[:, heads], -math.inf)
        kept = patch.kept.to(own.device)[rows.keys][:, None].expand_as(own)
        return patch.rewrite(own, weights, kept)

    return row_hooks(model, patch.heads, patch.place, seen, new_rows)


def pattern_hook(layer: int) -> str:
    """Name the hook point of the attention pattern of a layer."""
    return f"blocks.{layer}.attn.hook_pattern"


def heads_by_layer(
    model: HookedTransformer, numbers: list[int]
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield number, places in `numbers`, and heads within the layer, for each layer."""
    for layer in range(model.cfg.n_layers):
        chosen = [p for p, number in enumerate(numbers) if number // model.cfg.n_heads == layer]
        if chosen:
            yield layer, chosen, [numbers[place] % model.cfg.n_heads for place in chosen]
