"""Ablation as a value: of any model, beside other interventions, in both runners."""

import gc
import math
import weakref

import pytest
import torch

import count01_lens as cl
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.runners import CountRunner, HookRunner
from count01_lens.tasks.count01 import CountPrompts
from count01_lens.tasks.places import AT_ANSWER, AT_EQUALS
from tests.helpers import two_layers
from tests.lens_versions import made

MODEL = cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3), seed=0, dtype=torch.float64)
# Where '2' gets nothing, the first and the last have nothing to attend to.
COUNTS = torch.tensor([[0, 0, 0], [1, 2, 0], [3, 1, 2], [4, 4, 1], [0, 0, 2]])
RATIOS = cl.Ratios(w01=2.0, w02=math.inf)
MEAN = cl.Ablate([0], "mean", COUNTS)


@pytest.mark.parametrize("place", [AT_EQUALS, AT_ANSWER])
@pytest.mark.parametrize(
    "interventions",
    [
        [MEAN],
        [RATIOS, MEAN],
        [MEAN, RATIOS],
        [RATIOS + MEAN],
        [MEAN + RATIOS + cl.Ablate([2])],
        [cl.Ablate([0, 1, 2], "mean", COUNTS), RATIOS],
        [RATIOS, cl.Ablate([0, 1, 2], "mean", COUNTS)],
        [RATIOS, MEAN, cl.Ratios(w01=0.5, w02=1.0, heads=[0, 1], others="keep")],
    ],
)
def test_outputs_that_are_replaced_are_so_in_any_order_and_in_both_runners(interventions, place):
    prompts = CountPrompts.of(COUNTS, place)
    counts, hooks = CountRunner(CountForm.from_models([MODEL]), MODEL), HookRunner(MODEL)
    for intervention in interventions:
        counts, hooks = counts.under(intervention), hooks.under(intervention)
    assert isinstance(counts, CountRunner)
    torch.testing.assert_close(counts.outputs(prompts), hooks.outputs(prompts))
    for without in ((), (0,), (1, 2)):
        torch.testing.assert_close(counts.logits(prompts, without), hooks.logits(prompts, without))


def test_a_mean_is_that_of_the_whole_model_whatever_else_is_left_out():
    """Heads that a runner leaves out are left out after an intervention was measured."""
    model = two_layers()
    prompts = CountPrompts.of(COUNTS, AT_EQUALS)
    mean = cl.head_outputs(model, COUNTS).mean(dim=0)[3]

    def replaced(z, hook):
        z = z.clone()
        z[:, :, 0] = mean if hook.layer() == 1 else 0.0
        return z

    hooks = [(f"blocks.{layer}.attn.hook_z", replaced) for layer in (0, 1)]
    with model.hooks(fwd_hooks=hooks):
        expected = HookRunner(model).logits(prompts)
    runner = HookRunner(model).under(cl.Ablate([(1, 0)], "mean", COUNTS))
    torch.testing.assert_close(runner.logits(prompts, [0]), expected)
    zeroed = HookRunner(model).logits(prompts, [0, 3])
    torch.testing.assert_close(runner.logits(prompts, [0, 3]), zeroed)


def test_what_cannot_be_told_from_counts_comes_after_what_can():
    """An earlier intervention is not forgotten when the model has to be run on sequences."""
    prompts = CountPrompts.of(torch.tensor([[1, 1, 1]]), AT_EQUALS)
    earlier, later = cl.Ratios(w01=9.0, w02=9.0, heads=[0]), cl.CopyFrom("012=", heads=[1])
    runner = CountRunner(CountForm.from_models([MODEL]), MODEL).under(earlier).under(later)
    assert runner.why_not_counts == "CopyFrom cannot be told from counts"
    with earlier.applied(MODEL), later.applied(MODEL):
        expected = MODEL(prompts.sequences()[0][None])[:, prompts.positions[0]]
    torch.testing.assert_close(runner.logits(prompts), expected.detach())
    without_copy = HookRunner(MODEL).under(earlier).logits(prompts)
    assert not torch.allclose(runner.logits(prompts), without_copy)
    without_ratios = HookRunner(MODEL).under(later).logits(prompts)
    assert not torch.allclose(runner.logits(prompts), without_ratios)


@pytest.mark.parametrize("both", [RATIOS + MEAN, MEAN + RATIOS])
def test_a_list_of_hooks_measures_what_a_block_measures(both):
    tokens = torch.tensor([[0, 1, 2, 2, 4]])
    with both.applied(MODEL):
        expected = MODEL(tokens)
    hooks = both.fwd_hooks(MODEL, tokens)
    torch.testing.assert_close(MODEL.run_with_hooks(tokens, fwd_hooks=hooks), expected)
    assert cl.why_not_counts(MODEL) is None  # no hook is left


def test_no_tokens_are_kept_that_nobody_needs():
    with cl.ablate_heads(MODEL, [0]), torch.no_grad():
        tokens = torch.tensor([[0, 1, 2, 4]])
        MODEL(tokens)
        known = weakref.ref(tokens)
        del tokens
        gc.collect()
        assert known() is None


def over_other_tokens():
    return made(
        d_model=8, d_head=4, n_heads=2, n_layers=2, n_ctx=8, d_vocab=12, attn_only=True,
        normalization_type=None, dtype=torch.float64, seed=3,
    )  # fmt: skip


def test_a_model_over_other_tokens_is_ablated():
    model = over_other_tokens()
    prompts = cl.Prompts([[9, 11, 3], [10, 2, 2]], answers=[1, 2])
    with cl.ablate_heads(model, [(0, 1), 2]):
        found = cl.head_outputs(model, prompts)
    assert not found[:, [1, 2]].any()
    assert found[:, [0, 3]].any()
    mean = cl.head_outputs(model, prompts).mean(dim=0)
    with cl.ablate_heads(model, [1], "mean", data=prompts):
        torch.testing.assert_close(cl.head_outputs(model, prompts)[:, 1], mean[1].expand(2, -1))
    with (
        pytest.raises(ValueError, match="data: expected prompts for mode='mean', got none"),
        cl.ablate_heads(model, [1], "mean"),
    ):
        pass
