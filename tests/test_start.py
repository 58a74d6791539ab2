"""What commands import before they answer, and that both roads to a model give the same.

The light road reads tables from a checkpoint; on the heavy one TransformerLens makes the model.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import count01_lens as cl
from count01_lens.cli import app
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.models import checkpoints
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import example_file, save_checkpoint
from count01_lens.models.config import ModelConfig
from count01_lens.models.stored import StoredModel
from count01_lens.tasks.task_file import write_task

HEAVY = {"transformer_lens", "transformers"}
TABLES = {"pandas", "scipy", "sklearn"}
FIGURES = {"matplotlib"}
_RUN = """
import sys
from count01_lens.cli import main
try:
    main()
finally:
    print("imported:", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def imported_by(*arguments: object, cwd: Path) -> set[str]:
    command = [sys.executable, "-c", _RUN, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.partition("imported:")[2].split())


@pytest.mark.parametrize(
    ("command", "not_needed"),
    [
        ("verify accurate --up-to 3", HEAVY | TABLES | FIGURES),
        ("analyze accurate --groups none", HEAVY | FIGURES),
        ("analyze coop", HEAVY | FIGURES),
        ("explore accurate --out page.html", HEAVY | TABLES | FIGURES),
        ("compare coop ensemble --out page.html", HEAVY),
        ("sweep coop --out figures", HEAVY),
    ],
)
def test_commands_on_models_over_counts_do_without_transformer_lens(tmp_path, command, not_needed):
    shutil.copy(example_file("accurate"), tmp_path)
    save_checkpoint(cl.cooperative_model(), tmp_path / "coop")
    save_checkpoint(cl.ensemble_model(2), tmp_path / "ensemble")
    imported = imported_by(*command.split(), cwd=tmp_path)
    assert "torch" in imported
    assert imported & not_needed == set()


@pytest.mark.slow
def test_what_needs_the_model_itself_builds_it(tmp_path):
    """A view runs the model on a sentence; a saved analysis has the fingerprint of its modules."""
    save_checkpoint(cl.cooperative_model(), tmp_path / "coop")
    assert imported_by("view", "coop", "011=", "-o", "page.html", cwd=tmp_path) >= HEAVY
    assert imported_by("analyze", "coop", "--out", "results", cwd=tmp_path) >= HEAVY


@pytest.mark.parametrize(
    ("code", "not_needed"),
    [
        ("import count01_lens", {"torch", "numpy"} | HEAVY | TABLES | FIGURES),
        (
            "import count01_lens as cl; shape = cl.ModelConfig(d_embed=2, n_heads=1); "
            "cl.train(cl.TrainConfig(model=shape, epochs=1), seeds=[0], progress=False).history",
            HEAVY | FIGURES | {"sklearn", "scipy"},
        ),
    ],
    ids=["the package", "training"],
)
def test_python_imports_no_more_than_it_uses(tmp_path, code, not_needed):
    code = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {name.partition(".")[0] for name in done.stdout.split()} & not_needed == set()


SCALED = ModelConfig(d_embed=6, n_heads=3, scale_scores=True, output="residual", qkv_bias=True)
MODELS = {
    "fused": lambda: build_model(ModelConfig(d_embed=6, n_heads=3), seed=4),
    "residual": lambda: build_model(SCALED, seed=2),
    "float64": lambda: build_model(SCALED, seed=2, dtype=torch.float64),
    "minimal": lambda: cl.minimal_model(n=30),
    "cooperative": cl.cooperative_model,
    "other task": lambda: build_model(
        ModelConfig(d_embed=6, n_heads=2), task=cl.counting_task("majority")
    ),
}
COMMANDS = [
    "verify model --up-to 12",
    "verify model --up-to 5 --json",
    "analyze model",
    "explore model --out OUT/page.html",
    "compare model other --groups ends --out OUT/page.html",
]
SLOW_COMMANDS = [
    "analyze model --ablation resample --out OUT",
    "analyze model --groups none --report OUT/page.html",
    "compare model other --out OUT/page.html",
    "sweep model --out OUT",
]


def results(command: str, out: Path) -> dict[str, bytes | str]:
    """What a command prints, and every file that it writes."""
    out.mkdir()
    done = CliRunner().invoke(app, command.replace("OUT", str(out)).split())
    assert done.exit_code == 0, done.output
    files = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
    return {"printed": done.output.replace(str(out), "OUT"), **files}


def both_roads(command: str, where: Path, monkeypatch) -> tuple[dict, dict]:
    """Run a command by the light road, and by the heavy one."""
    monkeypatch.chdir(where)
    light = results(command, where / "light")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "as_stored", lambda bundle: None)
        return light, results(command, where / "heavy")


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("command", COMMANDS)
def test_both_roads_give_the_same_bits(tmp_path, monkeypatch, kind, command):
    save_checkpoint(MODELS[kind](), tmp_path / "model")
    save_checkpoint(cl.cooperative_model(), tmp_path / "other")
    assert isinstance(checkpoints.open_checkpoint(tmp_path / "model"), StoredModel)
    light, heavy = both_roads(command, tmp_path, monkeypatch)
    assert light == heavy


