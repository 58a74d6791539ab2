"""The widget without a browser: traits in both directions, refusals, and code that runs."""

import itertools
import json
import math
import subprocess

import pytest
from traitlets import TraitError

import count01_lens as cl
from count01_lens.views.explorer_data import Explored, explorer_data
from count01_lens.views.explorer_module import ENGINE, PAGE, explorer_module, joined
from tests.helpers import TINY, hooks_left, two_layers
from tests.lens_versions import KIND
from tests.views.explorer.engines import NODE
from tests.views.explorer.small_models import TASKS, model_for

MODEL = cl.example_model()


@pytest.fixture
def explorer():
    return cl.Explorer(MODEL, TINY)


def test_the_old_name_is_the_same():
    assert cl.AttentionPatcher is cl.Explorer


def test_it_keeps_anywidget_s_contract(explorer):
    """One ES module with a default export; state that JSON can hold, infinity included."""
    assert explorer._esm == explorer_module()
    assert "export default { render }" in explorer._esm
    explorer.w02 = math.inf
    synced = explorer.get_state()
    assert {"data", "_state", "_esm", "_css"} <= set(synced)
    assert json.loads(json.dumps(synced["_state"], allow_nan=False))["ratios"]["2"] == "inf"
    json.dumps(synced["data"], allow_nan=False)


def test_python_drives_the_page(explorer):
    explorer.w01, explorer.heads, explorer.off = 2, [5, 3], (7,)
    explorer.sentence = " 0112= "
    state = explorer._state
    assert state["ratios"] == {"1": 2.0, "2": None}
    assert (state["heads"], state["off"]) == ([3, 5], [7])
    assert (state["counts"], state["text"]) == ([1, 2, 1], "0112=")
    assert explorer.heads == [3, 5]
    assert "w01=2.0, heads=[3, 5]), cl.ablate_heads(model, [7])" in explorer.code


def test_the_page_drives_python(explorer):
    heard = []
    explorer.observe(
        lambda change: heard.append((change.name, change.new)), ["w01", "heads", "code"]
    )
    sent = {**explorer._state, "heads": [1], "ratios": {"1": "inf", "2": None}, "counts": [5, 6, 7]}
    explorer._state = sent
    assert explorer.w01 == math.inf
    assert explorer.heads == [1]
    assert explorer.sentence == "0" * 5 + "1" * 6 + "2" * 7 + "="
    assert [name for name, _ in heard] == ["heads", "w01", "code"]


@pytest.mark.parametrize(("name", "value", "part"), [
    ("w01", -1, "0 to infinity"), ("w01", "2", "0 to infinity"), ("w02", math.nan, "0 to infinity"),
    ("heads", [99], "99"), ("off", [-20], "-20"), ("others", "drop", "others: expected"),
    ("sentence", "01x=", "malformed sentence at position 2"), ("sentence", None, "expected"),
    ("weights", {"x": 1}, "weights: token"), ("ratios", {"9": 1.0}, "symbol"),
])  # fmt: skip
def test_what_cannot_be_is_refused_and_changes_nothing(explorer, name, value, part):
    before = json.dumps(explorer._state)
    with pytest.raises(TraitError, match=part):
        setattr(explorer, name, value)
    assert json.dumps(explorer._state) == before
    explorer.w01 = 3.0
    assert explorer._state["ratios"]["1"] == 3.0


def test_two_ratios_of_zero_are_refused(explorer):
    explorer.w01 = 0
    with pytest.raises(TraitError, match="at most one zero"):
        explorer.w02 = 0.0
    assert explorer.w02 is None


def test_models_to_which_counts_do_not_apply_are_refused_with_what_works():
    with pytest.raises(ValueError, match=r"2 layers; .*cl\.analyze_heads.* work"):
        cl.Explorer(two_layers())
    with pytest.raises(ValueError, match=f"expected a {KIND}"):
        cl.Explorer("model")
    with pytest.raises(TypeError, match="got 'colour'"):
        cl.Explorer(MODEL, TINY, colour="red")


