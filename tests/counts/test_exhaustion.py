import itertools

import pytest
import torch

from count01_lens.counts import exhaustion
from count01_lens.counts.boxes import Boxes
from count01_lens.counts.exhaustion import Exhaustion, merged, smallest
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_model
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, ensemble_model, minimal_model
from count01_lens.models.task_of import task_of
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.counting_tasks import counting_task

SMALL = ModelConfig(d_embed=6, n_heads=3)


def of_task(task, seed):
    return build_model(SMALL, seed=seed, task=task)


def a_function(counts):
    return (counts[:, 0] + 2 * counts[:, 1]) % 2


MODELS = {
    "accurate": example_model,
    "paper": lambda: example_model("paper"),
    "minimal": minimal_model,
    "cooperative": cooperative_model,
    "ensemble": ensemble_model,
    "untrained": lambda: build_model(SMALL, seed=1),
    "residual": lambda: build_model(
        ModelConfig(d_embed=8, n_heads=4, output="residual", qkv_bias=True), seed=2
    ),
    "three answers": lambda: of_task(counting_task("majority"), 3),
    "two comparisons": lambda: of_task(counting_task("two_comparisons"), 4),
    "rule of one symbol": lambda: of_task(
        CountingTask("01", "45", "n1 > 3 and n1 < 50 or n1 > 120 and n1 < 170"), 5
    ),
    "rule as a function": lambda: of_task(CountingTask("01", "45", a_function), 6),
}


def work(model, up_to, keep=50, dtype=torch.float64):
    return Exhaustion(model, up_to, dtype, keep, task_of(model).language)


def one_by_one(whole):
    """The same without boxes: every sentence is run."""
    n_symbols = len(whole.language.symbols)
    grid = torch.cartesian_prod(*[torch.arange(whole.up_to + 1)] * n_symbols)
    with torch.no_grad():
        parts = [whole._of_sentences(c) for c in grid.reshape(-1, n_symbols).split(4096)]
    return merged(parts, whole.keep)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, torch.Tensor):
            assert value.tolist() == other[name].tolist(), name
        elif name == "smallest_margin":  # other sentences beside it are other roundings
            assert value == pytest.approx(other[name], rel=1e-9, abs=1e-12)
        else:
            assert value == other[name], name


@pytest.mark.parametrize("name", MODELS)
def test_boxes_count_what_running_every_sentence_does(name):
    model = MODELS[name]()
    n_symbols = len(task_of(model).language.symbols)
    whole = work(model, up_to={2: 90, 3: 45, 4: 20}[n_symbols])
    assert_same(merged(map(whole.of_slab, whole.slabs), whole.keep), one_by_one(whole))


@pytest.mark.parametrize("keep", [0, 1, 1000])
def test_any_number_of_counterexamples_is_kept(keep):
    whole = work(MODELS["untrained"](), 33, keep)
    found = merged(map(whole.of_slab, whole.slabs), keep)
    assert_same(found, one_by_one(whole))
    assert len(found["counterexamples"]) == min(keep, found["n_errors"])


def test_few_sentences_of_a_trained_model_are_run(monkeypatch):
    """Else nothing would be gained, and nobody would notice."""
    run, original = [], Exhaustion._of_sentences

    def counting(self, counts):
        run.append(len(counts))
        return original(self, counts)

    monkeypatch.setattr(Exhaustion, "_of_sentences", counting)
    whole = work(example_model(), 200)
    found = merged(map(whole.of_slab, whole.slabs), whole.keep)
    assert found["n_sentences"] == 201**3
    assert sum(run) < 201**3 / 15


def test_smallest_goes_by_size_then_length_then_counts():
    grid = list(itertools.product(range(4), repeat=3))
    shuffled = torch.tensor(grid)[torch.randperm(64, generator=torch.Generator().manual_seed(0))]
    expected = sorted(grid, key=lambda counts: (max(counts), sum(counts), counts))
    assert list(map(tuple, smallest(shuffled, 64).tolist())) == expected
    assert smallest(shuffled[:0], 5).shape == (0, 3)


def test_smallest_of_boxes_are_those_of_their_sentences():
    generator = torch.Generator().manual_seed(1)
    low = torch.randint(0, 9, (40, 3), generator=generator)
    boxes = Boxes(low, low + torch.randint(0, 4, (40, 3), generator=generator))
    for keep in (1, 7, 100):
        expected = smallest(boxes.sentences(), keep).tolist()
        assert exhaustion._smallest_of(boxes, keep).tolist() == expected


def test_parts_may_be_put_together_in_any_order():
    whole = work(MODELS["untrained"](), 70)
    parts = [whole.of_slab(slab) for slab in whole.slabs]
    assert len(parts) == 3
    assert_same(merged(parts, whole.keep), merged(parts[::-1], whole.keep))
