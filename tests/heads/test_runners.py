"""Heads through counts against heads through real hooks."""

import contextlib

import pytest
import torch

import count01_lens as cl
from count01_lens.attention.ablation import Ablate, ablate_heads
from count01_lens.attention.patches import Ratios
from count01_lens.counts.applies import why_not_counts
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads.runners import (
    CountRunner,
    HookRunner,
    as_prompts,
    head_logits,
    head_outputs,
    model_logits,
    runner_for,
)
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.hooks import batches, check_heads, head_names, hooks_attached
from count01_lens.models.lens import parameters_of
from count01_lens.tasks.dataset import make_splits, sequences_of
from tests.helpers import TINY, two_layers
from tests.lens_versions import KIND, has_bridges, made

COUNTS = torch.tensor([[3, 5, 2], [0, 0, 0], [7, 0, 1], [4, 4, 4], [0, 9, 0]])
SEQUENCES = sequences_of(COUNTS)
AT_EQUALS = [len(sequence) - 3 for sequence in SEQUENCES]


@pytest.mark.parametrize("output", ["fused", "residual"])
@pytest.mark.parametrize("at", ["=", "answer"])
def test_counts_agree_with_hooks_on_sequences(output, at):
    model = build_model(ModelConfig(output=output), seed=3, dtype=torch.float64)
    positions = [len(sequence) - (3 if at == "=" else 2) for sequence in SEQUENCES]
    prompts, by_hooks = as_prompts(COUNTS, at), HookRunner(model)
    assert prompts.positions == positions
    assert isinstance(runner_for(model, prompts), CountRunner)
    torch.testing.assert_close(head_outputs(model, COUNTS, at), by_hooks.outputs(prompts))
    attributed = by_hooks.attribute(prompts)
    torch.testing.assert_close(head_logits(model, COUNTS, at), attributed.heads)
    rest = runner_for(model, prompts).attribute(prompts).rest
    torch.testing.assert_close(rest, attributed.rest)
    logits = torch.stack([model(s[None])[0, p] for s, p in zip(SEQUENCES, positions, strict=True)])
    torch.testing.assert_close(model_logits(model, COUNTS, at), logits.detach())
    torch.testing.assert_close(by_hooks.logits(prompts), logits.detach())


INTERVENTIONS = [
    Ablate([2, 7]),
    Ablate([(0, 4)], "mean"),
    Ablate([4], "mean", [[1, 2, 3], [4, 0, 1]]),
    Ratios(w01=2.0, heads=[1, 3]),
    Ratios(w01=1.0, w02=float("inf"), others="keep", at="answer"),
    cl.Weights({"0": 1, "=": 0.5}, heads=[0, 9]),
    Ablate([5]) + Ratios(w01=0.1, w02=3.0, heads=[5, 6]),
    Ratios(w01=0.1, w02=3.0, heads=[5, 6]) + Ratios(w01=9.0, w02=2.0, heads=[6]) + Ablate([0]),
    cl.Weights({"1": 1}, heads=[1]) + Ratios(w01=None, w02=5.0, heads=[2], others="keep"),
]


@pytest.mark.parametrize("intervention", INTERVENTIONS)
@pytest.mark.parametrize("at", ["=", "answer"])
def test_both_runners_give_the_same_under_an_intervention(intervention, at):
    model = example_model().double()
    prompts = as_prompts(COUNTS, at)
    by_counts = CountRunner(CountForm.from_models([model])).under(intervention)
    by_hooks = HookRunner(model).under(intervention)
    assert isinstance(by_counts, CountRunner)
    for without in ((), (1, 5)):
        torch.testing.assert_close(
            by_counts.logits(prompts, without), by_hooks.logits(prompts, without), rtol=0, atol=1e-9
        )
    torch.testing.assert_close(
        by_counts.outputs(prompts), by_hooks.outputs(prompts), rtol=0, atol=1e-10
    )
    for part in ("heads", "rest"):
        torch.testing.assert_close(
            getattr(by_counts.attribute(prompts), part),
            getattr(by_hooks.attribute(prompts), part),
            rtol=0,
            atol=1e-9,
        )
    assert not any(module._forward_hooks for module in model.modules())


