"""How heads ignore '2': A, V and their share with known answers, and a row that is true of anything."""

import dataclasses
import math
import warnings

import numpy as np
import pytest

import count01_lens as cl
from count01_lens.counts.closed_form import CountForm
from count01_lens.counts.readout import CountReadout
from count01_lens.jobs.results import ResultStore
from count01_lens.jobs.running import run_jobs
from count01_lens.views.figures import as_bytes
from experiments import hand_over
from experiments.hand_over import attention_share, heads_of, leads
from experiments.runs import main_jobs
from experiments.setup import Setup, contrast_setup, paper_setup
from experiments.suite import Measured
from tests.helpers import TINY

INF = math.inf
SHORT = cl.TrainConfig(model=cl.ModelConfig(qkv_bias=True), epochs=1, batch_size=1024)


def table(scores, values):
    """A read-out of '0', '1' and '2'; what '[BOS]' and '=' do must not matter."""
    return CountReadout(np.array([9.0, *scores, -9.0]), np.array([5.0, *values, -7.0]))


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("scores", "values", "expected"),
    [
        # Natural logarithms: scores 3 apart are a factor of e^3, and values of e^2.
        ((4, 2, 0), (-1, 1, math.exp(-2)), (3, 2)),
        # '0' and '1' may change places, values may change signs, scores may all be shifted.
        ((2, 4, 0), (1, -1, math.exp(-2)), (3, 2)),
        ((102, 104, 100), (1, -1, -math.exp(-2)), (3, 2)),
        # The geometric mean of 1 and e^4 is e^2.
        ((0, 0, 0), (-1, math.exp(4), 1), (0, 2)),
        # '2' in the place of '0': it is looked at more, and speaks more loudly.
        ((0, 2, 4), (math.exp(-2), 1, -1), (0, 0)),
        ((0, 2, 4), (-1, 1, math.exp(-2)), (0, 2)),
        ((4, 2, 0), (math.exp(-2), 1, -1), (3, 0)),
        # Values on the separator.
        ((1, 1, 0), (-1, 1, 0), (1, INF)),
        ((1, 1, 0), (0, 1, 1), (1, 0)),
        ((1, 1, 0), (0, 1, 0), (1, 0)),
        # Scores beyond any number.
        ((0, 0, -INF), (-1, 1, 1), (INF, 0)),
        ((0, -INF, 0), (-1, 1, 1), (0, 0)),
        ((0, -INF, -INF), (-1, 1, 1), (0, 0)),
        ((1e300, 1e300, -1e300), (-1, 1, 1), (2e300, 0)),
    ],
)
def test_leads_with_known_answers(scores, values, expected):
    assert leads(table(scores, values)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "v", "share"),
    [(3, 1, 0.75), (1, 3, 0.25), (2, 0, 1), (0, 2, 0), (0, 0, math.nan), (2, INF, 0),
     (INF, 2, 1), (0, INF, 0), (INF, INF, math.nan), (1e300, 1, 1)],
)  # fmt: skip
def test_share_with_known_answers(a, v, share):
    assert attention_share(a, v) == pytest.approx(share, nan_ok=True)


def test_a_and_v_are_what_two_lacks_in_the_inequality():
    model = cl.example_model()
    heads = heads_of(CountForm.from_models([model]), cl.Count01(TINY))
    assert len(heads) == 16
    both = heads[(heads["A"] > 0) & (heads["V"] > 0)]
    assert len(both) > 3
    weaker = np.log(np.sqrt((both["beta0"] * both["beta1"]).abs()) / both["beta2"].abs())
    np.testing.assert_allclose(both["A"] + both["V"], weaker, rtol=1e-6)
    np.testing.assert_allclose(both["attention_share"], both["A"] / weaker, rtol=1e-6)


def test_heads_are_those_of_the_library():
    model = cl.example_model()
    heads = heads_of(CountForm.from_models([model]), cl.Count01(TINY))
    analysis = cl.analyze_heads(model, TINY).table
    assert heads["inequality"].tolist() == analysis["readout"].tolist()
    for column in ("s_acc", "w01", "w02"):
        np.testing.assert_allclose(heads[column], analysis[column], rtol=1e-9)
    for head, row in heads.set_index("head").iterrows():
        of_library = cl.qk_table(model, head).loc["=", ["0", "1", "2"]]
        own = row[["score0", "score1", "score2"]].astype(float)
        np.testing.assert_allclose(own, of_library, rtol=1e-6)


