"""What the README and the docs say is true."""

import contextlib
import io
import json
import re
from pathlib import Path

from experiments import bench

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
