"""The rooms of the library: imports point one way, and the tree on CONTRIBUTING is the tree."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "count01_lens"
# A room may use itself and those before it, `jobs` only the first.
ROOMS = [
    "common", "jobs", "tasks", "models", "counts", "heads", "attention", "training", "views", "cli",
]  # fmt: skip
# `analysis.report(path)` and `train(live=True)` are promised to users; the report itself, and the
# widget, are something to look at.
UPWARDS = {
    ("heads/analysis.py", "views.report"),
    ("heads/comparison.py", "views.comparison_report"),
    ("training/training_run.py", "views.live_widget"),
}


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


def places_on_the_map() -> list[str]:
    (tree,) = re.findall(r"```text\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    places, inside = [], ""
    for indent, name in re.findall(r"^( *)([.\w]+)/ ", tree, re.MULTILINE):
        inside = inside if indent else name
        places.append(f"{inside}/{name}" if indent else name)
    return places


def test_the_map_has_every_room_in_the_order_of_imports():
    rooms = [place for place in places_on_the_map() if place.startswith("count01_lens/")]
    assert rooms == [f"count01_lens/{room}" for room in [*ROOMS, "data"]]


def test_the_map_has_every_directory_at_the_top_and_none_that_is_not_there():
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    there = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not any(path.match(name) for name in {*ignored, ".git"} - {""})
    }
    assert there - set(places_on_the_map()) == set()
    assert [place for place in places_on_the_map() if not (ROOT / place).is_dir()] == []


def test_transformer_lens_is_asked_in_one_place():
    """Versions 3 and 4 differ: whatever is asked of them is asked there."""
    asking = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^ *(from|import) transformer_lens\b", path.read_text("utf-8"), re.M)
    }
    # The name of a class in annotations is no matter of versions.
    assert asking == {"models/lens.py", "models/bridges.py", "common/types.py"}
