"""Which models the exact forms over counts apply to.

One layer of causal attention without positions sees a sentence as how often each token occurs.
Everything that would make it see more is a reason against. Where none of the known ones is found,
the model is run once: on a few sentences it has to compute what its tables say. A stored model
needs no run: nobody can have put anything into it.
"""

import itertools
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from count01_lens.common.remembered import Remembered
from count01_lens.common.types import HookedTransformer
from count01_lens.models.fingerprint import (
    code_of,
    exact_copy,
    fingerprint,
    hooked_modules,
    overridden_methods,
)
from count01_lens.models.hooks import ablation_hooks, hooks_attached, z_hook
from count01_lens.models.lens import (
    attn_scale,
    is_model,
    kind_of_models,
    named_modules,
    own_types,
)
from count01_lens.models.stored import Model, StoredModel
from count01_lens.models.task_of import language_for
from count01_lens.tasks.counting import CountingLanguage, Place
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import sequences_of
from count01_lens.tasks.places import COUNT01


def why_not_counts(
    model: Model,
    task: CountingTask | CountingLanguage | None = None,
    *,
    ignore_hooks: bool = False,
) -> str | None:
    """Say why a model cannot be run on counts instead of sequences.

    Args:
        model: any model.
        task: the task of the sentences; by default that of the model's tokenizer, or else Count01.
        ignore_hooks: answer as if no hooks were attached to the model.

    Returns:
        None if it can; otherwise the reason, as text.

    Example:
        >>> cl.why_not_counts(cl.example_model()) is None  # it can be run on counts
        True
    """
    language = language_for(model, task)
    if isinstance(model, StoredModel):
        return next(_against_config(model, language), None)
    reason = next(_reasons_against(model, language, ignore_hooks), None)
    return _found_by_running(model, language) if reason is None else reason


def require_counts(
    model: Model,
    task: CountingTask | CountingLanguage | None = None,
    *,
    ignore_hooks: bool = False,
) -> None:
    """Raise a ValueError with the reason if a model cannot be run on counts."""
    reason = why_not_counts(model, task, ignore_hooks=ignore_hooks)
    if reason is not None:
        raise ValueError(f"this model cannot be run on counts: {reason}; run it on sequences")


def _reasons_against(
    model: HookedTransformer, language: CountingLanguage, ignore_hooks: bool
) -> Iterator[str]:
    if not is_model(model):
        yield f"expected a {kind_of_models()}, got {type(model).__name__}"
        return
    yield from _against_config(model, language)
    yield from _foreign_code(model)
    hooked = [] if ignore_hooks else hooked_modules(model)
    if hooked:
        yield f"hooks are attached to it (at {', '.join(hooked)}), which counts would bypass"


