"""The verdict: the mean of pairs by its two ends, words by intervals, and what the text says."""

import numpy as np
import pytest

from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.ends import Ends, ends_of_groups
from count01_lens.heads.independence import IndependentHeads
from count01_lens.heads.verdict import Finding, Verdict, finding_of, judged_metrics, word_of
from count01_lens.models.build import build_model
from count01_lens.models.config import ModelConfig
from tests.views.other_tasks import many_heads, two_layers_three_answers


def off_diagonal(matrix):
    return matrix[np.triu_indices(len(matrix), 1)]


@pytest.mark.parametrize(
    "analysis",
    [
        analyze_heads(build_model(ModelConfig(d_embed=10, n_heads=5), seed=4)),
        two_layers_three_answers(),
    ],
    ids=["counts", "two layers"],
)
def test_the_ends_give_the_mean_of_the_matrix_with_all_groups(analysis):
    richer = analysis.with_groups(progress=False)
    assert list(analysis.ends) == [each.metric for each in analysis.verdict.findings]
    for metric, ends in analysis.ends.items():
        matrix = richer.interactions(metric)
        mean = off_diagonal(matrix).mean()
        assert ends.by_prompt.mean() == pytest.approx(
            mean, abs=2e-3 if metric == "s_acc" else 1e-12
        )
        assert analysis.verdict[metric].mean_interaction == ends.by_prompt.mean()
        known = richer.known_groups
        assert ends.gain == pytest.approx(known.values(metric)[-1] - known.empty[metric], abs=2e-3)
        found = ends_of_groups(known.values(metric), known.contributions[metric])
        if metric != "s_acc":  # probes that start elsewhere may decide a close prompt otherwise
            np.testing.assert_allclose(found.by_prompt, ends.by_prompt, atol=1e-12)
        assert richer.verdict[metric].mean_interaction == pytest.approx(mean, abs=1e-12)
        assert richer.verdict[metric].low < mean < richer.verdict[metric].high


def test_many_heads_have_a_verdict_without_all_groups():
    analysis = many_heads()
    (finding,) = analysis.verdict.findings
    assert finding.metric == "l_acc"
    assert finding.interfering is None
    assert finding.enough is None
    assert "On the answer heads " in analysis.answer
    assert "too many for all groups" in analysis.answer


def test_words_need_the_whole_interval():
    assert word_of(0.01, 0.02) == "cooperate"
    assert word_of(-0.02, -0.01) == "redundant"
    assert word_of(-0.009, 0.009) == "neither"
    for low, high in ((0.0, 0.02), (-0.02, 0.0), (-0.02, 0.02)):
        assert word_of(low, high) == "undecided"


def made_up(metric="s_acc", question="answer", mean=-0.02, width=0.001, **more):
    known = {"copies": -0.03, "names": ("0", "1", "2", "3"), **more}
    return Finding(question=question, metric=metric, mean_interaction=mean,
                   low=mean - width, high=mean + width, **known)  # fmt: skip


def independent(beyond, width=0.001):
    return IndependentHeads(np.zeros(5), beyond, beyond - width, beyond + width)


@pytest.mark.parametrize(
    ("beyond", "width", "word", "text"),
    [
        (0.02, 0.001, "better", "they complement each other (+0.020)"),
        (-0.02, 0.001, "worse", "they share their mistakes (−0.020)"),
        (0.001, 0.001, "alike", "as well as independent heads of the same quality (+0.001)"),
        (0.0, 0.02, "undecided", "undecided (0.000)"),
    ],
)
def test_groups_against_independent_heads(beyond, width, word, text):
    finding = made_up(independent=independent(beyond, width))
    assert finding.against_independent == word
    assert text in str(finding)
    assert made_up().against_independent is None


def test_what_is_said():
    verdict = Verdict(
        (
            made_up(enough=1, interfering=(), independent=independent(0.0)),
            made_up("l_acc", mean=0.02, enough=3, interfering=(2,)),
            made_up("eos_l_acc", "end", mean=0.0, interfering=(0, 3)),
        )
    )
    assert verdict.summary == (
        "On the answer heads are redundant in what they know (s-acc, −0.020), and cooperate in "
        "what they answer together (l-acc, +0.020); 1 head works against the rest (2). On '[EOS]' "
        "heads on average neither cooperate nor repeat each other (0.000); 2 heads work against "
        "the rest (0, 3)."
    )
    first, second, third = str(verdict).splitlines()
    assert first == (
        "On the answer heads are redundant in what they know (s-acc): mean interaction −0.020, 95 % "
        "interval −0.021 to −0.019; exact copies −0.030; groups do as well as independent heads of "
        "the same quality (0.000); 1 of 4 is enough for 99 %."
    )
    assert "3 of 4 are enough for 99 %; 1 head works against the rest (2)." in second
    assert third.startswith("On '[EOS]' heads on average neither cooperate nor repeat each other: ")
    other = Verdict((made_up(question="colour", metric="l_acc", names=("0.0", "0.1", "1.0", "1.1"),
                             interfering=(1,), within=0.01, between=-0.02),))  # fmt: skip
    assert str(other).startswith("On the question 'colour' heads ")
    assert "+0.010 within layers, −0.020 between layers" in str(other)
    assert "(0.1)" in other.summary


def test_findings_are_had_by_metric_and_by_question():
    verdict = Verdict((made_up(), made_up("l_acc"), made_up("eos_l_acc", "end")))
    assert verdict["answer"] is verdict["s_acc"] is verdict.findings[0]
    assert verdict["l_acc"] is verdict.findings[1]
    assert verdict["end"] is verdict.findings[2]
    with pytest.raises(KeyError, match=r"expected one of \['s_acc', 'l_acc', 'eos_l_acc'\]"):
        _ = verdict["colour"]


def test_what_is_judged():
    assert judged_metrics(["answer", "end"], 1) == {
        "s_acc": "answer", "l_acc": "answer", "eos_l_acc": "end",
    }  # fmt: skip
    assert judged_metrics(["answer"], 2) == {"l_acc": "answer"}


def test_few_prompts_leave_it_undecided():
    few, many = (
        finding_of(
            "l_acc", "answer", Ends(np.resize([0.0, 0.06], n), 0.5), names="ab", layers=[0, 0]
        )
        for n in (6, 600)
    )
    assert few.mean_interaction == many.mean_interaction == pytest.approx(0.03)
    assert (few.word, many.word) == ("undecided", "cooperate")
    assert few.copies == -0.5


def test_what_is_no_number_is_not_written_as_zero():
    assert "0.000" not in str(made_up(mean=float("nan"))).split(";")[0]
