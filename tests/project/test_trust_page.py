"""docs/trust.md shows the records of the attacks, and the attacks were run in full."""

import json
from pathlib import Path

import pytest

from experiments.generated_part import generated_part
from experiments.tools import trust_page
from experiments.tools.engine_mutants import ENGINE_FILES, mutants_of
from experiments.tools.harmless_mutants import reason_of
from experiments.tools.mutants import JUDGES, is_drawn, judges_of

ROOT = Path(__file__).parents[2]
RECORDS = trust_page.read_records(ROOT / "docs" / "trust")


def cases(beginning: str) -> int:
    return sum(r["cases"] for name, r in RECORDS.items() if name.startswith(beginning))


def test_the_page_shows_the_records():
    page = (ROOT / "docs" / "trust.md").read_text("utf-8")
    assert generated_part(trust_page.generated(RECORDS)) in page


def test_the_attacks_were_run_in_full():
    assert cases("oracle-") >= 10_000
    assert cases("faults") >= 500
    assert cases("hostile_files") >= 10_000
    assert cases("leaks-failing-calls") >= 1_000
    assert RECORDS["leaks-memory"]["outcomes"] == {"flat": 1_000}


def test_a_record_becomes_a_line(tmp_path):
    record = {
        "name": "oracle-x", "what": "a | b", "seed": 3, "cases": 1234,
        "outcomes": {"agrees": 1230, "refused": 4}, "seconds": 5.4, "versions": {"torch": "2"},
    }  # fmt: skip
    (tmp_path / "x.json").write_text(json.dumps(record))
    text = trust_page.generated(trust_page.read_records(tmp_path))
    assert "| **oracle-x**: a \\| b | 1,234 | agrees: 1,230, refused: 4 | 3 | 5 |" in text
    assert "1 attacks, 1,234 cases" in text


def test_coverage_and_mutants_are_those_that_are_asked_for():
    assert RECORDS["coverage"]["percent"] >= 97
    modules = RECORDS["mutants"]["modules"]
    assert set(modules) <= {*JUDGES, *ENGINE_FILES}
    files = [*(f"{module}.py" for module in JUDGES), *ENGINE_FILES]
    assert all((ROOT / "count01_lens" / file).is_file() for file in files)
    survivors = [change for module in modules.values() for change in module["survivors"]]
    unseen = [change for change in survivors if reason_of(change) is None]
    killed = sum(module["killed"] for module in modules.values())
    assert len(unseen) <= 0.03 * (killed + len(unseen)), unseen


def test_a_module_is_judged_by_its_own_tests_or_those_of_its_room(monkeypatch):
    monkeypatch.chdir(ROOT)
    oracles = "tests/attacks/test_attack_oracles.py"
    assert judges_of("tasks/language") == ["tests/tasks", oracles]
    assert judges_of("heads/copies") == ["tests/heads/test_copies.py", oracles]
    assert judges_of("heads/ends")[1:] == ["tests/heads/test_verdict.py", oracles]
    assert judges_of("heads/groups")[1:] == ["tests/heads/test_group_numbers.py", oracles]
    assert judges_of("common/precision") == ["tests/common", oracles]
    assert all(Path(name).exists() for module in JUDGES for name in judges_of(module))


def test_coverage_names_modules_by_their_rooms():
    summary = {"num_statements": 3, "num_branches": 2, "missing_lines": 1, "missing_branches": 0}
    files = {f"count01_lens/{name}.py": 50 for name in ("jobs/results", "cli/__init__")}
    report = {
        "totals": {"percent_covered": 50, **summary},
        "files": {name: {"summary": {"percent_covered": value}} for name, value in files.items()},
    }
    lowest = trust_page.coverage_record(report)["lowest"]
    assert lowest == {"jobs/results": 50, "cli/__init__": 50}


def test_survivors_are_shown_with_their_reason():
    known = {"was": "a", "became": "nobody = np.zeros((2, data.n_heads), dtype=bool)"}
    unknown = {"was": "x > 1", "became": "x >= 1"}
    modules = {"tasks/language": {"made": 9, "killed": 3, "survivors": [known, unknown]}}
    text = trust_page.generated({"mutants": {"name": "mutants", "modules": modules}})
    assert "| tasks/language | 9 | 5 | 3 | 1 | 1 | 75.0 % |" in text
    assert f"- one of several that are all alike is read (1), such as `{known['became']}`" in text
    assert "- Not explained (1), such as `x >= 1`" in text
    assert "Not in this table yet: common/bundle, " in text
    assert "data/explorer/newton.js" in text


@pytest.mark.parametrize(
    ("was", "became", "why"),
    [
        ('rearrange(x, "m h -> (m h)")', 'rearrange(x, "M H -> (M H)")', "einops does not mind"),
        ('raise E("no such file")', 'raise E("NO SUCH FILE")', "other words in a message"),
        ('raise E("no such file")', 'raise E("XXno such fileXX")', "other words in a message"),
        ('raise E("no such file")', "raise E(None)", None),
        ('table["s_acc"]', 'table["S_ACC"]', None),
        ('table["s_acc"]', 'table["XXs_accXX"]', None),
        ("zip(a, b, strict=True)", "zip(a, b, strict=False)", "`strict=True` guards"),
        ("zip(a, b, strict=True)", "zip(a, b, )", "`strict=True` guards"),
        ("zip(a, b, strict=True)", "zip(a, strict=True)", None),
        ("x > 1", "x >= 1", None),
    ],
)
def test_what_rules_explain(was, became, why):
    reason = reason_of({"was": was, "became": became})
    assert reason is None if why is None else reason.startswith(why)


def test_a_share_of_mutants_is_drawn_by_name_and_seed():
    names = [f"mutant {i}" for i in range(2_000)]
    drawn = [name for name in names if is_drawn(name, 0.1, 1)]
    assert 150 < len(drawn) < 250
    assert drawn == [name for name in names[::-1] if is_drawn(name, 0.1, 1)][::-1]
    assert drawn != [name for name in names if is_drawn(name, 0.1, 2)]
    assert set(drawn) < {name for name in names if is_drawn(name, 0.2, 1)}
    assert all(is_drawn(name, 1, 1) for name in names)


def test_mutants_of_javascript_change_code_alone():
    text = '// a < b\nconst name = "a < b";\nif (a < b && !c) total += 2;\n'
    mutants = list(mutants_of("x.js", text))
    became = {mutant.became for mutant in mutants}
    assert {mutant.was for mutant in mutants} == {"if (a < b && !c) total += 2;"}
    assert "if (a <= b && !c) total += 2;" in became
    assert "if (a < b || !c) total += 2;" in became
    assert "if (a < b && c) total += 2;" in became
    assert "if (a < b && !c) total -= 2;" in became
    assert "if (a < b && !c) total += (2 + 1);" in became
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    assert all(mutant.text.count("\n") == 3 and mutant.text != text for mutant in mutants)
