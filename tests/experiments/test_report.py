"""The report of a reproduction."""

import json
import re
import shutil
from urllib.parse import unquote

import pytest
from matplotlib.figure import Figure

from count01_lens.common.storage import sha256
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import save_checkpoint
from count01_lens.models.config import ModelConfig
from count01_lens.views.figures import as_bytes
from experiments import report as reproduction
from experiments.claim_cells import our_value
from tests.helpers import EVIL, Outline, csv_of, fake_results, written


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_reproduction_shows_every_claim_and_every_row(tmp_path):
    results = fake_results(tmp_path / "results")
    page = written(results, tmp_path / "report.html")
    outline = Outline(page)
    outline.assert_good()
    assert EVIL not in page
    assert page == written(results, tmp_path / "again.html")
    assert page.count("<tr data-kind=") == 20
    assert re.findall(r'class="count">(\d+)<', page) == ["20", "5", "5", "5", "5"]
    (status,) = [item for _, item in outline.elements if item.get("role") == "status"]
    assert status["data-what"] == "claims"
    links = re.findall(r'<a href="#(\w+)">', page)
    contents = ["answer", "claims", "rows", *reproduction.ROWS, "making"]
    assert links[: len(contents)] == contents
    assert "25.0\u00a0%" in page
    assert "(20 to 30\u00a0%, n\u00a0=\u00a04)" in page
    assert "partly: at most 70\u00a0%" in page
    # What was not measured is there, with the reason where there is one.
    assert "F8, Setting w02 by hand. It failed: TimeoutError: took too long" in page
    assert "somewhere" not in page
    assert "A1, Three more seeds. There are no results of it." in page
    assert page.count("Shown by C1") == page.count("Shown by E2") == 2
    assert page.index("Shown by C1") < page.index("Statement 0 of D1")
    # Data: small tables to read and to take, large ones by name.
    assert csv_of(page, "T1_small.csv")["d"].to_list() == [32, 1]
    assert ">0.74<" in page
    assert "T1/large.csv of the results" in page
    assert (
        json.loads(
            unquote(re.search(r'json;charset=utf-8,([^"]*)" download="T1_numbers.json"', page)[1])
        )["count"]
        == 65535
    )
    assert "100-102, 7" in page
    assert "90 minutes on 2 cores" in page
    assert "Recipe of E2" in page
    assert "Recipe of D1, F3, C1, T1" in page
    assert "CircuitsVis" not in page
    assert "first look" not in page


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.0999, "number", "0.0999"), (0.09999996, "number", "0.09999996"), (0.1, "number", "0.1"),
     (0.09996, "share", "9.996\u00a0%"), (0.25, "share", "25.0\u00a0%"), (None, "share", "–"),
     (0.4, "percent points", "0.4 percent points"), (None, "steps", "–")],
)  # fmt: skip
def test_a_number_close_to_a_limit_shows_on_which_side_it_is(value, unit, shown):
    claim = {"value": value, "unit": unit, "reproduced": [0.1, 1], "partly": [None, 1]}
    assert our_value(claim) == shown


def test_a_reproduction_with_a_model_draws_its_attention(tmp_path):
    results = fake_results(tmp_path / "results", rows=["D1"])
    save_checkpoint(build_model(ModelConfig(d_embed=8, n_heads=4)), results / "model")
    page = written(results, tmp_path / "report.html")
    Outline(page).assert_good()
    assert page.count("CircuitsVis.render(") == 3


def test_a_quick_run_says_so(tmp_path):
    results = fake_results(tmp_path / "results", rows=["D1"])
    for file in ("suite.json", "D1/numbers.json"):
        change(results / file, size="quick")
    claims = json.loads((results / "claims.json").read_text())
    for claim in claims[:3]:
        claim["verdict"] = "too few"
    (results / "claims.json").write_text(json.dumps(claims))
    page = written(results, tmp_path / "report.html")
    assert "This is a quick run" in page
    assert "their verdict is “too few”" in page
    assert page.count('<tr data-kind="too few"') == 3


def with_contrast(directory, rows=("F3", "C1")):
    """Results of which some rows were measured with another recipe, too."""
    results = fake_results(directory)
    other = fake_results(directory.with_name("other"), rows=rows)
    for name in rows:
        shutil.move(other / name, results / "contrast" / name)
        change(
            results / "contrast" / name / "numbers.json",
            shows=f"Otherwise {name}",
            recipe={"epochs": 7, "learning_rate": 0.005},
        )
    claims = json.loads((results / "claims.json").read_text())
    found = {"value": 0.125, "low": 0.1, "high": 0.15, "n": 3, "verdict": "partly"}
    missing = {**dict.fromkeys(found), "verdict": "not measured"}
    for claim in claims:
        first = claim["id"].endswith("0")
        claim["contrast"] = (found if first else missing) if claim["row"] in rows else None
    claims[0]["paper"] = "ours"
    (results / "claims.json").write_text(json.dumps(claims))
    return results


def test_the_contrast_stands_beside_what_the_paper_s_recipe_gives(tmp_path):
    results = with_contrast(tmp_path / "results")
    page = written(results, tmp_path / "report.html")
    Outline(page).assert_good()
    assert "(epochs 100). Where the recipe matters" in page
    assert "(epochs 7), as a contrast" in page
    assert "Of 19 claims of the paper, with its recipe:" in page
    # Among all claims, with the row, and for C1 in the answer to the title's question.
    assert page.count("12.5\u00a0%") == 5
    assert page.count("(10 to 15\u00a0%, n\u00a0=\u00a03)") == 5
    assert page.count("Otherwise F3") == 1
    assert page.count("Otherwise C1") == 2
    assert page.count("with the accurate recipe: figures") == 2
    assert "Recipe of F3, C1 with the accurate recipe" in page
    counts = r"the same: with the accurate recipe</th>\s*" + r"<td[^>]*>(\d+)</td>\s*" * 5
    assert re.search(counts, page).groups() == ("0", "2", "0", "6", "8")


