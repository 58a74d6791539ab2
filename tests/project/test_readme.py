"""What the README and the docs say is true."""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import count01_lens as cl
from count01_lens.cli import app
from count01_lens.counts.verification import verify
from count01_lens.models.checkpoints import load_checkpoint
from experiments.generated_part import generated_part
from experiments.tools import bench, bench_jobs, bench_scaling
from tests.helpers import deep_model

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_two_commands_are_on_the_first_screen():
    first_screen = README.splitlines()[:25]
    for command in ("make demo", "make test"):
        assert any(line.startswith(command) for line in first_screen)


@pytest.mark.slow
def test_the_python_of_the_readme_prints_what_stands_below_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((code, expected),) = re.findall(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", README, flags=re.DOTALL
    )
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pd.option_context("display.width", 100):
        exec(compile(code, "README.md", "exec"), {})
    assert output.getvalue() == expected
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_the_lines_for_a_model_of_ones_own_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(prompts = .*?)```", README, flags=re.DOTALL)
    tokens = torch.randint(0, 9, (80, 6), generator=torch.Generator().manual_seed(0))
    given = {"tokens": tokens, "answers": tokens[:, 0] % 3, "cl": cl}
    exec(compile(code, "README.md", "exec"), given | {"your_model": deep_model(d_vocab=9)})
    assert (tmp_path / "own_report.html").stat().st_size > 100_000


def test_what_is_said_of_planted_models_was_measured():
    models = pd.read_csv(ROOT / "docs/ground_truth/models.csv")
    plain = models[models["noise"] == 0]
    said = f"On {len(plain)} models whose heads were planted, all roles of heads were found in "
    assert f"{said}{plain['exact'].sum()}" in README


def test_what_is_said_of_the_answer_was_measured():
    found = json.loads((ROOT / "docs/answer/verdict.json").read_text())["verdict"]["paper"]
    text = " ".join(README.split())
    know, together = found["s_acc"], found["l_acc"]
    assert know["word"] == "redundant"
    assert together["against_independent"] == "worse"
    mean, copies = know["mean_interaction"]["mean"], know["copies"]
    said = f"(mean interaction {mean:+.3f}, exact copies would have {copies:+.3f})"
    assert said.replace("-", "−") in text
    assert know["beyond"]["low"] > 0  # independent heads would do no better
    assert f"by {-100 * together['beyond']['mean']:.1f} points: they share their mistakes" in text
    labels = pd.read_csv(ROOT / "docs/answer/labels.csv")
    chosen = labels[(labels["recipe"] == "paper") & (labels["metric"] == "eos_l_acc")]
    good = chosen[chosen["category"] == "successful"].groupby("label")["heads"].sum()
    assert f"{good['interfering']} of {good.sum()} heads that count well work against" in text


COMMANDS, WRITTEN = re.findall(r"```sh\n(count01-lens .*?)```", README, flags=re.DOTALL)[0], [
    "runs/ten/seed-3.safetensors", "report.html", "compare.html", "attention.html",
    "sweeps/sweep_w01.csv", "sweeps/sweep_w02.png", "runs/sizes/heads.csv",
]  # fmt: skip


@pytest.mark.slow
def test_the_commands_of_the_readme_run_one_after_another(tmp_path, monkeypatch):
    """As they stand, but on small models that have hardly been trained."""
    monkeypatch.chdir(tmp_path)
    shorter = {
        "train": ["--epochs", "1", "--heads", "4", "--d-embed", "8"],
        "verify": ["--up-to", "50"],
        "sweep-models": ["--epochs", "1", "--seeds", "0-1"],
    }
    commands = [shlex.split(line, comments=True) for line in COMMANDS.splitlines()]
    assert list(dict.fromkeys(name for _, name, *_ in commands)) == [
        command.name or command.callback.__name__.replace("_", "-")
        for command in app.registered_commands
    ]
    for program, name, *arguments in commands:
        assert program == "count01-lens"
        done = CliRunner().invoke(app, [name, *arguments, *shorter.get(name, [])])
        assert done.exit_code == 0, done.output
    assert [name for name in WRITTEN if not (tmp_path / name).exists()] == []
    assert len(pd.read_csv(tmp_path / "runs/sizes/heads.csv")) == 2 * (1 + 2 + 4)


@pytest.mark.stress
def test_the_commands_of_the_readme_run_to_the_letter(tmp_path):
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-e", "-c", COMMANDS], cwd=tmp_path, env=os.environ | {"PATH": programs}, check=True
    )
    assert [name for name in WRITTEN if not (tmp_path / name).exists()] == []
    assert len(pd.read_csv(tmp_path / "runs/sizes/heads.csv")) == 100 * (1 + 2 + 4)


@pytest.mark.stress
def test_the_demo_leaves_a_good_model_and_its_report(tmp_path):
    """In a directory of its own, with the environment that is there."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(ROOT / name, tmp_path)
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    done = subprocess.run(
        ["make", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 heads" in done.stdout
    checkpoint = tmp_path / "runs" / "demo" / "seed-0"
    assert verify(load_checkpoint(checkpoint), 50).accuracy > 0.99
    for report in ("report.html", "paper_report.html"):
        assert (tmp_path / "runs" / "demo" / report).stat().st_size > 100_000


def test_every_file_the_readme_points_to_is_there():
    for page in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        for target in re.findall(r"\]\(([^)#]+)\)", page):
            assert target.startswith("https://") or (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert f"\n{target}:" in makefile


def test_benchmark_figures_are_those_of_the_last_run():
    report = json.loads((ROOT / "docs" / "bench.json").read_text())
    docs = {function.__name__: function.__doc__ or "" for function in bench.MEASUREMENTS}
    assert set(report["measurements"]) == set(docs)
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert generated_part(bench.markdown(report, docs), "tables") in page
    for label in ("forward: compact over sequences", "forward: closed form over sequences"):
        assert f"| {report['ratios'][label]['median']:,.0f} |" in README


def test_the_page_shows_how_cost_grew_when_it_was_measured_last():
    points = pd.read_csv(ROOT / "docs" / "scaling" / "scaling.csv")
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert generated_part(bench_scaling.table_of(points), "scaling") in page
    assert set(points["curve"]) == set(bench_scaling.CURVES)


def test_the_page_on_many_jobs_shows_the_last_measurement():
    report = json.loads((ROOT / "docs" / "bench_jobs.json").read_text())
    page = (ROOT / "docs" / "many_jobs.md").read_text()
    assert generated_part(bench_jobs.markdown(report)) in page
    assert set(report["measurements"]) == {f.__name__ for f in bench_jobs.MEASUREMENTS}
    for measured in report["measurements"].values():
        assert measured.get("same_table", 1.0) == 1.0


@pytest.mark.slow
def test_the_python_of_the_page_on_many_jobs_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "many_jobs.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code.replace("epochs=20", "epochs=1"), "many_jobs.md", "exec"), {})
    assert "16 models, 24 heads" in output.getvalue()
    assert "s_acc" in output.getvalue()


def test_what_is_said_of_the_picture_is_what_it_draws():
    medians = {
        recipe: pd.read_csv(ROOT / "docs/reproduction" / where / "groups_by_size.csv")
        .groupby(["metric", "size"])["0.5"]
        .mean()
        for recipe, where in (("paper", "F4"), ("accurate", "contrast/F4"))
    }
    text = " ".join(README.split())
    assert "probes on two heads already reach 99 %" in text
    assert round(medians["paper"]["s_acc"][2], 2) == 0.99
    assert "needs 15 of 16 heads for 90 %" in text
    assert [n for n in range(1, 17) if medians["paper"]["l_acc"][n] >= 0.9] == [15, 16]
    assert "until 2 of 16 are enough" in text
    assert next(n for n in range(1, 17) if medians["accurate"]["l_acc"][n] >= 0.9) == 2
