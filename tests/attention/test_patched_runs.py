"""Patches are right, or refused, in whichever way a model is run: caches, masks, windows, threads."""

import threading

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.counts.compact import (
    compact_hooks,
    compact_tokens,
    multiplied_at,
    note_multiplicity,
    noted_multiplicity,
)
from count01_lens.models.lens import scores_act
from tests.attacks.numpy_model import NumpyModel
from tests.attacks.patched_runs import KINDS, Patch, model_of, new_cache, reference_logits
from tests.helpers import hooks_left
from tests.lens_versions import NO_THREADS, needs_3

ONE, DEEP = model_of("one layer"), model_of("two layers")
EACH = pytest.mark.parametrize("model", [ONE, DEEP], ids=["one layer", "two layers"])
A = torch.tensor([cl.encode("00012=4"), cl.encode("11102=5")])
B = torch.tensor([cl.encode("22210=5"), cl.encode("12021=4")])


def patch_of(model, **options) -> Patch:
    layers = range(model.cfg.n_layers)
    heads = tuple((layer, head) for layer in layers for head in range(4) if head != 1)
    return Patch({1: 1.0, 2: 0.25, 3: 2.0}, heads, **options)


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def test_one_layer_against_numpy():
    """No hook of TransformerLens at all: '=' sees 1, 1/4, 1/4, 2 of '[BOS] 0 1 1 2 ='."""
    model = cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2, n_ctx=16), dtype=torch.float64)
    oracle = NumpyModel.of_hooked_transformer(model)
    weights = np.array([0, 1, 0.25, 0.25, 2, 0]) / 3.5
    tokens = np.array([0, 1, 2, 2, 3, 4])
    v = np.einsum("kd,hde->hke", oracle.read[tokens], oracle.W_V) + oracle.b_V[:, None]
    z = np.einsum("k,hke->he", weights, v)
    stream = oracle.stream[4] + np.einsum("he,hed->d", z, oracle.W_O) + oracle.b_O
    with cl.patch_attention(model, w01=4.0, w02=0.5):
        found = model(torch.from_numpy(tokens)[None])[0, -1]
        padded = torch.tensor([[7, 7, *tokens]])
        masked = model(padded, attention_mask=(padded != 7).long())[0, -1]
    np.testing.assert_allclose(found, stream @ oracle.W_U + oracle.b_U, atol=1e-12)
    np.testing.assert_allclose(masked, stream @ oracle.W_U + oracle.b_U, atol=1e-12)


# --- Caches ----------------------------------------------------------------------------------------


@EACH
def test_caches_of_equal_length_in_turn(model):
    patch = patch_of(model)
    parts = []
    with patch.value().applied(model):
        caches = [new_cache(model, 2), new_cache(model, 2)]
        for columns in (slice(0, 5), slice(5, 6), slice(6, 8)):
            for tokens, cache in zip((A, B), caches, strict=True):
                parts.append(model(tokens[:, columns], past_kv_cache=cache))
    for tokens, found in zip((A, B), (parts[::2], parts[1::2]), strict=True):
        assert_same(torch.cat(found, dim=1), reference_logits(model, tokens, None, [patch]))


@EACH
def test_a_cache_that_was_filled_before_is_refused(model):
    cache = new_cache(model, 2)
    model(A[:, :5], past_kv_cache=cache)
    with (
        patch_of(model).value().applied(model),
        pytest.raises(ValueError, match="expected cached keys of tokens that went .* inside this"),
    ):
        model(A[:, 5:], past_kv_cache=cache)
    assert hooks_left(model) == 0


@EACH
def test_a_cache_whose_keys_were_changed_is_refused(model):
    with patch_of(model).value().applied(model):
        cache = new_cache(model, 2)
        model(A[:, :5], past_kv_cache=cache)
        for entry in cache.entries:
            entry.past_keys, entry.past_values = entry.past_keys.flip(0), entry.past_values.flip(0)
        with pytest.raises(ValueError, match="or run without it"):
            model(A[:, 5:], past_kv_cache=cache)


