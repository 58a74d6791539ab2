"""Direct logit attribution against gradients: norms frozen, later layers cut off, by autograd."""

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.heads.runners import HookRunner, as_prompts
from count01_lens.models.direct_path import DirectPath
from count01_lens.models.lens import has_bridges, rounds_to_float32
from count01_lens.tasks.dataset import sequences_of
from tests.helpers import deep_model

COUNTS = torch.tensor([[3, 5, 2], [0, 0, 0], [7, 0, 1]])
KINDS = [
    {},
    {"n_layers": 1, "attn_only": True},
    {"normalization_type": "LN"},
    {"normalization_type": "LNPre"},
    {"normalization_type": "RMS"},
    {"normalization_type": "RMSPre"},
    {"normalization_type": "LN", "final_rms": True},
    {"normalization_type": "LNPre", "final_rms": True},
    {"normalization_type": "RMS", "use_normalization_before_and_after": True},
    {"normalization_type": "RMSPre", "use_normalization_before_and_after": True},
    {"use_normalization_before_and_after": True},
    {"normalization_type": "RMS", "original_architecture": "Olmo2ForCausalLM"},
    {"normalization_type": "LN", "original_architecture": "Olmo2ForCausalLM"},
    {"output_logits_soft_cap": 3.0},
    {"normalization_type": "LN", "output_logits_soft_cap": 3.0},
    {"parallel_attn_mlp": True, "normalization_type": "LN"},
    {"n_key_value_heads": 1, "normalization_type": "RMS"},
    {"positional_embedding_type": "rotary", "rotary_dim": 4},
    {"use_attn_result": True},
    {"use_split_qkv_input": True},
]


def by_gradients(model, tokens):
    """How logits grow with the size of each head: other ways cut off, norms held fast."""
    size = torch.ones(model.cfg.n_layers, model.cfg.n_heads, 1, dtype=torch.float64)

    def logits(size):
        def scaled(layer):
            return lambda z, hook: z * size[layer]

        held = [
            (name, lambda value, hook: value.detach())
            for name in model.hook_dict
            if name.endswith(("hook_q", "hook_k", "hook_v", "hook_mlp_out", "hook_scale"))
        ]
        scales = [(f"blocks.{n}.attn.hook_z", scaled(n)) for n in range(model.cfg.n_layers)]
        found = model.run_with_hooks(tokens[None], fwd_hooks=held + scales)[0, -1]
        cap = model.cfg.output_logits_soft_cap
        return cap * torch.atanh(found / cap) if cap > 0 else found

    jacobian = torch.autograd.functional.jacobian(logits, size)
    return jacobian.reshape(8, -1).T, logits(size)


@pytest.mark.filterwarnings("ignore:A forward hook edited hook_scale:UserWarning")
@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_attributions_are_gradients_of_the_direct_way(fields):
    model = deep_model(**fields)
    rtol = 1e-3 if has_bridges() and rounds_to_float32(model) else 1e-6
    found = HookRunner(model).attribute(as_prompts(COUNTS))
    for row, tokens in enumerate(sequences_of(COUNTS)):
        expected, logits = by_gradients(model, tokens[:-2])
        torch.testing.assert_close(found.heads[row], expected.detach(), rtol=rtol, atol=1e-3 * rtol)
        whole = found.heads[row].sum(dim=0) + found.rest[row]
        torch.testing.assert_close(whole, logits.detach(), rtol=rtol, atol=1e-3 * rtol)


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_the_view_of_a_sentence_attributes_the_same(fields):
    model = deep_model(**fields)
    found = HookRunner(model).attribute(as_prompts(COUNTS[:1])).heads[0]
    sentence = "".join("012"[token - 1] for token in sequences_of(COUNTS)[0][1:-3].tolist()) + "="
    view = cl.show_attribution(model, sentence)
    expected = found[:, cl.Token.FOUR] - found[:, cl.Token.FIVE]
    torch.testing.assert_close(view.attributions["="].sum(dim=0), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("cap", [-1.0, 0.0, 0.5, 3.0])
def test_a_soft_cap_is_that_of_the_model_and_is_taken_back(cap):
    path = DirectPath(deep_model(output_logits_soft_cap=cap))
    logits = torch.linspace(-12 * max(cap, 0.1), 12 * max(cap, 0.1), 9, dtype=torch.float64)
    capped = path.capped(logits)
    assert torch.equal(capped, cap * torch.tanh(logits / cap) if cap > 0 else logits)
    np.testing.assert_allclose(path.uncap(capped.numpy()), logits, rtol=1e-3)
    ends = path.uncap(np.array([-cap, cap]))  # as it is rounded where logits are far larger
    assert np.isfinite(ends).all()
    assert ends[0] == -ends[1]


def test_what_is_frozen_is_said():
    assert not DirectPath(deep_model()).has_norms
    with pytest.warns(UserWarning, match="layer norms before its logits.*frozen scale"):
        cl.head_logits(deep_model(normalization_type="RMS"), COUNTS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_attributed_in_float32(dtype):
    """The model runs in its own precision; what we add to that is not rounded to it again."""
    model = deep_model(normalization_type=None, dtype=dtype, n_layers=1, attn_only=True)
    found = HookRunner(model).attribute(as_prompts(COUNTS))
    z = HookRunner(model).outputs(as_prompts(COUNTS)).double()
    expected = torch.einsum("phd,hdr,rt->pht", z, model.W_O[0].double(), model.W_U.double())
    torch.testing.assert_close(found.heads, expected, rtol=1e-5, atol=1e-6)
