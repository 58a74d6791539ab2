"""What is built is what users get: a wheel, installed outside the checkout, that does the work."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.browsers import chromium_page, needs_chromium

ROOT = Path(__file__).parents[2]


def run(*command, **more) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Wheel and sdist, made by the build backend in a copy of what git knows."""
    place = tmp_path_factory.mktemp("build")
    files = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    for name in files:
        if (ROOT / name).is_file():
            (place / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (place / "tree" / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "hatchling", "build", "-d", place, cwd=place / "tree")
    return place


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """An environment with the wheel; it borrows the libraries of this one, but not this package."""
    place = tmp_path_factory.mktemp("elsewhere")
    venv.create(place / "env", with_pip=False)
    python = place / "env" / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    run(*pip, "--disable-pip-version-check", wheel)
    packages = next((place / "env" / "lib").glob("python*/site-packages"))
    # A path in a .pth file is searched, but .pth files in it are not read: no editable install.
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "libraries.pth").write_text("\n".join(libraries) + "\n")
    return place


def outside(installed: Path) -> dict:
    names = ("PYTHONPATH", "COVERAGE_PROCESS_START")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    return {"cwd": installed, "env": environment}


def test_the_wheel_has_the_library_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"count01_lens"}
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "count01_lens").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("count01_lens/")} == expected
    kinds = {name.removeprefix("count01_lens/data/") for name in expected if "/data/" in name}
    for kind in (
        "example/accurate.safetensors", "example/paper.safetensors", "explorer/explorer.js",
        "explorer/explorer.css", "pages/report.html.j2", "pages/report.js", "pages/page.css",
    ):  # fmt: skip
        assert kind in kinds
    assert "count01_lens/py.typed" in expected


def test_the_sdist_can_be_tested_and_built(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in (
        "pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "CONTRIBUTING.md", "CHANGELOG.md",
        "Makefile", "constraints.txt", "count01_lens/py.typed", "experiments/claims.py",
        "tests/project/test_packaging.py", "docs/conf.py", "docs/reproduction.md",
    ):  # fmt: skip
        assert name in names


@pytest.mark.slow
def test_a_wheel_built_from_the_sdist_is_the_same(built, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=tree)
    (wheel,), (again,) = built.glob("*.whl"), tmp_path.glob("*.whl")
    assert contents(again) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    archive = zipfile.ZipFile(wheel)
    return {name: archive.read(name) for name in archive.namelist()}


def test_the_versions_of_python_that_are_named_are_those_that_are_tested():
    makefile = (ROOT / "Makefile").read_text()
    (pythons,) = re.findall(r"^PYTHONS \?= (.*)$", makefile, re.M)
    words = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(words["classifiers"]))
    assert named == pythons.split()
    assert words["requires-python"] == f">={named[0]}"


@pytest.mark.slow
def test_the_installed_wheel_runs_the_readme_outside_the_checkout(installed):
    readme = (ROOT / "README.md").read_text()
    ((code, expected),) = re.findall(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", readme, flags=re.DOTALL
    )
    (installed / "readme.py").write_text(code + "\nprint(cl.__file__)\n")
    python = installed / "env" / "bin" / "python"
    printed = run(python, "-W", "ignore", "readme.py", **outside(installed))
    shown, _, place = printed.removesuffix("\n").rpartition("\n")
    assert shown + "\n" == expected
    assert place.startswith(str(installed / "env"))
    assert (installed / "report.html").exists()


@pytest.mark.slow
def test_the_installed_wheel_trains_and_reports_outside_the_checkout(installed):
    program = installed / "env" / "bin" / "count01-lens"
    more = outside(installed)
    run(program, "train", "--out", "run", "--epochs", "1", "--heads", "2", "--d-embed", "4", **more)
    (checkpoint,) = (installed / "run").glob("seed-*")
    printed = run(program, "analyze", checkpoint, "--report", "report.html", **more)
    assert "2 heads" in printed
    page = (installed / "report.html").read_text("utf-8")
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")


@pytest.mark.slow
@needs_chromium
def test_the_installed_wheel_makes_an_explorer_that_runs(installed):
    """Its scripts, style sheets and the example model come out of the wheel."""
    program = installed / "env" / "bin" / "count01-lens"
    (model,) = (installed / "env" / "lib").rglob("example/accurate.safetensors")
    run(program, "explore", model, "--out", "explorer.html", **outside(installed))
    with chromium_page() as page:
        page.goto((installed / "explorer.html").as_uri())
        page.locator(".c01x .card").first.wait_for()
        assert page.locator(".c01x .card").count() == 16
        assert (page.errors, page.outside) == ([], [])


def test_the_version_is_the_same_everywhere():
    import count01_lens as cl

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert project["version"] == cl.__version__
    assert re.search(r'^version: "?([\d.]+)"?$', citation, re.MULTILINE)[1] == cl.__version__


def test_editors_complete_public_names():
    """Static analysis sees through the lazy import."""
    jedi = pytest.importorskip("jedi", reason="comes with jupyterlab")
    text = "import count01_lens as cl\ncl."
    here = jedi.InterpreterEnvironment()  # and not in a process of its own
    names = {completion.name for completion in jedi.Script(text, environment=here).complete()}
    import count01_lens as cl

    assert set(cl.__all__) <= names
    text = "import count01_lens as cl\ncl.analyze_heads"
    (found,) = jedi.Script(text, environment=here).infer()
    assert "Analyse every head" in found.docstring()
