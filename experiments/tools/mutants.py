"""Change the library in small ways, one at a time, and see whether its tests notice.

    make mutants                                          those of docs/trust.md: most of an hour
    python -m experiments.tools.mutants counts/readout    one, or any others of the library
    python -m experiments.tools.mutants --share 1         all mutants instead of a random share

A share is drawn by the name of each mutant and a seed, so it is the same in every run, and the same
for every module: the score of all mutants together is an estimate without bias.

Works on copies of the files under version control, in runs/mutants, with mutmut; a few modules at
once, as most of the time goes into finding out which test reaches what. The record for
docs/trust.md goes to runs/trust/mutants.json, survivors with what was changed among it.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from count01_lens.common.storage import json_bytes, write_atomically
from count01_lens.common.versions import library_versions
from experiments.tools.harmless_mutants import reason_of

TREES, RECORD = Path("runs/mutants"), Path("runs/trust/mutants.json")
# What computes numbers, or keeps them, and the tests that judge it beside the oracles, those of a
# room or some of them: if none are named, those of the same name.
JUDGES: dict[str, tuple[str, ...]] = {
    "common/bundle": ("common",),
    "common/intervals": ("common",),
    "common/storage": ("common",),
    "tasks/counting": ("tasks",),
    "tasks/dataset": ("tasks",),
    "tasks/decisions": ("tasks", "counts/test_rounding", "counts/test_verification"),
    "tasks/language": ("tasks",),
    "tasks/prompts": ("tasks",),
    "models/checkpoints": ("models",),
    "models/direct_path": ("models",),
    "models/parameters": ("models", "counts/test_closed_form"),
    "counts/applies": ("counts/test_applies", "counts/test_counting_forms"),
    "counts/boxes": ("counts/test_boxes", "counts/test_kept_slabs", "counts/test_verification"),
    "counts/choice_readout": ("counts/test_counting_forms", "counts/test_mechanism"),
    "counts/closed_form": (
        "counts/test_closed_form",
        "counts/test_counting_forms",
        "attention/test_ablation",
    ),
    "counts/compact": ("counts/test_compact", "counts/test_counting_forms"),
    "counts/exhaustion": (
        "counts/test_exhaustion",
        "counts/test_verification",
        "counts/test_counting_forms",
    ),
    "counts/kept_slabs": ("counts/test_kept_slabs", "counts/test_verification"),
    "counts/mechanism": ("counts/test_mechanism", "heads/test_mechanisms"),
    "counts/multiplicities": ("counts/test_multiplicities", "counts/test_counting_forms"),
    "counts/readout": ("counts/test_readout", "counts/test_counting_forms"),
    "counts/rounding": ("counts/test_rounding", "counts/test_verification"),
    "counts/verification": ("counts/test_verification", "counts/test_boxes"),
    "heads/contributions": (),
    "heads/copies": (),
    "heads/effects": ("heads/test_any_model",),
    "heads/ends": ("heads/test_ends", "heads/test_verdict"),
    "heads/games": ("heads/test_games", "heads/test_game_axioms"),
    "heads/group_measures": ("heads/test_groups", "heads/test_group_numbers"),
    "heads/group_runs": ("heads/test_any_model", "heads/test_long_runs"),
    "heads/groups": ("heads/test_groups", "heads/test_group_numbers"),
    "heads/head_data": ("heads/test_metrics", "heads/test_runners", "heads/test_any_model"),
    "heads/hook_runner": ("heads/test_any_model", "heads/test_replacements", "heads/test_runners"),
    "heads/independence": (),
    "heads/interior_point": ("heads/test_probes", "heads/test_probe_fits"),
    "heads/labels": (),
    "heads/many_fits": ("heads/test_probe_fits", "heads/test_newton_together"),
    "heads/metrics": ("heads/test_metrics", "heads/test_extreme_metrics"),
    "heads/newton": ("heads/test_newton", "heads/test_probes"),
    "heads/newton_steps": ("heads/test_newton", "heads/test_newton_together"),
    "heads/newton_together": ("heads/test_newton_together", "heads/test_probe_fits"),
    "heads/probe_fits": ("heads/test_probe_fits", "heads/test_probes"),
    "heads/probes": ("heads/test_probes", "heads/test_probe_fits"),
    "heads/replacements": ("heads/test_replacements", "heads/test_any_model"),
    "heads/runners": ("heads/test_runners", "heads/test_any_model"),
    "heads/sampling": (),
    "heads/structure": (),
    "heads/verdict": ("heads/test_verdict", "heads/test_analysis"),
    "attention/ablation": ("attention", "heads/test_replacements"),
    "attention/copying": ("attention",),
    "attention/interventions": ("attention",),
    "attention/patches": ("attention", "counts/test_counting_forms"),
    "attention/rows": ("attention",),
    "attention/sweeps": ("attention",),
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
    parser.add_argument("--share", type=float, default=0.05, help="of the mutants of each module")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="modules at once")
    arguments = parser.parse_args()
    for module in arguments.modules:
        if not Path(f"count01_lens/{module}.py").is_file():
            parser.error(f"expected modules of the library such as heads/games, got {module}")
    modules = arguments.modules or list(JUDGES)
    with ThreadPoolExecutor(arguments.workers) as pool:
        runs = {
            module: pool.submit(run, module, arguments.share, arguments.seed) for module in modules
        }
        for module, ran in runs.items():
            if (problem := ran.exception()) is not None:
                print(f"{module}: {problem!r}", flush=True)
                continue
            record(module, ran.result())
            show(module, ran.result())
    if any(ran.exception() for ran in runs.values()):
        sys.exit("expected every module to have a result, see above for those without")


def record(module: str, found: dict[str, Any]) -> None:
    """Put what became of the mutants of a module on record, beside what is there."""
    known = json.loads(RECORD.read_text())["modules"] if RECORD.exists() else {}
    known[module] = found
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    whole = {"name": "mutants", "modules": known, "versions": library_versions()}
    write_atomically(RECORD, json_bytes(whole))


def show(module: str, found: dict[str, Any]) -> None:
    """Print what became of the mutants of a module, and the survivors that have no reason."""
    print(
        f"{module}: {found['made']} mutants, {found['killed']} killed, "
        f"{len(found['survivors'])} survived",
        flush=True,
    )
    for survivor in found["survivors"]:
        if reason_of(survivor) is None:
            print(f"    - {survivor['was']}\n    + {survivor['became']}", flush=True)


def judges_of(module: str) -> list[str]:
    """Which tests judge a module: those named, its own, or those of its room, and the oracles."""
    room, _, name = module.rpartition("/")
    own = f"{room}/test_{name}"
    named = JUDGES.get(module) or (own if Path(f"tests/{own}.py").is_file() else room,)
    return [
        *(f"tests/{one}.py" if "/test_" in one else f"tests/{one}" for one in named),
        ORACLES,
    ]


def is_drawn(mutant: str, share: float, seed: int) -> bool:
    """Whether a mutant is in a random share of all of them, by nothing but its name and a seed."""
    digest = hashlib.sha256(f"{seed} {mutant}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def run(module: str, share: float, seed: int) -> dict[str, Any]:
    """Make the mutants of a module, and run its tests on a share of them."""
    tree = TREES / module.replace("/", "_")
    _copy_tree(tree)
    settings = f"""
