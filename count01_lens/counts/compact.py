"""Sentences as a few tokens with multiplicities, run through the HookedTransformer itself.

In Count01 a sentence with counts n0, n1, n2 is `[BOS] 0 1 2 = a`, and `log n` is added to the
attention scores of each token: `softmax(s + log n) = n e^s / Σ n e^s`, exactly what the n copies of
the token would get together. An absent token has `log 0 = -inf` and gets nothing. All hooks of the
model work as usual on these positions.

In TransformerLens 4, where edits of scores do nothing, the pattern itself is multiplied by n and
divided by its new sum, which is the same.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.common.precision import at_least_float32
from count01_lens.common.types import HookedTransformer
from count01_lens.counts.applies import require_counts
from count01_lens.counts.closed_form import smallest_safe
from count01_lens.models.acting_hooks import check_hooks_act, edits_needed
from count01_lens.models.hooks import hooks_for_one_pass, z_hook
from count01_lens.models.lens import divided_by, scores_act
from count01_lens.models.task_of import language_for
from count01_lens.tasks.counting import At, CountingLanguage
from count01_lens.tasks.dataset import CountsLike, Split, as_counts
from count01_lens.tasks.places import COUNT01

_SCORES_HOOK, _PATTERN_HOOK = "blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_pattern"
# Under this name and that of the thread the hook point where tokens are multiplied carries the
# multiplicities while a compact run is on its way: later hooks, such as attention patches, have to
# know them.
MULTIPLICITY = "multiplicity"
Attention = Float[Tensor, "sample head query key"]
Heads = Float[Tensor, "sample position head d_head"]


def compact_tokens(
    data: CountsLike, language: CountingLanguage | None = None
) -> Int[Tensor, "sample position"]:
    """Write every sentence as `[BOS] 0 1 2 = a`, with the right answer `a`.

    The language is that of a split, or Count01, unless it is given.
    """
    language = language or _language_of(data)
    counts = as_counts(data, language)
    tokens = torch.arange(language.equals + 2).repeat(len(counts), 1)
    tokens[:, language.at_answer.column] = language.answer_token(language.labels(counts))
    return tokens


def compact_hooks(
    data: CountsLike,
    language: CountingLanguage | None = None,
    *,
    model: HookedTransformer | None = None,
) -> list[tuple[str, Callable[..., Tensor]]]:
    """Make the `fwd_hooks` that attend to each token of `compact_tokens(data)` n times.

    They have to come before other hooks at the attention pattern. In TransformerLens 4 the model
    has to be given where a pattern may have nothing left for the tokens of a sentence.
    """
    language = language or _language_of(data)
    counts = as_counts(data, language)
    multiplicity = torch.ones(len(counts), language.equals + 2, dtype=torch.long)
    multiplicity[:, language.counted] = counts
    log_n = multiplicity.double().log()
    mine = threading.local()  # each thread that runs a model has a note of its own

    def begin(attention: Attention, hook: Any) -> Attention:
        if attention.shape[0] != len(log_n) or attention.shape[-1] != log_n.shape[-1]:
            raise ValueError(
                f"compact_hooks: expected the tokens compact_tokens(data) of the same "
                f"{len(log_n)} sentences, got scores of shape {list(attention.shape)}"
            )
        note_multiplicity(hook, multiplicity)
        mine.point = hook
        # In half precision log n would be off by as much as a '1' more or less.
        return attention.to(at_least_float32(attention.dtype))

    def add_log_multiplicity(scores: Attention, hook: Any) -> Attention:
        precise = begin(scores, hook)
        return precise + log_n[:, None, None, :].to(precise)

    def note_query(q: Heads, hook: Any) -> Heads:
        mine.q = q
        return q

    def note_key(k: Heads, hook: Any) -> Heads:
        mine.k = k
        return k

    def multiply(pattern: Attention, hook: Any) -> Attention:
        precise = begin(pattern, hook)
        weighed = precise * multiplicity[:, None, None, :].to(precise)
        total = weighed.sum(dim=-1, keepdim=True)
        # In half precision, a pattern has not even the digits to be multiplied.
        half = pattern.dtype != precise.dtype and model is not None
        lost = (total < smallest_safe(total.dtype)) | half
        if bool(lost.any()):
            if model is None:
                raise ValueError(
                    "compact_hooks: expected the model, got none: without it, a pattern that gives "
                    "nearly all weight to tokens that a sentence does not have cannot be computed; "
                    "give model="
                )
            again = _softmax(mine.q, mine.k, log_n, divided_by(model)).to(precise)
            weighed, total = again.where(lost, weighed), total.where(~lost, torch.ones_like(total))
        return (weighed / total).to(pattern.dtype)

    def forget_multiplicity(z: Heads, hook: Any) -> Heads:
        note_multiplicity(mine.point, None)
        return z

    end = (z_hook(0), forget_multiplicity)
    if scores_act():
        return [(_SCORES_HOOK, add_log_multiplicity), end]
    queries, keys = ("blocks.0.attn.hook_q", note_query), ("blocks.0.attn.hook_k", note_key)
    return [queries, keys, (_PATTERN_HOOK, multiply), end]


def _softmax(q: Heads, k: Heads, log_n: Float[Tensor, "sample key"], divided: float) -> Attention:
    """Attention from queries and keys that sees each token n times, and none after its own."""
    q, k = (part.to(at_least_float32(part.dtype)) for part in (q, k))
    form = "sample query head d, sample key head d -> sample head query key"
    scores = einsum(q, k, form) / divided + log_n[:, None, None, :].to(q)
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(dim=-1)


def multiplied_at() -> str:
    """Name the hook point at which each token comes to count n times."""
    return _SCORES_HOOK if scores_act() else _PATTERN_HOOK


def _language_of(data: CountsLike) -> CountingLanguage:
    return data.language if isinstance(data, Split) else COUNT01


def note_multiplicity(
    point: Any, n: Int[Tensor, "sample position"] | None
) -> Int[Tensor, "sample position"] | None:
    """Note at a hook point what this thread runs, None for sequences; return what was noted."""
    before = noted_multiplicity(point)
    point.ctx.pop((MULTIPLICITY, threading.get_ident()), None)
    if n is not None:
        point.ctx[MULTIPLICITY, threading.get_ident()] = n
    return before


def noted_multiplicity(point: Any) -> Int[Tensor, "sample position"] | None:
    """Return the multiplicities of the compact run that this thread is in; None if in none."""
    found: Tensor | None = point.ctx.get((MULTIPLICITY, threading.get_ident()))
    return found


def compact_logits(
    model: HookedTransformer, data: CountsLike, at: At = "="
) -> Float[Tensor, "sample vocab"]:
    """Run sentences in the compact form; return the logits of the token after '=' or the answer.

    Hooks attached to the model run, too; they see six positions, or as many as its task needs.

    Args:
        model: one that can be run on counts (see `why_not_counts`).
        data: a split, or counts [sample, symbol] of its task: [sample, 3] in Count01.
        at: "=" or "answer".

    Example:
        >>> counts = torch.tensor([[3, 5, 2]])
        >>> model = cl.example_model()
        >>> torch.allclose(cl.compact_logits(model, counts), model("0001111122=")[:, -1], atol=1e-4)
        True
    """
    language = data.language if isinstance(data, Split) else language_for(model)
    place = language.place(at)
    require_counts(model, language, ignore_hooks=True)
    check_hooks_act(model, *edits_needed())
    counts = as_counts(data, language)
    tokens = compact_tokens(counts, language).to(model.W_E.device)
    point = model.hook_dict[multiplied_at()]
    noted = note_multiplicity(point, None)  # by a run in whose hooks this one is
    try:
        hooks = compact_hooks(counts, language, model=model)
        with hooks_for_one_pass(model, hooks, first=[multiplied_at()]):
            logits: Tensor = model(tokens)
    finally:
        note_multiplicity(point, noted)
    return logits[:, place.column]
