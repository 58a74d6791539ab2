"""Change the library in small ways, one at a time, and see whether its tests notice.

    make mutants                                       all modules: most of an hour
    python -m experiments.tools.mutants language dataset     some

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
# Which tests judge a module: its own, and those that use it as users do.
TESTS = {
    "tasks/language": ["tasks/test_language", "attacks/test_attack_oracles"],
    "tasks/dataset": ["tasks/test_dataset"],
    "counts/closed_form": ["counts/test_closed_form", "attacks/test_attack_oracles"],
    "counts/compact": ["counts/test_compact", "attacks/test_attack_oracles"],
    "heads/metrics": ["heads/test_metrics", "attacks/test_attack_oracles"],
    "heads/groups": ["heads/test_groups", "attacks/test_attack_oracles"],
    "counts/readout": ["counts/test_readout", "attacks/test_attack_oracles"],
    "models/checkpoints": ["models/test_checkpoints"],
}
# mutmut reads an attribute that pytest has renamed.
CONFTEST = """

def pytest_collection_modifyitems(items):
    for item in items:
        item._nodeid = item.nodeid
"""


def main() -> None:
    """Run mutants of some modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help=f"some of {', '.join(TESTS)}")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    unknown = set(arguments.modules) - set(TESTS)
    if unknown:
        parser.error(f"expected some of {', '.join(TESTS)}, got {', '.join(sorted(unknown))}")
    known = json.loads(RECORD.read_text())["modules"] if RECORD.exists() else {}
    for module in arguments.modules or TESTS:
        known[module] = run(module, arguments.children)
        record = {"name": "mutants", "modules": known, "versions": library_versions()}
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(RECORD, json_bytes(record))
        survivors = known[module]["survivors"]
        print(f"{module}: {known[module]['killed']} killed, {len(survivors)} survived")
        for survivor in survivors:
            if reason_of(survivor) is None:
                print(f"    - {survivor['was']}\n    + {survivor['became']}")


def run(module: str, children: int) -> dict[str, Any]:
    """Make all mutants of a module, and run its tests on each."""
    _copy_tree()
    tests = [f"tests/{name}.py" for name in TESTS[module] if Path(f"tests/{name}.py").exists()]
    settings = f"""
[tool.mutmut]
source_paths = ["count01_lens"]
only_mutate = ["count01_lens/{module}.py"]
also_copy = ["experiments", "README.md", "docs", "Makefile", "CHANGELOG.md", "constraints.txt"]
pytest_add_cli_args_test_selection = {json.dumps(tests)}
pytest_add_cli_args = ["-m", "not stress", "-p", "no:cacheprovider"]
"""
    for name, more in (("pyproject.toml", settings), ("tests/conftest.py", CONFTEST)):
        path = TREE / name
        path.write_text(path.read_text() + more)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    mutmut = [str(Path(sys.executable).with_name("mutmut"))]
    command = [*mutmut, "run", "--max-children", str(children)]
    subprocess.run(command, cwd=TREE, env=environment, check=False)
    meta = json.loads((TREE / "mutants" / "count01_lens" / f"{module}.py.meta").read_text())
    codes = meta["exit_code_by_key"]
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
