"""Reports of an analysis, and of a reproduction."""

import copy
import json
import re
from html import unescape
from urllib.parse import unquote

import pandas as pd
import pytest
from markupsafe import escape
from matplotlib.figure import Figure
from typer.testing import CliRunner

import count01_lens.views.report_figures as figures_module
from count01_lens.cli import app
from count01_lens.common.storage import sha256
from count01_lens.heads.analysis import HeadAnalysis, analyze_heads
from count01_lens.models.checkpoints import save_checkpoint
from count01_lens.models.handcrafted import cooperative_model, minimal_model
from count01_lens.models.model import ModelConfig, build_model
from count01_lens.tasks.dataset import SplitSpec, make_splits
from count01_lens.views.figures import as_bytes
from experiments import report as reproduction
from experiments.claim_cells import our_value
from tests.helpers import EVIL, TINY, Outline, two_layers

MODEL = build_model(ModelConfig(d_embed=8, n_heads=4), seed=1)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="72pt" height="36pt"></svg>'


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A report with everything in it, and the analysis behind it."""
    analysis = analyze_heads(MODEL, TINY)
    analysis.groups()
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert analysis.report(path) == path
    return analysis, path.read_text()


@pytest.fixture
def quick(monkeypatch):
    """Figures that take no time."""
    monkeypatch.setattr(figures_module, "as_bytes", lambda figure, kind: SVG)


def csv_of(page, name):
    address = re.search(rf'href="data:text/csv;charset=utf-8,([^"]*)" download="{name}"', page)[1]
    return pd.read_csv(pd.io.common.StringIO(unquote(unescape(address))))


def test_a_report_has_it_all(whole):
    analysis, page = whole
    outline = Outline(page)
    outline.assert_good()
    assert escape(analysis.answer) in page
    assert "cooperate" in analysis.answer or "redundant" in analysis.answer
    for readout in [*analysis.table["readout"], *analysis.table["learned_readout"]]:
        assert escape(readout) in page
    parts = re.findall(r'<a href="#(\w+)">', page)
    assert parts == ["heads", "readouts", "pairs", "groups", "looks", "sentence", "making"]
    # Pairs by four metrics, gains, groups, Shapley values, three interactions, ratios, outputs,
    # logits: each with its data.
    assert len(outline.all("img")) == 13
    names = [link["download"] for link in outline.all("a") if "download" in link]
    assert len(names) == len(set(names)) == 14
    assert page.count("CircuitsVis.render(") == 3
    assert "numpy" in page
    ties = analysis.splits.test.ties.double()
    assert f"{int(ties.sum())} of {len(ties)} sentences, would be an s-acc of " in page
    assert f"s-acc of {1 - ties.mean():.4f}." in page


def test_the_numbers_in_a_report_are_those_of_the_analysis(whole):
    analysis, page = whole
    heads = csv_of(page, "heads.csv")
    pd.testing.assert_frame_equal(heads, analysis.table, rtol=1e-5, check_dtype=False)
    for row in analysis.table.itertuples():
        cells = "".join(
            f'<td class="number">{value:.4f}</td>'
            for value in (row.l_acc, row.roc_auc, row.s_acc, row.s_acc_ties, row.s_acc_others)
        )
        assert f'<th scope="row" class="number">{row.head}</th>' in page
        assert cells in page
    shapley = csv_of(page, "shapley.csv")
    assert shapley["s_acc"].to_list() == pytest.approx(analysis.shapley("s_acc"), rel=1e-4)
    pairs = csv_of(page, "pairs_l_acc.csv").to_numpy()[:, 1:]
    assert pairs == pytest.approx(analysis.pairs["l_acc"], rel=1e-5)
    outputs = csv_of(page, "head_outputs.csv")
    assert outputs["head_3_1"].to_numpy() == pytest.approx(
        analysis.data.test_outputs[:, 3, 1], rel=1e-4
    )


def test_the_same_analysis_gives_the_same_bytes(whole, tmp_path):
    analysis, page = whole
    assert analysis.report(tmp_path / "again.html").read_text() == page
    assert [path.name for path in tmp_path.iterdir()] == ["again.html"]


def test_without_groups_a_sentence_says_how_to_get_them(tmp_path, quick):
    page = analyze_heads(MODEL, TINY).report(tmp_path / "report.html").read_text()
    assert "--groups all" in page
    assert "shapley.csv" not in page


def test_a_deep_model_has_a_report_of_what_applies(tmp_path, quick):
    # Every group is a run of the model on every sentence: few sentences will do.
    few = make_splits(
        0,
        train=SplitSpec(size=60, zeros_and_ones=(0, 6), twos=(0, 4)),
        test=SplitSpec(size=20, zeros_and_ones=(0, 7), twos=(0, 5)),
    )
    analysis = analyze_heads(two_layers("LN"), few)
    page = analysis.report(tmp_path / "report.html").read_text()
    Outline(page).assert_good()
    assert escape(analysis.notes[0]) in page
    assert "readouts" not in page
    assert "logits.csv" not in page
    assert "head in its layer" in page
    assert "layer 1 head 2" in page
    assert "two main directions" in page


def test_one_head_has_no_pairs(tmp_path, quick):
    page = analyze_heads(minimal_model(), TINY).report(tmp_path / "report.html").read_text()
    Outline(page).assert_good()
    assert "There is no other to compete or cooperate with" in page
    assert "pairs" not in re.findall(r'<a href="#(\w+)">', page)


def test_a_loaded_analysis_takes_its_model_from_a_checkpoint(tmp_path, quick):
    model = cooperative_model()
    analyze_heads(model).save(tmp_path / "analysis")
    loaded = HeadAnalysis.load(tmp_path / "analysis")
    assert loaded.model is None
    page = loaded.report(tmp_path / "report.html").read_text()
    assert "analysis.report(path, checkpoint=...)" in page
    assert "CircuitsVis" not in page

    info = {"seed": 17, "recipe": {"epochs": 3, "model": {"layer_norm": False}}, EVIL: EVIL}
    save_checkpoint(model, tmp_path / "model", info=info)
    page = loaded.report(tmp_path / "report.html", checkpoint=tmp_path / "model").read_text()
    Outline(page).assert_good()
    assert re.search(r">seed</th><td[^>]*>17<", page)
    assert re.search(r">model.layer_norm</th><td[^>]*>no<", page)
    assert EVIL not in page
    assert "CircuitsVis" in page

    save_checkpoint(minimal_model(), tmp_path / "other")
    with pytest.raises(ValueError, match="model: expected the one that was analysed, got"):
        loaded.report(tmp_path / "report.html", checkpoint=tmp_path / "other")
    loaded.splits = TINY
    with pytest.raises(ValueError, match="splits: expected the data set of the analysis"):
        loaded.report(tmp_path / "report.html", checkpoint=tmp_path / "model")


def test_a_model_that_was_changed_is_not_reported(tmp_path):
    model = copy.deepcopy(MODEL)
    analysis = analyze_heads(model, TINY)
    model.blocks[0].attn.W_V.data *= 1.1
    with pytest.raises(ValueError, match="it was changed since, or it is another"):
        analysis.report(tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_an_analysis_shows_and_saves_neither_model_nor_data(tmp_path):
    analysis = analyze_heads(MODEL, TINY)
    assert analysis.model is MODEL
    assert "HookedTransformer" not in repr(analysis)
    analysis.save(tmp_path / "one")
    analysis.model = analysis.splits = None
    analysis.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_command_line_writes_a_report(tmp_path, quick):
    save_checkpoint(cooperative_model(), tmp_path / "model", info={"seed": 42})
    page = tmp_path / "report.html"
    command = ["analyze", str(tmp_path / "model"), "--groups", "all", "--report"]
    done = CliRunner().invoke(app, [*command, str(page)])
    assert done.exit_code == 0, done.output
    assert f"written to {page}: open it in a browser" in done.output
    assert "they cooperate" in page.read_text()
    assert re.search(r">seed</th><td[^>]*>42<", page.read_text())
    for place, message in ((tmp_path, "got a directory"), (page / "x.html", "that exists")):
        done = CliRunner().invoke(app, [*command, str(place)])
        assert isinstance(done.exception, ValueError)
        assert message in str(done.exception)


def fake_results(directory, *, rows=("D1", "F3", "E2", "C1", "T1"), image=(SVG, b"png")):
    """What an experiment suite leaves; the claims' file is beside it."""
    directory.mkdir()
    rules = directory.parent / "claims.py"
    rules.write_text("# rules\n")
    common = {"size": "full", "claims_sha256": sha256(rules.read_bytes())}
    for name in rows:
        (directory / name).mkdir()
        content = {
            **common,
            "row": name,
            "name": "module",
            "title": f"Title of {name} {EVIL}",
            "paper": f"Paper on {name} {EVIL}",
            "shows": f"Shown by {name} {EVIL}",
            "seeds": [100, 101, 102, 7],
            "recipe": {"epochs": 3 if name == "E2" else 100},
            "versions": {"torch": "2.13"},
            "seconds": 1.5,
            "numbers": {
                "share": {"mean": 0.25, "low": 0.2, "high": 0.3, "n": 4, "values": [0.25] * 4},
                "unknown": {"mean": None, "low": None, "high": None, "n": 0, "values": []},
                "count": 65535,
                "sizes": [7000, 1500],
                EVIL: EVIL,
            },
            "tables": ["small.csv", "large.csv"],
            "figures": [
                {"file": "a.svg", "png": "a.png", "alt": f"Alternative {EVIL}", "caption": EVIL}
            ],
        }
        (directory / name / "numbers.json").write_text(json.dumps(content))
        for file, data in zip(("a.svg", "a.png"), image, strict=True):
            (directory / name / file).write_bytes(data)
        (directory / name / "small.csv").write_text(f'd,share\n32,0.740000001\n1,"{EVIL[:9]}"\n')
        (directory / name / "large.csv").write_text("x\n" + "0.123456\n" * 30_000)
    verdicts = ["reproduced", "partly", "not reproduced", "not measured"]
    claims = [
        {
            "id": f"{row}.claim_{number}",
            "row": row,
            "statement": f"Statement {number} of {row} {EVIL}",
            "paper": "about 50 %",
            "measure": "share of heads",
            "value": None if number == 3 else 0.25,
            "low": 0.2 if number == 1 else None,
            "high": 0.3 if number == 1 else None,
            "n": 4 if number == 1 else None,
            "reproduced": [0.2, 0.6],
            "partly": [None, 0.7],
            "verdict": verdict,
        }
        for row in ("D1", "F3", "E2", "C1", "F8")
        for number, verdict in enumerate(verdicts)
    ]
    suite = {
        **common,
        "versions": {"torch": "2.13"},
        "seconds": 5400.0,
        "machine": {"cores": 2},
        "failed": {"F8": "Traceback\n  somewhere\nTimeoutError: took too long"},
    }
    (directory / "claims.json").write_text(json.dumps(claims))
    (directory / "suite.json").write_text(json.dumps(suite))
    return directory


def written(results, path):
    rules = results.parent / "claims.py"
    assert reproduction.write_report(results, path, claims_file=rules) == path
    return path.read_text()


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
    save_checkpoint(MODEL, results / "model")
    page = written(results, tmp_path / "report.html")
    Outline(page).assert_good()
    assert page.count("CircuitsVis.render(") == 3


def test_a_quick_run_says_so(tmp_path):
    results = fake_results(tmp_path / "results", rows=["D1"])
    for file in ("suite.json", "D1/numbers.json"):
        change(results / file, size="quick")
    assert "This is a quick run" in written(results, tmp_path / "report.html")


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
