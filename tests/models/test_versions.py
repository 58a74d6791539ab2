"""One file for both versions of TransformerLens, and one module that knows which there is."""

import copy
import re
from pathlib import Path

import pytest
import torch

import count01_lens as cl
from count01_lens.common.bundle import read_bundle
from count01_lens.models.checkpoints import KIND, example_file, open_checkpoint
from count01_lens.models.fields import DEFAULTS, PLAIN, completed
from count01_lens.models.fingerprint import fingerprint
from count01_lens.models.lens import (
    attn_scale,
    fields_of,
    load_state,
    make_model,
    parameters_of,
    require_model,
    state_of,
)
from tests.lens_versions import needs_3, needs_4
from tests.models.files_of_versions import FILES, KINDS, TOKENS, model_of

EVERY = sorted(path.stem for path in FILES.glob("*.safetensors"))


def test_there_are_files_of_both_versions():
    assert sorted(f"{kind}_by_{version}" for kind in KINDS for version in (3, 4)) == EVERY


@pytest.mark.parametrize("name", EVERY)
def test_a_checkpoint_of_either_version_is_the_model_that_was_saved(name, tmp_path):
    model, info = cl.load_checkpoint(FILES / name), cl.checkpoint_info(FILES / name)["info"]
    expected = torch.tensor(info["logits"], dtype=torch.float64)
    torch.testing.assert_close(model(TOKENS).double(), expected, atol=1e-5, rtol=1e-5)
    assert fingerprint(model) == info["fingerprint"]
    again = cl.save_checkpoint(model, tmp_path / "again", info=info)
    one, other = (read_bundle(path, KIND) for path in (FILES / f"{name}.safetensors", again))
    for bundle in (one, other):
        bundle.about.pop("versions")
    assert other.about == one.about
    assert other.tensors.keys() == one.tensors.keys()
    for key, tensor in one.tensors.items():
        assert other.tensors[key].dtype == tensor.dtype
        assert torch.equal(other.tensors[key], tensor), key


@pytest.mark.parametrize("kind", KINDS)
def test_both_versions_write_the_same(kind):
    three, four = (read_bundle(FILES / f"{kind}_by_{n}.safetensors", KIND) for n in (3, 4))
    assert four.about["hooked_transformer"] == three.about["hooked_transformer"]
    assert four.about["frozen_parameters"] == three.about["frozen_parameters"]
    for key, tensor in three.tensors.items():
        assert torch.equal(four.tensors[key], tensor), key


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_described_by_its_fields_and_its_state(kind):
    model = model_of(kind)
    again = make_model(fields_of(model))
    load_state(again, state_of(model))
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert fields_of(again) == fields_of(model)
    assert parameters_of(again).keys() == parameters_of(model).keys()


@pytest.mark.parametrize("recipe", ["accurate", "paper", "puzzle"])
def test_the_bundled_models_are_saved_as_they_are(recipe, tmp_path):
    file = example_file(recipe)
    again = cl.save_checkpoint(cl.example_model(recipe), tmp_path / "m")
    one, other = read_bundle(file, KIND), read_bundle(again, KIND)
    # That of a stored model needs no TransformerLens at all.
    assert fingerprint(cl.example_model(recipe)) == fingerprint(open_checkpoint(file))
    assert other.about["hooked_transformer"] == one.about["hooked_transformer"]
    assert all(torch.equal(other.tensors[name], tensor) for name, tensor in one.tensors.items())


@needs_3("has no HookedTransformerConfig")
def test_defaults_are_those_of_a_hooked_transformer_config():
    from transformer_lens import HookedTransformerConfig

    sizes = dict(d_model=6, d_head=2, n_layers=1, n_ctx=9, n_heads=3, d_vocab=5, act_fn="relu")
    for more in ({}, {"attn_only": True}, {"gated_mlp": True, "d_mlp": 7}, {"attn_scale": 3.0}):
        given = {**sizes, **more, "device": "cpu"}
        expected = HookedTransformerConfig(**given).to_dict()
        found = completed(given)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == value, name
    assert set(DEFAULTS) | set(sizes) <= set(expected)
    assert set(PLAIN) == set(DEFAULTS) | {"n_layers"}


