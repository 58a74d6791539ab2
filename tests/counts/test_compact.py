import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformer_lens import HookedTransformer, HookedTransformerConfig

from count01_lens.counts.compact import (
    MULTIPLICITY,
    SCORES_HOOK,
    compact_hooks,
    compact_logits,
    compact_tokens,
    count_form_applies,
    require_count_form,
)
from count01_lens.models.build import build_model
from count01_lens.models.handcrafted import minimal_model
from count01_lens.tasks.dataset import make_splits
from count01_lens.tasks.language import decode

MODEL = build_model(dtype=torch.float64)


def test_tokens_are_six_with_the_right_answer():
    tokens = compact_tokens(torch.tensor([[0, 5, 1], [5, 5, 0]]))
    assert [decode(row) for row in tokens] == ["[BOS]012=4", "[BOS]012=5"]


def test_compact_equals_sequences_on_the_test_split():
    counts = make_splits().test.counts[:20]
    for at, position in (("=", -3), ("answer", -2)):
        short = compact_logits(MODEL, counts, at)
        long = [
            MODEL(sequence[None])[0, position] for sequence in make_splits().test.sequences()[:20]
        ]
        torch.testing.assert_close(short, torch.stack(long), atol=1e-12, rtol=0)


@given(st.lists(st.sampled_from([1, 2, 3]), max_size=25), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_shuffling_a_sentence_changes_nothing(body, random):
    shuffled = random.sample(body, len(body))
    one, two = (torch.tensor([[0, *tokens, 4]]) for tokens in (body, shuffled))
    torch.testing.assert_close(MODEL(one)[0, -1], MODEL(two)[0, -1], atol=1e-12, rtol=0)


def test_hooks_refuse_other_tokens():
    hooks = compact_hooks(torch.tensor([[1, 2, 3]]))
    with pytest.raises(ValueError, match=r"expected the tokens compact_tokens\(data\)"):
        MODEL.run_with_hooks(torch.tensor([[0, 1, 4]]), fwd_hooks=hooks)
    assert count_form_applies(MODEL) is None

    with pytest.raises(ValueError, match="of the same 1 sentences"):
        MODEL.run_with_hooks(compact_tokens([[1, 2, 3], [0, 1, 1]]), fwd_hooks=hooks)
    cached = torch.zeros(1, 16, 6, 3)  # three of the six keys, as a cache would leave them
    with pytest.raises(ValueError, match=r"scores of shape \[1, 16, 6, 3\]"):
        hooks[0][1](cached, hook=None)


def test_multiplicities_are_known_while_it_runs_and_forgotten_after():
    point = MODEL.hook_dict[SCORES_HOOK]
    seen = []
    watch = ("blocks.0.attn.hook_pattern", lambda pattern, hook: seen.append(dict(point.ctx)))
    counts = torch.tensor([[1, 2, 3], [0, 7, 1]])
    MODEL.run_with_hooks(compact_tokens(counts), fwd_hooks=[*compact_hooks(counts), watch])
    (found,) = seen
    assert found[MULTIPLICITY].tolist() == [[1, 1, 2, 3, 1, 1], [1, 0, 7, 1, 1, 1]]
    assert found[MULTIPLICITY].dtype == torch.long
    assert MULTIPLICITY not in point.ctx


def test_hooks_of_the_model_take_part_in_a_compact_run():
    with MODEL.hooks(fwd_hooks=[("blocks.0.attn.hook_z", lambda value, hook: value * 0)]):
        logits = compact_logits(MODEL, [[1, 2, 3]])
    assert torch.equal(logits[0], MODEL.b_U)


def test_a_compact_run_keeps_the_precision_of_the_model():
    assert compact_logits(build_model(), [[1, 2, 3]]).dtype == torch.float32
    scores = torch.zeros(1, 2, 6, 6)
    ((_, add), _) = compact_hooks([[1, 2, 3]])
    assert add(scores, hook=MODEL.hook_dict[SCORES_HOOK]).dtype == torch.float32
    MODEL.hook_dict[SCORES_HOOK].ctx.clear()


def test_bad_place():
    with pytest.raises(ValueError, match="at: expected '=' or 'answer', got 'end'"):
        compact_logits(MODEL, [[1, 2, 3]], at="end")


def test_the_count_form_applies_to_our_models():
    assert count_form_applies(MODEL) is None
    assert count_form_applies(minimal_model()) is None
    assert count_form_applies(minimal_model(skip=False)) is None


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
    assert count_form_applies(make()) is None


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
def test_every_reason_against_the_count_form(fields, reason):
    found = count_form_applies(make(**fields))
    assert found is not None
    assert re.search(reason, found)


def test_positions_hooks_and_other_models_are_reasons_too():
    model = make()
    model.pos_embed.W_pos.data[3, 1] = 0.1
    assert count_form_applies(model) == "its positional embedding W_pos is not zero"

    model = make()
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_z", lambda value, hook: value * 0)]):
        assert "hooks are attached to it (at blocks.0.attn.hook_z)" in count_form_applies(model)
    assert count_form_applies(model) is None

    assert "expected a HookedTransformer, got Linear" in count_form_applies(torch.nn.Linear(2, 2))


def test_quantised_weights_are_a_reason():
    model = make()
    model.cfg.load_in_4bit = True  # the library that quantises is not needed to refuse
    assert "quantised" in count_form_applies(model)


def test_require_raises_with_the_reason_and_a_remedy():
    with pytest.raises(ValueError, match=r"cannot be run on counts: it has 2 layers.*sequences"):
        require_count_form(make(n_layers=2))


def test_hooks_may_be_ignored():
    model = make()
    model.register_forward_pre_hook(lambda module, inputs: None)
    model.embed.register_forward_hook(lambda module, inputs, output: output * 2)
    assert "(at the model, embed), which counts would bypass" in count_form_applies(model)
    with pytest.raises(ValueError, match="hooks are attached"):
        require_count_form(model)
    assert count_form_applies(model, ignore_hooks=True) is None
    require_count_form(model, ignore_hooks=True)


def test_a_soft_cap_of_zero_is_none():
    model = make()
    model.cfg.attn_scores_soft_cap = model.cfg.output_logits_soft_cap = 0.0
    assert count_form_applies(model) is None


def test_plain_torch_hooks_are_seen_too():
    model = make()
    handle = model.embed.register_forward_hook(lambda module, inputs, output: output * 2)
    assert "hooks are attached to it (at embed)" in count_form_applies(model)
    handle.remove()
    assert count_form_applies(model) is None


@pytest.mark.parametrize("function", [compact_tokens, compact_hooks])
def test_counts_are_checked(function):
    assert function([[1, 2, 3]]) is not None
    assert function(make_splits().test) is not None
    with pytest.raises(ValueError, match="expected shape"):
        function([[1, 2]])
    with pytest.raises(ValueError, match="expected numbers from 0"):
        function([[1, 2, -3]])