def test_what_counts_cannot_tell_is_run_by_hooks():
    model, prompts = example_model(), as_prompts([[1, 2, 1], [2, 1, 1]])
    copied = cl.CopyFrom("0110=")
    runner = runner_for(model, prompts).under(copied)
    assert isinstance(runner, HookRunner)
    with copied.applied(model):
        expected = model_logits(model, prompts)
    torch.testing.assert_close(runner.logits(prompts), expected)
    tables_alone = CountRunner(CountForm.from_models([model]))
    with pytest.raises(ValueError, match="expected a model to run on sequences"):
        tables_alone.under(copied)


def test_prompts_of_tokens_are_run_by_hooks_whatever_the_model():
    model = example_model()
    prompts = cl.Prompts([[0, 1, 2, 4], [0, 2, 4]], answers=[6, 5])
    runner = runner_for(model, prompts)
    assert runner.why_not_counts == "its prompts are written out as tokens"
    expected = torch.stack([model(row[None])[0, -1] for row in prompts.sequences()])
    torch.testing.assert_close(runner.logits(prompts), expected.detach())
    with pytest.raises(TypeError, match="prompts: expected counts, got Prompts"):
        CountRunner(CountForm.from_models([model])).outputs(prompts)


def test_a_task_over_other_tokens_is_analysed():
    """Nine tokens, two layers, three answers, asked at different positions."""
    generator = torch.Generator().manual_seed(0)
    model = made(
        d_model=8, d_head=4, n_heads=2, n_layers=2, n_ctx=8, d_vocab=9, attn_only=True,
        normalization_type="LN", seed=1,
    )  # fmt: skip
    rows = [torch.randint(0, 9, (length,), generator=generator) for length in [5, 6, 7] * 20]
    answers = [int(row.max()) % 3 + 4 for row in rows]
    short = [len(row) == 5 for row in rows]
    prompts = cl.Prompts(rows, answers, position=[-1, 4, -2] * 20, subsets={"short": short})
    task = cl.Task.split(prompts, test=0.4, seed=1)
    analysis = cl.analyze_heads(model, task)
    assert list(analysis.pairs) == ["l_acc", "roc_auc", "s_acc"]
    assert analysis.counts is None
    assert set(analysis.accuracy) == {"answer", "short"}
    test = task.questions["answer"].test
    logits = torch.stack(
        [model(row[None])[0, at] for row, at in zip(test.sequences(), test.positions, strict=True)]
    )
    said = torch.tensor([4, 5, 6])[logits[:, [4, 5, 6]].argmax(dim=1)]
    assert analysis.accuracy["answer"] == pytest.approx(
        (said == test.answers).double().mean().item()
    )
    with ablate_heads(model, [0, 2, 3]):
        z = head_outputs(model, test)
    assert not z[:, [0, 2, 3]].any()
    with ablate_heads(model, [0, 2, 3]):
        alone = runner_for(model, test).logits(test)
    said = torch.tensor([4, 5, 6])[alone[:, [4, 5, 6]].argmax(dim=1)]
    assert analysis.table["l_acc"][1] == pytest.approx(
        (said == test.answers).double().mean().item()
    )
    assert analysis.shapley("s_acc").shape == (4,)


@pytest.mark.parametrize("normalization", [None, "LN", "LNPre", "RMS", "RMSPre"])
def test_a_deep_model_with_everything_goes_through_sequences(normalization):
    model = two_layers(normalization)
    assert why_not_counts(model) is not None
    z = head_outputs(model, COUNTS)
    assert z.shape == (5, 6, 4)
    _, cache = model.run_with_cache(SEQUENCES[0][None])
    expected = torch.cat([cache["z", layer][0, AT_EQUALS[0]] for layer in (0, 1)])
    torch.testing.assert_close(z[0], expected)


