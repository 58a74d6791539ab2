"""What the README and the docs say is true."""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pandas as pd
import typer

from count01_lens.cli import app
from experiments import bench, bench_jobs
from experiments.generated_part import generated_part

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_two_commands_are_on_the_first_screen():
    first_screen = README.splitlines()[:25]
    for command in ("make demo", "make test"):
        assert any(line.startswith(command) for line in first_screen)


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


def test_the_commands_of_the_readme_are_understood():
    """Every option is parsed; what would take minutes is not run here, but in other tests."""
    (block,) = re.findall(r"```sh\n(count01-lens .*?)```", README, flags=re.DOTALL)
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert {command[0] for command in commands} == {
        command.name or command.callback.__name__ for command in app.registered_commands
    }
    group = typer.main.get_command(app)
    for name, *arguments in commands:
        # A directory that is not there is no fault of the command's.
        arguments = ["." if each == "runs/ten/seed-3" else each for each in arguments]
        group.commands[name].make_context(name, arguments)


def test_every_file_the_readme_points_to_is_there():
    for page in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        for target in re.findall(r"\]\(([^)#]+)\)", page):
            assert target.startswith("https://") or (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert f"\n{target}:" in makefile


def test_benchmark_figures_are_those_of_the_last_run():
    report = json.loads((ROOT / "docs" / "bench.json").read_text())
    assert set(report["measurements"]) == {function.__name__ for function in bench.MEASUREMENTS}
    assert bench.markdown(report) in (ROOT / "docs" / "benchmarks.md").read_text()
    for label in ("forward: compact over sequences", "forward: closed form over sequences"):
        assert f"| {report['ratios'][label]:,.0f} |" in README


def test_the_page_on_many_jobs_shows_the_last_measurement():
    report = json.loads((ROOT / "docs" / "bench_jobs.json").read_text())
    page = (ROOT / "docs" / "many_jobs.md").read_text()
    assert generated_part(bench_jobs.markdown(report)) in page
    assert set(report["measurements"]) == {f.__name__ for f in bench_jobs.MEASUREMENTS}
    for measured in report["measurements"].values():
        assert measured.get("same_table", 1.0) == 1.0


def test_the_python_of_the_page_on_many_jobs_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "many_jobs.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code.replace("epochs=20", "epochs=1"), "many_jobs.md", "exec"), {})
    assert "16 models, 24 heads" in output.getvalue()
    assert "s_acc" in output.getvalue()
