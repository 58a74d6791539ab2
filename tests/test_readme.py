"""What the README and the docs say is true."""

import contextlib
import io
import json
import re
from pathlib import Path

from experiments import bench, bench_jobs
from experiments.generated_part import generated_part

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_two_commands_are_on_the_first_screen():
    first_screen = README.splitlines()[:25]
    for command in ("make demo", "make test"):
        assert any(line.startswith(command) for line in first_screen)


def test_the_python_of_the_readme_runs_and_prints_what_it_should(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "README.md", "exec"), {})
    sentence, accuracy, *rest = output.getvalue().splitlines()
    table, (patched, errors, *history) = rest[:4], rest[4:]
    assert patched == "0112=5"
    assert sentence == "0112=4"
    assert float(accuracy) > 0.999
    assert errors == "0"
    assert table[0].split() == ["head", "l_acc", "s_acc", "category", "readout"]
    assert len(history) == 4
    assert (tmp_path / "runs" / "readme" / "model.safetensors").exists()


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
