import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from count01_lens.counts.applies import why_not_counts
from count01_lens.counts.compact import (
    compact_hooks,
    compact_logits,
    compact_tokens,
    multiplied_at,
    noted_multiplicity,
)
from count01_lens.models.build import build_model
from count01_lens.tasks.dataset import make_splits
from count01_lens.tasks.language import decode

MODEL = build_model(dtype=torch.float64)


def test_tokens_are_six_with_the_right_answer():
    tokens = compact_tokens(torch.tensor([[0, 5, 1], [5, 5, 0]]))
    assert [decode(row) for row in tokens] == ["[BOS]012=4", "[BOS]012=5"]


def test_compact_equals_sequences_on_the_test_split():
    counts = make_splits().test.counts[:20]
    for at, position in (("=", -3), ("answer", -2)):
        short = compact_logits(MODEL, counts, at)
        long = [
            MODEL(sequence[None])[0, position] for sequence in make_splits().test.sequences()[:20]
        ]
        torch.testing.assert_close(short, torch.stack(long), atol=1e-12, rtol=0)


@given(st.lists(st.sampled_from([1, 2, 3]), max_size=25), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_shuffling_a_sentence_changes_nothing(body, random):
    shuffled = random.sample(body, len(body))
    one, two = (torch.tensor([[0, *tokens, 4]]) for tokens in (body, shuffled))
    torch.testing.assert_close(MODEL(one)[0, -1], MODEL(two)[0, -1], atol=1e-12, rtol=0)


def test_hooks_refuse_other_tokens():
    hooks = compact_hooks(torch.tensor([[1, 2, 3]]))
    with pytest.raises(ValueError, match=r"expected the tokens compact_tokens\(data\)"):
        MODEL.run_with_hooks(torch.tensor([[0, 1, 4]]), fwd_hooks=hooks)
    assert why_not_counts(MODEL) is None

    with pytest.raises(ValueError, match="of the same 1 sentences"):
        MODEL.run_with_hooks(compact_tokens([[1, 2, 3], [0, 1, 1]]), fwd_hooks=hooks)
    cached = torch.zeros(1, 16, 6, 3)  # three of the six keys, as a cache would leave them
    with pytest.raises(ValueError, match=r"scores of shape \[1, 16, 6, 3\]"):
        dict(hooks)[multiplied_at()](cached, hook=None)


def test_multiplicities_are_known_while_it_runs_and_forgotten_after():
    point = MODEL.hook_dict[multiplied_at()]
    seen = []
    watch = (
        "blocks.0.attn.hook_pattern",
        lambda pattern, hook: seen.append(noted_multiplicity(point)),
    )
    counts = torch.tensor([[1, 2, 3], [0, 7, 1]])
    MODEL.run_with_hooks(compact_tokens(counts), fwd_hooks=[*compact_hooks(counts), watch])
    (found,) = seen
    assert found.tolist() == [[1, 1, 2, 3, 1, 1], [1, 0, 7, 1, 1, 1]]
    assert found.dtype == torch.long
    assert noted_multiplicity(point) is None


def test_hooks_of_the_model_take_part_in_a_compact_run():
    with MODEL.hooks(fwd_hooks=[("blocks.0.attn.hook_z", lambda value, hook: value * 0)]):
        logits = compact_logits(MODEL, [[1, 2, 3]])
    assert torch.equal(logits[0], MODEL.b_U)


def test_a_compact_run_keeps_the_precision_of_the_model():
    assert compact_logits(build_model(), [[1, 2, 3]]).dtype == torch.float32
    scores = torch.ones(1, 2, 6, 6)
    add = dict(compact_hooks([[1, 2, 3]]))[multiplied_at()]
    assert add(scores, hook=MODEL.hook_dict[multiplied_at()]).dtype == torch.float32
    MODEL.hook_dict[multiplied_at()].ctx.clear()


def test_bad_place():
    with pytest.raises(ValueError, match="at: expected '=' or 'answer', got 'end'"):
        compact_logits(MODEL, [[1, 2, 3]], at="end")


@pytest.mark.parametrize("function", [compact_tokens, compact_hooks])
def test_counts_are_checked(function):
    assert function([[1, 2, 3]]) is not None
    assert function(make_splits().test) is not None
    with pytest.raises(ValueError, match="expected shape"):
        function([[1, 2]])
    with pytest.raises(ValueError, match="expected numbers from 0"):
        function([[1, 2, -3]])