def test_a_contrast_that_failed_is_named(tmp_path):
    results = with_contrast(tmp_path / "results")
    change(results / "suite.json", failed={"contrast/F3": "Traceback\nMemoryError: too large"})
    page = written(results, tmp_path / "report.html")
    assert "Otherwise F3" not in page
    assert "It failed: MemoryError: too large" in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": "quick"}, "contrast/F3/numbers.json: expected size full .* got quick"),
        ({"claims_sha256": "0" * 64}, "expected claims_sha256 .* got 0000"),
        ({"row": "F4"}, "expected row F3 as in suite.json, got F4"),
        ({"figures": [{"file": "b.svg", "alt": "words", "caption": "b"}]},
         "expected a file of row contrast/F3, got none"),
    ],
)  # fmt: skip
def test_a_contrast_of_another_run_is_refused(tmp_path, changes, message):
    results = with_contrast(tmp_path / "results")
    change(results / "contrast" / "F3" / "numbers.json", **changes)
    with pytest.raises(ValueError, match=message):
        written(results, tmp_path / "report.html")


@pytest.mark.parametrize(
    ("contrast", "message"),
    [(3, "expected a contrast with value and verdict"), ({"verdict": "partly"}, "got {'verdict'"),
     ({"value": 1, "verdict": "maybe"}, "expected a verdict among .* got 'maybe'")],
)  # fmt: skip
def test_a_damaged_contrast_is_named(tmp_path, contrast, message):
    results = fake_results(tmp_path / "results", rows=["D1"])
    claims = json.loads((results / "claims.json").read_text())
    claims[4]["contrast"] = contrast
    (results / "claims.json").write_text(json.dumps(claims))
    with pytest.raises(ValueError, match=message):
        written(results, tmp_path / "report.html")


def test_large_vector_graphics_are_replaced(tmp_path):
    figure = Figure(figsize=(2, 1))
    large = as_bytes(figure, "svg") + b" " * 300_000
    results = fake_results(
        tmp_path / "results", rows=["D1"], image=(large, as_bytes(figure, "png"))
    )
    page = written(results, tmp_path / "report.html")
    assert "data:image/png" in page
    assert "data:image/svg" not in page
    assert len(page) < 100_000


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("F3/numbers.json", {"size": "quick"}, "expected size full as in suite.json, got quick"),
        ("F3/numbers.json", {"claims_sha256": "0" * 64}, "expected claims_sha256 .* got 0000"),
        ("F3/numbers.json", {"row": "F4"}, "expected row F3 as in suite.json, got F4"),
        ("F3/numbers.json", {"shows": None}, "shows: expected words, got None"),
        ("suite.json", {"claims_sha256": "0" * 64}, "rules of claims.py .* got others .*; run the"),
        ("F3/numbers.json", {"tables": ["nothing.csv"]}, "expected a file of row F3, got none"),
        ("F3/numbers.json", {"tables": ["../suite.json"]}, "expected a file of row F3, got none"),
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path, file, changes, message):
    results = fake_results(tmp_path / "results")
    change(results / file, **changes)
    with pytest.raises(ValueError, match=message):
        written(results, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_other_rules_are_refused(tmp_path):
    results = fake_results(tmp_path / "results", rows=["D1"])
    (tmp_path / "claims.py").write_text("# other rules\n")
    with pytest.raises(ValueError, match="expected verdicts by the rules of claims.py"):
        written(results, tmp_path / "report.html")
    (tmp_path / "claims.py").unlink()
    with pytest.raises(ValueError, match="no such file"):
        written(results, tmp_path / "report.html")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("suite.json", "{", "expected JSON written by the experiment suite"),
        ("suite.json", "[]", "got no size, claims_sha256"),
        ("claims.json", "{}", "expected a list written by the experiment suite, got a dict"),
        ("claims.json", '[{"id": "F3.x"}]', "expected claims with row, statement"),
        ("D1/numbers.json", "3", "got no row, title"),
    ],
)
def test_damaged_results_are_named(tmp_path, file, text, message):
    results = fake_results(tmp_path / "results", rows=["D1"])
    (results / file).write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        written(results, tmp_path / "report.html")
    assert file in str(error.value)


@pytest.mark.parametrize(("key", "value"), [("verdict", "maybe"), ("row", "F99"), ("paper", 73)])
def test_unknown_verdicts_and_rows_are_refused(tmp_path, key, value):
    results = fake_results(tmp_path / "results", rows=["D1"])
    claims = json.loads((results / "claims.json").read_text())
    claims[4][key] = value
    (results / "claims.json").write_text(json.dumps(claims))
    with pytest.raises(ValueError, match=f"{key}.*expected|expected a {key}"):
        written(results, tmp_path / "report.html")


def test_the_command_of_the_reproduction(tmp_path, capsys, monkeypatch):
    results = fake_results(tmp_path / "results", rows=["D1"])
    with pytest.raises(SystemExit) as stop:
        reproduction.main([str(results), "-o", str(tmp_path / "report.html")])
    assert stop.value.code == 2
    assert "expected verdicts by the rules of claims.py" in capsys.readouterr().err
    change(results / "suite.json", claims_sha256=sha256(reproduction.CLAIMS_FILE.read_bytes()))
    change(
        results / "D1" / "numbers.json", claims_sha256=sha256(reproduction.CLAIMS_FILE.read_bytes())
    )
    reproduction.main([str(results), "-o", str(tmp_path / "report.html")])
    assert "open it in a browser" in capsys.readouterr().out
    assert (tmp_path / "report.html").stat().st_size > 10_000
