"""The attacks can fail: each finds something in a build that is broken on purpose.

The attack that matches a sabotage is run on the good build, where it finds nothing, and then on the
broken one.
"""

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import count01_lens as cl
from count01_lens.common.threads import one_thread
from count01_lens.counts import choice_readout, readout
from count01_lens.counts.closed_form import CountForm
from count01_lens.heads import tables
from tests.attacks import (
    checks,
    command_line,
    faults,
    hostile_files,
    interruptions,
    leaks,
    sabotages,
)
from tests.attacks.fork_server import ForkServer
from tests.attacks.oracle_cases import ATTACKS
from tests.attacks.sabotages import BROKEN

pytestmark = pytest.mark.slow

Attack = Callable[[int, int], Counter[str]]


@dataclass(frozen=True)
class Sabotage:
    """What is broken, the attack that has to find it, and what that attack says then."""

    break_it: Callable[[pytest.MonkeyPatch], None]
    attack: Attack
    cases: int
    found: str
    allowed: Callable[[str], bool]


def check(break_it: Any, attack: Attack, cases: int, found: str) -> Sabotage:
    return Sabotage(break_it, attack, cases, found, {checks.RIGHT, "flat"}.__contains__)


def oracle(break_it: Any, name: str, cases: int, found: str) -> Sabotage:
    attack, allowed, *_ = ATTACKS[name]
    return Sabotage(break_it, attack, cases, found, allowed.__contains__)


def leak(break_it: Any, attack: Attack, cases: int, found: str) -> Sabotage:
    return Sabotage(break_it, attack, cases, found, lambda word: word.endswith(leaks.CLEAN))


def memory_here(cases: int, seed: int) -> Counter[str]:
    """The attack on memory without a process of its own, which a sabotage would not reach."""
    return leaks.judged_growth(leaks.growth_of_analyses("small", cases), cases)


def left_half_way(cases: int, seed: int) -> Counter[str]:
    """Of the attack with failing calls, the generators."""
    return leaks.attack_failing_calls(cases, seed, ["generator left half-way"])


SABOTAGES = [
    leak(sabotages.hooks_stay, leaks.attack_failing_calls, 30, "left TransformerLens hooks"),
    leak(sabotages.hooks_stay_after_an_error, leaks.attack_failing_calls, 30, "left hooks"),
    leak(sabotages.hooks_go_by_their_handles, left_half_way, 16, "left hooks"),
    leak(sabotages.seeds_the_process, leaks.attack_failing_calls, 30, "torch's random state"),
    leak(sabotages.patcher_is_hasty, leaks.attack_patcher, 12, "shows something else"),
    check(sabotages.keeps_every_analysis, memory_here, 20, "objects"),
    oracle(sabotages.one_newton_step, "probes", 10, "higher than scikit-learn"),
    oracle(sabotages.swapped_sign, "readouts", 10, "a read-out differs from its probe"),
    oracle(sabotages.ties_are_four, "dataset", 10, "not the sentence of its counts"),
    check(sabotages.maximum_over_all_tokens, checks.attack_collapsed, 6, "other outputs"),
    # Some processors add up in so many parts that it takes dozens of models to see it.
    check(sabotages.rounding_of_four_eps, checks.attack_rounding, 40, "further off than the bound"),
    oracle(sabotages.shapley_off_by_one, "shapley", 10, "differs on a random game"),
    oracle(sabotages.end_read_at_equals, "groups", 20, "the logits of a group differ"),
    oracle(sabotages.ties_in_roc_count_nothing, "roc-auc", 30, "area differs"),
    check(sabotages.labels_swapped, checks.attack_separation, 4, "another s-acc"),
    check(sabotages.ratios_upside_down, checks.attack_ratios, 4, "other attention than asked for"),
    oracle(sabotages.threads_share_what_they_run, "patches", 30, "threads: "),
    oracle(sabotages.every_earlier_key_is_seen, "patches", 20, "other logits than by hand"),
    oracle(sabotages.any_cache_is_the_last_one, "patches", 20, "caches in turn: "),
    check(sabotages.order_from_the_process, checks.attack_training_twice, 1, "other parameters"),
    check(sabotages.random_names_in_svg, checks.attack_figures, 4, "other bytes of the same svg"),
    check(sabotages.drawn_by_pyplot, checks.attack_figures, 4, "figures stay open"),
]


@pytest.fixture(autouse=True)
def fresh_models():
    """Models that a sabotage left hooks on are not used again."""
    leaks.models.cache_clear()
    yield
    leaks.models.cache_clear()
    plt.close("all")


@pytest.mark.parametrize(
    "sabotage", SABOTAGES, ids=lambda s: f"{s.break_it.__name__}-{s.attack.__name__}"
)
def test_a_broken_build_is_found(sabotage, monkeypatch):
    with one_thread():
        good = sabotage.attack(sabotage.cases, 0)
        assert all(map(sabotage.allowed, good)), good
        leaks.models.cache_clear()
        sabotage.break_it(monkeypatch)
        broken = sabotage.attack(sabotage.cases, 0)
    bad = [outcome for outcome in broken if not sabotage.allowed(outcome)]
    assert any(sabotage.found in outcome for outcome in bad), broken


def killed_saves(cases: int, seed: int) -> Counter[str]:
    """Of the attack with killed processes, the part that saves a second time over a first one."""
    with tempfile.TemporaryDirectory() as directory:
        attack = faults.Attack(Path(directory), seed)
        points = range(1, len(attack.log_over) + 1)
        return Counter(attack.kill_at("over", at) for at in points[:cases])


@pytest.mark.parametrize(
    ("module", "attack", "cases", "victims", "sabotage", "found"),
    [
        (faults, killed_saves, 60, faults, "no_atomic_rename", "does not load"),
        (hostile_files, hostile_files.attack_hostile_files, 60, hostile_files, "no_checksums",
         "without a word"),
        (interruptions, interruptions.attack_ctrl_c, 9, command_line, "ctrl_c_is_not_expected",
         "ends with none"),
        (interruptions, interruptions.attack_together, 2, command_line, "no_locks", "a mixture"),
    ],
)  # fmt: skip
def test_a_build_that_is_broken_in_other_processes_is_found(
    module, attack, cases, victims, sabotage, found, monkeypatch
):
    """On the good build, the tests of these attacks run them with more cases."""
    monkeypatch.setenv(BROKEN, f"{victims.__name__}:{sabotage}")
    server = ForkServer("tests.attacks.broken_build")
    monkeypatch.setattr(module, "fork_server", lambda name: server)
    outcomes = attack(cases, 0)
    bad = set(outcomes) - module.GOOD
    assert any(found in outcome for outcome in bad), outcomes


def test_a_sabotage_reaches_every_name(monkeypatch):
    form, modules = CountForm.from_models([cl.example_model()]), (readout, choice_readout, tables)
    expected = readout.readout(form, 3, np.ones(2), 0.0).values
    sabotages.swapped_sign(monkeypatch)
    for module in modules:
        assert (module.readout(form, 3, np.ones(2), 0.0).values == -expected).all()
    monkeypatch.undo()
    for module in modules:
        assert (module.readout(form, 3, np.ones(2), 0.0).values == expected).all()
