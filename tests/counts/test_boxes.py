import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from count01_lens.counts.boxes import BoxBounds, Boxes, _slack
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.multiplicities import Multiplicities
from count01_lens.counts.rounding import MarginBound
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.tasks.decisions import eos_margin, says_answer
from count01_lens.tasks.places import COUNT01

MODELS = {
    "accurate": example_model,
    "paper": lambda: example_model("paper"),
    "minimal": minimal_model,
    "cooperative": cooperative_model,
    "ensemble": ensemble_model,
    "untrained": lambda: build_model(ModelConfig(d_embed=6, n_heads=3), seed=4),
    "residual": lambda: build_model(
        ModelConfig(d_embed=8, n_heads=4, output="residual", qkv_bias=True), seed=2
    ),
}

ends = st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(ends, ends, ends), min_size=1, max_size=4), st.integers(1, 9))
def test_cut_boxes_have_the_same_sentences_once(drawn, side):
    boxes = Boxes(
        torch.tensor([[low for low, _ in box] for box in drawn]),
        torch.tensor([[high for _, high in box] for box in drawn]),
    )
    expected = [
        counts
        for box in drawn
        for counts in itertools.product(*(range(low, high + 1) for low, high in box))
    ]
    assert list(map(tuple, boxes.sentences().tolist())) == expected
    cut = boxes.cut(side)
    assert sorted(map(tuple, cut.sentences().tolist())) == sorted(expected)
    assert int((cut.high - cut.low).max()) < side
    assert boxes.sizes.sum() == cut.sizes.sum() == len(expected)
    which, columns = boxes.columns([0, 1])
    assert sorted(map(tuple, columns.sentences().tolist())) == sorted(expected)
    assert torch.equal(columns.low[:, :2], columns.high[:, :2])
    assert torch.equal(columns.high[:, 2], boxes.high[which, 2])


def test_slabs_make_up_all_sentences():
    slabs = [Boxes.slab(first, 10, 3, 4) for first in (range(4), range(4, 8), range(8, 11))]
    found = torch.cat([slab.sentences() for slab in slabs])
    assert sorted(map(tuple, found.tolist())) == list(itertools.product(range(11), repeat=3))
    assert all(int((slab.high - slab.low).max()) < 4 for slab in slabs)


def random_boxes(n, largest, generator):
    low = torch.randint(0, largest, (n, 3), generator=generator)
    return Boxes(low, low + torch.randint(0, 7, (n, 3), generator=generator))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("largest", [4, 150])
def test_what_is_known_of_a_box_holds_for_each_of_its_sentences(name, largest):
    """The same from logits, sentence by sentence, which know nothing of boxes."""
    model = MODELS[name]().double()
    boxes = random_boxes(60, largest, torch.Generator().manual_seed(largest))
    known = BoxBounds(model, torch.float64, largest + 7, COUNT01).decide(boxes)
    form = CountForm.from_models([model])
    for number in range(len(boxes)):
        counts = boxes[number : number + 1].sentences()
        at_equals = form.logits(Multiplicities.of(counts, COUNT01.at_equals, torch.float64))[0]
        at_answer = form.logits(Multiplicities.of(counts, COUNT01.at_answer, torch.float64))[0]
        lead = at_equals[:, 5] - at_equals[:, 6]
        if known.answer[number] >= 0:
            towards = lead if known.answer[number] == 0 else -lead
            assert towards.min() >= known.margin[number] > 0
        if known.complete[number]:
            assert (says_answer(at_equals) == known.speaks[number]).all()
            assert ((eos_margin(at_answer) > 0) == known.ended[number]).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_single_sentence_is_known_as_exactly_as_rounding_allows(name):
    model = MODELS[name]().double()
    counts = torch.randint(0, 50, (200, 3), generator=torch.Generator().manual_seed(0))
    bounds = BoxBounds(model, torch.float64, 50, COUNT01)
    low, high = bounds.at_equals.over(Boxes(counts, counts).corners())
    asked = Multiplicities.of(counts, COUNT01.at_equals, torch.float64)
    logits = CountForm.from_models([model]).logits(asked)[0]
    leads = (logits[:, 5:7, None] - logits[:, None, :]).flatten(1)
    assert (low <= leads).all()
    assert (leads <= high).all()
    assert (high - low <= 2.001 * bounds.at_equals.slack).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_slack_covers_the_derived_bound(name, dtype):
    """docs/rounding.md derives a bound for the lead of '4' over '5'; this one is coarser."""
    model = MODELS[name]()
    derived = MarginBound(model, dtype).at_most(torch.tensor([602.0], dtype=torch.float64))
    slack = _slack(model, dtype, 200, COUNT01)[COUNT01.equals, 5:7].sum()
    assert slack >= derived


def test_scores_that_rounding_decides_leave_everything_open():
    model = minimal_model()
    model.blocks[0].attn.W_Q.data *= 1e18
    bounds = BoxBounds(model, torch.float64, 20, COUNT01)
    known = bounds.decide(Boxes(torch.tensor([[0, 9, 0]]), torch.tensor([[1, 10, 1]])))
    assert not known.complete.any()
