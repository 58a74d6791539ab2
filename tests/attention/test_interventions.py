"""Attention patches: three ways agree, the row is what it should be, nothing is left behind."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import count01_lens as cl
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.compact import compact_hooks, compact_tokens, multiplied_at
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.heads.runners import model_logits
from count01_lens.models.lens import parameters_of
from count01_lens.tasks.dataset import sequences_of
from count01_lens.tasks.places import AT_EQUALS, place_at
from tests.helpers import hooks_left
from tests.lens_versions import KIND, NO_CACHE, made, needs_3
from tests.three_ways import largest_score

MODEL = cl.example_model()
DOUBLE = cl.example_model().double()
COUNTS = torch.tensor([[3, 5, 2], [7, 7, 0], [0, 4, 1], [2, 0, 6], [0, 0, 3], [0, 0, 0], [9, 1, 4]])
INF = math.inf
ZERO, TWO, EQUALS = 1, 3, 4
RATIOS = st.one_of(st.none(), st.just(0.0), st.just(INF), st.floats(1e-6, 1e6))


def collapsed_model(factor=1000, dtype=torch.float64):
    """Heads whose own pattern is exactly zero on most tokens: scores in the thousands."""
    model = cl.example_model().to(dtype, print_details=False)
    with torch.no_grad():
        model.blocks[0].attn.W_Q.mul_(factor)
        model.blocks[0].attn.b_Q.mul_(factor)
    return model


COLLAPSED = collapsed_model()


def sequence_logits(model, counts: Tensor, at: str = "=") -> Tensor:
    """The reference: one padded batch of sequences of different lengths through the model."""
    sequences = sequences_of(counts, seed=3)
    tokens = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=0)
    asked = torch.tensor([len(row) - (3 if at == "=" else 2) for row in sequences])
    with torch.no_grad():
        return model(tokens)[torch.arange(len(tokens)), asked]


def form_logits(model, counts, ratios, at="="):
    form = CountForm.from_models([model])
    asked = Multiplicities.of(counts, place_at(at), form.scores.dtype)
    return ratios.on_counts(form).logits(asked)[0]


def row_of(model, sentence: str, at: int = -1, **patch) -> Tensor:
    """The patched pattern of every head at one position of a sentence."""
    tokens = torch.tensor([cl.encode(sentence)])
    with cl.patch_attention(model, **patch), torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    return cache["blocks.0.attn.hook_pattern"][0, :, at]


def test_one_zero_one_one_and_one_two_get_the_asked_proportion():
    row = row_of(MODEL, "0112=", w01=4.0, w02=0.5)
    # [BOS] 0 1 1 2 =: weights 0, 1, 1/4, 1/4, 2, 0
    expected = torch.tensor([0, 1, 0.25, 0.25, 2, 0]) / 3.5
    torch.testing.assert_close(row, expected.expand(16, -1), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("w01", "w02", "expected"),
    [
        (INF, 1.0, [0, 1, 0, 0, 1, 0]),
        (1.0, INF, [0, 1, 1, 1, 0, 0]),
        (INF, INF, [0, 1, 0, 0, 0, 0]),
        (0.0, None, [0, 0, 1, 1, 0, 0]),
        (0.0, 5.0, [0, 0, 1, 1, 0, 0]),
        (0.0, INF, [0, 0, 1, 1, 0, 0]),
        (None, 0.0, [0, 0, 0, 0, 1, 0]),
        (3.0, 0.0, [0, 0, 0, 0, 1, 0]),
    ],
)
def test_zero_and_infinity(w01, w02, expected):
    row = row_of(MODEL, "0112=", w01=w01, w02=w02)
    expected = torch.tensor(expected) / sum(expected)
    torch.testing.assert_close(row, expected.expand(16, -1))


def test_none_keeps_the_ratio_of_each_head():
    table = cl.analyze_heads(MODEL).table
    row = row_of(DOUBLE, "012=", w01=1.0)
    for head, w02 in enumerate(table["w02"]):
        assert row[head, 1] == pytest.approx(row[head, 2])
        assert float(row[head, 1] / row[head, 3]) == pytest.approx(w02, rel=1e-4)
    assert (row[:, [0, 4]] == 0).all()


@pytest.mark.parametrize("others", ["zero", "keep"])
@pytest.mark.parametrize("at", ["=", "answer"])
@pytest.mark.parametrize(
    ("w01", "w02"), [(1.0, INF), (None, 0.3), (0.2, None), (0.0, None), (None, None), (INF, 0.0)]
)
def test_three_ways_agree(w01, w02, others, at):
    ratios = cl.Ratios(w01=w01, w02=w02, heads=(1, 3, 8, 15), others=others, at=at)
    tolerance = 1e-12 * max(1.0, largest_score(CountForm.from_models([DOUBLE])))
    patch = dict(w01=w01, w02=w02, heads=[1, 3, 8, 15], others=others, at=at)
    for asked in ("=", "answer"):
        with cl.patch_attention(DOUBLE, **patch), torch.no_grad():
            sequences = sequence_logits(DOUBLE, COUNTS, asked)
            compact = cl.compact_logits(DOUBLE, COUNTS, asked)
        closed = form_logits(DOUBLE, COUNTS, ratios, asked)
        assert torch.isfinite(sequences).all()
        torch.testing.assert_close(compact, sequences, atol=tolerance, rtol=0)
        torch.testing.assert_close(closed, sequences, atol=tolerance, rtol=0)
        original = sequence_logits(DOUBLE, COUNTS, asked)
        if asked == at and (w01, w02, others) != (None, None, "keep"):
            assert (sequences - original).abs().max() > 1e-2, "the patch changes nothing"
        elif asked != at:
            assert torch.equal(sequences, original)  # one layer: other rows are not touched


@given(
    RATIOS,
    RATIOS,
    st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=4),
    st.sampled_from(["zero", "keep"]),
    st.sampled_from([DOUBLE, COLLAPSED]),
)
def test_three_ways_agree_whatever_is_asked(w01, w02, counts, others, model):
    if w01 == 0 and w02 == 0:
        return
    counts = torch.tensor(counts)
    ratios = cl.Ratios(w01=w01, w02=w02, others=others)
    form = CountForm.from_models([model])
    tolerance = (
        1e-12 * max(1.0, largest_score(form)) * max(1.0, float(form.logit_weights.abs().max()))
    )
    with cl.patch_attention(model, w01=w01, w02=w02, others=others), torch.no_grad():
        sequences = sequence_logits(model, counts)
        compact = cl.compact_logits(model, counts)
    assert torch.isfinite(sequences).all()
    torch.testing.assert_close(compact, sequences, atol=tolerance, rtol=1e-12)
    closed = form_logits(model, counts, ratios)
    torch.testing.assert_close(closed, sequences, atol=tolerance, rtol=1e-12)


@pytest.mark.parametrize("model", [DOUBLE, COLLAPSED, cl.minimal_model(dtype=torch.float64)])
def test_own_ratios_with_the_others_kept_change_nothing(model):
    table = cl.analyze_heads(model).table
    original = sequence_logits(model, COUNTS)
    tolerance = 1e-11 * max(1.0, largest_score(CountForm.from_models([model])))
    with cl.patch_attention(model, others="keep"):
        torch.testing.assert_close(sequence_logits(model, COUNTS), original, atol=tolerance, rtol=0)
    if model is DOUBLE:  # the same ratios as numbers, head by head
        for head in (0, 9):
            own = dict(w01=float(table["w01"][head]), w02=float(table["w02"][head]))
            with cl.patch_attention(model, **own, heads=[head], others="keep"):
                torch.testing.assert_close(
                    sequence_logits(model, COUNTS), original, atol=1e-4, rtol=0
                )
    with cl.patch_attention(model, others="zero"):
        assert (sequence_logits(model, COUNTS) - original).abs().max() > 1e-3


def test_a_row_with_nothing_to_attend_to_gives_a_zero_output():
    tokens = torch.tensor([cl.encode("222=")])
    with cl.patch_attention(MODEL, w01=1.0, w02=INF), torch.no_grad():
        _, cache = MODEL.run_with_cache(tokens)
    assert (cache["blocks.0.attn.hook_z"][0, -1] == 0).all()
    assert torch.isfinite(cache["blocks.0.attn.hook_pattern"]).all()
    row = row_of(MODEL, "222=", w01=1.0, w02=INF, others="keep")
    original = MODEL.run_with_cache(tokens)[1]["blocks.0.attn.hook_pattern"][0, :, -1]
    assert torch.equal(row[:, [0, 4]], original[:, [0, 4]])
    assert (row[:, 1:4] == 0).all()


def test_a_collapsed_head_can_be_opened_again():
    """Reweighting its pattern would be 0 · ∞."""
    own = COLLAPSED.run_with_cache(torch.tensor([cl.encode("2210=")]))[1]
    collapsed = (own["blocks.0.attn.hook_pattern"][0, :, -1] == 0).sum(dim=-1) >= 4
    assert collapsed.sum() >= 4
    row = row_of(COLLAPSED, "2210=", w01=1.0, w02=1.0)
    expected = torch.tensor([0, 1, 1, 1, 1, 0]).double() / 4
    torch.testing.assert_close(row, expected.expand(16, -1))


def test_other_heads_and_other_rows_stay_as_they_are():
    tokens = torch.tensor([cl.encode("01120=4")])
    original = MODEL.run_with_cache(tokens)[1]["blocks.0.attn.hook_pattern"][0]
    with cl.patch_attention(MODEL, w01=7.0, heads=[2, 5]), torch.no_grad():
        patched = MODEL.run_with_cache(tokens)[1]["blocks.0.attn.hook_pattern"][0]
    changed = (patched != original).any(dim=-1)
    assert changed.nonzero().tolist() == [[2, 6], [5, 6]]


def test_a_list_of_hooks_does_the_same():
    tokens = torch.tensor([cl.encode("01120=")])
    patch = dict(w01=0.3, heads=[(0, 2), 7], others="keep")
    with cl.patch_attention(MODEL, **patch), torch.no_grad():
        expected = MODEL(tokens)
    ratios = cl.Ratios(**patch)
    listed = MODEL.run_with_hooks(tokens, fwd_hooks=ratios.fwd_hooks(MODEL, tokens))
    assert torch.equal(listed, expected)
    assert not torch.equal(listed, MODEL(tokens))
    assert torch.equal(
        MODEL.run_with_hooks("01120=", fwd_hooks=ratios.fwd_hooks(MODEL, "01120=")), expected
    )
    six = compact_tokens(COUNTS)
    hooks = [*compact_hooks(COUNTS), *ratios.fwd_hooks(MODEL, six)]
    compact = MODEL.run_with_hooks(six, fwd_hooks=hooks)
    with cl.patch_attention(MODEL, **patch), torch.no_grad():
        assert torch.equal(compact[:, 4], cl.compact_logits(MODEL, COUNTS))


def test_tokens_with_equal_embeddings_are_told_apart():
    model = cl.build_model(seed=0)
    with torch.no_grad():
        model.W_E[cl.Token.ONE] = model.W_E[cl.Token.ZERO]
    expected = torch.tensor([0, 2, 1, 0]) / 3
    torch.testing.assert_close(row_of(model, "01=", w01=2.0, w02=1.0)[0], expected)
    seen = []
    hooks = cl.Ratios(w01=2.0, w02=1.0).fwd_hooks(model, "01=")
    watch = ("blocks.0.attn.hook_pattern", lambda pattern, hook: seen.append(pattern[0, 0, -1]))
    model.run_with_hooks("01=", fwd_hooks=[*hooks, watch])
    torch.testing.assert_close(seen[0], expected)


def test_a_list_of_hooks_is_for_the_tokens_that_were_given():
    with pytest.raises(ValueError, match="expected the tokens that the model will be run on"):
        cl.Ratios(w01=2.0).fwd_hooks(MODEL)
    hooks = cl.Ratios(w01=2.0).fwd_hooks(MODEL, "01=")
    with pytest.raises(ValueError, match=r"run on the tokens \[1, 4\] .* pattern over \[1, 5\]"):
        MODEL.run_with_hooks("011=", fwd_hooks=hooks)
    MODEL.reset_hooks()


def test_interventions_are_values():
    ratios = cl.Ratios(w01=1, heads=[3, (0, 5)])
    assert ratios == cl.Ratios(w01=1.0, heads=(3, (0, 5)))
    assert ratios != cl.Ratios(w01=1.0, heads=(3,))
    assert cl.Ablate([1]) + ratios + cl.Ablate([2]) == cl.Ablate([1]) + (ratios + cl.Ablate([2]))
    given = {"0": 1.0}
    weights = cl.Weights(given)
    given["0"] = 5.0
    assert weights.weights == {"0": 1.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        ratios.w01 = 2.0
    with pytest.raises(TypeError, match="unsupported operand"):
        ratios + "patch"


def test_combined_interventions_can_be_applied_and_listed():
    tokens = torch.tensor([cl.encode("01120=")])
    both = cl.Ablate([4]) + cl.Ratios(w01=0.3, heads=[2]) + cl.CopyFrom("00112=", heads=[7])
    with (
        cl.ablate_heads(MODEL, [4]),
        cl.patch_attention(MODEL, w01=0.3, heads=[2]),
        cl.copy_attention(MODEL, "00112=", heads=[7]),
        torch.no_grad(),
    ):
        expected = MODEL(tokens)
    with both.applied(MODEL) as same, torch.no_grad():
        assert same is MODEL
        assert torch.equal(MODEL(tokens), expected)
    listed = MODEL.run_with_hooks(tokens, fwd_hooks=both.fwd_hooks(MODEL, tokens))
    assert torch.equal(listed, expected)
    assert both.on_counts(CountForm.from_models([MODEL])) is None
    assert hooks_left(MODEL) == 0


def test_patches_nest_with_ablation_and_with_each_other():
    counts = COUNTS[:3]
    with cl.ablate_heads(DOUBLE, [4]), cl.patch_attention(DOUBLE, w01=1.0, w02=INF, heads=[2, 4]):
        both = sequence_logits(DOUBLE, counts)
    ratios = cl.Ratios(w01=1.0, w02=INF, heads=(2, 4))
    patched = ratios.on_counts(CountForm.from_models([DOUBLE]))
    asked = Multiplicities.of(counts, AT_EQUALS, torch.float64)
    expected = patched.logits(asked)[0] - patched.head_logits(asked)[0, :, 4]
    torch.testing.assert_close(both, expected, atol=1e-10, rtol=0)
    with cl.patch_attention(DOUBLE, w01=9.0, w02=9.0), cl.patch_attention(DOUBLE, w01=1.0, w02=INF):
        inner = sequence_logits(DOUBLE, counts)
    with cl.patch_attention(DOUBLE, w01=1.0, w02=INF):
        assert torch.equal(inner, sequence_logits(DOUBLE, counts))


def test_nothing_is_left_behind_not_even_after_an_exception():
    original = sequence_logits(MODEL, COUNTS)
    with pytest.raises(ZeroDivisionError), cl.patch_attention(MODEL, w01=2.0):
        1 // (0 if hooks_left(MODEL) > 0 else 1)
    with cl.patch_attention(MODEL, w01=2.0), torch.no_grad():
        cl.compact_logits(MODEL, COUNTS)
    assert hooks_left(MODEL) == 0
    assert MODEL.hook_dict[multiplied_at()].ctx == {}
    assert torch.equal(sequence_logits(MODEL, COUNTS), original)
    assert MODEL.W_E.requires_grad


def test_multiplicities_of_an_interrupted_compact_run_are_not_used_later():
    def stop(pattern, hook):
        raise ZeroDivisionError

    hooks = [*compact_hooks(COUNTS), ("blocks.0.attn.hook_pattern", stop)]
    with pytest.raises(ZeroDivisionError):
        MODEL.run_with_hooks(compact_tokens(COUNTS), fwd_hooks=hooks)
    MODEL.reset_hooks()
    with cl.patch_attention(MODEL, w01=1.0, w02=1.0), torch.no_grad():
        _, cache = MODEL.run_with_cache(compact_tokens(COUNTS))
    row = cache["blocks.0.attn.hook_pattern"][:, :, 4]
    torch.testing.assert_close(row, torch.tensor([0, 1, 1, 1, 0, 0]).expand_as(row) / 3)
    with pytest.raises(ZeroDivisionError):
        MODEL.run_with_hooks(compact_tokens(COUNTS), fwd_hooks=hooks)
    MODEL.reset_hooks()
    listed = cl.Ratios(w01=1.0, w02=1.0).fwd_hooks(MODEL, compact_tokens(COUNTS))
    with MODEL.hooks(fwd_hooks=listed), torch.no_grad():
        _, cache = MODEL.run_with_cache(compact_tokens(COUNTS))
    torch.testing.assert_close(cache["blocks.0.attn.hook_pattern"][:, :, 4], row)


def test_the_answer_of_generation_follows_the_patch():
    """Generation runs token by token on cached keys."""
    assert MODEL.generate("0112=", max_new_tokens=1, do_sample=False, verbose=False)[-1] == "4"
    with cl.patch_attention(MODEL, w01=INF, w02=INF):  # sees only the '0'
        assert MODEL.generate("0112=", max_new_tokens=2, do_sample=False, verbose=False) == "0112=5"


@needs_3(NO_CACHE)
def test_cached_keys_follow_the_patch():
    from transformer_lens import TransformerLensKeyValueCache

    tokens = torch.tensor([cl.encode("0112=4")])
    with cl.patch_attention(MODEL, w01=0.0, at="answer"):
        whole = MODEL(tokens)[0, -1]
        cache = TransformerLensKeyValueCache.init_cache(MODEL.cfg, MODEL.cfg.device, 1)
        MODEL(tokens[:, :-1], past_kv_cache=cache)
        stepwise = MODEL(tokens[:, -1:], past_kv_cache=cache)[0, -1]
    torch.testing.assert_close(stepwise, whole, atol=1e-5, rtol=1e-5)


def test_library_functions_see_the_patch():
    counts = COUNTS[:2]
    with cl.patch_attention(DOUBLE, w01=1.0, w02=INF):
        inside = model_logits(DOUBLE, counts)
        outputs = cl.head_outputs(DOUBLE, counts)
    ratios = cl.Ratios(w01=1.0, w02=INF)
    torch.testing.assert_close(inside, form_logits(DOUBLE, counts, ratios), atol=1e-10, rtol=0)
    patched = ratios.on_counts(CountForm.from_models([DOUBLE]))
    expected = patched.head_outputs(Multiplicities.of(counts, AT_EQUALS, torch.float64))[0]
    torch.testing.assert_close(outputs, expected, atol=1e-10, rtol=0)


def test_gradients_pass_through_a_patch():
    model = cl.build_model(seed=1)
    with cl.patch_attention(model, w01=2.0, w02=1.0, others="keep"):
        model(torch.tensor([cl.encode("0112=")]))[0, -1].sum().backward()
    gradient = parameters_of(model)["blocks.0.attn.W_V"].grad
    assert torch.isfinite(gradient).all()
    assert (gradient != 0).any()


def deep_model():
    torch.manual_seed(0)
    return made(
        n_layers=2, d_model=12, n_heads=3, d_head=4, n_ctx=32, d_vocab=8, act_fn="relu", d_mlp=8
    )


def test_deeper_models_can_be_patched_too():
    model = deep_model()
    tokens = torch.tensor([cl.encode("0112=")])
    with cl.patch_attention(model, w01=2.0, w02=1.0, heads=[(1, 2)]), torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    row = cache["blocks.1.attn.hook_pattern"][0, 2, -1]
    torch.testing.assert_close(row, torch.tensor([0, 1, 0.5, 0.5, 1, 0]) / 3)
    _, original = model.run_with_cache(tokens)
    assert torch.equal(cache["blocks.0.attn.hook_pattern"], original["blocks.0.attn.hook_pattern"])
    assert torch.equal(
        cache["blocks.1.attn.hook_pattern"][0, :2], original["blocks.1.attn.hook_pattern"][0, :2]
    )
    with pytest.raises(ValueError, match="give both w01 and w02"):
        cl.patch_attention(model, w01=1.0).__enter__()


def test_any_weights_per_token():
    tokens = torch.tensor([cl.encode("0112=")])
    with cl.set_attention(MODEL, {"[BOS]": 1, "1": 1.5}, heads=[3]), torch.no_grad():
        _, cache = MODEL.run_with_cache(tokens)
    row = cache["blocks.0.attn.hook_pattern"][0, 3, -1]
    torch.testing.assert_close(row, torch.tensor([1, 0, 1.5, 1.5, 0, 0]) / 4)
    original = MODEL.run_with_cache(tokens)[1]["blocks.0.attn.hook_pattern"][0, 3, -1]
    weights = cl.Weights({"0": 1, "2": 3}, heads=[3], others="keep")
    hooks = weights.fwd_hooks(MODEL, tokens)
    with MODEL.hooks(fwd_hooks=hooks):
        row = MODEL.run_with_cache(tokens)[1]["blocks.0.attn.hook_pattern"][0, 3, -1]
    assert torch.equal(row[[0, 2, 3, 5]], original[[0, 2, 3, 5]])
    assert float(row[4] / row[1]) == pytest.approx(3, rel=1e-5)
    assert float(row.sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "expected a mapping"),
        ({"3": 1.0}, "weights: token"),
        ({"0": -1.0}, "from 0 to infinity"),
        ({"0": math.nan}, "from 0 to infinity"),
        ({"0": INF}, "expected a finite number"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cl.set_attention(MODEL, weights).__enter__()


def test_attention_of_another_sentence():
    clean, corrupted = "0111=", "0001="
    tokens = torch.tensor([cl.encode(corrupted)])
    source = MODEL.run_with_cache(torch.tensor([cl.encode(clean)]))[1]["blocks.0.attn.hook_pattern"]
    with cl.copy_attention(MODEL, clean, heads=[1, 6]), torch.no_grad():
        patched = MODEL.run_with_cache(tokens)[1]["blocks.0.attn.hook_pattern"]
    own = MODEL.run_with_cache(tokens)[1]["blocks.0.attn.hook_pattern"]
    assert torch.equal(patched[0, [1, 6], -1], source[0, [1, 6], -1])
    others = [head for head in range(16) if head not in (1, 6)]
    assert torch.equal(patched[0, others], own[0, others])
    assert torch.equal(patched[0, :, :-1], own[0, :, :-1])
    copied = cl.CopyFrom(clean, heads=[1, 6])
    listed = MODEL.run_with_hooks(tokens, fwd_hooks=copied.fwd_hooks(MODEL, tokens))
    with cl.copy_attention(MODEL, clean, heads=[1, 6]), torch.no_grad():
        assert torch.equal(MODEL(tokens), listed)
    assert hooks_left(MODEL) == 0


def test_attention_cannot_be_copied_in_the_compact_form():
    with (
        cl.copy_attention(MODEL, "0112="),
        pytest.raises(ValueError, match="expected whole sentences, got the compact form"),
    ):
        cl.compact_logits(MODEL, torch.tensor([[1, 2, 1]]))
    assert hooks_left(MODEL) == 0


def test_attention_of_a_sentence_of_another_length_is_refused():
    with (
        cl.copy_attention(MODEL, "0111="),
        pytest.raises(ValueError, match=r"expected sentences of 6 tokens .* got \[5\]"),
    ):
        MODEL(torch.tensor([cl.encode("011=")]))
    with pytest.raises(ValueError, match="with its answer"):
        cl.copy_attention(MODEL, "01=", at="answer").__enter__()
    with pytest.raises(cl.MalformedSentenceError):
        cl.copy_attention(MODEL, "01").__enter__()
    with pytest.raises(ValueError, match="n_ctx"):
        cl.copy_attention(MODEL, "0" * 5000 + "=").__enter__()


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (dict(w01=-1.0), "w01: expected None or a number from 0 to infinity, got -1.0"),
        (dict(w02=math.nan), "w02: expected None or a number from 0 to infinity"),
        (dict(w01="1"), "w01: expected None or a number"),
        (dict(w01=True), "w01: expected None or a number"),
        (dict(w01=0, w02=0), "say nothing about '1' against '2'"),
        (dict(w01=1.0, heads=[16]), "there is no head 16"),
        (dict(w01=1.0, heads=[]), "at least one head"),
        (dict(w01=1.0, heads=3), "expected several"),
        (dict(w01=1.0, others="drop"), "others: expected 'zero' or 'keep'"),
        (dict(w01=1.0, at="4"), "at: expected"),
    ],
)
def test_bad_patches_are_refused_before_the_model_runs(patch, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cl.patch_attention(MODEL, **patch).__enter__()
    with pytest.raises((ValueError, TypeError), match=message):
        cl.Ratios(**patch).fwd_hooks(MODEL, "01=")
    assert hooks_left(MODEL) == 0


def test_other_models_are_refused():
    with pytest.raises(TypeError, match=f"expected a {KIND}, got str"):
        cl.patch_attention("model", w01=1.0).__enter__()
    config = dict(n_layers=1, d_model=4, n_heads=1, d_head=4, n_ctx=8, attn_only=True)
    words = made(d_vocab=11, **config)
    with pytest.raises(ValueError, match="8 tokens of Count01, got 11"):
        cl.patch_attention(words, w01=1.0).__enter__()
    both_ways = made(d_vocab=8, attention_dir="bidirectional", **config)
    with pytest.raises(ValueError, match="causal"):
        cl.patch_attention(both_ways, w01=1.0).__enter__()


def test_a_run_that_does_not_start_from_tokens_is_refused():
    embedded = torch.zeros(1, 3, MODEL.cfg.d_model)
    with cl.patch_attention(MODEL, w01=1.0), pytest.raises(ValueError, match="from its tokens on"):
        MODEL(embedded, start_at_layer=0)


def test_ratios_write_themselves_as_code():
    ratios = cl.Ratios(w01=1, w02=INF, heads=(3, 5))
    assert str(ratios) == 'patch_attention(model, w01=1.0, w02=float("inf"), heads=[3, 5])'
    assert str(cl.Ratios(others="keep")) == "patch_attention(model, others='keep')"
    assert str(cl.Ratios(ratios={"b": 2.0})) == "patch_attention(model, ratios={'b': 2.0})"


def test_own_ratios_are_precise_where_scores_are_huge_and_the_model_is_float32():
    model = collapsed_model(100, torch.float32)
    scores = CountForm.from_models([model], dtype=torch.float64).scores[0, :, EQUALS]
    own = (scores[:, ZERO] - scores[:, TWO]).exp()
    visible = own.log().abs() < 60
    row = row_of(model, "02=", w01=1.0)
    ratio = row[:, 1].double() / row[:, 2].double()
    assert visible.sum() == 8
    torch.testing.assert_close(ratio[visible], own[visible], rtol=1e-5, atol=0)