@EACH
def test_a_frozen_cache_keeps_its_tokens(model):
    patch, found = patch_of(model), []
    with patch.value().applied(model):
        cache = new_cache(model, 2)
        model(A[:, :4], past_kv_cache=cache)
        cache.freeze()
        for rest in (A[:, 4:], B[:, 4:], A[:, 4:]):
            whole = torch.cat([A[:, :4], rest], dim=1)
            found.append((whole, model(rest, past_kv_cache=cache)))
    for whole, logits in found:
        assert_same(logits, reference_logits(model, whole, None, [patch])[:, 4:])


@EACH
def test_tokens_that_change_in_place_keep_what_they_were_in_a_cache(model):
    patch, tokens = patch_of(model), A.clone()
    with patch.value().applied(model):
        cache = new_cache(model, 2)
        model(tokens[:, :5], past_kv_cache=cache)
        tokens[:, :5] = 3
        found = model(A[:, 5:], past_kv_cache=cache)
    assert_same(found, reference_logits(model, A, None, [patch])[:, 5:])


@pytest.mark.parametrize("kind", KINDS)
def test_generation_with_and_without_a_cache(kind):
    model = model_of(kind)
    patch = patch_of(model)
    tokens = A[:, :6]
    for _ in range(3):
        next_tokens = reference_logits(model, tokens, None, [patch])[:, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, next_tokens], dim=1)
    options = dict(max_new_tokens=3, do_sample=False, verbose=False, stop_at_eos=False)
    with patch.value().applied(model):
        for use_cache in (True, False, True):
            found = model.generate(A[:, :6], use_past_kv_cache=use_cache, **options)
            assert torch.equal(found, tokens)
        texts = model.generate(["01=", "0112="], **options)  # padded on the left
    for text, prompt in zip(texts, ["01=", "0112="], strict=True):
        with patch.value().applied(model):
            assert text.endswith(model.generate(prompt, use_past_kv_cache=False, **options))


# --- Masks and windows -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [False, True])
def test_padding_on_the_left_and_masks_are_not_seen(kind, keep):
    model = model_of(kind)
    patch = patch_of(model, keep=keep)
    tokens = torch.tensor([[7, 7, *cl.encode("012=")], cl.encode("01102="), cl.encode("22201=")])
    tokens[2, 0] = 0
    mask = (tokens != 7).long()
    mask[2, [1, 2]] = 0
    with patch.value().applied(model):
        found = model(tokens, attention_mask=mask)
    assert_same(found, reference_logits(model, tokens, mask, [patch]))
    hooks = patch.value().fwd_hooks(model, tokens)
    if scores_act():
        listed = model.run_with_hooks(tokens, attention_mask=mask, fwd_hooks=hooks)
        assert_same(listed, found)
    else:
        with pytest.raises(ValueError, match="got some that no head sees.*use the context manager"):
            model.run_with_hooks(tokens, attention_mask=mask, fwd_hooks=hooks)


@EACH
def test_texts_of_different_lengths_padded_by_the_tokenizer(model):
    patch = patch_of(model)
    with patch.value().applied(model):
        alone = [model(text)[0, -1] for text in ("0=", "011202=")]
        together = model(["0=", "011202="], padding_side="left")[:, -1]
    assert_same(together, torch.stack(alone))


def test_a_window_hides_what_is_outside_of_it():
    model = model_of("windows")
    with patch_of(model).value().applied(model):
        _, cache = model.run_with_cache(A)
    row = cache["blocks.1.attn.hook_pattern"][0, 0, 6]
    weights = torch.tensor([0, 0, 0, 0, 0.25, 2, 0, 0], dtype=torch.float64)
    assert_same(row, weights / 2.25)  # '1', '2' and '=' itself
    with pytest.raises(ValueError, match="expected layers that see whole sentences"):
        cl.copy_attention(model, "01=").__enter__()
    cl.CopyFrom("01=", heads=[(0, 1)]).fwd_hooks(model, A)