def test_the_followed_run_takes_small_steps_as_far_as_the_accurate_recipe_goes():
    paper, accurate = paper_setup("full"), contrast_setup("full").recipe
    recipe = hand_over.followed_recipe(paper)
    assert dataclasses.replace(
        recipe, epochs=paper.recipe.epochs, decay=paper.recipe.decay
    ) == paper.recipe  # fmt: skip
    rates = recipe.learning_rate * recipe.epochs / recipe.batch_size
    half = accurate.learning_rate * accurate.epochs / accurate.batch_size / 2
    assert rates == pytest.approx(half, rel=0.01)
    assert hand_over.followed_recipe(paper_setup("quick")).epochs < recipe.epochs / 5
    job = hand_over.followed_job(paper)
    epochs = job.configuration["epochs"]
    assert epochs == sorted(set(epochs))
    assert (epochs[0], epochs[-1]) == (0, recipe.epochs)
    assert 0 < job.cost < 600


def test_nothing_is_trained_twice():
    setup = paper_setup("full")
    keys = [job.key for job in hand_over.jobs(setup)]
    shared = [job.key for s in (setup, contrast_setup("full")) for job in main_jobs(s)]
    assert keys[:-1] == shared
    assert len(set(keys)) == len(keys)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The row of short trainings; whatever heads there are, most of them are no good yet."""
    other = dataclasses.replace(SHORT, learning_rate=5e-3, batch_size=512)
    setups = {name: Setup("quick", recipe, recipe) for name, recipe in
              (("paper", SHORT), ("accurate", other))}  # fmt: skip

    store = ResultStore(tmp_path_factory.mktemp("jobs"))

    def load(job):
        if job.name == "hand-over":
            run_jobs([job], store, workers=0, progress=False)
            return store.load(job)
        recipe = cl.TrainConfig.from_dict(job.configuration["recipes"][0])
        result = cl.train(recipe, seeds=job.configuration["seeds"], progress=False)
        return {"rows": result.snapshots[max(result.snapshots)].numpy()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hand_over, "contrast_setup", lambda size: setups["accurate"])
        patch.setattr(hand_over, "QUICK", 1)
        return hand_over.measure(load, setups["paper"])


def test_a_row_from_training_to_figures(measured):
    assert isinstance(measured, Measured)
    heads, moments = measured.tables["heads"], measured.tables["moments"]
    assert set(heads["recipe"]) == {"paper", "accurate"}
    assert (heads["s_acc"] >= 0.98).all()
    assert (heads[["A", "V"]] >= 0).all(axis=None)
    for name, recipe in (("attention_first", "paper"), ("value_later", "accurate")):
        own = heads[heads["recipe"] == recipe].groupby("seed")["attention_share"].median()
        assert measured.numbers[name]["values"] == pytest.approx(own.tolist())
    assert set(measured.figures) >= {"heads", "hand_over"}
    last = moments[moments["epoch"] == moments["epoch"].max()]
    assert (last["s_acc"] >= 0.98).all()
    assert moments.groupby("epoch")["head"].apply(list).map(str).nunique() == 1
    shown = moments.set_index(["epoch", "head"])["inequality"]
    head = measured.numbers["shown_head"]
    for epoch in (measured.numbers["early_epoch"], measured.numbers["late_epoch"]):
        assert shown[epoch, head] in measured.shows


def test_a_row_without_successful_heads_says_so(measured, monkeypatch):
    monkeypatch.setattr(hand_over, "SUCCESSFUL", 1.1)
    moments = hand_over.moments_of(measured.tables["moments"])
    assert len(moments) == 0
    row = hand_over.assembled(measured.tables["heads"].head(0), moments, paper_setup("quick"))
    assert row.numbers["attention_first"]["mean"] is None
    assert "no head" in row.shows.lower()
    assert set(row.figures) == {"heads"}


def test_a_row_with_values_on_the_separator_is_drawn(measured):
    heads, moments = (measured.tables[name].copy() for name in ("heads", "moments"))
    heads.loc[::2, ["V", "attention_share"]] = INF, 0.0
    moments[["V", "attention_share", "value2", "beta2"]] = INF, 0.0, 0.0, 0.0
    row = hand_over.assembled(heads, moments, paper_setup("quick"))
    for shown in row.figures.values():
        assert as_bytes(shown.figure, "png")
    assert row.numbers["late_share"] == 0
    assert "drawn at the edge" in row.figures["heads"].caption
    assert "V ∞" in row.shows
