"""The comparison of the two roads from a command to its answer."""

import pytest

from count01_lens.models.checkpoints import example_file
from experiments.tools import bench_start

# What a command prints, and then whether TransformerLens was imported.
_TELL = """
import sys
from count01_lens.cli import app
app(standalone_mode=False)
print("transformer_lens" in sys.modules)
"""


@pytest.mark.slow
def test_every_measurement_runs(monkeypatch):
    monkeypatch.setattr(bench_start, "REPETITIONS", 1)
    assert all(measure()["seconds"] > 0 for measure in bench_start.MEASUREMENTS)


def test_every_ratio_is_of_what_is_measured():
    names = {measure.__name__ for measure in bench_start.MEASUREMENTS}
    assert {name for _, *pair in bench_start.RATIOS for name in pair} == names - {"start_import"}


@pytest.mark.slow
def test_the_two_roads_are_two_and_print_the_same():
    command = ["verify", str(example_file("accurate")), "--up-to", "2"]
    light, heavy = (
        bench_start._run(before + _TELL, *command) for before in ("", bench_start._HEAVY + "\n")
    )
    assert light.endswith("False\n")
    assert light.replace("False\n", "True\n") == heavy
