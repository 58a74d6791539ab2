"""Children of tests hear Ctrl-C, and none is left: both rules are able to fail."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.helpers import is_gone, within
from tests.processes import MARKS, started, with_mark

SAY_HANDLER = "import signal; print(signal.getsignal(signal.SIGINT).__class__.__name__)"
WAIT = "import time; time.sleep(600)"
IGNORING = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]


@pytest.fixture
def ignoring_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_children_hear_ctrl_c_even_if_pytest_does_not(ignoring_ctrl_c):
    program = [sys.executable, "-c", SAY_HANDLER]
    with started(*program, stdout=subprocess.PIPE, text=True) as process:
        heard, _ = process.communicate(timeout=60)
    assert heard == "builtin_function_or_method\n"  # default_int_handler
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    without_help = subprocess.run(program, capture_output=True, text=True, check=True)
    assert without_help.stdout == "Handlers\n"  # SIG_IGN


def test_what_a_process_starts_ends_with_it_in_whatever_session():
    """Be it an orphan by then."""
    more = "stdout=subprocess.DEVNULL, start_new_session=True"
    parent = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {WAIT!r}], {more}).pid)"
    with started(sys.executable, "-c", parent, stdout=subprocess.PIPE, text=True) as process:
        orphan = int(process.communicate(timeout=60)[0])
        assert process.returncode == 0
        assert not is_gone(orphan)
    assert within(10, lambda: is_gone(orphan))


def test_a_test_that_fails_leaves_no_process():
    context = started(sys.executable, "-c", WAIT)
    process = context.__enter__()
    started_one = psutil.Process(process.pid)
    # The system shows an environment an instant after the program has begun.
    assert within(10, lambda: MARKS in started_one.environ())
    mark = started_one.environ()[MARKS].split()[-1]
    assert [found.pid for found in with_mark(mark)] == [process.pid]
    assert not context.__exit__(AssertionError, AssertionError("no luck"), None)
    assert process.returncode == -signal.SIGKILL
    assert with_mark(mark) == []


SUITE = f"""
import os, sys
import pytest
from tests.processes import start_for_session, started

def test_that_leaves_nothing():
    start_for_session(sys.executable, "-c", {WAIT!r})
    with started(sys.executable, "-c", {WAIT!r}):
        pass

@pytest.mark.leaves
def test_that_leaves_a_training():
    command = [sys.executable, "-c", {WAIT!r}, "epochs", "100000"]
    os.posix_spawn(sys.executable, command, os.environ)
"""

IMPATIENT = """
import sys, pytest, tests.processes
tests.processes.PATIENCE = 3.0
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("chosen", ["leaves", "not leaves"])
@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_a_session_that_leaves_a_process_fails_with_its_command(tmp_path, chosen, workers):
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = leaves\n")
    with started(
        *IGNORING, sys.executable, "-c", IMPATIENT, "-p", "tests.processes", "-p", "xdist.plugin",
        "-m", chosen, "-n", workers, tmp_path, stdout=subprocess.PIPE, text=True,
        # It starts faster without plug-ins, and has none of the options of this session.
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
    ) as process:  # fmt: skip
        printed, _ = process.communicate(timeout=300)
    assert "1 passed" in printed, printed
    said = "processes that tests left behind" in printed
    assert said == ("epochs 100000" in printed) == (chosen == "leaves"), printed
    assert process.returncode == (1 if chosen == "leaves" else 0)