def test_code_runs_as_it_is(capsys):
    explorer = cl.Explorer(MODEL, w01=1.0, w02=math.inf, heads=[2], off=[3], sentence="0111=")
    exec(explorer.code, {"model": MODEL})
    said, accuracy = capsys.readouterr().out.split()
    assert said.startswith("0111=")
    assert float(accuracy) == pytest.approx(explorer.accuracy.loc["patched", "answer"], abs=1e-3)
    assert hooks_left(MODEL) == 0


def test_the_page_writes_the_same_code(tmp_path):
    cases = []
    for name, task in TASKS.items():
        model = model_for(task, 0, 1.0)
        symbols = task.language.symbols
        entry = explorer_data([Explored(model, task)])["models"][0]
        start = [
            {}, {"ratios": {symbols[1]: 2.5e-05}, "heads": [0, 2]},
            {"ratios": {symbols[1]: math.inf, symbols[-1]: 3}, "others": "keep", "off": [1]},
            {"weights": {"[BOS]": 0.5, symbols[0]: 1, "=": 0}, "heads": [3]},
            {"sentence": f"[BOS]{symbols[0]}{symbols[1]}={task.language.answers[0]}"},
        ]  # fmt: skip
        for chosen in start:
            explorer = cl.Explorer(model, task, **chosen)
            cases.append((entry, explorer._state, explorer.code))
        long = cl.Explorer(model, task)
        long._state = {**long._state, "counts": [50] * len(symbols), "text": None}
        cases.append((entry, long._state, long.code))
        assert name
    given = [[{k: v for k, v in entry.items() if k != "tables"}, s] for entry, s, _ in cases]
    (tmp_path / "cases.json").write_text(json.dumps(given))
    script = joined((*ENGINE, "state.js", "wording.js")) + (
        '\nimport { readFileSync } from "node:fs";'
        "\nconst inf = (s) => ({ ...s, ratios: Object.fromEntries(Object.entries(s.ratios).map("
        '([k, r]) => [k, r === "inf" ? Infinity : r])) });'
        "\nconst cases = JSON.parse(readFileSync(process.argv[2]));"
        "\nconsole.log(JSON.stringify(cases.map(([e, s]) => pythonCode(e, inf(s)))));"
    )
    (tmp_path / "run.mjs").write_text(script)
    done = subprocess.run(
        [NODE, tmp_path / "run.mjs", tmp_path / "cases.json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for written, (_, _, code) in zip(json.loads(done.stdout), cases, strict=True):
        assert written == code


def test_the_module_is_one_that_node_reads(tmp_path):
    (tmp_path / "explorer.mjs").write_text(explorer_module())
    subprocess.run([NODE, "--check", tmp_path / "explorer.mjs"], check=True)
    assert len(set(itertools.chain(ENGINE, PAGE))) == len(ENGINE) + len(PAGE)


def test_circuitsvis_shows_the_same_patch(explorer):
    explorer.heads, explorer.w01, explorer.sentence = [2], 1.0, "0112="
    view = explorer.show_attention()
    row = view.patched[0, -1].tolist()
    assert row[0] == row[-1] == 0
    assert row[1] == pytest.approx(row[2]) == pytest.approx(row[3])


def test_scripts_get_what_the_page_shows(explorer):
    explorer.w01, explorer.off = 1.0, [0]
    table = explorer.table
    assert list(table) == ["head", "category", "s_acc", "s_acc_patched", "l_acc", "l_acc_patched"]
    original = cl.analyze_heads(MODEL, TINY).table
    assert table["s_acc"].tolist() == original["s_acc"].tolist()
    with cl.patch_attention(MODEL, w01=1.0), cl.ablate_heads(MODEL, [0]):
        expected = cl.accuracy(MODEL, TINY.test)
    assert explorer.accuracy.loc["patched", "answer"] == pytest.approx(expected)