def test_attention_is_copied_to_what_is_seen():
    source = ONE.run_with_cache(A[:1, :7])[1]["blocks.0.attn.hook_pattern"][0, :, 6]
    padded = torch.tensor([[7, 7, 7, *cl.encode("22110=")]])
    with cl.copy_attention(ONE, "00012="):
        _, cache = ONE.run_with_cache(padded, attention_mask=(padded != 7).long())
    row = cache["blocks.0.attn.hook_pattern"][0, :, -1]
    assert_same(row, torch.cat([torch.zeros(4, 3), source], dim=1).double())


# --- Threads and runs inside runs ------------------------------------------------------------------


@needs_3(NO_THREADS)
@EACH
def test_threads_share_a_patched_model(model):
    patch = patch_of(model)
    batches = [A, B, A[:1], B[:, :7]]
    expected = [reference_logits(model, tokens, None, [patch]) for tokens in batches]
    wrong = []

    def work(tokens, right):
        with torch.no_grad():
            for _ in range(30):
                if not torch.allclose(model(tokens), right, atol=1e-9):
                    wrong.append(tokens)

    with patch.value().applied(model):
        _at_once([lambda t=t, r=r: work(t, r) for t, r in zip(batches, expected, strict=True)])
    assert wrong == []


@needs_3(NO_THREADS)
def test_threads_share_a_patched_model_in_the_compact_form():
    model = cl.example_model().double()
    counts = [torch.tensor([[n, 4, 1], [2, n, 3]]) for n in (1, 5, 9)]
    wrong = []

    def work(each, right):
        with torch.no_grad():
            for _ in range(15):
                if not torch.equal(cl.compact_logits(model, each), right):
                    wrong.append(each)

    with cl.patch_attention(model, w01=0.5, w02=2.0):
        expected = [cl.compact_logits(model, each) for each in counts]
        jobs = [lambda c=c, r=r: work(c, r) for c, r in zip(counts, expected, strict=True)]
        sentence = model("0112=")
        jobs.append(lambda: wrong.extend([] if torch.equal(model("0112="), sentence) else ["text"]))
        _at_once(jobs)
    assert wrong == []
    assert hooks_left(model) == 0


def _at_once(jobs):
    failed = []
    barrier = threading.Barrier(len(jobs))

    def run(job):
        barrier.wait()
        try:
            job()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@EACH
@pytest.mark.parametrize("point", ["hook_q", "hook_attn_scores", "hook_pattern", "hook_z"])
def test_a_hook_may_run_the_model_again(model, point):
    patch, inner = patch_of(model), []

    def again(value, hook):
        if not inner:
            inner.append(None)
            inner[0] = model(B)

    with patch.value().applied(model), model.hooks([(f"blocks.0.attn.{point}", again)]):
        outer = model(A)
    assert_same(outer, reference_logits(model, A, None, [patch]))
    assert_same(inner[0], reference_logits(model, B, None, [patch]))


def test_a_list_of_hooks_refuses_a_run_inside_a_run():
    depth = []

    def again(value, hook):
        if not depth:
            depth.append(1)
            ONE(A)

    hooks = patch_of(ONE).value().fwd_hooks(ONE, A)
    name = "hook_attn_scores" if scores_act() else "hook_v"
    with pytest.raises(ValueError, match="not inside its own hooks"):
        ONE.run_with_hooks(A, fwd_hooks=[*hooks, (f"blocks.0.attn.{name}", again)])
    ONE.reset_hooks()


