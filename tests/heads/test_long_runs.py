"""Models that are run by hooks take long: no group is run twice, and one is told how long it takes."""

import time

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.common import progress
from count01_lens.heads import group_runs
from count01_lens.heads.groups import as_rows
from count01_lens.heads.head_data import head_data
from tests.helpers import deep_model


@pytest.fixture
def task() -> cl.Task:
    rows = np.random.default_rng(1).integers(0, 8, (60, 5))
    return cl.Task.split(cl.Prompts(rows, 2 + rows[:, 0] % 2), test=0.5)


def test_no_group_is_run_twice(monkeypatch, task):
    model, ran = deep_model(n_heads=4), []
    run = group_runs.StreamRuns.__call__

    def watched(self, masks, told):
        if told is not group_runs._tell_nobody:  # else it is tried out whether this is right
            ran.extend(mask.tobytes() for mask in masks)
        return run(self, masks, told)

    monkeypatch.setattr(group_runs.StreamRuns, "__call__", watched)
    analysis = cl.analyze_heads(model, task).with_groups()
    assert len(analysis.groups()) == 2 ** len(analysis.heads) - 1
    assert len(ran) == len(set(ran)) == 2 ** len(analysis.heads)  # the empty one, too


@pytest.mark.parametrize("room", [0, 100, 10**7])
def test_logits_are_the_same_whether_kept_or_run(monkeypatch, task, room):
    monkeypatch.setattr(group_runs, "_KEPT", room)
    data = head_data(deep_model(n_heads=2), task)
    masks = as_rows(np.arange(2**data.n_heads), data.n_heads)
    expected = run_at_once(data, masks)
    again = head_data(deep_model(n_heads=2), task)
    for some in ([1, 2, 4], [5, 2, 0], range(2**data.n_heads), [3]):
        found = run_at_once(again, masks[list(some)])
        # Groups that are run together are rounded together.
        np.testing.assert_allclose(found, expected[list(some)], rtol=0, atol=1e-12)


def run_at_once(data, masks):
    found, told = np.full((len(masks), 30, 2), np.nan), []
    for name, numbers, logits in data.group_logits(masks, told.append):
        assert name == "answer"
        found[numbers] = logits
    assert np.isfinite(found).all()
    assert sum(told) == len(masks) * 30
    return found


def test_changed_weights_are_seen_though_logits_are_kept(task):
    model = deep_model(n_heads=2)
    data = head_data(model, task)
    masks = as_rows(np.arange(2**data.n_heads), data.n_heads)
    run_at_once(data, masks)
    with torch.no_grad():
        model.blocks[0].attn.W_V[0] += 1
    with pytest.raises(ValueError, match="other"):
        run_at_once(data, masks)


def test_how_long_it_takes_is_told_before_the_first_groups_are_done(monkeypatch, task, capsys):
    """Within seconds, although groups that share layers are all done only at the end."""
    block, clock = group_runs.StreamRuns._endings, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    done_by_then: list[float] = []

    def slow(self, kept, prefixes):
        clock[0] += 2.0
        return block(self, kept, prefixes)

    monkeypatch.setattr(group_runs.StreamRuns, "_endings", slow)
    rows = [np.random.default_rng(i).integers(0, 8, 3 + i % 10).tolist() for i in range(60)]
    uneven = cl.Task.split(cl.Prompts(rows, [2 + row[0] % 2 for row in rows]), test=0.5)
    data = head_data(deep_model(n_heads=2), uneven)
    masks = as_rows(np.arange(2**data.n_heads), data.n_heads)
    clock[0], written = 0.0, []
    total = len(masks) * data.n_asked
    with progress.counted(total, "running", True) as advance:

        def told(more: int) -> None:
            advance(more)
            written.append(capsys.readouterr().err)
            done_by_then.append(clock[0])

        for _ in data.group_logits(masks, told):
            pass
    assert "about" in written[0]
    assert "to go" in written[0]
    assert done_by_then[0] <= 2
    assert len(written) == len({len(row) for row in uneven.questions["answer"].test.sequences()})
