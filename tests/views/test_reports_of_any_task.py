"""Reports and figures of models and tasks that have nothing to do with Count01."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from markupsafe import escape
from matplotlib.figure import Figure

import count01_lens.views.report_figures as figures_module
from count01_lens.heads.analysis import HeadAnalysis
from count01_lens.heads.analyze import analyze_heads
from count01_lens.models.checkpoints import save_checkpoint
from count01_lens.tasks.prompts import Prompts, Task
from count01_lens.views import plots
from count01_lens.views.effect_plots import (
    effects_in_words,
    has_effects,
    lift_table,
    lifts,
    outliers,
)
from count01_lens.views.figures import FIVE, FOUR, answer_colours, as_bytes, drawable
from count01_lens.views.output_tiles import OutputTile, tiles_figure
from count01_lens.views.wording import others_replaced, said_with, token_texts
from tests.helpers import SVG, TINY, Outline, csv_of
from tests.views.other_tasks import (
    EVIL_TOKEN,
    Words,
    many_heads,
    model_of,
    most_frequent,
    named_second,
    one_layer_sixty_answers,
    two_layers_three_answers,
    with_effects,
)

MADE = {
    "two layers": lambda: two_layers_three_answers().with_groups(),
    "sixty answers": one_layer_sixty_answers,
    "144 heads": many_heads,
}


@pytest.fixture(scope="module")
def analyses():
    return {name: make() for name, make in MADE.items()}


@pytest.fixture(scope="module")
def pages(analyses, tmp_path_factory):
    directory = tmp_path_factory.mktemp("reports")
    return {
        name: analysis.report(directory / f"{name}.html").read_text()
        for name, analysis in analyses.items()
    }


@pytest.fixture
def quick(monkeypatch):
    """Figures that take no time."""
    monkeypatch.setattr(figures_module, "as_bytes", lambda figure, kind, **options: SVG)


UNSEEN = {"src", "href", "data-dark"}


class Seen(HTMLParser):
    """What readers see and what is read to them: no styles, no code, no images in letters."""

    def __init__(self, page):
        super().__init__()
        self.parts = []
        self.feed(re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S))

    def handle_starttag(self, tag, attributes):
        self.parts += [f"{name}={value}" for name, value in attributes if name not in UNSEEN]

    def handle_data(self, data):
        self.parts.append(data)


def text_of(page):
    return "\n".join(Seen(page).parts)


@pytest.mark.parametrize("name", MADE)
def test_a_report_has_no_words_of_count01(pages, name):
    Outline(pages[name]).assert_good()
    text = text_of(pages[name])
    for word in (
        "Count01",
        "'4'",
        "'5'",
        "'='",
        r"\[EOS\]",
        r"\[BOS\]",
        "entence",
        "w01",
        " ties",
        "n0",
    ):
        places = [text[max(0, found.start() - 40) :][:80] for found in re.finditer(word, text)]
        assert not places, word


@pytest.mark.parametrize("name", MADE)
def test_the_numbers_are_those_of_the_analysis(analyses, pages, name):
    analysis, page = analyses[name], pages[name]
    page = page.replace('class="number later"', 'class="number"')  # on a phone
    heads = csv_of(page, "heads.csv")
    for column in ("l_acc", "roc_auc", "s_acc"):
        assert heads[column].to_numpy() == pytest.approx(analysis.table[column], rel=1e-5)
        cells = [f'<td class="number">{value:.4f}</td>' for value in analysis.table[column]]
        assert all(cell in page for cell in cells)
    table = csv_of(page, "lifts.csv")
    overall = table[table["answer"] == "all"]["mean"].to_numpy()
    assert overall == pytest.approx(lifts(analysis.data.answer).mean(axis=0), rel=1e-4)
    outputs = csv_of(page, "head_outputs.csv")
    shown = [column for column in outputs if column.startswith("head_")]
    label = shown[-1].split("_")[1]
    number = [*plots.Words.of(analysis).heads].index(label)
    assert outputs[shown[-1]].to_numpy() == pytest.approx(
        analysis.data.test_outputs[:, number, -1], rel=1e-4, abs=1e-9
    )
    for value in analysis.accuracy.values():
        assert f"{100 * value:.2f}".rstrip("0").rstrip(".") in text_of(page)


def test_two_layers_are_named_layer_and_head(analyses, pages):
    analysis, page = analyses["two layers"], pages["two layers"]
    assert "a model with 8 heads in 2 layers on a task with 3 answers" in page
    assert "among 3 answers (1, 2, 3)" in page
    assert escape(analysis.answer) in page
    for name in ("0.0", "0.3", "1.0", "1.3"):
        assert f'<th scope="row" class="number">{name}</th>' in page
    parts = re.findall(r'<a href="#(\w+)">', page)
    assert [part for part in parts if part != "effects"] == [
        "verdict", "heads", "pairs", "groups", "looks", "prompt", "making",
    ]  # fmt: skip
    shapley = csv_of(page, "shapley.csv")
    assert shapley["s_acc"].to_numpy() == pytest.approx(analysis.shapley("s_acc"), rel=1e-4)
    pairs = csv_of(page, "pairs_l_acc.csv")
    assert list(pairs.columns[1:]) == ["0.0", "0.1", "0.2", "0.3", "1.0", "1.1", "1.2", "1.3"]
    assert pairs.to_numpy()[:, 1:] == pytest.approx(analysis.pairs["l_acc"], rel=1e-5)
    interactions = csv_of(page, "interactions_s_acc.csv").to_numpy()[:, 1:]
    assert interactions == pytest.approx(analysis.interactions("s_acc"), rel=1e-4, abs=1e-9)
    assert "s-acc</span>, short" in page
    assert f"{analysis.table['s_acc_short'][2]:.4f}" in page
    assert "on short" in page
    majority = max((analysis.data.answer.answers == answer).mean() for answer in range(3))
    said = float(re.search(r"most frequent answer would be an s-acc of (\d\.\d+)", page)[1])
    assert said <= majority + 1e-4
    right = analysis.task.questions["answer"].test
    assert f"the right answer is {int(right.answers[0])}." in page


def test_many_answers_are_summed_up(analyses, pages):
    page = pages["sixty answers"]
    assert "among 60 answers (0, 1, 2, 3, …, 57, 58, 59)" in page
    assert set(csv_of(page, "lifts.csv")["answer"]) == {"all"}
    assert len(csv_of(page, "lifts.csv")) == 4
    figure = plots.plot_lifts(analyses["sixty answers"])
    assert len(figure.axes[0].collections) == 1
    tiles = plots.plot_head_outputs(analyses["sixty answers"].model, analyses["sixty answers"])
    (key,) = tiles.axes[0].child_axes
    assert [tick.get_text() for tick in key.get_xticklabels()] == ["0", "30", "59"]
    assert "minus the mean of 59 others" in page


def test_with_many_heads_the_strongest_are_shown(analyses, pages):
    analysis, page = analyses["144 heads"], pages["144 heads"]
    assert "144 heads in 12 layers" in page
    assert "The 32 heads of best s-acc, of 144:" in page
    best, every, worth = re.findall(r"<caption.*?</table>", page, flags=re.S)[:3]
    rows = [re.findall(r'<th scope="row" class="number">([\d.]+)<', part) for part in (best, every)]
    names = [f"{layer}.{head}" for layer in range(12) for head in range(12)]
    assert rows == [[names[head] for head in plots.strongest(analysis)], names]
    least = min(analysis.table["s_acc"][head] for head in plots.strongest(analysis))
    assert least >= analysis.table["s_acc"].nlargest(32).min()
    assert worth.count("±") == 144
    assert "Of 10,296 pairs 91 were measured" in page
    pairs = csv_of(page, "pairs_s_acc.csv")
    assert pairs.shape == (14, 15)
    assert not pairs.isna().any().any()
    shapley = csv_of(page, "shapley.csv")
    estimate = analysis.sampled["l_acc"]
    assert shapley["l_acc"].to_numpy() == pytest.approx(estimate.values, rel=1e-4, abs=1e-9)
    errors = shapley["l_acc_error"].to_numpy()
    assert errors == pytest.approx(estimate.standard_errors, rel=1e-4)
    assert "l-acc: 2)" in page
    assert f"± {estimate.standard_errors[0]:.4f}" in page
    assert "Shapley interactions" not in page


def test_without_estimates_a_sentence_says_how_to_get_them(tmp_path, quick):
    analysis = many_heads(budget=0)
    page = analysis.report(tmp_path / "report.html").read_text()
    assert "144 heads have too many groups to compute them all" in page
    assert "No pair was measured." in page
    assert "shapley.csv" not in page


def test_two_answers_of_another_task(tmp_path, quick):
    analysis = analyze_heads(model_of(n_layers=1), most_frequent(answers=2, subsets=False))
    page = analysis.report(tmp_path / "report.html").read_text()
    assert "blue where the answer is 1, orange where it is 2" in page
    assert "which is close to a coin flip" in page
    assert "The green line is the linear probe" in page
    assert "logit of 1 minus that of 2" in page or "logit of 2 minus that of 1" in page
    assert "Everything up to 0.5 is dark" in page
    names = {line.get_label() for line in plots.plot_lifts(analysis).axes[0].lines}
    assert {"where 1 is right", "where 2 is right"} <= names
    margins = analysis.data.answer.heads[:, :, 0] - analysis.data.answer.heads[:, :, 1]
    signs = np.where(analysis.data.answer.answers == 0, 1, -1)[:, None]
    np.testing.assert_allclose(lifts(analysis.data.answer), signs * margins)


def test_lifts_are_the_right_answer_above_the_mean_of_the_others(analyses):
    asked = analyses["two layers"].data.answer
    for prompt in (0, 7):
        for head in (1, 6):
            written = asked.heads[prompt, head]
            right = asked.answers[prompt]
            expected = written[right] - np.delete(written, right).mean()
            assert lifts(asked)[prompt, head] == pytest.approx(expected)
    table = lift_table(analyses["two layers"])
    chosen = lifts(asked)[asked.answers == 1, 6]
    row = table[(table["head"] == "1.2") & (table["answer"] == "2")]
    assert row["median"].item() == pytest.approx(np.median(chosen))


@pytest.mark.parametrize("name", MADE)
def test_every_figure_that_applies_is_drawn(analyses, name):
    analysis = with_effects(analyses[name])
    drawn = plots.draw_all(analysis.model, analysis)
    assert {"pairs_s_acc", "gains", "head_outputs", "lifts", "effects"} <= set(drawn)
    assert not {"logits", "attention_ratios", "tables_head_0", "pairs_eos_l_acc"} & set(drawn)
    assert ("shapley" in drawn) == (name != "sixty answers")
    for figure in drawn.values():
        assert isinstance(figure, Figure)
        assert as_bytes(figure, "png")[:4] == b"\x89PNG"


def test_figures_of_count01_say_that_they_are(analyses):
    analysis = analyses["two layers"]
    with pytest.raises(ValueError, match=r"expected Count01, got Task.*plot_lifts\(analysis\)"):
        plots.plot_logits(analysis.model, analysis.task)
    with pytest.raises(ValueError, match="attention ratios: expected a model that runs on counts"):
        plots.plot_attention_ratios(analysis)
    with pytest.raises(ValueError, match="metric: expected"):
        plots.plot_interactions(analysis, "speed")


# Direct and total effects


def test_effects_are_drawn_and_said(analyses, tmp_path, quick):
    analysis = with_effects(analyses["two layers"], repaired=(5, 0.4))
    page = analysis.report(tmp_path / "report.html").read_text()
    said = "Taking head 1.1 out costs less than it writes directly: the rest makes up for 40 %"
    assert said in page
    table = csv_of(page, "effects.csv")
    assert table["total_effect"].to_numpy() == pytest.approx(
        analysis.heads["total_effect"], rel=1e-4
    )
    assert "+0.800" in page
    points = plots.plot_effects(analysis).axes[0].lines[-1].get_xydata()
    np.testing.assert_allclose(points, analysis.heads[["direct_effect", "total_effect"]])
    assert 5 in outliers(analysis)


def test_what_is_said_of_self_repair_follows_the_numbers(analyses):
    all_of_it = with_effects(analyses["two layers"], repaired=(2, 1.1))
    assert "Taking head 0.2 out does not lower the right answer, although it writes +2 for it" in (
        effects_in_words(all_of_it)
    )
    assert "its total effect is −0.2, so" in effects_in_words(all_of_it)
    none = with_effects(analyses["two layers"], repaired=(2, -0.2))
    assert "no self-repair" in effects_in_words(none)


def test_effects_that_are_the_same_are_no_part(analyses, tmp_path, quick):
    analysis = with_effects(analyses["sixty answers"])
    analysis.heads["total_effect"] = analysis.heads["direct_effect"]
    analysis.heads["self_repair"] = 0.0
    assert not has_effects(analysis)
    page = analysis.report(tmp_path / "report.html").read_text()
    assert "effects.csv" not in page


def test_effects_that_are_not_known_cannot_be_drawn():
    with pytest.raises(ValueError, match="effects: expected an analysis with direct and total"):
        plots.plot_effects(one_layer_sixty_answers())


# Words


@pytest.mark.parametrize(
    ("mode", "words"),
    [("zero", "set to zero"), ("mean", "set to their mean"), ("resample", "resampled from other")],
)
def test_how_other_heads_are_replaced_is_said(analyses, tmp_path, quick, mode, words):
    analysis = with_effects(analyses["144 heads"])
    data = object.__new__(type(analysis.data))
    data.__dict__.update(vars(analysis.data) | {"ablation": mode})
    object.__setattr__(analysis, "data", data)
    assert others_replaced(analysis).startswith(words)
    assert words in said_with(analysis, "accuracy with all other heads taken out")
    page = analysis.report(tmp_path / "report.html").read_text()
    assert re.search(rf"l-acc: accuracy of the answer with all other heads {words}", page)
    assert f"all other heads are {words}" in page


def test_tokens_are_shown_by_the_tokenizer_and_escaped(tmp_path, quick):
    model = model_of(n_layers=1)
    texts = ["[start]", EVIL_TOKEN, " b", "\n", "中", "x" * 99, "", "g", "?"]
    model.tokenizer = Words(texts)
    analysis = analyze_heads(model, most_frequent())
    page = analysis.report(tmp_path / "report.html").read_text()
    Outline(page).assert_good()
    assert "<script>alert(1)" not in page
    assert escape(EVIL_TOKEN[:23]) in page
    assert "' b'" in text_of(page)
    assert r"'\n'" in text_of(page)
    shown = token_texts(model, range(9))
    assert shown[5] == "x" * 23 + "…"
    assert shown[6] == "[6]"
    assert drawable("中$x$") == r"\u4e2d\$x\$"
    for figure in (plots.plot_lifts(analysis), plots.plot_head_outputs(model, analysis)):
        drawn = as_bytes(figure, "svg").decode()
        assert "<script>" not in drawn


def test_outputs_that_are_no_tokens_are_numbers(tmp_path, quick):
    model = model_of(n_layers=1, d_vocab_out=5)
    model.tokenizer = Words([f"token {n}" for n in range(9)])
    analysis = analyze_heads(model, most_frequent())
    page = analysis.report(tmp_path / "report.html").read_text()
    assert "among 3 answers (1, 2, 3)" in page


def test_colours_of_answers_are_different():
    for n in (2, 3, 7, 8, 60):
        assert len(set(answer_colours(n))) == n
    assert answer_colours(2) == (FOUR, FIVE)
    assert len(answer_colours(400)) == 400


def test_each_of_hundreds_of_answers_is_drawn():
    rng = np.random.default_rng(0)
    outputs, labels = rng.standard_normal((400, 2)), np.arange(400)
    tile = OutputTile("head 0", outputs, labels, None, None, 0.0, None, answer_colours(400))
    axes = tiles_figure([tile], answers=[str(n) for n in range(400)]).axes[0]
    points = [line.get_xydata() for line in axes.lines if line.get_linestyle() == "None"]
    assert len(np.concatenate(points)) == 400


# Loaded analyses, and notebooks


def test_a_loaded_analysis_has_a_report(analyses, tmp_path, quick):
    analyses["two layers"].save(tmp_path / "analysis")
    loaded = HeadAnalysis.load(tmp_path / "analysis")
    page = loaded.report(tmp_path / "report.html").read_text()
    Outline(page).assert_good()
    assert "choice 0, choice 1, choice 2" in page
    assert "analysis.report(path, checkpoint=...)" in page
    assert "Count01" not in text_of(page)
    save_checkpoint(analyses["two layers"].model, tmp_path / "model", info={"seed": 5})
    page = loaded.report(tmp_path / "report.html", checkpoint=tmp_path / "model").read_text()
    assert "head_outputs.csv" in page
    assert re.search(r">seed</th><td[^>]*>5<", page)
    save_checkpoint(model_of(seed=9), tmp_path / "other")
    with pytest.raises(ValueError, match="expected the model that was analysed"):
        loaded.report(tmp_path / "report.html", checkpoint=tmp_path / "other")


def test_a_model_that_was_changed_is_not_reported(tmp_path):
    model = model_of(n_layers=1)
    analysis = analyze_heads(model, most_frequent())
    model.W_E.data[0, 0] += 1
    with pytest.raises(ValueError, match="it was changed since, or it is another"):
        analysis.report(tmp_path / "report.html")


def test_a_notebook_shows_the_strongest_of_many_heads(analyses):
    shown = analyses["144 heads"]._repr_html_()
    assert shown.count("<tr>") == 33
    assert "analysis.table has all" in shown
    assert analyses["two layers"]._repr_html_().count("<tr>") == 9


def test_long_prompts_and_subsets_without_prompts(tmp_path, quick):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 9, (60, 50))
    none = np.zeros(60, dtype=bool)
    prompts = Prompts(rows, rows[:, -1] % 3, subsets={"never": none})
    analysis = analyze_heads(model_of(n_ctx=50, n_layers=1), Task.split(prompts))
    page = analysis.report(tmp_path / "report.html").read_text()
    assert "The prompt has 50 tokens, so they are drawn by type" in page
    assert re.search(r"<dt>on never</dt><dd>–</dd>", page)


def test_count01_keeps_its_words(tmp_path, quick):
    from count01_lens.models.handcrafted import cooperative_model

    page = analyze_heads(cooperative_model(), TINY).report(tmp_path / "report.html").read_text()
    text = text_of(page)
    for words in ("on Count01", "on ties (as many 1s as 0s)", "'[EOS]' after the answer", "at '='"):
        assert words in text
    assert named_second().questions["answer"].choices == tuple(range(60))