def test_attention_by_itself_is_refused():
    stream = torch.zeros(2, 8, 12, dtype=torch.float64)
    attn, streams = ONE.blocks[0].attn, (stream,) * (3 if scores_act() else 1)
    with patch_of(ONE).value().applied(ONE):
        with pytest.raises(ValueError, match="got its attention alone"):
            attn(*streams)

        def again(value, hook):
            attn(*streams)

        with (
            ONE.hooks([("blocks.0.attn.hook_z", again)]),
            pytest.raises(ValueError, match="run its attention once in a pass"),
        ):
            ONE(A)


def test_a_compact_run_inside_a_compact_run():
    model = cl.example_model().double()
    counts, others = torch.tensor([[1, 5, 2]]), torch.tensor([[4, 0, 3]])
    for inside in (model, cl.patch_attention(model, w01=0.5, w02=2.0)):
        with inside if inside is not model else torch.no_grad():
            expected = cl.compact_logits(model, counts), cl.compact_logits(model, others)
            found = []

            def again(value, hook, found=found):
                if not found:
                    found.append(None)
                    found[0] = cl.compact_logits(model, others)

            with model.hooks([("blocks.0.attn.hook_pattern", again)]):
                outer = cl.compact_logits(model, counts)
        assert torch.equal(outer, expected[0])
        assert torch.equal(found[0], expected[1])


def test_the_note_of_another_thread_is_not_read():
    point, n = ONE.hook_dict[multiplied_at()], compact_tokens([[1, 2, 3]])
    note_multiplicity(point, n)
    seen = []
    _at_once([lambda: seen.append(noted_multiplicity(point))])
    assert seen == [None]
    assert note_multiplicity(point, None) is n
    assert point.ctx == {}


# --- Precision -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rows_in_half_precision_are_rounded_once(dtype):
    model = cl.example_model().to(dtype)
    tokens = torch.tensor([cl.encode("0" * 90 + "1" * 100 + "22=")])
    with cl.patch_attention(model, w01=1.013, w02=37.0):
        _, cache = model.run_with_cache(tokens)
        compact = cl.compact_logits(model, [[90, 100, 2]])
        whole = model(tokens)[:, -1]
    row = cache["blocks.0.attn.hook_pattern"][0, :, -1]
    weights = torch.tensor([0.0, 1.0, 1 / 1.013, 1 / 37.0, 0.0], dtype=torch.float64)[tokens[0]]
    assert row.dtype == dtype
    assert torch.equal(row, (weights / weights.sum()).to(dtype).expand_as(row))
    single = cl.example_model().double()
    with cl.patch_attention(single, w01=1.013, w02=37.0):
        right = single(tokens)[:, -1]
    bound = 2 * (whole.double() - right).abs().max() + torch.finfo(dtype).eps
    assert (compact.double() - right).abs().max() <= bound


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_compact_form_is_as_good_as_sequences_in_half_precision(dtype):
    """Adding log n in half precision was ten times worse, and took ties for decided."""
    model, split = cl.example_model().to(dtype), cl.make_splits().test
    right = cl.compact_logits(cl.example_model().double(), split.counts[:12])
    whole = torch.stack([model(row[None])[0, -3] for row in split.sequences()[:12]]).double()
    compact = cl.compact_logits(model, split.counts[:12])
    assert compact.dtype == dtype
    error = (compact.double() - right).square().mean().sqrt()
    assert error <= 1.5 * (whole - right).square().mean().sqrt()
    if scores_act():
        scores = torch.zeros(1, 2, 6, 6, dtype=dtype)
        ((_, add), _) = compact_hooks([[1, 2, 3]])
        assert add(scores, hook=model.hook_dict[multiplied_at()]).dtype == torch.float32
        note_multiplicity(model.hook_dict[multiplied_at()], None)


@needs_3("scores are not seen")
def test_scores_too_large_for_float16_are_refused():
    model = cl.example_model()
    model.blocks[0].attn.W_Q.data.mul_(100)
    model.blocks[0].attn.b_Q *= 100
    model.blocks[0].attn.W_K *= 100
    model = model.half()
    with (
        cl.patch_attention(model, w01=1.0, w02=1.0),
        pytest.raises(ValueError, match=r"scores that float16 can hold.*use model\.float\(\)"),
    ):
        model("0112=")


