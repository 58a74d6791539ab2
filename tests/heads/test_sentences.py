"""Grammar of everything that is said of heads, whatever their number, the task or the result.

Sentences are made of all words and all numbers of heads, and of analyses of real models.
`tests.grammar` has the patterns of what is wrong in any sentence.
"""

import itertools

import numpy as np
import pytest

import count01_lens as cl
from count01_lens.common.student import mean_interval
from count01_lens.heads.comparison import Comparison
from count01_lens.heads.independence import IndependentHeads
from count01_lens.heads.sentences import heads_alone
from count01_lens.heads.structure import find_structure
from count01_lens.heads.verdict import Finding, Verdict
from count01_lens.models.handcrafted import cooperative_model, minimal_model
from count01_lens.views.group_curve import curve_in_words, curve_table
from count01_lens.views.network_plot import network_in_words, network_of
from tests.grammar import assert_well_written
from tests.helpers import TINY
from tests.views import other_tasks


def finding(metric, question, mean, n_heads, interfering=(), enough=None, beyond=None, **more):
    """A made-up finding: a mean of None is one that is undecided."""
    independent = None
    if beyond is not None:
        independent = IndependentHeads(np.zeros(n_heads + 1), beyond, beyond - 1e-4, beyond + 1e-4)
    return Finding(
        question=question,
        metric=metric,
        mean_interaction=0.0 if mean is None else mean,
        low=-1.0 if mean is None else mean - 1e-4,
        high=1.0 if mean is None else mean + 1e-4,
        copies=-1 / n_heads,
        names=tuple(map(str, range(n_heads))),
        interfering=interfering,
        enough=enough,
        independent=independent,
        **more,
    )


@pytest.mark.parametrize("n_heads", [2, 3, 16])
def test_verdicts_of_all_words_and_numbers(n_heads):
    means = (0.02, -0.02, 0.0, None)
    seen = set()
    for first, second, third in itertools.product(means, repeat=3):
        for against in range(min(n_heads, 4)):
            more = {
                "interfering": tuple(range(against)),
                "enough": (None, 1, 2, n_heads)[against],
                "beyond": (None, 0.02, -0.02, 0.0)[against],
            }
            answer = finding("s_acc", "answer", first, n_heads, **more)
            layers = {"within": 0.01, "between": -0.02} if against else {}
            together = finding("l_acc", "answer", second, n_heads, **layers)
            end = finding("eos_l_acc", "end", third, n_heads, **more)
            for verdict in (
                Verdict((answer, together, end)),
                Verdict((together,)),
                Verdict((answer, together)),
            ):
                assert_well_written(verdict.headline)
                assert_well_written(verdict.summary)
                assert_well_written(str(verdict))
                assert verdict.summary.startswith(verdict.headline)
                assert verdict.headline.count(".") == 1
                seen.add(verdict.headline)
            assert_well_written(answer.summary)
    assert len(seen) > 100


@pytest.mark.parametrize("counts", [*itertools.product((0, 1, 2, 14), repeat=3)])
def test_heads_alone(counts):
    by_category = dict(zip(("successful", "mixed", "failed"), counts, strict=True))
    if sum(counts):
        text = heads_alone(by_category, dict.fromkeys(by_category, "s-acc"))
        assert_well_written(text)
        assert all((kind in text) == (n > 0) for kind, n in by_category.items())


@pytest.mark.parametrize("n_heads", [1, 2, 3, 5])
def test_structures_of_random_games(n_heads):
    rng = np.random.default_rng(n_heads)
    for _ in range(40):
        values = rng.choice([0.0, 0.5, 0.505, 1.0], 1 << n_heads) + rng.choice([0, 1e-6])
        answers = rng.integers(0, 2, (30, n_heads))[:, rng.integers(0, n_heads, n_heads)]
        for known in (None, answers):
            found = find_structure(values, "l_acc", answers=known)
            for sentence in found.sentences:
                assert_well_written(sentence)
            assert_well_written(str(found), is_prose=False)


MODELS = {
    "1 head": (minimal_model, lambda: TINY),
    "2 heads": (cooperative_model, lambda: TINY),
    "3 heads": (lambda: cl.build_model(cl.ModelConfig(d_embed=6, n_heads=3), seed=0), lambda: TINY),
    "majority": (
        lambda: cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2), seed=1,
                               task=cl.counting_task("majority")),
        lambda: None,
    ),
    "several layers, prompts": (
        lambda: other_tasks.model_of(n_heads=2), lambda: other_tasks.most_frequent(60)
    ),
    "one head in each layer": (
        lambda: other_tasks.model_of(n_heads=1, d_head=8),
        lambda: other_tasks.most_frequent(60, subsets=False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_analyses_of_models(name):
    model, task = (make() for make in MODELS[name])
    analysis = cl.analyze_heads(model, task)
    assert_well_written(analysis.answer)
    if len(analysis.heads) == 1:
        return
    richer = analysis.with_groups(progress=False)
    for text in (richer.answer, str(richer.verdict), *richer.structure().sentences):
        assert_well_written(text)
    assert richer.answer.startswith(richer.verdict.headline)
    for text in network_in_words(network_of(richer), "l-acc"):
        assert_well_written(text, is_prose=False)
    assert_well_written(curve_in_words(curve_table(richer)), is_prose=False)


def test_sixteen_heads():
    assert_well_written(cl.analyze_heads(cl.example_model(), TINY).answer)


@pytest.mark.parametrize("n_models", [1, 2, 3])
def test_comparisons(n_models):
    analyses = {
        str(seed): cl.analyze_heads(
            cl.build_model(cl.ModelConfig(d_embed=4, n_heads=2), seed=seed), TINY
        )
        for seed in range(n_models)
    }
    found = cl.compare_heads(analyses, TINY, groups="ends")
    assert isinstance(found, Comparison)
    assert_well_written(found.answer)
    assert_well_written(repr(found), is_prose=False)
    twice = cl.compare_heads({"one": analyses["0"], "other": analyses["0"]}, groups="ends")
    assert_well_written(repr(twice), is_prose=False)
    assert mean_interval([1.0]).low is None
