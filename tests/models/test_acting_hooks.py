"""Hooks that act are told from hooks that do not, in one pass, for each kind of hook point."""

import pytest
import torch

import count01_lens as cl
from count01_lens.models import acting_hooks
from count01_lens.models.acting_hooks import check_hooks_act, edits_needed
from count01_lens.models.lens import has_bridges
from tests.helpers import deep_model, hooks_left
from tests.lens_versions import needs_3, needs_4

EVERY = ("z", *edits_needed())
KINDS = [
    {},
    {"n_layers": 1, "attn_only": True, "normalization_type": "LN"},
    {"normalization_type": "RMS", "n_key_value_heads": 1},
    {"attention_dir": "bidirectional"},
    {"positional_embedding_type": "rotary", "rotary_dim": 4},
    {"positional_embedding_type": "alibi"},
    {"positional_embedding_type": "shortformer"},
    {"normalization_type": "RMS", "use_normalization_before_and_after": True},
    {"parallel_attn_mlp": True},
    {"use_attn_result": True, "use_split_qkv_input": True},
    {"use_local_attn": True, "window_size": 3, "attn_types": ["local", "global"]},
    {"n_ctx": 2},
]


@pytest.mark.parametrize("fields", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_hooks_of_all_models_act(fields, dtype):
    model = deep_model(**fields).to(dtype)
    check_hooks_act(model, *EVERY)
    assert hooks_left(model) == 0


@pytest.mark.parametrize(
    "model", [cl.minimal_model, cl.cooperative_model, cl.example_model], ids=lambda f: f.__name__
)
def test_hooks_of_models_over_counts_act(model):
    made = model()
    check_hooks_act(made, *EVERY)
    assert hooks_left(made) == 0


def passes_of(model):
    passes = []
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    return passes


def test_a_model_is_run_once_and_again_when_its_attention_was_replaced():
    model = deep_model()
    passes = passes_of(model)
    for name in EVERY * 3:
        check_hooks_act(model, name)
    assert len(passes) == 1
    if not has_bridges():
        model.blocks[1].attn = deep_model().blocks[1].attn
        model.setup()
        check_hooks_act(model, "z")
        assert len(passes) == 2


def test_attention_that_is_replaced_after_it_was_tried_is_tried_again():
    model = deep_model()
    check_hooks_act(model, "z")
    attention = model.blocks[1].attn
    attention = attention.original_component if has_bridges() else attention
    forward = attention.forward

    def doubled(*args, **kwargs):
        found = forward(*args, **kwargs)
        return (2 * found[0], *found[1:]) if isinstance(found, tuple) else 2 * found

    attention.forward = doubled
    with pytest.raises(ValueError, match="expected edits at hook_z to act"):
        check_hooks_act(model, "z")


@needs_4
def test_a_projection_that_is_replaced_after_it_was_tried_is_noticed():
    """As adapters and quantisation do it: hooks at what was there before reach nothing."""
    model = deep_model()
    check_hooks_act(model, "z")
    model.blocks[0].attn.original_component.o = torch.nn.Linear(12, 12, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"got nothing at hook_z of layer 0"):
        check_hooks_act(model, "z")


def test_hooks_of_the_user_stay_and_are_no_matter():
    model = deep_model()
    for name in ("hook_z", "hook_pattern", "hook_v", "hook_k"):
        model.add_hook(f"blocks.0.attn.{name}", lambda value, hook: value * 0.5)
    model.add_hook("blocks.1.hook_attn_out", lambda value, hook: value * 2)
    before = model(torch.tensor([[1, 2, 3]]))
    check_hooks_act(model, *EVERY)
    assert torch.equal(model(torch.tensor([[1, 2, 3]])), before)
    assert hooks_left(model) == 5


def broken(model, name):
    """Let layer 1 hand out a value at a hook point, and go on with the one that it had."""
    point = model.hook_dict[f"blocks.1.attn.hook_{name}"]

    class Deaf(type(point)):
        def __call__(self, value):
            super().__call__(value.clone())
            return value

    point.__class__ = Deaf


@pytest.mark.parametrize("name", EVERY)
def test_a_hook_point_that_does_not_listen_is_refused(name):
    model = deep_model()
    broken(model, name)
    with pytest.raises(ValueError, match=rf"expected edits at hook_{name} to act.*in layer 1 is"):
        check_hooks_act(model, name)
    for other in set(EVERY) - {name}:
        check_hooks_act(model, other)


def test_what_is_measured_or_patched_is_refused_where_hooks_are_deaf():
    prompts = cl.Prompts([[1, 2, 3], [2, 3, 4]], [4, 5])
    for name, calls in {
        "z": [
            lambda model: cl.head_outputs(model, prompts),
            lambda model: cl.ablate_heads(model, [0]).__enter__(),
            lambda model: cl.analyze_heads(model, cl.Task(train=prompts, test=prompts)),
        ],
        "pattern": [
            lambda model: cl.patch_attention(model, w01=1.0).__enter__(),
            lambda model: cl.copy_attention(model, "01=").__enter__(),
        ],
    }.items():
        for call in calls:
            model = deep_model()
            broken(model, name)
            with pytest.raises(ValueError, match=rf"hook_{name} "):
                call(model)


def test_weights_that_are_not_finite_tell_nothing():
    model = deep_model()
    model.blocks[0].attn.W_V.data.fill_(1e308)
    check_hooks_act(model, *EVERY)
    assert not torch.isfinite(model(torch.tensor([[1, 2]]))).all()


@needs_3("scores are not edited")
def test_scores_are_edited_in_version_3():
    assert "attn_scores" in EVERY
    assert acting_hooks.scores_act()
