"""The verdict: the mean of pairs by its two ends, words by intervals, and what the text says."""

import numpy as np
import pytest

from count01_lens.heads.analyze import analyze_heads
from count01_lens.heads.contributions import ContributionsInWork
from count01_lens.heads.ends import Ends, ends_of_groups
from count01_lens.heads.independence import IndependentHeads
from count01_lens.heads.labels import label_heads
from count01_lens.heads.verdict import Finding, Verdict, finding_of, judged_metrics, word_of
from count01_lens.models.build import build_model
from count01_lens.models.config import ModelConfig
from tests.views.other_tasks import many_heads, two_layers_three_answers


def off_diagonal(matrix):
    return matrix[np.triu_indices(len(matrix), 1)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: analyze_heads(build_model(ModelConfig(d_embed=10, n_heads=5), seed=4)),
        two_layers_three_answers,
    ],
    ids=["counts", "two layers"],
)
def test_the_ends_give_the_mean_of_the_matrix_with_all_groups(make):
    analysis = make()
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


def test_heads_that_work_against_the_rest_are_named():
    # Of 1,000 prompts each of three heads helps with some; with the last, half of them are lost.
    right = np.zeros((8, 1000), dtype=bool)
    right[:, :100] = True
    for mask in range(8):
        right[mask, 100 : 100 + 300 * (mask & 3).bit_count()] = True
        if mask & 4:
            right[mask, 50:500] = False
    in_work = ContributionsInWork(3, 1000)
    in_work.add(np.arange(8), right)
    values, contributions = right.mean(axis=1), in_work.finished()
    finding = finding_of(
        "l_acc",
        "answer",
        ends_of_groups(values, contributions),
        names=["0.0", "0.1", "1.0"],
        layers=[0, 0, 1],
        labels=label_heads(values, contributions),
        values=values,
    )
    assert finding.interfering == (2,)
    assert finding.names_interfering == ["1.0"]
    assert "Head 1.0 works against the rest on the answer" in str(finding)


def test_many_heads_have_a_verdict_without_all_groups():
    analysis = many_heads()
    (finding,) = analysis.verdict.findings
    assert finding.metric == "l_acc"
    assert finding.interfering is None
    assert finding.enough is None
    assert analysis.answer.startswith(
        "On the answer, it is undecided whether the heads cooperate or are redundant."
    )
    assert "too many groups to measure all of them" in analysis.answer


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
        (0.02, 0.001, "better", "(+0.020 on average): the heads complement each other."),
        (-0.02, 0.001, "worse", "(−0.020 on average): the heads share their mistakes."),
        (
            0.001,
            0.001,
            "alike",
            "as well as groups of independent heads of the same quality (+0.001",
        ),
        (
            0.0,
            0.02,
            "undecided",
            "It is undecided whether groups do as well as groups of independent heads",
        ),
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
    assert verdict.headline == (
        "On the answer, the heads are redundant in what linear probes read from them, but they "
        "cooperate in what they answer together, and 1 of 4 works against the rest; on '[EOS]', "
        "they neither cooperate nor are redundant on average, and 2 of 4 work against the rest."
    )
    assert verdict.summary == (
        f"{verdict.headline} The mean interaction of two heads, which is how much more one adds to "
        "a group that has the other, is −0.020 by s-acc (what linear probes read from the heads) "
        "and +0.020 by l-acc (what the heads answer together) on the answer, and 0.000 by l-acc on "
        "'[EOS]'. Head 2 works against the rest on the answer, judged by l-acc: on average, groups "
        "do worse with it. Heads 0 and 3 work against the rest on '[EOS]': on average, groups do "
        "worse with either of them."
    )
    first, second, third = str(verdict).splitlines()
    assert first == (
        "On the answer, judged by s-acc (what linear probes read from the heads), the heads are "
        "redundant: mean interaction −0.020 (95 % interval −0.021 to −0.019; exact copies would "
        "have −0.030). Groups do as well as groups of independent heads of the same quality (0.000 "
        "on average). 1 of 4 heads is enough for 99 % of what all gain together."
    )
    assert (
        "3 of 4 heads are enough for 99 % of what all gain together. Head 2 works against the rest"
        in second
    )
    assert third.startswith(
        "On '[EOS]', judged by l-acc, the heads neither cooperate nor are redundant on average: "
    )
    other = Verdict((made_up(question="colour", metric="l_acc", names=("0.0", "0.1", "1.0", "1.1"),
                             interfering=(1,), within=0.01, between=-0.02),))  # fmt: skip
    assert str(other).startswith("On the question 'colour', judged by l-acc ")
    assert "The mean is +0.010 within layers, −0.020 between layers." in str(other)
    assert "Head 0.1 works against the rest on the question 'colour': " in other.summary


def test_what_is_said_of_several_questions_alike():
    def verdict(*means):
        asked = {"s_acc": "answer", "l_acc": "answer", "eos_l_acc": "end"}
        return Verdict(tuple(
            made_up(metric, question, mean, **more)
            for (metric, question), (mean, more) in zip(asked.items(), means, strict=True)
        ))  # fmt: skip

    against = {"interfering": (1,)}
    alike = verdict((-0.02, {}), (-0.03, {}), (-0.04, against))
    assert alike.headline == (
        "On the answer and on '[EOS]', the heads are redundant, and 1 of 4 works against the rest "
        "on '[EOS]'."
    )
    good = verdict((0.02, {}), (0.02, against), (-0.02, {}))
    assert good.headline == (
        "On the answer, the heads cooperate, but 1 of 4 works against the rest; on '[EOS]', they "
        "are redundant."
    )
    wide = {"low": -0.1, "high": 0.1}
    finding = Finding(question="end", metric="eos_l_acc", mean_interaction=0.0, copies=0.0,
                      names=("0", "1"), enough=2, **wide)  # fmt: skip
    assert Verdict((finding,)).headline == (
        "On '[EOS]', it is undecided whether the heads cooperate or are redundant."
    )
    assert str(finding).endswith("Both heads are needed for 99 % of what they gain together.")
    assert finding.summary == (
        "On '[EOS]', judged by l-acc, it is undecided whether the heads cooperate or are redundant "
        "(mean interaction 0.000)."
    )


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