@pytest.mark.parametrize("normalization", [None, "LN", "LNPre", "RMS"])
def test_attributions_of_a_deep_model_add_up_with_everything_else(normalization):
    """All that is written into the stream, each part through the frozen norm, gives the logits."""
    model = two_layers(normalization)
    if normalization is None:
        attributed = head_logits(model, COUNTS)
    else:
        with pytest.warns(UserWarning, match="frozen scale"):
            attributed = head_logits(model, COUNTS)
    sequence, at = SEQUENCES[0][None], AT_EQUALS[0]
    logits, cache = model.run_with_cache(sequence)
    rest = cache["embed"] + cache["pos_embed"] + cache["mlp_out", 0] + cache["mlp_out", 1]
    rest = (rest + model.b_O.sum(dim=0))[0, at]
    if normalization in ("LN", "LNPre"):
        rest = rest - rest.mean()
    bias = model.b_U.clone()
    if normalization is not None:
        rest = rest / cache["ln_final.hook_scale"][0, at]
        rest = rest * getattr(model.ln_final, "w", 1.0)
        bias = bias + getattr(model.ln_final, "b", torch.zeros(12).double()) @ model.W_U
    total = attributed[0].sum(dim=0) + rest @ model.W_U + bias
    torch.testing.assert_close(total, logits[0, at])


def test_transformer_lens_attributes_the_same_in_a_deep_model():
    model = two_layers("LN")
    with pytest.warns(UserWarning, match="frozen scale"):
        attributed = head_logits(model, COUNTS)
    _, cache = model.run_with_cache(SEQUENCES[2][None])
    stacked = cache.stack_head_results(layer=2, pos_slice=AT_EQUALS[2])
    scaled = cache.apply_ln_to_stack(stacked, layer=2, pos_slice=AT_EQUALS[2])
    torch.testing.assert_close(attributed[2], (scaled * model.ln_final.w)[:, 0] @ model.W_U)


def fingerprint(model):
    hooks = {name: len(module._forward_hooks) for name, module in model.named_modules()}
    return hooks, model(SEQUENCES[0][None]).detach().clone()


@pytest.mark.parametrize("make", [lambda: build_model(dtype=torch.float64), two_layers])
def test_ablation_is_zeroing_and_is_undone(make):
    model = make()
    hooks, logits = fingerprint(model)
    last = model.cfg.n_layers - 1
    with ablate_heads(model, [(last, 1)]) as same:
        assert same is model
        without = model(SEQUENCES[0][None])
        _, cache = model.run_with_cache(SEQUENCES[0][None])
        assert not cache["z", last][:, :, 1].any()
        assert cache["z", last][:, :, 0].any()
    W_O = model.W_O.data.clone()
    model.blocks[last].attn.W_O.data[1] = 0
    torch.testing.assert_close(without, model(SEQUENCES[0][None]))
    model.blocks[last].attn.W_O.data.copy_(W_O[last])
    after_hooks, after = fingerprint(model)
    assert after_hooks == hooks
    assert torch.equal(after, logits)


def test_ablation_nests_and_survives_exceptions_and_resets():
    model = build_model(dtype=torch.float64)
    hooks, logits = fingerprint(model)
    with contextlib.suppress(ZeroDivisionError), ablate_heads(model, [0]):
        with ablate_heads(model, [3, 5]):
            inner = model(SEQUENCES[0][None])
        outer = model(SEQUENCES[0][None])
        model.reset_hooks()  # TransformerLens's own, which ours are not
        assert torch.equal(model(SEQUENCES[0][None]), outer)
        raise ZeroDivisionError
    with ablate_heads(model, [0, 3, 5]):
        torch.testing.assert_close(model(SEQUENCES[0][None]), inner)
    assert not torch.allclose(inner, outer)
    after_hooks, after = fingerprint(model)
    assert after_hooks == hooks
    assert torch.equal(after, logits)


def test_counts_see_an_ablation():
    """Inside the block the short forms do not apply, and the slow way gives the ablated heads."""
    model = example_model()
    with ablate_heads(model, [2, 7]):
        z = head_outputs(model, COUNTS)
        ablated = model_logits(model, COUNTS)
    assert not z[:, [2, 7]].any()
    attributed = head_logits(model, COUNTS)
    expected = model_logits(model, COUNTS) - attributed[:, [2, 7]].sum(dim=1)
    torch.testing.assert_close(ablated, expected, atol=1e-4, rtol=1e-4)


