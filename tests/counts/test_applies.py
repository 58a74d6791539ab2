"""Which models may be run on counts, and what is said of the others."""

import copy
import re

import pytest
import torch

import count01_lens as cl
from count01_lens.common.remembered import Remembered
from count01_lens.counts import applies
from count01_lens.counts.applies import require_counts, why_not_counts
from count01_lens.counts.closed_form import CountForm
from count01_lens.models.build import build_model
from count01_lens.models.handcrafted import minimal_model
from count01_lens.models.lens import has_bridges, module_at
from count01_lens.tasks.language import Token
from tests.lens_versions import KIND, made, model_class, needs_3


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
    model = made(**{**BASE, **fields})
    if model.cfg.positional_embedding_type == "standard":
        model.W_pos.data.zero_()
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
        ({"clip_qkv": 0.0}, "clip_qkv"),
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
    model.W_pos.data[3, 1] = 0.1
    assert why_not_counts(model) == "its positional embedding W_pos is not zero"

    model = make()
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_z", lambda value, hook: value * 0)]):
        assert "hooks are attached to it (at blocks.0.attn.hook_z)" in why_not_counts(model)
    assert why_not_counts(model) is None

    assert f"expected a {KIND}, got Linear" in why_not_counts(torch.nn.Linear(2, 2))


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


class Doubler(torch.nn.Module):
    """What a dictionary of features looks like that is spliced in where a hook point was."""

    def forward(self, z):
        return 2 * z


def test_a_module_that_is_spliced_in_is_a_reason():
    model = make()
    model.blocks[0].attn.hook_z = Doubler()
    assert why_not_counts(model) == (
        "blocks.0.attn.hook_z is a Doubler, not one of TransformerLens's own"
    )


def test_code_of_others_is_a_reason():
    model = make()

    class Louder(type(model.blocks[0].attn)):
        def calculate_z_scores(self, v, pattern):
            return 2 * super().calculate_z_scores(v, pattern)

    model.blocks[0].attn.__class__ = Louder
    assert "blocks.0.attn is a Louder" in why_not_counts(model)

    model = make()
    unembed = model.unembed.forward
    model.unembed.forward = lambda residual: 2 * unembed(residual)
    assert why_not_counts(model) == "unembed has a forward of its own"

    class Mine(model_class()):
        pass

    model = make()
    model.__class__ = Mine
    assert why_not_counts(model) == "it is a Mine, not one of TransformerLens's own"


@needs_3("modules of bridges have no such attributes")
def test_what_no_list_of_reasons_has_is_found_by_running_the_model():
    """Attributes that decide at run time: neither types nor config tell."""
    local = make()
    local.blocks[0].attn.attn_type = "local"
    local.blocks[0].attn.cfg.window_size = 2
    assert "its head outputs at '=' are not what its weights say" in why_not_counts(local)
    backwards = make()
    backwards.blocks[0].attn._attention_dir_override = "bidirectional"
    assert "are not what its weights say, but off by" in why_not_counts(backwards)
    with pytest.raises(ValueError, match="cannot be run on counts: run on sentences"):
        cl.CountForm.from_models([local])
    with pytest.raises(ValueError, match="cannot be run on counts: run on sentences"):
        cl.verify(backwards, up_to=2)


@pytest.mark.parametrize(
    ("table", "entry"),
    [
        ("scores", (0, 1, Token.EQUALS, Token.TWO)),
        ("scores", (0, 1, Token.FIVE, Token.FIVE)),
        ("values", (0, 1, Token.ONE, 2)),
        ("logit_weights", (0, 1, 3, Token.EOS)),
        ("logit_bias", (0, Token.FOUR, Token.FIVE)),
    ],
)
def test_a_closed_form_that_is_wrong_is_found_by_running_the_model(table, entry, monkeypatch):
    good = CountForm.from_parameters

    def broken(*given):
        form = good(*given)
        getattr(form, table)[entry] += 1e-6
        return form

    monkeypatch.setattr(applies, "_FOUND", Remembered(most=9))
    monkeypatch.setattr(CountForm, "from_parameters", broken)
    assert "are not what its weights say" in why_not_counts(make(seed=1))


