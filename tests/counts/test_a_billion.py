"""A billion sentences: exact, in bounded memory, and stopped and continued."""

import json
import resource
import subprocess
import sys

import pytest
import torch

from count01_lens.counts.exhaustion import Exhaustion, merged
from count01_lens.models.checkpoints import example_file, example_model
from count01_lens.tasks.places import COUNT01
from tests.helpers import within
from tests.processes import started

COMMAND = [sys.executable, "-c", "from count01_lens.cli import main; main()", "verify"]


@pytest.mark.stress
@pytest.mark.parametrize("recipe", ["accurate", "paper"])
def test_a_billion_sentences_stopped_and_continued(recipe, tmp_path):
    kept = tmp_path / "kept.safetensors"
    asked = [*COMMAND, str(example_file(recipe)), "--up-to", "1000", "--json"]
    resumed = [*asked, "--resume", str(kept)]
    with started(*resumed, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
        assert within(300, kept.exists)  # then it is killed
    second = subprocess.run(resumed, check=True, capture_output=True, text=True)
    whole = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert json.loads(second.stdout) == json.loads(whole.stdout)
    assert "verifying: about" in whole.stderr
    assert json.loads(whole.stdout)["n_sentences"] == 1001**3
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak < (1.5e9 if sys.platform == "darwin" else 1.5e6)


@pytest.mark.stress
@pytest.mark.parametrize("recipe", ["accurate", "paper"])
@pytest.mark.parametrize("n0", [0, 499, 1000])
def test_layers_of_it_are_what_running_every_sentence_gives(recipe, n0):
    """A million sentences with n0 of the first token, of the same kind as those of the whole."""
    work = Exhaustion(example_model(recipe), 1000, torch.float64, 100, COUNT01)
    sizes = torch.arange(1001)
    layer = torch.cartesian_prod(torch.tensor([n0]), sizes, sizes)
    with torch.no_grad():
        one_by_one = merged([work._of_sentences(part) for part in layer.split(8192)], 100)
    found = work.of_slab(range(n0, n0 + 1))
    for name, value in one_by_one.items():
        if isinstance(value, torch.Tensor):
            assert value.tolist() == found[name].tolist(), name
        else:
            assert found[name] == pytest.approx(value, rel=1e-9), name