def test_mean_ablation_puts_the_training_mean():
    model = build_model(dtype=torch.float64)
    mean = head_outputs(model, make_splits().train).mean(dim=0)
    with ablate_heads(model, [4], mode="mean"):
        z = head_outputs(model, COUNTS)
    torch.testing.assert_close(z[:, 4], mean[4].expand(5, -1))
    torch.testing.assert_close(z[:, 3], head_outputs(model, COUNTS)[:, 3])
    with ablate_heads(model, [4], mode="mean", data=[[1, 2, 3]]):
        z = head_outputs(model, COUNTS)
    torch.testing.assert_close(z[:, 4], head_outputs(model, [[1, 2, 3]])[:, 4].expand(5, -1))


def test_the_same_as_a_list_of_hooks():
    model = two_layers()
    hooks = Ablate([1, (1, 2)]).fwd_hooks(model)
    with ablate_heads(model, [(0, 1), 5]):
        expected = model(SEQUENCES[0][None])
    torch.testing.assert_close(model.run_with_hooks(SEQUENCES[0][None], fwd_hooks=hooks), expected)


def test_gradients_flow_through_an_ablation():
    model = build_model()
    with ablate_heads(model, [0]):
        model(SEQUENCES[0][None])[0, -3, 5].backward()
    gradient = parameters_of(model)["blocks.0.attn.W_V"].grad.reshape(model.cfg.n_heads, -1)
    assert gradient[1].any()
    assert not gradient[0].any()


def test_names():
    assert head_names(two_layers()) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert check_heads(two_layers(), [5, (0, 1), 1]) == [1, 5]


@pytest.mark.parametrize(
    ("heads", "error", "message"),
    [
        ([16], ValueError, "there is no head 16; .* 1 layer.s. of 16 heads, numbered 0 to 15"),
        ([-1], ValueError, "there is no head -1"),
        ([(1, 0)], ValueError, r"there is no head \(1, 0\)"),
        ([(0, 16)], ValueError, "there is no head"),
        ([], ValueError, "at least one head"),
        ([1.5], TypeError, "expected numbers or"),
        (3, TypeError, "heads: expected several"),
        ("3", TypeError, "heads: expected several"),
    ],
)
def test_bad_heads(heads, error, message):
    model = build_model()
    with pytest.raises(error, match=message), ablate_heads(model, heads):
        pass
    assert why_not_counts(model) is None


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: head_outputs(m, COUNTS, at="end"), ValueError, "at: expected"),
        (lambda m: head_outputs(m, [[1, 2]]), ValueError, "expected shape"),
        (lambda m: head_logits(torch.nn.Linear(1, 1), COUNTS), TypeError, KIND),
        (lambda m: Ablate([0], mode="half"), ValueError, "mode: expected 'zero'"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(build_model())


def test_models_that_cannot_be_analysed():
    other = made(d_model=4, d_head=2, n_layers=1, n_ctx=9, d_vocab=9, act_fn="relu")
    with pytest.raises(ValueError, match="expected the 8 tokens of Count01"):
        head_outputs(other, COUNTS)
    model = build_model()
    model.W_E.data[3, 3] = torch.nan
    with pytest.raises(ValueError, match="expected finite weights"):
        head_outputs(model, COUNTS)
    with pytest.raises(ValueError, match=r"a sentence has 122 tokens, the model reads 64"):
        head_outputs(two_layers(), [[100, 10, 10]])


def test_only_our_hooks_are_taken_away():
    model = build_model()
    seen = []
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: seen.append(1))
    with hooks_attached(model, [("blocks.0.attn.hook_z", lambda z, hook: z * 0)]):
        model(SEQUENCES[0][None])
    model(SEQUENCES[0][None])
    assert len(seen) == 2


