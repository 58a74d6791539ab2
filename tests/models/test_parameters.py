"""Parameters as they are drawn, as a HookedTransformer has them, and what they weigh."""

import math

import pytest
import torch

import count01_lens as cl
from count01_lens.models import parameters as module
from count01_lens.models.lens import state_of
from count01_lens.models.parameters import (
    check_size,
    initial_raw,
    raw_shapes,
    transformer_lens_parameters,
)

SHAPE = {"d_embed": 12, "n_heads": 3, "d_head": 4}
CONFIGS = {
    "fused": cl.ModelConfig(output="fused", **SHAPE),
    "residual": cl.ModelConfig(output="residual", **SHAPE),
    "no layer norm": cl.ModelConfig(output="residual", layer_norm=False, **SHAPE),
    "fused, biases": cl.ModelConfig(output="fused", qkv_bias=True, **SHAPE),
}


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


@pytest.fixture
def asked(monkeypatch):
    """What check_size would like to have, instead of a look at this machine's memory."""
    calls = []
    monkeypatch.setattr(module, "check_memory", lambda *arguments: calls.append(arguments))
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_takes_what_its_weights_weigh(config, dtype, asked):
    check_size(config, dtype)
    ((what, size, remedy),) = asked
    weights = [
        value.numel()
        for name, value in state_of(cl.build_model(config)).items()
        if name.rpartition(".")[2].startswith("W_")
    ]
    assert size == sum(weights) * dtype.itemsize
    assert what == "1 model with 3 heads, d_embed=12, d_head=4, n_ctx=" + f"{config.n_ctx:,}"
    assert remedy == "take smaller models"


def test_many_models_are_kept_as_they_are_trained(config, asked):
    check_size(config, torch.float32, 11, n_models=5_000, copies=3)
    ((what, size, remedy),) = asked
    assert size == 4 * 15_000 * sum(math.prod(each) for each in raw_shapes(config, 11).values())
    assert what.startswith("5,000 models with 3 heads, ")
    assert remedy == "take smaller models, or fewer at a time"


def test_stacks_of_models_are_mapped_as_one_by_one(config):
    models = [initial_raw(config, seed, torch.float64) for seed in range(6)]
    names = models[0]
    stack = {name: torch.stack([raw[name] for raw in models]) for name in names}
    grid = {name: value.view(2, 3, *value.shape[1:]) for name, value in stack.items()}
    together = transformer_lens_parameters(stack, config)
    in_a_grid = transformer_lens_parameters(grid, config)
    for i, raw in enumerate(models):
        for name, value in transformer_lens_parameters(raw, config).items():
            torch.testing.assert_close(together[name][i], value, rtol=1e-14, atol=1e-14)
            assert torch.equal(in_a_grid[name][divmod(i, 3)], together[name][i])


# Inputs and outputs of the layer that a parameter belongs to: d_embed is 12, all heads have 12
# dimensions in all other tests, here 20.
FANS = {
    "W_Q": (12, 20), "b_V": (12, 20), "W_out": (20, 8), "b_out": (20, 8),
    "W_O": (20, 12), "b_O": (20, 12), "W_U": (12, 8), "b_U": (12, 8),
}  # fmt: skip


@pytest.mark.parametrize("name", FANS)
@pytest.mark.parametrize("init", ["pytorch", "xavier"])
def test_weights_are_drawn_within_the_bounds_of_their_layer(name, init):
    output = "fused" if name.endswith("out") else "residual"
    config = cl.ModelConfig(
        output=output, init=init, qkv_bias=True, d_embed=12, n_heads=5, d_head=4
    )
    drawn = torch.stack([initial_raw(config, seed)[name].flatten() for seed in range(60)])
    n_in, n_out = FANS[name]
    bound = 1 / math.sqrt(n_in) if init == "pytorch" else math.sqrt(6 / (n_in + n_out))
    if init == "xavier" and name.startswith("b_"):
        bound = 0.0
    assert 0.98 * bound <= drawn.abs().max() <= bound