# --- Other ways ------------------------------------------------------------------------------------


@needs_3("a pass that starts in the middle runs the blocks before it, too")
def test_a_pass_in_two_parts():
    patch = patch_of(DEEP)
    right = [reference_logits(DEEP, tokens, None, [patch]) for tokens in (A, B)]
    with patch.value().applied(DEEP):
        middle = [DEEP(tokens, stop_at_layer=1) for tokens in (A, B)]
        for stream, expected in zip(middle, right, strict=True):
            assert_same(DEEP(stream, start_at_layer=1), expected)
        DEEP(A, stop_at_layer=1)
        with pytest.raises(ValueError, match="from its tokens on"):
            DEEP(middle[1].clone(), start_at_layer=1)
        DEEP(A, stop_at_layer=0)
        with pytest.raises(ValueError, match="from its tokens on"):
            DEEP(torch.zeros_like(middle[0]), start_at_layer=0)
        DEEP.forward(A, stop_at_layer=0)
        with pytest.raises(ValueError, match="from its tokens on"):
            DEEP.forward(torch.zeros_like(middle[0]), start_at_layer=0)
        assert_same(DEEP.forward(B), right[1])


def test_a_list_of_hooks_is_for_these_tokens_only():
    tokens = A.clone()
    hooks = patch_of(ONE).value().fwd_hooks(ONE, tokens)
    with pytest.raises(ValueError, match="got another embedding"):
        ONE.run_with_hooks(B, fwd_hooks=hooks)
    ONE.reset_hooks()
    tokens[:] = 3
    with pytest.raises(ValueError, match="got another embedding"):
        ONE.run_with_hooks(tokens, fwd_hooks=hooks)
    ONE.reset_hooks()


@EACH
def test_hooks_may_change_the_embedding_but_not_the_batch(model):
    patch = patch_of(model)
    louder = [("hook_embed", lambda value, hook: value * 1.5)]
    with patch.value().applied(model):
        found = model.run_with_hooks(A, fwd_hooks=louder)
    with model.hooks(louder):
        assert_same(found, reference_logits(model, A, None, [patch]))
    wider = [("hook_embed", lambda value, hook: value.expand(3, -1, -1))]
    with patch.value().applied(model), pytest.raises(ValueError, match="tokens are not known"):
        model.run_with_hooks(A[:1], fwd_hooks=[*wider, _widen_positions()])
    model.reset_hooks()


def _widen_positions():
    return "hook_pos_embed", lambda value, hook: value.expand(3, -1, -1)


@needs_3("inputs of heads of native bridges cannot be split")
def test_split_inputs_of_heads():
    patch = patch_of(DEEP)
    expected = reference_logits(DEEP, A, None, [patch])
    DEEP.set_use_split_qkv_input(True)
    try:
        with patch.value().applied(DEEP):
            found = DEEP(A)
    finally:
        DEEP.set_use_split_qkv_input(False)
    assert_same(found, expected)


@EACH
def test_gradients_are_those_of_the_reference(model):
    patch = patch_of(model, keep=True)
    gradients = []
    for run in (
        lambda: _patched(model, patch),
        lambda: reference_logits(model, A, None, [patch]),
    ):
        model.zero_grad()
        with torch.enable_grad():
            run()[:, 6].sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    model.zero_grad()
    for ours, right in zip(*gradients, strict=True):
        assert_same(ours, right)


def _patched(model, patch):
    with patch.value().applied(model):
        return model(A)


def test_models_on_several_devices_are_refused(monkeypatch):
    monkeypatch.setattr(ONE.cfg, "n_devices", 2)
    with pytest.raises(ValueError, match="expected one device, got 2"):
        cl.patch_attention(ONE, w01=1.0, w02=1.0).__enter__()
