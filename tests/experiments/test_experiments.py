"""The suite: results are never mixed, failures are named, and the committed run is a full one."""

import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest

import count01_lens as cl
from count01_lens.jobs.job import Job
from count01_lens.views.figures import NotebookFigure
from experiments import claims, page, readings, runs, suite
from experiments.generated_part import generated_part
from experiments.rows import ROWS
from tests.helpers import TINY
from tests.job_functions import calls, raises, square

DOCS = Path(__file__).parents[2] / "docs"
FULL = DOCS / "reproduction"


def row(name="X1", *, jobs=(), measure=None, numbers=None, contrast=False):
    def default(load, setup):
        figure = NotebookFigure(figsize=(2, 2))
        shown = {"dot": suite.Shown(figure, "a dot", "It is a dot.")}
        table = pd.DataFrame({"x": [1, 2]})
        return suite.Measured(numbers or {"seen": 1.0}, "It shows.", {"table": table}, shown, [7])

    return SimpleNamespace(
        ROW=name, TITLE="A title", PAPER="A claim", __name__=f"experiments.{name}", __doc__="Doc.",
        jobs=lambda setup: list(jobs), measure=measure or default, CONTRAST=contrast,
    )  # fmt: skip


def test_a_row_is_written_with_all_that_explains_it(tmp_path):
    assert suite.run_suite([row()], tmp_path, "quick", workers=0, progress=False) == 0
    written = json.loads((tmp_path / "X1" / "numbers.json").read_text())
    assert written["numbers"] == {"seen": 1.0}
    assert written["claims_sha256"] == claims.sha256()
    assert written["seeds"] == [7]
    assert "torch" in written["versions"]
    assert written["figures"] == [{"file": "dot.svg", "alt": "a dot", "caption": "It is a dot."}]
    assert (tmp_path / "X1" / "table.csv").read_text() == "x\n1\n2\n"
    assert (tmp_path / "X1" / "dot.svg").exists()


def test_a_large_drawing_gets_a_picture_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "LARGEST_SVG", 100)
    suite.run_suite([row()], tmp_path, "quick", workers=0, progress=False)
    written = json.loads((tmp_path / "X1" / "numbers.json").read_text())
    assert written["figures"][0]["png"] == "dot.png"
    assert (tmp_path / "X1" / "dot.png").read_bytes().startswith(b"\x89PNG")


def test_one_failing_experiment_does_not_stop_the_others(tmp_path, capsys):
    def broken(load, setup):
        raise ZeroDivisionError("one by zero")

    bad_job = Job("bad", raises, {"log": str(tmp_path), "value": 1}, "1")
    rows = [row("X1", measure=broken), row("X2", jobs=[bad_job]), row("X3")]
    assert suite.run_suite(rows, tmp_path, "quick", workers=0, progress=False) == 1
    known = json.loads((tmp_path / "suite.json").read_text())
    assert known["failed"]["X1"] == "ZeroDivisionError: one by zero"
    assert known["failed"]["X2"].startswith("job bad")
    assert (tmp_path / "X3" / "numbers.json").exists()
    errors = capsys.readouterr().err
    assert "X1 failed: ZeroDivisionError: one by zero" in errors
    assert "X2 failed" in errors


def test_jobs_are_shared_and_not_run_again(tmp_path):
    log = tmp_path / "log"
    log.mkdir()
    job = Job("square", square, {"log": str(log), "value": 3}, "1")
    found = []

    def measure(load, setup):
        found.append(load(job))
        return row().measure(load, setup)

    rows = [row(name, jobs=[job], measure=measure) for name in ("X1", "X2")]
    for _ in range(2):
        suite.run_suite(rows, tmp_path / "out", "quick", workers=0, progress=False)
    assert found == [{"square": 9}] * 4
    assert calls(log) == {3: 1}