def test_a_model_is_run_once_and_again_when_it_was_changed(monkeypatch):
    runs, difference = [], applies._difference

    def counted(model, language):
        runs.append(model)
        return difference(model, language)

    monkeypatch.setattr(applies, "_FOUND", Remembered(most=9))
    monkeypatch.setattr(applies, "_difference", counted)
    model = make(seed=2)
    for _ in range(3):
        assert why_not_counts(model) is None
    assert len(runs) == 1
    model.W_U.data[0, 0] += 1e-3
    assert why_not_counts(model) is None
    assert len(runs) == 2
    assert why_not_counts(model.double()) is None
    assert len(runs) == 2, "the same model in another precision"


def test_few_models_are_remembered(monkeypatch):
    monkeypatch.setattr(applies, "_FOUND", Remembered(most=2))
    for seed in range(4):
        assert why_not_counts(make(seed=seed)) is None
    assert len(applies._FOUND.results) == 2


def test_running_the_model_leaves_it_as_it_was(capsys):
    model = make(seed=3)
    model.embed.register_forward_hook(lambda module, inputs, output: 2 * output)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert why_not_counts(model, ignore_hooks=True) is None
    assert len(model.embed._forward_hooks) == 1
    assert model.W_E.dtype == torch.float32
    assert model.W_E.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("n_ctx", [1, 2, 3, 5, 16])
def test_a_short_context_is_no_reason(n_ctx):
    assert why_not_counts(make(n_ctx=n_ctx)) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tables_of_half_precision_are_computed_in_float32(dtype):
    model = cl.example_model().to(dtype)
    assert why_not_counts(model) is None
    form, same = CountForm.from_models([model]), CountForm.from_models([model.float()])
    for name, table in form.tables.items():
        assert table.dtype == torch.float32
        assert torch.equal(table, getattr(same, name))
    assert cl.qk_table(model, 2).shape == cl.ov_table(model, 2).shape == (8, 8)


def test_what_is_changed_outside_of_the_model_is_seen_after_it_was_known(monkeypatch):
    model = make(seed=5)
    assert why_not_counts(model) is None
    handle = torch.nn.modules.module.register_module_forward_hook(lambda m, inputs, output: output)
    try:
        assert "hooks are attached to it (at every module there is)" in why_not_counts(model)
    finally:
        handle.remove()
    attention = module_at(model, "blocks.0.attn")
    kind = type(attention.original_component if has_bridges() else attention)
    name = "forward" if has_bridges() else "calculate_attention_scores"
    method = getattr(kind, name)

    def doubled(self, *args, **kwargs):
        found = method(self, *args, **kwargs)
        return tuple(2 * part for part in found) if has_bridges() else 2 * found

    monkeypatch.setattr(kind, name, doubled)
    assert "are not what its weights say" in why_not_counts(model)
    monkeypatch.undo()
    assert why_not_counts(model) is None
    if has_bridges():
        attention.original_component.attn_scores_soft_cap = 1e-3
    else:
        attention.cfg = copy.deepcopy(model.cfg)
        attention.cfg.attn_scores_soft_cap = 1e-3
    assert "are not what its weights say" in why_not_counts(model)


@needs_3("weights of bridges are in linear layers")
def test_weights_may_be_shared_or_buffers():
    model = make(seed=6)
    model.blocks[0].attn.W_K = model.blocks[0].attn.W_Q
    assert why_not_counts(model) is None
    b_U = model.unembed.b_U.detach()
    del model.unembed.b_U
    model.unembed.register_buffer("b_U", b_U)
    assert why_not_counts(model) is None
    assert cl.verify(model, up_to=3).n_sentences == 64
    assert cl.head_outputs(model, [[1, 2, 3]]).shape == (1, 2, 4)
