"""Sentences as six tokens with multiplicities, run through the HookedTransformer itself.

A sentence with counts n0, n1, n2 is `[BOS] 0 1 2 = a`, and `log n` is added to the attention
scores of each token: `softmax(s + log n) = n e^s / Σ n e^s`, exactly what the n copies of the token
would get together. An absent token has `log 0 = -inf` and gets nothing. All hooks of the model
work as usual on these six positions.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_choice
from count01_lens.models.hooks import z_hook
from count01_lens.models.parameters import D_VOCAB
from count01_lens.tasks.dataset import as_counts, labels_of
from count01_lens.tasks.language import At, Token

SCORES_HOOK = "blocks.0.attn.hook_attn_scores"
# Under this name the hook point of the scores carries the multiplicities while a compact run is
# on its way: later hooks, such as attention patches, have to know them.
MULTIPLICITY = "multiplicity"
POSITION: dict[At, int] = {"=": 4, "answer": 5}


def compact_tokens(data: Any) -> Int[Tensor, "sample position=6"]:
    """Write every sentence as `[BOS] 0 1 2 = a`, with the right answer `a`.

    Args:
        data: a split, or counts [sample, 3].
    """
    counts = as_counts(data)
    tokens = torch.arange(len(POSITION) + 4).repeat(len(counts), 1)
    tokens[:, POSITION["answer"]] = torch.where(labels_of(counts), Token.FOUR, Token.FIVE)
    return tokens


def compact_hooks(data: Any) -> list[tuple[str, Callable[..., Tensor]]]:
    """Make the `fwd_hooks` that add `log n` to the attention scores of `compact_tokens(data)`."""
    counts = as_counts(data)
    multiplicity = torch.ones(len(counts), 6, dtype=torch.long)
    multiplicity[:, 1:4] = counts
    log_n = multiplicity.double().log()
    noted: list[Any] = []

    def add_log_multiplicity(
        scores: Float[Tensor, "sample head query key"], hook: Any
    ) -> Float[Tensor, "sample head query key"]:
        if scores.shape[0] != len(log_n) or scores.shape[-1] != log_n.shape[-1]:
            raise ValueError(
                f"compact_hooks: expected the tokens compact_tokens(data) of the same "
                f"{len(log_n)} sentences, got scores of shape {list(scores.shape)}"
            )
        hook.ctx[MULTIPLICITY] = multiplicity
        noted.append(hook)
        return scores + log_n[:, None, None, :].to(scores)

    def forget_multiplicity(z: Float[Tensor, "sample position head d_head"], hook: Any) -> Tensor:
        while noted:
            noted.pop().ctx.pop(MULTIPLICITY, None)
        return z

    return [(SCORES_HOOK, add_log_multiplicity), (z_hook(0), forget_multiplicity)]


def compact_logits(
    model: HookedTransformer, data: Any, at: At = "="
) -> Float[Tensor, "sample vocab"]:
    """Run sentences in the compact form; return the logits of the token after '=' or the answer.

    Hooks attached to the model take part; they see six positions.

    Args:
        model: one to which `count_form_applies`.
        data: a split, or counts [sample, 3].
        at: "=" or "answer".

    Example:
        >>> counts = torch.tensor([[3, 5, 2]])
        >>> model = cl.example_model()
        >>> torch.allclose(cl.compact_logits(model, counts), model("0001111122=")[:, -1], atol=1e-4)
        True
    """
    check_choice("at", at, ("=", "answer"))
    require_count_form(model, ignore_hooks=True)
    counts = as_counts(data)
    tokens = compact_tokens(counts).to(model.W_E.device)
    logits: Tensor = model.run_with_hooks(tokens, fwd_hooks=compact_hooks(counts))
    return logits[:, POSITION[at]]


def count_form_applies(model: HookedTransformer, *, ignore_hooks: bool = False) -> str | None:
    """Tell whether a model may be run on counts instead of sequences.

    Args:
        model: any model.
        ignore_hooks: ask for the model as if no hooks were attached to it.

    Returns:
        None if it may; otherwise the reason why not, as text.

    Example:
        >>> cl.count_form_applies(cl.example_model()) is None  # it may be run on counts
        True
    """
    return next(_reasons_against(model, ignore_hooks), None)


def require_count_form(model: HookedTransformer, *, ignore_hooks: bool = False) -> None:
    """Raise a ValueError with the reason if a model cannot be run on counts."""
    reason = count_form_applies(model, ignore_hooks=ignore_hooks)
    if reason is not None:
        raise ValueError(f"this model cannot be run on counts: {reason}; run it on sequences")


def _reasons_against(model: HookedTransformer, ignore_hooks: bool) -> Iterator[str]:
    from transformer_lens import HookedTransformer

    if not isinstance(model, HookedTransformer):
        yield f"expected a HookedTransformer, got {type(model).__name__}"
        return
    cfg = model.cfg
    if cfg.d_vocab != D_VOCAB or cfg.d_vocab_out != D_VOCAB:
        yield (
            f"its vocabulary has {cfg.d_vocab} tokens (and {cfg.d_vocab_out} logits), "
            f"the language {D_VOCAB}"
        )
    if cfg.n_layers != 1:
        yield f"it has {cfg.n_layers} layers; only the first sees a sentence as its counts"
    if not cfg.attn_only:
        yield "it has an MLP"
    if cfg.positional_embedding_type != "standard":
        yield f"its positional embedding is {cfg.positional_embedding_type!r}"
    elif bool(model.W_pos.detach().any()):
        yield "its positional embedding W_pos is not zero"
    if cfg.attention_dir != "causal":
        yield f"its attention is {cfg.attention_dir!r}, so that '=' sees the answer"
    if cfg.normalization_type is not None:
        yield f"it has a layer norm ({cfg.normalization_type!r}); fold it into W_E if you can"
    if cfg.post_embedding_ln:
        yield "it has a layer norm after the embedding; fold it into W_E if you can"
    if cfg.n_key_value_heads is not None:
        yield "its heads share keys and values (n_key_value_heads)"
    if cfg.use_local_attn:
        yield "its attention is local, so that it depends on distances"
    for option, meaning in _UNUSUAL_ATTENTION.items():
        if getattr(cfg, option, None):
            yield f"{meaning} ({option})"
    for option in ("attn_scores_soft_cap", "output_logits_soft_cap"):
        if getattr(cfg, option, -1.0) > 0:
            yield f"it has a soft cap ({option})"
    if ignore_hooks:
        return
    # TransformerLens attaches its hooks to modules as plain torch hooks, so this finds both kinds.
    hooked = [
        name or "the model"
        for name, module in model.named_modules()
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    ]
    if hooked:
        yield f"hooks are attached to it (at {', '.join(hooked)}), which counts would bypass"


_UNUSUAL_ATTENTION = {
    "use_qk_norm": "its queries and keys are normalised",
    "clip_qkv": "its queries, keys and values are clipped",
    "use_attention_sinks": "its attention has learned sinks",
    "use_logn_attn": "its scores are scaled with the length of the sentence",
    "load_in_4bit": "its weights are quantised",
}
