"""Tests can fail: each of them asserts something that is not plainly true."""

import ast
import itertools
import re
from pathlib import Path

HERE = Path(__file__).parents[1]
# What fails by itself: names of context managers and functions of pytest, torch and numpy.
CHECKS = {"raises", "warns", "fail"}


def functions_of_tests() -> list[tuple[str, ast.FunctionDef]]:
    found = []
    for path in sorted(HERE.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.append((path.name, node))
    return found


def names_called(node: ast.AST) -> set[str]:
    calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
    return {getattr(call, "attr", getattr(call, "id", "")) for call in calls}


def helpers_that_assert() -> set[str]:
    """Functions of the tests with an assertion in them, or that call such a function."""
    functions = [
        node
        for path in HERE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("test_")
    ]
    found: set[str] = set()
    while True:
        more = {
            node.name
            for node in functions
            if node.name not in found and (has_assertion(node) or names_called(node) & found)
        }
        if not more:
            return found
        found |= more


def has_assertion(node: ast.AST) -> bool:
    asserts = any(isinstance(each, ast.Assert) for each in ast.walk(node))
    called = names_called(node)
    return asserts or bool(called & CHECKS) or any(n.startswith("assert_") for n in called)


def test_every_test_asserts_something():
    helpers = helpers_that_assert()
    without = [
        f"{file}::{node.name}"
        for file, node in functions_of_tests()
        if not has_assertion(node) and not names_called(node) & helpers
    ]
    assert without == []
    assert len(functions_of_tests()) > 500


def test_no_assertion_is_true_whatever_happens():
    """A constant, a tuple (which is never empty), or something compared with itself."""
    vain = []
    for path in HERE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Assert):
                test = node.test
                same = (
                    isinstance(test, ast.Compare)
                    and isinstance(test.ops[0], ast.Eq | ast.Is | ast.LtE | ast.GtE)
                    and ast.dump(test.left) == ast.dump(test.comparators[0])
                    and not names_called(test)  # two calls may well differ
                )
                if isinstance(test, ast.Constant | ast.Tuple) or same:
                    vain.append(f"{path.name}:{node.lineno}")
    assert vain == []


def test_no_test_imports_from_another():
    """What several tests share is in tests/helpers.py or in a module that holds no tests."""
    found = set()
    for path in HERE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names += [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            found |= {
                f"{path.relative_to(HERE).as_posix()} imports {name}"
                for name in names
                if name.startswith("tests.") and name.rsplit(".", 1)[-1].startswith("test_")
            }
    assert found == set()


def test_processes_are_started_in_one_place():
    """`tests.processes.started` ends them in any case; `subprocess.run` waits for their end."""
    starting = {
        path.relative_to(HERE).as_posix()
        for path in HERE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("subprocess.Popen", "Popen")
    }
    assert starting == {"processes.py"}


def test_every_test_is_run_by_one_command_and_ci_runs_all_but_stress():
    root = HERE.parent
    chosen = dict(
        re.findall(r'^(test|test-slow|stress):.*\n.*-m "?([\w ]+)', (root / "Makefile").read_text(), re.M)
    )  # fmt: skip
    assert set(chosen) == {"test", "test-slow", "stress"}
    for slow, stress in itertools.product((True, False), repeat=2):
        marks = {"slow": slow, "stress": stress}
        run_by = [name for name, expression in chosen.items() if eval(expression, {}, marks)]
        assert run_by == ["stress" if stress else "test-slow" if slow else "test"]
    commands = re.findall(r"^make (\S+)", (root / ".ci" / "run").read_text(), re.M)
    assert commands == ["lint", "test", "test-slow", "test-tl4", "bench-guard", "docs"]
