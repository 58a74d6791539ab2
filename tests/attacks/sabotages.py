"""Builds that are broken on purpose: one function for each slip of the pen.

Each takes a `pytest.MonkeyPatch` and breaks the library in this process. The attacks that kill their
victims run these in other processes, which are broken by `broken_build`.
"""

import dataclasses
import io
import math
import os
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from zlib import crc32

import matplotlib.pyplot as plt
import numpy as np
import psutil
import pytest
import torch
from matplotlib.figure import Figure

from count01_lens import cli
from count01_lens.attention import noticed_tokens, rows, seen_tokens
from count01_lens.attention.noticed_tokens import NoticedTokens
from count01_lens.attention.patches import Ratios
from count01_lens.cli.training import INTERRUPTED
from count01_lens.common import bundle, storage
from count01_lens.counts import readout
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.rounding import Precision
from count01_lens.heads import games, head_data, metrics, newton, newton_together
from count01_lens.models import hooks
from count01_lens.tasks.count01 import CountPrompts
from count01_lens.tasks.places import AT_EQUALS
from count01_lens.tasks.rules import Rule
from count01_lens.training import trainer
from count01_lens.views import explorer, figures

BROKEN = "COUNT01_BROKEN_BUILD"  # the name of the variable that tells `broken_build` what to do


def replace_everywhere(monkeypatch: pytest.MonkeyPatch, old: Any, new: Any) -> None:
    """Break a function under every name by which it was imported."""
    found = 0
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(("count01_lens", "tests.attacks")):
            for name, value in list(vars(module).items()):
                if value is old:
                    monkeypatch.setattr(module, name, new)
                    found += 1
    assert found > 0


# --- Files -----------------------------------------------------------------------------------------


class FitsAll(bytes):
    """A header with a checksum that fits every file."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def no_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    head = bundle._sealed_head
    monkeypatch.setattr(bundle, "_sealed_head", lambda header, body: FitsAll(head(header, body)))


def no_atomic_rename(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_in_place(path, data):
        with vars(storage).get("open", open)(path, "wb") as file:
            file.write(data)

    replace_everywhere(monkeypatch, storage.write_atomically, write_in_place)


def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two analyses that meet at each file, where now one comes first and now the other.

    Without that it would depend on how busy the machine is whether anything goes wrong.
    """
    write, until = storage.write_atomically, math.inf

    def others():
        copies = psutil.Process(os.getppid()).children()
        alive = [copy.pid for copy in copies if copy.status() != psutil.STATUS_ZOMBIE]
        return [pid for pid in alive if pid != os.getpid()]

    def mark(path, what, pid):
        return path.parents[2] / f"{path.parts[-3]}-{path.name}-{what}-{pid}"

    def wait_for(path, what):
        nonlocal until
        until = min(until, time.monotonic() + 20)
        while time.monotonic() < until and (pids := others()):
            if all(mark(path, what, pid).exists() for pid in pids):
                return
            time.sleep(0.005)

    def write_in_turns(path, data):
        path = Path(path)
        first = path.parent.name == "analysis" and not mark(path, "met", os.getpid()).exists()
        if first:
            mark(path, "met", os.getpid()).touch()
            wait_for(path, "met")
            if (crc32(path.name.encode()) % 2 == 0) == (os.getpid() < min(others(), default=0)):
                wait_for(path, "wrote")
        write(path, data)
        if first:
            mark(path, "wrote", os.getpid()).touch()

    replace_everywhere(monkeypatch, write, write_in_turns)
    replace_everywhere(monkeypatch, storage.locked, lambda directory: nullcontext())


def ctrl_c_is_not_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    main = cli.main

    def without_an_end_of_its_own():
        try:
            main()
        except SystemExit as end:
            if end.code == INTERRUPTED:
                raise KeyboardInterrupt from None
            raise

    replace_everywhere(monkeypatch, main, without_an_end_of_its_own)


# --- Hooks and state -------------------------------------------------------------------------------


def hooks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def without_clean_up(model, hooks, *, first=()):
        for name, hook in hooks:
            model.hook_dict[name].add_hook(hook, is_permanent=True, prepend=name in first)
        yield model

    replace_everywhere(monkeypatch, hooks.hooks_attached, without_clean_up)


def hooks_stay_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def without_finally(self):
        handles = [
            getattr(module, f"register_{kind}")(function, **options)
            for module, kind, function, options in self.torch_hooks()
        ]
        yield
        for handle in handles:
            handle.remove()

    monkeypatch.setattr(NoticedTokens, "noticing", without_finally)


def hooks_go_by_their_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def by_handles(hooks):
        handles = []
        try:
            for module, kind, function, options in hooks:
                handles.append(getattr(module, f"register_{kind}")(function, **options))
            yield
        finally:
            for handle in handles:
                handle.remove()

    replace_everywhere(monkeypatch, hooks.torch_hooks, by_handles)


def seeds_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    check = hooks.check_heads

    def check_and_seed(model, heads):
        torch.manual_seed(0)
        return check(model, heads)

    replace_everywhere(monkeypatch, check, check_and_seed)


def patcher_is_hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = explorer._changed

    def hasty(choices, name, value):
        object.__setattr__(choices, "text", f"{value}")  # before it is checked
        return changed(choices, name, value)

    monkeypatch.setattr(explorer, "_changed", hasty)


