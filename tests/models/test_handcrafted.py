"""Handcrafted models against arithmetic: what they should do is known without running them."""

import math

import pytest
import torch

from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.compact import compact_logits
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.counts.verification import verify
from count01_lens.models.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.tasks.language import Token, right_answer
from count01_lens.tasks.places import AT_EQUALS

MODELS = {
    "minimal": minimal_model,
    "minimal, no skip": lambda **options: minimal_model(skip=False, **options),
    "cooperative": cooperative_model,
    "ensemble": ensemble_model,
}


@pytest.mark.parametrize("name", MODELS)
def test_the_model_writes_whole_sentences(name):
    model = MODELS[name]()
    for body in ("", "2", "22222", "1", "0", "01", "10", "0110", "00111", "2102010", "1" * 30):
        answer = right_answer(body.count("0"), body.count("1"))
        tokens = model.generate(
            model.to_tokens(f"{body}="), max_new_tokens=5, do_sample=False, verbose=False
        )
        assert model.to_string(tokens[0]) == f"[BOS]{body}={answer}[EOS]"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_no_counterexample_up_to_60(name, dtype):
    result = verify(MODELS[name](dtype=dtype), up_to=60, dtype=dtype)
    assert (result.n_errors, result.n_eos_errors, result.n_other_tokens) == (0, 0, 0)


def test_the_minimal_head_gives_the_output_of_appendix_a():
    n, counts = 10, (7, 4, 9)
    form = CountForm.from_models([minimal_model(n=n, dtype=torch.float64)])
    sentence = Multiplicities.of(torch.tensor([counts]), AT_EQUALS, torch.float64)
    z = form.head_outputs(sentence).item()
    n0, n1, n2 = counts
    numerator = n0 * math.exp(n) * n + n1 * math.exp(n + 1) * (n + 1) + math.e
    denominator = 1 + n0 * math.exp(n) + n1 * math.exp(n + 1) + n2 + math.e
    assert z == pytest.approx(numerator / denominator, rel=1e-14)


def test_minimal_scores_are_the_table_of_appendix_a():
    n = 10
    scores = CountForm.from_models([minimal_model(n=n)]).scores[0, 0]
    assert scores[Token.EQUALS, :5].tolist() == [0, n, n + 1, 0, 1]
    assert scores[Token.FOUR, :6].tolist() == [0, n**3, n**3 + n**2, 0, n**2, n**4]


def test_with_and_without_skip_agree_at_equals():
    counts = torch.tensor([[0, 0, 0], [3, 4, 1], [4, 4, 0], [150, 149, 80]])
    one = compact_logits(minimal_model(dtype=torch.float64), counts)
    two = compact_logits(minimal_model(skip=False, dtype=torch.float64), counts)
    torch.testing.assert_close(one, two)


def test_cooperative_heads_count_one_token_each():
    counts = torch.tensor([[3, 50, 7], [3, 0, 200], [120, 120, 0]])
    form = CountForm.from_models([cooperative_model(dtype=torch.float64)])
    z = form.head_outputs(Multiplicities.of(counts, AT_EQUALS, torch.float64))[0, :, :, 0]
    n = counts[:, :2].double()
    torch.testing.assert_close(z, 1e4 * n / (n + 1e4), rtol=1e-9, atol=1e-9)


def test_ensemble_heads_are_copies():
    counts = torch.tensor([[3, 50, 7], [9, 1, 0]])
    form = CountForm.from_models([ensemble_model(3)])
    parts = form.head_logits(Multiplicities.of(counts, AT_EQUALS, torch.float32))
    assert parts.shape[2] == 3
    assert torch.equal(parts[:, :, 0], parts[:, :, 2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: minimal_model(n=0), "n: expected a finite number above 0, got 0"),
        (lambda: minimal_model(n=math.nan), "n: expected a finite number above 0"),
        (lambda: minimal_model(epsilon=-1e-3), "epsilon: expected"),
        (lambda: cooperative_model(scale=0.5), "scale: expected a finite number above 1"),
        (lambda: minimal_model(n=1e200), "n: expected at most 1000"),
        (lambda: minimal_model(dtype=torch.float16), "dtype: expected torch.float32"),
        (lambda: minimal_model(skip="no"), "skip: expected True or False, got 'no'"),
        (lambda: cooperative_model(dtype="float64"), "dtype: expected torch.float32"),
        (lambda: ensemble_model(epsilon=-1), "epsilon: expected"),
        (lambda: ensemble_model(n=math.nan), "n: expected"),
        (lambda: ensemble_model(0), "n_heads: expected a whole number of at least 1"),
    ],
)
def test_bad_arguments_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()
