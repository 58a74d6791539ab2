import threading
from functools import partial

import pytest
import torch

import count01_lens as cl
from count01_lens.models.fingerprint import exact_copy, fingerprint, hooked_modules
from count01_lens.models.lens import has_bridges
from tests.helpers import deep_model


def test_the_same_model_has_the_same_fingerprint(tmp_path):
    model = cl.build_model(seed=3)
    expected = fingerprint(model)
    assert fingerprint(cl.build_model(seed=3)) == expected
    assert fingerprint(model.eval()) == expected
    assert fingerprint(model.double()) == expected
    assert fingerprint(cl.load_checkpoint(cl.save_checkpoint(model, tmp_path / "m"))) == expected
    if not has_bridges():
        model.set_use_attn_result(True)
    model("0112=")
    with cl.ablate_heads(model, [0]):
        assert fingerprint(model) == expected, "hooks are not the model"


@pytest.mark.parametrize(
    "make", [lambda: cl.build_model(seed=3), lambda: deep_model(normalization_type="LN")]
)
def test_every_parameter_counts(make):
    model = make()
    seen = {fingerprint(model)}
    for parameter in model.parameters():
        parameter.data.flatten()[-1] += 1e-6
        seen.add(fingerprint(model))
    assert len(seen) == 1 + len(list(model.parameters()))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.blocks[0].attn, "attn_scale", 2.0),
        lambda m: setattr(m.blocks[0].attn, "_attention_dir_override", "bidirectional"),
        lambda m: setattr(m.blocks[0].attn, "hook_z", torch.nn.Identity()),
        lambda m: setattr(m.blocks[0].attn, "forward", lambda *inputs, **more: 0),
        lambda m: setattr(m.cfg, "output_logits_soft_cap", 5.0),
        lambda m: setattr(m.cfg, "eps", 1e-3),
    ],
)
def test_what_is_no_weight_counts_too(change):
    model = cl.build_model()
    before = fingerprint(model)
    change(model)
    assert fingerprint(model) != before


def test_an_exact_copy_is_the_same_model_without_hooks(capsys):
    model = cl.example_model()
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: 0 * z)
    lock = threading.Lock()  # which cannot be copied
    model.embed.register_forward_pre_hook(partial(lambda *_, **__: None, lock), with_kwargs=True)
    assert hooked_modules(model) == ["embed", "blocks.0.attn.hook_z"]
    copied = exact_copy(model)
    assert fingerprint(copied) == fingerprint(model)
    assert hooked_modules(copied) == []
    assert copied.W_E.dtype == torch.float64
    assert hooked_modules(model) == ["embed", "blocks.0.attn.hook_z"]
    assert model.W_E.dtype == torch.float32
    assert copied.tokenizer is model.tokenizer
    copied("01=")
    assert capsys.readouterr().out == ""