[tool.mutmut]
source_paths = ["count01_lens"]
only_mutate = ["count01_lens/{module}.py"]
also_copy = ["experiments", "README.md", "docs", "Makefile", "CHANGELOG.md", "constraints.txt"]
pytest_add_cli_args_test_selection = {json.dumps(judges_of(module))}
pytest_add_cli_args = ["-m", "not stress and not slow", "-p", "no:cacheprovider"]
"""
    for name, more in (("pyproject.toml", settings), ("tests/conftest.py", CONFTEST)):
        path = tree / name
        path.write_text(path.read_text() + more)
    # Makes the mutants and times the tests, and ends, as nothing has such a name.
    _mutmut(tree, "run", "no-such-mutant")
    names = [name for name in _codes(tree, module) if is_drawn(name, share, seed)]
    said = _mutmut(tree, "run", *names) if names else ""
    made = _codes(tree, module)
    codes = {name: made[name] for name in names}
    if names and all(code is None for code in codes.values()):
        raise RuntimeError(f"no mutant was run; do its tests pass without one? {said[-2000:]}")
    # No test at all (33), none chosen (5) or not run (None) is no better than survival.
    alive = [name for name, code in codes.items() if code in (0, 5, 33, None)]
    survivors = [_change(tree, name) for name in alive]
    shutil.rmtree(tree)
    return {"made": len(made), "killed": len(codes) - len(alive), "survivors": survivors}


def _mutmut(tree: Path, verb: str, *names: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    alone = ["--max-children", "1"] if verb == "run" else []
    command = [sys.executable, "-m", "mutmut", verb, *names, *alone]
    done = subprocess.run(
        command, cwd=tree, env=environment, check=False, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def _codes(tree: Path, module: str) -> dict[str, int | None]:
    """By mutant, the exit code of its tests, if they were run."""
    meta = json.loads((tree / "mutants" / "count01_lens" / f"{module}.py.meta").read_text())
    codes: dict[str, int | None] = meta["exit_code_by_key"]
    return codes


def _change(tree: Path, mutant: str) -> dict[str, str]:
    """What a mutant changes, as a line before and after."""
    lines = [
        line
        for line in _mutmut(tree, "show", mutant).splitlines()
        if line[:3] not in ("---", "+++")
    ]
    was, became = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return {"was": was, "became": became}


def _copy_tree(tree: Path) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in tracked.stdout.splitlines():
        if Path(name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, tree / name)


if __name__ == "__main__":
    main()
