"""What comes between a model and what is said of it is found at its first use."""

import dataclasses

import pytest
import torch

import count01_lens as cl
from count01_lens.attention.interventions import Intervention
from count01_lens.attention.patches import Ratios
from count01_lens.common.remembered import Remembered
from count01_lens.heads import guard
from count01_lens.heads.runners import CountRunner, HookRunner, as_prompts, head_outputs, runner_for
from count01_lens.models.checkpoints import example_file, open_checkpoint
from count01_lens.models.direct_path import DirectPath
from count01_lens.models.hooks import hooks_attached
from count01_lens.models.stored import StoredModel
from tests.helpers import TINY, deep_model, two_layers
from tests.lens_versions import needs_3

PROMPTS = as_prompts(TINY.test)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(guard, "_CHECKED", Remembered(most=100))


class Doubler(torch.nn.Module):
    def forward(self, value):
        return 2 * value


def test_a_module_in_the_place_of_a_hook_point_is_refused():
    model = cl.example_model()
    model.blocks[0].attn.hook_z = Doubler()
    for call in (
        lambda: cl.analyze_heads(model, TINY),
        lambda: head_outputs(model, TINY.test),
        lambda: cl.Ablate([0]).applied(model).__enter__(),
        lambda: cl.Ratios(w01=1.0, w02=1.0).applied(model).__enter__(),
    ):
        with pytest.raises(
            ValueError, match=r"hook point blocks.0.attn.hook_z .* got a Doubler .* take it out"
        ):
            call()


def test_a_hook_point_that_no_hook_reaches_is_refused():
    """Of the right type, but not the one in the model's list of hook points."""
    model = two_layers()
    model.blocks[1].attn.hook_z = type(model.hook_dict["hook_embed"])()
    with pytest.raises(ValueError, match=r"blocks.1.attn.hook_z"):
        head_outputs(model, TINY.test)


@needs_3("blocks of bridges are wrapped, and not put together by `setup`")
@pytest.mark.parametrize("name", ["attn", "hook_attn_out", "hook_resid_post"])
@pytest.mark.parametrize("normalization", [None, "RMS"])
def test_what_comes_after_the_heads_is_noticed(name, normalization):
    model = two_layers(normalization)
    assert HookRunner(model).attribute(PROMPTS).heads.shape[1] == 6
    block = model.blocks[1]
    setattr(block, name, torch.nn.Sequential(getattr(block, name), Doubler()))
    if name == "attn":
        block.attn = two_layers(normalization).blocks[1].attn
        forward = block.attn.forward
        block.attn.forward = lambda *inputs, **more: 2 * forward(*inputs, **more)
    model.setup()
    with pytest.raises((ValueError, KeyError)) as error:
        HookRunner(model).attribute(PROMPTS)
    assert name != "attn" or "expected edits at hook_z to act" in str(error.value)


def test_a_hook_after_the_heads_that_scales_what_they_write_is_refused():
    model = two_layers("LN")
    with (
        hooks_attached(model, [("blocks.0.hook_attn_out", lambda value, hook: 0.5 * value)]),
        pytest.raises(ValueError, match="what attention of layer 0 adds, and its heads through"),
    ):
        cl.analyze_heads(model, TINY)


def test_a_steering_vector_is_no_matter():
    """A constant in the residual stream is none of the heads' doing, and belongs to the rest."""
    model, vector = two_layers("LN"), torch.linspace(-1, 1, 12, dtype=torch.float64)
    with hooks_attached(model, [("blocks.1.hook_resid_post", lambda value, hook: value + vector)]):
        steered = HookRunner(model).attribute(PROMPTS)
        logits = HookRunner(model).logits(PROMPTS)
    torch.testing.assert_close(steered.heads.sum(dim=1) + steered.rest, logits)


def test_logits_that_are_changed_are_refused():
    model = two_layers("LN")
    forward = model.unembed.forward
    vars(model.unembed)["forward"] = lambda residual: forward(residual) * 1.01
    with pytest.raises(ValueError, match="logits, and the residual stream through W_U"):
        cl.analyze_heads(model, TINY)


def test_logits_that_depend_on_the_batch_are_refused():
    model = two_layers(None)
    forward = model.unembed.forward
    vars(model.unembed)["forward"] = lambda residual: forward(residual) + 0.01 * len(residual)
    with pytest.raises(ValueError, match="logits in a batch, and one by one"):
        cl.analyze_heads(model, TINY)


def test_an_ablation_without_effect_is_refused(monkeypatch):
    monkeypatch.setattr(guard, "ablation_hooks", lambda model, heads: [])
    with pytest.raises(ValueError, match="outputs of heads of layer 0 that are set to zero"):
        HookRunner(two_layers()).attribute(PROMPTS)


def test_an_attribution_that_is_wrong_is_refused(monkeypatch):
    """As if a norm after attention were forgotten."""
    model = deep_model(normalization_type="RMS", use_normalization_before_and_after=True)
    HookRunner(model).attribute(PROMPTS)
    monkeypatch.setattr(guard, "_CHECKED", Remembered(most=100))
    monkeypatch.setattr(DirectPath, "norm_after_attention", lambda self, layer: None)
    with pytest.raises(ValueError, match="what attention of layer 0 adds"):
        HookRunner(model).attribute(PROMPTS)