@needs_4
def test_scores_that_are_not_to_be_scaled_are_not():
    """TransformerLens 4 ignores `use_attn_scale=False`; here d_head is 2 and 4."""
    for d_head in (1, 2, 4):
        model = cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3, d_head=d_head), seed=3)
        assert attn_scale(model) == 1.0
        assert fields_of(model)["use_attn_scale"] is False
        scaled = cl.build_model(
            cl.ModelConfig(d_embed=6, n_heads=3, d_head=d_head, scale_scores=True)
        )
        assert attn_scale(scaled) == pytest.approx(d_head**0.5)
        assert fields_of(scaled)["use_attn_scale"] is True
        weights, tokens = state_of(model), torch.tensor([[0, 1, 2, 4]])
        x = weights["embed.W_E"][tokens[0]]
        q, k = (x @ weights[f"blocks.0.attn.W_{name}"][1] for name in "QK")
        scores = (q @ k.T).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)
        _, cache = model.run_with_cache(tokens)
        found = cache["blocks.0.attn.hook_pattern"][0, 1]
        torch.testing.assert_close(found, scores.softmax(dim=-1))


@needs_4
@pytest.mark.parametrize(
    "field",
    [
        {"positional_embedding_type": "rotary"},
        {"positional_embedding_type": "alibi"},
        {"gated_mlp": True},
        {"use_local_attn": True},
        {"act_fn": "solu_ln"},
        {"parallel_attn_mlp": True},
        {"use_qk_norm": True},
        {"original_architecture": "Olmo2ForCausalLM"},
        {"scale_attn_by_inverse_layer_idx": True},
        {"attn_scale": 0.5},  # by which bridges divide where nothing is to be scaled
        {"normalization_type": "rms"},
        {"final_rms": True},
    ],
    ids=str,
)
def test_what_version_4_would_make_another_model_of_is_refused(field):
    (name,) = field
    with pytest.raises(ValueError, match=f"^{name} = .* got what only one of them does; use"):
        make_model({"normalization_type": None, **COMMON, **field})


COMMON = dict(d_model=6, d_head=2, n_heads=3, n_layers=1, n_ctx=9, d_vocab=5, act_fn="gelu")


@needs_4
def test_making_a_model_leaves_the_random_state_alone():
    before = torch.random.get_rng_state()
    cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2))
    make_model({**COMMON, "seed": 3})
    assert torch.equal(torch.random.get_rng_state(), before)


@needs_3("bridges are models there")
def test_bridges_are_for_version_4():
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_native(TransformerBridgeConfig(**COMMON))
    with pytest.raises(TypeError, match="got TransformerBridge; bridges are measured with Transf"):
        require_model(bridge)


PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "transformer_lens_versions.md"


@needs_4
def test_bare_transformer_lens_4_reads_a_checkpoint_as_the_page_says(tmp_path, monkeypatch):
    """By its own converter, which this library does not use."""
    monkeypatch.chdir(tmp_path)
    cl.save_checkpoint(cl.example_model(), "checkpoint")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    names: dict = {}
    exec(code, names)
    tokens = torch.tensor([[0, 1, 2, 2, 3, 4]])
    assert torch.equal(names["bare"](tokens), cl.example_model()(tokens))


def booted(**fields):
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    return TransformerBridge.boot_native(TransformerBridgeConfig(**{**COMMON, **fields}))


@needs_4
@pytest.mark.parametrize(
    "fields", [{}, {"attn_only": True, "n_layers": 2}, {"use_attn_scale": False}], ids=str
)
def test_bridges_that_users_boot_can_be_saved(fields, tmp_path):
    """Some of their fields are left to defaults, which a HookedTransformerConfig has resolved."""
    bridge, tokens = booted(**fields), torch.tensor([[0, 1, 2, 4]])
    again = cl.load_checkpoint(cl.save_checkpoint(bridge, tmp_path / "m"))
    assert torch.equal(again(tokens), bridge(tokens))


@needs_4
def test_what_no_checkpoint_holds_is_seen(tmp_path):
    model = cl.example_model()
    assert cl.why_not_counts(model) is None
    before = fingerprint(model)
    attention = model.blocks[0].attn.original_component
    attention.causal_mask[4, :2] = True
    assert fingerprint(model) != before
    assert "are not what its weights say" in cl.why_not_counts(model)
    with pytest.raises(ValueError, match="expected one that its cfg and its weights describe"):
        cl.save_checkpoint(model, tmp_path / "m")
    attention.causal_mask[4, :2] = False
    assert fingerprint(model) == before
    model.original_model.output_logits_soft_cap = 1.0
    assert fingerprint(model) != before
    with pytest.raises(ValueError, match="expected one that its cfg and its weights describe"):
        cl.save_checkpoint(model, tmp_path / "m")


@needs_4
def test_what_a_pass_of_a_copy_leaves_behind_is_no_matter():
    model = cl.example_model()
    expected = cl.compact_logits(model, [[1, 2, 3]])
    copy.deepcopy(model)(torch.tensor([[0, 1, 4]]))
    assert torch.equal(cl.compact_logits(model, [[1, 2, 3]]), expected)
    assert cl.head_logits(model, [[1, 2, 3]]).shape == (1, 16, 8)