def keeps_every_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, collect = [], head_data.collect

    def collect_and_keep(*arguments, **options):
        kept.append(collect(*arguments, **options))
        return kept[-1]

    replace_everywhere(monkeypatch, collect, collect_and_keep)


# --- Numbers ---------------------------------------------------------------------------------------


def one_newton_step(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = newton.minimise_squared_hinge
    together = newton_together.minimise_many_squared_hinges

    def one(Z, penalty, weight, tol, max_iter, v, scale):
        return alone(Z, penalty, weight, tol, 1, v, scale)._replace(gradient_norm=0.0)

    def one_each(Z, penalty, allowed, V, weight, tol, max_iter):
        found = together(Z, penalty, allowed, V, weight, tol, 1)
        return found._replace(distances=np.zeros_like(found.distances))

    replace_everywhere(monkeypatch, alone, one)
    replace_everywhere(monkeypatch, together, one_each)


def swapped_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    good = readout.readout

    def swapped(form, head, weights, bias):
        written = good(form, head, weights, bias)
        return readout.CountReadout(written.scores, -written.values, written.language)

    replace_everywhere(monkeypatch, good, swapped)


def ties_are_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Rule, "answer", lambda self, counts: (counts[..., 1] < counts[..., 0]).long()
    )


def maximum_over_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    def outputs(self, sentences):
        scores = self.scores[:, :, sentences.rows, self.keys] + sentences.seen.to(self.scores)
        numerator, denominator = self._sums(scores, sentences.n)
        return numerator / denominator.unsqueeze(-2)

    monkeypatch.setattr(CountForm, "_outputs_by_coordinate", outputs)


def rounding_of_four_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every sum were off by four eps, however many terms it has."""

    def whatever_the_length(self, roundings):
        return torch.as_tensor(8 * self.unit + 0.0 * roundings, dtype=torch.float64)

    monkeypatch.setattr(Precision, "gamma", whatever_the_length)


def shapley_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if averages over one node fewer were exact."""
    good = games._averages
    fewer = lambda index, order, n_heads: good(index, order, max(n_heads - 2, 1))  # noqa: E731
    monkeypatch.setattr(games, "_averages", fewer)


def end_read_at_equals(monkeypatch: pytest.MonkeyPatch) -> None:
    good = head_data.collect

    def at_equals(runner, task, *arguments, **options):
        data, question = good(runner, task, *arguments, **options), task.questions["end"]
        prompts = CountPrompts(question.test.split, AT_EQUALS)
        written = runner.attribute(prompts, question.choices).heads
        end = dataclasses.replace(data.asked["end"], heads=written.numpy())
        return dataclasses.replace(data, asked={**data.asked, "end": end})

    replace_everywhere(monkeypatch, good, at_equals)


def labels_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    good = head_data.collect

    def swapped(*arguments, **options):
        data = good(*arguments, **options)
        answer = dataclasses.replace(data.answer, answers=data.train_answers)
        return dataclasses.replace(
            data, train_answers=data.answer.answers, asked={**data.asked, "answer": answer}
        )

    replace_everywhere(monkeypatch, good, swapped)


def ties_in_roc_count_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = metrics.rankdata
    monkeypatch.setattr(metrics, "rankdata", lambda scores: rank(scores, method="min"))


def ratios_upside_down(monkeypatch: pytest.MonkeyPatch) -> None:
    good = Ratios._log_weights

    def upside_down(self, numbers, own, language):
        other = dataclasses.replace(self, w01=1 / self.w01, w02=1 / self.w02)
        return good(other, numbers, own, language)

    monkeypatch.setattr(Ratios, "_log_weights", upside_down)


def threads_share_what_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((seen_tokens, "Running"), (noticed_tokens, "Embedded")):
        own = {"__init__": getattr(module, name).__init__}
        monkeypatch.setattr(module, name, type("Shared", (), own))


def every_earlier_key_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    good = rows.AskingRows.of.__func__

    def by_position(cls, keys, scores, place):
        return good(cls, keys, torch.zeros_like(scores), place)

    monkeypatch.setattr(rows.AskingRows, "of", classmethod(by_position))


def any_cache_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def of_the_last(self, cached, queries):
        past = seen[-1] if cached is not None and cached.shape[1] > 0 else queries[:, :0]
        if len(past) == len(queries):
            seen.append(torch.cat([past, queries], dim=1))
        return seen[-1]

    monkeypatch.setattr(NoticedTokens, "_with_cached", of_the_last)


# --- The same again --------------------------------------------------------------------------------


def order_from_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def order(self, epoch):
        n = len(self.labels["train"])
        return torch.from_numpy(np.stack([np.random.permutation(n) for _ in self.seeds]))  # noqa: NPY002

    monkeypatch.setattr(trainer.Trainer, "_batch_order", order)


def random_names_in_svg(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(figure, kind):
        buffer = io.BytesIO()
        Figure.savefig(figure, buffer, format=kind)
        return buffer.getvalue()

    replace_everywhere(monkeypatch, figures.as_bytes, plain)


def drawn_by_pyplot(monkeypatch: pytest.MonkeyPatch) -> None:
    def figure(width, height):
        return plt.figure(figsize=(width, height), layout="constrained")

    replace_everywhere(monkeypatch, figures.sized_figure, figure)