def _against_config(model: Model, language: CountingLanguage) -> Iterator[str]:
    """What a model's config, and its table of positions, say against counts."""
    cfg = model.cfg
    if cfg.d_vocab != language.d_vocab or cfg.d_vocab_out != language.d_vocab:
        yield (
            f"its vocabulary has {cfg.d_vocab} tokens (and {cfg.d_vocab_out} logits), "
            f"the language {language.d_vocab}"
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
        value = getattr(cfg, option, None)
        if value is not None and value is not False:  # to clip at 0.0 is to clip
            yield f"{meaning} ({option})"
    for option in ("attn_scores_soft_cap", "output_logits_soft_cap"):
        if getattr(cfg, option, -1.0) > 0:
            yield f"it has a soft cap ({option})"


_UNUSUAL_ATTENTION = {
    "use_qk_norm": "its queries and keys are normalised",
    "clip_qkv": "its queries, keys and values are clipped",
    "use_attention_sinks": "its attention has learned sinks",
    "use_logn_attn": "its scores are scaled with the length of the sentence",
    "load_in_4bit": "its weights are quantised",
}


def _foreign_code(model: HookedTransformer) -> Iterator[str]:
    """Modules that somebody put in, a subclass among them: they may compute anything."""
    own = own_types()
    for name, module in named_modules(model):
        if type(module) not in own:
            yield f"{name or 'it'} is a {type(module).__name__}, not one of TransformerLens's own"
        for method in overridden_methods(module):
            yield f"{name or 'the model'} has a {method} of its own"


_FOUND: Remembered[str | None] = Remembered(most=1000)


def _found_by_running(model: HookedTransformer, language: CountingLanguage) -> str | None:
    """Tell in what a plain run of a model differs from its tables; each model is run once."""
    return _FOUND.recall(
        (fingerprint(model), code_of(model), language), lambda: _difference(model, language)
    )


def few_sentences(
    model: HookedTransformer, language: CountingLanguage = COUNT01
) -> Int[Tensor, "sample symbol"]:
    """Counts on which models are tried out, of those sentences that a model can read."""
    counts = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 2, 1], [3, 1, 4], [2, 5, 0], [6, 6, 3]])
    n = len(language.symbols)
    if n != 3:  # the same, repeated in other orders
        columns = [counts[:, i % 3].roll(i // 3) for i in range(n)]
        counts = torch.stack(columns, dim=1)
    return counts[counts.sum(dim=1) + 3 <= model.cfg.n_ctx]


@torch.no_grad()
def _difference(model: HookedTransformer, language: CountingLanguage) -> str | None:
    """Compare head outputs and logits on a few sentences, also with a head set to zero."""
    # It asks this module which models it may take.
    from count01_lens.counts.closed_form import CountForm, count_parameters
    from count01_lens.counts.multiplicities import Multiplicities

    plain = exact_copy(model)
    weights = {name: weight.unsqueeze(0) for name, weight in count_parameters(plain).items()}
    scale = attn_scale(plain)
    form = CountForm.from_parameters(weights, scale, language)
    # How large the numbers are that are added up, and what may be lost where they underflow.
    lost = torch.finfo(torch.float64).tiny / torch.finfo(torch.float64).eps
    large = {name: weight.abs() + lost for name, weight in weights.items()}
    sizes = CountForm.from_parameters(large, abs(scale), language)
    output = sizes.values.amax()
    logit = (sizes.values @ sizes.logit_weights).amax(dim=2).sum(dim=1).amax()
    logit += sizes.logit_bias.amax()
    rounding = 1e-12 * (1 + sizes.scores.amax())
    counts = few_sentences(model, language)
    if len(counts) == 0:
        return None
    for place, without in itertools.product((language.at_equals, language.at_answer), ([], [0])):
        tables = form.with_outputs_of(without, 0.0) if without else form
        asked = Multiplicities.of(counts, place, torch.float64)
        outputs, logits = _plain_run(plain, counts, place, without)
        for what, got, expected, size in (
            ("head outputs", outputs, tables.head_outputs(asked)[0], output),
            ("logits", logits, tables.logits(asked)[0], logit),
        ):
            off = (got - expected).abs()
            # What is not finite is not a matter of counts or sequences.
            if bool((off > rounding * size).any()):
                condition = " without head 0" if without else ""
                return (
                    f"run on sentences, its {what} at {place.name!r}{condition} are not what its "
                    f"weights say, but off by {float(off.amax()):.2g}"
                )
    return None


def _plain_run(
    model: HookedTransformer, counts: Int[Tensor, "sample symbol"], place: Place, without: list[int]
) -> tuple[Float[Tensor, "sample head d_head"], Float[Tensor, "sample vocab"]]:
    """Run a model on sentences one by one, with nothing but hooks at the heads' outputs."""
    at, outputs, logits = 1 - place.from_end, [], []
    with hooks_attached(model, ablation_hooks(model, without) if without else []):
        for tokens in sequences_of(counts, language=place.language):
            found, cache = model.run_with_cache(tokens[None, :-1], names_filter=z_hook(0))
            outputs.append(cache[z_hook(0)][:, at])
            logits.append(found[:, at])
    return torch.cat(outputs), torch.cat(logits)
