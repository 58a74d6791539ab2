"""Which models the exact forms over counts apply to.

One layer of causal attention without positions sees a sentence as how often each token occurs.
Everything that would make it see more is a reason against.
"""

from collections.abc import Iterator

from count01_lens.common.types import HookedTransformer
from count01_lens.models.parameters import D_VOCAB


def why_not_counts(model: HookedTransformer, *, ignore_hooks: bool = False) -> str | None:
    """Tell why a model may not be run on counts instead of sequences.

    Args:
        model: any model.
        ignore_hooks: ask for the model as if no hooks were attached to it.

    Returns:
        None if it may; otherwise the reason why not, as text.

    Example:
        >>> cl.why_not_counts(cl.example_model()) is None  # nothing speaks against it
        True
    """
    return next(_reasons_against(model, ignore_hooks), None)


def require_counts(model: HookedTransformer, *, ignore_hooks: bool = False) -> None:
    """Raise a ValueError with the reason if a model cannot be run on counts."""
    reason = why_not_counts(model, ignore_hooks=ignore_hooks)
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
