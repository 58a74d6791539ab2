"""HookedTransformers: made from a config or from raw parameters, and checked."""

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from count01_lens.common.types import HookedTransformer
from count01_lens.common.validation import check_default_device, check_dtype
from count01_lens.models.config import ModelConfig
from count01_lens.models.lens import (
    is_hook_point,
    load_state,
    make_model,
    module_at,
    parameters_of,
    require_model,
    require_steady,
)
from count01_lens.models.parameters import (
    D_VOCAB,
    initial_raw,
    raw_shapes,
    transformer_lens_parameters,
)
from count01_lens.tasks.counting import CountingLanguage
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.places import COUNT01


def hooked_transformer(
    raw: Mapping[str, Tensor], config: ModelConfig, task: CountingTask | None = None
) -> HookedTransformer:
    """Export raw parameters as a plain HookedTransformer with a tokenizer, on the CPU."""
    expected = raw_shapes(config, language_of(task).d_vocab)
    got = {name: tuple(value.shape) for name, value in raw.items()}
    if got != expected:
        raise ValueError(f"raw parameters: expected {expected}, got {got}")
    model = empty_hooked_transformer(config, raw["W_E"].dtype, task)
    parameters = transformer_lens_parameters(raw, config)
    parameters["pos_embed.W_pos"] = torch.zeros_like(model.W_pos)
    # Not strict: the two buffers of the attention block are constants.
    load_state(model, {k: v.detach().contiguous() for k, v in parameters.items()}, strict=False)
    return model


def build_model(
    config: ModelConfig | None = None,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    task: CountingTask | None = None,
) -> HookedTransformer:
    """Make an untrained model.

    Args:
        config: the paper's 16 heads and 32 dimensions by default.
        seed: for the initialisation; the global random state is neither used nor changed.
        dtype: float32 or float64.
        task: the counting task whose tokens the model has; Count01 by default.

    Example:
        >>> model = cl.build_model(cl.ModelConfig(d_embed=8, n_heads=4), seed=3)
        >>> model.cfg.n_layers, model.cfg.n_heads, model.cfg.d_head
        (1, 4, 2)
        >>> model.to_string(model.to_tokens("011="))
        ['[BOS]011=']
    """
    config = ModelConfig() if config is None else config
    if not isinstance(config, ModelConfig):
        raise TypeError(f"config: expected a ModelConfig, got {config!r}")
    check_dtype(dtype)
    raw = initial_raw(config, seed, dtype, d_vocab=language_of(task).d_vocab)
    return hooked_transformer(raw, config, task)


def language_of(task: CountingTask | None) -> CountingLanguage:
    """Return the language of a task, None for Count01; raise if it is no counting task."""
    check_default_device()
    if task is None:
        return COUNT01
    if not isinstance(task, CountingTask):
        raise TypeError(f"task: expected a CountingTask, got {task!r:.80}")
    return task.language


def empty_hooked_transformer(
    config: ModelConfig, dtype: torch.dtype, task: CountingTask | None = None
) -> HookedTransformer:
    """Make the HookedTransformer of a config, its weights not yet set."""
    from count01_lens.tasks.tokenizer import counting_tokenizer

    model = make_model(
        dict(
            d_model=config.d_model,
            d_head=config.d_head,
            n_heads=config.n_heads,
            n_layers=1,
            n_ctx=config.n_ctx,
            d_vocab=language_of(task).d_vocab,
            attn_only=True,
            normalization_type=None,
            use_attn_scale=config.scale_scores,
            device="cpu",
            dtype=dtype,
            init_weights=False,
            model_name="count01",
        ),
        tokenizer=counting_tokenizer(task),
    )
    # TransformerLens has no "none" for positions: a frozen table of zeros is one.
    parameters_of(model)["pos_embed.W_pos"].requires_grad_(False)
    return model


def check_tokens(cfg: Any, d_vocab: int) -> None:
    """Raise unless the config of a model is of one over so many tokens."""
    if {cfg.d_vocab, cfg.d_vocab_out} != {d_vocab}:
        task = "Count01" if d_vocab == D_VOCAB else "the task"
        raise ValueError(
            f"model: expected the {d_vocab} tokens of {task}, got {cfg.d_vocab} "
            f"(and {cfg.d_vocab_out} logits)"
        )


def check_model(model: Any, *, d_vocab: int | None = D_VOCAB) -> None:
    """Raise unless this is a model with finite weights over so many tokens, or any.

    Its attention has to have the hook points at which heads are measured and changed.
    """
    require_model(model)
    require_steady(model)
    if d_vocab is not None:
        check_tokens(model.cfg, d_vocab)
    if model.cfg.n_layers < 1:
        raise ValueError("model: expected at least one layer, got none: it has no heads")
    for layer, hook in itertools.product(range(model.cfg.n_layers), ("pattern", "z")):
        name = f"blocks.{layer}.attn.hook_{hook}"
        try:
            found = module_at(model, name)
        except (AttributeError, IndexError, TypeError) as error:
            raise ValueError(
                f"model: expected attention in each of its {model.cfg.n_layers} layers, got none "
                f"at {name}; models of other kinds have no heads that could be measured"
            ) from error
        if not is_hook_point(model, name, found):
            raise ValueError(
                f"model: expected the hook point {name} that TransformerLens made, got a "
                f"{type(found).__name__} that was put in its place, where hooks would not be "
                "seen; take it out, or attach what it does as a hook"
            )
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        raise ValueError("model: expected finite weights, got NaN or infinite ones")