@pytest.mark.slow
@pytest.mark.parametrize("command", SLOW_COMMANDS)
@pytest.mark.parametrize("kind", ["cooperative", "other task"])
def test_both_roads_give_the_same_files(tmp_path, monkeypatch, kind, command):
    save_checkpoint(MODELS[kind](), tmp_path / "model")
    save_checkpoint(cl.ensemble_model(2), tmp_path / "other")
    light, heavy = both_roads(command, tmp_path, monkeypatch)
    assert light == heavy


def test_both_roads_know_a_model_that_is_given_twice(tmp_path, monkeypatch):
    save_checkpoint(cl.cooperative_model(), tmp_path / "model")
    save_checkpoint(cl.cooperative_model(dtype=torch.float64), tmp_path / "other")
    shutil.copy(tmp_path / "model.safetensors", tmp_path / "again.safetensors")
    command = "compare model other again --out OUT/page.html"
    light, heavy = both_roads(command, tmp_path, monkeypatch)
    assert light == heavy
    assert "1 model given more than once" in light["printed"]


def test_an_explorer_takes_the_analysis_of_its_model_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_checkpoint(cl.cooperative_model(), "model")
    save_checkpoint(cl.ensemble_model(2), "other")
    cl.analyze_heads(cl.cooperative_model()).save("analysis.safetensors")
    arguments = ["--analysis", "analysis.safetensors", "--out", "page.html"]
    done = CliRunner().invoke(app, ["explore", "model", *arguments])
    assert done.exit_code == 0, done.output
    refused = CliRunner().invoke(app, ["explore", "other", *arguments])
    assert "expected the model that was analysed" in str(refused.exception)


def test_a_task_of_ones_own_is_run_on_the_model_itself(tmp_path, monkeypatch):
    save_checkpoint(build_model(ModelConfig(d_embed=6, n_heads=2)), tmp_path / "model")
    one, other = ([[0, *[1] * n, *[2] * m, end, 4] for n, m in ((1, 3), (2, 1))] for end in (1, 3))
    task = cl.Task(cl.Prompts(one, [5, 6]), cl.Prompts(other, [5, 6]))
    write_task(task, tmp_path / "task.json")
    light, heavy = both_roads("analyze model --task task.json", tmp_path, monkeypatch)
    assert light == heavy


def test_the_table_is_printed_before_groups_are_measured(tmp_path, monkeypatch):
    def interrupted(self, **options):
        raise ValueError("no groups today")

    save_checkpoint(cl.cooperative_model(), tmp_path / "model")
    monkeypatch.setattr(HeadAnalysis, "with_groups", interrupted)
    done = CliRunner().invoke(app, ["analyze", str(tmp_path / "model")])
    assert "no groups today" in str(done.exception)
    assert "whole model on the test split: answer" in done.output
    assert done.output.count("failed") == 2
    assert "Compete or cooperate" not in done.output
