"""Reports of an analysis."""

import base64
import copy
import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from typer.testing import CliRunner

import count01_lens.views.report_figures as figures_module
from count01_lens.cli import app
from count01_lens.counts.readout import qk_table
from count01_lens.counts.verification import verify
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.mechanisms import mechanisms, ways_in_words
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import save_checkpoint
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, minimal_model
from count01_lens.tasks.count01 import Count01
from count01_lens.tasks.dataset import SplitSpec, make_splits
from count01_lens.views import plots
from count01_lens.views.network_plot import network_in_words
from tests.helpers import EVIL, SVG, TINY, Outline, csv_of, two_layers

MODEL = build_model(ModelConfig(d_embed=8, n_heads=4), seed=1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A report with everything in it, and the analysis behind it."""
    analysis = analyze_heads(MODEL, TINY).with_groups()
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert analysis.report(path) == path
    return analysis, path.read_text()


@pytest.fixture
def quick(monkeypatch):
    """Figures that take no time."""
    monkeypatch.setattr(figures_module, "as_bytes", lambda figure, kind, **options: SVG)


def test_a_report_has_it_all(whole):
    analysis, page = whole
    outline = Outline(page)
    outline.assert_good()
    assert escape(analysis.answer) in page
    assert "cooperate" in analysis.answer or "redundant" in analysis.answer
    for readout in [*analysis.table["readout"], *analysis.table["learned_readout"]]:
        assert escape(readout) in page
    parts = re.findall(r'<a href="#(\w+)">', page)
    assert parts == [
        "verdict", "heads", "readouts", "pairs", "groups", "looks", "explore", "sentence", "making",
    ]  # fmt: skip
    # Pairs by four metrics, gains, the network, groups, Shapley values, four interactions, ratios,
    # outputs, logits: each with its data, of the network four tables.
    assert len(outline.all("img")) == 15
    names = [link["download"] for link in outline.all("a") if "download" in link]
    assert len(names) == len(set(names)) == 25  # with words for heads and pairs by three metrics
    assert page.count("CircuitsVis.render(") == 3
    assert "numpy" in page
    ties = TINY.test.ties.double()
    assert f"{int(ties.sum())} of {len(ties)} sentences, would be an s-acc of " in page
    assert f"s-acc of {1 - ties.mean():.4f}." in page


def test_the_numbers_in_a_report_are_those_of_the_analysis(whole):
    analysis, page = whole
    page = page.replace('class="number later"', 'class="number"')  # on a phone
    heads = csv_of(page, "heads.csv")
    pd.testing.assert_frame_equal(heads, analysis.table, rtol=1e-5, check_dtype=False)
    for row in analysis.table.itertuples():
        cells = "".join(
            f'<td class="number">{value:.4f}</td>'
            for value in (
                row.l_acc,
                row.roc_auc,
                row.s_acc,
                row.eos_l_acc,
                row.s_acc_ties,
                row.s_acc_others,
            )
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


def test_the_opening_counts_what_the_test_split_does_not_show(whole):
    _, page = whole
    found = verify(MODEL)
    assert found.n_errors > 0
    opening = page[: page.index('<section id="heads"')]
    for shown in (
        f"<dt>of {found.n_sentences:,} sentences</dt><dd>{found.n_errors:,} wrong</dd>",
        f"<dt>of {found.n_ties:,} ties</dt><dd>{found.n_tie_errors:,} wrong</dd>",
        f"<dd>{found.n_errors - found.n_tie_errors:,} wrong</dd>",
        f"after the answer</dt><dd>{found.n_eos_errors:,}</dd>",
        "up to 200 of each token",
    ):
        assert shown in opening
    n0, n1, n2 = found.counterexamples[0].tolist()
    assert f"n0 = {n0}, n1 = {n1}, n2 = {n2} (right: " in opening


def test_each_head_is_explained_by_its_own_tables(whole):
    analysis, page = whole
    found = mechanisms(analysis)
    assert len(found) == page.count('class="mechanism"') == 4
    for head, each in enumerate(found):
        assert escape(str(each)) in page
        assert f'aria-label="QK and OV tables of head {head}"' in page
    scores = qk_table(MODEL, 2).loc["="]
    row = re.search(r"tables of head 2\".*?QK from &#39;=&#39;</th>(.*?)</tr>", page, re.DOTALL)[1]
    seen = [float(cell.replace("−", "-")) for cell in re.findall(r">([^<]+)</td>", row)]
    assert seen == pytest.approx(scores[:5].to_list(), abs=0.006)
    good = (analysis.table["category"] == "successful").tolist()
    assert page.count(str(escape(ways_in_words(found, good)))) >= 2 * any(good)
    assert "can count" not in page


def test_values_of_heat_maps_can_be_read(whole):
    _, page = whole
    maps = re.findall(r'class="cells" style="([^"]+)" data-pair="([^"]+)"', page)
    assert [pair for _, pair in maps] == [
        "l-acc", "ROC AUC", "s-acc", "[EOS] l-acc", "gain in s-acc", *["interaction"] * 4,
    ]  # fmt: skip
    # Where the picture itself has its axes: the second path is their ground.
    pictures = re.findall(r'base64,([^"]+)" alt="Heat map', page)
    for (style, _), picture in zip(maps, pictures, strict=True):
        svg = base64.b64decode(picture).decode()
        size = [float(side) for side in re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups()]
        ground = re.search(r'<g id="patch_2">\s*<path d="([^"]+)"', svg)[1]
        x, y = np.array(re.findall(r"[ML] (\S+) (\S+)", ground), dtype=float).T / [
            [size[0]],
            [size[1]],
        ]
        expected = [x.min(), y.min(), np.ptp(x), np.ptp(y)]
        shown = [float(side) / 100 for side in re.findall(r"([\d.]+)%", style)]
        assert shown == pytest.approx(expected, abs=4e-3)


def test_the_network_comes_first_of_all_groups(whole):
    analysis, page = whole
    for sentence in analysis.structure().sentences:
        assert escape(sentence) in page
    network = plots.network_of(analysis)
    nodes, edges = csv_of(page, "network_heads.csv"), csv_of(page, "network_pairs.csv")
    assert nodes["label"].tolist() == network.nodes["label"].tolist()
    assert nodes["shapley"].tolist() == pytest.approx(network.nodes["shapley"], rel=1e-5)
    assert edges["interaction"].tolist() == pytest.approx(network.edges["interaction"], rel=1e-5)
    curve = csv_of(page, "group_curve.csv")
    assert curve["mean"].tolist() == pytest.approx(plots.curve_table(analysis)["mean"], rel=1e-5)
    takeover = csv_of(page, "takeover.csv")[["0", "1", "2", "3"]].to_numpy()
    assert takeover == pytest.approx(analysis.structure().takeover, rel=1e-4, abs=1e-9)
    places = [
        page.index(name) for name in ("network_heads.csv", "groups_by_size.csv", "shapley.csv")
    ]
    assert places == sorted(places)
    alts = [image["alt"] for image in Outline(page).all("img")]
    (alt,) = [alt for alt in alts if alt.startswith("Network of heads")]
    strongest = network.edges.iloc[-1]
    assert f"of heads {strongest['first']} and {strongest['second']}" in alt
    assert all(text in alt for text in network_in_words(network, "s-acc"))


@pytest.mark.slow
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
    assert "cl.verify" not in page
    assert "logits.csv" not in page
    for name in ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2"):
        assert f'<th scope="row" class="number">{name}</th>' in page
    assert "layer 1 head 2" in page
    assert "two main directions" in page


def test_one_head_has_no_pairs(tmp_path, quick):
    page = analyze_heads(minimal_model(), TINY).report(tmp_path / "report.html").read_text()
    Outline(page).assert_good()
    assert "there is no other to compete or cooperate with" in page
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
    with pytest.raises(ValueError, match="other: expected the model that was analysed, got"):
        loaded.report(tmp_path / "report.html", checkpoint=tmp_path / "other")
    other = dataclasses.replace(loaded, task=Count01(TINY))
    with pytest.raises(ValueError, match="splits: expected the data set of the analysis"):
        other.report(tmp_path / "report.html", checkpoint=tmp_path / "model")


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
    dataclasses.replace(analysis, model=None, task=None).save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_command_line_writes_a_report(tmp_path, quick):
    save_checkpoint(cooperative_model(), tmp_path / "model", info={"seed": 42})
    page = tmp_path / "report.html"
    command = ["analyze", str(tmp_path / "model"), "--groups", "all", "--report"]
    done = CliRunner().invoke(app, [*command, str(page)])
    assert done.exit_code == 0, done.output
    assert f"written to {page}: open it in a browser" in done.output
    assert "heads cooperate" in page.read_text()
    assert re.search(r">seed</th><td[^>]*>42<", page.read_text())
    for place, message in ((tmp_path, "got a directory"), (page / "x.html", "that exists")):
        done = CliRunner().invoke(app, [*command, str(place)])
        assert isinstance(done.exception, ValueError)
        assert message in str(done.exception)
