"""Change the library in small ways, one at a time, and see whether its tests notice.

    make mutants                                          those of docs/trust.md: most of an hour
    python -m experiments.tools.mutants counts/readout    one, or any others of the library

Works on a copy of the files under version control, in runs/mutants, with mutmut. The record for
docs/trust.md goes to runs/trust/mutants.json, survivors with what was changed among it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from count01_lens.common.storage import json_bytes, write_atomically
from count01_lens.common.versions import library_versions
from experiments.tools.harmless_mutants import reason_of

TREE, RECORD = Path("runs/mutants/tree"), Path("runs/trust/mutants.json")
# The modules of which docs/trust.md tells: what everything else is computed by, or read from.
MODULES = [
    "tasks/language",
    "tasks/dataset",
    "models/checkpoints",
    "counts/closed_form",
    "counts/compact",
    "counts/readout",
    "heads/metrics",
    "heads/groups",
]
# mutmut reads an attribute that pytest has renamed.
CONFTEST = """

def pytest_collection_modifyitems(items):
    for item in items:
        item._nodeid = item.nodeid
"""


def main() -> None:
    """Run mutants of some modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help=f"such as {MODULES[0]}; default all of docs")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    for module in arguments.modules:
        if not Path(f"count01_lens/{module}.py").is_file():
            parser.error(f"expected modules of the library such as {MODULES[0]}, got {module}")
    known = json.loads(RECORD.read_text())["modules"] if RECORD.exists() else {}
    for module in arguments.modules or MODULES:
        known[module] = run(module, arguments.children)
        record = {"name": "mutants", "modules": known, "versions": library_versions()}
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(RECORD, json_bytes(record))
        survivors = known[module]["survivors"]
        print(f"{module}: {known[module]['killed']} killed, {len(survivors)} survived")
        for survivor in survivors:
            if reason_of(survivor) is None:
                print(f"    - {survivor['was']}\n    + {survivor['became']}")


def judges_of(module: str) -> list[str]:
    """Which tests judge a module: its own, or those of its room, and the oracles."""
    room, _, name = module.rpartition("/")
    own = Path("tests", room, f"test_{name}.py")
    return [str(own if own.is_file() else own.parent), "tests/attacks/test_attack_oracles.py"]


def run(module: str, children: int) -> dict[str, Any]:
    """Make all mutants of a module, and run its tests on each."""
    _copy_tree()
    settings = f"""
[tool.mutmut]
source_paths = ["count01_lens"]
only_mutate = ["count01_lens/{module}.py"]
also_copy = ["experiments", "README.md", "docs", "Makefile", "CHANGELOG.md", "constraints.txt"]
pytest_add_cli_args_test_selection = {json.dumps(judges_of(module))}
pytest_add_cli_args = ["-m", "not stress and not slow", "-p", "no:cacheprovider"]
"""
    for name, more in (("pyproject.toml", settings), ("tests/conftest.py", CONFTEST)):
        path = TREE / name
        path.write_text(path.read_text() + more)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    mutmut = [sys.executable, "-m", "mutmut"]
    command = [*mutmut, "run", "--max-children", str(children)]
    subprocess.run(command, cwd=TREE, env=environment, check=False)
    meta = json.loads((TREE / "mutants" / "count01_lens" / f"{module}.py.meta").read_text())
    codes = meta["exit_code_by_key"]
    if all(code is None for code in codes.values()):
        raise RuntimeError(f"{module}: no mutant was run; do its tests pass without one?")
    # No test at all (33), none chosen (5) or not run (None) is no better than survival.
    alive = [name for name, code in codes.items() if code in (0, 5, 33, None)]
    return {
        "killed": len(codes) - len(alive),
        "survivors": [_change([*mutmut, "show", name]) for name in alive],
    }


def _change(command: list[str]) -> dict[str, str]:
    """What a mutant changes, as a line before and after."""
    shown = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=False)
    lines = [line for line in shown.stdout.splitlines() if line[:3] not in ("---", "+++")]
    was, became = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return {"was": was, "became": became}


def _copy_tree() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in tracked.stdout.splitlines():
        if Path(name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, TREE / name)


if __name__ == "__main__":
    main()
