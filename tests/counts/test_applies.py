"""Which models may be run on counts, and what is said of the others."""

import re

import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

from count01_lens.counts.applies import require_counts, why_not_counts
from count01_lens.models.build import build_model
from count01_lens.models.handcrafted import minimal_model


def test_nothing_speaks_against_our_models():
    assert why_not_counts(build_model()) is None
    assert why_not_counts(minimal_model()) is None
    assert why_not_counts(minimal_model(skip=False)) is None


BASE = dict(
    d_model=8,
    d_head=4,
    n_heads=2,
    n_layers=1,
    n_ctx=16,
    d_vocab=8,
    attn_only=True,
    normalization_type=None,
    act_fn="relu",
    device="cpu",
)


def make(**fields):
    model = HookedTransformer(HookedTransformerConfig(**{**BASE, **fields}))
    if model.cfg.positional_embedding_type == "standard":
        model.pos_embed.W_pos.data.zero_()
    return model


def test_the_base_of_the_next_test_is_accepted():
    assert why_not_counts(make()) is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"d_vocab": 9, "d_vocab_out": 8}, "vocabulary has 9 tokens"),
        ({"d_vocab_out": 5}, "5 logits"),
        ({"n_layers": 2}, "2 layers"),
        ({"attn_only": False}, "^it has an MLP$"),
        ({"positional_embedding_type": "rotary"}, "positional embedding is 'rotary'"),
        ({"positional_embedding_type": "alibi"}, "positional embedding is 'alibi'"),
        ({"positional_embedding_type": "shortformer"}, "positional embedding is 'shortformer'"),
        ({"attention_dir": "bidirectional"}, "attention is 'bidirectional'"),
        ({"normalization_type": "LN"}, r"layer norm \('LN'\)"),
        ({"normalization_type": "LNPre"}, r"layer norm \('LNPre'\)"),
        ({"normalization_type": "RMS"}, r"layer norm \('RMS'\)"),
        ({"n_key_value_heads": 1}, r"^its heads share keys and values \(n_key_value_heads\)$"),
        (
            {"use_local_attn": True, "window_size": 4, "attn_types": ["local"]},
            "^its .* is local, .* distances$",
        ),
        ({"use_qk_norm": True}, "use_qk_norm"),
        ({"clip_qkv": 3.0}, "clip_qkv"),
        ({"use_attention_sinks": True}, "sinks"),
        ({"use_logn_attn": True}, "length of the sentence"),
        ({"attn_scores_soft_cap": 30.0}, "attn_scores_soft_cap"),
        ({"output_logits_soft_cap": 30.0}, "output_logits_soft_cap"),
        ({"attn_scores_soft_cap": 0.5}, "attn_scores_soft_cap"),
        (
            {"post_embedding_ln": True},
            "^it has .* after the embedding; fold it into W_E if you can$",
        ),
    ],
)
def test_every_reason_against_counts(fields, reason):
    found = why_not_counts(make(**fields))
    assert found is not None
    assert re.search(reason, found)


def test_positions_hooks_and_other_models_are_reasons_too():
    model = make()
    model.pos_embed.W_pos.data[3, 1] = 0.1
    assert why_not_counts(model) == "its positional embedding W_pos is not zero"

    model = make()
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_z", lambda value, hook: value * 0)]):
        assert "hooks are attached to it (at blocks.0.attn.hook_z)" in why_not_counts(model)
    assert why_not_counts(model) is None

    assert "expected a HookedTransformer, got Linear" in why_not_counts(torch.nn.Linear(2, 2))


def test_quantised_weights_are_a_reason():
    model = make()
    model.cfg.load_in_4bit = True  # the library that quantises is not needed to refuse
    assert "quantised" in why_not_counts(model)


def test_require_raises_with_the_reason_and_a_remedy():
    with pytest.raises(ValueError, match=r"cannot be run on counts: it has 2 layers.*sequences"):
        require_counts(make(n_layers=2))


def test_hooks_may_be_ignored():
    model = make()
    model.register_forward_pre_hook(lambda module, inputs: None)
    model.embed.register_forward_hook(lambda module, inputs, output: output * 2)
    assert "(at the model, embed), which counts would bypass" in why_not_counts(model)
    with pytest.raises(ValueError, match="hooks are attached"):
        require_counts(model)
    assert why_not_counts(model, ignore_hooks=True) is None
    require_counts(model, ignore_hooks=True)


def test_a_soft_cap_of_zero_is_none():
    model = make()
    model.cfg.attn_scores_soft_cap = model.cfg.output_logits_soft_cap = 0.0
    assert why_not_counts(model) is None


def test_plain_torch_hooks_are_seen_too():
    model = make()
    handle = model.embed.register_forward_hook(lambda module, inputs, output: output * 2)
    assert "hooks are attached to it (at embed)" in why_not_counts(model)
    handle.remove()
    assert why_not_counts(model) is None
