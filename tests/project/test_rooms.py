"""The rooms of the library: imports point one way, and the tree on CONTRIBUTING is the tree."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "count01_lens"
# A room may use itself and those before it, `jobs` only the first.
ROOMS = [
    "common", "jobs", "tasks", "models", "counts", "heads", "attention", "training", "views", "cli",
]  # fmt: skip
# `analysis.report(path)` is promised to users; the report itself is something to look at.
UPWARDS = {("heads/analysis.py", "views.report")}


def imports_of(path: Path) -> Iterator[str]:
    """Every module of the library that a file names, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: expected whole names, got a relative import"
            found = [node.module or ""]
            if node.module == "count01_lens":
                found = [f"count01_lens.{alias.name}" for alias in node.names]
        else:
            continue
        for name in found:
            if name.split(".")[0] == "count01_lens":
                yield name.removeprefix("count01_lens").removeprefix(".")


def test_every_room_is_in_the_order():
    there = {
        path.stem for path in PACKAGE.iterdir() if path.name[0] not in "_." and path.stem != "py"
    }
    assert there - {"data"} == set(ROOMS)


def test_imports_point_one_way_lazy_ones_too():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if file == "__init__.py":
            continue
        room = file.split("/")[0].removesuffix(".py")
        allowed = ["common", "jobs"] if room == "jobs" else ROOMS[: ROOMS.index(room) + 1]
        wrong += [
            f"{file} imports {used}"
            for used in imports_of(path)
            if used.split(".")[0] not in allowed and (file, used) not in UPWARDS
        ]
    assert wrong == []


def test_exceptions_are_used():
    assert all(used in imports_of(PACKAGE / file) for file, used in UPWARDS)
