import copy
import dataclasses
import math
import warnings
from typing import get_args

import pytest
import torch
from transformer_lens import ActivationCache

from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.compact import compact_hooks, compact_tokens
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.models.build import build_model, hooked_transformer
from count01_lens.models.config import Init, ModelConfig
from count01_lens.models.parameters import initial_raw
from count01_lens.tasks.dataset import make_splits
from count01_lens.tasks.language import Token
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS
from tests.lens_versions import has_bridges

CONFIGS = [
    ModelConfig(),
    ModelConfig(output="residual"),
    ModelConfig(output="residual", layer_norm=False, qkv_bias=True),
    ModelConfig(d_embed=5, n_heads=3, d_head=4, scale_scores=True),
]


def ids(config):
    return f"{config.output}-{config.layer_norm}-{config.n_heads}x{config.d_head}"


def in_bare_transformer_lens(cfg):
    """A model that nothing of this library had to do with."""
    if has_bridges():
        from transformer_lens.model_bridge import TransformerBridge

        return TransformerBridge.boot_native(cfg)
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    return HookedTransformer(HookedTransformerConfig.from_dict(dict(cfg.to_dict())))


@pytest.mark.parametrize("config", CONFIGS, ids=ids)
def test_bare_transformer_lens_loads_the_same_model(config):
    model = build_model(config, seed=1)
    again = in_bare_transformer_lens(model.cfg)
    again.load_state_dict(model.state_dict())
    tokens = make_splits().train.sequences()[0][None]
    assert torch.equal(again(tokens), model(tokens))


def reference_logits(raw, config, tokens):
    """The model as the paper writes it, without TransformerLens, lanes or folding."""
    x = raw["W_E"][tokens]
    read = x
    if config.layer_norm:
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        read = centred / scale * raw["ln_w"] + raw["ln_b"]
    outputs = []
    for head in range(config.n_heads):
        q, k, v = (
            read @ raw[f"W_{letter}"][head] + (raw[f"b_{letter}"][head] if config.qkv_bias else 0)
            for letter in "QKV"
        )
        scores = q @ k.T / (math.sqrt(config.d_head) if config.scale_scores else 1)
        mask = torch.ones(len(tokens), len(tokens)).tril().bool()
        outputs.append(scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v)
    if config.output == "fused":
        return sum(z @ raw["W_out"][h] for h, z in enumerate(outputs)) + raw["b_out"]
    projected = sum(z @ raw["W_O"][h] for h, z in enumerate(outputs)) + raw["b_O"]
    return (x + projected) @ raw["W_U"] + raw["b_U"]


@pytest.mark.parametrize("config", CONFIGS, ids=ids)
def test_the_export_computes_what_the_paper_writes(config):
    raw = initial_raw(config, 3, torch.float64)
    if config.layer_norm:  # a trained layer norm is not the identity
        raw["ln_w"] = raw["ln_w"] * torch.linspace(0.5, 2, config.d_embed, dtype=torch.float64)
        raw["ln_b"] = torch.linspace(-1, 1, config.d_embed, dtype=torch.float64)
    tokens = torch.tensor([0, 1, 2, 2, 3, 1, 4, 6, 7])
    model = hooked_transformer(raw, config)
    torch.testing.assert_close(model(tokens[None])[0], reference_logits(raw, config, tokens))


@pytest.mark.parametrize("config", CONFIGS, ids=ids)
def test_transformer_lens_attribution_agrees_with_ours(config):
    model = build_model(config, seed=2, dtype=torch.float64)
    counts = make_splits().test.counts[:7]
    with model.hooks(fwd_hooks=compact_hooks(counts)):
        _, cache = model.run_with_cache(compact_tokens(counts))
    assert isinstance(cache, ActivationCache)
    form = CountForm.from_models([model])
    for place, position in ((AT_EQUALS, 4), (AT_ANSWER, 5)):
        ours = form.head_logits(Multiplicities.of(counts, place, torch.float64))[0]
        stacked = cache.stack_head_results(layer=1, pos_slice=position)
        directly = torch.einsum("hsr,rt->sht", stacked, model.W_U)
        torch.testing.assert_close(ours, directly)
        for token in (Token.FOUR, Token.EOS):
            attributed = cache.logit_attrs(stacked, tokens=int(token), pos_slice=position)
            torch.testing.assert_close(ours[:, :, token], attributed.T)


def test_the_two_lanes_are_kept_apart():
    model = build_model(ModelConfig(d_embed=6, n_heads=3))
    lane1, lane2 = slice(0, 6), slice(6, 12)
    assert model.cfg.d_model == 12
    for weight in (model.W_Q, model.W_K, model.W_V):
        assert not weight[0, :, lane2].any()
        assert weight[0, :, lane1].any()
    assert not model.W_O[0, :, :, lane1].any()
    assert not model.W_U[lane1].any()
    assert not model.W_E[:, lane2].any()  # fused: no skip connection reaches the logits
    assert build_model(ModelConfig(output="residual")).W_E[:, 32:].any()


def test_positions_are_zero_and_frozen():
    model = build_model()
    assert not model.W_pos.any()
    assert not model.pos_embed.W_pos.requires_grad
    assert model.W_E.requires_grad