def test_a_sentence_may_be_as_long_as_the_model_reads():
    model = two_layers()
    counts = torch.tensor([[20, 21, 0]])
    fits = 1 + 41 + 2  # '[BOS]', the body, '=' and the answer; '[EOS]' is not read
    model.cfg.n_ctx = fits
    assert model_logits(model, counts, "answer").shape == (1, 8)
    model.cfg.n_ctx = fits - 1
    assert model_logits(model, counts, "=").shape == (1, 8)
    with pytest.raises(ValueError, match=r"44 tokens, the model reads 43 \(n_ctx\)"):
        model_logits(model, counts, "answer")


LENGTHS = torch.tensor(
    [[3, 5, 2], [0, 0, 0], [7, 0, 1], [1, 4, 5], [0, 9, 0], [2, 2, 2], [0, 1, 0]]
)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("blocks.0.hook_resid_pre", lambda value: value[:, -1].add_(1.0)),
        ("blocks.0.attn.hook_z", lambda value: value.copy_(value.mean(dim=1, keepdim=True))),
    ],
)
@pytest.mark.parametrize("make", [lambda: build_model(dtype=torch.float64), two_layers])
def test_a_hook_sees_every_prompt_as_if_it_were_run_alone(make, name, change):
    """One on the last token, or over all tokens, would see padding in a batch."""
    model, prompts = make(), as_prompts(LENGTHS)
    alone = [
        tokens[None, : at + 1]
        for tokens, at in zip(prompts.sequences(), prompts.positions, strict=True)
    ]

    def hook(value, hook):
        change(value)
        return value

    with hooks_attached(model, [(name, hook)]):
        expected = torch.cat([model(tokens)[:, -1] for tokens in alone]).detach()
        z = [model.run_with_cache(tokens)[1]["blocks.0.attn.hook_z"][:, -1] for tokens in alone]
        outputs, logits = head_outputs(model, prompts), model_logits(model, prompts)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(outputs[:, : model.cfg.n_heads], torch.cat(z).detach())


def test_batches_are_of_one_length_and_of_every_prompt_once():
    prompts = as_prompts(LENGTHS.repeat(9, 1))
    found = list(batches(two_layers(), prompts.sequences(), prompts.positions))
    assert sorted(number for some, _, _ in found for number in some) == list(range(63))
    for some, tokens, asked in found:
        assert len(some) == len(tokens)
        assert tokens.numel() <= max(8192, 16 * tokens.shape[1])
        assert (asked == tokens.shape[1] - 1).all()
        for number, row in zip(some, tokens, strict=True):
            assert torch.equal(row, prompts.sequences()[number][: tokens.shape[1]])
    assert {tokens.shape[1] for _, tokens, _ in found} == {at + 1 for at in prompts.positions}
    assert len(found) == len({tokens.shape[1] for _, tokens, _ in found})


def test_a_mean_over_prompts_is_taken_by_hooks():
    model, data = example_model(), cl.Prompts([[0, 1, 2, 4], [0, 2, 4]], answers=[6, 5])
    prompts = as_prompts(COUNTS)
    runner = runner_for(model, prompts).under(Ablate([2], "mean", data))
    assert isinstance(runner, HookRunner)
    expected = HookRunner(model).outputs(data)[:, 2].mean(dim=0)
    torch.testing.assert_close(runner.outputs(prompts)[:, 2], expected.expand(5, -1))


def test_a_model_without_layers_is_refused():
    fields = dict(d_model=4, d_head=2, n_layers=0, n_ctx=9, d_vocab=8, attn_only=True)
    model = made(**fields, init_weights=not has_bridges())
    with pytest.raises(ValueError, match="model: expected at least one layer, got none"):
        head_outputs(model, COUNTS)


def test_autocast_does_not_reach_what_is_computed_here():
    model = example_model()
    expected = [head_logits(model, COUNTS), head_outputs(model, COUNTS), cl.qk_table(model, 2)]
    with torch.autocast("cpu", torch.bfloat16):
        found = [head_logits(model, COUNTS), head_outputs(model, COUNTS), cl.qk_table(model, 2)]
        table = cl.analyze_heads(model, TINY).table
    assert table.equals(cl.analyze_heads(model, TINY).table)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert found[2].equals(expected[2])