def test_results_of_another_size_or_other_rules_are_refused(tmp_path, monkeypatch):
    suite.run_suite([row()], tmp_path, "quick", workers=0, progress=False)
    with pytest.raises(suite.MixedResultsError, match="size = full, got quick"):
        suite.run_suite([row()], tmp_path, "full", workers=0, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(claims, "sha256", lambda: "0" * 64)
        with pytest.raises(suite.MixedResultsError, match="claims_sha256"):
            suite.run_suite([row()], tmp_path, "quick", workers=0, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(suite, "version", lambda library: "0.1")
        with pytest.raises(suite.MixedResultsError, match=r"'pandas': '0.1'.* choose another"):
            suite.run_suite([row()], tmp_path, "quick", workers=0, progress=False)
    (tmp_path / "suite.json").write_text('{"size": "qui')
    with pytest.raises(suite.MixedResultsError, match="got a damaged file; choose another --out"):
        suite.run_suite([row()], tmp_path, "quick", workers=0, progress=False)


def test_a_missing_library_is_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "LIBRARIES", ("no-such-library",))
    with pytest.raises(suite.MissingLibraryError, match="no-such-library: expected to be inst"):
        suite.run_suite([row()], tmp_path / "out", "quick", workers=0, progress=False)
    assert not (tmp_path / "out").exists()


def test_every_row_of_the_paper_has_an_experiment_and_every_claim_a_row():
    expected = [
        "D1",
        "D2",
        "M1",
        *(f"F{n}" for n in range(12)),
        "E1",
        "E2",
        "S1",
        "S2",
        "C1",
        "T1",
        "A1",
        "P1",
        "P2",
        "P3",
    ]
    assert [module.ROW for module in ROWS] == expected
    assert {claim.row for claim in claims.CLAIMS} == set(expected) - {"P3"}  # which has none
    ids = [claim.id for claim in claims.CLAIMS]
    assert len(ids) == len(set(ids))
    for claim in claims.CLAIMS:
        assert claim.partly[0] <= claim.reproduced[0] <= claim.reproduced[1] <= claim.partly[1]


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.5, "reproduced"), (0.4, "reproduced"), (0.61, "partly"), (0.9, "not reproduced"),
     (None, "not measured"), (math.nan, "not measured")],
)  # fmt: skip
def test_verdicts(value, verdict):
    claim = claims.Claim("X.y", "a claim", "half", "a share", (0.4, 0.6), (0.3, 0.7))
    assert claim.judge(value) == verdict
    assert claims.judged(claim, {"y": value})["verdict"] == verdict
    spread = {"mean": value, "low": 0.1, "high": 0.9, "n": 3}
    assert claims.judged(claim, {"y": spread})["low"] == 0.1
    assert claims.judged(claim, None)["verdict"] == "not measured"


def test_intervals_are_student_s():
    found = suite.spread([1.0, 2.0, 3.0, float("nan")])
    assert found["mean"] == 2.0
    assert found["n"] == 3
    # t(0.975, 2) = 4.3027, standard error 1/sqrt(3)
    assert found["high"] == pytest.approx(2 + 4.302653 / math.sqrt(3), rel=1e-5)
    assert suite.spread([])["mean"] is None
    assert suite.spread([5.0])["low"] is None


@pytest.mark.slow
def test_a_run_measures_what_the_library_measures_alone():
    recipe = cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=4), epochs=1)
    job = runs.run_job([recipe], [5, 6], [0, 1], closely=[6], read=1)
    value = runs.train_and_measure(**job.configuration)
    model = runs.models_of(job, value)[6]
    analysis = cl.analyze_heads(model)
    heads = value["heads"]
    rows = heads[(heads["seed"] == 6) & (heads["epoch"] == 1)]
    assert rows["s_acc"].tolist() == pytest.approx(analysis.table["s_acc"].tolist(), abs=2e-3)
    look = value["closely"]["6"]
    np.testing.assert_allclose(
        look["interactions"]["l_acc"], analysis.interactions("l_acc"), atol=1e-6
    )
    sweep = cl.sweep_attention(model, "w02")
    np.testing.assert_allclose(look["sweeps"]["w02"]["s_acc"], sweep.s_acc, atol=2e-3)