def test_strings_work_offline():
    model = build_model()
    assert model.to_tokens("0110=").tolist() == [[0, 1, 2, 2, 1, 4]]
    assert model.to_tokens("[BOS]0110=").tolist() == [[0, 1, 2, 2, 1, 4]]
    assert model.to_tokens("01=", prepend_bos=False).tolist() == [[1, 2, 4]]
    assert model.to_str_tokens("2=5[EOS]") == ["[BOS]", "2", "=", "5", "[EOS]"]
    assert model.to_string(model.to_tokens("01=4[EOS]")[0]) == "[BOS]01=4[EOS]"
    assert model.to_tokens(["01=", "="]).tolist() == [[0, 1, 2, 4], [0, 4, 7, 7]]
    with pytest.raises(ValueError, match="position 6: expected one of .* got 'x'"):
        model.to_tokens("0x=")


def test_initialisation_depends_on_the_seed_alone():
    state = torch.random.get_rng_state()
    one, two, other = build_model(seed=1), build_model(seed=1), build_model(seed=2)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))
    assert not torch.equal(one.W_E, other.W_E)
    torch.testing.assert_close(build_model(seed=1, dtype=torch.float64).W_E.float(), one.W_E)


def test_initial_distributions():
    config = ModelConfig(d_embed=200, n_heads=10, output="residual")
    raw = initial_raw(config, 0)
    assert abs(float(raw["W_E"].std()) - 1) < 0.05
    for name in ("W_Q", "W_O", "W_U", "b_O", "b_U"):
        bound = 1 / math.sqrt(200)
        assert float(raw[name].abs().max()) <= bound
        if name.startswith("W"):
            assert abs(float(raw[name].std()) - bound / math.sqrt(3)) < 0.1 * bound
    raw = initial_raw(ModelConfig(d_embed=100, n_heads=10, init="transformer_lens"), 0)
    assert abs(float(raw["W_Q"].std()) - 0.08) < 0.01
    assert not raw["b_out"].any()


def test_initial_distributions_of_the_other_choices():
    shape = {"d_embed": 200, "n_heads": 10, "output": "residual", "qkv_bias": True}
    drawn = {init: initial_raw(ModelConfig(**shape, init=init), 0) for init in get_args(Init)}
    plain, xavier, normal, small = (
        drawn[name] for name in ("pytorch", "xavier", "normal", "small_normal")
    )
    for name, fans in {"W_Q": 400, "W_O": 400, "W_U": 208}.items():
        bound = math.sqrt(6 / fans)
        assert 0.95 * bound < float(xavier[name].abs().max()) <= bound
        assert abs(float(xavier[name].std()) - bound / math.sqrt(3)) < 0.1 * bound
    assert abs(float(xavier["W_E"].std()) - 1) < 0.05
    for name in ("W_Q", "W_K", "W_V"):
        assert abs(float(normal[name].std()) - 1) < 0.05
    for name in ("W_O", "W_U", "b_Q", "b_O"):
        assert float(normal[name].abs().max()) <= 1 / math.sqrt(200)
        assert bool(normal[name].any())
    assert torch.equal(normal["W_E"], plain["W_E"])
    for name in ("W_E", "W_Q", "W_O", "W_U"):
        assert abs(float(small[name].std()) - 0.02) < 0.002
    for raw in (xavier, small):
        assert not any(raw[name].any() for name in raw if name.startswith("b_"))
    for raw in drawn.values():
        assert raw.keys() == plain.keys()
        assert bool((raw["ln_w"] == 1).all())
        assert not raw["ln_b"].any()


def test_no_warning_reaches_the_user_and_filters_stay():
    filters = list(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_model(ModelConfig(d_embed=2, n_heads=1))
    assert warnings.filters == filters


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_embed": 0}, "d_embed: expected a whole number of at least 1, got 0"),
        ({"n_heads": -2}, "n_heads: expected"),
        ({"n_heads": 2.0}, "n_heads: expected"),
        ({"d_embed": 2, "n_heads": 64}, "2 // 64 is 0.*give d_head"),
        ({"d_head": 0}, "d_head: expected"),
        ({"output": "both"}, "output: expected 'fused' or 'residual', got 'both'"),
        ({"init": "kaiming"}, "init: expected"),
        ({"layer_norm": "yes"}, "layer_norm: expected True or False, got 'yes'"),
        ({"n_ctx": 0}, "n_ctx: expected"),
    ],
)
def test_bad_configs_are_rejected(fields, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**fields)


def test_bad_arguments_are_rejected():
    with pytest.raises(TypeError, match="config: expected a ModelConfig"):
        build_model({"n_heads": 2})
    with pytest.raises(ValueError, match="seed: expected"):
        build_model(seed=-1)
    with pytest.raises(ValueError, match=r"dtype: expected torch\.float32 or torch\.float64"):
        build_model(dtype=torch.float16)
    with pytest.raises(ValueError, match="raw parameters: expected"):
        hooked_transformer(initial_raw(ModelConfig(), 0), ModelConfig(n_heads=8))
    with pytest.raises(TypeError):
        ModelConfig(32, 16)  # names are asked for


def test_default_head_size():
    assert ModelConfig(d_embed=32, n_heads=16).d_head == 2
    assert ModelConfig(d_embed=2, n_heads=64, d_head=1).d_head == 1
    assert ModelConfig(d_embed=32, n_heads=8, d_head=None).d_head == 4


def test_a_head_size_is_a_number_wherever_a_config_goes():
    config = ModelConfig(d_embed=12, n_heads=4)
    assert dataclasses.asdict(config)["d_head"] == 3
    assert "d_head=3" in repr(config)
    assert config == ModelConfig(**dataclasses.asdict(config))
    assert hash(config) == hash(ModelConfig(d_embed=12, n_heads=4, d_head=3))
    assert copy.deepcopy(config) == config
    assert dataclasses.replace(config, n_heads=2).d_head == 3
    assert dataclasses.replace(config, n_heads=2, d_head=None).d_head == 6
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_head = 5
