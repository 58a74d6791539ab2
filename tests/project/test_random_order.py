"""`--shuffle SEED` puts tests in another order, file by file, and a seed gives the same one again."""

import itertools
import os
import subprocess
import sys

NAMES = [f"test_{letter}.py::test_{number}" for letter in "abc" for number in range(4)]


def order(directory, *options) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.random_order", "-c", "/dev/null"]
    command += ["--rootdir", str(directory), "--collect-only", "-q", *options, str(directory)]
    # It starts faster without plug-ins; and the order of this session is not that of that one.
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_seed_gives_an_order_of_its_own(tmp_path):
    functions = "".join(f"def test_{number}(): pass\n" for number in range(4))
    for letter in "abc":
        (tmp_path / f"test_{letter}.py").write_text(functions)
    assert order(tmp_path) == NAMES
    shuffled = order(tmp_path, "--shuffle", "7")
    assert sorted(shuffled) == NAMES != shuffled
    assert len(list(itertools.groupby(shuffled, key=lambda name: name.split("::")[0]))) == 3
    assert order(tmp_path, "--shuffle", "7") == shuffled != order(tmp_path, "--shuffle", "8")