def test_the_readings_are_different_probes():
    data = cl.analyze_heads(cl.example_model(), TINY).data
    table = readings.under_each_reading(data, [3])
    assert table["reading"].nunique() == 5
    default = table[table["reading"] == "squared hinge, sum (default)"]["s_acc"].item()
    assert default == cl.analyze_heads(cl.example_model(), TINY).table["s_acc"][3]
    assert readings.summary(table)["heads"].tolist() == [1] * 5


@pytest.mark.slow
def test_experiments_can_be_run_alone(tmp_path):
    command = [sys.executable, "-m", "experiments.labels", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "D2.labels_right                      1 reproduced" in done.stdout
    assert (
        f"of {len(claims.CLAIMS)} claims: {len(claims.CLAIMS) - 1} not measured, 1 reproduced"
        in done.stdout
    )
    written = json.loads((tmp_path / "out" / "D2" / "numbers.json").read_text())
    assert written["name"] == "labels"
    command[-1] = str(tmp_path / "out")
    done = subprocess.run([*command, "--size", "full"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "choose another --out" in done.stderr
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert "D2: The label" in done.stdout


# The committed full run


@pytest.fixture(scope="module")
def full():
    numbers = {}
    for module in ROWS:
        numbers[module.ROW] = json.loads((FULL / module.ROW / "numbers.json").read_text())
    return numbers


def test_the_committed_run_is_full_and_judged_by_these_rules(full):
    known = json.loads((FULL / "suite.json").read_text())
    assert known["size"] == "full"
    assert known["failed"] == {}
    sha256 = hashlib.sha256(Path(claims.__file__).read_bytes()).hexdigest()
    assert known["claims_sha256"] == sha256
    for content in full.values():
        assert content["size"] == "full"
        assert content["claims_sha256"] == sha256


def test_the_committed_run_has_the_paper_s_counts(full):
    numbers = {name: content["numbers"] for name, content in full.items()}
    assert numbers["T1"]["trainings"] == 1470
    assert numbers["T1"]["heads"] == 9030
    table = pd.read_csv(FULL / "T1" / "minimal_heads.csv")
    assert table["heads"].tolist() == [100, 100, 100, 100, 300, 6400, 650, 1280]
    assert numbers["F4"]["groups"] == 65_535
    assert numbers["F10"]["heads"] == 10_000
    assert numbers["F11"]["checkpoints"] == 364
    assert numbers["F11"]["runs"] == 4
    assert numbers["E1"]["heads"] == 80
    sizes = pd.read_csv(FULL / "F2" / "sizes.csv")
    assert (sizes["count"] == 10).all()
    assert {1, 32} <= set(sizes["n_heads"])
    assert {1, 64} <= set(sizes["d_embed"])
    assert numbers["M1"]["up_to"] == 200
    assert numbers["S2"]["nested_pairs"] == 4 * 524_272
    assert len(full["F3"]["seeds"]) == 10


def test_the_committed_verdicts_follow_from_the_committed_numbers(full):
    judged = json.loads((FULL / "claims.json").read_text())
    contrast = {
        path.parent.name: json.loads(path.read_text())
        for path in FULL.glob("contrast/*/numbers.json")
    }
    assert set(contrast) == {module.ROW for module in ROWS if module.CONTRAST}
    assert judged == [
        json.loads(json.dumps(suite.judged_twice(claim, full[claim.row], contrast.get(claim.row))))
        for claim in claims.CLAIMS
    ]


def test_the_page_shows_the_committed_run():
    for file, parts in page.generated(FULL).items():
        for name, text in parts.items():
            assert generated_part(text, name) in (DOCS / file).read_text()


def test_the_committed_results_are_small():
    files = [path for path in FULL.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 10_000_000
    assert not (FULL / "jobs").exists()


def test_drawing_changes_no_global_state(tmp_path):
    before = dict(matplotlib.rcParams)
    suite.run_suite([row()], tmp_path, "quick", workers=0, progress=False)
    assert dict(matplotlib.rcParams) == before


def test_recipes_that_differ_are_published_as_lists():
    one = cl.TrainConfig(model=cl.ModelConfig(d_embed=4, n_heads=2), epochs=10)
    two = cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=2), epochs=20)
    merged = runs.recipe_of([two, one, two])
    assert merged["epochs"] == [10, 20]
    assert merged["model"]["d_embed"] == [4, 8]
    assert merged["model"]["n_heads"] == 2
    assert runs.recipe_of([one]) == one.to_dict()


def test_what_is_published_is_what_was_trained():
    table = json.loads((FULL / "T1" / "numbers.json").read_text())
    assert table["recipe"]["model"]["d_head"] == 1
    assert table["recipe"]["model"]["layer_norm"] is False
    assert len(table["seeds"]) == len(set(table["seeds"])) == table["numbers"]["trainings"]


def judged_at(directory, numbers, *, contrast=None, recipe=None, size="full"):
    """Judge a made-up claim by rows as the suite writes them."""
    claim = claims.Claim("X1.seen", "a claim", "half", "a share", (0.4, 0.6), (0.3, 0.7))
    row = {"numbers": numbers, "size": size, "recipe": recipe or {}}
    other = None if contrast is None else {**row, "numbers": contrast}
    return suite.judged_twice(claim, row, other)


def test_a_claim_is_judged_with_both_recipes(tmp_path):
    found = judged_at(tmp_path, {"seen": 0.5}, contrast={"seen": 0.9})
    assert found["verdict"] == "reproduced"
    assert found["contrast"] == {
        "value": 0.9, "low": None, "high": None, "n": None, "verdict": "not reproduced",
    }  # fmt: skip
    assert judged_at(tmp_path, {"seen": 0.5})["contrast"] is None


def test_a_quick_run_of_trained_models_decides_nothing(tmp_path):
    trained = {"epochs": 100}
    quick = {"recipe": trained, "size": "quick"}
    assert judged_at(tmp_path, {"seen": 0.5}, **quick)["verdict"] == "too few"
    assert judged_at(tmp_path, {"seen": 0.9}, **quick)["verdict"] == "too few"
    assert judged_at(tmp_path, {"seen": None}, **quick)["verdict"] == "not measured"
    found = judged_at(tmp_path, {"seen": 0.5}, contrast={"seen": 0.9}, **quick)
    assert found["contrast"]["verdict"] == "too few"
    assert judged_at(tmp_path, {"seen": 0.5}, size="quick")["verdict"] == "reproduced"
    assert judged_at(tmp_path, {"seen": 0.5}, recipe=trained)["verdict"] == "reproduced"


def test_the_contrast_is_measured_with_the_accurate_recipe_in_a_directory_of_its_own(tmp_path):
    seen = []

    def measure(load, setup):
        seen.append(setup.recipe)
        return suite.Measured({"batch": setup.recipe.batch_size}, "It shows.", seeds=[7])

    rows = [row("X1", measure=measure, contrast=True), row("X2", measure=measure)]
    assert suite.run_suite(rows, tmp_path, "quick", workers=0, progress=False) == 0
    paper, accurate = cl.TrainConfig.paper(), cl.TrainConfig()
    assert seen == [paper, paper, accurate]
    written = {
        name: json.loads((tmp_path / name / "numbers.json").read_text())["numbers"]["batch"]
        for name in ("X1", "X2", "contrast/X1")
    }
    assert written == {"X1": paper.batch_size, "X2": paper.batch_size, "contrast/X1": 64}
    assert not (tmp_path / "contrast/X2").exists()
