"""Ctrl-C in every command, and two commands in one directory: files are old or new, never between."""

from collections import Counter

import pytest

from tests.attacks import attack_and_keep
from tests.attacks.command_line import COMMANDS
from tests.attacks.interruptions import (
    BOTH,
    GOOD,
    PAIRS,
    REFUSED,
    STOPPED,
    STOPPED_OVER,
    attack_ctrl_c,
    attack_together,
)

pytestmark = pytest.mark.slow


def assert_good(outcomes: Counter[str], *seen: str) -> None:
    assert set(outcomes) <= GOOD, outcomes
    assert all(outcomes[each] for each in seen), outcomes


def test_ctrl_c_leaves_what_the_same_command_goes_on_from():
    outcomes = attack_ctrl_c(2 * len(COMMANDS), seed=0)
    assert_good(outcomes, STOPPED, STOPPED_OVER)


def test_two_commands_in_one_directory_do_not_mix_their_files():
    outcomes = attack_together(len(PAIRS), seed=0)
    assert_good(outcomes, BOTH, REFUSED)


@pytest.mark.stress
def test_ctrl_c_at_many_moments():
    what = (
        "Ctrl-C at a random moment of every command, in an empty directory and over older files; "
        "what is there is whole, and the same command ends with the bytes that it always writes"
    )
    outcomes = attack_and_keep("ctrl-c", what, attack_ctrl_c, 400, seed=1)
    assert_good(outcomes, STOPPED, STOPPED_OVER)


@pytest.mark.stress
def test_many_commands_at_once_in_one_directory():
    what = (
        "two commands at once in one directory, the same and different ones: one waits its turn or "
        "is refused with a sentence, and no file is a mixture"
    )
    outcomes = attack_and_keep("together", what, attack_together, 200, seed=1)
    assert_good(outcomes, BOTH, REFUSED)