def test_a_model_is_checked_once_and_again_when_it_was_changed(monkeypatch):
    checks, good = [], guard._attribution

    def counted(model, visits, each):
        checks.append(len(each))
        return good(model, visits, each)

    monkeypatch.setattr(guard, "_attribution", counted)
    model = two_layers()
    for _ in range(3):
        HookRunner(model).attribute(PROMPTS)
    assert checks == [guard.N_PROMPTS]
    model.W_U.data[0, 0] += 1
    HookRunner(model).attribute(PROMPTS)
    HookRunner(model).under(cl.Ablate([0])).attribute(PROMPTS)
    assert len(checks) == 3
    with hooks_attached(model, [("hook_embed", lambda value, hook: value)]):
        HookRunner(model).attribute(PROMPTS)
        HookRunner(model).attribute(PROMPTS)
    assert len(checks) == 5, "hooks may do other things each time"


@dataclasses.dataclass(frozen=True)
class Wrong(Ratios):
    """A patch that does to tables something else than to the model."""

    def on_counts(self, form):
        return (
            dataclasses.replace(self, w01=2 * self.w01).on_counts(form)
            if self.w01 < 8
            else super().on_counts(form)
        )


def test_an_intervention_that_differs_on_tables_is_refused():
    runner = runner_for(cl.example_model(), PROMPTS)
    assert isinstance(runner, CountRunner)
    assert isinstance(runner.under(Ratios(w01=1.0, w02=2.0)), CountRunner)
    with pytest.raises(ValueError, match="Wrong: logits at '=', on counts and by hooks"):
        runner.under(Wrong(w01=1.0, w02=2.0))
    with pytest.raises(ValueError, match="Wrong: logits at '=', on counts and by hooks"):
        runner.under(cl.Ablate([1]) + Wrong(w01=1.0, w02=2.0))


def test_on_a_stored_model_only_interventions_of_others_are_tried():
    runner = runner_for(open_checkpoint(example_file("accurate")), PROMPTS)
    assert isinstance(runner, CountRunner)
    assert isinstance(runner.model, StoredModel)
    ours = runner.under(Ratios(w01=1.0, w02=2.0) + cl.Ablate([1]))
    assert "_hooked" not in vars(runner.model)
    by_model = runner_for(cl.example_model(), PROMPTS).under(Ratios(w01=1.0, w02=2.0))
    assert torch.equal(ours.logits(PROMPTS), by_model.under(cl.Ablate([1])).logits(PROMPTS))
    with pytest.raises(ValueError, match="Wrong: logits at '=', on counts and by hooks"):
        runner.under(Wrong(w01=1.0, w02=2.0))


def test_what_counts_cannot_tell_is_run_on_the_hooked_transformer():
    prompts, copied = as_prompts(torch.tensor([[1, 2, 1], [3, 0, 1]])), cl.CopyFrom("0011=")
    stored = runner_for(open_checkpoint(example_file("accurate")), prompts).under(copied)
    model = runner_for(cl.example_model(), prompts).under(copied)
    assert isinstance(stored, HookRunner)
    assert torch.equal(stored.logits(prompts), model.logits(prompts))


def test_an_intervention_is_tried_once(monkeypatch):
    tried, good = [], Intervention.applied

    def counted(self, model):
        tried.append(self)
        return good(self, model)

    monkeypatch.setattr(Ratios, "applied", counted)
    runner = runner_for(cl.example_model(), PROMPTS)
    runner.under(Ratios(w01=1.0, w02=2.0))
    n = len(tried)
    assert n > 0
    runner.under(Ratios(w01=3.0, w02=2.0))
    assert len(tried) == n


@pytest.mark.parametrize("n_ctx", [2, 8])
def test_a_short_context_can_be_patched(n_ctx):
    model = cl.example_model()
    model.cfg.n_ctx = n_ctx
    runner = runner_for(model, PROMPTS).under(Ratios(w01=1.0, w02=2.0))
    assert isinstance(runner, CountRunner)


@needs_3("native bridges have no results of single heads")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_hides_nothing(dtype):
    """A head that a hook takes out is smaller than the rounding of all others together."""
    model = deep_model(normalization_type="LN", n_heads=8, dtype=dtype)
    model.set_use_attn_result(True)
    HookRunner(model).attribute(PROMPTS)

    def without(result, hook):
        result[:, :, 3] = 0
        return result

    with (
        hooks_attached(model, [("blocks.1.attn.hook_result", without)]),
        pytest.raises(
            ValueError, match=r"no hooks .* after the heads .* blocks.1.attn.hook_result"
        ),
    ):
        HookRunner(model).attribute(PROMPTS)
    forward = model.blocks[1].attn.forward
    model.blocks[1].attn.forward = lambda *inputs, **more: 1.01 * forward(*inputs, **more)
    with pytest.raises(ValueError, match=r"no replaced methods .* got some at blocks.1.attn;"):
        HookRunner(model).attribute(PROMPTS)
