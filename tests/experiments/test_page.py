"""The pages of the reproduction, written from results."""

import itertools
import json
import re
import shutil

import pytest

from experiments import page
from experiments.claim_cells import our_value
from experiments.claims import CLAIMS, HEADLINE
from experiments.generated_part import generated_part, write_generated, write_parts
from experiments.page_tables import MARKS
from tests.helpers import EVIL, fake_results

VERDICTS = ["reproduced", "partly", "not reproduced", "too few", "not measured"]
ROWS = ("D1", "F3", "F4", "F5", "E2", "C1", "T1", "P1")
TWICE = ("F3", "F4", "C1")


def made_up(claim, verdict, number):
    """What the suite might say of a claim."""
    known = verdict != "not measured"
    value = round(0.01 + 0.011 * number, 4) if known else None
    found = {"value": value, "low": None, "high": None, "n": 4 if known else None}
    if number % 3 == 0 and known:
        found |= {"low": value - 0.005, "high": value + 0.005}
    return {**found, "verdict": verdict}


@pytest.fixture
def results(tmp_path):
    """Results with every verdict, and a contrast of some rows; its figures are small."""
    directory = fake_results(tmp_path / "results", rows=ROWS)
    contrast = fake_results(tmp_path / "other", rows=TWICE)
    for name in TWICE:
        shutil.move(contrast / name, directory / "contrast" / name)
    verdicts = itertools.cycle(VERDICTS)
    judged = []
    for number, claim in enumerate(CLAIMS):
        other = made_up(claim, next(verdicts), number + 3) if claim.row in TWICE else None
        words = ("id", "row", "statement", "paper", "measure")
        judged.append(
            {name: getattr(claim, name) for name in words}
            | {"reproduced": [0.4, None], "partly": [None, None]}
            | made_up(claim, VERDICTS[(number // 2) % 5], number)
            | {"contrast": other}
        )
    (directory / "claims.json").write_text(json.dumps(judged))
    return directory


def read(results):
    return json.loads((results / "claims.json").read_text())


def generated(results):
    return page.generated(results, claims_file=results.parent / "claims.py")


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def lines_of(table):
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in table.splitlines()
        if line.startswith("|")
    ]


def test_the_score_is_counted(results):
    judged = [claim for claim in read(results) if claim["paper"] not in ("ours", "-")]
    score = generated(results)[page.PAGE]["score"]
    reproduced = sum(claim["verdict"] == "reproduced" for claim in judged)
    assert f"Of the paper's {len(judged)} claims {reproduced} are reproduced" in score
    headings, _, paper, twice, contrast, ours = lines_of(score)
    assert headings[1:-1] == [MARKS[verdict] for verdict in VERDICTS]
    assert score.endswith("✔ reproduced, ◐ partly, ✘ not reproduced, … too few, – not measured.")
    assert int(paper[-1]) == len(judged)
    assert len(judged) + int(ours[-1]) == len(CLAIMS)
    others = [claim["contrast"] for claim in judged if claim["contrast"] is not None]
    assert int(twice[-1]) == int(contrast[-1]) == len(others)
    for cells, group in ((paper, judged), (contrast, others)):
        counted = [sum(claim["verdict"] == verdict for claim in group) for verdict in VERDICTS]
        assert [int(cell) for cell in cells[1:-1]] == counted


def test_the_first_table_has_the_ten_claims_with_both_numbers(results):
    judged = {claim["id"]: claim for claim in read(results)}
    _, _, *rows = lines_of(generated(results)[page.PAGE]["headline"])
    assert len(rows) == 10
    for name, (words, paper, ours, other) in zip(HEADLINE, rows, strict=True):
        claim = judged[name]
        assert words == page.IN_SHORT[name]
        assert paper == claim["paper"]
        number = "" if claim["value"] is None else f"\u00a0{our_value(claim)}"
        assert ours == MARKS[claim["verdict"]] + number
        if claim["contrast"] is None:
            assert other == ""
        else:
            assert other.startswith(MARKS[claim["contrast"]["verdict"]])
    assert all(len(words) <= 40 for words, *_ in rows)


def test_every_claim_is_in_the_tables_exactly_once(results):
    (tables,) = generated(results)[page.TABLES].values()
    for claim in read(results):
        (line,) = [line for line in tables.splitlines() if f"**{claim['id']}**" in line]
        (cells,) = lines_of(line)
        assert_shows(cells[2], claim)
        if claim["contrast"] is not None:
            assert_shows(cells[4], {**claim, **claim["contrast"]})


def assert_shows(cell, claim):
    """A cell has the verdict and the number of a claim, in its own unit."""
    mark, _, number = cell.partition("\u00a0")
    assert mark == MARKS[claim["verdict"]]
    if claim["value"] is None:
        assert number == ""
        return
    share = claim["measure"].startswith("share ")
    number = float(re.match(r"[−\d.,]+", number)[0].replace("−", "-").replace(",", ""))
    assert number == pytest.approx((100 if share else 1) * claim["value"], rel=1e-3, abs=0.06)


def test_what_does_not_hold_is_listed(results):
    listed = generated(results)[page.PAGE]["differences"]
    items = [line for line in listed.splitlines() if line.startswith("- ")]
    missing = [claim for claim in read(results) if claim["verdict"] != "reproduced"]
    order = {name: place for place, name in enumerate(page.ROWS)}
    for line, claim in zip(
        items, sorted(missing, key=lambda claim: order[claim["row"]]), strict=True
    ):
        assert line.startswith(f"- {MARKS[claim['verdict']]} ")
        assert claim["value"] is None or our_value(claim) in line


def test_figures_are_there_with_words_for_those_who_do_not_see_them(results):
    parts = generated(results)[page.PAGE]
    chosen = (parts[name] for name in ("figures", "map", "biases"))
    images = re.findall(r"!\[(.+)\]\((\S+)\)", "".join(chosen))
    paths = [path for _, path in images]
    assert paths == [
        "results/F4/a.svg", "results/contrast/F4/a.svg", "results/F5/a.svg", "results/C1/a.svg",
        "results/P1/a.svg", "results/E2/a.svg",
    ]  # fmt: skip
    assert all((results.parent / path).exists() for path in paths)
    assert all(alt.startswith("Alternative") for alt, _ in images)
    assert "Shown by P1" in parts["map"]
    # A vector graphic of many points is slow.
    (results / "F4" / "a.svg").write_bytes(b" " * 300_000)
    assert "(results/F4/a.png)" in generated(results)[page.PAGE]["figures"]


def test_text_stays_text(results):
    for parts in generated(results).values():
        for text in parts.values():
            assert EVIL not in text
            assert not re.search(r"(?<!\\)<", text)


def test_what_was_not_measured_is_said(results):
    shutil.rmtree(results / "P1")
    shutil.rmtree(results / "contrast")
    for name in ("F4", "F5", "E2", "C1"):
        shutil.rmtree(results / name)
    judged = [{**claim, "contrast": None} for claim in read(results)]
    (results / "claims.json").write_text(json.dumps(judged))
    pages = generated(results)
    assert pages[page.PAGE]["map"].startswith("Row P1 was not measured. There are no results of")
    assert pages[page.PAGE]["figures"].startswith("None of the rows")
    assert pages[page.PAGE]["recipes"] == "There are no results under a second recipe."
    assert "second time" not in pages[page.PAGE]["score"]
    assert "| accurate recipe |" not in pages[page.TABLES][""]
    assert "Not measured. It failed: TimeoutError: took too long" in pages[page.TABLES][""]


def test_all_reproduced_leaves_nothing_to_explain(results):
    judged = [{**claim, "verdict": "reproduced"} for claim in read(results)]
    (results / "claims.json").write_text(json.dumps(judged))
    assert generated(results)[page.PAGE]["differences"] == "All claims are reproduced."


def test_a_file_that_is_named_but_missing_is_refused(results):
    (results / "contrast" / "F3" / "a.svg").unlink()
    with pytest.raises(ValueError, match="expected a file of row contrast/F3, got none"):
        generated(results)


def test_recipes_are_told_where_they_differ(results):
    recipe = {"model": {"qkv_bias": True, "d_embed": 32}, "learning_rate": 0.001}
    change(results / "F3" / "numbers.json", recipe=recipe)
    recipe = {"model": {"qkv_bias": False, "d_embed": 32}, "learning_rate": 0.005}
    change(results / "contrast" / "F3" / "numbers.json", recipe=recipe)
    _, _, *rows = lines_of(generated(results)[page.PAGE]["recipes"])
    assert rows == [["`qkv_bias`", "`True`", "`False`"], ["`learning_rate`", "`0.001`", "`0.005`"]]


def test_evidence_is_shown_by_what_it_has(results):
    def tables_with(row, file, text):
        (results / row / file).write_text(text)
        change(results / row / "numbers.json", tables=[file])
        return generated(results)[page.TABLES][""]

    # A long table without conditions is linked only.
    assert "Means over runs" not in tables_with("E2", "runs.csv", "eos_weight,biased\n0,0.25\n")
    runs = "condition,seed,biased\nend,1,0.5\nend,2,0.75\ncopy,1,10000\n"
    tables = tables_with("E2", "runs.csv", runs)
    assert "| condition | biased |" in tables
    assert "| end | 0.625 |" in tables
    assert "[runs.csv](results/E2/runs.csv)" in tables
    wide = "model,trained,s_acc_interaction,roc_auc_interaction\nseed 1,True,-0.0123456,3\n"
    tables = tables_with("C1", "interactions.csv", wide)
    assert "| model | s acc interaction |" in tables
    assert "| seed 1 | -0.01235 |" in tables
    assert "| heads |\n| --- |\n| 10000 |" in tables_with("F3", "readings.csv", "heads\n10000\n")


def test_pages_keep_what_people_wrote(results, tmp_path, monkeypatch, capsys):
    pages = generated(results)
    for name, parts in pages.items():
        marks = "\n\nBy hand.\n\n".join(generated_part("old", part) for part in parts)
        (tmp_path / name).write_text(f"# Title\n\n{marks}\n\nThe end.\n")
    monkeypatch.setattr("sys.argv", ["page", str(results)])
    monkeypatch.setattr(page, "read_results", lambda *_: page_results(results))
    page.main()
    assert "updated" in capsys.readouterr().out
    for name, parts in pages.items():
        text = (tmp_path / name).read_text()
        assert all(generated_part(content, part) in text for part, content in parts.items())
        assert text.count("By hand.") == len(parts) - 1
        assert text.startswith("# Title\n")
        assert text.endswith("\n\nThe end.\n")
        assert "old\n" not in text


def page_results(results):
    from experiments.saved_results import read_results

    return read_results(results, results.parent / "claims.py")


def test_a_page_without_its_marks_is_left_alone(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(generated_part("old", "one"))
    with pytest.raises(ValueError, match="expected the lines .*two begin"):
        write_parts(path, {"one": "new", "two": "new"})
    with pytest.raises(ValueError, match="generated: begin"):
        write_generated(path, "new")
    assert path.read_text() == generated_part("old", "one")


def test_the_committed_pages_have_a_place_for_every_part(results):
    docs = page.CLAIMS_FILE.parents[1] / "docs"
    for name, parts in generated(results).items():
        text = (docs / name).read_text("utf-8")
        for part in parts:
            begin, end = generated_part("", part).split("\n\n")
            assert text.count(begin) == text.count(end) == 1
