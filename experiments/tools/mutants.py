"""Change the library in small ways, one at a time, and see whether its tests notice.

    make mutants                                          those of docs/trust.md: most of an hour
    python -m experiments.tools.mutants counts/readout    one, or any others of the library
    python -m experiments.tools.mutants --share 1         all mutants instead of a random share

A share is drawn by the name of each mutant and a seed, so it is the same in every run, and the same
for every module: the score of all mutants together is an estimate without bias.

Works on a copy of the files under version control, in runs/mutants, with mutmut. The record for
docs/trust.md goes to runs/trust/mutants.json, survivors with what was changed among it.
"""

import argparse
import hashlib
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
# What computes numbers, or keeps them, and the tests that judge it beside the oracles: if none are
# named, those of the same name.
JUDGES: dict[str, tuple[str, ...]] = {
    "common/bundle": (),
    "common/intervals": (),
    "common/storage": (),
    "tasks/counting": ("tasks/test_counting_task", "tasks/test_rules"),
    "tasks/dataset": (),
    "tasks/decisions": ("counts/test_rounding", "counts/test_boxes", "counts/test_verification"),
    "tasks/language": (),
    "tasks/prompts": (),
    "models/checkpoints": (),
    "models/direct_path": (),
    "models/parameters": ("models/test_model", "counts/test_closed_form"),
    "counts/applies": (),
    "counts/boxes": (),
    "counts/choice_readout": ("counts/test_counting_forms", "counts/test_mechanism"),
    "counts/closed_form": (),
    "counts/compact": (),
    "counts/exhaustion": (),
    "counts/kept_slabs": (),
    "counts/mechanism": (),
    "counts/multiplicities": (),
    "counts/readout": (),
    "counts/rounding": (),
    "counts/verification": (),
    "heads/contributions": (),
    "heads/copies": (),
    "heads/effects": ("heads/test_any_model",),
    "heads/ends": (),
    "heads/games": ("heads/test_games", "heads/test_game_axioms"),
    "heads/group_measures": ("heads/test_groups", "heads/test_group_numbers"),
    "heads/group_runs": ("heads/test_any_model", "heads/test_long_runs"),
    "heads/groups": (),
    "heads/head_data": ("heads/test_metrics", "heads/test_runners", "heads/test_any_model"),
    "heads/hook_runner": ("heads/test_any_model", "heads/test_replacements"),
    "heads/independence": (),
    "heads/interior_point": ("heads/test_probes", "heads/test_probe_fits"),
    "heads/labels": (),
    "heads/many_fits": ("heads/test_probe_fits", "heads/test_newton_together"),
    "heads/metrics": ("heads/test_metrics", "heads/test_extreme_metrics"),
    "heads/newton": (),
    "heads/newton_steps": ("heads/test_newton", "heads/test_newton_together"),
    "heads/newton_together": (),
    "heads/probe_fits": (),
    "heads/probes": (),
    "heads/replacements": (),
    "heads/runners": (),
    "heads/sampling": (),
    "heads/structure": (),
    "heads/verdict": (),
    "attention/ablation": (),
    "attention/copying": ("attention/test_interventions",),
    "attention/interventions": (),
    "attention/patches": ("attention/test_interventions", "attention/test_patched_runs"),
    "attention/rows": ("attention/test_interventions", "attention/test_patched_runs"),
    "attention/sweeps": (),
}
ORACLES = "tests/attacks/test_attack_oracles.py"
# mutmut reads an attribute that pytest has renamed.
CONFTEST = """

def pytest_collection_modifyitems(items):
    for item in items:
        item._nodeid = item.nodeid
"""


def main() -> None:
    """Run mutants of some modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="such as heads/games; default all of docs")
    parser.add_argument("--share", type=float, default=0.1, help="of the mutants of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    for module in arguments.modules:
        if not Path(f"count01_lens/{module}.py").is_file():
            parser.error(f"expected modules of the library such as heads/games, got {module}")
    for module in arguments.modules or JUDGES:
        found = run(module, arguments.children, arguments.share, arguments.seed)
        record(module, found)
        print(
            f"{module}: of {found['made']} mutants {found['killed']} were killed, "
            f"{len(found['survivors'])} survived"
        )
        for survivor in found["survivors"]:
            if reason_of(survivor) is None:
                print(f"    - {survivor['was']}\n    + {survivor['became']}", flush=True)


def record(module: str, found: dict[str, Any]) -> None:
    """Put what became of the mutants of a module on record, beside what is there."""
    known = json.loads(RECORD.read_text())["modules"] if RECORD.exists() else {}
    known[module] = found
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    whole = {"name": "mutants", "modules": known, "versions": library_versions()}
    write_atomically(RECORD, json_bytes(whole))


def judges_of(module: str) -> list[str]:
    """Which tests judge a module: those named, its own, or those of its room, and the oracles."""
    if named := JUDGES.get(module):
        return [*(f"tests/{name}.py" for name in named), ORACLES]
    room, _, name = module.rpartition("/")
    own = Path("tests", room, f"test_{name}.py")
    return [str(own if own.is_file() else own.parent), ORACLES]


def is_drawn(mutant: str, share: float, seed: int) -> bool:
    """Whether a mutant is in a random share of all of them, by nothing but its name and a seed."""
    digest = hashlib.sha256(f"{seed} {mutant}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def run(module: str, children: int, share: float, seed: int) -> dict[str, Any]:
    """Make the mutants of a module, and run its tests on a share of them."""
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
    # Makes the mutants and times the tests, and ends, as nothing has such a name.
    _mutmut("run", "no-such-mutant", "--max-children", "1")
    names = [name for name in _codes(module) if is_drawn(name, share, seed)]
    if names:
        _mutmut("run", *names, "--max-children", str(children))
    made = _codes(module)
    codes = {name: made[name] for name in names}
    if names and all(code is None for code in codes.values()):
        raise RuntimeError(f"{module}: no mutant was run; do its tests pass without one?")
    # No test at all (33), none chosen (5) or not run (None) is no better than survival.
    alive = [name for name, code in codes.items() if code in (0, 5, 33, None)]
    return {
        "made": len(made),
        "killed": len(codes) - len(alive),
        "survivors": [_change(name) for name in alive],
    }


def _mutmut(*arguments: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(
        command, cwd=TREE, env=environment, check=False, capture_output=True, text=True
    )
    return done.stdout


def _codes(module: str) -> dict[str, int | None]:
    """By mutant, the exit code of its tests, if they were run."""
    meta = json.loads((TREE / "mutants" / "count01_lens" / f"{module}.py.meta").read_text())
    codes: dict[str, int | None] = meta["exit_code_by_key"]
    return codes


def _change(mutant: str) -> dict[str, str]:
    """What a mutant changes, as a line before and after."""
    lines = [
        line for line in _mutmut("show", mutant).splitlines() if line[:3] not in ("---", "+++")
    ]
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
