"""The notebooks of the docs run, and show what they showed when they were stored."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))


def test_the_front_page_names_them_in_the_order_of_use():
    front = (DOCS / "index.md").read_text()
    named = re.findall(r"^\d\. \[.*?\]\((\w+)\.ipynb\)", front, re.MULTILINE)
    assert named == [
        "quick_start",
        "patch_attention",
        "look_at_attention",
        "compete_or_cooperate",
        "puzzle",
        "own_model_and_task",
    ]
    assert sorted(named) == [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_ends_in_a_conclusion(path):
    last = nbformat.read(path, as_version=4).cells[-1]
    assert last.cell_type == "markdown"
    assert "## What you found" in last.source
    assert "**Where to go next:**" in last.source


def test_the_puzzle_hides_its_solution_behind_a_heading():
    cells = nbformat.read(DOCS / "puzzle.ipynb", as_version=4).cells
    (question,) = [i for i, cell in enumerate(cells) if "**The question:**" in cell.source]
    before, heading, _ = cells[question].source.partition("## Solution")
    assert heading
    assert "probe's boundary" not in before


def test_from_a_model_of_your_own_to_its_report_takes_few_lines():
    cells = nbformat.read(DOCS / "own_model_and_task.ipynb", as_version=4).cells
    (cell,) = [cell for cell in cells if ".report(" in cell.source and cell.cell_type == "code"]
    lines = [line for line in cell.source.splitlines() if line.strip()]
    assert lines[0] == "import count01_lens as cl"
    assert len(lines) <= 15


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(path, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    fresh = nbformat.from_dict(stored)
    NotebookClient(fresh, timeout=1200, kernel_name="python3").execute(cwd=str(tmp_path))
    cells = zip(stored.cells, fresh.cells, strict=True)
    for old, new in ((old, new) for old, new in cells if old.cell_type == "code"):
        assert old.execution_count is not None, f"not run before it was stored: {old.source}"
        assert kinds(old) == kinds(new), old.source


def is_progress_bar(data) -> bool:
    bar = re.search(r"\|[#\d ]*\| [\d,]+/[\d,]+, ", data.get("text/plain", ""))
    return "application/vnd.jupyter.widget-view+json" in data and bar is not None


def kinds(cell) -> list[str]:
    """What a cell shows: the kinds of its outputs, without their bytes.

    Whether there is a progress bar depends on how fast the machine is.
    """
    shown = [output for output in cell.outputs if output.output_type != "stream"]
    outputs = [output for output in shown if not is_progress_bar(output.get("data", {}))]
    return [kind for output in outputs for kind in sorted(output.get("data", {}))]


def test_nothing_but_a_progress_bar_is_left_out():
    widget = "application/vnd.jupyter.widget-view+json"
    for bar in (
        "fitting all groups |##5       | 2/8, 00:04 left",
        "runs |          | 0/1,200, ? left",
    ):
        assert is_progress_bar({widget: {}, "text/plain": bar})
    assert not is_progress_bar({"text/plain": bar})
    assert not is_progress_bar({widget: {}, "text/plain": "AttentionPatcher(50%|)"})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebooks_load_nothing_from_outside(path):
    text = path.read_text()
    for sign in ('src=\\"http', "unpkg.com", "cdn.jsdelivr", "googleapis"):
        assert sign not in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_numbers_are_written_as_people_write_them(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            text = output.get("text", "") + output.get("data", {}).get("text/plain", "")
            assert re.findall(r"\d\.\d{3,}e[+-]\d+", text) == [], cell.source
